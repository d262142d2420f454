//! Tests of the sample flow with experts, a mapper and a speaker.

use expect_test::expect;
use segue_core::prompt::CallFailureKind;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniConciergeFlow;

#[test]
fn experts_mapper_and_speaker_answer_and_the_phase_ends_the_speakers_thread() {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.send_message("which way?");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    harness.answer_call("expert", "left").answer_call("expert", "right").answer_call("expert", "straight");
    assert_eq!(harness.prompt_lines("mapper"), "System: be the mapper\nUser: left | right | straight\n");
    harness.answer_call("mapper", "two say turn").answer_call("speaker", "Turn, perhaps?");
    assert_eq!(harness.last_reply(), "Turn, perhaps?");

    harness.send_message("I must be home by six");
    assert_eq!(
        harness.prompt_lines("speaker"),
        "System: be the speaker⏎⏎two say turn\nUser: which way?\nAssistant: Turn, perhaps?\nUser: I must be home by six\n"
    );
    harness.answer_call("speaker", "Then left.\n<<<HANDOVER>>>\ngoal: home by six\n<<<END>>>");
    assert_eq!(harness.last_reply(), "Then left.");

    harness.send_message("why left?");
    assert_eq!(harness.prompt_lines("speaker"), "System: be the speaker⏎⏎goal: home by six\nUser: why left?\n");
    harness.take_new_event_lines();
    harness.answer_call("speaker", "It is short.");
    expect![[r#"
        c7 answered: It is short.
        reply by speaker: It is short.
        t3 done
    "#]]
    .assert_eq(&harness.take_new_event_lines());
}

#[test]
fn missing_handover_is_requested_privately_in_the_same_thread_and_then_built() {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.send_message("which way?").answer_call("expert", "l").answer_call("expert", "r").answer_call("expert", "s");
    harness.answer_call("mapper", "m").answer_call("speaker", "Hm?").send_message("home").take_new_event_lines();
    harness.answer_call("speaker", "Left.").answer_call("speaker", "still no block");
    expect![[r#"
        c6 answered: Left.
        reply by speaker: Left.
        repair of handover intent requested
        c7 speaker asked repair on plain in starter, th5 continued (4 messages)
        c7 answered: still no block
        h1 handover intent (built)
        talk of speaker: starter → explorer by role `speaker`
        t2 done
    "#]]
    .assert_eq(&harness.take_new_event_lines());
}

#[test]
fn failed_expert_is_tolerated_and_a_crash_repeats_no_answered_call() {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.send_message("which way?").answer_call("expert", "left").take_new_event_lines();
    harness.crash_and_recover();
    expect![[r#"
        c2 attempt 1 was in flight when the process died, possibly billed; retry at 1004
        c3 attempt 1 was in flight when the process died, possibly billed; retry at 1004
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    harness.fail_call("expert", CallFailureKind::InvalidApiKey).answer_call("expert", "straight").crash_and_recover();
    assert_eq!(harness.open_call_roles(), ["mapper"]);
    harness.answer_call("mapper", "m").answer_call("speaker", "Go.");
    assert_eq!(harness.last_reply(), "Go.");
    assert!(harness.session().is_idle());
}

#[test]
fn model_change_during_a_phase_opens_a_new_thread() {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.send_message("which way?").answer_call("expert", "l").answer_call("expert", "r").answer_call("expert", "s");
    harness.answer_call("mapper", "m").answer_call("speaker", "Hm?");
    harness.assign_model("speaker", "dog");
    harness.send_message("home").take_new_event_lines();
    assert_eq!(harness.prompt_lines("speaker"), "System: be the speaker\nUser: home\n");
}
