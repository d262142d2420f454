//! Builds a claim map from its JSON. Invalid parts are repaired or left out, each with a complaint.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map as Members, Value};

use super::complaint::{BoundedClaimMapComplaints, one_line_excerpt};
use super::extract::ExtractedClaimMapJson;
use super::{
    ClaimEdge, ClaimEdgeKind, ClaimId, ClaimMap, ClaimMapComplaint, ClaimMapParseError, ClaimMapPartDropReason,
    ClaimNode, ClaimRoleInMap, ClaimStatementKind, ParsedClaimMap,
};
use crate::limits::{
    CLAIM_ID_CHARS_MAX, CLAIM_LABEL_CHARS_MAX, CLAIM_TEXT_CHARS_MAX, MAP_CLAIMS_MAX, MAP_EDGES_MAX, MAP_GAPS_MAX,
    NARRATIVE_CHARS_MAX,
};

/// Builds the map from JSON, for `answers` answers.
pub(super) fn build_claim_map(
    map_json: &ExtractedClaimMapJson,
    answers: u32,
) -> Result<ParsedClaimMap, ClaimMapParseError> {
    let mut complaints = BoundedClaimMapComplaints::default();
    map_json.complaints.iter().for_each(|complaint| complaints.push(complaint.clone()));
    let mut builder = ClaimMapBuilder { answers, complaints };
    let mut claims = builder.build_claims(json_list(&map_json.value, "claims").unwrap_or_default());
    if claims.is_empty() {
        return Err(ClaimMapParseError::NoClaims);
    }
    let names = ClaimNameIndex::from_claims(&claims);
    builder.resolve_challenges(&mut claims, &names);
    let edges = builder.bounded_list(&map_json.value, "edges", MAP_EDGES_MAX);
    let edges = builder.build_edges(edges, &names);
    let gaps = builder.bounded_list(&map_json.value, "gaps", MAP_GAPS_MAX);
    let gaps = builder.parse_gaps(gaps);
    let narrative = builder.truncate_text("narrative", &map_json.narrative, NARRATIVE_CHARS_MAX);
    let complaints = builder.complaints.into_vec();
    Ok(ParsedClaimMap { map: ClaimMap { claims, edges, gaps, narrative }, complaints })
}

fn json_list<'v>(value: &'v Value, key: &str) -> Option<&'v [Value]> {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice)
}

/// The names by which claims can be referenced.
struct ClaimNameIndex {
    ids: BTreeSet<ClaimId>,
    /// Ids and labels in lower case. Ids have priority over labels, and earlier claims over later ones.
    by_lowercase_name: BTreeMap<String, ClaimId>,
}

impl ClaimNameIndex {
    fn from_claims(claims: &[ClaimNode]) -> Self {
        let mut by_lowercase_name = BTreeMap::new();
        for claim in claims {
            by_lowercase_name.entry(claim.id.0.to_lowercase()).or_insert_with(|| claim.id.clone());
        }
        for claim in claims {
            by_lowercase_name.entry(claim.label.to_lowercase()).or_insert_with(|| claim.id.clone());
        }
        Self { ids: claims.iter().map(|claim| claim.id.clone()).collect(), by_lowercase_name }
    }
}

struct ClaimMapBuilder {
    answers: u32,
    complaints: BoundedClaimMapComplaints,
}

impl ClaimMapBuilder {
    /// Returns the list with this key, truncated to `max` items.
    fn bounded_list<'v>(&mut self, map: &'v Value, key: &'static str, max: usize) -> &'v [Value] {
        let Some(list) = json_list(map, key) else {
            self.complaints.push(ClaimMapComplaint::NotAList { part: key });
            return &[];
        };
        self.truncate_list(list, key, max)
    }

    fn truncate_list<'v>(&mut self, list: &'v [Value], key: &'static str, max: usize) -> &'v [Value] {
        if list.len() > max {
            self.complaints.push(ClaimMapComplaint::ListTruncated { part: key, max });
        }
        &list[..list.len().min(max)]
    }

    fn build_claims(&mut self, list: &[Value]) -> Vec<ClaimNode> {
        let list = self.truncate_list(list, "claims", MAP_CLAIMS_MAX);
        let given: BTreeSet<String> = list.iter().filter_map(|claim| json_scalar_text(claim.get("id")?)).collect();
        let mut known = BTreeSet::new();
        let mut claims = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let at = format!("claim {}", index + 1);
            let Some(members) = value.as_object() else {
                self.complaints.push_dropped(at, "all", ClaimMapPartDropReason::Unreadable);
                continue;
            };
            let Some(id) = self.claim_id_or_generated(members, index, &given) else {
                self.complaints.push_dropped(at, "all", ClaimMapPartDropReason::Unreadable);
                continue;
            };
            if !known.insert(id.clone()) {
                self.complaints.push_dropped(id.0, "a second claim", ClaimMapPartDropReason::Duplicate);
                continue;
            }
            claims.extend(self.build_claim(id, members));
        }
        claims
    }

    /// Returns the claim's id, or a generated one. `None` if the claim has neither id, label nor text.
    fn claim_id_or_generated(
        &mut self,
        members: &Members<String, Value>,
        index: usize,
        given: &BTreeSet<String>,
    ) -> Option<ClaimId> {
        if let Some(id) = members.get("id").and_then(json_scalar_text) {
            return Some(ClaimId(self.truncate_text("id", &id, CLAIM_ID_CHARS_MAX)));
        }
        member_text(members, "label").or_else(|| member_text(members, "text"))?;
        let mut id = format!("claim_{}", index + 1);
        while given.contains(&id) {
            id.push('_');
        }
        self.complaints.push(ClaimMapComplaint::IdGenerated { id: ClaimId(id.clone()) });
        Some(ClaimId(id))
    }

    fn build_claim(&mut self, id: ClaimId, members: &Members<String, Value>) -> Option<ClaimNode> {
        let (label, text) = match (member_text(members, "label"), member_text(members, "text")) {
            (Some(label), Some(text)) => (label, text),
            (Some(label), None) => {
                self.push_substituted(&id, "text", "label");
                (label.clone(), label)
            }
            (None, Some(text)) => {
                self.push_substituted(&id, "label", "text");
                (text.chars().take(CLAIM_LABEL_CHARS_MAX).collect(), text)
            }
            (None, None) => {
                self.complaints.push_dropped(id.0, "all", ClaimMapPartDropReason::Unreadable);
                return None;
            }
        };
        let kind =
            self.parse_word(&id.0, "type", members.get("type"), &CLAIM_KIND_WORDS, ClaimStatementKind::Speculative);
        let role = self.parse_word(&id.0, "role", members.get("role"), &CLAIM_ROLE_WORDS, ClaimRoleInMap::Branch);
        let supporters = self.parse_supporters(&id, members.get("supporters"));
        let challenges = self.parse_challenged_id(&id, members.get("challenges"));
        let challenges = challenges.filter(|_| {
            let is_challenger = role == ClaimRoleInMap::Challenger;
            if !is_challenger {
                self.complaints.push_dropped(&id.0, "`challenges`", ClaimMapPartDropReason::NotChallenger);
            }
            is_challenger
        });
        let label = self.truncate_text("label", &collapse_whitespace(&label), CLAIM_LABEL_CHARS_MAX);
        let text = self.truncate_text("text", &collapse_whitespace(&text), CLAIM_TEXT_CHARS_MAX);
        Some(ClaimNode { id, label, text, supporters, kind, role, challenges })
    }

    /// Returns the id in `challenges`.
    fn parse_challenged_id(&mut self, id: &ClaimId, value: Option<&Value>) -> Option<ClaimId> {
        let item = match value? {
            Value::Array(items) if items.is_empty() => return None,
            Value::Array(items) => match items.as_slice() {
                [item] => {
                    self.complaints
                        .push(ClaimMapComplaint::ListForSingleValue { at: id.0.clone(), what: "challenges" });
                    item
                }
                _ => &Value::Bool(true),
            },
            other => other,
        };
        match item {
            Value::Null => None,
            item => {
                let named = json_scalar_text(item);
                if named.is_none() && !item.as_str().is_some_and(str::is_empty) {
                    self.complaints.push_dropped(&id.0, "`challenges`", ClaimMapPartDropReason::Unreadable);
                }
                named.filter(|it| !is_null_word(it)).map(ClaimId)
            }
        }
    }

    fn push_substituted(&mut self, id: &ClaimId, missing: &'static str, taken: &'static str) {
        self.complaints.push(ClaimMapComplaint::TextSubstituted { id: id.clone(), missing, taken });
    }

    fn parse_supporters(&mut self, id: &ClaimId, value: Option<&Value>) -> BTreeSet<u32> {
        let mut supporters = BTreeSet::new();
        let single;
        let list: &[Value] = match value {
            Some(Value::Array(list)) => list,
            Some(other @ (Value::Number(_) | Value::String(_))) => {
                single = [other.clone()];
                &single
            }
            _ => &[],
        };
        for value in list {
            let given = json_scalar_text(value).unwrap_or_default();
            let number = value.as_u64().or_else(|| parse_single_number(&given));
            let number = number.and_then(|number| u32::try_from(number).ok());
            let Some(number) = number.filter(|number| (1..=self.answers).contains(number)) else {
                let why = ClaimMapPartDropReason::UnknownAnswer(one_line_excerpt(&given));
                self.complaints.push_dropped(&id.0, "a supporter", why);
                continue;
            };
            if !value.is_u64() {
                let given = one_line_excerpt(&given);
                self.complaints.push(ClaimMapComplaint::SupporterGuessed { id: id.clone(), given, taken: number });
            }
            if !supporters.insert(number) {
                self.complaints.push_dropped(&id.0, "a supporter", ClaimMapPartDropReason::Duplicate);
            }
        }
        if supporters.is_empty() {
            self.complaints.push(ClaimMapComplaint::NoSupporters { id: id.clone() });
        }
        supporters
    }

    fn resolve_challenges(&mut self, claims: &mut [ClaimNode], names: &ClaimNameIndex) {
        for claim in claims {
            let Some(ClaimId(given)) = claim.challenges.take() else { continue };
            match self.resolve_claim(&claim.id.0, &given, names) {
                Some(target) if target != claim.id => claim.challenges = Some(target),
                Some(_) => {
                    self.complaints.push_dropped(&claim.id.0, "`challenges`", ClaimMapPartDropReason::SelfReference)
                }
                None => {
                    let why = ClaimMapPartDropReason::UnknownClaim(one_line_excerpt(&given));
                    self.complaints.push_dropped(&claim.id.0, "`challenges`", why);
                }
            }
        }
    }

    fn build_edges(&mut self, list: &[Value], names: &ClaimNameIndex) -> Vec<ClaimEdge> {
        let mut known = BTreeSet::new();
        let mut edges = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let Some(edge) = self.build_edge(&format!("edge {}", index + 1), value, names) else { continue };
            let (from, to) = (edge.from.clone(), edge.to.clone());
            let ends = if edge.kind.is_reinforcing() || from < to { (from, to) } else { (to, from) };
            if known.insert((ends, edge.kind)) {
                edges.push(edge);
            } else {
                self.complaints.push_dropped(format!("edge {}", index + 1), "all", ClaimMapPartDropReason::Duplicate);
            }
        }
        edges
    }

    fn build_edge(&mut self, at: &str, value: &Value, names: &ClaimNameIndex) -> Option<ClaimEdge> {
        let members = value.as_object();
        let mut end = |names: &[&'static str]| json_scalar_text(self.member_by_alias(at, members?, names)?);
        let (Some(members), Some(from), Some(to)) = (members, end(&["from", "source"]), end(&["to", "target"])) else {
            self.complaints.push_dropped(at, "all", ClaimMapPartDropReason::Unreadable);
            return None;
        };
        let (Some(from), Some(to)) = (self.resolve_edge_end(at, &from, names), self.resolve_edge_end(at, &to, names))
        else {
            return None;
        };
        if from == to {
            self.complaints.push_dropped(at, "all", ClaimMapPartDropReason::SelfReference);
            return None;
        }
        let kind = self.member_by_alias(at, members, &["kind", "type", "relation"]);
        let kind = self.parse_word(at, "kind", kind, &EDGE_KIND_WORDS, ClaimEdgeKind::Supports);
        Some(ClaimEdge { from, to, kind })
    }

    /// Returns the member with the first of these names that exists. The first name is the correct one.
    fn member_by_alias<'v>(
        &mut self,
        at: &str,
        members: &'v Members<String, Value>,
        names: &[&'static str],
    ) -> Option<&'v Value> {
        let (index, value) = names.iter().enumerate().find_map(|(index, name)| Some((index, members.get(*name)?)))?;
        if index > 0 {
            self.complaints.push(ClaimMapComplaint::AliasedKey {
                at: at.to_owned(),
                given: names[index],
                meant: names[0],
            });
        }
        Some(value)
    }

    fn resolve_edge_end(&mut self, at: &str, given: &str, names: &ClaimNameIndex) -> Option<ClaimId> {
        let meant = self.resolve_claim(at, given, names);
        if meant.is_none() {
            self.complaints.push_dropped(at, "all", ClaimMapPartDropReason::UnknownClaim(one_line_excerpt(given)));
        }
        meant
    }

    fn resolve_claim(&mut self, at: &str, given: &str, names: &ClaimNameIndex) -> Option<ClaimId> {
        let id = ClaimId(given.chars().take(CLAIM_ID_CHARS_MAX).collect());
        if names.ids.contains(&id) {
            return Some(id);
        }
        let taken = names.by_lowercase_name.get(&collapse_whitespace(given).to_lowercase())?.clone();
        let given = one_line_excerpt(given);
        self.complaints.push(ClaimMapComplaint::ReferenceGuessed { at: at.to_owned(), given, taken: taken.clone() });
        Some(taken)
    }

    fn parse_gaps(&mut self, list: &[Value]) -> Vec<String> {
        let mut gaps = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let text = value.as_str().or_else(|| value.get("text").and_then(Value::as_str)).map(collapse_whitespace);
            match text.filter(|text| !text.is_empty()) {
                Some(text) => gaps.push(self.truncate_text("gap", &text, CLAIM_TEXT_CHARS_MAX)),
                None => self.complaints.push_dropped(
                    format!("gap {}", index + 1),
                    "all",
                    ClaimMapPartDropReason::Unreadable,
                ),
            }
        }
        gaps
    }

    /// Parses one of `words`; for any other word, returns `fallback` with a complaint.
    fn parse_word<T: Copy + PartialEq>(
        &mut self,
        at: &str,
        key: &'static str,
        value: Option<&Value>,
        words: &[(&'static str, T)],
        fallback: T,
    ) -> T {
        let given = value.and_then(json_scalar_text).unwrap_or_default();
        let normalized = normalize_word(&given);
        if let Some((_, meant)) = words.iter().find(|(word, _)| normalize_word(word) == normalized) {
            return *meant;
        }
        let taken = words.iter().find(|(_, meant)| *meant == fallback).map_or("", |(word, _)| word);
        self.complaints.push(ClaimMapComplaint::UnknownWord {
            at: at.to_owned(),
            what: key,
            given: one_line_excerpt(&given),
            taken,
        });
        fallback
    }

    fn truncate_text(&mut self, at: &str, text: &str, max: usize) -> String {
        match text.char_indices().nth(max) {
            Some((end, _)) => {
                self.complaints.push(ClaimMapComplaint::TextTruncated { at: at.to_owned(), max });
                text[..end].to_owned()
            }
            None => text.to_owned(),
        }
    }
}

const CLAIM_KIND_WORDS: [(&str, ClaimStatementKind); 5] = [
    ("factual", ClaimStatementKind::Factual),
    ("prescriptive", ClaimStatementKind::Prescriptive),
    ("conditional", ClaimStatementKind::Conditional),
    ("contested", ClaimStatementKind::Contested),
    ("speculative", ClaimStatementKind::Speculative),
];
const CLAIM_ROLE_WORDS: [(&str, ClaimRoleInMap); 4] = [
    ("anchor", ClaimRoleInMap::Anchor),
    ("branch", ClaimRoleInMap::Branch),
    ("challenger", ClaimRoleInMap::Challenger),
    ("supplement", ClaimRoleInMap::Supplement),
];
const EDGE_KIND_WORDS: [(&str, ClaimEdgeKind); 4] = [
    ("supports", ClaimEdgeKind::Supports),
    ("conflicts", ClaimEdgeKind::Conflicts),
    ("tradeoff", ClaimEdgeKind::Tradeoff),
    ("prerequisite", ClaimEdgeKind::Prerequisite),
];

/// Normalizes a word: lower case, no hyphens or blanks, no plural ending.
fn normalize_word(word: &str) -> String {
    let letters = word.chars().filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_'));
    let word: String = letters.flat_map(char::to_lowercase).collect();
    word.strip_suffix('s').map(str::to_owned).unwrap_or(word)
}

/// Returns a non-empty string or a number as text.
fn json_scalar_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn member_text(members: &Members<String, Value>, key: &str) -> Option<String> {
    members.get(key).and_then(json_scalar_text)
}

fn is_null_word(text: &str) -> bool {
    ["null", "none"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Returns the number in `answer 3` or `[3]`; `None` if there are several.
fn parse_single_number(text: &str) -> Option<u64> {
    if text.contains(['-', '.']) {
        return None;
    }
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = numbers.next()?;
    numbers.next().is_none().then(|| number.parse().ok())?
}

/// Replaces white space and control characters by single blanks.
fn collapse_whitespace(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
