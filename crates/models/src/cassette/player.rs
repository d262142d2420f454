//! A transport that answers from a cassette: to each request what was answered to it then, and to the same request again what was answered
//! the next time. What was never asked is refused, and said what it differs in.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, future, stream};
use segue_core::prompt::{CallFailure, FailureKind};
use segue_core::signal::json::canonical_json;
use serde_json::Value;

use super::{
    CassetteError, RecordedExchange, RecordedOutcome, diff_json, parse_json_or_text, read_cassette, url_path_and_query,
};
use crate::http::{HttpRequest, HttpResponse, HttpTransport};
use crate::limits::REQUEST_DIFFERENCES_SHOWN_MAX;

/// Plays a cassette.
#[derive(Debug)]
pub struct CassettePlayer {
    name: String,
    metadata: Value,
    remaining: Mutex<RemainingExchanges>,
}

/// What is left to be played.
#[derive(Debug, Default)]
struct RemainingExchanges {
    outcomes: BTreeMap<(String, String, String), VecDeque<RecordedOutcome>>,
    /// For saying what a request differs in: every path with every body.
    recorded_requests: Vec<(String, Value)>,
}

impl CassettePlayer {
    /// Plays a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no cassette.
    pub fn new(path: &Path) -> Result<Self, CassetteError> {
        let (label, exchanges) = read_cassette(path)?;
        let mut shelf = RemainingExchanges::default();
        for RecordedExchange { method, path, body, outcome } in exchanges {
            let place = (method, path.clone(), canonical_json(&body));
            shelf.outcomes.entry(place).or_default().push_back(outcome);
            shelf.recorded_requests.push((path, body));
        }
        Ok(Self { name: path.display().to_string(), metadata: label.metadata, remaining: Mutex::new(shelf) })
    }

    /// What whoever recorded it wanted to know now.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// How many answers nobody has asked for yet.
    #[must_use]
    pub fn remaining_count(&self) -> usize {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner).outcomes.values().map(VecDeque::len).sum()
    }

    fn replay_response(&self, request: &HttpRequest) -> Result<HttpResponse, CallFailure> {
        let (path, body) = (url_path_and_query(&request.url), parse_json_or_text(&request.body));
        let mut shelf = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (request.method.as_str().to_owned(), path, canonical_json(&body));
        let outcome = shelf.outcomes.get_mut(&place).and_then(VecDeque::pop_front);
        match outcome {
            Some(RecordedOutcome::Failed(failure)) => Err(failure),
            Some(RecordedOutcome::Responded { status, headers, chunks: pieces, stream_failure: broke }) => {
                let pieces = pieces.into_iter().map(|piece| Ok(piece.into_bytes())).chain(broke.map(Err));
                Ok(HttpResponse { status, headers, body: stream::iter(pieces).boxed() })
            }
            None => {
                let why = shelf.explain_missing_response(&place, &body);
                let message = format!("the cassette {} holds no answer to this request: {why}", self.name);
                Err(CallFailure::new(FailureKind::BadRequest, message))
            }
        }
    }
}

impl HttpTransport for CassettePlayer {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, CallFailure>> {
        future::ready(self.replay_response(&request)).boxed()
    }
}

impl RemainingExchanges {
    fn explain_missing_response(&self, key: &(String, String, String), body: &Value) -> String {
        if self.outcomes.contains_key(key) {
            return "it was asked as often as it was recorded".to_owned();
        }
        let there = self.recorded_requests.iter().filter(|(path, _)| *path == key.1);
        let nearest = there.map(|(_, known)| diff_json(known, body)).min_by_key(|found| found.distance);
        match nearest.map(|found| found.descriptions) {
            Some(mut found) => {
                let more = found.len().saturating_sub(REQUEST_DIFFERENCES_SHOWN_MAX);
                found.truncate(REQUEST_DIFFERENCES_SHOWN_MAX);
                let more = if more > 0 { format!("; and at {more} more places") } else { String::new() };
                format!("the nearest that was recorded differs at {}{more}", found.join("; at "))
            }
            None => format!("nothing was recorded for {}", key.1),
        }
    }
}
