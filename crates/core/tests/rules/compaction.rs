//! Threads that no longer fit: what is folded, what is kept, who writes the summary, and what happens if nobody does.

use segue_core::context::{ContextLayer, FragmentSpec, PrefixMatch};
use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, ThreadCompacted, TurnResult};
use segue_core::flow::{FlowSpec, FlowStep, RoleSpec, ToolRunner};
use segue_core::limits::COMPACTIONS_PER_CALL_MAX;
use segue_core::prompt::{ChatRole, FailureKind};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{brief, events, outcomes, refused_steps, tool, words};

const WINDOW: u32 = 2_000;

fn speaker() -> RoleSpec {
    let mut speaker = brief(ClosureFlow::speaker_role(), 200);
    speaker.compaction.summary_tokens_max = 60;
    speaker
}

/// A chat whose threads a scribe summarises.
fn summarised(mut speaker: RoleSpec) -> FlowSpec {
    let (scribe, by) = ClosureFlow::summarizer_role();
    speaker.compaction.summarizer = Some(by);
    ClosureFlow::spec_with_role(speaker).with_role(brief(scribe, 100))
}

fn stage(spec: FlowSpec) -> SessionHarness {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    stage.set_window(WINDOW);
    stage
}

/// Turns of 20 words each, answered by 200, until a compaction is wanted.
fn talk_until_full(stage: &mut SessionHarness) {
    talk_until(stage, |stage| stage.open_call_roles() != ["speaker"] || !compactions(stage).is_empty());
}

fn talk_until(stage: &mut SessionHarness, enough: impl Fn(&SessionHarness) -> bool) {
    for turn in 0..100 {
        stage.send_message(&format!("question {turn} {}", words(18)));
        if enough(stage) {
            return;
        }
        stage.answer_call("speaker", &format!("answer {turn} {}", words(198)));
    }
    panic!("it never filled up");
}

fn compactions(stage: &SessionHarness) -> Vec<ThreadCompacted> {
    events(stage, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

fn first_words(stage: &SessionHarness, role: &str) -> Vec<String> {
    let shorten = |text: String| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    stage.prompt_for_role(role).messages.iter().map(|message| shorten(message.text())).collect()
}

#[test]
fn a_role_summarises_and_the_call_that_waited_goes_on() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    assert_eq!(stage.open_call_roles(), ["scribe"], "the speaker waits");
    let folded = stage.prompt_for_role("scribe").messages[0].text();
    assert!(folded.starts_with("question 0 ") && folded.contains("answer 0 "));
    stage.answer_call("scribe", "they talked");
    let shown = first_words(&stage, "speaker");
    assert_eq!(shown[..2], ["be speaker".to_owned(), "so far: they".to_owned()]);
    assert_eq!(shown.last().map(String::as_str), Some("question 7 w0"), "its own question comes last");
    let receipt = stage.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
    assert!(receipt.tokens < WINDOW / 2 + 100);
    assert!(matches!(&receipt.prefix, PrefixMatch::Broken { cause, kept_tokens: 2, .. } if cause == "compaction"));
    let compacted = &compactions(&stage)[0];
    assert!(compacted.summary_call.is_some());
    assert_eq!(compacted.tokens_after, stage.session().threads.values().next().expect("it stands").tokens);
    stage.answer_call("speaker", "yes");
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("done"));
    stage.send_message("more?");
    let receipt = &stage.session().open_calls.values().next().expect("it is open").opened.receipt;
    assert!(matches!(receipt.prefix, PrefixMatch::Extends(_)), "from then on it extends again");
}

#[test]
fn the_flow_is_not_asked_about_a_summary() {
    // `chats` would say the summary to the user and end the turn.
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.answer_call("scribe", "private");
    assert!(!stage.last_reply().contains("private"));
    assert!(stage.session().current_turn.is_some());
}

#[test]
fn a_summary_that_fails_is_done_without() {
    for summary in [None, Some(" \n")] {
        let mut stage = stage(summarised(speaker()));
        talk_until_full(&mut stage);
        match summary {
            None => stage.fail_call("scribe", FailureKind::Refused),
            Some(blank) => stage.answer_call("scribe", blank),
        };
        let folded = compactions(&stage)[0].folded_entries;
        assert_eq!(
            first_words(&stage, "speaker")[1],
            format!("{folded} messages were"),
            "the flow's own words stand in"
        );
        assert_eq!(compactions(&stage)[0].summary_call, None);
        stage.answer_call("speaker", "fine");
        assert!(stage.session().is_idle());
    }
}

#[test]
fn without_a_scribe_a_thread_is_trimmed_at_once() {
    let mut stage = stage(ClosureFlow::spec_with_role(speaker()));
    talk_until_full(&mut stage);
    assert_eq!(stage.open_call_roles(), ["speaker"]);
    assert_eq!(compactions(&stage).len(), 1);
    assert!(first_words(&stage, "speaker")[1].ends_with("messages were"));
}

#[test]
fn the_users_own_words_are_kept_over_several_compactions() {
    let mut stage = stage(ClosureFlow::spec_with_role(speaker()));
    let mut kept = Vec::new();
    for turn in 0..40 {
        stage.send_message(&format!("word{turn}"));
        let shown = stage.prompt_for_role("speaker").messages;
        if compactions(&stage).len() > kept.len() {
            kept.push(shown[1].parts.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>());
        }
        stage.answer_call("speaker", &words(200));
    }
    assert!(kept.len() > 3, "{kept:?}");
    for (place, words) in kept.iter().enumerate() {
        let first = words.first().expect("some are kept");
        assert_eq!(first, "word0", "compaction {place} keeps those that an earlier one kept: {words:?}");
    }
}

#[test]
fn words_are_kept_newest_first_within_their_budget() {
    let mut stage = stage(ClosureFlow::spec_with_role(speaker()));
    for turn in 0..30 {
        stage.send_message(&format!("word{turn} {}", words(30))).answer_call("speaker", &words(200));
    }
    let last = compactions(&stage).pop().expect("there were some");
    assert!(!last.user_texts.is_empty());
    assert!(last.user_texts.iter().map(|text| text.tokens).sum::<u32>() <= WINDOW * 15 / 100);
    let said: Vec<String> = last.user_texts.iter().map(|text| stage.text_on_one_line(*text)).collect();
    let numbers: Vec<u32> =
        said.iter().filter_map(|text| text.split(' ').next()?.strip_prefix("word")?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order of speaking, none left out: {numbers:?}");
}

#[test]
fn many_compactions_stay_bounded_and_their_accounts_are_right() {
    let mut stage = stage(summarised(speaker()));
    for turn in 0..60 {
        stage.send_message(&format!("question {turn} {}", words(18)));
        if stage.open_call_roles() == ["scribe"] {
            stage.answer_call("scribe", &words(500));
        }
        let receipt = &stage.session().open_calls.values().next().expect("it is open").opened.receipt;
        assert!(receipt.tokens + 200 + 256 <= WINDOW);
        stage.answer_call("speaker", &words(200));
    }
    let compactions = compactions(&stage);
    assert!(compactions.len() > 8);
    for compacted in &compactions {
        assert!(compacted.tokens_after < compacted.tokens_before);
        assert!(compacted.summary[0].tokens <= 60, "a summary has its budget");
        assert!(compacted.summary_call.is_some());
    }
    let opened = events(&stage, |event| matches!(event, Event::CallOpened(_)).then_some(())).len();
    assert_eq!(opened, 60 + compactions.len(), "one summary each");
}

#[test]
fn a_pinned_message_is_never_folded() {
    let spec = ClosureFlow::spec_with_role(speaker());
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { turn, .. } if turn.0 == 2 => {
            vec![FlowStep::Call(CallRequest::new("speaker", "pin").with_metadata(json!("never forget this")))]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.set_window(WINDOW);
    for _ in 0..30 {
        stage.send_message("go on").answer_call("speaker", &words(200));
    }
    stage.send_message("what was it?");
    assert!(compactions(&stage).len() > 2);
    let pinned = stage
        .prompt_for_role("speaker")
        .messages
        .iter()
        .filter(|message| message.text() == "never forget this")
        .count();
    assert_eq!(pinned, 1);
}

#[test]
fn a_prompt_that_can_never_fit_fails_and_says_why() {
    let mut stage = stage(summarised(speaker()));
    stage.send_message(&words(WINDOW as usize));
    assert_eq!(outcomes(&stage), ["failed"], "in a new thread");
    stage.send_message("short").answer_call("speaker", "yes").send_message(&words(WINDOW as usize));
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
    assert!(stage.session().refused_prompt_tokens.is_empty(), "no model has refused anything");
    stage.send_message("short again").answer_call("speaker", "yes");
    stage.send_message(&words(WINDOW as usize / 2)).answer_call("speaker", "that fits as it did before");
    assert!(stage.session().is_idle(), "the session goes on");
}

#[test]
fn a_thread_of_pins_alone_ends_in_a_clear_failure() {
    let mut stage = SessionHarness::open(ClosureFlow::new(summarised(speaker()), |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::Call(CallRequest::new("speaker", "pin").with_metadata(json!(words(120))))]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.set_window(WINDOW);
    let mut asked = 0;
    for _ in 0..20 {
        stage.send_message("pin it");
        for _ in 0..=COMPACTIONS_PER_CALL_MAX {
            if stage.open_call_roles() == ["scribe"] {
                asked += 1;
                let folded = stage.prompt_for_role("scribe").messages[0].text();
                assert!(folded.contains(" | ") || !folded.starts_with("so far"), "a summary is not summarised alone");
                stage.answer_call("scribe", &words(100));
            }
        }
        if stage.session().current_turn.is_some() {
            stage.answer_call("speaker", "ok");
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
    stage.set_window(8_000);
    for _ in 0..32 {
        stage.send_message("go on").answer_call("speaker", &words(200));
    }
    stage.set_window(1_400);
    stage.send_message("and now on a small model");
    let mut asked = 0;
    while stage.open_call_roles() == ["scribe"] {
        asked += 1;
        let receipt = stage.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens <= 1_400);
        stage.answer_call("scribe", "they went on");
    }
    assert_eq!(asked, COMPACTIONS_PER_CALL_MAX, "then the rest is trimmed");
    assert_eq!(stage.open_call_roles(), ["speaker"]);
    assert_eq!(compactions(&stage).len(), 1 + COMPACTIONS_PER_CALL_MAX as usize);
    let parts = stage.prompt_for_role("speaker").messages[1].parts.clone();
    assert_eq!(&*parts[0], "so far: they went on", "what was paid for stands");
    assert!(parts[1].ends_with(" messages were left out"), "and what is missing beside it is told: {parts:?}");
    stage.answer_call("speaker", "fine");
}

/// A chat on a wide window whose scribe has a narrow one, with these answers so far.
fn narrow_scribe(answers: &[usize]) -> SessionHarness {
    let mut stage = stage(summarised(speaker()));
    stage.set_window(8_000);
    stage.assign_model("scribe", "narrow");
    stage.set_model_window("narrow", 1_400);
    for (turn, answer) in answers.iter().enumerate() {
        stage
            .send_message(&format!("question {turn}"))
            .answer_call("speaker", &format!("answer {turn} {}", words(*answer)));
    }
    stage
}

/// Has the scribe write summaries as long as it is asked to: what it was shown each time, and whether that was cut.
fn summaries(stage: &mut SessionHarness) -> Vec<(String, bool)> {
    let mut shown = Vec::new();
    while stage.open_call_roles() == ["scribe"] {
        let receipt = stage.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens + 100 + 256 <= 1_400, "the scribe has room to answer: {}", receipt.tokens);
        shown.push((stage.prompt_for_role("scribe").messages[0].text(), receipt.ask[0].tokens_before_cut.is_some()));
        stage.answer_call("scribe", &format!("summary {}", shown.len()));
    }
    shown
}

/// What stands in the place of what was folded.
fn standing(stage: &SessionHarness) -> String {
    stage.prompt_for_role("speaker").messages[1].parts[0].to_string()
}

#[test]
fn a_message_too_long_for_the_scribe_is_shown_to_it_in_part_and_no_summary_is_paid_for_in_vain() {
    let mut stage = narrow_scribe(&[200, 3_000, 200, 3_000]);
    stage.set_window(3_400);
    stage.send_message("and now?");
    let shown = summaries(&mut stage);
    assert_eq!(shown.iter().map(|(_, is_cut)| *is_cut).collect::<Vec<_>>(), [true, true], "one for each of the two");
    assert!(shown[0].0.starts_with("question 0 | answer 0 w0") && shown[0].0.contains(" | answer 1 w0"));
    assert!(shown[1].0.starts_with("so far: summary 1") && shown[1].0.contains(" | answer 3 w0"), "{}", shown[1].0);
    assert_eq!(standing(&stage), "so far: summary 2", "the last stands for all of them");
    assert!(compactions(&stage).iter().all(|compacted| compacted.summary_call.is_some()));
    stage.answer_call("speaker", "fine");
    assert!(stage.session().is_idle());
}

#[test]
fn a_summary_stands_on_where_the_next_one_fails() {
    for summary in [None, Some(" \n")] {
        let mut stage = stage(summarised(speaker()));
        talk_until_full(&mut stage);
        stage.answer_call("scribe", "they talked").answer_call("speaker", &words(200));
        talk_until(&mut stage, |stage| stage.open_call_roles() == ["scribe"]);
        assert!(stage.prompt_for_role("scribe").messages[0].text().starts_with("so far: they talked"));
        match summary {
            None => stage.fail_call("scribe", FailureKind::Refused),
            Some(blank) => stage.answer_call("scribe", blank),
        };
        assert_eq!(standing(&stage), "so far: they talked");
        let compactions = compactions(&stage);
        assert_eq!(compactions[0].summary_call, compactions[1].summary_call, "that is who wrote what stands");
    }
}

#[test]
fn a_summary_stands_on_where_a_vendor_finds_the_prompt_too_long() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.answer_call("scribe", "they talked").answer_call("speaker", &words(200));
    stage
        .send_message("and now?")
        .answer_call("speaker", &words(200))
        .send_message("well?")
        .fail_call("speaker", FailureKind::ContextTooLong);
    assert_eq!(compactions(&stage).len(), 2);
    assert_eq!(standing(&stage), "so far: they talked");
}

#[test]
fn a_summary_gives_way_where_there_is_no_room_for_it() {
    let mut wide = speaker();
    wide.compaction.summary_tokens_max = 900;
    let mut stage = stage(summarised(wide));
    stage.set_window(8_000);
    talk_until(&mut stage, |stage| stage.open_call_roles() == ["scribe"]);
    stage.answer_call("scribe", &words(800));
    assert!(standing(&stage).starts_with("so far: w0"));
    stage.answer_call("speaker", &words(200)).set_window(1_400);
    stage.send_message("and now on a small model");
    while stage.open_call_roles() == ["scribe"] {
        stage.fail_call("scribe", FailureKind::Refused);
    }
    assert_eq!(stage.open_call_roles(), ["speaker"], "the call is made all the same");
    let receipt = &stage.session().open_calls.values().next().expect("it is open").opened.receipt;
    assert!(receipt.tokens + 200 + 256 <= 1_400, "{}", receipt.tokens);
}

#[test]
fn a_summary_that_there_is_no_room_for_is_not_asked_for() {
    let asked = |question: usize| {
        let mut stage = stage(summarised(speaker()));
        for _ in 0..4 {
            stage.send_message("go on").answer_call("speaker", &words(200));
        }
        stage.send_message(&words(question));
        let asked = stage.open_call_roles() == ["scribe"];
        if asked {
            stage.answer_call("scribe", &words(100));
        }
        let receipt = &stage.session().open_calls.values().next().expect("it is open").opened.receipt;
        assert_eq!(stage.open_call_roles(), ["speaker"], "one is enough");
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
        let worker = speaker().with_tool("look");
        let spec = if scribe { summarised(worker) } else { ClosureFlow::spec_with_role(worker) };
        let mut stage = stage(spec.with_tool(tool("look", ToolRunner::Host)));
        stage.send_message("look around");
        for _ in 0..14 {
            stage.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok(&words(200)));
            if stage.open_call_roles() == ["scribe"] {
                stage.answer_call("scribe", "looked around");
            }
            let prompt = stage.prompt_for_role("speaker");
            let last = prompt.messages.last().expect("there are some");
            assert_eq!(last.chat_role, ChatRole::Tool, "the newest result is kept");
        }
        assert!(compactions(&stage).len() > 1);
        assert_eq!(refused_steps(&stage), [""; 0]);
        let dropped = events(&stage, |event| matches!(event, Event::ToolRoundDropped { .. }).then_some(()));
        assert!(dropped.is_empty());
        stage.answer_call("speaker", "seen it all");
        assert_eq!(outcomes(&stage), ["done"]);
    }
}

#[test]
fn a_call_wished_when_a_round_was_shortened_waits_until_the_round_is_over() {
    let spec = summarised(speaker().with_tool("look")).with_tool(tool("look", ToolRunner::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::ThreadCompacted(_) => vec![super::note("speaker", "by the way")],
        Event::CallAnswered(_) => Vec::new(),
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.set_window(WINDOW);
    stage.send_message("look around");
    while stage.open_call_roles() == ["speaker"] {
        stage.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok(&words(200)));
    }
    stage.answer_call("scribe", "looked around");
    let last = |stage: &SessionHarness| stage.prompt_for_role("speaker").messages.last().map(|message| message.text());
    assert_eq!(last(&stage), Some(words(200)), "the round goes on first");
    stage.answer_call("speaker", "seen it");
    assert_eq!(last(&stage).as_deref(), Some("by the way"));
}

#[test]
fn a_tool_call_is_never_parted_from_its_result() {
    let worker = speaker().with_tool("look");
    let mut stage = stage(ClosureFlow::spec_with_role(worker).with_tool(tool("look", ToolRunner::Host)));
    for turn in 0..24 {
        stage.send_message("look");
        stage
            .answer_with_tool_call("speaker", "look", json!({"turn": turn}))
            .finish_tool("look", Ok(&words(100 + turn * 3)));
        let messages = stage.prompt_for_role("speaker").messages;
        for (place, message) in messages.iter().enumerate() {
            if message.chat_role == ChatRole::Tool {
                assert_eq!(messages[place - 1].tool_calls.len(), 1, "its wish stands before it");
            }
            if !message.tool_calls.is_empty() {
                assert_eq!(messages[place + 1].tool_call_id.as_deref(), Some(message.tool_calls[0].id.as_str()));
            }
        }
        stage.answer_call("speaker", "seen");
    }
    assert!(compactions(&stage).len() > 1);
}

#[test]
fn a_turn_stopped_during_a_compaction_loses_nothing() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    let before = stage.session().threads.values().next().expect("it stands").entries.clone();
    stage.run_command(OperatorCommand::Cancel);
    assert!(compactions(&stage).is_empty(), "nothing was folded");
    let thread = stage.session().threads.values().next().expect("it stands");
    assert_eq!((&thread.entries, thread.active_call), (&before, None));
    stage.send_message("and now?");
    assert_eq!(stage.open_call_roles(), ["scribe"], "the next call finds the thread full again");
    stage.answer_call("scribe", "they talked").answer_call("speaker", "yes");
    assert!(stage.session().is_idle());
}

#[test]
fn an_interrupting_message_during_a_compaction_goes_on_with_the_thread() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    let busy = Some(segue_core::event::MidTurnPolicy::Interrupt);
    stage.apply_input(segue_core::decide::SessionInput::Message {
        text: "stop".into(),
        idempotency_key: None,
        mid_turn_policy: busy,
        images: Vec::new(),
    });
    assert_eq!(stage.open_call_roles(), ["scribe"]);
    stage.answer_call("scribe", "they talked");
    assert_eq!(first_words(&stage, "speaker").last().map(String::as_str), Some("stop"));
}

#[test]
fn a_summary_in_flight_at_a_crash_is_asked_for_again_and_the_call_goes_on() {
    let mut stage = stage(summarised(speaker()));
    talk_until_full(&mut stage);
    stage.crash_and_recover().answer_call("scribe", "they talked");
    assert_eq!(stage.open_call_roles(), ["speaker"]);
}

#[test]
fn a_second_call_on_a_thread_that_is_being_compacted_waits_too() {
    let mut stage = SessionHarness::open(ClosureFlow::new(summarised(speaker()), |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::Call(CallRequest::new("speaker", "reply")), super::note("speaker", "and a second thing")]
        }
        Event::CallAnswered(_) if view.session.deferred_calls.is_empty() => vec![FlowStep::EndTurn(TurnResult::Done)],
        _ => Vec::new(),
    }));
    stage.set_window(WINDOW);
    for _ in 0..20 {
        stage.send_message("go on");
        while let Some(role) = stage.open_call_roles().pop() {
            assert_eq!(stage.open_call_roles().len(), 1, "one at a time");
            stage.answer_call(&role, &words(if role == "scribe" { 50 } else { 200 }));
        }
    }
    assert!(compactions(&stage).len() > 2);
    assert!(outcomes(&stage).iter().all(|outcome| outcome == "done"));
}

#[test]
fn a_scribe_with_a_memory_or_with_tools_is_a_fault_of_the_flow() {
    let mut spec = summarised(speaker());
    assert_eq!(spec.validation_errors(), [""; 0]);
    spec.roles.get_mut("scribe").expect("it is there").scope = Scope::per_session();
    assert_eq!(
        spec.validation_errors(),
        ["role `speaker`: `scribe`, who writes its summaries, must be fresh and use no tools"]
    );
    let phaseless = ClosureFlow::spec_with_role(
        RoleSpec::new("x", Scope::per_phase())
            .with_ask("go", [FragmentSpec::changing("message", ContextLayer::UserWords)]),
    );
    assert_eq!(phaseless.validation_errors(), ["role `x`: its memory lasts a phase visit, and it lives by no graph"]);
}
