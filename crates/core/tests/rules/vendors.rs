//! What only real vendors bring about: another model steps in, a prompt is too long for them, images, and seals.

use segue_core::codec;
use segue_core::decide::{Input, Refusal};
use segue_core::event::{Busy, CallWish, Event, Next, Recorded, SessionOpened, ThreadCompacted};
use segue_core::flow::{Runs, Step, View};
use segue_core::ids::CallId;
use segue_core::limits::{IMAGE_BYTES_MAX, IMAGES_PER_MESSAGE_MAX, STEP_IN_MS_MIN};
use segue_core::prompt::{Failure, FailureKind, Image, Media, Reply, Speaker};
use segue_testkit::{Puppet, Stage};

use super::{brief, events, outcomes, tool, wants, words};

fn chat() -> Stage {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.fallback("speaker", "spare");
    stage
}

fn moves(stage: &Stage) -> Vec<(String, String)> {
    events(stage, |event| match event {
        Event::CallMoved { from, to, .. } => Some((from.to_string(), to.to_string())),
        _ => None,
    })
}

fn to_spare() -> Vec<(String, String)> {
    vec![("plain".to_owned(), "spare".to_owned())]
}

fn failing(attempt: u32, kind: FailureKind, retry_after_ms: Option<u64>) -> Input {
    let failure = Failure { retry_after_ms, ..Failure::new(kind, "no") };
    Input::Failure { call: CallId(1), attempt, failure }
}

#[test]
fn another_model_steps_in_when_the_roles_own_has_no_tries_left() {
    let mut stage = chat();
    stage.say("hi");
    for _ in 0..3 {
        stage.fail("speaker", FailureKind::Overload);
        assert_eq!(moves(&stage), []);
    }
    stage.fail("speaker", FailureKind::Overload);
    assert_eq!(moves(&stage), to_spare());
    assert_eq!(stage.prompt("speaker").model, *"spare", "the same call, to another");
    stage.answer("speaker", "hello");
    assert_eq!(outcomes(&stage), ["done"]);
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.models["plain"].failed, ledger.models["plain"].answered), (4, 0));
    assert_eq!((ledger.models["spare"].failed, ledger.models["spare"].answered), (0, 1));
}

#[test]
fn it_steps_in_at_once_where_waiting_would_not_help_or_last() {
    for kind in [FailureKind::BadKey, FailureKind::NoSuchModel, FailureKind::Unusable] {
        let mut stage = chat();
        stage.say("hi").fail("speaker", kind);
        assert_eq!(moves(&stage), to_spare(), "{kind}");
    }
    let mut stage = chat();
    stage.say("hi").give(failing(1, FailureKind::RateLimit, Some(STEP_IN_MS_MIN)));
    assert_eq!(moves(&stage), [], "a short wait is waited for");
    stage.give(failing(2, FailureKind::RateLimit, Some(STEP_IN_MS_MIN + 1)));
    assert_eq!(moves(&stage), to_spare());
}

#[test]
fn it_does_not_step_in_where_it_could_do_no_better() {
    for kind in [FailureKind::Refused, FailureKind::BadRequest] {
        let mut stage = chat();
        stage.say("hi").fail("speaker", kind);
        assert_eq!((moves(&stage), outcomes(&stage)), (vec![], vec!["failed".to_owned()]), "{kind}");
    }
    let mut stage = chat();
    stage.window_of("spare", 1_024);
    stage.say(&words(2_000)).fail("speaker", FailureKind::BadKey);
    assert_eq!(moves(&stage), [], "the prompt would not fit");
    let mut stage = chat();
    stage.fallback("speaker", "plain");
    stage.say("hi").fail("speaker", FailureKind::BadKey);
    assert_eq!(moves(&stage), [], "it is the same");
}

#[test]
fn it_has_its_own_tries_and_nobody_steps_in_for_it() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::BadKey);
    for _ in 0..3 {
        stage.fail("speaker", FailureKind::Network);
        assert_eq!(outcomes(&stage), [""; 0]);
    }
    stage.fail("speaker", FailureKind::Network);
    assert_eq!((moves(&stage), outcomes(&stage)), (to_spare(), vec!["failed".to_owned()]));
}

#[test]
fn the_next_turn_begins_with_the_roles_own_model_again() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::BadKey).answer("speaker", "hello").say("still there?");
    let prompt = stage.prompt("speaker");
    assert_eq!(prompt.model, *"plain");
    assert_eq!(prompt.messages[2].text(), "hello", "and knows what was said");
}

#[test]
fn a_crash_between_the_tries_does_not_bring_the_first_model_back() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::BadKey).crash();
    assert_eq!(stage.prompt("speaker").model, *"spare");
}

#[test]
fn a_model_the_flow_asked_for_is_not_exchanged_behind_its_back() {
    let asks = |_: &View<'_, ()>, event: &Recorded| match &event.event {
        Event::TurnStarted { .. } => vec![Step::Call(CallWish::new("speaker", "reply").on(&"special".into()))],
        _ => Vec::new(),
    };
    let mut stage = Stage::open(Puppet::new(Puppet::spec_of(Puppet::speaker()), asks));
    stage.fallback("speaker", "spare");
    stage.say("hi").fail("speaker", FailureKind::BadKey);
    assert_eq!(moves(&stage), []);
}

#[test]
fn tools_go_on_with_the_model_that_stepped_in() {
    let spec = Puppet::spec_of(Puppet::speaker().may_use("look")).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, Puppet::chats));
    stage.fallback("speaker", "spare");
    stage.say("hi").fail("speaker", FailureKind::BadKey);
    let seal = Some("sealed".to_owned());
    stage.reply("speaker", Reply { tool_calls: vec![wants("a", "look")], seal, ..Reply::default() });
    stage.tool("look", Ok("blue"));
    let prompt = stage.prompt("speaker");
    assert_eq!(prompt.model, *"spare");
    assert_eq!(prompt.messages[2].seal.as_deref(), Some("sealed"), "and gets back what it sealed");
}

fn compactions(stage: &Stage) -> Vec<ThreadCompacted> {
    events(stage, |event| match event {
        Event::ThreadCompacted(compacted) => Some((**compacted).clone()),
        _ => None,
    })
}

/// A conversation of ten turns, and the eleventh is asked.
fn long() -> Stage {
    let mut speaker = brief(Puppet::speaker(), 200);
    speaker.compaction.tokens_max = 60;
    let mut stage = Stage::open(Puppet::chat(speaker));
    for turn in 0..10 {
        stage.say(&format!("question {turn} {}", words(98)));
        stage.answer("speaker", &format!("answer {turn} {}", words(98)));
    }
    stage.say("and now?");
    stage
}

#[test]
fn a_prompt_the_vendor_finds_too_long_is_shortened_and_tried_again() {
    let mut stage = long();
    let before = stage.prompt("speaker").messages.len();
    stage.fail("speaker", FailureKind::ContextTooLong);
    let [compacted] = &compactions(&stage)[..] else { panic!("once") };
    assert!(compacted.by.is_none() && compacted.tokens_after < compacted.tokens_before * 3 / 4);
    let prompt = stage.prompt("speaker");
    assert!(prompt.messages.len() < before);
    assert_eq!(prompt.messages.last().map(|message| message.text()).as_deref(), Some("and now?"));
    assert!(prompt.messages[1].text().contains("messages were left out"));
    stage.answer("speaker", "now");
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
    let refused = stage.session().calls.values().next().expect("open").opened.receipt.tokens;
    stage.fail("speaker", FailureKind::ContextTooLong).answer("speaker", "now");
    for turn in 0..20 {
        stage.say(&format!("question {turn} {}", words(98)));
        let receipt = &stage.session().calls.values().next().expect("open").opened.receipt;
        assert!(receipt.tokens < refused && receipt.window == refused, "{} of {}", receipt.tokens, receipt.window);
        stage.answer("speaker", &words(100));
    }
}

#[test]
fn a_prompt_that_cannot_be_shortened_is_given_up_after_a_bounded_time() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("hi").fail("speaker", FailureKind::ContextTooLong);
    assert_eq!((compactions(&stage).len(), outcomes(&stage)), (0, vec!["failed".to_owned()]));
    let mut stage = long();
    for _ in 0..10 {
        if stage.session().turn.is_none() {
            break;
        }
        stage.fail("speaker", FailureKind::ContextTooLong);
    }
    assert_eq!(outcomes(&stage).last().map(String::as_str), Some("failed"));
}

#[test]
fn a_model_with_more_room_steps_in_where_nothing_can_be_shortened() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::ContextTooLong);
    assert_eq!(moves(&stage), to_spare());
    let mut stage = long();
    stage.fallback("speaker", "spare");
    stage.fail("speaker", FailureKind::ContextTooLong);
    assert_eq!((moves(&stage), compactions(&stage).len()), (vec![], 1), "what can be shortened is");
}

fn image(data: &str) -> Image {
    Image { media: Media::Png, data: data.into() }
}

fn showing(text: &str, images: Vec<Image>) -> Input {
    Input::Message { text: text.to_owned(), key: None, busy: None, images }
}

#[test]
fn an_image_goes_where_the_users_words_go_and_stays_there() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.give(showing("what is this?", vec![image("aWk="), image("aWkK")]));
    let prompt = stage.prompt("speaker");
    assert_eq!(prompt.messages[1].images, [image("aWk="), image("aWkK")]);
    let first = stage.session().calls.values().next().expect("open").opened.receipt.clone();
    assert!(first.tokens > 3_200, "it has its price");
    stage.answer("speaker", "a dog").say("are you sure?");
    let prompt = stage.prompt("speaker");
    let shown: Vec<(Speaker, usize)> =
        prompt.messages.iter().map(|message| (message.speaker, message.images.len())).collect();
    assert_eq!(shown, [(Speaker::System, 0), (Speaker::User, 2), (Speaker::Assistant, 0), (Speaker::User, 0)]);
    let second = &stage.session().calls.values().next().expect("open").opened.receipt;
    assert!(matches!(second.prefix, segue_core::context::Prefix::Extends(_)), "and the prefix stands");
    let told: Vec<_> = stage.journal().iter().flat_map(|recorded| recorded.event.bodies()).collect();
    let image = segue_core::body::BodyId::of("aWk=");
    assert!(told.iter().any(|(id, _)| *id == image), "an export takes it along");
}

#[test]
fn two_prompts_that_differ_in_an_image_differ() {
    let digest = |images| {
        let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
        stage.give(showing("what is this?", images));
        stage.session().calls.values().next().expect("open").opened.receipt.digest
    };
    let digests = [digest(vec![]), digest(vec![image("aWk=")]), digest(vec![image("aWkK")])];
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
}

#[test]
fn images_that_are_none_or_too_much_are_refused() {
    let refusal = |images| {
        let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
        stage.try_give(showing("look", images)).map(|_| ()).expect_err("refused")
    };
    let many = vec![image("aWk="); IMAGES_PER_MESSAGE_MAX + 1];
    assert!(matches!(refusal(many), Refusal::TooManyImages { count: 9, most: 8 }));
    for nonsense in ["", "==", "a b", "é"] {
        assert_eq!(refusal(vec![image("aWk="), image(nonsense)]), Refusal::NoImage { place: 2 }, "{nonsense}");
    }
    let big = "a".repeat(IMAGE_BYTES_MAX / 3 * 4 + 8);
    assert!(matches!(refusal(vec![image(&big)]), Refusal::ImageTooBig { place: 1, .. }));
}

#[test]
fn a_seal_holds_only_for_the_words_it_was_made_for() {
    let spec = Puppet::spec_of(Puppet::speaker().may_use("look")).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, Puppet::chats));
    stage.say(&words(300)).answer("speaker", &words(300)).say("look");
    let seal = Some("sealed".to_owned());
    stage.reply("speaker", Reply { tool_calls: vec![wants("a", "look")], seal, ..Reply::default() });
    stage.tool("look", Ok("blue"));
    let sealed = |stage: &Stage| stage.prompt("speaker").messages.iter().filter(|said| said.seal.is_some()).count();
    assert_eq!(sealed(&stage), 1);
    stage.fail("speaker", FailureKind::ContextTooLong);
    assert_eq!(compactions(&stage).len(), 1);
    assert_eq!(sealed(&stage), 0, "the words before it have changed");
}

#[test]
fn the_wait_before_each_try_of_the_second_model_begins_anew() {
    let mut stage = chat();
    stage.chance(0);
    stage.say("hi");
    for _ in 0..6 {
        stage.fail("speaker", FailureKind::Overload);
    }
    let waits: Vec<u64> = stage
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallFailed { next: Next::Retry { at }, .. } => Some(at.since(recorded.at)),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [250, 500, 1_000, 0, 250, 500]);
}

#[test]
fn a_session_with_a_cast_of_its_own_is_played_by_it_whatever_is_configured() {
    let opened = SessionOpened {
        format: codec::FORMAT,
        session: "s".into(),
        flow: "puppet".into(),
        title: None,
        busy: Busy::Queue,
        settings: serde_json::Value::Null,
        cast: [("speaker".into(), "guest".into())].into(),
    };
    let mut stage = Stage::open_as(Puppet::chat(Puppet::speaker()), opened);
    stage.cast("speaker", "house");
    stage.say("hi");
    assert_eq!(stage.prompt("speaker").model, *"guest");
    stage.answer("speaker", "hello").crash().say("still you?");
    assert_eq!(stage.prompt("speaker").model, *"guest", "it stands in the journal");
}

#[test]
fn an_answer_of_no_use_is_not_asked_for_again() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("hi").fail("speaker", FailureKind::Unusable);
    assert_eq!(outcomes(&stage), ["failed"]);
}

#[test]
fn a_model_is_asked_for_no_longer_an_answer_than_was_planned_for_it() {
    for (window, asked, expected) in [(8_192, 4_096, 2_048), (100_000, 4_096, 4_096), (8_192, 100, 100)] {
        let mut stage = Stage::open(Puppet::chat(brief(Puppet::speaker(), asked)));
        stage.window_of("plain", window);
        stage.say("hi");
        assert_eq!(stage.prompt("speaker").reply_tokens_max, expected, "{asked} in {window}");
    }
}
