//! A transport that answers from a cassette. Each request gets the response recorded for it. Of several responses to equal
//! requests it gets the next one that belongs to its call, or else the next one. A request that was not recorded fails,
//! with the closest recorded one and how it differs.
//!
//! Responses end in the order in which they ended when they were recorded, and with as many other requests in flight, because
//! what agents that work at the same time read next depends on it. A request waits for the earlier responses of its session
//! and for these other requests, but not for long: in a conversation that differs from the recorded one, they may never come.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_core::signal::canonical_json;
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    CassetteError, CassetteExchange, CassetteExchangeOutcome, diff_json, parse_json_or_text, read_cassette,
    url_path_and_query,
};
use crate::http::{HttpTransport, VendorHttpRequest, VendorHttpResponse};
use crate::limits::{CASSETTE_ORDER_PAUSE_MS, CASSETTE_ORDER_WAIT_MS_MAX, REQUEST_DIFFERENCES_SHOWN_MAX};

#[derive(Debug)]
pub struct CassetteReplayTransport {
    name: String,
    metadata: Value,
    remaining: Arc<Mutex<RemainingCassetteExchanges>>,
    /// Notified when a request arrives and when a response has ended.
    changed: Arc<Notify>,
}

/// What makes two requests equal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CassetteRequestKey {
    method: String,
    path: String,
    canonical_body: String,
}

/// The outcome of a recorded request, and the call that made it.
#[derive(Debug)]
struct CassetteOutcomeWithCall {
    /// The position in the cassette.
    index: usize,
    call: Option<CallId>,
    others_in_flight: u32,
    outcome: CassetteExchangeOutcome,
}

/// The recorded exchanges that have not been replayed yet.
#[derive(Debug, Default)]
struct RemainingCassetteExchanges {
    outcomes: BTreeMap<CassetteRequestKey, VecDeque<CassetteOutcomeWithCall>>,
    /// Path and body of every recorded request, to explain a mismatch.
    recorded_requests: Vec<(String, Value)>,
    /// For each exchange, whether its response has ended.
    ended: Vec<bool>,
    /// For each exchange, the position of the first one of its session.
    session_starts: Vec<usize>,
    /// The number of requests whose responses have not ended.
    in_flight: u32,
}

/// A response that is being read. It has ended when this is dropped.
struct CassetteResponseInProgress {
    index: usize,
    others_in_flight: u32,
    remaining: Arc<Mutex<RemainingCassetteExchanges>>,
    changed: Arc<Notify>,
}

impl Drop for CassetteResponseInProgress {
    fn drop(&mut self) {
        let mut remaining = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        remaining.ended[self.index] = true;
        remaining.in_flight -= 1;
        drop(remaining);
        self.changed.notify_waiters();
    }
}

impl CassetteResponseInProgress {
    /// Waits until the earlier responses of the session have ended, and as many other requests are in flight as were at the
    /// end of the recorded one.
    async fn wait_for_its_turn(&self) {
        let mut has_waited = false;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no notification is missed.
            changed.as_mut().enable();
            if self.remaining.lock().unwrap_or_else(PoisonError::into_inner).is_turn_of(self) {
                break;
            }
            has_waited = true;
            if tokio::time::timeout(Duration::from_millis(CASSETTE_ORDER_WAIT_MS_MAX), changed).await.is_err() {
                break;
            }
        }
        // A response has been read before it has been recorded in the journal.
        if has_waited {
            tokio::time::sleep(Duration::from_millis(CASSETTE_ORDER_PAUSE_MS)).await;
        }
    }
}

impl CassetteReplayTransport {
    /// Reads a cassette file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a cassette.
    pub fn new(path: &Path) -> Result<Self, CassetteError> {
        let (header, exchanges) = read_cassette(path)?;
        let mut remaining = RemainingCassetteExchanges::default();
        // The first call of a session may have been retried.
        let mut follows_first_call = false;
        for (index, exchange) in exchanges.into_iter().enumerate() {
            let CassetteExchange { method, path, call, body, others_in_flight, outcome } = exchange;
            let is_first_call = call == Some(CallId(1));
            let session_start = match remaining.session_starts.last() {
                Some(start) if !is_first_call || follows_first_call => *start,
                _ => index,
            };
            follows_first_call = is_first_call;
            remaining.session_starts.push(session_start);
            remaining.ended.push(false);
            let key = CassetteRequestKey { method, path: path.clone(), canonical_body: canonical_json(&body) };
            remaining.outcomes.entry(key).or_default().push_back(CassetteOutcomeWithCall {
                index,
                call,
                others_in_flight,
                outcome,
            });
            remaining.recorded_requests.push((path, body));
        }
        let (remaining, changed) = (Arc::new(Mutex::new(remaining)), Arc::new(Notify::new()));
        Ok(Self { name: path.display().to_string(), metadata: header.metadata, remaining, changed })
    }

    /// Returns the metadata given by the recording side.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// Returns the number of responses that have not been replayed.
    #[must_use]
    pub fn remaining_response_count(&self) -> usize {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner).outcomes.values().map(VecDeque::len).sum()
    }

    /// Takes the outcome that was recorded for a request.
    fn take_outcome(&self, request: &VendorHttpRequest) -> Result<CassetteOutcomeWithCall, CallFailure> {
        let (path, body) = (url_path_and_query(&request.url), parse_json_or_text(&request.body));
        let mut remaining = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        let key = CassetteRequestKey {
            method: request.method.as_str().to_owned(),
            path,
            canonical_body: canonical_json(&body),
        };
        let recorded = remaining.outcomes.get_mut(&key).and_then(|outcomes| {
            let of_call = outcomes.iter().position(|recorded| recorded.call == request.call);
            outcomes.remove(of_call.unwrap_or_default())
        });
        if let Some(recorded) = recorded {
            remaining.in_flight += 1;
            drop(remaining);
            self.changed.notify_waiters();
            return Ok(recorded);
        }
        let reason = remaining.explain_missing_response(&key, &body);
        let message = format!("the cassette {} has no response to this request: {reason}", self.name);
        Err(CallFailure::new(CallFailureKind::BadRequest, message))
    }
}

impl HttpTransport for CassetteReplayTransport {
    fn send(&self, request: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        let started = self.take_outcome(&request).map(|recorded| {
            let CassetteOutcomeWithCall { index, others_in_flight, outcome, .. } = recorded;
            let (remaining, changed) = (self.remaining.clone(), self.changed.clone());
            (CassetteResponseInProgress { index, others_in_flight, remaining, changed }, outcome)
        });
        async move {
            let (in_progress, outcome) = started?;
            in_progress.wait_for_its_turn().await;
            match outcome {
                CassetteExchangeOutcome::Failed(failure) => Err(failure),
                CassetteExchangeOutcome::Responded { status, headers, chunks, stream_failure } => {
                    let chunks = chunks.into_iter().map(|chunk| Ok(chunk.into_bytes())).chain(stream_failure.map(Err));
                    let body = stream::iter(chunks).inspect(move |_| {
                        let _ = &in_progress;
                    });
                    Ok(VendorHttpResponse { status, headers, body: body.boxed() })
                }
            }
        }
        .boxed()
    }
}

impl RemainingCassetteExchanges {
    /// Returns whether all earlier responses of the session have ended, and enough other requests are in flight.
    fn is_turn_of(&self, response: &CassetteResponseInProgress) -> bool {
        let earlier = self.session_starts[response.index]..response.index;
        self.ended[earlier].iter().all(|ended| *ended) && self.in_flight > response.others_in_flight
    }

    fn explain_missing_response(&self, key: &CassetteRequestKey, body: &Value) -> String {
        if self.outcomes.contains_key(key) {
            return "it was sent more often than it was recorded".to_owned();
        }
        let same_path = self.recorded_requests.iter().filter(|(path, _)| *path == key.path);
        let nearest = same_path.map(|(_, known)| diff_json(known, body)).min_by_key(|found| found.distance);
        match nearest.map(|found| found.descriptions) {
            Some(mut found) => {
                let more = found.len().saturating_sub(REQUEST_DIFFERENCES_SHOWN_MAX);
                found.truncate(REQUEST_DIFFERENCES_SHOWN_MAX);
                let more = if more > 0 { format!("; and in {more} more places") } else { String::new() };
                format!("the closest recorded request differs at {}{more}", found.join("; at "))
            }
            None => format!("nothing was recorded for {}", key.path),
        }
    }
}
