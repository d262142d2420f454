//! Reads typed or piped input, one line at a time and only on request. Reading happens on a separate thread, because a
//! blocking read cannot be cancelled.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use tokio::sync::mpsc as channel;

use super::slash_command::complete_command;
use crate::limits::{DRAFT_BYTES_MAX, HISTORY_LINES_MAX};
use crate::print::paint::Paint;

/// The response to a request for input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputReaderResponse {
    /// A line, or a pasted text.
    Text(String),
    /// Ctrl-C was pressed.
    Interrupted(InterruptedLineEmptiness),
    /// Ctrl-D was pressed, or the file has ended.
    EndOfInput,
    /// A line is invalid, for this reason. More lines may follow.
    Unreadable(String),
    /// Input cannot be read any more, for this reason.
    ReadFailed(String),
}

/// Whether the line was empty when Ctrl-C was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptedLineEmptiness {
    NonEmpty,
    Empty,
}

enum InputReaderRequest {
    ReadLine(String),
    SaveHistory(String),
}

/// A handle to the thread that reads input.
#[derive(Debug)]
pub(crate) struct InputReader {
    requests: mpsc::Sender<InputReaderRequest>,
    events: channel::UnboundedReceiver<InputReaderResponse>,
}

impl InputReader {
    /// Reads from the keyboard, with line editing, history and completion.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be used.
    pub(crate) fn from_keyboard(paint: Paint, history: Option<PathBuf>) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX)?.history_ignore_dups(true)?.build();
        let mut editor: Editor<SlashCompleter, DefaultHistory> = Editor::with_config(config)?;
        let has_text = Arc::new(AtomicBool::new(false));
        editor.set_helper(Some(SlashCompleter { has_text: has_text.clone() }));
        if let Some(path) = &history {
            // The error may be dropped: the file does not exist at first.
            let _ = editor.load_history(path);
        }
        Ok(Self::spawn(move |requests, events| {
            for request in requests {
                match request {
                    InputReaderRequest::ReadLine(prompt) => {
                        let styled = paint.highlight(&prompt);
                        has_text.store(false, Ordering::Relaxed);
                        let event = readline_event(editor.readline(&(prompt, styled)), &has_text);
                        if events.send(event).is_err() {
                            return;
                        }
                    }
                    InputReaderRequest::SaveHistory(line) => save_history_line(&mut editor, history.as_deref(), &line),
                }
            }
        }))
    }

    /// Reads lines from a file or a pipe.
    pub(crate) fn from_lines(mut input: impl BufRead + Send + 'static) -> Self {
        Self::spawn(move |requests, events| {
            for request in requests {
                let event = match request {
                    InputReaderRequest::ReadLine(_) => read_line_event(&mut input),
                    InputReaderRequest::SaveHistory(_) => continue,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })
    }

    fn spawn(
        work: impl FnOnce(mpsc::Receiver<InputReaderRequest>, channel::UnboundedSender<InputReaderResponse>)
        + Send
        + 'static,
    ) -> Self {
        let (requests, request_receiver) = mpsc::channel();
        let (event_sender, events) = channel::unbounded_channel();
        std::thread::spawn(move || work(request_receiver, event_sender));
        Self { requests, events }
    }

    /// Requests a line. Its event stays available until [`InputReader::next_event`] returns it.
    pub(crate) fn request_line(&self, prompt: &str) {
        // The error may be dropped: if the thread has ended, `next_event` returns the end of input.
        let _ = self.requests.send(InputReaderRequest::ReadLine(prompt.to_owned()));
    }

    /// Returns the event for the requested line.
    pub(crate) async fn next_event(&mut self) -> InputReaderResponse {
        self.events.recv().await.unwrap_or(InputReaderResponse::EndOfInput)
    }

    /// Saves a line in the input history.
    pub(crate) fn save_to_history(&self, line: &str) {
        let _ = self.requests.send(InputReaderRequest::SaveHistory(line.to_owned()));
    }
}

fn readline_event(line: Result<String, ReadlineError>, has_text: &AtomicBool) -> InputReaderResponse {
    match line {
        Ok(text) => InputReaderResponse::Text(text),
        Err(ReadlineError::Interrupted) if has_text.load(Ordering::Relaxed) => {
            InputReaderResponse::Interrupted(InterruptedLineEmptiness::NonEmpty)
        }
        Err(ReadlineError::Interrupted) => InputReaderResponse::Interrupted(InterruptedLineEmptiness::Empty),
        Err(ReadlineError::Eof) => InputReaderResponse::EndOfInput,
        Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            InputReaderResponse::Unreadable("the line is not UTF-8".to_owned())
        }
        // The terminal was closed.
        Err(_) => InputReaderResponse::EndOfInput,
    }
}

fn save_history_line(editor: &mut Editor<SlashCompleter, DefaultHistory>, history: Option<&Path>, line: &str) {
    let added = editor.add_history_entry(line).unwrap_or(false);
    let Some(path) = history.filter(|_| added) else { return };
    // The errors may be dropped: without a file, the history only ends with the program.
    let _ = path.parent().map(crate::private_files::create_private_folder);
    let _ = editor.append_history(path);
}

fn read_line_event(input: &mut impl BufRead) -> InputReaderResponse {
    let mut line = Vec::new();
    let limit = u64::try_from(DRAFT_BYTES_MAX).unwrap_or(u64::MAX);
    match input.by_ref().take(limit).read_until(b'\n', &mut line) {
        Ok(0) => return InputReaderResponse::EndOfInput,
        Ok(_) => {}
        Err(error) => return InputReaderResponse::ReadFailed(format!("cannot read standard input: {error}")),
    }
    if line.len() >= DRAFT_BYTES_MAX && !line.ends_with(b"\n") {
        let rest = input.skip_until(b'\n');
        let reason = format!("a line has more than {DRAFT_BYTES_MAX} bytes; send it in parts");
        return rest.map_or(InputReaderResponse::EndOfInput, |_| InputReaderResponse::Unreadable(reason));
    }
    match String::from_utf8(line) {
        Ok(mut text) => {
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
            InputReaderResponse::Text(text)
        }
        Err(_) => InputReaderResponse::Unreadable("the line is not UTF-8".to_owned()),
    }
}

/// Completes slash commands, and tracks whether the line is empty.
struct SlashCompleter {
    has_text: Arc<AtomicBool>,
}

impl Helper for SlashCompleter {}
impl Highlighter for SlashCompleter {}
impl Validator for SlashCompleter {}

impl Hinter for SlashCompleter {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.has_text.store(!line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Completer for SlashCompleter {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, complete_command(&line[..pos])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_until_the_end() {
        let mut input = std::io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let events: Vec<InputReaderResponse> = (0..4).map(|_| read_line_event(&mut input)).collect();
        let text = |text: &str| InputReaderResponse::Text(text.to_owned());
        assert_eq!(events, [text("one"), text(""), text("two"), InputReaderResponse::EndOfInput]);
    }

    #[test]
    fn an_invalid_line_does_not_end_the_input() {
        let mut bytes = vec![b'x'; DRAFT_BYTES_MAX + 9];
        bytes.extend(b"\n\xff\nlast\n");
        let mut input = std::io::Cursor::new(bytes);
        assert!(
            matches!(read_line_event(&mut input), InputReaderResponse::Unreadable(reason) if reason.contains("in parts"))
        );
        assert_eq!(read_line_event(&mut input), InputReaderResponse::Unreadable("the line is not UTF-8".to_owned()));
        assert_eq!(read_line_event(&mut input), InputReaderResponse::Text("last".to_owned()));
    }
}
