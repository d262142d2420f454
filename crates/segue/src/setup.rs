//! From configuration to a running engine.

use std::sync::Arc;

use anyhow::Context;
use segue_engine::{Engine, Setup};
use segue_models::{Models, Rehearsal};
use segue_store::sqlite::SqliteStore;

use crate::cli::Global;

/// A running engine, and whether its model is only a rehearsal.
pub struct Running {
    pub engine: Engine,
    /// Whether no real model is configured, so that the rehearsal model plays every role. Must be shown to the user.
    pub rehearsal: bool,
    /// The flow of a new session, where the user names none.
    pub flow: segue_core::ids::FlowName,
    /// What happens to a message that arrives while a turn runs, in a new session.
    pub busy: segue_core::event::Busy,
}

/// How an engine is to be started.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Start<'s> {
    /// Every role is played from this scenario.
    pub script: Option<&'s std::path::Path>,
}

/// Starts an engine as configured.
pub async fn start_with(global: &Global, start: Start<'_>) -> anyhow::Result<Running> {
    let path = global.store.clone().unwrap_or_else(|| "segue.db".into());
    let store = SqliteStore::open(&path).with_context(|| format!("cannot open the store {}", path.display()))?;
    let (models, name) = match start.script {
        Some(path) => (Models::only(Arc::new(scripted(path)?)), "scripted"),
        None => (Models::only(Arc::new(Rehearsal::default())), "rehearsal"),
    };
    let engine = Engine::start(Setup::new(Arc::new(store), segue_flows::all(), models, name)).await?;
    Ok(Running {
        engine,
        rehearsal: start.script.is_none(),
        flow: "chat".into(),
        busy: segue_core::event::Busy::default(),
    })
}

fn scripted(path: &std::path::Path) -> anyhow::Result<segue_models::Scripted> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the scenario {}", path.display()))?;
    text.parse().with_context(|| format!("the scenario {} has a mistake", path.display()))
}
