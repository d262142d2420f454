//! What real vendors bring about: long answers, silence, outages, and another model that steps in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::event::Event;
use segue_core::prompt::{AttemptCost, CallFailure, FailureKind, TokenUsage};
use segue_core::scope::Scope;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, ModelAssignment};
use segue_models::http::{ReqwestTransport, TimeoutProfile};
use segue_models::vendor::{Credentials, GenerationParams, ModelCapabilities, ModelEndpoint, VendorModel, WireFormat};
use segue_models::{
    LanguageModel, ModelCard, ModelDescription, ModelRegistry, ModelRequest, PromptCaching, ReplyChunk,
    ReplyChunkStream, TokenPrice,
};
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::ClosureFlow;

use crate::lab::{Calls, ask, chat, chat_of, engine_of, events, open, open_as, pass, setup, speaker, turn};

/// A model that somebody serves.
#[derive(Debug)]
struct Served(Arc<dyn LanguageModel>);

impl LanguageModel for Served {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        self.0.stream(request)
    }

    fn describe(&self) -> ModelDescription {
        self.0.describe()
    }

    fn provider(&self) -> Option<&str> {
        Some("acme")
    }
}

/// An engine whose only model is served by somebody.
async fn served() -> (Engine, Calls) {
    let mut role = speaker();
    role.retry_policy.attempts_max = 10;
    let (base, calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
    let model = base.models.get(&"played".into()).expect("it is there");
    let models = Arc::new(ModelRegistry::from_single_model(Arc::new(Served(model))));
    (Engine::start(EngineConfig { models, ..base }).await.expect("it starts"), calls)
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
    assert_eq!((report.spent.failed_attempts, report.replies[0].len()), (0, 20 * 7 + 2));
}

#[tokio::test(start_paused = true)]
async fn a_model_may_be_given_more_time_to_think_than_its_role_gives() {
    let mut role = speaker();
    role.timeout_ms = 1_000;
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
    let limits = ModelCallLimits { silence_ms_max: Some(60_000), ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let thinker = calls.next().await;
    pass(59_000).await;
    thinker.answer("42");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").replies, ["42"]);
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
    let card = ModelCard { window_tokens: 100_000, price: Some(TokenPrice::flat(1_000_000, 2_000_000, 0)) };
    let models = Arc::new(ModelRegistry::new().with_card("played", model, card));
    let casting = ModelAssignment::new(models.clone(), "played".into());
    let engine = Engine::start(EngineConfig { models, model_assignment: casting, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let usage = Some(TokenUsage { input_tokens: 10, output_tokens: 4, ..TokenUsage::default() });
    calls.next().await.fail_with(CallFailure::new(FailureKind::MalformedReply, "no").with_usage(usage));
    let silent = calls.next().await;
    silent.say("so");
    silent.dropped().await;
    calls.next().await.answer("here I am");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.spent.failed_attempts, report.spent.cost_microusd), (2, 18), "{:?}", report.spent);
    assert_eq!(report.spent.unpriced_answers, 2, "what broke off in the middle, and the answer without figures");
}

#[tokio::test(start_paused = true)]
async fn another_model_steps_in_and_the_journal_says_so() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let (spare_base, mut spare_calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let (main, spare) = (base.models.get(&"x".into()).expect("any"), spare_base.models.get(&"x".into()).expect("any"));
    let models = Arc::new(ModelRegistry::new().with_model("main", main).with_model("spare", spare));
    let casting = ModelAssignment::new(models.clone(), "main".into()).with_fallback("spare".into());
    let engine = Engine::start(EngineConfig { models, model_assignment: casting, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    calls.next().await.fail(FailureKind::InvalidApiKey);
    let call = spare_calls.next().await;
    assert_eq!((call.facts.attempt, call.prompt.model.as_str()), (2, "spare"));
    call.answer("here I am");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").replies, ["here I am"]);
    let moved = events(&engine, &session).await;
    assert!(moved.iter().any(|event| matches!(event, Event::CallFailedOver { to, .. } if *to == *"spare")));
}

#[test]
fn who_steps_in_is_found_by_flow_and_role_first() {
    use segue_core::decide::ModelSelector;
    let casting = ModelAssignment::new(Arc::new(ModelRegistry::new()), "main".into());
    let find = |casting: &ModelAssignment, flow: &str, role: &str| {
        casting.fallback_model(&flow.into(), &role.into()).map(|model| model.to_string())
    };
    assert_eq!(find(&casting, "chat", "speaker"), None);
    let casting = casting
        .with_fallback("any".into())
        .with_role_fallback(None, "speaker".into(), "speakers".into())
        .with_role_fallback(Some("chat".into()), "speaker".into(), "chats".into());
    assert_eq!(find(&casting, "chat", "speaker").as_deref(), Some("chats"));
    assert_eq!(find(&casting, "other", "speaker").as_deref(), Some("speakers"));
    assert_eq!(find(&casting, "chat", "mapper").as_deref(), Some("any"));
}

/// Notes whether it is told that more will follow.
#[derive(Debug, Default)]
struct Attentive(Mutex<Vec<PromptCaching>>);

impl LanguageModel for Attentive {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        self.0.lock().expect("nobody panicked").push(request.caching);
        let chunks = [Ok(ReplyChunk::Text("yes".into())), Ok(ReplyChunk::Finish(Default::default()))];
        futures_util::StreamExt::boxed(futures_util::stream::iter(chunks))
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: segue_models::ModelSource::Vendor, label: "attentive".into(), window_tokens: 10_000 }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_whether_its_prompt_will_grow() {
    let model = Arc::new(Attentive::default());
    for (scope, expected) in
        [(Scope::Fresh, PromptCaching::SystemOnly), (Scope::per_session(), PromptCaching::WholePrompt)]
    {
        let flow = chat_of(ClosureFlow::test_role("speaker", scope));
        let (base, _calls) = setup(MemoryStore::open(&MemoryDisk::new()), flow);
        let models = Arc::new(ModelRegistry::from_single_model(model.clone()));
        let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
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
    for (says, words, spent) in [("", "no answer within", None), (HALF, "silent for", Some(AttemptCost::default()))] {
        let mut role = speaker();
        (role.timeout_ms, role.retry_policy.attempts_max) = (400, 1);
        let (base, _calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat_of(role));
        let connection = ModelEndpoint {
            provider: "acme".into(),
            wire: WireFormat::Chat,
            base_url: stalling(says),
            model: "m-1".into(),
            credentials: Credentials::None,
            capabilities: ModelCapabilities::with_unknown_support(8_192),
            params: GenerationParams::default(),
        };
        let vendor = VendorModel::new(connection, Arc::new(ReqwestTransport::new(TimeoutProfile::Completion)));
        let models = Arc::new(ModelRegistry::from_single_model(Arc::new(vendor)));
        let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
        let session = open(&engine).await;
        let _ = ask(&engine, &session, "hello").await.expect("it lives");
        let failed = events(&engine, &session).await.into_iter().find_map(|event| match event {
            Event::CallFailed { failure, .. } => Some(failure),
            _ => None,
        });
        let failure = failed.expect("it is given up");
        assert_eq!((failure.kind, failure.cost), (FailureKind::Timeout, spent), "{failure}");
        assert!(failure.message.starts_with(words), "{failure}");
    }
}

/// The beginning of an answer.
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";

#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_shortened_between_two_tries_is_rebuilt_as_it_was_sent_at_last() {
    let mut role = speaker();
    role.compaction.summary_tokens_max = 60;
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
    assert_eq!(engine.rebuild_prompt(&session, call).await.expect("it is open"), *short);
    taken.answer("now");
    asked.await.expect("it lives").expect("it is answered");
    turn(&engine, &mut calls, &session, "go on", "yes").await;
    assert_eq!(engine.rebuild_prompt(&session, call).await.expect("it is over"), *short);
    let events = events(&engine, &session).await;
    let of_call = |event: &Event| match event {
        Event::CallOpened(opened) if opened.call == call => Some(opened.receipt.tokens),
        Event::CallAnswered(answered) if answered.call == call => Some(answered.usage.input_tokens),
        _ => None,
    };
    let [opened, answered] = events.iter().filter_map(of_call).collect::<Vec<_>>()[..] else { panic!("both") };
    assert!(answered < opened, "what was sent is counted: {answered} of {opened}");
}
