//! A transport that answers from a cassette: to each request what was answered to it then, and to the same request again what was answered
//! the next time. What was never asked is refused, and said what it differs in.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, future, stream};
use segue_core::prompt::{Failure, FailureKind};
use segue_core::signal::json::canonical;
use serde_json::Value;

use super::{CassetteError, Exchange, Outcome, body_of, differences, path_of, read};
use crate::http::{Request, Response, Transport};
use crate::limits::DIFFERENCES_SHOWN_MAX;

/// Plays a cassette.
#[derive(Debug)]
pub struct Player {
    name: String,
    cast: Value,
    shelf: Mutex<Shelf>,
}

/// What is left to be played.
#[derive(Debug, Default)]
struct Shelf {
    answers: BTreeMap<(String, String, String), VecDeque<Outcome>>,
    /// For saying what a request differs in: every path with every body.
    asked: Vec<(String, Value)>,
}

impl Player {
    /// Plays a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no cassette.
    pub fn new(path: &Path) -> Result<Self, CassetteError> {
        let (label, exchanges) = read(path)?;
        let mut shelf = Shelf::default();
        for Exchange { method, path, body, outcome } in exchanges {
            let place = (method, path.clone(), canonical(&body));
            shelf.answers.entry(place).or_default().push_back(outcome);
            shelf.asked.push((path, body));
        }
        Ok(Self { name: path.display().to_string(), cast: label.cast, shelf: Mutex::new(shelf) })
    }

    /// What whoever recorded it wanted to know now.
    #[must_use]
    pub fn cast(&self) -> &Value {
        &self.cast
    }

    /// How many answers nobody has asked for yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner).answers.values().map(VecDeque::len).sum()
    }

    fn answer(&self, request: &Request) -> Result<Response, Failure> {
        let (path, body) = (path_of(&request.url), body_of(&request.body));
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (request.method.word().to_owned(), path, canonical(&body));
        let outcome = shelf.answers.get_mut(&place).and_then(VecDeque::pop_front);
        match outcome {
            Some(Outcome::Failed(failure)) => Err(failure),
            Some(Outcome::Answered { status, headers, pieces, broke }) => {
                let pieces = pieces.into_iter().map(|piece| Ok(piece.into_bytes())).chain(broke.map(Err));
                Ok(Response { status, headers, body: stream::iter(pieces).boxed() })
            }
            None => {
                let why = shelf.why_not(&place, &body);
                let message = format!("the cassette {} holds no answer to this request: {why}", self.name);
                Err(Failure::new(FailureKind::BadRequest, message))
            }
        }
    }
}

impl Transport for Player {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Failure>> {
        future::ready(self.answer(&request)).boxed()
    }
}

impl Shelf {
    fn why_not(&self, place: &(String, String, String), body: &Value) -> String {
        if self.answers.contains_key(place) {
            return "it was asked as often as it was recorded".to_owned();
        }
        let there = self.asked.iter().filter(|(path, _)| *path == place.1);
        let nearest = there.map(|(_, known)| differences(known, body)).min_by_key(|found| found.distance);
        match nearest.map(|found| found.told) {
            Some(mut found) => {
                let more = found.len().saturating_sub(DIFFERENCES_SHOWN_MAX);
                found.truncate(DIFFERENCES_SHOWN_MAX);
                let more = if more > 0 { format!("; and at {more} more places") } else { String::new() };
                format!("the nearest that was recorded differs at {}{more}", found.join("; at "))
            }
            None => format!("nothing was recorded for {}", place.1),
        }
    }
}
