//! What is typed or piped in, a piece at a time and only when asked for. It reads on a thread of its own, since nothing can
//! wake a thread that waits for a key.

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

/// What comes when one asks for a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum InputEvent {
    /// A line, or a pasted text.
    Text(String),
    /// Ctrl-C, on a line that held this.
    Interrupted(LineContent),
    /// Ctrl-D, or the end of the file.
    EndOfInput,
    /// One that cannot be taken, and why. More may follow.
    Unreadable(String),
    /// Nothing more can be read, and why.
    ReadFailed(String),
}

/// What a line held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineContent {
    /// Something.
    NonEmpty,
    /// Nothing.
    Empty,
}

enum ReaderRequest {
    ReadLine(String),
    SaveHistory(String),
}

/// Where pieces come from.
#[derive(Debug)]
pub struct InputReader {
    requests: mpsc::Sender<ReaderRequest>,
    events: channel::UnboundedReceiver<InputEvent>,
}

impl InputReader {
    /// Keys, with editing, a history and the tab key.
    ///
    /// # Errors
    /// There is no terminal that can be used.
    pub fn from_keyboard(paint: Paint, history: Option<PathBuf>) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX)?.history_ignore_dups(true)?.build();
        let mut editor: Editor<SlashCompleter, DefaultHistory> = Editor::with_config(config)?;
        let words = Arc::new(AtomicBool::new(false));
        editor.set_helper(Some(SlashCompleter { has_text: words.clone() }));
        if let Some(path) = &history {
            // No history yet is no failure.
            let _ = editor.load_history(path);
        }
        Ok(Self::spawn(move |requests, pieces| {
            for request in requests {
                match request {
                    ReaderRequest::ReadLine(prompt) => {
                        let styled = paint.highlight(&prompt);
                        words.store(false, Ordering::Relaxed);
                        let piece = readline_event(editor.readline(&(prompt, styled)), &words);
                        if pieces.send(piece).is_err() {
                            return;
                        }
                    }
                    ReaderRequest::SaveHistory(line) => save_history_line(&mut editor, history.as_deref(), &line),
                }
            }
        }))
    }

    /// Lines of a file or another program.
    pub fn from_lines(mut input: impl BufRead + Send + 'static) -> Self {
        Self::spawn(move |requests, pieces| {
            for request in requests {
                let piece = match request {
                    ReaderRequest::ReadLine(_) => read_line_event(&mut input),
                    ReaderRequest::SaveHistory(_) => continue,
                };
                if pieces.send(piece).is_err() {
                    return;
                }
            }
        })
    }

    fn spawn(
        work: impl FnOnce(mpsc::Receiver<ReaderRequest>, channel::UnboundedSender<InputEvent>) + Send + 'static,
    ) -> Self {
        let (requests, asked) = mpsc::channel();
        let (answers, pieces) = channel::unbounded_channel();
        std::thread::spawn(move || work(asked, answers));
        Self { requests, events: pieces }
    }

    /// Asks for a piece. Whoever drops this before it is done still gets that piece next time.
    pub fn request_line(&self, prompt: &str) {
        // A thread that is gone gives no more pieces, which `next` says.
        let _ = self.requests.send(ReaderRequest::ReadLine(prompt.to_owned()));
    }

    /// The piece that was asked for.
    pub async fn next_event(&mut self) -> InputEvent {
        self.events.recv().await.unwrap_or(InputEvent::EndOfInput)
    }

    /// Keeps a line for the arrow keys.
    pub fn save_to_history(&self, line: &str) {
        let _ = self.requests.send(ReaderRequest::SaveHistory(line.to_owned()));
    }
}

fn readline_event(line: Result<String, ReadlineError>, has_text: &AtomicBool) -> InputEvent {
    match line {
        Ok(text) => InputEvent::Text(text),
        Err(ReadlineError::Interrupted) if has_text.load(Ordering::Relaxed) => {
            InputEvent::Interrupted(LineContent::NonEmpty)
        }
        Err(ReadlineError::Interrupted) => InputEvent::Interrupted(LineContent::Empty),
        Err(ReadlineError::Eof) => InputEvent::EndOfInput,
        Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            InputEvent::Unreadable("what was typed is not UTF-8".to_owned())
        }
        // The terminal is gone.
        Err(_) => InputEvent::EndOfInput,
    }
}

fn save_history_line(editor: &mut Editor<SlashCompleter, DefaultHistory>, history: Option<&Path>, line: &str) {
    let added = editor.add_history_entry(line).unwrap_or(false);
    let Some(path) = history.filter(|_| added) else { return };
    // A history that cannot be written is only missed the next time.
    let _ = path.parent().map(std::fs::create_dir_all);
    let _ = editor.append_history(path);
}

fn read_line_event(input: &mut impl BufRead) -> InputEvent {
    let mut line = Vec::new();
    let limit = u64::try_from(DRAFT_BYTES_MAX).unwrap_or(u64::MAX);
    match input.by_ref().take(limit).read_until(b'\n', &mut line) {
        Ok(0) => return InputEvent::EndOfInput,
        Ok(_) => {}
        Err(error) => return InputEvent::ReadFailed(format!("standard input cannot be read: {error}")),
    }
    if line.len() >= DRAFT_BYTES_MAX && !line.ends_with(b"\n") {
        let rest = input.skip_until(b'\n');
        let why = format!("a line of more than {DRAFT_BYTES_MAX} bytes cannot be taken; send it in parts");
        return rest.map_or(InputEvent::EndOfInput, |_| InputEvent::Unreadable(why));
    }
    match String::from_utf8(line) {
        Ok(mut text) => {
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
            InputEvent::Text(text)
        }
        Err(_) => InputEvent::Unreadable("a line is not UTF-8".to_owned()),
    }
}

/// Completes commands, and sees whether anything stands on the line.
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
    fn lines_come_one_by_one_until_the_end() {
        let mut input = std::io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let pieces: Vec<InputEvent> = (0..4).map(|_| read_line_event(&mut input)).collect();
        let text = |text: &str| InputEvent::Text(text.to_owned());
        assert_eq!(pieces, [text("one"), text(""), text("two"), InputEvent::EndOfInput]);
    }

    #[test]
    fn what_cannot_be_read_does_not_end_the_conversation() {
        let mut bytes = vec![b'x'; DRAFT_BYTES_MAX + 9];
        bytes.extend(b"\n\xff\nlast\n");
        let mut input = std::io::Cursor::new(bytes);
        assert!(matches!(read_line_event(&mut input), InputEvent::Unreadable(why) if why.contains("in parts")));
        assert_eq!(read_line_event(&mut input), InputEvent::Unreadable("a line is not UTF-8".to_owned()));
        assert_eq!(read_line_event(&mut input), InputEvent::Text("last".to_owned()));
    }
}
