//! Records of a session: the sources in receipts, complaints about settings, stored state, and reasons of failed turns.

use segue_core::context::FragmentSource;
use segue_core::event::{Event, TurnOutcome};
use segue_core::prompt::CallFailureKind;
use segue_flows::concierge::state::ConciergeState;
use serde_json::json;

use super::support::*;

#[test]
fn receipts_name_the_source_of_each_fragment() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let piece = |nth: usize, name: &str| {
        let call = calls(&harness, "concierge")[nth].clone();
        call.receipt.opening.iter().find(|piece| piece.name == *name).cloned().expect("it is in the recipe")
    };
    let mapper = calls(&harness, "mapper");
    assert_eq!(piece(0, "brief").source, Some(FragmentSource::Call(mapper[0].call)));
    assert_eq!(piece(3, "brief").source, Some(FragmentSource::Call(mapper[1].call)));
    assert!(matches!(piece(2, "handover").source, Some(FragmentSource::Handover(_))));
    assert_eq!(piece(2, "brief").text, None);
    assert_eq!(piece(0, "capabilities").why, "the starter can ask for nothing");
}

#[test]
fn invalid_settings_are_recorded() {
    let harness = open_with_settings(json!({"quorum": 9}));
    let complaints =
        json!({"complaints": ["`quorum` is 9, but only 3 answers are requested; all of them are awaited"]});
    assert_eq!(facts(&harness, "invalid_settings")[0], complaints);
    assert_eq!(facts(&open_with_settings(json!({"qorum": 2})), "invalid_settings").len(), 1);
}

#[test]
fn state_without_new_fields_still_loads() {
    let memory: ConciergeState = serde_json::from_value(json!({})).expect("every field has a default");
    assert_eq!(memory, ConciergeState::default());
}

#[test]
fn failed_turn_has_a_reason() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.fail_call("concierge", CallFailureKind::InvalidApiKey);
    let last = &harness.journal().last().expect("there are events").event;
    assert!(
        matches!(last, Event::TurnEnded { outcome: TurnOutcome::Failed { reason }, .. } if reason.contains("retry"))
    );
}
