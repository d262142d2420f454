//! The engine of each conversation. Every conversation has an engine of its own, with a fixed time, records in memory and
//! a folder of its own, so that conversations do not affect each other and recorded requests do not depend on the day.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use segue_core::flow::FlowSpec;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_domains::SqliteRecordsTool;
use segue_engine::clock::{Clock, PausableTokioClock, SystemClock};
use segue_engine::{Engine, EngineConfig, ModelAssignment, SessionResumePolicy};
use segue_eval::conversation::EvalConversationSpec;
use segue_eval::record::EvalConversationRecord;
use segue_eval::runner::{EVALUATION_TIME_MS, hold_conversation, with_fixed_dates};
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::workspace_tools::WORKSPACE_SETTING;
use segue_models::ModelRegistry;
use segue_store::Store;
use segue_store::memory::InMemoryStore;
use serde_json::json;

use super::eval_progress::EvalProgressDisplay;
use super::eval_workspace::EvalWorkspace;
use crate::cli::EvalArgs;
use crate::config::{Config, RecordedDefinitionLoader};
use crate::model_setup::ModelsWithRoleAssignment;
use crate::setup;
use crate::store_location::{ClusterNodeOptions, StoreLocation};

pub(super) struct EvalEngineFactory<'e> {
    config: &'e Config,
    models: &'e ModelsWithRoleAssignment,
    model: &'e ModelName,
    arguments: &'e EvalArgs,
}

impl<'e> EvalEngineFactory<'e> {
    pub(super) fn new(
        config: &'e Config,
        models: &'e ModelsWithRoleAssignment,
        model: &'e ModelName,
        arguments: &'e EvalArgs,
    ) -> Self {
        Self { config, models, model, arguments }
    }

    /// Holds a conversation. Returns `None` if the user pressed Ctrl-C.
    pub(super) async fn hold_in_new_engine(
        &self,
        conversation: &EvalConversationSpec,
        spec: &FlowSpec,
        display: &mut EvalProgressDisplay,
    ) -> anyhow::Result<Option<EvalConversationRecord>> {
        let session = self.session_name(conversation);
        let kept = self.arguments.keep_sessions.as_deref().map(kept_workspaces_folder);
        let fixture = conversation.workspace.as_ref();
        let workspace =
            fixture.map(|fixture| EvalWorkspace::create(fixture, session.as_str(), kept.as_deref())).transpose()?;
        let engine = self.start_engine(workspace.as_ref()).await?;
        let mut settings = crate::setting_values::parse_settings(spec, &self.arguments.set)?;
        if workspace.is_some() {
            if settings.is_null() {
                settings = json!({});
            }
            settings[WORKSPACE_SETTING] = json!(session);
        }
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
        let failed = || format!("conversation `{}` could not be held", conversation.name);
        let mut record = held.with_context(failed)?;
        if let Some(workspace) = &workspace {
            record.references = workspace.git_references().with_context(failed)?;
        }
        Ok(Some(record))
    }

    fn session_name(&self, conversation: &EvalConversationSpec) -> SessionId {
        // In a store that is kept, a name may exist already.
        match self.arguments.keep_sessions {
            Some(_) => format!("{}-{}", conversation.name, SystemClock.now().0).as_str().into(),
            None => conversation.name.as_str().into(),
        }
    }

    async fn start_engine(&self, workspace: Option<&EvalWorkspace>) -> anyhow::Result<Engine> {
        let store: Arc<dyn Store> = match &self.arguments.keep_sessions {
            Some(file) => StoreLocation::File(file).open(ClusterNodeOptions::default())?,
            None => Arc::new(InMemoryStore::with_own_disk()),
        };
        let domains = self.config.all_domains();
        let domains = ConfiguredDomains::new(domains.iter().map(|domain| with_fixed_dates((**domain).clone())));
        let records = SqliteRecordsTool::in_memory(domains.clone());
        let tools = setup::tool_registry(records, domains.clone());
        let setup = EngineConfig {
            tools: workspace.map_or_else(|| tools.clone(), |workspace| workspace.add_tools(tools.clone())),
            approval_rules: self.config.approval.to_rules(),
            flow_loader: Some(Arc::new(RecordedDefinitionLoader)),
            models: self.models.models.clone(),
            model_assignment: ModelAssignment::new(self.models.models.clone(), self.model.clone()),
            model_limits: setup::engine_model_limits(self.config),
            clock: Arc::new(PausableTokioClock::starting_at(UnixMillis(EVALUATION_TIME_MS))),
            recovery: SessionResumePolicy::OnUse,
            ..EngineConfig::new(
                store,
                self.config.with_flow_files(segue_flows::flows_with_domains(domains)),
                ModelRegistry::new(),
                self.model.as_str(),
            )
        };
        Ok(Engine::start(setup).await?)
    }
}

/// Returns where the folders of kept sessions are: next to their store.
fn kept_workspaces_folder(store: &Path) -> PathBuf {
    let stem = store.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    store.with_file_name(format!("{stem}-folders"))
}
