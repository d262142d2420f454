//! Reads claims, edges and gaps from JSON that is known to be meant as a map. What cannot be taken as it stands is
//! repaired or left out, with a complaint.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map as Members, Value};

use super::complaint::{Complaints, excerpt};
use super::find::Written;
use super::{Claim, ClaimId, ClaimKind, ClaimRole, Complaint, Dropped, Edge, EdgeKind, Map, MapError, Reading};
use crate::limits::{
    CLAIM_ID_CHARS_MAX, CLAIM_LABEL_CHARS_MAX, CLAIM_TEXT_CHARS_MAX, MAP_CLAIMS_MAX, MAP_EDGES_MAX, MAP_GAPS_MAX,
    NARRATIVE_CHARS_MAX,
};

/// The map that was written down, about this many answers.
pub(super) fn read(written: &Written, answers: u32) -> Result<Reading, MapError> {
    let mut complaints = Complaints::default();
    written.complaints.iter().for_each(|complaint| complaints.push(complaint.clone()));
    let mut reader = Reader { answers, complaints };
    let mut claims = reader.claims(list_at(&written.value, "claims").unwrap_or_default());
    if claims.is_empty() {
        return Err(MapError::NoClaims);
    }
    let names = Names::of(&claims);
    reader.challenges(&mut claims, &names);
    let edges = reader.part(&written.value, "edges", MAP_EDGES_MAX);
    let edges = reader.edges(edges, &names);
    let gaps = reader.part(&written.value, "gaps", MAP_GAPS_MAX);
    let gaps = reader.gaps(gaps);
    let narrative = reader.shortened("narrative", &written.narrative, NARRATIVE_CHARS_MAX);
    let complaints = reader.complaints.into_vec();
    Ok(Reading { map: Map { claims, edges, gaps, narrative }, complaints })
}

fn list_at<'v>(value: &'v Value, part: &str) -> Option<&'v [Value]> {
    value.get(part).and_then(Value::as_array).map(Vec::as_slice)
}

/// By which names a claim can be referred to.
struct Names {
    ids: BTreeSet<ClaimId>,
    /// Ids in lower case, then labels in lower case; the first of each stands.
    otherwise: BTreeMap<String, ClaimId>,
}

impl Names {
    fn of(claims: &[Claim]) -> Self {
        let mut otherwise = BTreeMap::new();
        for claim in claims {
            otherwise.entry(claim.id.0.to_lowercase()).or_insert_with(|| claim.id.clone());
        }
        for claim in claims {
            otherwise.entry(claim.label.to_lowercase()).or_insert_with(|| claim.id.clone());
        }
        Self { ids: claims.iter().map(|claim| claim.id.clone()).collect(), otherwise }
    }
}

struct Reader {
    answers: u32,
    complaints: Complaints,
}

impl Reader {
    /// The list of this name, as much of it as is read.
    fn part<'v>(&mut self, map: &'v Value, part: &'static str, max: usize) -> &'v [Value] {
        let Some(list) = list_at(map, part) else {
            self.complaints.push(Complaint::NoList { part });
            return &[];
        };
        self.first(list, part, max)
    }

    fn first<'v>(&mut self, list: &'v [Value], part: &'static str, max: usize) -> &'v [Value] {
        if list.len() > max {
            self.complaints.push(Complaint::TooMany { part, max });
        }
        &list[..list.len().min(max)]
    }

    fn claims(&mut self, list: &[Value]) -> Vec<Claim> {
        let list = self.first(list, "claims", MAP_CLAIMS_MAX);
        let given: BTreeSet<String> = list.iter().filter_map(|claim| text_of(claim.get("id")?)).collect();
        let mut known = BTreeSet::new();
        let mut claims = Vec::new();
        for (place, value) in list.iter().enumerate() {
            let at = format!("claim {}", place + 1);
            let Some(members) = value.as_object() else {
                self.complaints.left_out(at, "all", Dropped::Unreadable);
                continue;
            };
            let Some(id) = self.id(members, place, &given) else {
                self.complaints.left_out(at, "all", Dropped::Unreadable);
                continue;
            };
            if !known.insert(id.clone()) {
                self.complaints.left_out(id.0, "a second claim", Dropped::Repeated);
                continue;
            }
            claims.extend(self.claim(id, members));
        }
        claims
    }

    /// The claim's id; for one without, a new one. No id is given to what says nothing.
    fn id(&mut self, members: &Members<String, Value>, place: usize, given: &BTreeSet<String>) -> Option<ClaimId> {
        if let Some(id) = members.get("id").and_then(text_of) {
            return Some(ClaimId(self.shortened("id", &id, CLAIM_ID_CHARS_MAX)));
        }
        text_at(members, "label").or_else(|| text_at(members, "text"))?;
        let mut id = format!("claim_{}", place + 1);
        while given.contains(&id) {
            id.push('_');
        }
        self.complaints.push(Complaint::Named { id: ClaimId(id.clone()) });
        Some(ClaimId(id))
    }

    fn claim(&mut self, id: ClaimId, members: &Members<String, Value>) -> Option<Claim> {
        let (label, text) = match (text_at(members, "label"), text_at(members, "text")) {
            (Some(label), Some(text)) => (label, text),
            (Some(label), None) => {
                self.stood_in(&id, "text", "label");
                (label.clone(), label)
            }
            (None, Some(text)) => {
                self.stood_in(&id, "label", "text");
                (text.chars().take(CLAIM_LABEL_CHARS_MAX).collect(), text)
            }
            (None, None) => {
                self.complaints.left_out(id.0, "all", Dropped::Unreadable);
                return None;
            }
        };
        let kind = self.word(&id.0, "type", members.get("type"), &KINDS, ClaimKind::Speculative);
        let role = self.word(&id.0, "role", members.get("role"), &ROLES, ClaimRole::Branch);
        let supporters = self.supporters(&id, members.get("supporters"));
        let challenges = self.challenged(&id, members.get("challenges"));
        let challenges = challenges.filter(|_| {
            let is_challenger = role == ClaimRole::Challenger;
            if !is_challenger {
                self.complaints.left_out(&id.0, "`challenges`", Dropped::NoChallenger);
            }
            is_challenger
        });
        let label = self.shortened("label", &one_line(&label), CLAIM_LABEL_CHARS_MAX);
        let text = self.shortened("text", &one_line(&text), CLAIM_TEXT_CHARS_MAX);
        Some(Claim { id, label, text, supporters, kind, role, challenges })
    }

    /// The claim that another says it turns against.
    fn challenged(&mut self, id: &ClaimId, value: Option<&Value>) -> Option<ClaimId> {
        let item = match value? {
            Value::Array(items) if items.is_empty() => return None,
            Value::Array(items) => match items.as_slice() {
                [only] => {
                    self.complaints.push(Complaint::OneOfList { at: id.0.clone(), what: "challenges" });
                    only
                }
                _ => &Value::Bool(true),
            },
            other => other,
        };
        match item {
            Value::Null => None,
            item => {
                let named = text_of(item);
                if named.is_none() && !item.as_str().is_some_and(str::is_empty) {
                    self.complaints.left_out(&id.0, "`challenges`", Dropped::Unreadable);
                }
                named.filter(|it| !is_nothing(it)).map(ClaimId)
            }
        }
    }

    fn stood_in(&mut self, id: &ClaimId, missing: &'static str, taken: &'static str) {
        self.complaints.push(Complaint::StoodIn { id: id.clone(), missing, taken });
    }

    fn supporters(&mut self, id: &ClaimId, value: Option<&Value>) -> BTreeSet<u32> {
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
            let given = text_of(value).unwrap_or_default();
            let number = value.as_u64().or_else(|| only_number(&given));
            let number = number.and_then(|number| u32::try_from(number).ok());
            let Some(number) = number.filter(|number| (1..=self.answers).contains(number)) else {
                let why = Dropped::UnknownAnswer(excerpt(&given));
                self.complaints.left_out(&id.0, "a supporter", why);
                continue;
            };
            if !value.is_u64() {
                let given = excerpt(&given);
                self.complaints.push(Complaint::Supporter { id: id.clone(), given, taken: number });
            }
            if !supporters.insert(number) {
                self.complaints.left_out(&id.0, "a supporter", Dropped::Repeated);
            }
        }
        if supporters.is_empty() {
            self.complaints.push(Complaint::Unsupported { id: id.clone() });
        }
        supporters
    }

    fn challenges(&mut self, claims: &mut [Claim], names: &Names) {
        for claim in claims {
            let Some(ClaimId(given)) = claim.challenges.take() else { continue };
            match self.claim_meant(&claim.id.0, &given, names) {
                Some(target) if target != claim.id => claim.challenges = Some(target),
                Some(_) => self.complaints.left_out(&claim.id.0, "`challenges`", Dropped::ToItself),
                None => {
                    let why = Dropped::UnknownClaim(excerpt(&given));
                    self.complaints.left_out(&claim.id.0, "`challenges`", why);
                }
            }
        }
    }

    fn edges(&mut self, list: &[Value], names: &Names) -> Vec<Edge> {
        let mut known = BTreeSet::new();
        let mut edges = Vec::new();
        for (place, value) in list.iter().enumerate() {
            let Some(edge) = self.edge(&format!("edge {}", place + 1), value, names) else { continue };
            let (from, to) = (edge.from.clone(), edge.to.clone());
            let ends = if edge.kind.is_reinforcing() || from < to { (from, to) } else { (to, from) };
            if known.insert((ends, edge.kind)) {
                edges.push(edge);
            } else {
                self.complaints.left_out(format!("edge {}", place + 1), "all", Dropped::Repeated);
            }
        }
        edges
    }

    fn edge(&mut self, at: &str, value: &Value, names: &Names) -> Option<Edge> {
        let members = value.as_object();
        let mut end = |names: &[&'static str]| text_of(self.called(at, members?, names)?);
        let (Some(members), Some(from), Some(to)) = (members, end(&["from", "source"]), end(&["to", "target"])) else {
            self.complaints.left_out(at, "all", Dropped::Unreadable);
            return None;
        };
        let (Some(from), Some(to)) = (self.end(at, &from, names), self.end(at, &to, names)) else { return None };
        if from == to {
            self.complaints.left_out(at, "all", Dropped::ToItself);
            return None;
        }
        let kind = self.called(at, members, &["kind", "type", "relation"]);
        let kind = self.word(at, "kind", kind, &EDGE_KINDS, EdgeKind::Supports);
        Some(Edge { from, to, kind })
    }

    /// The member of the first of these names that there is one of; the first is what it should be called.
    fn called<'v>(
        &mut self,
        at: &str,
        members: &'v Members<String, Value>,
        names: &[&'static str],
    ) -> Option<&'v Value> {
        let (place, value) = names.iter().enumerate().find_map(|(place, name)| Some((place, members.get(*name)?)))?;
        if place > 0 {
            self.complaints.push(Complaint::Key { at: at.to_owned(), given: names[place], meant: names[0] });
        }
        Some(value)
    }

    fn end(&mut self, at: &str, given: &str, names: &Names) -> Option<ClaimId> {
        let meant = self.claim_meant(at, given, names);
        if meant.is_none() {
            self.complaints.left_out(at, "all", Dropped::UnknownClaim(excerpt(given)));
        }
        meant
    }

    fn claim_meant(&mut self, at: &str, given: &str, names: &Names) -> Option<ClaimId> {
        let id = ClaimId(given.chars().take(CLAIM_ID_CHARS_MAX).collect());
        if names.ids.contains(&id) {
            return Some(id);
        }
        let taken = names.otherwise.get(&one_line(given).to_lowercase())?.clone();
        let given = excerpt(given);
        self.complaints.push(Complaint::Reference { at: at.to_owned(), given, taken: taken.clone() });
        Some(taken)
    }

    fn gaps(&mut self, list: &[Value]) -> Vec<String> {
        let mut gaps = Vec::new();
        for (place, value) in list.iter().enumerate() {
            let text = value.as_str().or_else(|| value.get("text").and_then(Value::as_str)).map(one_line);
            match text.filter(|text| !text.is_empty()) {
                Some(text) => gaps.push(self.shortened("gap", &text, CLAIM_TEXT_CHARS_MAX)),
                None => self.complaints.left_out(format!("gap {}", place + 1), "all", Dropped::Unreadable),
            }
        }
        gaps
    }

    /// The word that `key` holds, one of those to choose from; otherwise the one that stands in for all others.
    fn word<T: Copy + PartialEq>(
        &mut self,
        at: &str,
        key: &'static str,
        value: Option<&Value>,
        words: &[(&'static str, T)],
        otherwise: T,
    ) -> T {
        let given = value.and_then(text_of).unwrap_or_default();
        let said = plain(&given);
        if let Some((_, meant)) = words.iter().find(|(word, _)| plain(word) == said) {
            return *meant;
        }
        let taken = words.iter().find(|(_, meant)| *meant == otherwise).map_or("", |(word, _)| word);
        self.complaints.push(Complaint::Word { at: at.to_owned(), what: key, given: excerpt(&given), taken });
        otherwise
    }

    fn shortened(&mut self, at: &str, text: &str, max: usize) -> String {
        match text.char_indices().nth(max) {
            Some((end, _)) => {
                self.complaints.push(Complaint::Shortened { at: at.to_owned(), max });
                text[..end].to_owned()
            }
            None => text.to_owned(),
        }
    }
}

const KINDS: [(&str, ClaimKind); 5] = [
    ("factual", ClaimKind::Factual),
    ("prescriptive", ClaimKind::Prescriptive),
    ("conditional", ClaimKind::Conditional),
    ("contested", ClaimKind::Contested),
    ("speculative", ClaimKind::Speculative),
];
const ROLES: [(&str, ClaimRole); 4] = [
    ("anchor", ClaimRole::Anchor),
    ("branch", ClaimRole::Branch),
    ("challenger", ClaimRole::Challenger),
    ("supplement", ClaimRole::Supplement),
];
const EDGE_KINDS: [(&str, EdgeKind); 4] = [
    ("supports", EdgeKind::Supports),
    ("conflicts", EdgeKind::Conflicts),
    ("tradeoff", EdgeKind::Tradeoff),
    ("prerequisite", EdgeKind::Prerequisite),
];

/// A word without its case, its hyphens and the ending of its plural.
fn plain(word: &str) -> String {
    let letters = word.chars().filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_'));
    let word: String = letters.flat_map(char::to_lowercase).collect();
    word.strip_suffix('s').map(str::to_owned).unwrap_or(word)
}

/// A text or a number, as text; empty ones do not count.
fn text_of(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn text_at(members: &Members<String, Value>, key: &str) -> Option<String> {
    members.get(key).and_then(text_of)
}

fn is_nothing(text: &str) -> bool {
    ["null", "none"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The number in `answer 3` or `[3]`; none if there are several.
fn only_number(text: &str) -> Option<u64> {
    if text.contains(['-', '.']) {
        return None;
    }
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = numbers.next()?;
    numbers.next().is_none().then(|| number.parse().ok())?
}

/// White space and control characters become single blanks.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
