//! An expert that answers after the turn has ended without it.

use std::time::Duration;

use segue_core::event::{Event, TurnResult};
use segue_core::ids::CallId;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::play::{Play, TO_THE_PLAN};

/// The third expert takes 200 ms longer than everything else.
const SNAIL: &str =
    "[[reply]]\nrole = \"expert\"\nmodel = \"snail\"\nturn = 1\ndelay_ms = 200\ntext = \"Buy at once.\"\n";

fn two_of_three() -> Value {
    json!({"experts": ["ant", "bee", "snail"], "quorum": 2})
}

/// The calls whose answers came too late, with what they say.
async fn late(play: &Play) -> Vec<(CallId, String)> {
    let found = play.events().await.into_iter().filter_map(|event| match event {
        Event::CallAnsweredLate { call, text, .. } => Some((call, text.body)),
        _ => None,
    });
    let (calls, bodies): (Vec<CallId>, Vec<_>) = found.unzip();
    let texts = play.engine.read_texts(&play.session, &bodies).await.expect("they are kept");
    calls.into_iter().zip(texts.iter().map(ToString::to_string)).collect()
}

async fn snails(play: &Play) -> Vec<CallId> {
    let calls = play.calls("expert").await.into_iter().filter(|call| call.model == *"snail");
    calls.map(|call| call.call).collect()
}

#[tokio::test(start_paused = true)]
async fn an_experts_answer_that_comes_after_the_turn_is_recorded_and_counts_for_nothing() {
    let play = Play::begin(SNAIL, two_of_three()).await;
    let started = Instant::now();
    let report = play.say(TO_THE_PLAN[0]).await;
    assert_eq!((report.outcome, report.spent.answered_calls, report.spent.late_answers), (TurnResult::Done, 4, 0));
    assert!(started.elapsed() < Duration::from_millis(200), "nobody waits for the third");
    assert_eq!(play.engine.active_session_count(), 0, "and the session rests");
    let cancelled = play.events().await.into_iter().find_map(|event| match event {
        Event::CallCancelled { call, .. } => Some(call),
        _ => None,
    });
    let snail = snails(&play).await[0];
    assert_eq!((cancelled, late(&play).await), (Some(snail), vec![]));

    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(late(&play).await, [(snail, "Buy at once.".to_owned())]);
    let (_, state) = play.engine.load_session(&play.session).await.expect("it can be read");
    let ledger = &state.session.ledger;
    assert_eq!((ledger.total.answered_calls, ledger.total.late_answers), (4, 1), "it was billed");
    assert_eq!(
        (ledger.by_model["snail"].late_answers, ledger.current_turn.late_answers),
        (1, 1),
        "on the account of its turn"
    );
    assert!(
        ledger.total.output_tokens > report.spent.output_tokens
            && ledger.total.input_tokens > report.spent.input_tokens
    );

    // The next time everyone is asked, it is an answer to nothing, and nobody remembers it.
    play.say_all(&TO_THE_PLAN[1..]).await;
    let mappers = play.calls("mapper").await;
    assert_eq!(mappers.len(), 2);
    for mapper in mappers {
        let sent = play.sent(mapper.call).await;
        assert!(!sent.contains("Buy at once.") && sent.contains("## Source 2"), "{sent}");
    }
    let again = *snails(&play).await.last().expect("it was asked");
    assert!(again != snail && !play.sent(again).await.contains("Buy at once."));
    assert!(play.facts("late_answer").await.iter().all(|fact| fact["call"] != json!(snail)));
}

#[tokio::test(start_paused = true)]
async fn it_is_recorded_while_the_next_turn_runs() {
    let slow = format!("{SNAIL}[[reply]]\nrole = \"concierge\"\nturn = 2\ndelay_ms = 1000\ntext = \"Then buy.\"\n");
    let play = Play::begin(&slow, two_of_three()).await;
    play.say(TO_THE_PLAN[0]).await;
    let report = play.say(TO_THE_PLAN[1]).await;
    assert_eq!(
        (report.replies, report.spent.late_answers),
        (vec!["Then buy.".to_owned()], 0),
        "the turn has nothing to do with it"
    );
    let events = play.events().await;
    let place = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).expect("it happened");
    let came = place(&|event| matches!(event, Event::CallAnsweredLate { .. }));
    assert!(place(&|event| matches!(event, Event::TurnStarted { turn, .. } if turn.0 == 2)) < came);
    assert!(came < place(&|event| matches!(event, Event::TurnEnded { turn, .. } if turn.0 == 2)));
    let (_, state) = play.engine.load_session(&play.session).await.expect("it can be read");
    assert_eq!((state.session.ledger.total.late_answers, state.session.ledger.current_turn.late_answers), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn one_whose_time_is_over_is_recorded_too() {
    let settings = json!({"experts": ["ant", "bee", {"model": "snail", "timeout_ms": 50}]});
    let play = Play::begin(SNAIL, settings).await;
    assert_eq!(play.say(TO_THE_PLAN[0]).await.outcome, TurnResult::Done);
    assert_eq!(play.facts("answer_timed_out").await.len(), 1);
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(late(&play).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_takes_it_along_and_goes_at_once() {
    let play = Play::begin(SNAIL, two_of_three()).await;
    play.say(TO_THE_PLAN[0]).await;
    let started = Instant::now();
    let play = play.dies("").await;
    assert!(started.elapsed() < Duration::from_millis(100));
    assert_eq!(play.say(TO_THE_PLAN[1]).await.phase, "explorer");
    assert_eq!(late(&play).await, []);
}
