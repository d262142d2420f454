//! What real vendors bring about: long answers, silence, outages, and another model that steps in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::event::Event;
use segue_core::prompt::{Failure, FailureKind, Spent, Usage};
use segue_core::scope::Scope;
use segue_engine::pace::ModelLimits;
use segue_engine::{Casting, Engine, Setup};
use segue_models::http::{Client, Patience};
use segue_models::vendor::{Access, Connection, Manner, Skills, Vendor, Wire};
use segue_models::{Chunk, ChunkStream, Description, Growth, Model, ModelCard, Models, Price, Request};
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::Puppet;

use crate::lab::{Calls, ask, chat, chat_of, engine_of, events, open, open_as, pass, setup, speaker, turn};

/// A model that somebody serves.
#[derive(Debug)]
struct Served(Arc<dyn Model>);

impl Model for Served {
    fn stream(&self, request: Request) -> ChunkStream {
        self.0.stream(request)
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }

    fn provider(&self) -> Option<&str> {
        Some("acme")
    }
}

/// An engine whose only model is served by somebody.
async fn served() -> (Engine, Calls) {
    let mut role = speaker();
    role.retries.attempts_max = 10;
    let (base, calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
    let model = base.models.get(&"played".into()).expect("it is there");
    let models = Arc::new(Models::only(Arc::new(Served(model))));
    (Engine::start(Setup { models, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_that_keeps_coming_is_not_cut_off() {
    let mut role = speaker();
    role.timeout_ms = 3_000;
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), chat_of(role)).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let slow = calls.next().await;
    for _ in 0..20 {
        pass(2_900).await;
        slow.say("on and ");
    }
    slow.answer("on");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.spent.failed, report.said[0].len()), (0, 20 * 7 + 2));
}

#[tokio::test(start_paused = true)]
async fn a_model_may_be_given_more_time_to_think_than_its_role_gives() {
    let mut role = speaker();
    role.timeout_ms = 1_000;
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
    let limits = ModelLimits { silence_ms_max: Some(60_000), ..ModelLimits::default() };
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    let engine = Engine::start(Setup { model_limits, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let thinker = calls.next().await;
    pass(59_000).await;
    thinker.answer("42");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").said, ["42"]);
    let asked = ask(&engine, &session, "and?");
    let silent = calls.next().await;
    silent.dropped().await;
    assert_eq!(silent.at.elapsed(), Duration::from_secs(60));
    calls.next().await.answer("so");
    asked.await.expect("it lives").expect("it is answered");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_reached_is_left_alone_and_then_tried_by_one() {
    let (engine, mut calls) = served().await;
    let sessions = [open_as(&engine, "a").await, open_as(&engine, "b").await];
    let first = ask(&engine, &sessions[0], "hello");
    for _ in 0..5 {
        calls.next().await.fail(FailureKind::Network);
    }
    let second = ask(&engine, &sessions[1], "hello");
    let since = tokio::time::Instant::now();
    let trial = calls.next().await;
    let waited = since.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(7)).contains(&waited), "{waited:?}");
    trial.answer("back again");
    calls.next().await.answer("and again");
    for asked in [first, second] {
        asked.await.expect("it lives").expect("it is answered");
    }
    let failures = events(&engine, &sessions[0]).await.into_iter().chain(events(&engine, &sessions[1]).await);
    let left_alone = failures.filter(
        |event| matches!(event, Event::CallFailed { failure, .. } if failure.message.contains("is left alone for")),
    );
    assert!(left_alone.count() > 0, "and the journal says so");
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_answer_took_is_priced_and_entered() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let model = base.models.get(&"played".into()).expect("it is there");
    let card = ModelCard { window_tokens: 100_000, price: Some(Price::plain(1_000_000, 2_000_000, 0)) };
    let models = Arc::new(Models::new().with_card("played", model, card));
    let casting = Casting::new(models.clone(), "played".into());
    let engine = Engine::start(Setup { models, casting, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let usage = Some(Usage { input: 10, output: 4, ..Usage::default() });
    calls.next().await.fail_with(Failure::new(FailureKind::Malformed, "no").after(usage));
    let silent = calls.next().await;
    silent.say("so");
    silent.dropped().await;
    calls.next().await.answer("here I am");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.spent.failed, report.spent.cost_microusd), (2, 18), "{:?}", report.spent);
    assert_eq!(report.spent.unpriced, 2, "what broke off in the middle, and the answer without figures");
}

#[tokio::test(start_paused = true)]
async fn another_model_steps_in_and_the_journal_says_so() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let (spare_base, mut spare_calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let (main, spare) = (base.models.get(&"x".into()).expect("any"), spare_base.models.get(&"x".into()).expect("any"));
    let models = Arc::new(Models::new().with("main", main).with("spare", spare));
    let casting = Casting::new(models.clone(), "main".into()).or_else("spare".into());
    let engine = Engine::start(Setup { models, casting, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    calls.next().await.fail(FailureKind::BadKey);
    let call = spare_calls.next().await;
    assert_eq!((call.facts.attempt, call.prompt.model.as_str()), (2, "spare"));
    call.answer("here I am");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").said, ["here I am"]);
    let moved = events(&engine, &session).await;
    assert!(moved.iter().any(|event| matches!(event, Event::CallMoved { to, .. } if *to == *"spare")));
}

#[test]
fn who_steps_in_is_found_by_flow_and_role_first() {
    use segue_core::decide::Catalog;
    let casting = Casting::new(Arc::new(Models::new()), "main".into());
    let find = |casting: &Casting, flow: &str, role: &str| {
        casting.fallback_for(&flow.into(), &role.into()).map(|model| model.to_string())
    };
    assert_eq!(find(&casting, "chat", "speaker"), None);
    let casting = casting.or_else("any".into()).or_else_for(None, "speaker".into(), "speakers".into()).or_else_for(
        Some("chat".into()),
        "speaker".into(),
        "chats".into(),
    );
    assert_eq!(find(&casting, "chat", "speaker").as_deref(), Some("chats"));
    assert_eq!(find(&casting, "other", "speaker").as_deref(), Some("speakers"));
    assert_eq!(find(&casting, "chat", "mapper").as_deref(), Some("any"));
}

/// Notes whether it is told that more will follow.
#[derive(Debug, Default)]
struct Attentive(Mutex<Vec<Growth>>);

impl Model for Attentive {
    fn stream(&self, request: Request) -> ChunkStream {
        self.0.lock().expect("nobody panicked").push(request.growth);
        let chunks = [Ok(Chunk::Text("yes".into())), Ok(Chunk::Finish(Default::default()))];
        futures_util::StreamExt::boxed(futures_util::stream::iter(chunks))
    }

    fn describe(&self) -> Description {
        Description { kind: segue_models::Kind::Vendor, label: "attentive".into(), window_tokens: 10_000 }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_whether_its_prompt_will_grow() {
    let model = Arc::new(Attentive::default());
    for (scope, expected) in [(Scope::Fresh, Growth::Ends), (Scope::session(), Growth::Grows)] {
        let flow = chat_of(Puppet::role("speaker", scope));
        let (base, _calls) = setup(MemoryStore::open(&MemoryDisk::new()), flow);
        let models = Arc::new(Models::only(model.clone()));
        let engine = Engine::start(Setup { models, ..base }).await.expect("it starts");
        let session = open(&engine).await;
        ask(&engine, &session, "hello").await.expect("it lives").expect("it is answered");
        assert_eq!(model.0.lock().expect("nobody panicked").last(), Some(&expected));
    }
}

/// A server on a real socket that says this much in answer to a request, and then nothing more until it is hung up on.
fn stalling(says: &'static str) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut request = [0; 64 << 10];
            let _ = socket.read(&mut request).and_then(|_| socket.write_all(says.as_bytes()));
            while socket.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
        }
    });
    format!("http://{address}/v1")
}

#[tokio::test]
async fn a_server_that_stalls_on_its_socket_is_given_up_before_and_within_its_answer() {
    for (says, words, spent) in [("", "no answer within", None), (HALF, "silent for", Some(Spent::default()))] {
        let mut role = speaker();
        (role.timeout_ms, role.retries.attempts_max) = (400, 1);
        let (base, _calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
        let connection = Connection {
            provider: "acme".into(),
            wire: Wire::Chat,
            base_url: stalling(says),
            model: "m-1".into(),
            key: Access::Open,
            skills: Skills::unknown(8_192),
            manner: Manner::default(),
        };
        let vendor = Vendor::new(connection, Arc::new(Client::new(Patience::Ample)));
        let models = Arc::new(Models::only(Arc::new(vendor)));
        let engine = Engine::start(Setup { models, ..base }).await.expect("it starts");
        let session = open(&engine).await;
        let _ = ask(&engine, &session, "hello").await.expect("it lives");
        let failed = events(&engine, &session).await.into_iter().find_map(|event| match event {
            Event::CallFailed { failure, .. } => Some(failure),
            _ => None,
        });
        let failure = failed.expect("it is given up");
        assert_eq!((failure.kind, failure.spent), (FailureKind::Timeout, spent), "{failure}");
        assert!(failure.message.starts_with(words), "{failure}");
    }
}

/// The beginning of an answer.
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_shortened_between_two_tries_is_rebuilt_as_it_was_sent_at_last() {
    let mut role = speaker();
    role.compaction.tokens_max = 60;
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), chat_of(role)).await;
    let session = open(&engine).await;
    for place in 0..10 {
        turn(&engine, &mut calls, &session, &format!("question {place} {}", "word ".repeat(90)), "an answer").await;
    }
    let asked = ask(&engine, &session, "and now?");
    let refused = calls.next().await;
    let long = refused.prompt.clone();
    refused.fail(FailureKind::ContextTooLong);
    let taken = calls.next().await;
    let (call, short) = (taken.facts.call, taken.prompt.clone());
    assert!(short.messages.len() < long.messages.len());
    assert_eq!(engine.prompt(&session, call).await.expect("it is open"), *short);
    taken.answer("now");
    asked.await.expect("it lives").expect("it is answered");
    turn(&engine, &mut calls, &session, "go on", "yes").await;
    assert_eq!(engine.prompt(&session, call).await.expect("it is over"), *short);
    let events = events(&engine, &session).await;
    let of_call = |event: &Event| match event {
        Event::CallOpened(opened) if opened.call == call => Some(opened.receipt.tokens),
        Event::CallAnswered(answered) if answered.call == call => Some(answered.usage.input),
        _ => None,
    };
    let [opened, answered] = events.iter().filter_map(of_call).collect::<Vec<_>>()[..] else { panic!("both") };
    assert!(answered < opened, "what was sent is counted: {answered} of {opened}");
}
