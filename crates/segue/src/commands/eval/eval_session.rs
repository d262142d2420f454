//! The engine of each conversation. Every conversation has an engine of its own, with a fixed time and records in
//! memory, so that conversations do not affect each other and recorded requests do not depend on the day.

use std::sync::Arc;

use anyhow::Context;
use segue_core::flow::FlowSpec;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_domains::SqliteRecordsTool;
use segue_engine::clock::TokioClock;
use segue_engine::{Engine, EngineConfig, ModelAssignment, SessionResumePolicy};
use segue_eval::conversation::EvalConversation;
use segue_eval::record::ConversationRecord;
use segue_eval::runner::{EVALUATION_TIME_MS, hold_conversation, with_fixed_dates};
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_models::ModelRegistry;
use segue_store::Store;
use segue_store::memory::InMemoryStore;

use super::eval_progress::EvalProgressDisplay;
use crate::cli::EvalArgs;
use crate::config::Config;
use crate::model_setup::ConfiguredModels;
use crate::setup;
use crate::store_location::{ClusterNodeOptions, StoreLocation};

pub(super) struct EvalEngineFactory<'e> {
    config: &'e Config,
    models: &'e ConfiguredModels,
    model: &'e ModelName,
    arguments: &'e EvalArgs,
}

impl<'e> EvalEngineFactory<'e> {
    pub(super) fn new(
        config: &'e Config,
        models: &'e ConfiguredModels,
        model: &'e ModelName,
        arguments: &'e EvalArgs,
    ) -> Self {
        Self { config, models, model, arguments }
    }

    /// Holds a conversation. Returns `None` if the user pressed Ctrl-C.
    pub(super) async fn hold_in_new_engine(
        &self,
        conversation: &EvalConversation,
        spec: &FlowSpec,
        display: &mut EvalProgressDisplay,
    ) -> anyhow::Result<Option<ConversationRecord>> {
        let engine = self.start_engine().await?;
        let settings = crate::setting_values::parse_settings(spec, &self.arguments.set)?;
        let session = self.session_name(&engine, conversation);
        display.start_conversation(self.model, conversation);
        let held = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => None,
            held = async {
                let held = hold_conversation(&engine, conversation, session, &settings, |progress| {
                    display.show_turn(&progress);
                });
                held.await
            } => Some(held),
        };
        let Some(held) = held else {
            // The error may be dropped: the sessions of an interrupted evaluation are not used.
            let _ = engine.store().close().await;
            return Ok(None);
        };
        engine.shutdown().await;
        held.map(Some).with_context(|| format!("conversation `{}` could not be held", conversation.name))
    }

    fn session_name(&self, engine: &Engine, conversation: &EvalConversation) -> SessionId {
        // In a store that is kept, a name may exist already.
        match self.arguments.keep_sessions {
            Some(_) => format!("{}-{}", conversation.name, engine.generate_session_name()).into(),
            None => conversation.name.as_str().into(),
        }
    }

    async fn start_engine(&self) -> anyhow::Result<Engine> {
        let store: Arc<dyn Store> = match &self.arguments.keep_sessions {
            Some(file) => StoreLocation::File(file).open(ClusterNodeOptions::default())?,
            None => Arc::new(InMemoryStore::with_own_disk()),
        };
        let domains = self.config.all_domains();
        let domains = ConfiguredDomains::new(domains.iter().map(|domain| with_fixed_dates((**domain).clone())));
        let records = SqliteRecordsTool::in_memory(domains.clone());
        let setup = EngineConfig {
            tools: setup::tool_registry(records, domains.clone()),
            models: self.models.models.clone(),
            model_assignment: ModelAssignment::new(self.models.models.clone(), self.model.clone()),
            model_limits: setup::engine_model_limits(self.config),
            clock: Arc::new(TokioClock::starting_at(UnixMillis(EVALUATION_TIME_MS))),
            recovery: SessionResumePolicy::OnUse,
            ..EngineConfig::new(
                store,
                segue_flows::flows_with_domains(domains),
                ModelRegistry::new(),
                self.model.as_str(),
            )
        };
        Ok(Engine::start(setup).await?)
    }
}
