//! Traffic with vendors, written down and played again: below the adapters, so that a replay runs the very code a call runs. A cassette is
//! JSON lines; the first says what it is and who was cast, every other holds one exchange. No key is ever on it.

mod player;
mod recorder;

use std::path::Path;

use segue_core::prompt::CallFailure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{CASSETTE_BYTES_MAX, QUOTED_CHARS_MAX};

pub use player::CassettePlayer;
pub use recorder::CassetteRecorder;

/// The format we write.
const CASSETTE_FORMAT: u32 = 1;
/// Headers of a response that are of use when it is played again; others may say who asked.
const RECORDED_HEADERS: [&str; 4] = ["content-type", "retry-after", "retry-after-ms", "date"];

/// What is wrong with a cassette.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no cassette.
    #[error("{path} is no cassette: line {line} {wrong}")]
    InvalidFormat {
        /// Which file.
        path: String,
        /// Where.
        line: usize,
        /// What is there instead.
        wrong: String,
    },
    /// It was recorded with others.
    #[error("{path} was recorded with another cast, which is at {difference}; record to another file")]
    MetadataMismatch {
        /// Which file.
        path: String,
        /// Where they part.
        difference: String,
    },
    /// It is too long.
    #[error("{path} has {bytes} bytes; at most {CASSETTE_BYTES_MAX} are read")]
    TooLong {
        /// Which file.
        path: String,
        /// Its bytes.
        bytes: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CassetteHeader {
    segue_cassette: u32,
    /// Whatever whoever recorded wants to know when it is played.
    metadata: Value,
}

/// One request and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RecordedExchange {
    method: String,
    /// Without the host: the same answer comes from wherever it is played.
    path: String,
    body: Value,
    outcome: RecordedOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedOutcome {
    Responded {
        status: u16,
        headers: Vec<(String, String)>,
        /// As they came.
        chunks: Vec<String>,
        /// How it broke off, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream_failure: Option<CallFailure>,
    },
    /// There was no answer at all.
    Failed(CallFailure),
}

/// The path and query of an address.
fn url_path_and_query(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or_else(|| "/".to_owned(), |start| rest[start..].to_owned())
}

fn parse_json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Where two values part.
#[derive(Debug, Default)]
struct JsonDifferences {
    /// Every place, and how, in the order of the first.
    descriptions: Vec<String>,
    /// How many values are not the same.
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
        (Value::Object(known), Value::Object(asked)) => {
            let more = asked.keys().filter(|key| !known.contains_key(*key));
            for key in known.keys().chain(more) {
                let at = |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
                collect_json_differences(&format!("{path}/{key}"), &at(known), &at(asked), found);
            }
        }
        (Value::Array(known), Value::Array(asked)) => {
            for (index, (known, asked)) in known.iter().zip(asked).enumerate() {
                collect_json_differences(&format!("{path}/{index}"), known, asked, found);
            }
            if known.len() != asked.len() {
                let common = known.len().min(asked.len());
                found.distance += known[common..].iter().chain(&asked[common..]).map(count_json_leaves).sum::<usize>();
                found.descriptions.push(format!("{path}: {} recorded, {} asked", known.len(), asked.len()));
            }
        }
        _ => {
            found.distance += count_json_leaves(recorded).max(count_json_leaves(actual));
            found.descriptions.push(format!("{path}: recorded {}, asked {}", quote_json(recorded), quote_json(actual)));
        }
    }
}

/// How many values there are in one.
fn count_json_leaves(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(count_json_leaves).sum::<usize>().max(1),
        Value::Object(values) => values.values().map(count_json_leaves).sum::<usize>().max(1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn quote_json(value: &Value) -> String {
    let text = value.to_string();
    let start: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

/// Reads a cassette.
fn read_cassette(path: &Path) -> Result<(CassetteHeader, Vec<RecordedExchange>), CassetteError> {
    let named = || path.display().to_string();
    let io = |source| CassetteError::Io { path: named(), source };
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > CASSETTE_BYTES_MAX {
        return Err(CassetteError::TooLong { path: named(), bytes });
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    let wrong = |line: usize, wrong: String| CassetteError::InvalidFormat { path: named(), line, wrong };
    let mut lines = text.lines().enumerate().map(|(place, line)| (place + 1, line));
    let (_, first) = lines.next().ok_or_else(|| wrong(1, "is missing".to_owned()))?;
    let label: CassetteHeader =
        serde_json::from_str(first).map_err(|_| wrong(1, "does not say that it is one".to_owned()))?;
    if label.segue_cassette != CASSETTE_FORMAT {
        return Err(wrong(1, format!("is of format {}, and {CASSETTE_FORMAT} is what we know", label.segue_cassette)));
    }
    let mut exchanges = Vec::new();
    for (place, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let exchange =
            serde_json::from_str(line).map_err(|error| wrong(place, format!("holds no exchange: {error}")))?;
        exchanges.push(exchange);
    }
    Ok((label, exchanges))
}
