//! What a person does at the controls: stopping, going back, letting in.

use segue_core::decide::OperatorCommand;
use segue_core::handover::HandoverProvenance;
use segue_flows::concierge::spec::concierge_phase_key;
use segue_testkit::SessionHarness;

use super::play::*;

#[test]
fn a_stopped_request_is_told_to_the_one_who_made_it() {
    let mut stage = open();
    explored(&mut stage);
    stage
        .send_message("plan it")
        .answer_call("concierge", &said(WORKFLOW))
        .run_command(OperatorCommand::Cancel)
        .send_message("rather not");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("were stopped before they had answered") && last.ends_with("rather not"), "{last}");
}

#[test]
fn going_back_to_a_plan_brings_it_back_as_it_stood() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("letter is here").answer_call("concierge", &said("<<<STEP_DONE>>>\nstep: 1\n<<<END>>>"));
    let other = WORKFLOW.replace("buy a flat by May", "rent a flat by June");
    stage.send_message("we cannot buy").answer_call("concierge", &said(&other));
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", PLAN);
    let visit = phase(&stage).visit;
    stage
        .run_command(OperatorCommand::RollBack { phase: concierge_phase_key(), visit: visit - 1 })
        .send_message("where were we?");
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("buy a flat by May") && !system.contains("rent a flat by June"), "{system}");
    assert!(system.contains("[x] 1. See the bank") && system.contains("[>] 2. View flats (current)"), "{system}");
    assert_eq!(last, "where were we?");
}

#[test]
fn who_is_let_in_by_hand_is_handed_what_the_rules_can_say() {
    let go = |stage: &mut SessionHarness, to: &str| {
        stage.run_command(OperatorCommand::Grant { phase: concierge_phase_key(), to: to.into() });
        stage.run_command(OperatorCommand::Propose { phase: concierge_phase_key(), to: to.into(), reason: None });
    };
    let mut stage = open();
    started(&mut stage);
    go(&mut stage, "explorer");
    stage.send_message("and now?");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("> rent or buy?") && system.contains("Rent, unless you stay for long."), "{system}");
    stage.answer_call("concierge", "Hm.");
    go(&mut stage, "executor");
    stage.send_message("plan it");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("Goal: rent or buy?") && system.contains("<<<STEPS>>>"), "{system}");
    stage.answer_call("concierge", PLAN);
    go(&mut stage, "explorer");
    stage.send_message("wait");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("left with 0 of 2 steps done; the next would have been “See the bank”"), "{system}");
    let how: Vec<_> = stage.session().handovers.iter().map(|made| (made.kind.to_string(), made.provenance)).collect();
    let built = |kind: &str| (kind.to_owned(), HandoverProvenance::Built);
    assert_eq!(how, [built("intent"), built("execution"), built("outcome")]);
}
