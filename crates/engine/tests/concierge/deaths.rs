//! The process dies, and another goes on. Nothing that was answered is asked again.

use segue_core::event::{Event, TurnResult};
use serde_json::{Value, json};

use crate::play::{Play, TO_THE_PLAN};

fn opened(role: &'static str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::CallOpened(opened) if opened.role == *role)
}

/// How often each call was made: its number of tries that were begun.
async fn tries(play: &Play, role: &str) -> Vec<usize> {
    let events = play.events().await;
    let unknown = |call| {
        events.iter().filter(|event| matches!(event, Event::CallOutcomeUnknown { call: of, .. } if *of == call)).count()
    };
    play.calls(role).await.iter().map(|opened| 1 + unknown(opened.call)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_between_batch_and_mapper() {
    let play = Play::begin("[[reply]]\nrole = \"mapper\"\nhang = true\n", Value::Null).await;
    play.say_until("rent or buy?", opened("mapper")).await;
    // Experts that are asked again would fail the turn.
    let play = play.dies("[[reply]]\nrole = \"expert\"\nfail = \"invalid_api_key\"\n").await;
    play.rests().await;
    assert_eq!(play.heard().await, ["Rent, unless you stay for long."]);
    assert_eq!(play.counts().await, [3, 1, 1]);
    assert_eq!(tries(&play, "expert").await, [1, 1, 1], "nobody who had answered was asked again");
    assert_eq!(tries(&play, "mapper").await, [2], "the map was in flight, and is asked for again");
    let sent = play.sent(play.calls("mapper").await[0].call).await;
    assert_eq!(sent.matches("rent first.").count(), 3, "all three answers reached the mapper: {sent}");
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_in_the_middle_of_the_batch() {
    let one_hangs = "[[reply]]\nrole = \"expert\"\nmodel = \"bee\"\nhang = true\n";
    let play = Play::begin(one_hangs, json!({"experts": ["ant", "bee", "cat"]})).await;
    let answered = std::sync::atomic::AtomicUsize::new(0);
    play.say_until("rent or buy?", |event| {
        if matches!(event, Event::CallAnswered(_)) {
            answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        answered.load(std::sync::atomic::Ordering::Relaxed) >= 2
    })
    .await;
    let play = play.dies("[[reply]]\nrole = \"expert\"\nmodel = [\"ant\", \"cat\"]\nfail = \"invalid_api_key\"\n").await;
    play.rests().await;
    assert_eq!(play.heard().await, ["Rent, unless you stay for long."]);
    assert_eq!(tries(&play, "expert").await, [1, 2, 1], "only the one in flight is asked again");
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_while_the_plan_is_presented() {
    let play = Play::begin("[[reply]]\nrole = \"concierge\"\nask = \"present\"\nhang = true\n", Value::Null).await;
    play.say_all(&TO_THE_PLAN[..2]).await;
    play.say_until(TO_THE_PLAN[2], |event| matches!(event, Event::CallOpened(opened) if opened.ask == *"present"))
        .await;
    let play = play.dies("[[reply]]\nrole = [\"expert\", \"mapper\"]\nfail = \"invalid_api_key\"\n").await;
    play.rests().await;
    assert_eq!(play.heard().await[2..], ["Good. I will work it out.".to_owned(), "Here is the plan.".to_owned()]);
    assert_eq!((play.counts().await, play.phase().await.as_str()), ([6, 2, 4], "executor"));
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_and_an_answer_that_was_waited_for_is_still_timed() {
    let hangs = "[[reply]]\nrole = \"expert\"\nmodel = \"snail\"\nhang = true\n";
    let settings = json!({"experts": ["ant", "bee", {"model": "snail", "timeout_ms": 5000}]});
    let play = Play::begin(hangs, settings).await;
    play.say_until("rent or buy?", |event| matches!(event, Event::CallAnswered(_))).await;
    let play = play.dies(hangs).await;
    play.rests().await;
    assert_eq!(play.heard().await, ["Rent, unless you stay for long."], "the wait ends, whoever waits");
    let ended = play.events().await.into_iter().find_map(|event| match event {
        Event::TurnEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert_eq!(ended, Some(TurnResult::Done));
}
