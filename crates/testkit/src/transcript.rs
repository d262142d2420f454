//! Parses conversations in the documentation: `speaker: text`, with continuation lines indented.

/// Returns the speakers and their texts in order.
///
/// # Panics
/// Panics if a line has no speaker.
#[must_use]
pub fn parse_transcript(transcript: &str) -> Vec<(&str, String)> {
    let mut messages: Vec<(&str, String)> = Vec::new();
    for line in transcript.lines() {
        match (line.strip_prefix("    "), messages.last_mut()) {
            (Some(more), Some((_, text))) => *text = format!("{text}\n{more}"),
            _ => {
                let (speaker, text) = line.split_once(": ").expect("the line has a speaker");
                messages.push((speaker.trim(), text.to_owned()));
            }
        }
    }
    messages
}
