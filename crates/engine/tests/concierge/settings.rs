//! Valid and invalid settings of a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_engine::{Engine, EngineConfig, SessionOptions};
use segue_models::{ModelRegistry, RehearsalModel};
use segue_store::SessionQuery;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::{Value, json};

async fn engine(settings: Value) -> Engine {
    let store = Arc::new(InMemoryStore::open(&InMemoryStoreDisk::new()));
    let model = Arc::new(RehearsalModel::instant());
    let models =
        ModelRegistry::new().with_model("ant", model.clone()).with_model("bee", model.clone()).with_model("owl", model);
    let base = EngineConfig::new(store, segue_flows::built_in_flows(), models, "ant");
    let settings = BTreeMap::from([("concierge".into(), settings)]);
    Engine::start(EngineConfig { default_settings: settings, ..base }).await.expect("the engine starts")
}

async fn open(engine: &Engine, settings: Value) -> Result<Value, segue_engine::Error> {
    let session =
        engine.open_session(&"concierge".into(), SessionOptions { settings, ..SessionOptions::default() }).await?;
    Ok(engine.load_session(&session).await.expect("it can be read").1.session.settings.as_ref().clone())
}

#[tokio::test(start_paused = true)]
async fn the_default_settings_complete_those_of_a_session() {
    let engine = engine(json!({"quorum": 2, "stance": "decide"})).await;
    assert_eq!(open(&engine, Value::Null).await.expect("valid"), json!({"quorum": 2, "stance": "decide"}));
    let other = open(&engine, json!({"stance": "explore", "mapper": "owl"})).await.expect("valid");
    assert_eq!(other, json!({"quorum": 2, "stance": "explore", "mapper": "owl"}));
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_refused_and_nothing_is_opened() {
    let engine = engine(Value::Null).await;
    let refused = async |settings: Value| {
        let error = open(&engine, settings).await.expect_err("invalid");
        assert_eq!(error.code(), "bad-settings");
        error.to_string()
    };
    let unknown = refused(json!({"qorum": 2})).await;
    assert!(unknown.contains("`qorum` is not a setting; known are `experts`, `samples`"), "{unknown}");
    assert_eq!(
        refused(json!({"quorum": 0, "batch": "never"})).await,
        "invalid settings for the flow `concierge`: `batch`: expected `on_signal` or `every_turn`, found `never`; \
         `quorum`: expected a whole number from 1 to 32, found the number 0"
    );
    let model = refused(json!({"experts": ["ant", {"model": "cat"}]})).await;
    assert!(model.contains("`experts[2].model`") && model.contains("cat") && model.contains("ant"), "{model}");
    assert_eq!(engine.list_sessions(&SessionQuery::newest(9)).await.expect("it can be read").entries.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn models_named_in_the_settings_are_called() {
    let engine =
        engine(json!({"experts": ["bee", {"model": "ant", "samples": 2}], "mapper": "owl", "concierge": "bee"})).await;
    let session = engine.open_session(&"concierge".into(), SessionOptions::default()).await.expect("valid");
    engine.send_and_wait(&session, "rent or buy?".into()).await.expect("it is answered");
    let events = engine.read_events(&session, segue_core::ids::Seq(0), 1_000).await.expect("it can be read");
    let calls: Vec<String> = events
        .iter()
        .filter_map(|recorded| match &recorded.event {
            segue_core::event::Event::CallOpened(opened) => {
                Some(format!("{} {} {}", opened.role, opened.model, opened.sample))
            }
            _ => None,
        })
        .collect();
    assert_eq!(calls, ["expert bee 0", "expert ant 0", "expert ant 1", "mapper owl 0", "concierge bee 0"]);
}
