//! Conversations as pages of the documentation write them down: `who: what`, with what follows on further lines indented.

/// Who says what, in order. A line without a speaker is a mistake of the page's.
///
/// # Panics
/// Nobody speaks in a line.
#[must_use]
pub fn parse_transcript(transcript: &str) -> Vec<(&str, String)> {
    let mut spoken: Vec<(&str, String)> = Vec::new();
    for line in transcript.lines() {
        match (line.strip_prefix("    "), spoken.last_mut()) {
            (Some(more), Some((_, text))) => *text = format!("{text}\n{more}"),
            _ => {
                let (who, text) = line.split_once(": ").expect("somebody speaks");
                spoken.push((who.trim(), text.to_owned()));
            }
        }
    }
    spoken
}
