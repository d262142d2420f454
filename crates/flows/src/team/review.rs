//! Reads the architect's verdicts. A finding of a code review must name a line of the diff; others are dropped.

use segue_core::signal::find_json_where;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::diff::ParsedDiff;
use crate::limits::{REVIEW_FINDINGS_MAX, REVIEW_TEXT_CHARS_MAX, REVIEW_VERDICTS_MAX};

/// The decision of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReviewVerdict {
    Approved,
    NeedsChanges,
    Rejected,
}

impl ReviewVerdict {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "APPROVED",
            Self::NeedsChanges => "NEEDS_CHANGES",
            Self::Rejected => "REJECTED",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let letters: String = name.chars().filter(char::is_ascii_alphabetic).collect();
        match letters.to_uppercase().as_str() {
            "APPROVED" | "APPROVE" => Some(Self::Approved),
            "NEEDSCHANGES" | "CHANGESREQUESTED" | "CHANGES" => Some(Self::NeedsChanges),
            "REJECTED" | "REJECT" => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// What a reviewer found at one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFinding {
    pub file: String,
    pub line: u32,
    pub text: String,
}

/// A review as it was read from an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedReview {
    pub verdict: ReviewVerdict,
    /// What the reviewer says to the coder.
    pub feedback: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<ReviewFinding>,
    /// The findings that name no line of the diff, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

/// Reads a review. For a review of code, `diff` is what the findings must refer to.
///
/// # Errors
/// Fails with the reason if the answer contains no verdict, or if it asks for changes of code without a single finding
/// that names a line of the diff.
pub fn parse_review(answer: &str, diff: Option<&ParsedDiff>) -> Result<ParsedReview, String> {
    let (verdict, found) = strictest_verdict(answer)?;
    let feedback = found.get("feedback").or_else(|| found.get("summary")).and_then(Value::as_str).unwrap_or_default();
    let feedback: String = feedback.trim().chars().take(REVIEW_TEXT_CHARS_MAX).collect();
    let (mut findings, mut dropped) = (Vec::new(), Vec::new());
    for item in found.get("findings").and_then(Value::as_array).into_iter().flatten().take(REVIEW_FINDINGS_MAX) {
        match read_finding(item, diff) {
            Ok(finding) => findings.push(finding),
            Err(why) => dropped.push(why),
        }
    }
    if verdict != ReviewVerdict::Approved && feedback.is_empty() && findings.is_empty() {
        return Err(format!("the verdict is {}, but `feedback` does not say why", verdict.as_str()));
    }
    if verdict == ReviewVerdict::NeedsChanges && diff.is_some() && findings.is_empty() {
        let why = if dropped.is_empty() { String::new() } else { format!(" ({})", dropped.join("; ")) };
        return Err(format!("no finding names a line of the diff{why}; give `file` and `line` for each"));
    }
    Ok(ParsedReview { verdict, feedback, findings, dropped })
}

/// Returns the strictest verdict of an answer. An answer may repeat one from the diff or from the coder, which must not be
/// able to approve the change.
fn strictest_verdict(answer: &str) -> Result<(ReviewVerdict, Value), String> {
    let mut found: Vec<Value> = Vec::new();
    while found.len() < REVIEW_VERDICTS_MAX {
        let is_new = |value: &Value| value.get("verdict").is_some() && !found.contains(value);
        let Some(value) = find_json_where(answer, is_new).value else { break };
        found.push(value);
    }
    let Some(first) = found.first() else {
        return Err("there is no JSON object with a `verdict`".to_owned());
    };
    let named = first["verdict"].as_str().unwrap_or_default();
    let unknown = format!("`verdict` is `{named}`; it must be APPROVED, NEEDS_CHANGES or REJECTED");
    let valid = found.into_iter().filter_map(|value| {
        let verdict = ReviewVerdict::from_name(value["verdict"].as_str().unwrap_or_default())?;
        Some((verdict, value))
    });
    // Of equal ones the first.
    valid.reduce(|best, next| if next.0 > best.0 { next } else { best }).ok_or(unknown)
}

fn read_finding(item: &Value, diff: Option<&ParsedDiff>) -> Result<ReviewFinding, String> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().trim();
    let file = text("file").trim_start_matches("b/").to_owned();
    let line = item.get("line").and_then(|line| line.as_u64().or_else(|| line.as_str()?.trim().parse().ok()));
    let line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or_default();
    let what = if text("text").is_empty() { text("finding") } else { text("text") };
    let what: String = what.chars().take(REVIEW_TEXT_CHARS_MAX).collect();
    if what.is_empty() {
        return Err(format!("the finding at {file}:{line} has no `text`"));
    }
    match diff {
        Some(diff) if !diff.shows_line(&file, line) => Err(format!("{file}:{line} is not a line of the diff")),
        _ => Ok(ReviewFinding { file, line, text: what }),
    }
}

/// Combines the reviews of several parts of one diff: the strictest verdict, and all findings.
#[must_use]
pub fn combine_reviews(parts: &[ParsedReview]) -> Option<ParsedReview> {
    let verdict = parts.iter().map(|part| part.verdict).max()?;
    let feedback: Vec<&str> =
        parts.iter().filter(|part| part.verdict == verdict).map(|part| part.feedback.as_str()).collect();
    Some(ParsedReview {
        verdict,
        feedback: feedback.join("\n"),
        findings: parts.iter().flat_map(|part| part.findings.clone()).collect(),
        dropped: parts.iter().flat_map(|part| part.dropped.clone()).collect(),
    })
}
