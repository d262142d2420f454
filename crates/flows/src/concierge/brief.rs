//! The structural brief: what the concierge is told of a map. It decides what is worth telling, in which order and how
//! much of it; the words are in `prompts/concierge/`. Claims are called by their labels and never by their ids, amounts
//! are told in words, and none of the words is one the concierge must not repeat (see [`leaks`](super::leaks)).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::analysis::{Analysis, Measured, Shape, Tension, distinct};
use super::map::{Claim, ClaimId, Edge, EdgeKind, Map};
use crate::limits::{BRIEF_LABELS_MAX, BRIEF_LINES_MAX, BRIEF_POSITIONS_MAX};
use crate::template::fill;

/// From here on a picture is called firm.
const FIRM: f64 = 0.65;
/// From here on it is called fair.
const FAIR: f64 = 0.45;

/// The brief about a map and its analysis.
#[must_use]
pub fn text(map: &Map, analysis: &Analysis) -> String {
    let teller = Teller::new(map, analysis);
    fill(include_str!("../../prompts/concierge/brief.md"), &teller.arguments())
}

/// What the concierge is told to do with a picture of this shape.
#[must_use]
pub fn shape_guidance(shape: Shape) -> String {
    #[derive(Serialize)]
    struct Arguments {
        shape: &'static str,
    }
    fill(include_str!("../../prompts/concierge/shape_guidance.md"), &Arguments { shape: shape.name() })
}

#[derive(Serialize)]
struct Arguments<'m> {
    shape: &'static str,
    sureness: &'static str,
    parts: Vec<Names<'m>>,
    parts_more: usize,
    alone: Names<'m>,
    positions: Vec<Position<'m>>,
    positions_more: usize,
    chain: Vec<Names<'m>>,
    chain_more: usize,
    hub: Option<&'m str>,
    keystones: Names<'m>,
    leads: Vec<Lead<'m>>,
    leads_more: usize,
    tensions: Vec<Friction<'m>>,
    tensions_more: usize,
    challenges: Vec<Challenge<'m>>,
    fragile: Fragile<'m>,
    gaps: &'m [String],
    subject: Names<'m>,
}

/// As many labels as are told, and how many more there are.
#[derive(Serialize, Default)]
struct Names<'m> {
    labels: Vec<&'m str>,
    more: usize,
}

#[derive(Serialize)]
struct Position<'m> {
    label: &'m str,
    text: &'m str,
    held: &'static str,
    is_conditional: bool,
}

#[derive(Serialize)]
struct Lead<'m> {
    label: &'m str,
    before: Names<'m>,
    backs: Names<'m>,
}

#[derive(Serialize)]
struct Friction<'m> {
    one: &'m str,
    other: &'m str,
    is_tradeoff: bool,
    is_conditional: bool,
    is_between_high: bool,
}

#[derive(Serialize)]
struct Challenge<'m> {
    label: &'m str,
    against: &'m str,
}

#[derive(Serialize)]
struct Fragile<'m> {
    joints: Vec<&'m str>,
    inversions: Vec<&'m str>,
    bare: Vec<&'m str>,
    circles: Vec<Names<'m>>,
    has_conditional_conflicts: bool,
    has_disconnected_consensus: bool,
    is_nothing: bool,
}

struct Teller<'m> {
    map: &'m Map,
    analysis: &'m Analysis,
    claims: BTreeMap<&'m ClaimId, &'m Claim>,
}

impl<'m> Teller<'m> {
    fn new(map: &'m Map, analysis: &'m Analysis) -> Self {
        let claims = distinct(map).into_iter().map(|claim| (&claim.id, claim)).collect();
        Self { map, analysis, claims }
    }

    fn arguments(&self) -> Arguments<'m> {
        let analysis = self.analysis;
        let (positions, positions_more) = self.positions();
        let (parts, parts_more) = self.parts();
        let alone = analysis.components.iter().filter(|part| part.claims.len() == 1).flat_map(|part| &part.claims);
        let (leads, leads_more) = self.leads();
        let (tensions, tensions_more) = first(self.frictions());
        let (chain, chain_more) = first(analysis.chain.iter().map(|link| self.names(link)).collect());
        Arguments {
            shape: analysis.shape.name(),
            sureness: sureness(analysis.confidence),
            parts,
            parts_more,
            alone: if analysis.components.len() > 1 { self.names(alone) } else { Names::default() },
            positions,
            positions_more,
            chain,
            chain_more,
            hub: analysis.hub.as_ref().map(|hub| self.label(&hub.claim)),
            keystones: self.names(&analysis.keystones),
            leads,
            leads_more,
            tensions,
            tensions_more,
            challenges: self.challenges(),
            fragile: self.fragile(),
            gaps: &self.map.gaps,
            subject: self.subject(),
        }
    }

    /// What a claim is called. A claim without a label is called by its text.
    fn label(&self, id: &ClaimId) -> &'m str {
        let texts = self.claims.get(id).map(|claim| [claim.label.as_str(), claim.text.as_str()]);
        texts.into_iter().flatten().find(|text| !text.trim().is_empty()).unwrap_or("…")
    }

    fn names<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> Names<'m> {
        let mut names = Names::default();
        for id in ids {
            if names.labels.len() < BRIEF_LABELS_MAX {
                names.labels.push(self.label(id));
            } else {
                names.more += 1;
            }
        }
        names
    }

    fn labels<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> Vec<&'m str> {
        ids.into_iter().take(BRIEF_LINES_MAX).map(|id| self.label(id)).collect()
    }

    fn leverage(&self, id: &ClaimId) -> f64 {
        self.analysis.claim(id).map_or(0.0, |claim| claim.leverage)
    }

    /// The positions worth giving in full: what stands out in any way, then what is held most. Told by how many hold them.
    fn positions(&self) -> (Vec<Position<'m>>, usize) {
        let analysis = self.analysis;
        let mut standing_out: BTreeSet<&ClaimId> = analysis.keystones.iter().collect();
        standing_out.extend(&analysis.leverage_inversions);
        standing_out.extend(analysis.hub.iter().map(|hub| &hub.claim));
        standing_out.extend(&analysis.fragility.weak_joints);
        let by_support = |one: &&Measured, other: &&Measured| {
            let order = other.supporters.cmp(&one.supporters);
            order.then(other.leverage.total_cmp(&one.leverage)).then(one.id.cmp(&other.id))
        };
        let mut claims: Vec<&Measured> = analysis.claims.iter().collect();
        claims.sort_by(|one, other| {
            let stands_out = |claim: &Measured| standing_out.contains(&claim.id);
            stands_out(other).cmp(&stands_out(one)).then_with(|| by_support(one, other))
        });
        let more = claims.len().saturating_sub(BRIEF_POSITIONS_MAX);
        claims.truncate(BRIEF_POSITIONS_MAX);
        claims.sort_by(by_support);
        let position = |claim: &Measured| Position {
            label: self.label(&claim.id),
            text: self.claims.get(&claim.id).map_or("", |it| it.text.as_str()),
            held: held(claim.supporters, analysis.answers),
            is_conditional: claim.is_conditional,
        };
        (claims.into_iter().map(position).collect(), more)
    }

    /// The parts of several claims, if there is more than one part; the largest first, each led by what most hangs on.
    fn parts(&self) -> (Vec<Names<'m>>, usize) {
        if self.analysis.components.len() < 2 {
            return (Vec::new(), 0);
        }
        let mut parts: Vec<_> = self.analysis.components.iter().filter(|part| part.claims.len() > 1).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.claims.len()));
        first(parts.into_iter().map(|part| self.names(self.by_leverage(&part.claims))).collect())
    }

    fn by_leverage<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> Vec<&'i ClaimId> {
        let mut ids: Vec<_> = ids.into_iter().map(|id| (id, self.leverage(id))).collect();
        ids.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        ids.into_iter().map(|(id, _)| id).collect()
    }

    /// What leads where, from what most hangs on, beyond what the chain tells.
    fn leads(&self) -> (Vec<Lead<'m>>, usize) {
        let told: BTreeMap<&ClaimId, usize> =
            self.analysis.chain.iter().take(BRIEF_LINES_MAX).enumerate().flat_map(in_link).collect();
        let is_told = |edge: &Edge| {
            let (from, to) = (told.get(&edge.from), told.get(&edge.to));
            edge.kind == EdgeKind::Prerequisite && from.is_some_and(|from| to == Some(&(from + 1)))
        };
        let mut leads: BTreeMap<&ClaimId, [BTreeSet<&ClaimId>; 2]> = BTreeMap::new();
        for edge in self.map.edges.iter().filter(|edge| !is_told(edge)) {
            let is_known = self.claims.contains_key(&edge.from) && self.claims.contains_key(&edge.to);
            if is_known && edge.from != edge.to && edge.kind.is_reinforcing() {
                let kind = usize::from(edge.kind == EdgeKind::Supports);
                leads.entry(&edge.from).or_default()[kind].insert(&edge.to);
            }
        }
        let from = self.by_leverage(leads.keys().copied());
        let lead = |id: &&ClaimId| {
            let [before, backs] = &leads[*id];
            Lead {
                label: self.label(id),
                before: self.names(before.iter().copied()),
                backs: self.names(backs.iter().copied()),
            }
        };
        (from.iter().take(BRIEF_LINES_MAX).map(lead).collect(), from.len().saturating_sub(BRIEF_LINES_MAX))
    }

    /// Tensions, those between the best held first, then by what hangs on both ends.
    fn tensions(&self) -> Vec<&'m Tension> {
        let weight = |tension: &Tension| self.leverage(&tension.one) + self.leverage(&tension.other);
        let mut tensions: Vec<_> = self.analysis.tensions.iter().map(|it| (it, weight(it))).collect();
        tensions
            .sort_by(|one, other| other.0.is_between_high.cmp(&one.0.is_between_high).then(other.1.total_cmp(&one.1)));
        tensions.into_iter().map(|(tension, _)| tension).collect()
    }

    fn frictions(&self) -> Vec<Friction<'m>> {
        let friction = |tension: &Tension| Friction {
            one: self.label(&tension.one),
            other: self.label(&tension.other),
            is_tradeoff: tension.kind == EdgeKind::Tradeoff,
            is_conditional: tension.is_conditional,
            is_between_high: tension.is_between_high,
        };
        self.tensions().into_iter().map(friction).collect()
    }

    /// Challenges that are not told as tensions already.
    fn challenges(&self) -> Vec<Challenge<'m>> {
        let tense: BTreeSet<_> = self.analysis.tensions.iter().map(|it| (&it.one, &it.other)).collect();
        let challenge = |claim: &&'m Claim| {
            let against = claim.challenges.as_ref().filter(|id| self.claims.contains_key(id))?;
            let is_told = tense.contains(&(&claim.id, against)) || tense.contains(&(against, &claim.id));
            (!is_told).then(|| Challenge { label: self.label(&claim.id), against: self.label(against) })
        };
        self.claims.values().filter_map(challenge).take(BRIEF_LINES_MAX).collect()
    }

    fn fragile(&self) -> Fragile<'m> {
        let analysis = self.analysis;
        let fragility = &analysis.fragility;
        let joints = self.labels(&fragility.weak_joints);
        let is_weak_joint: BTreeSet<_> = fragility.weak_joints.iter().collect();
        let inversions = analysis.leverage_inversions.iter().filter(|id| !is_weak_joint.contains(id));
        let inversions = self.labels(inversions);
        // What all hold is not short of backing, however much rests on it.
        let short = analysis.evidence_gaps.iter().filter(|gap| 2 * gap.supporters <= analysis.answers);
        let bare = self.labels(short.map(|gap| &gap.claim));
        let circles: Vec<_> = analysis.circles.iter().take(BRIEF_LINES_MAX).map(|circle| self.names(circle)).collect();
        let has_conditional_conflicts = fragility.conditional_conflicts > 0;
        let has_disconnected_consensus = fragility.has_disconnected_consensus;
        let is_nothing = joints.is_empty()
            && inversions.is_empty()
            && bare.is_empty()
            && circles.is_empty()
            && !has_conditional_conflicts
            && !has_disconnected_consensus;
        Fragile { joints, inversions, bare, circles, has_conditional_conflicts, has_disconnected_consensus, is_nothing }
    }

    /// What the question to the user is about.
    fn subject(&self) -> Names<'m> {
        let analysis = self.analysis;
        let sharpest = |kind| {
            let found = self.tensions().into_iter().find(|tension| tension.kind == kind);
            self.names(found.into_iter().flat_map(|tension| [&tension.one, &tension.other]))
        };
        match analysis.shape {
            Shape::Linear => self.names(analysis.chain.first().into_iter().flatten()),
            Shape::Keystone => self.names(analysis.hub.iter().map(|hub| &hub.claim)),
            Shape::Contested => sharpest(EdgeKind::Conflicts),
            Shape::Tradeoff => sharpest(EdgeKind::Tradeoff),
            Shape::Dimensional => {
                let sides = analysis.components.iter().filter(|part| part.claims.len() > 1);
                self.names(sides.filter_map(|part| self.by_leverage(&part.claims).first().copied()))
            }
            Shape::Contextual => {
                let conditional = analysis.claims.iter().filter(|claim| claim.is_conditional);
                self.names(self.by_leverage(conditional.map(|claim| &claim.id)))
            }
            Shape::Settled | Shape::Exploratory => Names::default(),
        }
    }
}

fn in_link((place, link): (usize, &Vec<ClaimId>)) -> impl Iterator<Item = (&ClaimId, usize)> {
    link.iter().map(move |claim| (claim, place))
}

/// As many lines as are told, and how many more there are.
fn first<T>(mut lines: Vec<T>) -> (Vec<T>, usize) {
    let more = lines.len().saturating_sub(BRIEF_LINES_MAX);
    lines.truncate(BRIEF_LINES_MAX);
    (lines, more)
}

pub(super) fn sureness(confidence: f64) -> &'static str {
    match confidence {
        confidence if confidence >= FIRM => "firm",
        confidence if confidence >= FAIR => "fair",
        _ => "tentative",
    }
}

fn held(supporters: u32, answers: u32) -> &'static str {
    match u64::from(supporters) * 2 {
        0 => "none",
        _ if supporters >= answers => "all",
        _ if supporters == 1 => "one",
        twice if twice > u64::from(answers) => "most",
        twice if twice == u64::from(answers) => "half",
        _ => "some",
    }
}
