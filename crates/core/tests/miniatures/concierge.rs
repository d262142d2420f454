//! Fan-out to three, a fresh mapper, a speaker whose thread lives as long as its phase, a handover between two phases.

use expect_test::expect;
use segue_core::prompt::FailureKind;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniConcierge;

#[test]
fn three_answer_one_maps_one_speaks_and_the_phase_ends_the_speakers_memory() {
    let mut stage = SessionHarness::open(MiniConcierge::new());
    stage.send_message("which way?");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    stage.answer_call("expert", "left").answer_call("expert", "right").answer_call("expert", "straight");
    assert_eq!(stage.prompt_lines("mapper"), "System: be the mapper\nUser: left | right | straight\n");
    stage.answer_call("mapper", "two say turn").answer_call("speaker", "Turn, perhaps?");
    assert_eq!(stage.last_reply(), "Turn, perhaps?");

    stage.send_message("I must be home by six");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be the speaker⏎⏎two say turn\nUser: which way?\nAssistant: Turn, perhaps?\nUser: I must be home by six\n"
    );
    stage.answer_call("speaker", "Then left.\n<<<HANDOVER>>>\ngoal: home by six\n<<<END>>>");
    assert_eq!(stage.last_reply(), "Then left.");

    stage.send_message("why left?");
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker⏎⏎goal: home by six\nUser: why left?\n");
    stage.take_log();
    stage.answer_call("speaker", "It is short.");
    expect![[r#"
        c7 answered: It is short.
        said by speaker: It is short.
        t3 done
    "#]]
    .assert_eq(&stage.take_log());
}

#[test]
fn a_missing_handover_is_asked_for_privately_in_the_same_thread_and_then_built() {
    let mut stage = SessionHarness::open(MiniConcierge::new());
    stage.send_message("which way?").answer_call("expert", "l").answer_call("expert", "r").answer_call("expert", "s");
    stage.answer_call("mapper", "m").answer_call("speaker", "Hm?").send_message("home").take_log();
    stage.answer_call("speaker", "Left.").answer_call("speaker", "still no block");
    expect![[r#"
        c6 answered: Left.
        said by speaker: Left.
        handover intent asked for again
        c7 speaker asked repair on plain in starter, th5 continued (4 messages)
        c7 answered: still no block
        h1 handover intent (built)
        talk of speaker: starter → explorer by role `speaker`
        t2 done
    "#]]
    .assert_eq(&stage.take_log());
}

#[test]
fn a_failed_expert_is_tolerated_and_a_crash_asks_nobody_twice() {
    let mut stage = SessionHarness::open(MiniConcierge::new());
    stage.send_message("which way?").answer_call("expert", "left").take_log();
    stage.crash_and_recover();
    expect![[r#"
        c2 try 1 was in flight when the process died, maybe billed; again at 1004
        c3 try 1 was in flight when the process died, maybe billed; again at 1004
    "#]]
    .assert_eq(&stage.take_log());
    stage.fail_call("expert", FailureKind::InvalidApiKey).answer_call("expert", "straight").crash_and_recover();
    assert_eq!(stage.open_call_roles(), ["mapper"]);
    stage.answer_call("mapper", "m").answer_call("speaker", "Go.");
    assert_eq!(stage.last_reply(), "Go.");
    assert!(stage.session().is_idle());
}

#[test]
fn another_model_in_mid_phase_opens_a_new_thread() {
    let mut stage = SessionHarness::open(MiniConcierge::new());
    stage.send_message("which way?").answer_call("expert", "l").answer_call("expert", "r").answer_call("expert", "s");
    stage.answer_call("mapper", "m").answer_call("speaker", "Hm?");
    stage.assign_model("speaker", "dog");
    stage.send_message("home").take_log();
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker\nUser: home\n");
}
