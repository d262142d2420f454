//! Fan-out to three, a fresh mapper, a speaker whose thread lives as long as its phase, a handover between two phases.

use expect_test::expect;
use segue_core::prompt::FailureKind;
use segue_testkit::Stage;
use segue_testkit::miniatures::Concierge;

#[test]
fn three_answer_one_maps_one_speaks_and_the_phase_ends_the_speakers_memory() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?");
    assert_eq!(stage.open_roles(), ["expert", "expert", "expert"]);
    stage.answer("expert", "left").answer("expert", "right").answer("expert", "straight");
    assert_eq!(stage.prompt_lines("mapper"), "System: be the mapper\nUser: left | right | straight\n");
    stage.answer("mapper", "two say turn").answer("speaker", "Turn, perhaps?");
    assert_eq!(stage.said(), "Turn, perhaps?");

    stage.say("I must be home by six");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be the speaker⏎⏎two say turn\nUser: which way?\nAssistant: Turn, perhaps?\nUser: I must be home by six\n"
    );
    stage.answer("speaker", "Then left.\n<<<HANDOVER>>>\ngoal: home by six\n<<<END>>>");
    assert_eq!(stage.said(), "Then left.");

    stage.say("why left?");
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker⏎⏎goal: home by six\nUser: why left?\n");
    stage.log();
    stage.answer("speaker", "It is short.");
    expect![[r#"
        c7 answered: It is short.
        said by speaker: It is short.
        t3 done
    "#]]
    .assert_eq(&stage.log());
}

#[test]
fn a_missing_handover_is_asked_for_privately_in_the_same_thread_and_then_built() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "l").answer("expert", "r").answer("expert", "s");
    stage.answer("mapper", "m").answer("speaker", "Hm?").say("home").log();
    stage.answer("speaker", "Left.").answer("speaker", "still no block");
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
    .assert_eq(&stage.log());
}

#[test]
fn a_failed_expert_is_tolerated_and_a_crash_asks_nobody_twice() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "left").log();
    stage.crash();
    expect![[r#"
        c2 try 1 was in flight when the process died, maybe billed; again at 1004
        c3 try 1 was in flight when the process died, maybe billed; again at 1004
    "#]]
    .assert_eq(&stage.log());
    stage.fail("expert", FailureKind::BadKey).answer("expert", "straight").crash();
    assert_eq!(stage.open_roles(), ["mapper"]);
    stage.answer("mapper", "m").answer("speaker", "Go.");
    assert_eq!(stage.said(), "Go.");
    assert!(stage.session().is_idle());
}

#[test]
fn another_model_in_mid_phase_opens_a_new_thread() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "l").answer("expert", "r").answer("expert", "s");
    stage.answer("mapper", "m").answer("speaker", "Hm?");
    stage.cast("speaker", "dog");
    stage.say("home").log();
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker\nUser: home\n");
}
