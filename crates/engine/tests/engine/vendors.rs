//! Behaviour of real vendors: long answers, silence, outages, and fallback models.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::event::Event;
use segue_core::prompt::{CallFailure, CallFailureKind, FailedCallAttemptCost, TokenUsage};
use segue_core::scope::Scope;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, ModelAssignment};
use segue_models::http::{CompletionOrProbeTimeouts, ReqwestTransport};
use segue_models::vendor::{
    GenerationParams, ModelCapabilities, ModelEndpoint, VendorCredentials, VendorModelClient, WireFormat,
};
use segue_models::{
    CacheablePromptPart, LanguageModel, ModelCard, ModelDescription, ModelRegistry, ModelRequest, ReplyChunk,
    ReplyChunkStream, TokenPrice,
};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use crate::harness::{
    ReceivedCalls, advance_ms, chat_flow, chat_with_role, engine_config, engine_with_flow, open_named_session,
    open_session, read_events, run_turn, send_in_background, speaker_role,
};

/// A model with a provider.
#[derive(Debug)]
struct ProvidedModel(Arc<dyn LanguageModel>);

impl LanguageModel for ProvidedModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        self.0.stream(request)
    }

    fn describe(&self) -> ModelDescription {
        self.0.describe()
    }

    fn failure_domain(&self) -> Option<&str> {
        Some("acme")
    }
}

/// Starts an engine whose only model has a provider.
pub(crate) async fn engine_with_provider() -> (Engine, ReceivedCalls) {
    let mut role = speaker_role();
    role.retry_policy.attempts_max = 10;
    let (base, calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_with_role(role));
    let model = base.models.get(&"controlled".into()).expect("it is there");
    let models = Arc::new(ModelRegistry::from_single_model(Arc::new(ProvidedModel(model))));
    (Engine::start(EngineConfig { models, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_that_keeps_streaming_is_not_cut_off() {
    let mut role = speaker_role();
    role.timeout_ms = 3_000;
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), chat_with_role(role)).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let slow = calls.next().await;
    for _ in 0..20 {
        advance_ms(2_900).await;
        slow.send_text("on and ");
    }
    slow.answer("on");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.spent.failed_attempts, report.replies[0].len()), (0, 20 * 7 + 2));
}

#[tokio::test(start_paused = true)]
async fn the_silence_limit_of_a_model_overrides_the_timeout_of_the_role() {
    let mut role = speaker_role();
    role.timeout_ms = 1_000;
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_with_role(role));
    let limits = ModelCallLimits { silence_ms_max: Some(60_000), ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("controlled".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let thinker = calls.next().await;
    advance_ms(59_000).await;
    thinker.answer("42");
    assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").replies, ["42"]);
    let pending_turn = send_in_background(&engine, &session, "and?");
    let silent = calls.next().await;
    silent.wait_until_dropped().await;
    assert_eq!(silent.at.elapsed(), Duration::from_secs(60));
    calls.next().await.answer("so");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_provider_is_not_called_until_a_probe_succeeds() {
    let (engine, mut calls) = engine_with_provider().await;
    let sessions = [open_named_session(&engine, "a").await, open_named_session(&engine, "b").await];
    let first = send_in_background(&engine, &sessions[0], "hello");
    for _ in 0..5 {
        calls.next().await.fail(CallFailureKind::Network);
    }
    let second = send_in_background(&engine, &sessions[1], "hello");
    let since = tokio::time::Instant::now();
    let probe = calls.next().await;
    let waited = since.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(7)).contains(&waited), "{waited:?}");
    probe.answer("back again");
    calls.next().await.answer("and again");
    for pending_turn in [first, second] {
        pending_turn.await.expect("the task does not panic").expect("it is answered");
    }
    let failures = read_events(&engine, &sessions[0]).await.into_iter().chain(read_events(&engine, &sessions[1]).await);
    let refused = failures.filter(
        |event| matches!(event, Event::CallFailed { failure, .. } if failure.message.contains("is not called for")),
    );
    assert!(refused.count() > 0, "the refusals are recorded");
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_a_failed_attempt_is_recorded() {
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_flow());
    let model = base.models.get(&"controlled".into()).expect("it is there");
    let card = ModelCard { price: Some(TokenPrice::flat(1_000_000, 2_000_000, 0)), ..ModelCard::unpriced(100_000) };
    let models = Arc::new(ModelRegistry::new().with_card("controlled", model, card));
    let assignment = ModelAssignment::new(models.clone(), "controlled".into());
    let engine = Engine::start(EngineConfig { models, model_assignment: assignment, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let usage = Some(TokenUsage { input_tokens: 10, output_tokens: 4, ..TokenUsage::default() });
    calls.next().await.fail_with(CallFailure::new(CallFailureKind::MalformedReply, "no").with_usage(usage));
    let silent = calls.next().await;
    silent.send_text("so");
    silent.wait_until_dropped().await;
    calls.next().await.answer("here I am");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.spent.failed_attempts, report.spent.cost_microusd), (2, 18), "{:?}", report.spent);
    assert_eq!(report.spent.unpriced_answers, 2, "the attempt that was cut off, and the answer without usage");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_model_takes_over_and_that_is_recorded() {
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_flow());
    let (spare_base, mut spare_calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_flow());
    let (main, spare) = (base.models.get(&"x".into()).expect("any"), spare_base.models.get(&"x".into()).expect("any"));
    let models = Arc::new(ModelRegistry::new().with_model("main", main).with_model("spare", spare));
    let assignment = ModelAssignment::new(models.clone(), "main".into()).with_fallback("spare".into());
    let engine = Engine::start(EngineConfig { models, model_assignment: assignment, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    calls.next().await.fail(CallFailureKind::InvalidApiKey);
    let call = spare_calls.next().await;
    assert_eq!((call.metadata.attempt, call.prompt.model.as_str()), (2, "spare"));
    call.answer("here I am");
    assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").replies, ["here I am"]);
    let events = read_events(&engine, &session).await;
    assert!(events.iter().any(|event| matches!(event, Event::CallFailedOver { to, .. } if *to == *"spare")));
}

#[test]
fn the_fallback_of_flow_and_role_comes_first() {
    use segue_core::decide::RoleModelResolver;
    let assignment = ModelAssignment::new(Arc::new(ModelRegistry::new()), "main".into());
    let find = |assignment: &ModelAssignment, flow: &str, role: &str| {
        assignment.fallback_model(&flow.into(), &role.into()).map(|model| model.to_string())
    };
    assert_eq!(find(&assignment, "chat", "speaker"), None);
    let assignment = assignment
        .with_fallback("any".into())
        .with_role_fallback(None, "speaker".into(), "speakers".into())
        .with_role_fallback(Some("chat".into()), "speaker".into(), "chats".into());
    assert_eq!(find(&assignment, "chat", "speaker").as_deref(), Some("chats"));
    assert_eq!(find(&assignment, "other", "speaker").as_deref(), Some("speakers"));
    assert_eq!(find(&assignment, "chat", "mapper").as_deref(), Some("any"));
}

/// A model that records the caching hint of each request.
#[derive(Debug, Default)]
struct CachingRecorder(Mutex<Vec<CacheablePromptPart>>);

impl LanguageModel for CachingRecorder {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        self.0.lock().expect("not poisoned").push(request.caching);
        let chunks = [Ok(ReplyChunk::Text("yes".into())), Ok(ReplyChunk::Finish(Default::default()))];
        futures_util::StreamExt::boxed(futures_util::stream::iter(chunks))
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: segue_models::ModelBackendKind::Vendor,
            label: "caching recorder".into(),
            window_tokens: 10_000,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_caching_hint_depends_on_the_scope() {
    let model = Arc::new(CachingRecorder::default());
    for (scope, expected) in
        [(Scope::Fresh, CacheablePromptPart::SystemOnly), (Scope::per_session(), CacheablePromptPart::WholePrompt)]
    {
        let flow = chat_with_role(ClosureFlow::test_role("speaker", scope));
        let (base, _calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), flow);
        let models = Arc::new(ModelRegistry::from_single_model(model.clone()));
        let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
        let session = open_session(&engine).await;
        send_in_background(&engine, &session, "hello").await.expect("the task does not panic").expect("it is answered");
        assert_eq!(model.0.lock().expect("not poisoned").last(), Some(&expected));
    }
}

/// Starts a server on a real socket that sends `reply` and then nothing more. Returns its URL.
fn start_stalling_server(reply: &'static str) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut request = [0; 64 << 10];
            let _ = socket.read(&mut request).and_then(|_| socket.write_all(reply.as_bytes()));
            while socket.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
        }
    });
    format!("http://{address}/v1")
}

#[tokio::test]
async fn a_server_that_stalls_before_or_within_its_answer_times_out() {
    for (reply, message, cost) in
        [("", "no answer within", None), (PARTIAL_REPLY, "silent for", Some(FailedCallAttemptCost::default()))]
    {
        let mut role = speaker_role();
        (role.timeout_ms, role.retry_policy.attempts_max) = (400, 1);
        let (base, _calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_with_role(role));
        let connection = ModelEndpoint {
            provider: "acme".into(),
            wire: WireFormat::Chat,
            base_url: start_stalling_server(reply),
            model: "m-1".into(),
            credentials: VendorCredentials::None,
            capabilities: ModelCapabilities::with_unknown_support(8_192),
            params: GenerationParams::default(),
        };
        let vendor =
            VendorModelClient::new(connection, Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion)));
        let models = Arc::new(ModelRegistry::from_single_model(Arc::new(vendor)));
        let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
        let session = open_session(&engine).await;
        let _ = send_in_background(&engine, &session, "hello").await.expect("the task does not panic");
        let failed = read_events(&engine, &session).await.into_iter().find_map(|event| match event {
            Event::CallFailed { failure, .. } => Some(failure),
            _ => None,
        });
        let failure = failed.expect("it is given up");
        assert_eq!((failure.kind, failure.cost), (CallFailureKind::Timeout, cost), "{failure}");
        assert!(failure.message.starts_with(message), "{failure}");
    }
}

/// The beginning of a reply.
const PARTIAL_REPLY: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";

#[tokio::test(start_paused = true)]
async fn a_prompt_compacted_between_attempts_is_rebuilt_as_last_sent() {
    let mut role = speaker_role();
    role.compaction.summary_tokens_max = 60;
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), chat_with_role(role)).await;
    let session = open_session(&engine).await;
    for number in 0..10 {
        run_turn(&engine, &mut calls, &session, &format!("question {number} {}", "word ".repeat(90)), "an answer")
            .await;
    }
    let pending_turn = send_in_background(&engine, &session, "and now?");
    let refused = calls.next().await;
    let long = refused.prompt.clone();
    refused.fail(CallFailureKind::ContextTooLong);
    let accepted = calls.next().await;
    let (call, short) = (accepted.metadata.call, accepted.prompt.clone());
    assert!(short.messages.len() < long.messages.len());
    assert_eq!(engine.rebuild_prompt(&session, call).await.expect("it is open"), *short);
    accepted.answer("now");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    run_turn(&engine, &mut calls, &session, "go on", "yes").await;
    assert_eq!(engine.rebuild_prompt(&session, call).await.expect("it is over"), *short);
    let events = read_events(&engine, &session).await;
    let of_call = |event: &Event| match event {
        Event::CallOpened(opened) if opened.call == call => Some(opened.receipt.tokens),
        Event::CallAnswered(answered) if answered.call == call => Some(answered.usage.input_tokens),
        _ => None,
    };
    let [opened, answered] = events.iter().filter_map(of_call).collect::<Vec<_>>()[..] else { panic!("both") };
    assert!(answered < opened, "what was sent is counted: {answered} of {opened}");
}
