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

use super::slash::completions;
use crate::limits::{DRAFT_BYTES_MAX, HISTORY_LINES_MAX};
use crate::print::paint::Paint;

/// What comes when one asks for a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line, or a pasted text.
    Text(String),
    /// Ctrl-C, on a line that held this.
    Interrupted(Held),
    /// Ctrl-D, or the end of the file.
    End,
    /// One that cannot be taken, and why. More may follow.
    Unreadable(String),
    /// Nothing more can be read, and why.
    Broken(String),
}

/// What a line held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Something.
    Words,
    /// Nothing.
    Nothing,
}

enum Request {
    Read(String),
    Keep(String),
}

/// Where pieces come from.
#[derive(Debug)]
pub struct Reader {
    requests: mpsc::Sender<Request>,
    pieces: channel::UnboundedReceiver<Piece>,
}

impl Reader {
    /// Keys, with editing, a history and the tab key.
    ///
    /// # Errors
    /// There is no terminal that can be used.
    pub fn of_keys(paint: Paint, history: Option<PathBuf>) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX)?.history_ignore_dups(true)?.build();
        let mut editor: Editor<Slashes, DefaultHistory> = Editor::with_config(config)?;
        let words = Arc::new(AtomicBool::new(false));
        editor.set_helper(Some(Slashes { words: words.clone() }));
        if let Some(path) = &history {
            // No history yet is no failure.
            let _ = editor.load_history(path);
        }
        Ok(Self::on_thread(move |requests, pieces| {
            for request in requests {
                match request {
                    Request::Read(prompt) => {
                        let styled = paint.name(&prompt);
                        words.store(false, Ordering::Relaxed);
                        let piece = piece_of(editor.readline(&(prompt, styled)), &words);
                        if pieces.send(piece).is_err() {
                            return;
                        }
                    }
                    Request::Keep(line) => keep(&mut editor, history.as_deref(), &line),
                }
            }
        }))
    }

    /// Lines of a file or another program.
    pub fn of_lines(mut input: impl BufRead + Send + 'static) -> Self {
        Self::on_thread(move |requests, pieces| {
            for request in requests {
                let piece = match request {
                    Request::Read(_) => next_line(&mut input),
                    Request::Keep(_) => continue,
                };
                if pieces.send(piece).is_err() {
                    return;
                }
            }
        })
    }

    fn on_thread(work: impl FnOnce(mpsc::Receiver<Request>, channel::UnboundedSender<Piece>) + Send + 'static) -> Self {
        let (requests, asked) = mpsc::channel();
        let (answers, pieces) = channel::unbounded_channel();
        std::thread::spawn(move || work(asked, answers));
        Self { requests, pieces }
    }

    /// Asks for a piece. Whoever drops this before it is done still gets that piece next time.
    pub fn ask(&self, prompt: &str) {
        // A thread that is gone gives no more pieces, which `next` says.
        let _ = self.requests.send(Request::Read(prompt.to_owned()));
    }

    /// The piece that was asked for.
    pub async fn next(&mut self) -> Piece {
        self.pieces.recv().await.unwrap_or(Piece::End)
    }

    /// Keeps a line for the arrow keys.
    pub fn keep(&self, line: &str) {
        let _ = self.requests.send(Request::Keep(line.to_owned()));
    }
}

fn piece_of(line: Result<String, ReadlineError>, words: &AtomicBool) -> Piece {
    match line {
        Ok(text) => Piece::Text(text),
        Err(ReadlineError::Interrupted) if words.load(Ordering::Relaxed) => Piece::Interrupted(Held::Words),
        Err(ReadlineError::Interrupted) => Piece::Interrupted(Held::Nothing),
        Err(ReadlineError::Eof) => Piece::End,
        Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            Piece::Unreadable("what was typed is not UTF-8".to_owned())
        }
        // The terminal is gone.
        Err(_) => Piece::End,
    }
}

fn keep(editor: &mut Editor<Slashes, DefaultHistory>, history: Option<&Path>, line: &str) {
    let added = editor.add_history_entry(line).unwrap_or(false);
    let Some(path) = history.filter(|_| added) else { return };
    // A history that cannot be written is only missed the next time.
    let _ = path.parent().map(std::fs::create_dir_all);
    let _ = editor.append_history(path);
}

fn next_line(input: &mut impl BufRead) -> Piece {
    let mut line = Vec::new();
    let limit = u64::try_from(DRAFT_BYTES_MAX).unwrap_or(u64::MAX);
    match input.by_ref().take(limit).read_until(b'\n', &mut line) {
        Ok(0) => return Piece::End,
        Ok(_) => {}
        Err(error) => return Piece::Broken(format!("standard input cannot be read: {error}")),
    }
    if line.len() >= DRAFT_BYTES_MAX && !line.ends_with(b"\n") {
        let rest = input.skip_until(b'\n');
        let why = format!("a line of more than {DRAFT_BYTES_MAX} bytes cannot be taken; send it in parts");
        return rest.map_or(Piece::End, |_| Piece::Unreadable(why));
    }
    match String::from_utf8(line) {
        Ok(mut text) => {
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
            Piece::Text(text)
        }
        Err(_) => Piece::Unreadable("a line is not UTF-8".to_owned()),
    }
}

/// Completes commands, and sees whether anything stands on the line.
struct Slashes {
    words: Arc<AtomicBool>,
}

impl Helper for Slashes {}
impl Highlighter for Slashes {}
impl Validator for Slashes {}

impl Hinter for Slashes {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.words.store(!line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Completer for Slashes {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, completions(&line[..pos])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_until_the_end() {
        let mut input = std::io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let pieces: Vec<Piece> = (0..4).map(|_| next_line(&mut input)).collect();
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(pieces, [text("one"), text(""), text("two"), Piece::End]);
    }

    #[test]
    fn what_cannot_be_read_does_not_end_the_conversation() {
        let mut bytes = vec![b'x'; DRAFT_BYTES_MAX + 9];
        bytes.extend(b"\n\xff\nlast\n");
        let mut input = std::io::Cursor::new(bytes);
        assert!(matches!(next_line(&mut input), Piece::Unreadable(why) if why.contains("in parts")));
        assert_eq!(next_line(&mut input), Piece::Unreadable("a line is not UTF-8".to_owned()));
        assert_eq!(next_line(&mut input), Piece::Text("last".to_owned()));
    }
}
