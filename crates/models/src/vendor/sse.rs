//! Decodes server-sent events from chunks of bytes, or plain lines for servers that send one JSON value per line. Each byte is
//! read once, and no line or event exceeds its limit. Does not interpret the events.

use segue_core::prompt::{CallFailure, CallFailureKind};

use crate::limits::SSE_EVENT_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The event type; `message` if the server sent none.
    pub name: String,
    /// The data lines, joined.
    pub data: String,
}

/// Decodes events from chunks of bytes.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a carriage return; a line feed right after it belongs to the same line end.
    after_carriage_return: bool,
    has_read_line: bool,
    /// Every line is an event.
    is_line_delimited: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl SseDecoder {
    /// Creates a decoder that treats every line as an event.
    pub(super) fn line_delimited() -> Self {
        Self { is_line_delimited: true, ..Self::default() }
    }

    /// Adds a chunk and appends the events that it completes.
    ///
    /// # Errors
    /// `UnusableReply` if an event is too long, `MalformedReply` if it is not UTF-8.
    pub(super) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), CallFailure> {
        if self.after_carriage_return && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        if !bytes.is_empty() {
            self.after_carriage_return = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.append_to_line(&bytes[..end])?;
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.after_carriage_return = is_return && bytes.is_empty();
            if is_return && bytes.first() == Some(&b'\n') {
                bytes = &bytes[1..];
            }
            self.finish_line(events)?;
        }
        self.append_to_line(bytes)
    }

    /// Ends the stream; an event that lacks only its blank line is complete.
    pub(super) fn finish(&mut self, events: &mut Vec<SseEvent>) -> Result<(), CallFailure> {
        if !self.line.is_empty() {
            self.finish_line(events)?;
        }
        self.finish_event(events);
        Ok(())
    }

    fn append_to_line(&mut self, bytes: &[u8]) -> Result<(), CallFailure> {
        let buffered = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if buffered + bytes.len() > SSE_EVENT_BYTES_MAX {
            let message = format!("one event of the stream is longer than {SSE_EVENT_BYTES_MAX} bytes");
            return Err(CallFailure::new(CallFailureKind::UnusableReply, message));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn finish_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), CallFailure> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_read_line, true) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let line =
            String::from_utf8(line).map_err(|_| malformed_stream_failure("the stream is not UTF-8 text".to_owned()))?;
        if self.is_line_delimited {
            if !line.trim().is_empty() {
                events.push(SseEvent { name: String::new(), data: line });
            }
            return Ok(());
        }
        if line.is_empty() {
            self.finish_event(events);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            // Comments (no field), ids and reconnection times.
            _ => {}
        }
        Ok(())
    }

    fn finish_event(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            let name = if name.is_empty() { "message".to_owned() } else { name };
            events.push(SseEvent { name, data });
        }
    }
}

fn malformed_stream_failure(message: String) -> CallFailure {
    CallFailure::new(CallFailureKind::MalformedReply, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Vec<SseEvent>, CallFailure> {
        let (mut decoder, mut events) = (SseDecoder::default(), Vec::new());
        for chunk in chunks {
            decoder.push(chunk, &mut events)?;
        }
        decoder.finish(&mut events)?;
        Ok(events)
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.into(), data: data.into() }
    }

    #[test]
    fn fields_comments_and_line_ends_are_read_as_the_standard_says() {
        let text = "\u{feff}: hello\r\nevent: start\r\ndata: {\"a\":1}\r\n\r\nid: 4\ndata:x\ndata: y\n\nretry: 5\n\ndata: last";
        let expected = [event("start", "{\"a\":1}"), event("message", "x\ny"), event("message", "last")];
        assert_eq!(decode([text.as_bytes()]), Ok(expected.to_vec()));
        assert_eq!(
            decode([b"data: a\r\rdata: b\r\r".as_slice()]),
            Ok(vec![event("message", "a"), event("message", "b")])
        );
        assert_eq!(decode([b"data\n\n".as_slice()]), Ok(vec![event("message", "")]));
    }

    #[test]
    fn an_endless_line_and_invalid_utf8_are_refused() {
        let chunk = vec![b'x'; 1 << 16];
        let endless = std::iter::repeat_n(chunk.as_slice(), SSE_EVENT_BYTES_MAX / chunk.len() + 1);
        assert_eq!(decode(endless).expect_err("too long").kind, CallFailureKind::UnusableReply);
        let many_lines = "data: y\n".repeat(SSE_EVENT_BYTES_MAX / 2);
        assert_eq!(decode([many_lines.as_bytes()]).expect_err("too long").kind, CallFailureKind::UnusableReply);
        assert_eq!(decode([b"data: \xff\n\n".as_slice()]).expect_err("no text").kind, CallFailureKind::MalformedReply);
    }

    #[test]
    fn line_delimited_json_is_read_line_by_line() {
        let mut decoder = SseDecoder::line_delimited();
        let mut events = Vec::new();
        for chunk in ["{\"a\":\"data: ", "x\"}\r\n\n{\"b\"", ":1}"] {
            decoder.push(chunk.as_bytes(), &mut events).expect("short");
        }
        decoder.finish(&mut events).expect("text");
        assert_eq!(events, [event("", "{\"a\":\"data: x\"}"), event("", "{\"b\":1}")]);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            text in "(data: |event: |: |[äß€a-c:]{0,4}|\n|\r\n|\r){0,40}",
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&bytes[start..cut]);
                start = cut;
            }
            chunks.push(&bytes[start..]);
            prop_assert_eq!(decode(chunks), decode([bytes]));
        }
    }
}
