//! Threads that no longer fit: which messages are folded, which are kept, who writes the summary, and what happens
//! without one.

use segue_core::context::{FragmentContentKind, FragmentSpec, PreviousPromptComparison};
use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, ThreadCompacted, TurnOutcome};
use segue_core::flow::{FlowSpec, FlowStep, RoleSpec, ThreadCompactionThreshold, ToolRunnerKind};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailureKind, ChatRole};
use segue_core::scope::Scope;
use segue_core::session::Thread;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{brief, events, outcomes, refused_steps, tool, words};

const WINDOW: u32 = 2_000;

fn speaker() -> RoleSpec {
    let mut speaker = brief(ClosureFlow::speaker_role(), 200);
    speaker.compaction.summary_tokens_max = 60;
    speaker
}

/// A chat with a role that writes summaries.
fn with_summarizer(mut speaker: RoleSpec) -> FlowSpec {
    let (scribe, by) = ClosureFlow::summarizer_role();
    speaker.compaction.summarizer = Some(by);
    ClosureFlow::spec_with_role(speaker).with_role(brief(scribe, 100))
}

fn harness(spec: FlowSpec) -> SessionHarness {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.set_window(WINDOW);
    harness
}

/// Plays turns of 20 words each, answered by 200, until a compaction is needed.
fn talk_until_full(harness: &mut SessionHarness) {
    talk_until(harness, |harness| harness.open_call_roles() != ["speaker"] || !compactions(harness).is_empty());
}

#[test]
fn thread_that_reaches_the_limit_of_its_role_is_compacted_although_it_would_fit() {
    let mut speaker = speaker();
    speaker.compaction.thread_limit = Some(ThreadCompactionThreshold { tokens_max: 800, tokens_kept: 400 });
    let mut harness = harness(with_summarizer(speaker));
    harness.set_window(100_000);
    for turn in 0..20 {
        harness.send_message(&format!("question {turn} {}", words(18)));
        if harness.open_call_roles() == ["scribe"] {
            harness.answer_call("scribe", "they talked");
        }
        let longest = harness.session().threads.values().map(|thread| thread.tokens).max();
        assert!(longest.is_some_and(|tokens| tokens <= 800), "turn {turn}: {longest:?}");
        harness.answer_call("speaker", &format!("answer {turn} {}", words(198)));
    }
    let compactions = compactions(&harness);
    assert!((4..=10).contains(&compactions.len()), "it is not compacted in every turn: {}", compactions.len());
    assert!(compactions.iter().all(|compaction| compaction.tokens_after <= 400 && compaction.tokens_before > 800));
    harness.send_message("and now?");
    assert_eq!(first_words(&harness, "speaker")[1], "so far: they");
}

#[test]
fn limit_that_the_opening_alone_exceeds_does_not_stop_the_role() {
    let mut speaker = speaker();
    speaker.compaction.thread_limit = Some(ThreadCompactionThreshold { tokens_max: 2, tokens_kept: 1 });
    let mut harness = harness(with_summarizer(speaker));
    for _ in 0..3 {
        harness.send_message("hello").answer_call("speaker", "good day");
    }
    assert_eq!(outcomes(&harness).len(), 3);
    assert_eq!(harness.last_reply(), "good day");
}

#[test]
fn limit_must_keep_less_than_it_allows() {
    let mut speaker = speaker();
    speaker.compaction.thread_limit = Some(ThreadCompactionThreshold { tokens_max: 800, tokens_kept: 800 });
    let errors = ClosureFlow::spec_with_role(speaker).validation_errors();
    assert!(errors.iter().any(|error| error.contains("must keep fewer tokens")), "{errors:?}");
}

fn talk_until(harness: &mut SessionHarness, enough: impl Fn(&SessionHarness) -> bool) {
    for turn in 0..100 {
        harness.send_message(&format!("question {turn} {}", words(18)));
        if enough(harness) {
            return;
        }
        harness.answer_call("speaker", &format!("answer {turn} {}", words(198)));
    }
    panic!("it never filled up");
}

fn compactions(harness: &SessionHarness) -> Vec<ThreadCompacted> {
    events(harness, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

fn first_words(harness: &SessionHarness, role: &str) -> Vec<String> {
    let shorten = |text: String| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    harness.prompt_for_role(role).messages.iter().map(|message| shorten(message.text())).collect()
}

#[test]
fn summarizer_writes_a_summary_and_the_deferred_call_resumes() {
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    assert_eq!(harness.open_call_roles(), ["scribe"], "the speaker waits");
    let folded = harness.prompt_for_role("scribe").messages[0].text();
    assert!(folded.starts_with("question 0 ") && folded.contains("answer 0 "));
    harness.answer_call("scribe", "they talked");
    let shown = first_words(&harness, "speaker");
    assert_eq!(shown[..2], ["be speaker".to_owned(), "so far: they".to_owned()]);
    assert_eq!(shown.last().map(String::as_str), Some("question 7 w0"), "its own question comes last");
    let receipt = harness.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
    assert!(receipt.tokens < WINDOW / 2 + 100);
    assert!(
        matches!(&receipt.prefix, PreviousPromptComparison::Broken { cause, kept_tokens: 2, .. } if cause == "compaction")
    );
    let compacted = &compactions(&harness)[0];
    assert!(compacted.summary_call.is_some());
    assert_eq!(compacted.tokens_after, harness.session().threads.values().next().expect("the thread exists").tokens);
    harness.answer_call("speaker", "yes");
    assert_eq!(outcomes(&harness).last().map(String::as_str), Some("done"));
    harness.send_message("more?");
    let receipt = &harness.session().open_calls.values().next().expect("it is open").opened.receipt;
    assert!(matches!(receipt.prefix, PreviousPromptComparison::Extends(_)), "from then on it extends again");
}

#[test]
fn flow_does_not_see_a_summarizing_call() {
    // `react_as_chat` would send the summary to the user and end the turn.
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    harness.answer_call("scribe", "private");
    assert!(!harness.last_reply().contains("private"));
    assert!(harness.session().current_turn.is_some());
}

#[test]
fn thread_is_trimmed_if_the_summary_fails() {
    for summary in [None, Some(" \n")] {
        let mut harness = harness(with_summarizer(speaker()));
        talk_until_full(&mut harness);
        match summary {
            None => harness.fail_call("scribe", CallFailureKind::Refused),
            Some(blank) => harness.answer_call("scribe", blank),
        };
        let folded = compactions(&harness)[0].folded_entries;
        assert_eq!(
            first_words(&harness, "speaker")[1],
            format!("{folded} messages were"),
            "the flow's own words stand in"
        );
        assert_eq!(compactions(&harness)[0].summary_call, None);
        harness.answer_call("speaker", "fine");
        assert!(harness.session().is_idle());
    }
}

#[test]
fn thread_without_a_summarizer_is_trimmed_at_once() {
    let mut harness = harness(ClosureFlow::spec_with_role(speaker()));
    talk_until_full(&mut harness);
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    assert_eq!(compactions(&harness).len(), 1);
    assert!(first_words(&harness, "speaker")[1].ends_with("messages were"));
}

#[test]
fn the_users_own_words_are_kept_over_several_compactions() {
    let mut harness = harness(ClosureFlow::spec_with_role(speaker()));
    let mut kept = Vec::new();
    for turn in 0..40 {
        harness.send_message(&format!("word{turn}"));
        let shown = harness.prompt_for_role("speaker").messages;
        if compactions(&harness).len() > kept.len() {
            kept.push(shown[1].parts.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>());
        }
        harness.answer_call("speaker", &words(200));
    }
    assert!(kept.len() > 3, "{kept:?}");
    for (place, words) in kept.iter().enumerate() {
        let first = words.first().expect("some are kept");
        assert_eq!(first, "word0", "compaction {place} keeps those that an earlier one kept: {words:?}");
    }
}

#[test]
fn words_are_kept_newest_first_within_their_budget() {
    let mut harness = harness(ClosureFlow::spec_with_role(speaker()));
    for turn in 0..30 {
        harness.send_message(&format!("word{turn} {}", words(30))).answer_call("speaker", &words(200));
    }
    let last = compactions(&harness).pop().expect("there were some");
    assert!(!last.user_texts.is_empty());
    assert!(last.user_texts.iter().map(|text| text.tokens).sum::<u32>() <= WINDOW * 15 / 100);
    let said: Vec<String> = last.user_texts.iter().map(|text| harness.text_on_one_line(*text)).collect();
    let numbers: Vec<u32> =
        said.iter().filter_map(|text| text.split(' ').next()?.strip_prefix("word")?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order of speaking, none left out: {numbers:?}");
}

#[test]
fn many_compactions_stay_bounded_with_correct_token_counts() {
    let mut harness = harness(with_summarizer(speaker()));
    for turn in 0..60 {
        harness.send_message(&format!("question {turn} {}", words(18)));
        if harness.open_call_roles() == ["scribe"] {
            harness.answer_call("scribe", &words(500));
        }
        let receipt = &harness.session().open_calls.values().next().expect("it is open").opened.receipt;
        assert!(receipt.tokens + 200 + 256 <= WINDOW);
        harness.answer_call("speaker", &words(200));
    }
    let compactions = compactions(&harness);
    assert!(compactions.len() > 8);
    for compacted in &compactions {
        assert!(compacted.tokens_after < compacted.tokens_before);
        assert!(compacted.summary[0].tokens <= 60, "a summary has its budget");
        assert!(compacted.summary_call.is_some());
    }
    let opened = events(&harness, |event| matches!(event, Event::CallOpened(_)).then_some(())).len();
    assert_eq!(opened, 60 + compactions.len(), "one summary each");
}

#[test]
fn a_pinned_message_is_never_folded() {
    let spec = ClosureFlow::spec_with_role(speaker());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { turn, .. } if turn.0 == 2 => {
            vec![FlowStep::Call(CallRequest {
                metadata: json!("never forget this"),
                ..CallRequest::new("speaker", "pin")
            })]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.set_window(WINDOW);
    for _ in 0..30 {
        harness.send_message("go on").answer_call("speaker", &words(200));
    }
    harness.send_message("what was it?");
    assert!(compactions(&harness).len() > 2);
    let pinned = harness
        .prompt_for_role("speaker")
        .messages
        .iter()
        .filter(|message| message.text() == "never forget this")
        .count();
    assert_eq!(pinned, 1);
}

#[test]
fn prompt_that_can_never_fit_fails_with_the_reason() {
    let mut harness = harness(with_summarizer(speaker()));
    harness.send_message(&words(WINDOW as usize));
    assert_eq!(outcomes(&harness), ["failed"], "in a new thread");
    harness.send_message("short").answer_call("speaker", "yes").send_message(&words(WINDOW as usize));
    assert!(compactions(&harness).is_empty(), "nothing would be gained");
    let failures = events(&harness, |event| match event {
        Event::CallFailed { failure, .. } => Some(failure.clone()),
        _ => None,
    });
    assert_eq!(failures.len(), 2);
    assert_eq!(failures[0].kind, CallFailureKind::ContextTooLong);
    assert_eq!(
        failures[0].message,
        "the prompt has 2010 tokens, which leaves no space for an answer in a window of 2000"
    );
    assert!(harness.session().refused_prompt_tokens.is_empty(), "no model has refused anything");
    harness.send_message("short again").answer_call("speaker", "yes");
    harness.send_message(&words(WINDOW as usize / 2)).answer_call("speaker", "that fits as it did before");
    assert!(harness.session().is_idle(), "the session continues");
}

#[test]
fn thread_of_only_pinned_messages_fails_clearly() {
    let mut harness =
        SessionHarness::open(ClosureFlow::new(with_summarizer(speaker()), |view, event| match &event.event {
            Event::TurnStarted { .. } => {
                vec![FlowStep::Call(CallRequest { metadata: json!(words(120)), ..CallRequest::new("speaker", "pin") })]
            }
            _ => ClosureFlow::react_as_chat(view, event),
        }));
    harness.set_window(WINDOW);
    let mut asked = 0;
    for _ in 0..20 {
        harness.send_message("pin it");
        for _ in 0..=SESSION_LIMITS.compactions_per_call_max {
            if harness.open_call_roles() == ["scribe"] {
                asked += 1;
                let folded = harness.prompt_for_role("scribe").messages[0].text();
                assert!(folded.contains(" | ") || !folded.starts_with("so far"), "a summary is not summarised alone");
                harness.answer_call("scribe", &words(100));
            }
        }
        if harness.session().current_turn.is_some() {
            harness.answer_call("speaker", "ok");
        }
    }
    assert_eq!(outcomes(&harness).last().map(String::as_str), Some("failed"));
    assert!(harness.session().is_idle());
    assert_eq!(asked, 1, "beyond that, nothing would be gained");
}

#[test]
fn summarizer_input_fits_its_window_and_the_rest_is_folded_next() {
    let mut spec = with_summarizer(speaker());
    spec.roles.get_mut("scribe").expect("it is there").reply_tokens_max = 4_000;
    let mut harness = harness(spec);
    harness.set_window(8_000);
    for _ in 0..32 {
        harness.send_message("go on").answer_call("speaker", &words(200));
    }
    harness.set_window(1_400);
    harness.send_message("and now on a small model");
    let mut asked = 0;
    while harness.open_call_roles() == ["scribe"] {
        asked += 1;
        let receipt = harness.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens <= 1_400);
        harness.answer_call("scribe", "they went on");
    }
    assert_eq!(asked, SESSION_LIMITS.compactions_per_call_max, "then the rest is trimmed");
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    assert_eq!(compactions(&harness).len(), 1 + SESSION_LIMITS.compactions_per_call_max as usize);
    let parts = harness.prompt_for_role("speaker").messages[1].parts.clone();
    assert_eq!(&*parts[0], "so far: they went on", "the paid summary is kept");
    assert!(parts[1].ends_with(" messages were left out"), "and a notice follows: {parts:?}");
    harness.answer_call("speaker", "fine");
}

/// A chat with a wide window and a summarizer with a narrow one, after these answers.
fn narrow_scribe(answers: &[usize]) -> SessionHarness {
    let mut harness = harness(with_summarizer(speaker()));
    harness.set_window(8_000);
    harness.assign_model("scribe", "narrow");
    harness.set_model_window("narrow", 1_400);
    for (turn, answer) in answers.iter().enumerate() {
        harness
            .send_message(&format!("question {turn}"))
            .answer_call("speaker", &format!("answer {turn} {}", words(*answer)));
    }
    harness
}

/// Answers the summarizer as long as it is called. Returns its inputs, and whether each was cut.
fn summaries(harness: &mut SessionHarness) -> Vec<(String, bool)> {
    let mut shown = Vec::new();
    while harness.open_call_roles() == ["scribe"] {
        let receipt = harness.session().open_calls.values().next().expect("it is open").opened.receipt.clone();
        assert!(receipt.tokens + 100 + 256 <= 1_400, "the scribe has room to answer: {}", receipt.tokens);
        shown.push((harness.prompt_for_role("scribe").messages[0].text(), receipt.ask[0].tokens_before_cut.is_some()));
        harness.answer_call("scribe", &format!("summary {}", shown.len()));
    }
    shown
}

/// Returns the replacement of the folded messages.
fn replacement_text(harness: &SessionHarness) -> String {
    harness.prompt_for_role("speaker").messages[1].parts[0].to_string()
}

#[test]
fn message_too_long_for_the_summarizer_is_cut_and_no_summary_is_wasted() {
    let mut harness = narrow_scribe(&[200, 3_000, 200, 3_000]);
    harness.set_window(3_400);
    harness.send_message("and now?");
    let shown = summaries(&mut harness);
    assert_eq!(shown.iter().map(|(_, is_cut)| *is_cut).collect::<Vec<_>>(), [true, true], "one for each of the two");
    assert!(shown[0].0.starts_with("question 0 | answer 0 w0") && shown[0].0.contains(" | answer 1 w0"));
    assert!(shown[1].0.starts_with("so far: summary 1") && shown[1].0.contains(" | answer 3 w0"), "{}", shown[1].0);
    assert_eq!(replacement_text(&harness), "so far: summary 2", "the last replaces all of them");
    assert!(compactions(&harness).iter().all(|compacted| compacted.summary_call.is_some()));
    harness.answer_call("speaker", "fine");
    assert!(harness.session().is_idle());
}

#[test]
fn earlier_summary_is_kept_if_the_next_one_fails() {
    for summary in [None, Some(" \n")] {
        let mut harness = harness(with_summarizer(speaker()));
        talk_until_full(&mut harness);
        harness.answer_call("scribe", "they talked").answer_call("speaker", &words(200));
        talk_until(&mut harness, |harness| harness.open_call_roles() == ["scribe"]);
        assert!(harness.prompt_for_role("scribe").messages[0].text().starts_with("so far: they talked"));
        match summary {
            None => harness.fail_call("scribe", CallFailureKind::Refused),
            Some(blank) => harness.answer_call("scribe", blank),
        };
        assert_eq!(replacement_text(&harness), "so far: they talked");
        let compactions = compactions(&harness);
        assert_eq!(compactions[0].summary_call, compactions[1].summary_call, "the call that wrote the kept summary");
    }
}

#[test]
fn earlier_summary_is_kept_if_the_vendor_finds_the_prompt_too_long() {
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    harness.answer_call("scribe", "they talked").answer_call("speaker", &words(200));
    harness
        .send_message("and now?")
        .answer_call("speaker", &words(200))
        .send_message("well?")
        .fail_call("speaker", CallFailureKind::ContextTooLong);
    assert_eq!(compactions(&harness).len(), 2);
    assert_eq!(replacement_text(&harness), "so far: they talked");
}

#[test]
fn earlier_summary_is_dropped_if_it_does_not_fit() {
    let mut wide = speaker();
    wide.compaction.summary_tokens_max = 900;
    let mut harness = harness(with_summarizer(wide));
    harness.set_window(8_000);
    talk_until(&mut harness, |harness| harness.open_call_roles() == ["scribe"]);
    harness.answer_call("scribe", &words(800));
    assert!(replacement_text(&harness).starts_with("so far: w0"));
    harness.answer_call("speaker", &words(200)).set_window(1_400);
    harness.send_message("and now on a small model");
    while harness.open_call_roles() == ["scribe"] {
        harness.fail_call("scribe", CallFailureKind::Refused);
    }
    assert_eq!(harness.open_call_roles(), ["speaker"], "the call is made all the same");
    let receipt = &harness.session().open_calls.values().next().expect("it is open").opened.receipt;
    assert!(receipt.tokens + 200 + 256 <= 1_400, "{}", receipt.tokens);
}

#[test]
fn summary_that_would_not_fit_is_not_requested() {
    let asked = |question: usize| {
        let mut harness = harness(with_summarizer(speaker()));
        for _ in 0..4 {
            harness.send_message("go on").answer_call("speaker", &words(200));
        }
        harness.send_message(&words(question));
        let asked = harness.open_call_roles() == ["scribe"];
        if asked {
            harness.answer_call("scribe", &words(100));
        }
        let receipt = &harness.session().open_calls.values().next().expect("it is open").opened.receipt;
        assert_eq!(harness.open_call_roles(), ["speaker"], "one is enough");
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
        let spec = if scribe { with_summarizer(worker) } else { ClosureFlow::spec_with_role(worker) };
        let mut harness = harness(spec.with_tool(tool("look", ToolRunnerKind::Host)));
        harness.send_message("look around");
        for _ in 0..14 {
            harness.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok(&words(200)));
            if harness.open_call_roles() == ["scribe"] {
                harness.answer_call("scribe", "looked around");
            }
            let prompt = harness.prompt_for_role("speaker");
            let last = prompt.messages.last().expect("there are some");
            assert_eq!(last.chat_role, ChatRole::Tool, "the newest result is kept");
        }
        assert!(compactions(&harness).len() > 1);
        assert_eq!(refused_steps(&harness), [""; 0]);
        let dropped = events(&harness, |event| matches!(event, Event::ToolRoundDropped { .. }).then_some(()));
        assert!(dropped.is_empty());
        harness.answer_call("speaker", "seen it all");
        assert_eq!(outcomes(&harness), ["done"]);
    }
}

#[test]
fn call_requested_during_a_compacted_round_waits_until_the_round_ends() {
    let spec = with_summarizer(speaker().with_tool("look")).with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::ThreadCompacted(_) => vec![super::note("speaker", "by the way")],
        Event::CallAnswered(_) => Vec::new(),
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.set_window(WINDOW);
    harness.send_message("look around");
    while harness.open_call_roles() == ["speaker"] {
        harness.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok(&words(200)));
    }
    harness.answer_call("scribe", "looked around");
    let last =
        |harness: &SessionHarness| harness.prompt_for_role("speaker").messages.last().map(|message| message.text());
    assert_eq!(last(&harness), Some(words(200)), "the round continues first");
    harness.answer_call("speaker", "seen it");
    assert_eq!(last(&harness).as_deref(), Some("by the way"));
}

#[test]
fn tool_call_is_never_separated_from_its_result() {
    let worker = speaker().with_tool("look");
    let mut harness = harness(ClosureFlow::spec_with_role(worker).with_tool(tool("look", ToolRunnerKind::Host)));
    for turn in 0..24 {
        harness.send_message("look");
        harness
            .answer_with_tool_call("speaker", "look", json!({"turn": turn}))
            .finish_tool("look", Ok(&words(100 + turn * 3)));
        let messages = harness.prompt_for_role("speaker").messages;
        for (place, message) in messages.iter().enumerate() {
            if message.chat_role == ChatRole::Tool {
                assert_eq!(messages[place - 1].tool_calls.len(), 1, "its tool call comes before it");
            }
            if !message.tool_calls.is_empty() {
                assert_eq!(messages[place + 1].tool_call_id.as_deref(), Some(message.tool_calls[0].id.as_str()));
            }
        }
        harness.answer_call("speaker", "seen");
    }
    assert!(compactions(&harness).len() > 1);
}

#[test]
fn turn_cancelled_during_a_compaction_loses_nothing() {
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    let entries = |thread: &Thread| serde_json::to_value(thread).expect("a thread is JSON")["entries"].clone();
    let before = entries(harness.session().threads.values().next().expect("the thread exists"));
    harness.run_command(OperatorCommand::Cancel { turn: None });
    assert!(compactions(&harness).is_empty(), "nothing was folded");
    let thread = harness.session().threads.values().next().expect("the thread exists");
    assert_eq!((entries(thread), thread.active_call), (before, None));
    harness.send_message("and now?");
    assert_eq!(harness.open_call_roles(), ["scribe"], "the next call finds the thread full again");
    harness.answer_call("scribe", "they talked").answer_call("speaker", "yes");
    assert!(harness.session().is_idle());
}

#[test]
fn interrupting_message_during_a_compaction_continues_the_thread() {
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    let busy = Some(segue_core::event::MidTurnPolicy::Interrupt);
    harness.apply_input(segue_core::decide::SessionInput::Message {
        text: "stop".into(),
        idempotency_key: None,
        mid_turn_policy: busy,
        images: Vec::new(),
    });
    assert_eq!(harness.open_call_roles(), ["scribe"]);
    harness.answer_call("scribe", "they talked");
    assert_eq!(first_words(&harness, "speaker").last().map(String::as_str), Some("stop"));
}

#[test]
fn summary_in_flight_at_a_crash_is_retried_and_the_call_resumes() {
    let mut harness = harness(with_summarizer(speaker()));
    talk_until_full(&mut harness);
    harness.crash_and_recover().answer_call("scribe", "they talked");
    assert_eq!(harness.open_call_roles(), ["speaker"]);
}

#[test]
fn a_second_call_on_a_thread_that_is_being_compacted_waits_too() {
    let mut harness =
        SessionHarness::open(ClosureFlow::new(with_summarizer(speaker()), |view, event| match &event.event {
            Event::TurnStarted { .. } => {
                vec![FlowStep::Call(CallRequest::new("speaker", "reply")), super::note("speaker", "and a second thing")]
            }
            Event::CallAnswered(_) if view.session.deferred_calls.is_empty() => {
                vec![FlowStep::EndTurn(TurnOutcome::Done)]
            }
            _ => Vec::new(),
        }));
    harness.set_window(WINDOW);
    for _ in 0..20 {
        harness.send_message("go on");
        while let Some(role) = harness.open_call_roles().pop() {
            assert_eq!(harness.open_call_roles().len(), 1, "one at a time");
            harness.answer_call(&role, &words(if role == "scribe" { 50 } else { 200 }));
        }
    }
    assert!(compactions(&harness).len() > 2);
    assert!(outcomes(&harness).iter().all(|outcome| outcome == "done"));
}

#[test]
fn summarizer_with_a_persistent_scope_or_tools_is_invalid() {
    let mut spec = with_summarizer(speaker());
    assert_eq!(spec.validation_errors(), [""; 0]);
    spec.roles.get_mut("scribe").expect("it is there").scope = Scope::per_session();
    assert_eq!(
        spec.validation_errors(),
        ["role `speaker`: its summarizer `scribe` must have a fresh scope and no tools"]
    );
    let phaseless = ClosureFlow::spec_with_role(
        RoleSpec::new("x", Scope::per_phase())
            .with_ask("go", [FragmentSpec::changing("message", FragmentContentKind::UserWords)]),
    );
    assert_eq!(phaseless.validation_errors(), ["role `x`: its scope ends with the phase, but it has no phase graph"]);
}
