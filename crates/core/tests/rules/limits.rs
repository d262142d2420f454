//! Everything that grows has a limit, and what goes beyond it is refused by name.

use segue_core::event::{Event, Lane, Outcome};
use segue_core::flow::Step;
use segue_core::limits::{
    DEFERRED_CALLS_MAX, FACT_BYTES_MAX, GIVEN_UP_MAX, HANDOVERS_KEPT_MAX, INBOX_MESSAGES_MAX, MARKS_MAX,
    OPEN_CALLS_MAX, REPLY_BYTES_MAX, THREADS_MAX, TIMERS_MAX,
};
use segue_core::prompt::FailureKind;
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{outcomes, refused_steps, tool};
use segue_core::event::CallWish;
use segue_core::flow::Runs;
use segue_core::handover::{Provenance, Schema};

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
fn an_answer_that_is_too_long_is_cut_and_marked() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("tell me everything").answer("speaker", &"x".repeat(REPLY_BYTES_MAX + 1));
    assert_eq!(stage.said().len(), REPLY_BYTES_MAX + "[…]".len());
}
