//! Behaviour that depends on vendors: fallback models, refused prompts, images, and vendor state.

use segue_core::codec;
use segue_core::decide::{InputRefusal, SessionInput};
use segue_core::event::{
    CallRequest, Event, MidTurnPolicy, RecordedEvent, RetryDecision, SessionOpened, ThreadCompacted,
};
use segue_core::flow::{FlowContext, FlowStep, ToolRunnerKind};
use segue_core::ids::CallId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailure, CallFailureKind, ChatRole, ImageMediaType, ModelReply, PromptImage};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{brief, events, outcomes, tool, wants, words};

fn chat() -> SessionHarness {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.set_fallback_model("speaker", "spare");
    harness
}

fn moves(harness: &SessionHarness) -> Vec<(String, String)> {
    events(harness, |event| match event {
        Event::CallFailedOver { from, to, .. } => Some((from.to_string(), to.to_string())),
        _ => None,
    })
}

fn to_spare() -> Vec<(String, String)> {
    vec![("plain".to_owned(), "spare".to_owned())]
}

fn failing(attempt: u32, kind: CallFailureKind, retry_after_ms: Option<u64>) -> SessionInput {
    let failure = CallFailure { retry_after_ms, ..CallFailure::new(kind, "no") };
    SessionInput::CallFailure { call: CallId(1), attempt, failure }
}

#[test]
fn fallback_model_is_used_after_the_last_attempt() {
    let mut harness = chat();
    harness.send_message("hi");
    for _ in 0..3 {
        harness.fail_call("speaker", CallFailureKind::Overload);
        assert_eq!(moves(&harness), []);
    }
    harness.fail_call("speaker", CallFailureKind::Overload);
    assert_eq!(moves(&harness), to_spare());
    assert_eq!(harness.prompt_for_role("speaker").model, *"spare", "the same call, to another");
    harness.answer_call("speaker", "hello");
    assert_eq!(outcomes(&harness), ["done"]);
    let ledger = &harness.session().ledger;
    assert_eq!((ledger.by_model["plain"].failed_attempts, ledger.by_model["plain"].answered_calls), (4, 0));
    assert_eq!((ledger.by_model["spare"].failed_attempts, ledger.by_model["spare"].answered_calls), (0, 1));
}

#[test]
fn fallback_model_is_used_at_once_if_a_retry_would_not_help() {
    for kind in [CallFailureKind::InvalidApiKey, CallFailureKind::ModelNotFound, CallFailureKind::UnusableReply] {
        let mut harness = chat();
        harness.send_message("hi").fail_call("speaker", kind);
        assert_eq!(moves(&harness), to_spare(), "{kind}");
    }
    let mut harness = chat();
    harness.send_message("hi").apply_input(failing(
        1,
        CallFailureKind::RateLimit,
        Some(SESSION_LIMITS.fallback_retry_after_ms_min),
    ));
    assert_eq!(moves(&harness), [], "a short wait is waited for");
    harness.apply_input(failing(2, CallFailureKind::RateLimit, Some(SESSION_LIMITS.fallback_retry_after_ms_min + 1)));
    assert_eq!(moves(&harness), to_spare());
}

#[test]
fn fallback_model_is_not_used_if_it_could_do_no_better() {
    for kind in [CallFailureKind::Refused, CallFailureKind::BadRequest] {
        let mut harness = chat();
        harness.send_message("hi").fail_call("speaker", kind);
        assert_eq!((moves(&harness), outcomes(&harness)), (vec![], vec!["failed".to_owned()]), "{kind}");
    }
    let mut harness = chat();
    harness.set_model_window("spare", 1_024);
    harness.send_message(&words(2_000)).fail_call("speaker", CallFailureKind::InvalidApiKey);
    assert_eq!(moves(&harness), [], "the prompt would not fit");
    let mut harness = chat();
    harness.set_fallback_model("speaker", "plain");
    harness.send_message("hi").fail_call("speaker", CallFailureKind::InvalidApiKey);
    assert_eq!(moves(&harness), [], "it is the same");
}

#[test]
fn fallback_model_has_its_own_attempts_and_no_fallback() {
    let mut harness = chat();
    harness.send_message("hi").fail_call("speaker", CallFailureKind::InvalidApiKey);
    for _ in 0..3 {
        harness.fail_call("speaker", CallFailureKind::Network);
        assert_eq!(outcomes(&harness), [""; 0]);
    }
    harness.fail_call("speaker", CallFailureKind::Network);
    assert_eq!((moves(&harness), outcomes(&harness)), (to_spare(), vec!["failed".to_owned()]));
}

#[test]
fn next_turn_starts_with_the_configured_model() {
    let mut harness = chat();
    harness
        .send_message("hi")
        .fail_call("speaker", CallFailureKind::InvalidApiKey)
        .answer_call("speaker", "hello")
        .send_message("still there?");
    let prompt = harness.prompt_for_role("speaker");
    assert_eq!(prompt.model, *"plain");
    assert_eq!(prompt.messages[2].text(), "hello", "and knows what was said");
}

#[test]
fn crash_between_attempts_keeps_the_fallback_model() {
    let mut harness = chat();
    harness.send_message("hi").fail_call("speaker", CallFailureKind::InvalidApiKey).crash_and_recover();
    assert_eq!(harness.prompt_for_role("speaker").model, *"spare");
}

#[test]
fn model_requested_by_the_flow_is_not_replaced() {
    let asks = |_: &FlowContext<'_, ()>, event: &RecordedEvent| match &event.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::Call(CallRequest { model: Some("special".into()), ..CallRequest::new("speaker", "reply") })]
        }
        _ => Vec::new(),
    };
    let mut harness =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(ClosureFlow::speaker_role()), asks));
    harness.set_fallback_model("speaker", "spare");
    harness.send_message("hi").fail_call("speaker", CallFailureKind::InvalidApiKey);
    assert_eq!(moves(&harness), []);
}

#[test]
fn tool_rounds_continue_with_the_fallback_model() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("look"))
        .with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.set_fallback_model("speaker", "spare");
    harness.send_message("hi").fail_call("speaker", CallFailureKind::InvalidApiKey);
    let vendor_state = Some("sealed".to_owned());
    harness.reply_to_call(
        "speaker",
        ModelReply { tool_calls: vec![wants("a", "look")], vendor_state, ..ModelReply::default() },
    );
    harness.finish_tool("look", Ok("blue"));
    let prompt = harness.prompt_for_role("speaker");
    assert_eq!(prompt.model, *"spare");
    assert_eq!(prompt.messages[2].vendor_state.as_deref(), Some("sealed"), "and gets back what it sealed");
}

fn compactions(harness: &SessionHarness) -> Vec<ThreadCompacted> {
    events(harness, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

/// A conversation of ten turns, with the call of the eleventh open.
fn long() -> SessionHarness {
    let mut speaker = brief(ClosureFlow::speaker_role(), 200);
    speaker.compaction.summary_tokens_max = 60;
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    for turn in 0..10 {
        harness.send_message(&format!("question {turn} {}", words(98)));
        harness.answer_call("speaker", &format!("answer {turn} {}", words(98)));
    }
    harness.send_message("and now?");
    harness
}

#[test]
fn prompt_refused_as_too_long_is_shortened_and_retried() {
    let mut harness = long();
    let before = harness.prompt_for_role("speaker").messages.len();
    harness.fail_call("speaker", CallFailureKind::ContextTooLong);
    let [compacted] = &compactions(&harness)[..] else { panic!("once") };
    assert!(compacted.summary_call.is_none() && compacted.tokens_after < compacted.tokens_before * 3 / 4);
    let prompt = harness.prompt_for_role("speaker");
    assert!(prompt.messages.len() < before);
    assert_eq!(prompt.messages.last().map(|message| message.text()).as_deref(), Some("and now?"));
    assert!(prompt.messages[1].text().contains("messages were left out"));
    harness.answer_call("speaker", "now");
    assert_eq!(outcomes(&harness).last().map(String::as_str), Some("done"));
    let tries = events(&harness, |event| match event {
        Event::CallAnswered(answered) if answered.attempt == 2 => Some(answered.call),
        _ => None,
    });
    assert_eq!(tries.len(), 1, "it is the same call");
}

#[test]
fn prompt_as_long_as_a_refused_one_is_not_sent_again() {
    let mut harness = long();
    let refused = harness.session().open_calls.values().next().expect("open").opened.receipt.tokens;
    harness.fail_call("speaker", CallFailureKind::ContextTooLong).answer_call("speaker", "now");
    for turn in 0..20 {
        harness.send_message(&format!("question {turn} {}", words(98)));
        let receipt = &harness.session().open_calls.values().next().expect("open").opened.receipt;
        assert!(
            receipt.tokens < refused && receipt.window_tokens == refused,
            "{} of {}",
            receipt.tokens,
            receipt.window_tokens
        );
        harness.answer_call("speaker", &words(100));
    }
}

#[test]
fn prompt_that_cannot_be_shortened_fails_after_limited_attempts() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.send_message("hi").fail_call("speaker", CallFailureKind::ContextTooLong);
    assert_eq!((compactions(&harness).len(), outcomes(&harness)), (0, vec!["failed".to_owned()]));
    let mut harness = long();
    for _ in 0..10 {
        if harness.session().current_turn.is_none() {
            break;
        }
        harness.fail_call("speaker", CallFailureKind::ContextTooLong);
    }
    assert_eq!(outcomes(&harness).last().map(String::as_str), Some("failed"));
}

#[test]
fn fallback_model_with_a_larger_window_takes_a_prompt_that_cannot_be_shortened() {
    let mut harness = chat();
    harness.send_message("hi").fail_call("speaker", CallFailureKind::ContextTooLong);
    assert_eq!(moves(&harness), to_spare());
    let mut harness = long();
    harness.set_fallback_model("speaker", "spare");
    harness.fail_call("speaker", CallFailureKind::ContextTooLong);
    assert_eq!((moves(&harness), compactions(&harness).len()), (vec![], 1), "what can be shortened is");
}

fn image(data: &str) -> PromptImage {
    PromptImage { media_type: ImageMediaType::Png, data: data.into() }
}

fn showing(text: &str, images: Vec<PromptImage>) -> SessionInput {
    SessionInput::Message { text: text.to_owned(), idempotency_key: None, mid_turn_policy: None, images }
}

#[test]
fn image_stays_with_the_users_message() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.apply_input(showing("what is this?", vec![image("aWk="), image("aWkK")]));
    let prompt = harness.prompt_for_role("speaker");
    assert_eq!(prompt.messages[1].images, [image("aWk="), image("aWkK")]);
    let first = harness.session().open_calls.values().next().expect("open").opened.receipt.clone();
    assert!(first.tokens > 3_200, "it has its price");
    harness.answer_call("speaker", "a dog").send_message("are you sure?");
    let prompt = harness.prompt_for_role("speaker");
    let shown: Vec<(ChatRole, usize)> =
        prompt.messages.iter().map(|message| (message.chat_role, message.images.len())).collect();
    assert_eq!(shown, [(ChatRole::System, 0), (ChatRole::User, 2), (ChatRole::Assistant, 0), (ChatRole::User, 0)]);
    let second = &harness.session().open_calls.values().next().expect("open").opened.receipt;
    assert!(
        matches!(second.prefix, segue_core::context::PreviousPromptComparison::Extends(_)),
        "and the prefix is kept"
    );
    let told: Vec<_> = harness.journal().iter().flat_map(|recorded| recorded.event.referenced_bodies()).collect();
    let image = segue_core::body::BodyId::hash_text("aWk=");
    assert!(told.iter().any(|(id, _)| *id == image), "an export takes it along");
}

#[test]
fn two_prompts_that_differ_in_an_image_differ() {
    let digest = |images| {
        let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
        harness.apply_input(showing("what is this?", images));
        harness.session().open_calls.values().next().expect("open").opened.receipt.digest
    };
    let digests = [digest(vec![]), digest(vec![image("aWk=")]), digest(vec![image("aWkK")])];
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
}

#[test]
fn invalid_or_too_many_images_are_refused() {
    let refusal = |images| {
        let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
        harness.try_input(showing("look", images)).map(|_| ()).expect_err("refused")
    };
    let many = vec![image("aWk="); SESSION_LIMITS.images_per_message_max + 1];
    assert!(matches!(refusal(many), InputRefusal::TooManyImages { count: 9, most: 8 }));
    for nonsense in ["", "==", "a b", "é"] {
        assert_eq!(
            refusal(vec![image("aWk="), image(nonsense)]),
            InputRefusal::InvalidImage { number: 2 },
            "{nonsense}"
        );
    }
    let big = "a".repeat(SESSION_LIMITS.image_bytes_max / 3 * 4 + 8);
    assert!(matches!(refusal(vec![image(&big)]), InputRefusal::ImageTooBig { number: 1, .. }));
}

#[test]
fn vendor_state_is_dropped_if_earlier_messages_change() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("look"))
        .with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.send_message(&words(300)).answer_call("speaker", &words(300)).send_message("look");
    let vendor_state = Some("sealed".to_owned());
    harness.reply_to_call(
        "speaker",
        ModelReply { tool_calls: vec![wants("a", "look")], vendor_state, ..ModelReply::default() },
    );
    harness.finish_tool("look", Ok("blue"));
    let sealed = |harness: &SessionHarness| {
        harness.prompt_for_role("speaker").messages.iter().filter(|said| said.vendor_state.is_some()).count()
    };
    assert_eq!(sealed(&harness), 1);
    harness.fail_call("speaker", CallFailureKind::ContextTooLong);
    assert_eq!(compactions(&harness).len(), 1);
    assert_eq!(sealed(&harness), 0, "the words before it have changed");
}

#[test]
fn backoff_starts_again_with_the_fallback_model() {
    let mut harness = chat();
    harness.set_retry_random(0);
    harness.send_message("hi");
    for _ in 0..6 {
        harness.fail_call("speaker", CallFailureKind::Overload);
    }
    let waits: Vec<u64> = harness
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallFailed { next: RetryDecision::Retry { at }, .. } => Some(at.ms_since(recorded.at)),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [250, 500, 1_000, 0, 250, 500]);
}

#[test]
fn model_overrides_of_a_session_replace_the_configuration() {
    let opened = SessionOpened {
        flow_definition: None,
        format: codec::EVENT_FORMAT,
        session: "s".into(),
        flow: "puppet".into(),
        title: None,
        mid_turn_policy: MidTurnPolicy::Queue,
        settings: serde_json::Value::Null,
        model_overrides: [("speaker".into(), "guest".into())].into(),
        child_origin: None,
    };
    let mut harness = SessionHarness::open_session(ClosureFlow::single_speaker(ClosureFlow::speaker_role()), opened);
    harness.assign_model("speaker", "house");
    harness.send_message("hi");
    assert_eq!(harness.prompt_for_role("speaker").model, *"guest");
    harness.answer_call("speaker", "hello").crash_and_recover().send_message("still you?");
    assert_eq!(harness.prompt_for_role("speaker").model, *"guest", "it is in the journal");
}

#[test]
fn unusable_answer_is_not_retried() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.send_message("hi").fail_call("speaker", CallFailureKind::UnusableReply);
    assert_eq!(outcomes(&harness), ["failed"]);
}

#[test]
fn answer_length_is_limited_to_the_planned_one() {
    for (window, asked, expected) in [(8_192, 4_096, 2_048), (100_000, 4_096, 4_096), (8_192, 100, 100)] {
        let mut harness = SessionHarness::open(ClosureFlow::single_speaker(brief(ClosureFlow::speaker_role(), asked)));
        harness.set_model_window("plain", window);
        harness.send_message("hi");
        assert_eq!(harness.prompt_for_role("speaker").reply_tokens_max, expected, "{asked} in {window}");
    }
}
