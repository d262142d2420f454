//! Threads that no longer fit: what is folded, what is kept, who writes the summary, and what happens if nobody does.

use segue_core::context::{FragmentSpec, Layer, Prefix};
use segue_core::decide::Command;
use segue_core::event::{CallWish, Event, Outcome, ThreadCompacted};
use segue_core::flow::{FlowSpec, RoleSpec, Runs, Step};
use segue_core::limits::COMPACTIONS_PER_CALL_MAX;
use segue_core::prompt::{FailureKind, Speaker};
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{brief, events, outcomes, refused_steps, tool, words};

const WINDOW: u32 = 2_000;

fn speaker() -> RoleSpec {
    let mut speaker = brief(Puppet::speaker(), 200);
    speaker.compaction.tokens_max = 60;
    speaker
}

/// A chat whose threads a scribe summarises.
fn summarised(mut speaker: RoleSpec) -> FlowSpec {
    let (scribe, by) = Puppet::scribe();
    speaker.compaction.by = Some(by);
    Puppet::spec_of(speaker).role(brief(scribe, 100))
}

fn stage(spec: FlowSpec) -> Stage {
    let mut stage = Stage::open(Puppet::new(spec, Puppet::chats));
    stage.window(WINDOW);
    stage
}

/// Turns of 20 words each, answered by 200, until a compaction is wanted.
fn talk_until_full(stage: &mut Stage) {
    talk_until(stage, |stage| stage.open_roles() != ["speaker"] || !compactions(stage).is_empty());
}

fn talk_until(stage: &mut Stage, enough: impl Fn(&Stage) -> bool) {
    for turn in 0..100 {
        stage.say(&format!("question {turn} {}", words(18)));
        if enough(stage) {
            return;
        }
        stage.answer("speaker", &format!("answer {turn} {}", words(198)));
    }
    panic!("it never filled up");
}

fn compactions(stage: &Stage) -> Vec<ThreadCompacted> {
    events(stage, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

fn first_words(stage: &Stage, role: &str) -> Vec<String> {
    let shorten = |text: String| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    stage.prompt(role).messages.iter().map(|message| shorten(message.text())).collect()
}

#[test]
fn a_role_summarises_and_the_call_that_waited_goes_on() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    assert_eq!(stage.open_roles(), ["scribe"], "the speaker waits");
    let folded = stage.prompt("scribe").messages[0].text();
    assert!(folded.starts_with("question 0 ") && folded.contains("answer 0 "));
    stage.answer("scribe", "they talked");
    let shown = first_words(&stage, "speaker");
    assert_eq!(shown[..2], ["be speaker".to_owned(), "so far: they".to_owned()]);
    assert_eq!(shown.last().map(String::as_str), Some("question 7 w0"), "its own question comes last");
    let receipt = stage.session().calls.values().next().expect("it is open").opened.receipt.clone();
    assert!(receipt.tokens < WINDOW / 2 + 100);
    assert!(matches!(&receipt.prefix, Prefix::Broken { by, kept: 2, .. } if by == "compaction"));
    let compacted = &compactions(&stage)[0];
    assert!(compacted.by.is_some());
    assert_eq!(compacted.tokens_after, stage.session().threads.values().next().expect("it stands").tokens);
    stage.answer("speaker", "yes");
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("done"));
    stage.say("more?");
    let receipt = &stage.session().calls.values().next().expect("it is open").opened.receipt;
    assert!(matches!(receipt.prefix, Prefix::Extends(_)), "from then on it extends again");
}

#[test]
fn the_flow_is_not_asked_about_a_summary() {
    // `chats` would say the summary to the user and end the turn.
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.answer("scribe", "private");
    assert!(!stage.said().contains("private"));
    assert!(stage.session().turn.is_some());
}

#[test]
fn a_summary_that_fails_is_done_without() {
    for summary in [None, Some(" \n")] {
        let mut stage = stage(summarised(speaker()));
        talk_until_full(&mut stage);
        match summary {
            None => stage.fail("scribe", FailureKind::Refused),
            Some(blank) => stage.answer("scribe", blank),
        };
        let folded = compactions(&stage)[0].folded;
        assert_eq!(
            first_words(&stage, "speaker")[1],
            format!("{folded} messages were"),
            "the flow's own words stand in"
        );
        assert_eq!(compactions(&stage)[0].by, None);
        stage.answer("speaker", "fine");
        assert!(stage.session().is_idle());
    }
}

#[test]
fn without_a_scribe_a_thread_is_trimmed_at_once() {
    let mut stage = stage(Puppet::spec_of(speaker()));
    talk_until_full(&mut stage);
    assert_eq!(stage.open_roles(), ["speaker"]);
    assert_eq!(compactions(&stage).len(), 1);
    assert!(first_words(&stage, "speaker")[1].ends_with("messages were"));
}

#[test]
fn the_users_own_words_are_kept_over_several_compactions() {
    let mut stage = stage(Puppet::spec_of(speaker()));
    let mut kept = Vec::new();
    for turn in 0..40 {
        stage.say(&format!("word{turn}"));
        let shown = stage.prompt("speaker").messages;
        if compactions(&stage).len() > kept.len() {
            kept.push(shown[1].parts.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>());
        }
        stage.answer("speaker", &words(200));
    }
    assert!(kept.len() > 3, "{kept:?}");
    for (place, words) in kept.iter().enumerate() {
        let first = words.first().expect("some are kept");
        assert_eq!(first, "word0", "compaction {place} keeps those that an earlier one kept: {words:?}");
    }
}

#[test]
fn words_are_kept_newest_first_within_their_budget() {
    let mut stage = stage(Puppet::spec_of(speaker()));
    for turn in 0..30 {
        stage.say(&format!("word{turn} {}", words(30))).answer("speaker", &words(200));
    }
    let last = compactions(&stage).pop().expect("there were some");
    assert!(!last.words.is_empty());
    assert!(last.words.iter().map(|text| text.tokens).sum::<u32>() <= WINDOW * 15 / 100);
    let said: Vec<String> = last.words.iter().map(|text| stage.words(*text)).collect();
    let numbers: Vec<u32> =
        said.iter().filter_map(|text| text.split(' ').next()?.strip_prefix("word")?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order of speaking, none left out: {numbers:?}");
}

#[test]
fn many_compactions_stay_bounded_and_their_accounts_are_right() {
    let mut stage = stage(summarised(speaker()));
    for turn in 0..60 {
        stage.say(&format!("question {turn} {}", words(18)));
        if stage.open_roles() == ["scribe"] {
            stage.answer("scribe", &words(500));
        }
        let receipt = &stage.session().calls.values().next().expect("it is open").opened.receipt;
        assert!(receipt.tokens + 200 + 256 <= WINDOW);
        stage.answer("speaker", &words(200));
    }
    let compactions = compactions(&stage);
    assert!(compactions.len() > 8);
    for compacted in &compactions {
        assert!(compacted.tokens_after < compacted.tokens_before);
        assert!(compacted.summary[0].tokens <= 60, "a summary has its budget");
        assert!(compacted.by.is_some());
    }
    let opened = events(&stage, |event| matches!(event, Event::CallOpened(_)).then_some(())).len();
    assert_eq!(opened, 60 + compactions.len(), "one summary each");
}

#[test]
fn a_pinned_message_is_never_folded() {
    let spec = Puppet::spec_of(speaker());
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnStarted { turn, .. } if turn.0 == 2 => {
            vec![Step::Call(CallWish::new("speaker", "pin").note(json!("never forget this")))]
        }
        _ => Puppet::chats(view, event),
    }));
    stage.window(WINDOW);
    for _ in 0..30 {
        stage.say("go on").answer("speaker", &words(200));
    }
    stage.say("what was it?");
    assert!(compactions(&stage).len() > 2);
    let pinned =
        stage.prompt("speaker").messages.iter().filter(|message| message.text() == "never forget this").count();
    assert_eq!(pinned, 1);
}

#[test]
fn a_prompt_that_can_never_fit_fails_and_says_why() {
    let mut stage = stage(summarised(speaker()));
    stage.say(&words(WINDOW as usize));
    assert_eq!(outcomes(&stage), ["failed"], "in a new thread");
    stage.say("short").answer("speaker", "yes").say(&words(WINDOW as usize));
    assert!(compactions(&stage).is_empty(), "nothing would be gained");
    let failures = events(&stage, |event| match event {
        Event::CallFailed { failure, .. } => Some(failure.clone()),
        _ => None,
    });
    assert_eq!(failures.len(), 2);
    assert_eq!(failures[0].kind, FailureKind::ContextTooLong);
    assert_eq!(
        failures[0].message,
        "the prompt has 2010 tokens, which leaves no room for an answer in a window of 2000"
    );
    assert!(stage.session().narrow.is_empty(), "no model has refused anything");
    stage.say("short again").answer("speaker", "yes");
    stage.say(&words(WINDOW as usize / 2)).answer("speaker", "that fits as it did before");
    assert!(stage.session().is_idle(), "the session goes on");
}

#[test]
fn a_thread_of_pins_alone_ends_in_a_clear_failure() {
    let mut stage = Stage::open(Puppet::new(summarised(speaker()), |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![Step::Call(CallWish::new("speaker", "pin").note(json!(words(120))))],
        _ => Puppet::chats(view, event),
    }));
    stage.window(WINDOW);
    let mut asked = 0;
    for _ in 0..20 {
        stage.say("pin it");
        for _ in 0..=COMPACTIONS_PER_CALL_MAX {
            if stage.open_roles() == ["scribe"] {
                asked += 1;
                let folded = stage.prompt("scribe").messages[0].text();
                assert!(folded.contains(" | ") || !folded.starts_with("so far"), "a summary is not summarised alone");
                stage.answer("scribe", &words(100));
            }
        }
        if stage.session().turn.is_some() {
            stage.answer("speaker", "ok");
        }
    }
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("failed"));
    assert!(stage.session().is_idle());
    assert_eq!(asked, 1, "beyond that, nothing would be gained");
}

#[test]
fn no_more_is_shown_to_the_scribe_than_it_can_read_and_what_is_left_is_folded_next() {
    let mut spec = summarised(speaker());
    spec.roles.get_mut("scribe").expect("it is there").reply_tokens_max = 4_000;
    let mut stage = stage(spec);
    stage.window(8_000);
    for _ in 0..32 {
        stage.say("go on").answer("speaker", &words(200));
    }
    stage.window(1_400);
    stage.say("and now on a small model");
    let mut asked = 0;
    while stage.open_roles() == ["scribe"] {
        asked += 1;
        let receipt = stage.session().calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens <= 1_400);
        stage.answer("scribe", "they went on");
    }
    assert_eq!(asked, COMPACTIONS_PER_CALL_MAX, "then the rest is trimmed");
    assert_eq!(stage.open_roles(), ["speaker"]);
    assert_eq!(compactions(&stage).len(), 1 + COMPACTIONS_PER_CALL_MAX as usize);
    let parts = stage.prompt("speaker").messages[1].parts.clone();
    assert_eq!(&*parts[0], "so far: they went on", "what was paid for stands");
    assert!(parts[1].ends_with(" messages were left out"), "and what is missing beside it is told: {parts:?}");
    stage.answer("speaker", "fine");
}

/// A chat on a wide window whose scribe has a narrow one, with these answers so far.
fn narrow_scribe(answers: &[usize]) -> Stage {
    let mut stage = stage(summarised(speaker()));
    stage.window(8_000);
    stage.cast("scribe", "narrow");
    stage.window_of("narrow", 1_400);
    for (turn, answer) in answers.iter().enumerate() {
        stage.say(&format!("question {turn}")).answer("speaker", &format!("answer {turn} {}", words(*answer)));
    }
    stage
}

/// Has the scribe write summaries as long as it is asked to: what it was shown each time, and whether that was cut.
fn summaries(stage: &mut Stage) -> Vec<(String, bool)> {
    let mut shown = Vec::new();
    while stage.open_roles() == ["scribe"] {
        let receipt = stage.session().calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens + 100 + 256 <= 1_400, "the scribe has room to answer: {}", receipt.tokens);
        shown.push((stage.prompt("scribe").messages[0].text(), receipt.ask[0].cut_from.is_some()));
        stage.answer("scribe", &format!("summary {}", shown.len()));
    }
    shown
}

/// What stands in the place of what was folded.
fn standing(stage: &Stage) -> String {
    stage.prompt("speaker").messages[1].parts[0].to_string()
}

#[test]
fn a_message_too_long_for_the_scribe_is_shown_to_it_in_part_and_no_summary_is_paid_for_in_vain() {
    let mut stage = narrow_scribe(&[200, 3_000, 200, 3_000]);
    stage.window(3_400);
    stage.say("and now?");
    let shown = summaries(&mut stage);
    assert_eq!(shown.iter().map(|(_, is_cut)| *is_cut).collect::<Vec<_>>(), [true, true], "one for each of the two");
    assert!(shown[0].0.starts_with("question 0 | answer 0 w0") && shown[0].0.contains(" | answer 1 w0"));
    assert!(shown[1].0.starts_with("so far: summary 1") && shown[1].0.contains(" | answer 3 w0"), "{}", shown[1].0);
    assert_eq!(standing(&stage), "so far: summary 2", "the last stands for all of them");
    assert!(compactions(&stage).iter().all(|compacted| compacted.by.is_some()));
    stage.answer("speaker", "fine");
    assert!(stage.session().is_idle());
}

#[test]
fn a_summary_stands_on_where_the_next_one_fails() {
    for summary in [None, Some(" \n")] {
        let mut stage = stage(summarised(speaker()));
        talk_until_full(&mut stage);
        stage.answer("scribe", "they talked").answer("speaker", &words(200));
        talk_until(&mut stage, |stage| stage.open_roles() == ["scribe"]);
        assert!(stage.prompt("scribe").messages[0].text().starts_with("so far: they talked"));
        match summary {
            None => stage.fail("scribe", FailureKind::Refused),
            Some(blank) => stage.answer("scribe", blank),
        };
        assert_eq!(standing(&stage), "so far: they talked");
        let compactions = compactions(&stage);
        assert_eq!(compactions[0].by, compactions[1].by, "that is who wrote what stands");
    }
}

#[test]
fn a_summary_stands_on_where_a_vendor_finds_the_prompt_too_long() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.answer("scribe", "they talked").answer("speaker", &words(200));
    stage.say("and now?").answer("speaker", &words(200)).say("well?").fail("speaker", FailureKind::ContextTooLong);
    assert_eq!(compactions(&stage).len(), 2);
    assert_eq!(standing(&stage), "so far: they talked");
}

#[test]
fn a_summary_gives_way_where_there_is_no_room_for_it() {
    let mut wide = speaker();
    wide.compaction.tokens_max = 900;
    let mut stage = stage(summarised(wide));
    stage.window(8_000);
    talk_until(&mut stage, |stage| stage.open_roles() == ["scribe"]);
    stage.answer("scribe", &words(800));
    assert!(standing(&stage).starts_with("so far: w0"));
    stage.answer("speaker", &words(200)).window(1_400);
    stage.say("and now on a small model");
    while stage.open_roles() == ["scribe"] {
        stage.fail("scribe", FailureKind::Refused);
    }
    assert_eq!(stage.open_roles(), ["speaker"], "the call is made all the same");
    let receipt = &stage.session().calls.values().next().expect("it is open").opened.receipt;
    assert!(receipt.tokens + 200 + 256 <= 1_400, "{}", receipt.tokens);
}

#[test]
fn a_summary_that_there_is_no_room_for_is_not_asked_for() {
    let asked = |question: usize| {
        let mut stage = stage(summarised(speaker()));
        for _ in 0..4 {
            stage.say("go on").answer("speaker", &words(200));
        }
        stage.say(&words(question));
        let asked = stage.open_roles() == ["scribe"];
        if asked {
            stage.answer("scribe", &words(100));
        }
        let receipt = &stage.session().calls.values().next().expect("it is open").opened.receipt;
        assert_eq!(stage.open_roles(), ["speaker"], "one is enough");
        assert!(receipt.tokens + 200 + 256 <= WINDOW, "{}", receipt.tokens);
        asked
    };
    assert!(asked(1_400), "there is room for a whole one");
    assert!(asked(1_500), "there is room for half of one");
    assert!(!asked(1_525), "there is hardly any");
}

#[test]
fn a_long_run_of_tools_is_compacted_between_its_rounds() {
    for scribe in [true, false] {
        let worker = speaker().may_use("look");
        let spec = if scribe { summarised(worker) } else { Puppet::spec_of(worker) };
        let mut stage = stage(spec.tool(tool("look", Runs::Host)));
        stage.say("look around");
        for _ in 0..14 {
            stage.wants_tool("speaker", "look", json!({})).tool("look", Ok(&words(200)));
            if stage.open_roles() == ["scribe"] {
                stage.answer("scribe", "looked around");
            }
            let prompt = stage.prompt("speaker");
            let last = prompt.messages.last().expect("there are some");
            assert_eq!(last.speaker, Speaker::Tool, "the newest result is kept");
        }
        assert!(compactions(&stage).len() > 1);
        assert_eq!(refused_steps(&stage), [""; 0]);
        let dropped = events(&stage, |event| matches!(event, Event::RoundDropped { .. }).then_some(()));
        assert!(dropped.is_empty());
        stage.answer("speaker", "seen it all");
        assert_eq!(outcomes(&stage), ["done"]);
    }
}

#[test]
fn a_call_wished_when_a_round_was_shortened_waits_until_the_round_is_over() {
    let spec = summarised(speaker().may_use("look")).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::ThreadCompacted(_) => vec![super::note("speaker", "by the way")],
        Event::CallAnswered(_) => Vec::new(),
        _ => Puppet::chats(view, event),
    }));
    stage.window(WINDOW);
    stage.say("look around");
    while stage.open_roles() == ["speaker"] {
        stage.wants_tool("speaker", "look", json!({})).tool("look", Ok(&words(200)));
    }
    stage.answer("scribe", "looked around");
    let last = |stage: &Stage| stage.prompt("speaker").messages.last().map(|message| message.text());
    assert_eq!(last(&stage), Some(words(200)), "the round goes on first");
    stage.answer("speaker", "seen it");
    assert_eq!(last(&stage).as_deref(), Some("by the way"));
}

#[test]
fn a_tool_call_is_never_parted_from_its_result() {
    let worker = speaker().may_use("look");
    let mut stage = stage(Puppet::spec_of(worker).tool(tool("look", Runs::Host)));
    for turn in 0..24 {
        stage.say("look");
        stage.wants_tool("speaker", "look", json!({"turn": turn})).tool("look", Ok(&words(100 + turn * 3)));
        let messages = stage.prompt("speaker").messages;
        for (place, message) in messages.iter().enumerate() {
            if message.speaker == Speaker::Tool {
                assert_eq!(messages[place - 1].tool_calls.len(), 1, "its wish stands before it");
            }
            if !message.tool_calls.is_empty() {
                assert_eq!(messages[place + 1].answers.as_deref(), Some(message.tool_calls[0].id.as_str()));
            }
        }
        stage.answer("speaker", "seen");
    }
    assert!(compactions(&stage).len() > 1);
}

#[test]
fn a_turn_stopped_during_a_compaction_loses_nothing() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    let before = stage.session().threads.values().next().expect("it stands").entries.clone();
    stage.command(Command::Cancel);
    assert!(compactions(&stage).is_empty(), "nothing was folded");
    let thread = stage.session().threads.values().next().expect("it stands");
    assert_eq!((&thread.entries, thread.busy), (&before, None));
    stage.say("and now?");
    assert_eq!(stage.open_roles(), ["scribe"], "the next call finds the thread full again");
    stage.answer("scribe", "they talked").answer("speaker", "yes");
    assert!(stage.session().is_idle());
}

#[test]
fn an_interrupting_message_during_a_compaction_goes_on_with_the_thread() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    let busy = Some(segue_core::event::Busy::Interrupt);
    stage.give(segue_core::decide::Input::Message { text: "stop".into(), key: None, busy, images: Vec::new() });
    assert_eq!(stage.open_roles(), ["scribe"]);
    stage.answer("scribe", "they talked");
    assert_eq!(first_words(&stage, "speaker").last().map(String::as_str), Some("stop"));
}

#[test]
fn a_summary_in_flight_at_a_crash_is_asked_for_again_and_the_call_goes_on() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.crash().answer("scribe", "they talked");
    assert_eq!(stage.open_roles(), ["speaker"]);
}

#[test]
fn a_second_call_on_a_thread_that_is_being_compacted_waits_too() {
    let mut stage = Stage::open(Puppet::new(summarised(speaker()), |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![Step::Call(CallWish::new("speaker", "reply")), super::note("speaker", "and a second thing")]
        }
        Event::CallAnswered(_) if view.session.deferred.is_empty() => vec![Step::EndTurn(Outcome::Done)],
        _ => Vec::new(),
    }));
    stage.window(WINDOW);
    for _ in 0..20 {
        stage.say("go on");
        while let Some(role) = stage.open_roles().pop() {
            assert_eq!(stage.open_roles().len(), 1, "one at a time");
            stage.answer(&role, &words(if role == "scribe" { 50 } else { 200 }));
        }
    }
    assert!(compactions(&stage).len() > 2);
    assert!(outcomes(&stage).iter().all(|outcome| outcome == "done"));
}

#[test]
fn a_scribe_with_a_memory_or_with_tools_is_a_fault_of_the_flow() {
    let mut spec = summarised(speaker());
    assert_eq!(spec.faults(), [""; 0]);
    spec.roles.get_mut("scribe").expect("it is there").scope = Scope::session();
    assert_eq!(spec.faults(), ["role `speaker`: `scribe`, who writes its summaries, must be fresh and use no tools"]);
    let phaseless = Puppet::spec_of(
        RoleSpec::new("x", Scope::phase()).ask("go", [FragmentSpec::changing("message", Layer::Words)]),
    );
    assert_eq!(phaseless.faults(), ["role `x`: its memory lasts a phase visit, and it lives by no graph"]);
}
