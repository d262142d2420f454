//! The limits of a key: what it may spend per day, which models it may use, and how much at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowSpec, FlowStep, NewOrStoredReplyText, RoleSpec, SpawnChildSessionRequest};
use segue_core::signal::BlockSet;
use segue_engine::clock::SystemClock;
use segue_engine::{Engine, EngineConfig};
use segue_models::{ModelCard, ModelRegistry, ScriptedModel, TokenPrice};
use segue_server::{ApiKeyLimitCallPolicy, ApiKeyLimits, ApiKeyStore, ApiKeyToCreate, CrossServerSharedState};
use segue_store::Store;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keys::Tenant;
use crate::test_server::{DEFAULT_SCENARIO, TestServer};

pub(crate) const TOKENS_PER_TURN: u64 = 45;

async fn priced_server(disk: &InMemoryStoreDisk, folder: &Arc<TempDir>, scenario: &str) -> TestServer {
    let engine = priced_engine(disk, folder, scenario).await;
    TestServer::with_engine(engine, disk, folder.clone(), |_| {}).await
}

/// An engine whose model costs one millionth of a dollar per token, and which applies the limits of keys.
pub(crate) async fn priced_engine(disk: &InMemoryStoreDisk, folder: &TempDir, scenario: &str) -> Engine {
    let shared = CrossServerSharedState::from_folder(folder.path());
    priced_engine_on(Arc::new(InMemoryStore::open(disk)), &shared, scenario).await
}

/// The same on any store, with any keys.
pub(crate) async fn priced_engine_on(store: Arc<dyn Store>, shared: &CrossServerSharedState, scenario: &str) -> Engine {
    let script = |text: &str| Arc::new(text.parse::<ScriptedModel>().expect("a scenario"));
    let price = TokenPrice::flat(1_000_000, 1_000_000, 1_000_000);
    let card = ModelCard { price: Some(price), ..ModelCard::unpriced(100_000) };
    let models = ModelRegistry::new().with_card("scripted", script(scenario), card).with_card(
        "other",
        script(DEFAULT_SCENARIO),
        card,
    );
    let mut flows = segue_flows::built_in_flows();
    flows.extend([parent_flow(), worker_flow()]);
    let config = EngineConfig {
        call_policy: Arc::new(ApiKeyLimitCallPolicy::new(shared, Arc::new(SystemClock))),
        ..EngineConfig::new(store, flows, models, "scripted")
    };
    Engine::start(config).await.expect("it starts")
}

/// Starts two children, and replies when they have ended.
fn parent_flow() -> Arc<dyn DynFlow> {
    let mut spec = FlowSpec::new("parent", "starts children").with_role(worker_role());
    spec.child_flows.insert("worker".into());
    Arc::new(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => ["left", "right"].map(|key| FlowStep::Spawn(child(key))).into(),
        Event::ChildEnded { .. } if view.session.open_children.is_empty() && view.session.current_turn.is_some() => {
            let text = NewOrStoredReplyText::New("done".to_owned());
            vec![FlowStep::Reply { text, role: None, call: None }, FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }))
}

fn child(key: &str) -> SpawnChildSessionRequest {
    SpawnChildSessionRequest {
        flow: "worker".into(),
        key: key.to_owned(),
        title: None,
        settings: Value::Null,
        message: format!("work on {key}"),
        wait_ms: 600_000,
        allotment: None,
    }
}

/// Calls the model once and closes.
fn worker_flow() -> Arc<dyn DynFlow> {
    let spec = FlowSpec::new("worker", "does one thing").with_role(worker_role());
    Arc::new(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
        Event::CallAnswered(_) => {
            vec![FlowStep::EndTurn(TurnOutcome::Done), FlowStep::CloseSession { reason: "the work is done".to_owned() }]
        }
        _ => Vec::new(),
    }))
}

fn worker_role() -> RoleSpec {
    ClosureFlow::speaker_role().visible_to_user(BlockSet::default())
}

async fn key(folder: &TempDir, limits: ApiKeyLimits) -> (String, String) {
    let spec = ApiKeyToCreate { name: "trial".into(), owner: Some("acme".into()), limits, ..Default::default() };
    let (key, secret) = ApiKeyStore::from_folder(folder.path()).create_key(spec, 1).await.expect("made");
    (key.id, secret)
}

fn folder() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

async fn open(tenant: &Tenant<'_>, session: &str, flow: &str) {
    tenant.post("/v1/sessions", json!({"session": session, "flow": flow})).await.expect_json(201);
}

async fn used_tokens(tenant: &Tenant<'_>) -> u64 {
    let report = tenant.get("/v1/usage").await.expect_json(200);
    let key = &report["keys"][0];
    assert_eq!(
        key["cost_microusd"],
        json!(key["input_tokens"].as_u64().expect("n") + key["output_tokens"].as_u64().expect("n"))
    );
    key["cost_microusd"].as_u64().expect("a number")
}

#[tokio::test]
async fn budget_stops_messages_names_the_reset_and_survives_a_restart() {
    let (disk, folder) = (InMemoryStoreDisk::new(), folder());
    let limits = ApiKeyLimits { cost_microusd_per_day: Some(TOKENS_PER_TURN + 1), ..ApiKeyLimits::default() };
    let (_, secret) = key(&folder, limits).await;
    let server = priced_server(&disk, &folder, DEFAULT_SCENARIO).await;
    let tenant = Tenant { server: &server, key: secret.clone() };
    open(&tenant, "fox", "chat").await;
    for used in [1, 2] {
        tenant.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await.expect_json(200);
        assert_eq!(used_tokens(&tenant).await, used * TOKENS_PER_TURN);
    }
    let refused = tenant.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await;
    let seconds: u64 = refused.headers["retry-after"].to_str().expect("text").parse().expect("a number");
    assert!((1..=86_400).contains(&seconds), "{seconds}");
    let problem = refused.expect_json(429);
    assert_eq!(problem["code"], "key-budget-spent");
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.contains("$0.000046 per day") && detail.contains("T00:00:00Z"), "{detail}");
    server.stop().await;

    let server = priced_server(&disk, &folder, DEFAULT_SCENARIO).await;
    let tenant = Tenant { server: &server, key: secret };
    assert_eq!(used_tokens(&tenant).await, 2 * TOKENS_PER_TURN);
    let body = json!({"model": "chat", "messages": [{"role": "user", "content": "hello"}]});
    let refused = tenant.post("/v1/chat/completions", body).await.expect_json(429);
    assert_eq!(refused["error"]["code"], "key-budget-spent", "{refused}");
    let forked = tenant.post("/v1/sessions/fox/fork", json!({})).await;
    assert_eq!(forked.problem_code(429), "key-budget-spent");
    assert_eq!(tenant.get("/v1/sessions/fox/turns").await.status, 200, "reading costs nothing");
}

#[tokio::test]
async fn children_are_paid_for_by_the_key_of_their_parent() {
    let (disk, folder) = (InMemoryStoreDisk::new(), folder());
    let (_, secret) = key(&folder, ApiKeyLimits { tokens_per_day: Some(1_000), ..ApiKeyLimits::default() }).await;
    let server = priced_server(&disk, &folder, DEFAULT_SCENARIO).await;
    let tenant = Tenant { server: &server, key: secret };
    open(&tenant, "boss", "parent").await;
    tenant.post("/v1/sessions/boss/messages", json!({"text": "go"})).await.expect_json(200);
    assert_eq!(used_tokens(&tenant).await, 2 * TOKENS_PER_TURN);
    let all = server.get("/v1/usage").await.expect_json(200);
    assert_eq!(all["keys"][0]["name"], "trial", "the operator sees all keys");
    server.open_session("mine", "chat").await;
    server.send_message("mine", "hello").await;
    assert_eq!(used_tokens(&tenant).await, 2 * TOKENS_PER_TURN, "others pay for themselves");
}

#[tokio::test]
async fn limit_reached_during_a_turn_stops_the_next_call() {
    let (disk, folder) = (InMemoryStoreDisk::new(), folder());
    let (id, secret) = key(&folder, ApiKeyLimits::default()).await;
    let scenario = "[default]\ntext = \"ok\"\nusage = { input = 40, output = 5 }\n";
    let server = priced_server(&disk, &folder, scenario).await;
    let tenant = Tenant { server: &server, key: secret };
    open(&tenant, "fox", "chat").await;
    tenant.post("/v1/sessions/fox/messages", json!({"text": "one"})).await.expect_json(200);
    // The limit is set while the session exists: the engine applies it to every call.
    let limits = ApiKeyLimits { models: Some(BTreeSet::from(["other".into()])), ..ApiKeyLimits::default() };
    ApiKeyStore::from_folder(folder.path()).set_limits(&id, limits).await.expect("set");
    let failed = loop {
        let ended = tenant.post("/v1/sessions/fox/messages", json!({"text": "two"})).await.expect_json(200);
        // The server reads the keys again after a moment.
        if ended["outcome"]["type"] == "failed" {
            break ended;
        }
    };
    let text = failed["outcome"].to_string();
    assert!(text.contains("may not use the model `scripted`"), "{text}");
}

#[tokio::test]
async fn models_named_in_a_request_must_be_allowed() {
    let (disk, folder) = (InMemoryStoreDisk::new(), folder());
    let limits = ApiKeyLimits { models: Some(BTreeSet::from(["other".into()])), ..ApiKeyLimits::default() };
    let (_, secret) = key(&folder, limits).await;
    let server = priced_server(&disk, &folder, DEFAULT_SCENARIO).await;
    let tenant = Tenant { server: &server, key: secret };
    let new = |model: &str| json!({"session": "fox", "flow": "chat", "models": {"assistant": model}});
    let problem = tenant.post("/v1/sessions", new("scripted")).await.expect_json(403);
    assert_eq!((&problem["code"], &problem["allowed_models"]), (&json!("model-not-allowed"), &json!(["other"])));
}

#[tokio::test]
async fn turns_at_once_are_limited_per_key() {
    let (disk, folder) = (InMemoryStoreDisk::new(), folder());
    let (_, secret) = key(&folder, ApiKeyLimits { turns_at_once: Some(1), ..ApiKeyLimits::default() }).await;
    let server = priced_server(&disk, &folder, "[[reply]]\nhang = true\ntext = \"wait\"").await;
    let tenant = Tenant { server: &server, key: secret };
    for session in ["a", "b"] {
        open(&tenant, session, "chat").await;
    }
    let send = |session: &str, text: &str| {
        let path = format!("/v1/sessions/{session}/messages");
        let body = json!({"text": text, "wait": false});
        let tenant = &tenant;
        async move { tenant.post(&path, body).await }
    };
    send("a", "x").await.expect_json(202);
    let problem = send("b", "x").await.expect_json(429);
    assert_eq!(problem["code"], "too-many-turns");
    assert!(problem["detail"].as_str().expect("text").contains("1 turns at once"), "{problem}");
    send("a", "y").await.expect_json(202);
    server.open_session("mine", "chat").await;
    server.post("/v1/sessions/mine/messages", json!({"text": "x", "wait": false})).await.expect_json(202);
    tenant.post("/v1/sessions/a/cancel", json!({})).await.expect_json(200);
    tenant.post("/v1/sessions/a/close", json!({})).await.expect_json(200);
    // The task of a closed session ends a moment later.
    while send("b", "x").await.status != 202 {
        tokio::task::yield_now().await;
    }
}
