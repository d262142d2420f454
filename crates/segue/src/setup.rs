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
}

/// Starts an engine as configured.
pub async fn start(global: &Global) -> anyhow::Result<Running> {
    let path = global.store.clone().unwrap_or_else(|| "segue.db".into());
    let store = SqliteStore::open(&path).with_context(|| format!("cannot open the store {}", path.display()))?;
    let models = Models::only(Arc::new(Rehearsal::default()));
    let engine = Engine::start(Setup::new(Arc::new(store), segue_flows::all(), models, "rehearsal")).await?;
    Ok(Running { engine, rehearsal: true })
}
