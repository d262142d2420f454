//! Records HTTP traffic with vendors and replays it. This happens below the vendor adapters, so a replay runs the same code
//! as a real call. A cassette is a file of JSON lines: a header with metadata, then one exchange per line. It never contains
//! an API key.

mod player;
mod recorder;

use std::path::Path;

use segue_core::ids::CallId;
use segue_core::prompt::CallFailure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{CASSETTE_BYTES_MAX, QUOTED_CHARS_MAX};

pub use player::CassetteReplayTransport;
pub use recorder::CassetteRecordingTransport;

/// The format version that is written and read.
const CASSETTE_FORMAT: u32 = 1;
/// Response headers that are recorded; others may identify the user.
const RECORDED_HEADERS: [&str; 4] = ["content-type", "retry-after", "retry-after-ms", "date"];

/// Why a cassette cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// The file is not a cassette.
    #[error("{path} is not a cassette: line {line} {problem}")]
    InvalidFormat { path: String, line: usize, problem: String },
    /// The cassette was recorded with other metadata.
    #[error("{path} was recorded with other models ({difference}); record to a different file")]
    MetadataMismatch {
        path: String,
        /// The first difference between the recorded and the given metadata.
        difference: String,
    },
    /// The file is too long.
    #[error("{path} has {bytes} bytes; the limit is {CASSETTE_BYTES_MAX}")]
    TooLong { path: String, bytes: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CassetteHeader {
    segue_cassette: u32,
    /// Free-form JSON from the recording side, returned by the player.
    metadata: Value,
}

/// One request and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CassetteExchange {
    method: String,
    /// Path and query without the host, so a cassette can be replayed with any base URL.
    path: String,
    /// Experts with the same model and prompt send equal requests at once, and each must get its own response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<CallId>,
    body: Value,
    /// How many other requests were waiting for the end of their responses when this exchange ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    others_in_flight: u32,
    outcome: CassetteExchangeOutcome,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CassetteExchangeOutcome {
    Responded {
        status: u16,
        headers: Vec<(String, String)>,
        chunks: Vec<String>,
        /// Set if the body ended early.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream_failure: Option<CallFailure>,
    },
    /// No response arrived.
    Failed(CallFailure),
}

/// Returns the path and query of a URL.
fn url_path_and_query(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or_else(|| "/".to_owned(), |start| rest[start..].to_owned())
}

fn parse_json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The differences between two JSON values.
#[derive(Debug, Default)]
struct JsonDifferences {
    /// One description per difference, in the order of the recorded value.
    descriptions: Vec<String>,
    /// The number of leaf values that differ.
    distance: usize,
}

fn diff_json(recorded: &Value, actual: &Value) -> JsonDifferences {
    let mut found = JsonDifferences::default();
    collect_json_differences("", recorded, actual, &mut found);
    found
}

fn collect_json_differences(path: &str, recorded: &Value, actual: &Value, found: &mut JsonDifferences) {
    match (recorded, actual) {
        _ if recorded == actual => {}
        (Value::Object(recorded), Value::Object(actual)) => {
            let more = actual.keys().filter(|key| !recorded.contains_key(*key));
            for key in recorded.keys().chain(more) {
                let at = |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
                collect_json_differences(&format!("{path}/{key}"), &at(recorded), &at(actual), found);
            }
        }
        (Value::Array(recorded), Value::Array(actual)) => {
            for (index, (recorded, actual)) in recorded.iter().zip(actual).enumerate() {
                collect_json_differences(&format!("{path}/{index}"), recorded, actual, found);
            }
            if recorded.len() != actual.len() {
                let common = recorded.len().min(actual.len());
                found.distance +=
                    recorded[common..].iter().chain(&actual[common..]).map(count_json_leaves).sum::<usize>();
                found.descriptions.push(format!(
                    "{path}: {} items recorded, {} requested",
                    recorded.len(),
                    actual.len()
                ));
            }
        }
        _ => {
            found.distance += count_json_leaves(recorded).max(count_json_leaves(actual));
            found.descriptions.push(format!(
                "{path}: recorded {}, requested {}",
                shorten_json(recorded),
                shorten_json(actual)
            ));
        }
    }
}

/// Counts the scalar values in a JSON value; an empty list or object counts as one.
fn count_json_leaves(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(count_json_leaves).sum::<usize>().max(1),
        Value::Object(values) => values.values().map(count_json_leaves).sum::<usize>().max(1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn shorten_json(value: &Value) -> String {
    let text = value.to_string();
    let start: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

fn read_cassette(path: &Path) -> Result<(CassetteHeader, Vec<CassetteExchange>), CassetteError> {
    let path_text = || path.display().to_string();
    let io = |source| CassetteError::Io { path: path_text(), source };
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > CASSETTE_BYTES_MAX {
        return Err(CassetteError::TooLong { path: path_text(), bytes });
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    let invalid = |line: usize, problem: String| CassetteError::InvalidFormat { path: path_text(), line, problem };
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let (_, first) = lines.next().ok_or_else(|| invalid(1, "is missing".to_owned()))?;
    let header: CassetteHeader =
        serde_json::from_str(first).map_err(|_| invalid(1, "has no cassette header".to_owned()))?;
    if header.segue_cassette != CASSETTE_FORMAT {
        let problem = format!("has format {}, but only format {CASSETTE_FORMAT} is supported", header.segue_cassette);
        return Err(invalid(1, problem));
    }
    let mut exchanges = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let exchange = serde_json::from_str(line)
            .map_err(|error| invalid(number, format!("is not a recorded exchange: {error}")))?;
        exchanges.push(exchange);
    }
    Ok((header, exchanges))
}
