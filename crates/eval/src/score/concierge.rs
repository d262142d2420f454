//! The measures of the concierge flow.

use segue_core::event::Event;
use segue_flows::concierge::spec::{CONCIERGE_ROLE, INTENT_HANDOVER, MAPPER_ROLE};

use super::expectations::is_handover_written;
use super::{EvalConversationScore, HANDOVER_WRITTEN, MAPS_READ, failure_note};
use crate::record::EvalConversationRecord;

pub(super) fn score_concierge(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    for (kind, value) in record.facts() {
        let failure = match kind {
            "map_parsed" => None,
            "map_unavailable" => {
                let why = value.get("why").and_then(|why| why.as_str()).unwrap_or_default();
                Some(failure_note(record, 1, "the map could not be read", why))
            }
            _ => continue,
        };
        score.count_case(MAPPER_ROLE, MAPS_READ, failure);
    }
    let has_left_starter = record.events.iter().any(|recorded| matches!(recorded.event, Event::PhaseEntered(_)));
    if has_left_starter {
        let failure = (!is_handover_written(record, INTENT_HANDOVER))
            .then(|| failure_note(record, record.messages.len(), "the flow built the handover", ""));
        score.count_case(CONCIERGE_ROLE, HANDOVER_WRITTEN, failure);
    }
}
