//! What only real vendors bring about: another model steps in, a prompt is too long for them, images, and seals.

use segue_core::codec;
use segue_core::decide::{InputRefusal, SessionInput};
use segue_core::event::{
    CallRequest, Event, MidTurnPolicy, RecordedEvent, RetryDecision, SessionOpened, ThreadCompacted,
};
use segue_core::flow::{FlowContext, FlowStep, ToolRunner};
use segue_core::ids::CallId;
use segue_core::limits::{FALLBACK_RETRY_AFTER_MS_MIN, IMAGE_BYTES_MAX, IMAGES_PER_MESSAGE_MAX};
use segue_core::prompt::{CallFailure, ChatRole, FailureKind, ImageMediaType, ModelReply, PromptImage};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{brief, events, outcomes, tool, wants, words};

fn chat() -> SessionHarness {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage.set_fallback_model("speaker", "spare");
    stage
}

fn moves(stage: &SessionHarness) -> Vec<(String, String)> {
    events(stage, |event| match event {
        Event::CallFailedOver { from, to, .. } => Some((from.to_string(), to.to_string())),
        _ => None,
    })
}

fn to_spare() -> Vec<(String, String)> {
    vec![("plain".to_owned(), "spare".to_owned())]
}

fn failing(attempt: u32, kind: FailureKind, retry_after_ms: Option<u64>) -> SessionInput {
    let failure = CallFailure { retry_after_ms, ..CallFailure::new(kind, "no") };
    SessionInput::CallFailure { call: CallId(1), attempt, failure }
}

#[test]
fn another_model_steps_in_when_the_roles_own_has_no_tries_left() {
    let mut stage = chat();
    stage.send_message("hi");
    for _ in 0..3 {
        stage.fail_call("speaker", FailureKind::Overload);
        assert_eq!(moves(&stage), []);
    }
    stage.fail_call("speaker", FailureKind::Overload);
    assert_eq!(moves(&stage), to_spare());
    assert_eq!(stage.prompt_for_role("speaker").model, *"spare", "the same call, to another");
    stage.answer_call("speaker", "hello");
    assert_eq!(outcomes(&stage), ["done"]);
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.by_model["plain"].failed_attempts, ledger.by_model["plain"].answered_calls), (4, 0));
    assert_eq!((ledger.by_model["spare"].failed_attempts, ledger.by_model["spare"].answered_calls), (0, 1));
}

#[test]
fn it_steps_in_at_once_where_waiting_would_not_help_or_last() {
    for kind in [FailureKind::InvalidApiKey, FailureKind::ModelNotFound, FailureKind::UnusableReply] {
        let mut stage = chat();
        stage.send_message("hi").fail_call("speaker", kind);
        assert_eq!(moves(&stage), to_spare(), "{kind}");
    }
    let mut stage = chat();
    stage.send_message("hi").apply_input(failing(1, FailureKind::RateLimit, Some(FALLBACK_RETRY_AFTER_MS_MIN)));
    assert_eq!(moves(&stage), [], "a short wait is waited for");
    stage.apply_input(failing(2, FailureKind::RateLimit, Some(FALLBACK_RETRY_AFTER_MS_MIN + 1)));
    assert_eq!(moves(&stage), to_spare());
}

#[test]
fn it_does_not_step_in_where_it_could_do_no_better() {
    for kind in [FailureKind::Refused, FailureKind::BadRequest] {
        let mut stage = chat();
        stage.send_message("hi").fail_call("speaker", kind);
        assert_eq!((moves(&stage), outcomes(&stage)), (vec![], vec!["failed".to_owned()]), "{kind}");
    }
    let mut stage = chat();
    stage.set_model_window("spare", 1_024);
    stage.send_message(&words(2_000)).fail_call("speaker", FailureKind::InvalidApiKey);
    assert_eq!(moves(&stage), [], "the prompt would not fit");
    let mut stage = chat();
    stage.set_fallback_model("speaker", "plain");
    stage.send_message("hi").fail_call("speaker", FailureKind::InvalidApiKey);
    assert_eq!(moves(&stage), [], "it is the same");
}

#[test]
fn it_has_its_own_tries_and_nobody_steps_in_for_it() {
    let mut stage = chat();
    stage.send_message("hi").fail_call("speaker", FailureKind::InvalidApiKey);
    for _ in 0..3 {
        stage.fail_call("speaker", FailureKind::Network);
        assert_eq!(outcomes(&stage), [""; 0]);
    }
    stage.fail_call("speaker", FailureKind::Network);
    assert_eq!((moves(&stage), outcomes(&stage)), (to_spare(), vec!["failed".to_owned()]));
}

#[test]
fn the_next_turn_begins_with_the_roles_own_model_again() {
    let mut stage = chat();
    stage
        .send_message("hi")
        .fail_call("speaker", FailureKind::InvalidApiKey)
        .answer_call("speaker", "hello")
        .send_message("still there?");
    let prompt = stage.prompt_for_role("speaker");
    assert_eq!(prompt.model, *"plain");
    assert_eq!(prompt.messages[2].text(), "hello", "and knows what was said");
}

#[test]
fn a_crash_between_the_tries_does_not_bring_the_first_model_back() {
    let mut stage = chat();
    stage.send_message("hi").fail_call("speaker", FailureKind::InvalidApiKey).crash_and_recover();
    assert_eq!(stage.prompt_for_role("speaker").model, *"spare");
}

#[test]
fn a_model_the_flow_asked_for_is_not_exchanged_behind_its_back() {
    let asks = |_: &FlowContext<'_, ()>, event: &RecordedEvent| match &event.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::Call(CallRequest::new("speaker", "reply").with_model(&"special".into()))]
        }
        _ => Vec::new(),
    };
    let mut stage =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(ClosureFlow::speaker_role()), asks));
    stage.set_fallback_model("speaker", "spare");
    stage.send_message("hi").fail_call("speaker", FailureKind::InvalidApiKey);
    assert_eq!(moves(&stage), []);
}

#[test]
fn tools_go_on_with_the_model_that_stepped_in() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("look"))
        .with_tool(tool("look", ToolRunner::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    stage.set_fallback_model("speaker", "spare");
    stage.send_message("hi").fail_call("speaker", FailureKind::InvalidApiKey);
    let seal = Some("sealed".to_owned());
    stage.reply_to_call(
        "speaker",
        ModelReply { tool_calls: vec![wants("a", "look")], vendor_state: seal, ..ModelReply::default() },
    );
    stage.finish_tool("look", Ok("blue"));
    let prompt = stage.prompt_for_role("speaker");
    assert_eq!(prompt.model, *"spare");
    assert_eq!(prompt.messages[2].vendor_state.as_deref(), Some("sealed"), "and gets back what it sealed");
}

fn compactions(stage: &SessionHarness) -> Vec<ThreadCompacted> {
    events(stage, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

/// A conversation of ten turns, and the eleventh is asked.
fn long() -> SessionHarness {
    let mut speaker = brief(ClosureFlow::speaker_role(), 200);
    speaker.compaction.summary_tokens_max = 60;
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    for turn in 0..10 {
        stage.send_message(&format!("question {turn} {}", words(98)));
        stage.answer_call("speaker", &format!("answer {turn} {}", words(98)));
    }
    stage.send_message("and now?");
    stage
}

#[test]
fn a_prompt_the_vendor_finds_too_long_is_shortened_and_tried_again() {
    let mut stage = long();
    let before = stage.prompt_for_role("speaker").messages.len();
    stage.fail_call("speaker", FailureKind::ContextTooLong);
    let [compacted] = &compactions(&stage)[..] else { panic!("once") };
    assert!(compacted.summary_call.is_none() && compacted.tokens_after < compacted.tokens_before * 3 / 4);
    let prompt = stage.prompt_for_role("speaker");
    assert!(prompt.messages.len() < before);
    assert_eq!(prompt.messages.last().map(|message| message.text()).as_deref(), Some("and now?"));
    assert!(prompt.messages[1].text().contains("messages were left out"));
    stage.answer_call("speaker", "now");
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("done"));
    let tries = events(&stage, |event| match event {
        Event::CallAnswered(answered) if answered.attempt == 2 => Some(answered.call),
        _ => None,
    });
    assert_eq!(tries.len(), 1, "it is the same call");
}

#[test]
fn what_a_model_refused_once_is_not_tried_again() {
    let mut stage = long();
    let refused = stage.session().open_calls.values().next().expect("open").opened.receipt.tokens;
    stage.fail_call("speaker", FailureKind::ContextTooLong).answer_call("speaker", "now");
    for turn in 0..20 {
        stage.send_message(&format!("question {turn} {}", words(98)));
        let receipt = &stage.session().open_calls.values().next().expect("open").opened.receipt;
        assert!(
            receipt.tokens < refused && receipt.window_tokens == refused,
            "{} of {}",
            receipt.tokens,
            receipt.window_tokens
        );
        stage.answer_call("speaker", &words(100));
    }
}

#[test]
fn a_prompt_that_cannot_be_shortened_is_given_up_after_a_bounded_time() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage.send_message("hi").fail_call("speaker", FailureKind::ContextTooLong);
    assert_eq!((compactions(&stage).len(), outcomes(&stage)), (0, vec!["failed".to_owned()]));
    let mut stage = long();
    for _ in 0..10 {
        if stage.session().current_turn.is_none() {
            break;
        }
        stage.fail_call("speaker", FailureKind::ContextTooLong);
    }
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("failed"));
}

#[test]
fn a_model_with_more_room_steps_in_where_nothing_can_be_shortened() {
    let mut stage = chat();
    stage.send_message("hi").fail_call("speaker", FailureKind::ContextTooLong);
    assert_eq!(moves(&stage), to_spare());
    let mut stage = long();
    stage.set_fallback_model("speaker", "spare");
    stage.fail_call("speaker", FailureKind::ContextTooLong);
    assert_eq!((moves(&stage), compactions(&stage).len()), (vec![], 1), "what can be shortened is");
}

fn image(data: &str) -> PromptImage {
    PromptImage { media_type: ImageMediaType::Png, data: data.into() }
}

fn showing(text: &str, images: Vec<PromptImage>) -> SessionInput {
    SessionInput::Message { text: text.to_owned(), idempotency_key: None, mid_turn_policy: None, images }
}

#[test]
fn an_image_goes_where_the_users_words_go_and_stays_there() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage.apply_input(showing("what is this?", vec![image("aWk="), image("aWkK")]));
    let prompt = stage.prompt_for_role("speaker");
    assert_eq!(prompt.messages[1].images, [image("aWk="), image("aWkK")]);
    let first = stage.session().open_calls.values().next().expect("open").opened.receipt.clone();
    assert!(first.tokens > 3_200, "it has its price");
    stage.answer_call("speaker", "a dog").send_message("are you sure?");
    let prompt = stage.prompt_for_role("speaker");
    let shown: Vec<(ChatRole, usize)> =
        prompt.messages.iter().map(|message| (message.chat_role, message.images.len())).collect();
    assert_eq!(shown, [(ChatRole::System, 0), (ChatRole::User, 2), (ChatRole::Assistant, 0), (ChatRole::User, 0)]);
    let second = &stage.session().open_calls.values().next().expect("open").opened.receipt;
    assert!(matches!(second.prefix, segue_core::context::PrefixMatch::Extends(_)), "and the prefix stands");
    let told: Vec<_> = stage.journal().iter().flat_map(|recorded| recorded.event.referenced_bodies()).collect();
    let image = segue_core::body::BodyId::hash_text("aWk=");
    assert!(told.iter().any(|(id, _)| *id == image), "an export takes it along");
}

#[test]
fn two_prompts_that_differ_in_an_image_differ() {
    let digest = |images| {
        let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
        stage.apply_input(showing("what is this?", images));
        stage.session().open_calls.values().next().expect("open").opened.receipt.digest
    };
    let digests = [digest(vec![]), digest(vec![image("aWk=")]), digest(vec![image("aWkK")])];
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
}

#[test]
fn images_that_are_none_or_too_much_are_refused() {
    let refusal = |images| {
        let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
        stage.try_input(showing("look", images)).map(|_| ()).expect_err("refused")
    };
    let many = vec![image("aWk="); IMAGES_PER_MESSAGE_MAX + 1];
    assert!(matches!(refusal(many), InputRefusal::TooManyImages { count: 9, most: 8 }));
    for nonsense in ["", "==", "a b", "é"] {
        assert_eq!(
            refusal(vec![image("aWk="), image(nonsense)]),
            InputRefusal::InvalidImage { number: 2 },
            "{nonsense}"
        );
    }
    let big = "a".repeat(IMAGE_BYTES_MAX / 3 * 4 + 8);
    assert!(matches!(refusal(vec![image(&big)]), InputRefusal::ImageTooBig { number: 1, .. }));
}

#[test]
fn a_seal_holds_only_for_the_words_it_was_made_for() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("look"))
        .with_tool(tool("look", ToolRunner::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    stage.send_message(&words(300)).answer_call("speaker", &words(300)).send_message("look");
    let seal = Some("sealed".to_owned());
    stage.reply_to_call(
        "speaker",
        ModelReply { tool_calls: vec![wants("a", "look")], vendor_state: seal, ..ModelReply::default() },
    );
    stage.finish_tool("look", Ok("blue"));
    let sealed = |stage: &SessionHarness| {
        stage.prompt_for_role("speaker").messages.iter().filter(|said| said.vendor_state.is_some()).count()
    };
    assert_eq!(sealed(&stage), 1);
    stage.fail_call("speaker", FailureKind::ContextTooLong);
    assert_eq!(compactions(&stage).len(), 1);
    assert_eq!(sealed(&stage), 0, "the words before it have changed");
}

#[test]
fn the_wait_before_each_try_of_the_second_model_begins_anew() {
    let mut stage = chat();
    stage.set_random(0);
    stage.send_message("hi");
    for _ in 0..6 {
        stage.fail_call("speaker", FailureKind::Overload);
    }
    let waits: Vec<u64> = stage
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
fn a_session_with_a_cast_of_its_own_is_played_by_it_whatever_is_configured() {
    let opened = SessionOpened {
        format: codec::EVENT_FORMAT,
        session: "s".into(),
        flow: "puppet".into(),
        title: None,
        mid_turn_policy: MidTurnPolicy::Queue,
        settings: serde_json::Value::Null,
        model_overrides: [("speaker".into(), "guest".into())].into(),
    };
    let mut stage = SessionHarness::open_session(ClosureFlow::single_speaker(ClosureFlow::speaker_role()), opened);
    stage.assign_model("speaker", "house");
    stage.send_message("hi");
    assert_eq!(stage.prompt_for_role("speaker").model, *"guest");
    stage.answer_call("speaker", "hello").crash_and_recover().send_message("still you?");
    assert_eq!(stage.prompt_for_role("speaker").model, *"guest", "it stands in the journal");
}

#[test]
fn an_answer_of_no_use_is_not_asked_for_again() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage.send_message("hi").fail_call("speaker", FailureKind::UnusableReply);
    assert_eq!(outcomes(&stage), ["failed"]);
}

#[test]
fn a_model_is_asked_for_no_longer_an_answer_than_was_planned_for_it() {
    for (window, asked, expected) in [(8_192, 4_096, 2_048), (100_000, 4_096, 4_096), (8_192, 100, 100)] {
        let mut stage = SessionHarness::open(ClosureFlow::single_speaker(brief(ClosureFlow::speaker_role(), asked)));
        stage.set_model_window("plain", window);
        stage.send_message("hi");
        assert_eq!(stage.prompt_for_role("speaker").reply_tokens_max, expected, "{asked} in {window}");
    }
}
