//! What a person does at the controls: stopping, going back, letting in.

use segue_core::decide::Command;
use segue_core::handover::Provenance;
use segue_flows::concierge::spec::phase_key;
use segue_testkit::Stage;

use super::play::*;

#[test]
fn a_stopped_request_is_told_to_the_one_who_made_it() {
    let mut stage = open();
    explored(&mut stage);
    stage.say("plan it").answer("concierge", &said(WORKFLOW)).command(Command::Cancel).say("rather not");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("were stopped before they had answered") && last.ends_with("rather not"), "{last}");
}

#[test]
fn going_back_to_a_plan_brings_it_back_as_it_stood() {
    let mut stage = open();
    planned(&mut stage);
    stage.say("letter is here").answer("concierge", &said("<<<STEP_DONE>>>\nstep: 1\n<<<END>>>"));
    let other = WORKFLOW.replace("buy a flat by May", "rent a flat by June");
    stage.say("we cannot buy").answer("concierge", &said(&other));
    experts(&mut stage, PLAN_MAP);
    stage.answer("concierge", PLAN);
    let visit = phase(&stage).visit;
    stage.command(Command::RollBack { phase: phase_key(), visit: visit - 1 }).say("where were we?");
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("buy a flat by May") && !system.contains("rent a flat by June"), "{system}");
    assert!(system.contains("[x] 1. See the bank") && system.contains("[>] 2. View flats (current)"), "{system}");
    assert_eq!(last, "where were we?");
}

#[test]
fn who_is_let_in_by_hand_is_handed_what_the_rules_can_say() {
    let go = |stage: &mut Stage, to: &str| {
        stage.command(Command::Grant { phase: phase_key(), to: to.into() });
        stage.command(Command::Propose { phase: phase_key(), to: to.into(), reason: None });
    };
    let mut stage = open();
    started(&mut stage);
    go(&mut stage, "explorer");
    stage.say("and now?");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("> rent or buy?") && system.contains("Rent, unless you stay for long."), "{system}");
    stage.answer("concierge", "Hm.");
    go(&mut stage, "executor");
    stage.say("plan it");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("Goal: rent or buy?") && system.contains("<<<STEPS>>>"), "{system}");
    stage.answer("concierge", PLAN);
    go(&mut stage, "explorer");
    stage.say("wait");
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("left with 0 of 2 steps done; the next would have been “See the bank”"), "{system}");
    let how: Vec<_> = stage.session().handovers.iter().map(|made| (made.kind.to_string(), made.how)).collect();
    let built = |kind: &str| (kind.to_owned(), Provenance::Built);
    assert_eq!(how, [built("intent"), built("execution"), built("outcome")]);
}
