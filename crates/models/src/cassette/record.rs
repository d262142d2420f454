//! A transport that writes down what passes through it. An exchange is written when it is over, also when nobody listens any more.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use segue_core::prompt::{Failure, FailureKind};
use serde_json::Value;

use super::{CassetteError, Exchange, FORMAT, HEADERS_KEPT, Label, Outcome, body_of, differences, path_of, read};
use crate::http::{Body, Request, Response, Secret, Transport};

/// Records what another transport carries.
#[derive(Debug)]
pub struct Recorder {
    inner: Arc<dyn Transport>,
    tape: Arc<Tape>,
}

#[derive(Debug)]
struct Tape {
    file: Mutex<File>,
}

impl Recorder {
    /// Records to a file, behind what a cassette there holds already. `cast` is given back when it is played.
    ///
    /// # Errors
    /// The file cannot be written, or holds something else, or what another cast said.
    pub fn new(inner: Arc<dyn Transport>, path: &Path, cast: Value) -> Result<Self, CassetteError> {
        let io = |source| CassetteError::Io { path: path.display().to_string(), source };
        let is_new = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
        if !is_new {
            let (label, _) = read(path)?;
            if let Some(difference) = differences(&label.cast, &cast).told.into_iter().next() {
                return Err(CassetteError::OtherCast { path: path.display().to_string(), difference });
            }
        }
        // It holds whole conversations.
        let mut options = File::options();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(PathBuf::from(path)).map_err(io)?;
        if is_new {
            let label = Label { segue_cassette: FORMAT, cast };
            write_line(&mut file, &label).map_err(io)?;
        }
        Ok(Self { inner, tape: Arc::new(Tape { file: Mutex::new(file) }) })
    }
}

fn write_line(file: &mut File, value: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl Transport for Recorder {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Failure>> {
        let key = request.key.as_ref().map(|header| header.key.clone());
        let strip = |text: &str| key.as_ref().map_or_else(|| text.to_owned(), |key| key.strip(text));
        let mut notes = Notes {
            tape: self.tape.clone(),
            method: request.method.word().to_owned(),
            path: strip(&path_of(&request.url)),
            body: body_of(&strip(&request.body)),
            answered: None,
            key: key.clone(),
        };
        let sending = self.inner.send(request);
        async move {
            match sending.await {
                Ok(response) => {
                    let kept = response.headers.iter().filter(|(name, _)| HEADERS_KEPT.contains(&name.as_str()));
                    notes.answered = Some(Answered {
                        status: response.status,
                        headers: kept.cloned().collect(),
                        bytes: Vec::new(),
                        broke: Some(Failure::new(FailureKind::Network, "nobody listened to the rest")),
                    });
                    Ok(Response { body: overheard(response.body, notes), ..response })
                }
                Err(failure) => {
                    let told = Failure { message: notes.strip(&failure.message), ..failure.clone() };
                    notes.write(Outcome::Failed(told));
                    Err(failure)
                }
            }
        }
        .boxed()
    }
}

/// Passes a body on, and notes what it holds.
fn overheard(body: Body, notes: Notes) -> Body {
    stream::unfold((body, notes), |(mut body, mut notes)| async move {
        let item = body.next().await;
        let answered = notes.answered.as_mut();
        match (&item, answered) {
            (Some(Ok(bytes)), Some(answered)) => answered.bytes.push(bytes.clone()),
            (Some(Err(failure)), Some(answered)) => answered.broke = Some(failure.clone()),
            (None, Some(answered)) => answered.broke = None,
            (_, None) => {}
        }
        item.map(|item| (item, (body, notes)))
    })
    .boxed()
}

/// What is known of an exchange under way. Written down when it is let go of.
struct Notes {
    tape: Arc<Tape>,
    method: String,
    path: String,
    body: Value,
    answered: Option<Answered>,
    key: Option<Secret>,
}

struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    bytes: Vec<Vec<u8>>,
    broke: Option<Failure>,
}

impl Notes {
    fn strip(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.strip(text))
    }

    fn write(&mut self, outcome: Outcome) {
        let (method, path) = (std::mem::take(&mut self.method), std::mem::take(&mut self.path));
        let exchange = Exchange { method, path, body: std::mem::take(&mut self.body), outcome };
        let mut file = self.tape.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk costs the recording, not the conversation.
        let _ = write_line(&mut file, &exchange);
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let Some(Answered { status, headers, bytes, broke }) = self.answered.take() else { return };
        let whole = String::from_utf8_lossy(&bytes.concat()).into_owned();
        let clean = self.strip(&whole);
        // A key may be cut in two by the pieces; only the whole can be searched for it.
        let pieces = if clean == whole { as_texts(&bytes) } else { vec![clean] };
        self.write(Outcome::Answered { status, headers, pieces, broke });
    }
}

/// The pieces as texts; a letter cut in two goes to the later one.
fn as_texts(pieces: &[Vec<u8>]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut held: Vec<u8> = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&held) {
            Ok(_) => held.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => held.len(),
        };
        let text = String::from_utf8_lossy(&held[..whole]).into_owned();
        held.drain(..whole);
        if !text.is_empty() {
            texts.push(text);
        }
    }
    if !held.is_empty() {
        texts.push(String::from_utf8_lossy(&held).into_owned());
    }
    texts
}
