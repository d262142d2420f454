//! Several nodes on one store behave like one server: keys, limits and webhooks hold for all of them. Every test runs on the
//! memory store and on PostgreSQL.

use std::sync::Arc;

use segue_engine::SharedState;
use segue_server::{ApiKeyLimits, ApiKeyToCreate, CrossServerSharedState, ServerOptions};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_store::postgres::{PostgresOptions, PostgresStore};
use segue_store::{Store, StoreClock};
use segue_testkit::TemporaryPostgres;
use serde_json::{Value, json};

use crate::key_limits::{TOKENS_PER_TURN, priced_engine_on};
use crate::keys::Tenant;
use crate::test_server::{DEFAULT_SCENARIO, TestServer};
use crate::webhooks::{receiver, with_secret_and_short_delays};

const LEASE_MS: u64 = 10_000;
const HANGING_SCENARIO: &str = "[[reply]]\nhang = true\ntext = \"wait\"";

/// What several nodes share.
enum SharedStore {
    Memory(InMemoryStoreDisk),
    Postgres { url: String, clock: StoreClock },
}

/// A node that can be killed.
struct Node {
    server: TestServer,
    shared: CrossServerSharedState,
    store: Arc<dyn Store>,
}

impl SharedStore {
    fn memory() -> Self {
        Self::Memory(InMemoryStoreDisk::with_expiring_leases(LEASE_MS))
    }

    fn postgres() -> Self {
        Self::Postgres { url: TemporaryPostgres::shared().create_database(), clock: StoreClock::system() }
    }

    /// Moves the clock of the store forward.
    fn advance_ms(&self, ms: u64) {
        match self {
            Self::Memory(disk) => disk.clock().advance_ms(ms),
            Self::Postgres { clock, .. } => clock.advance_ms(ms),
        }
    }

    async fn start_node(&self, scenario: &str, change: impl FnOnce(&mut ServerOptions)) -> Node {
        match self {
            Self::Memory(disk) => start_node(Arc::new(InMemoryStore::open(disk)), scenario, change).await,
            Self::Postgres { url, clock } => {
                let options =
                    PostgresOptions { lease_ms: LEASE_MS, clock: Some(clock.clone()), ..PostgresOptions::default() };
                let store = PostgresStore::open_with_options(url, &options).expect("opens");
                start_node(Arc::new(store), scenario, change).await
            }
        }
    }
}

async fn start_node<S>(store: Arc<S>, scenario: &str, change: impl FnOnce(&mut ServerOptions)) -> Node
where
    S: Store + SharedState + 'static,
{
    let shared = CrossServerSharedState::from_store(store.clone());
    let engine = priced_engine_on(store.clone(), &shared, scenario).await;
    // Nothing is stored here.
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let options = shared.clone();
    let server = TestServer::with_engine(engine, &InMemoryStoreDisk::new(), folder, |server| {
        server.shared = options;
        change(server);
    })
    .await;
    Node { server, shared, store }
}

impl Node {
    fn tenant(&self, secret: &str) -> Tenant<'_> {
        Tenant { server: &self.server, key: secret.to_owned() }
    }

    /// Creates a key, as `segue keys add` does. Returns its id and the key itself.
    async fn create_key(&self, limits: ApiKeyLimits) -> (String, String) {
        let spec = ApiKeyToCreate { name: "trial".into(), limits, ..ApiKeyToCreate::default() };
        let (key, secret) = self.shared.keys().create_key(spec, 1).await.expect("made");
        (key.id, secret)
    }
}

async fn open_session(tenant: &Tenant<'_>, session: &str) {
    tenant.post("/v1/sessions", json!({"session": session, "flow": "chat"})).await.expect_json(201);
}

async fn send_message(tenant: &Tenant<'_>, session: &str, body: Value) -> crate::test_server::HttpResponse {
    tenant.post(&format!("/v1/sessions/{session}/messages"), body).await
}

/// Runs each test on both stores.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::SharedStore::memory()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::SharedStore::postgres()).await;
            })*
        }
    };
}

on_both_stores!(
    key_works_at_every_node_and_a_revoked_one_at_none,
    requests_per_minute_are_limited_for_all_nodes_together,
    budget_is_limited_for_all_nodes_together,
    turns_at_once_are_limited_for_all_nodes_together,
    webhook_is_delivered_by_one_node_and_by_the_next_if_it_dies,
);

async fn key_works_at_every_node_and_a_revoked_one_at_none(store: SharedStore) {
    let (a, b) = (store.start_node(DEFAULT_SCENARIO, |_| {}).await, store.start_node(DEFAULT_SCENARIO, |_| {}).await);
    // Both nodes have read the keys before there were any.
    for node in [&a, &b] {
        assert_eq!(node.tenant("sg_000000000000_00").get("/v1/sessions").await.status, 401);
    }
    let (id, secret) = a.create_key(ApiKeyLimits::default()).await;
    for node in [&a, &b] {
        while node.tenant(&secret).get("/v1/sessions").await.status != 200 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(b.shared.keys().revoke_key(&id).await.expect("revoked").id, id);
    for node in [&a, &b] {
        while node.tenant(&secret).get("/v1/sessions").await.status != 401 {
            tokio::task::yield_now().await;
        }
    }
}

async fn requests_per_minute_are_limited_for_all_nodes_together(store: SharedStore) {
    let (a, b) = (store.start_node(DEFAULT_SCENARIO, |_| {}).await, store.start_node(DEFAULT_SCENARIO, |_| {}).await);
    let (_, secret) = a.create_key(ApiKeyLimits { requests_per_minute: Some(4), ..ApiKeyLimits::default() }).await;
    let (mut accepted, mut refused) = (0, Vec::new());
    for node in [&a, &b].into_iter().cycle().take(16) {
        let response = node.tenant(&secret).get("/v1/sessions").await;
        match response.status.as_u16() {
            200 => accepted += 1,
            _ => refused.push(response.problem_code(429)),
        }
    }
    // One more is allowed every 15 seconds, should the test take that long.
    assert!((4..=8).contains(&accepted), "{accepted}");
    assert!(refused.iter().all(|code| code == "too-many-requests"), "{refused:?}");
    store.advance_ms(60_000);
    while a.tenant(&secret).get("/v1/sessions").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

async fn budget_is_limited_for_all_nodes_together(store: SharedStore) {
    let (a, b) = (store.start_node(DEFAULT_SCENARIO, |_| {}).await, store.start_node(DEFAULT_SCENARIO, |_| {}).await);
    let limits = ApiKeyLimits { cost_microusd_per_day: Some(TOKENS_PER_TURN + 1), ..ApiKeyLimits::default() };
    let (_, secret) = a.create_key(limits).await;
    for (node, session) in [(&a, "fox"), (&b, "hen")] {
        let tenant = node.tenant(&secret);
        open_session(&tenant, session).await;
        send_message(&tenant, session, json!({"text": "hello"})).await.expect_json(200);
    }
    for (node, session) in [(&a, "fox"), (&b, "hen"), (&a, "hen")] {
        let refused = send_message(&node.tenant(&secret), session, json!({"text": "hello"})).await;
        assert_eq!(refused.problem_code(429), "key-budget-spent");
    }
    for node in [&a, &b] {
        let report = node.tenant(&secret).get("/v1/usage").await.expect_json(200);
        assert_eq!(report["keys"][0]["cost_microusd"], 2 * TOKENS_PER_TURN);
    }
    let (_, other) = b.create_key(ApiKeyLimits::default()).await;
    // The node knows the new key after a moment.
    while send_message(&b.tenant(&other), "hen", json!({"text": "hello"})).await.status != 200 {
        tokio::task::yield_now().await;
    }
    let report = b.tenant(&secret).get("/v1/usage").await.expect_json(200);
    assert_eq!(report["keys"][0]["cost_microusd"], 2 * TOKENS_PER_TURN, "another key paid");
}

async fn turns_at_once_are_limited_for_all_nodes_together(store: SharedStore) {
    let (a, b) = (store.start_node(HANGING_SCENARIO, |_| {}).await, store.start_node(HANGING_SCENARIO, |_| {}).await);
    let (_, secret) = a.create_key(ApiKeyLimits { turns_at_once: Some(1), ..ApiKeyLimits::default() }).await;
    let (at_a, at_b) = (a.tenant(&secret), b.tenant(&secret));
    open_session(&at_a, "fox").await;
    open_session(&at_b, "hen").await;
    let message = || json!({"text": "x", "wait": false});
    send_message(&at_a, "fox", message()).await.expect_json(202);
    let problem = send_message(&at_b, "hen", message()).await.expect_json(429);
    assert_eq!(problem["code"], "too-many-turns");
    assert!(problem["detail"].as_str().expect("text").contains("1 turns at once"), "{problem}");
    at_a.post("/v1/sessions/fox/cancel", json!({})).await.expect_json(200);
    at_a.post("/v1/sessions/fox/close", json!({})).await.expect_json(200);
    while send_message(&at_b, "hen", message()).await.status != 202 {
        tokio::task::yield_now().await;
    }
}

async fn webhook_is_delivered_by_one_node_and_by_the_next_if_it_dies(store: SharedStore) {
    let a = store.start_node(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    let mut receiver = receiver(0).await;
    let hook = json!({"url": receiver.url, "events": ["reply_sent"]});
    a.server.post("/v1/webhooks", hook).await.expect_json(201);
    a.server.open_session("fox", "chat").await;
    a.server.send_message("fox", "one").await;
    // This node delivers.
    assert!(receiver.next().await.1.to_string().contains("You said: one"));
    let b = store.start_node(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    assert_eq!(b.server.get("/v1/webhooks").await.expect_json(200)["webhooks"].as_array().map(Vec::len), Some(1));
    b.server.open_session("hen", "chat").await;
    for text in ["two", "three", "four"] {
        b.server.send_message("hen", text).await;
        // A second delivery of an event would arrive before the next event.
        let (headers, body) = receiver.deliveries.recv().await.expect("a delivery");
        assert!(body.contains(&format!("You said: {text}")), "{body}");
        assert!(receiver.seen.insert(headers["webhook-id"].clone()), "{body}");
    }
    // The node dies: it can neither read nor write, and does not free what it holds.
    a.store.close().await.expect("closed");
    store.advance_ms(LEASE_MS + 1_000);
    b.server.send_message("hen", "five").await;
    // What the dead node did not save as delivered may arrive again. It has the same id, so it is skipped here.
    let (_, event, _) = receiver.next().await;
    assert!(event.to_string().contains("You said: five"), "{event}");
}
