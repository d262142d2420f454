//! A transport that answers from a cassette. Each request gets the response recorded for it. Of several responses to equal
//! requests it gets the next one that belongs to its call, or else the next one. A request that was not recorded fails,
//! with the closest recorded one and how it differs.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, future, stream};
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_core::signal::canonical_json;
use serde_json::Value;

use super::{
    CassetteError, CassetteExchange, CassetteExchangeOutcome, diff_json, parse_json_or_text, read_cassette,
    url_path_and_query,
};
use crate::http::{HttpTransport, VendorHttpRequest, VendorHttpResponse};
use crate::limits::REQUEST_DIFFERENCES_SHOWN_MAX;

#[derive(Debug)]
pub struct CassetteReplayTransport {
    name: String,
    metadata: Value,
    remaining: Mutex<RemainingCassetteExchanges>,
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
    call: Option<CallId>,
    outcome: CassetteExchangeOutcome,
}

/// The recorded exchanges that have not been replayed yet.
#[derive(Debug, Default)]
struct RemainingCassetteExchanges {
    outcomes: BTreeMap<CassetteRequestKey, VecDeque<CassetteOutcomeWithCall>>,
    /// Path and body of every recorded request, to explain a mismatch.
    recorded_requests: Vec<(String, Value)>,
}

impl CassetteReplayTransport {
    /// Reads a cassette file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a cassette.
    pub fn new(path: &Path) -> Result<Self, CassetteError> {
        let (header, exchanges) = read_cassette(path)?;
        let mut remaining = RemainingCassetteExchanges::default();
        for CassetteExchange { method, path, call, body, outcome } in exchanges {
            let key = CassetteRequestKey { method, path: path.clone(), canonical_body: canonical_json(&body) };
            remaining.outcomes.entry(key).or_default().push_back(CassetteOutcomeWithCall { call, outcome });
            remaining.recorded_requests.push((path, body));
        }
        Ok(Self { name: path.display().to_string(), metadata: header.metadata, remaining: Mutex::new(remaining) })
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

    fn replay_response(&self, request: &VendorHttpRequest) -> Result<VendorHttpResponse, CallFailure> {
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
        match recorded.map(|recorded| recorded.outcome) {
            Some(CassetteExchangeOutcome::Failed(failure)) => Err(failure),
            Some(CassetteExchangeOutcome::Responded { status, headers, chunks, stream_failure }) => {
                let chunks = chunks.into_iter().map(|chunk| Ok(chunk.into_bytes())).chain(stream_failure.map(Err));
                Ok(VendorHttpResponse { status, headers, body: stream::iter(chunks).boxed() })
            }
            None => {
                let reason = remaining.explain_missing_response(&key, &body);
                let message = format!("the cassette {} has no response to this request: {reason}", self.name);
                Err(CallFailure::new(CallFailureKind::BadRequest, message))
            }
        }
    }
}

impl HttpTransport for CassetteReplayTransport {
    fn send(&self, request: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        future::ready(self.replay_response(&request)).boxed()
    }
}

impl RemainingCassetteExchanges {
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
