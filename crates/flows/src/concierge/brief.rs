//! The brief: the part of a map that the concierge gets in its prompt. This module selects and orders the content; the
//! wording is in `prompts/concierge/brief.md`. A brief names claims by their labels, never by ids, gives amounts in words,
//! and contains no term that the concierge must not repeat (see [`leaks`](super::leaks)).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::analysis::{ClaimMapAnalysis, ClaimMapShape, ClaimMetrics, ClaimTension, sorted_unique_claims};
use super::claim_map::{ClaimEdge, ClaimEdgeKind, ClaimId, ClaimMap, ClaimNode};
use crate::limits::{BRIEF_LABELS_MAX, BRIEF_LINES_MAX, BRIEF_POSITIONS_MAX, FAIR_CONFIDENCE_MIN, FIRM_CONFIDENCE_MIN};
use crate::template::fill_template;

/// Renders the brief of a map and its analysis.
#[must_use]
pub fn render_brief(map: &ClaimMap, analysis: &ClaimMapAnalysis) -> String {
    let builder = ClaimMapBriefBuilder::new(map, analysis);
    fill_template(include_str!("../../prompts/concierge/brief.md"), &builder.template_arguments())
}

/// Renders the instruction for a map of this shape.
#[must_use]
pub fn render_shape_guidance(shape: ClaimMapShape) -> String {
    #[derive(Serialize)]
    struct ClaimMapShapeTemplateFields {
        shape: &'static str,
    }
    fill_template(
        include_str!("../../prompts/concierge/shape_guidance.md"),
        &ClaimMapShapeTemplateFields { shape: shape.name() },
    )
}

#[derive(Serialize)]
struct ClaimMapBriefTemplateFields<'m> {
    shape: &'static str,
    sureness: &'static str,
    parts: Vec<TruncatedClaimLabelList<'m>>,
    parts_more: usize,
    alone: TruncatedClaimLabelList<'m>,
    positions: Vec<ClaimInBriefTemplateFields<'m>>,
    positions_more: usize,
    chain: Vec<TruncatedClaimLabelList<'m>>,
    chain_more: usize,
    hub: Option<&'m str>,
    keystones: TruncatedClaimLabelList<'m>,
    leads: Vec<ClaimLinksInBriefTemplateFields<'m>>,
    leads_more: usize,
    tensions: Vec<TensionInBriefTemplateFields<'m>>,
    tensions_more: usize,
    challenges: Vec<CounterclaimInBriefTemplateFields<'m>>,
    fragile: FragilityInBriefTemplateFields<'m>,
    gaps: &'m [String],
    subject: TruncatedClaimLabelList<'m>,
}

/// The listed labels, and the number of further ones.
#[derive(Serialize, Default)]
struct TruncatedClaimLabelList<'m> {
    labels: Vec<&'m str>,
    more: usize,
}

#[derive(Serialize)]
struct ClaimInBriefTemplateFields<'m> {
    label: &'m str,
    text: &'m str,
    held: &'static str,
    is_conditional: bool,
}

#[derive(Serialize)]
struct ClaimLinksInBriefTemplateFields<'m> {
    label: &'m str,
    before: TruncatedClaimLabelList<'m>,
    backs: TruncatedClaimLabelList<'m>,
}

#[derive(Serialize)]
struct TensionInBriefTemplateFields<'m> {
    one: &'m str,
    other: &'m str,
    is_tradeoff: bool,
    is_conditional: bool,
    is_between_high: bool,
}

#[derive(Serialize)]
struct CounterclaimInBriefTemplateFields<'m> {
    label: &'m str,
    against: &'m str,
}

#[derive(Serialize)]
struct FragilityInBriefTemplateFields<'m> {
    joints: Vec<&'m str>,
    inversions: Vec<&'m str>,
    bare: Vec<&'m str>,
    circles: Vec<TruncatedClaimLabelList<'m>>,
    has_conditional_conflicts: bool,
    has_disconnected_consensus: bool,
    is_nothing: bool,
}

struct ClaimMapBriefBuilder<'m> {
    map: &'m ClaimMap,
    analysis: &'m ClaimMapAnalysis,
    claims: BTreeMap<&'m ClaimId, &'m ClaimNode>,
}

impl<'m> ClaimMapBriefBuilder<'m> {
    fn new(map: &'m ClaimMap, analysis: &'m ClaimMapAnalysis) -> Self {
        let claims = sorted_unique_claims(map).into_iter().map(|claim| (&claim.id, claim)).collect();
        Self { map, analysis, claims }
    }

    fn template_arguments(&self) -> ClaimMapBriefTemplateFields<'m> {
        let analysis = self.analysis;
        let (positions, positions_more) = self.select_claims_to_detail();
        let (parts, parts_more) = self.component_labels();
        let alone = analysis.components.iter().filter(|part| part.claims.len() == 1).flat_map(|part| &part.claims);
        let (leads, leads_more) = self.links_outside_longest_chain();
        let (tensions, tensions_more) = truncate_brief_lines(self.tension_entries());
        let (chain, chain_more) =
            truncate_brief_lines(analysis.longest_chain.iter().map(|link| self.label_list(link)).collect());
        ClaimMapBriefTemplateFields {
            shape: analysis.shape.name(),
            sureness: confidence_label(analysis.confidence),
            parts,
            parts_more,
            alone: if analysis.components.len() > 1 {
                self.label_list(alone)
            } else {
                TruncatedClaimLabelList::default()
            },
            positions,
            positions_more,
            chain,
            chain_more,
            hub: analysis.hub.as_ref().map(|hub| self.claim_label(&hub.claim)),
            keystones: self.label_list(&analysis.keystones),
            leads,
            leads_more,
            tensions,
            tensions_more,
            challenges: self.challenge_entries(),
            fragile: self.fragility_entry(),
            gaps: &self.map.gaps,
            subject: self.question_subject(),
        }
    }

    /// Returns the label of a claim, or its text if the label is empty.
    fn claim_label(&self, id: &ClaimId) -> &'m str {
        let texts = self.claims.get(id).map(|claim| [claim.label.as_str(), claim.text.as_str()]);
        texts.into_iter().flatten().find(|text| !text.trim().is_empty()).unwrap_or("…")
    }

    fn label_list<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> TruncatedClaimLabelList<'m> {
        let mut names = TruncatedClaimLabelList::default();
        for id in ids {
            if names.labels.len() < BRIEF_LABELS_MAX {
                names.labels.push(self.claim_label(id));
            } else {
                names.more += 1;
            }
        }
        names
    }

    fn first_labels<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> Vec<&'m str> {
        ids.into_iter().take(BRIEF_LINES_MAX).map(|id| self.claim_label(id)).collect()
    }

    fn claim_leverage(&self, id: &ClaimId) -> f64 {
        self.analysis.claim_metrics(id).map_or(0.0, |claim| claim.leverage)
    }

    /// Selects the positions to describe in full: first the remarkable ones, then those with most support. The result is
    /// sorted by support.
    fn select_claims_to_detail(&self) -> (Vec<ClaimInBriefTemplateFields<'m>>, usize) {
        let analysis = self.analysis;
        let mut remarkable: BTreeSet<&ClaimId> = analysis.keystones.iter().collect();
        remarkable.extend(&analysis.leverage_inversions);
        remarkable.extend(analysis.hub.iter().map(|hub| &hub.claim));
        remarkable.extend(&analysis.fragility.weak_articulation_points);
        let by_support = |one: &&ClaimMetrics, other: &&ClaimMetrics| {
            let order = other.supporters.cmp(&one.supporters);
            order.then(other.leverage.total_cmp(&one.leverage)).then(one.id.cmp(&other.id))
        };
        let mut claims: Vec<&ClaimMetrics> = analysis.claims.iter().collect();
        claims.sort_by(|one, other| {
            let is_remarkable = |claim: &ClaimMetrics| remarkable.contains(&claim.id);
            is_remarkable(other).cmp(&is_remarkable(one)).then_with(|| by_support(one, other))
        });
        let more = claims.len().saturating_sub(BRIEF_POSITIONS_MAX);
        claims.truncate(BRIEF_POSITIONS_MAX);
        claims.sort_by(by_support);
        let position = |claim: &ClaimMetrics| ClaimInBriefTemplateFields {
            label: self.claim_label(&claim.id),
            text: self.claims.get(&claim.id).map_or("", |it| it.text.as_str()),
            held: support_label(claim.supporters, analysis.answers),
            is_conditional: claim.is_conditional,
        };
        (claims.into_iter().map(position).collect(), more)
    }

    /// Returns the labels of each component with several claims, the largest component first. Empty if the map has only one
    /// component.
    fn component_labels(&self) -> (Vec<TruncatedClaimLabelList<'m>>, usize) {
        if self.analysis.components.len() < 2 {
            return (Vec::new(), 0);
        }
        let mut parts: Vec<_> = self.analysis.components.iter().filter(|part| part.claims.len() > 1).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.claims.len()));
        truncate_brief_lines(
            parts.into_iter().map(|part| self.label_list(self.sort_by_leverage(&part.claims))).collect(),
        )
    }

    fn sort_by_leverage<'i>(&self, ids: impl IntoIterator<Item = &'i ClaimId>) -> Vec<&'i ClaimId> {
        let mut ids: Vec<_> = ids.into_iter().map(|id| (id, self.claim_leverage(id))).collect();
        ids.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        ids.into_iter().map(|(id, _)| id).collect()
    }

    /// Returns the reinforcing links that the longest chain does not show, sorted by the leverage of their origin.
    fn links_outside_longest_chain(&self) -> (Vec<ClaimLinksInBriefTemplateFields<'m>>, usize) {
        let chain_index: BTreeMap<&ClaimId, usize> = self
            .analysis
            .longest_chain
            .iter()
            .take(BRIEF_LINES_MAX)
            .enumerate()
            .flat_map(claims_with_link_index)
            .collect();
        let is_in_chain = |edge: &ClaimEdge| {
            let (from, to) = (chain_index.get(&edge.from), chain_index.get(&edge.to));
            edge.kind == ClaimEdgeKind::Prerequisite && from.is_some_and(|from| to == Some(&(from + 1)))
        };
        let mut leads: BTreeMap<&ClaimId, [BTreeSet<&ClaimId>; 2]> = BTreeMap::new();
        for edge in self.map.edges.iter().filter(|edge| !is_in_chain(edge)) {
            let is_known = self.claims.contains_key(&edge.from) && self.claims.contains_key(&edge.to);
            if is_known && edge.from != edge.to && edge.kind.is_reinforcing() {
                let kind = usize::from(edge.kind == ClaimEdgeKind::Supports);
                leads.entry(&edge.from).or_default()[kind].insert(&edge.to);
            }
        }
        let from = self.sort_by_leverage(leads.keys().copied());
        let lead = |id: &&ClaimId| {
            let [before, backs] = &leads[*id];
            ClaimLinksInBriefTemplateFields {
                label: self.claim_label(id),
                before: self.label_list(before.iter().copied()),
                backs: self.label_list(backs.iter().copied()),
            }
        };
        (from.iter().take(BRIEF_LINES_MAX).map(lead).collect(), from.len().saturating_sub(BRIEF_LINES_MAX))
    }

    /// Returns the tensions, first those between widely held claims, then by the leverage of both ends.
    fn sorted_tensions(&self) -> Vec<&'m ClaimTension> {
        let weight = |tension: &ClaimTension| self.claim_leverage(&tension.one) + self.claim_leverage(&tension.other);
        let mut tensions: Vec<_> = self.analysis.tensions.iter().map(|it| (it, weight(it))).collect();
        tensions.sort_by(|one, other| {
            other.0.is_between_high_support.cmp(&one.0.is_between_high_support).then(other.1.total_cmp(&one.1))
        });
        tensions.into_iter().map(|(tension, _)| tension).collect()
    }

    fn tension_entries(&self) -> Vec<TensionInBriefTemplateFields<'m>> {
        let entry = |tension: &ClaimTension| TensionInBriefTemplateFields {
            one: self.claim_label(&tension.one),
            other: self.claim_label(&tension.other),
            is_tradeoff: tension.kind == ClaimEdgeKind::Tradeoff,
            is_conditional: tension.is_conditional,
            is_between_high: tension.is_between_high_support,
        };
        self.sorted_tensions().into_iter().map(entry).collect()
    }

    /// Returns the challenges that are not already listed as tensions.
    fn challenge_entries(&self) -> Vec<CounterclaimInBriefTemplateFields<'m>> {
        let tense: BTreeSet<_> = self.analysis.tensions.iter().map(|it| (&it.one, &it.other)).collect();
        let challenge = |claim: &&'m ClaimNode| {
            let against = claim.challenges.as_ref().filter(|id| self.claims.contains_key(id))?;
            let is_listed = tense.contains(&(&claim.id, against)) || tense.contains(&(against, &claim.id));
            (!is_listed).then(|| CounterclaimInBriefTemplateFields {
                label: self.claim_label(&claim.id),
                against: self.claim_label(against),
            })
        };
        self.claims.values().filter_map(challenge).take(BRIEF_LINES_MAX).collect()
    }

    fn fragility_entry(&self) -> FragilityInBriefTemplateFields<'m> {
        let analysis = self.analysis;
        let fragility = &analysis.fragility;
        let joints = self.first_labels(&fragility.weak_articulation_points);
        let is_weak_joint: BTreeSet<_> = fragility.weak_articulation_points.iter().collect();
        let inversions = analysis.leverage_inversions.iter().filter(|id| !is_weak_joint.contains(id));
        let inversions = self.first_labels(inversions);
        // A claim that most answers hold is not short of evidence.
        let unsupported = analysis.evidence_gaps.iter().filter(|gap| 2 * gap.supporters <= analysis.answers);
        let bare = self.first_labels(unsupported.map(|gap| &gap.claim));
        let circles: Vec<_> =
            analysis.cycles.iter().take(BRIEF_LINES_MAX).map(|circle| self.label_list(circle)).collect();
        let has_conditional_conflicts = fragility.conditional_conflicts > 0;
        let has_disconnected_consensus = fragility.has_disconnected_consensus;
        let is_nothing = joints.is_empty()
            && inversions.is_empty()
            && bare.is_empty()
            && circles.is_empty()
            && !has_conditional_conflicts
            && !has_disconnected_consensus;
        FragilityInBriefTemplateFields {
            joints,
            inversions,
            bare,
            circles,
            has_conditional_conflicts,
            has_disconnected_consensus,
            is_nothing,
        }
    }

    /// Returns the claims that the question to the user is about.
    fn question_subject(&self) -> TruncatedClaimLabelList<'m> {
        let analysis = self.analysis;
        let sharpest = |kind| {
            let found = self.sorted_tensions().into_iter().find(|tension| tension.kind == kind);
            self.label_list(found.into_iter().flat_map(|tension| [&tension.one, &tension.other]))
        };
        match analysis.shape {
            ClaimMapShape::Linear => self.label_list(analysis.longest_chain.first().into_iter().flatten()),
            ClaimMapShape::Keystone => self.label_list(analysis.hub.iter().map(|hub| &hub.claim)),
            ClaimMapShape::Contested => sharpest(ClaimEdgeKind::Conflicts),
            ClaimMapShape::Tradeoff => sharpest(ClaimEdgeKind::Tradeoff),
            ClaimMapShape::Dimensional => {
                let sides = analysis.components.iter().filter(|part| part.claims.len() > 1);
                self.label_list(sides.filter_map(|part| self.sort_by_leverage(&part.claims).first().copied()))
            }
            ClaimMapShape::Contextual => {
                let conditional = analysis.claims.iter().filter(|claim| claim.is_conditional);
                self.label_list(self.sort_by_leverage(conditional.map(|claim| &claim.id)))
            }
            ClaimMapShape::Settled | ClaimMapShape::Exploratory => TruncatedClaimLabelList::default(),
        }
    }
}

fn claims_with_link_index((index, link): (usize, &Vec<ClaimId>)) -> impl Iterator<Item = (&ClaimId, usize)> {
    link.iter().map(move |claim| (claim, index))
}

/// Truncates the lines and returns the number of dropped ones.
fn truncate_brief_lines<T>(mut lines: Vec<T>) -> (Vec<T>, usize) {
    let more = lines.len().saturating_sub(BRIEF_LINES_MAX);
    lines.truncate(BRIEF_LINES_MAX);
    (lines, more)
}

pub(super) fn confidence_label(confidence: f64) -> &'static str {
    match confidence {
        confidence if confidence >= FIRM_CONFIDENCE_MIN => "firm",
        confidence if confidence >= FAIR_CONFIDENCE_MIN => "fair",
        _ => "tentative",
    }
}

fn support_label(supporters: u32, answers: u32) -> &'static str {
    match u64::from(supporters) * 2 {
        0 => "none",
        _ if supporters >= answers => "all",
        _ if supporters == 1 => "one",
        twice if twice > u64::from(answers) => "most",
        twice if twice == u64::from(answers) => "half",
        _ => "some",
    }
}
