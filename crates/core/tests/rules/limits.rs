//! Everything that grows has a limit, and what goes beyond it is refused by name.

use segue_core::decide::Input;
use segue_core::event::{Event, Lane, Outcome};
use segue_core::flow::Step;
use segue_core::limits::{
    DEFERRED_CALLS_MAX, FACT_BYTES_MAX, FAILURE_BYTES_MAX, GIVEN_UP_MAX, HANDOVERS_KEPT_MAX, INBOX_MESSAGES_MAX,
    MARKS_MAX, OPEN_CALLS_MAX, REPLY_BYTES_MAX, THREADS_MAX, TIMERS_MAX, TOOL_ARGUMENTS_BYTES_MAX,
};
use segue_core::prompt::{Failure, FailureKind, Reply, ToolCall};
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{outcomes, refused_steps, tool, wants};
use segue_core::event::CallWish;
use segue_core::flow::Runs;
use segue_core::handover::{FieldSpec, Form, Need, Provenance, Schema};

fn once(steps: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Stage {
    let spec = Puppet::spec_of(Puppet::speaker())
        .role(Puppet::role("expert", Scope::peer()))
        .handover(Schema { kind: "intent".into(), fields: Vec::new(), repairs_max: 0 })
        .tool(tool("look", Runs::Host));
    Stage::open(Puppet::new(spec, move |_, event| match &event.event {
        Event::TurnStarted { .. } => steps(),
        _ => Vec::new(),
    }))
}

fn ask(peer: usize) -> Step {
    Step::Call(CallWish::new("expert", "note").with(&format!("p{peer:04}").into()).note(json!("hi")))
}

#[test]
fn no_more_calls_are_open_at_once_than_the_limit() {
    let mut stage = once(|| (0..OPEN_CALLS_MAX + 2).map(ask).collect());
    stage.say("go");
    assert_eq!(stage.session().calls.len(), OPEN_CALLS_MAX);
    assert_eq!(refused_steps(&stage).len(), 2);
}

#[test]
fn no_more_calls_wait_than_the_limit() {
    let mut stage = once(|| (0..DEFERRED_CALLS_MAX + 3).map(|_| super::note("speaker", "hi")).collect());
    stage.say("go");
    assert_eq!(stage.session().deferred.len(), DEFERRED_CALLS_MAX);
    assert_eq!(refused_steps(&stage).len(), 2);
}

#[test]
fn timers_inboxes_and_facts_are_bounded() {
    let post = || Step::Post {
        from: "a".into(),
        to: "b".into(),
        lane: Lane::Ordinary,
        topic: "t".into(),
        text: "x".into(),
        answers: None,
    };
    let mut stage = once(move || {
        let timers = (0..=TIMERS_MAX).map(|n| Step::SetTimer { name: n.to_string(), after_ms: 1_000 });
        let renewed = Step::SetTimer { name: "0".into(), after_ms: 2_000 };
        let posts = (0..=INBOX_MESSAGES_MAX).map(|_| post());
        let fact = Step::Note { kind: "big".into(), value: json!("x".repeat(FACT_BYTES_MAX)) };
        timers.chain([renewed]).chain(posts).chain([fact, Step::EndTurn(Outcome::Done)]).collect()
    });
    stage.say("go");
    let refused = refused_steps(&stage);
    assert_eq!(refused.len(), 3, "{refused:#?}");
    assert!(refused[0].starts_with("timer `128`: 128 timers run already"));
    assert!(refused[1].starts_with("message from `a` to `b`: 256 messages wait there already"));
    assert!(refused[2].starts_with("fact `big`: it has 1048578 bytes"));
}

#[test]
fn old_threads_marks_and_given_up_calls_are_forgotten_first() {
    let threads = std::sync::atomic::AtomicUsize::new(0);
    let mut stage = once(move || vec![ask(threads.fetch_add(1, std::sync::atomic::Ordering::Relaxed))]);
    // Straight into the fold: a stage that checks everything after each of a thousand turns would take its time.
    stage.unchecked(|stage| {
        for turn in 0..THREADS_MAX + 8 {
            stage.say("go");
            if turn < GIVEN_UP_MAX + 3 {
                stage.fail("expert", FailureKind::Refused);
            } else {
                stage.answer("expert", "hello");
            }
        }
    });
    let session = stage.session();
    assert_eq!((session.threads.len(), session.slots.len()), (THREADS_MAX, THREADS_MAX));
    assert_eq!((session.marks.len(), session.given_up.len()), (MARKS_MAX, GIVEN_UP_MAX));
    let newest = session.marks.values().map(|mark| mark.call.0).min();
    assert_eq!(newest, Some(9), "the oldest went first, whatever its name");
    assert_eq!(outcomes(&stage).len(), THREADS_MAX + 8);
}

#[test]
fn handovers_are_remembered_up_to_a_number_and_undeclared_ones_are_refused() {
    let hand = |kind: &str| Step::Hand {
        kind: kind.into(),
        document: segue_core::handover::Document::new(),
        calls: Vec::new(),
        how: Provenance::Built,
    };
    let mut stage = once(move || (0..HANDOVERS_KEPT_MAX + 5).map(|_| hand("intent")).chain([hand("other")]).collect());
    stage.say("go");
    let kept: Vec<u32> = stage.session().handovers.iter().map(|handover| handover.id.0).collect();
    assert_eq!((kept.len(), kept[0], kept[kept.len() - 1]), (HANDOVERS_KEPT_MAX, 6, 69));
    assert_eq!(refused_steps(&stage), ["handover `other`: the flow declares no such kind"]);
}

#[test]
fn nothing_of_a_flows_own_grows_beyond_its_limit() {
    let giant = || json!("x".repeat(FACT_BYTES_MAX));
    let document = || {
        let field = segue_core::handover::Field::Text("x".repeat(FACT_BYTES_MAX));
        segue_core::handover::Document::from([("goal".to_owned(), field)])
    };
    let goal = FieldSpec { name: "goal".into(), form: Form::Text, need: Need::Optional };
    let spec = Puppet::spec_of(Puppet::speaker()).handover(Schema {
        kind: "intent".into(),
        fields: vec![goal],
        repairs_max: 0,
    });
    let mut stage = Stage::open(Puppet::new(spec, move |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![
            Step::Call(CallWish::new("speaker", "note").note(giant())),
            Step::Hand { kind: "intent".into(), document: document(), calls: Vec::new(), how: Provenance::Built },
            Step::AskHandover("other".into()),
        ],
        _ => Vec::new(),
    }));
    stage.say("go");
    let refused = refused_steps(&stage);
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused[0].starts_with("call of `speaker` for `note`: it has 1048578 bytes of JSON"));
    assert!(refused[1].starts_with("handover `intent`: it has "));
    assert_eq!(refused[2], "handover `other`: the flow declares no such kind");
}

#[test]
fn a_tool_call_as_long_as_a_book_is_left_out_and_the_others_are_run() {
    let spec = Puppet::spec_of(Puppet::speaker().may_use("look")).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, Puppet::chats));
    stage.say("look");
    let giant = ToolCall { arguments: json!("x".repeat(TOOL_ARGUMENTS_BYTES_MAX)), ..wants("a", "look") };
    stage.reply("speaker", Reply { tool_calls: vec![giant, wants("b", "look")], ..Reply::default() });
    assert_eq!(stage.session().tools.len(), 1);
    assert!(refused_steps(&stage)[0].starts_with("call of tool `look`: its arguments have 262146 bytes"));
    stage.tool("look", Ok("seen")).answer("speaker", "done");
}

#[test]
fn the_page_a_vendor_answers_with_is_cut() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("hi");
    let failure = Failure::new(FailureKind::Refused, "<html>".repeat(100_000));
    stage.give(Input::Failure { call: segue_core::ids::CallId(1), attempt: 1, failure });
    let kept = super::events(&stage, |event| match event {
        Event::CallFailed { failure, .. } => Some(failure.message.len()),
        _ => None,
    });
    assert_eq!(kept, [FAILURE_BYTES_MAX + "[…]".len()]);
}

#[test]
fn many_calls_that_wait_for_one_thread_cost_one_event_each() {
    let mut stage = once(|| (0..20).map(|n| super::note("speaker", &n.to_string())).collect());
    stage.say("go");
    for n in 0..20 {
        let prompt = stage.prompt("speaker");
        assert_eq!(
            prompt.messages.last().map(|message| message.text()),
            Some(n.to_string()),
            "first come, first served"
        );
        stage.answer("speaker", "ok");
    }
    let deferred = super::events(&stage, |event| matches!(event, Event::CallDeferred(_)).then_some(()));
    assert_eq!(deferred.len(), 19);
}

#[test]
fn an_answer_that_is_too_long_is_cut_and_marked() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("tell me everything").answer("speaker", &"x".repeat(REPLY_BYTES_MAX + 1));
    assert_eq!(stage.said().len(), REPLY_BYTES_MAX + "[…]".len());
}
