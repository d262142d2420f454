//! Operator commands: cancelling, rolling back, and entering phases by hand.

use segue_core::decide::OperatorCommand;
use segue_core::handover::HandoverProvenance;
use segue_flows::concierge::spec::concierge_phase_key;
use segue_testkit::SessionHarness;

use super::support::*;

#[test]
fn cancelled_batch_is_reported_to_the_concierge() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness
        .send_message("plan it")
        .answer_call("concierge", &with_text(WORKFLOW))
        .run_command(OperatorCommand::Cancel { turn: None })
        .send_message("rather not");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("were stopped before they answered") && last.ends_with("rather not"), "{last}");
}

#[test]
fn rollback_restores_the_plan() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("letter is here").answer_call("concierge", &with_text("<<<STEP_DONE>>>\nstep: 1\n<<<END>>>"));
    let other = WORKFLOW.replace("buy a flat by May", "rent a flat by June");
    harness.send_message("we cannot buy").answer_call("concierge", &with_text(&other));
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN);
    let visit = phase(&harness).visit;
    harness
        .run_command(OperatorCommand::RollBack { phase: concierge_phase_key(), visit: visit - 1 })
        .send_message("where were we?");
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("buy a flat by May") && !system.contains("rent a flat by June"), "{system}");
    assert!(system.contains("[x] 1. See the bank") && system.contains("[>] 2. View flats (current)"), "{system}");
    assert_eq!(last, "where were we?");
}

#[test]
fn phase_entered_by_hand_gets_a_built_handover() {
    let go = |harness: &mut SessionHarness, to: &str| {
        harness.run_command(OperatorCommand::Grant { phase: concierge_phase_key(), to: to.into() });
        harness.run_command(OperatorCommand::Propose { phase: concierge_phase_key(), to: to.into(), reason: None });
    };
    let mut harness = open();
    play_first_turn(&mut harness);
    go(&mut harness, "explorer");
    harness.send_message("and now?");
    let (system, _) = concierge_prompt(&harness);
    assert!(
        system.contains("The user asked:\nrent or buy?") && system.contains("Rent, unless you stay for long."),
        "{system}"
    );
    harness.answer_call("concierge", "Hm.");
    go(&mut harness, "executor");
    harness.send_message("plan it");
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains("Goal: rent or buy?") && system.contains("<<<STEPS>>>"), "{system}");
    harness.answer_call("concierge", PLAN);
    go(&mut harness, "explorer");
    harness.send_message("wait");
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains("left with 0 of 2 steps done. The next step was “See the bank”"), "{system}");
    let how: Vec<_> = harness.session().handovers.iter().map(|made| (made.kind.to_string(), made.provenance)).collect();
    let built = |kind: &str| (kind.to_owned(), HandoverProvenance::Built);
    assert_eq!(how, [built("intent"), built("execution"), built("outcome")]);
}
