//! What a caller configures: the engine, a new session, and a message.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::context::TokenCounter;
use segue_core::decide::SessionInput;
use segue_core::event::{ClientTurnOptions, MidTurnPolicy};
use segue_core::flow::{DynFlow, OperatorToolApprovalRules};
use segue_core::ids::{FlowName, IdempotencyKey, ModelName, RoleName, SessionId};
use segue_core::prompt::PromptImage;
use segue_models::ModelRegistry;
use segue_store::Store;
use serde_json::Value;

use crate::call_policy::{AllowAllCallPolicy, CallPolicy};
use crate::clock::{Clock, SystemClock};
use crate::limits::DRAIN_MS_MAX;
use crate::live_updates::CrossNodeSessionUpdateSource;
use crate::model_assignment::ModelAssignment;
use crate::placement::SessionPlacement;
use crate::random::RandomSource;
use crate::rate_limit::ModelCallLimits;
use crate::session_flow::RecordedFlowLoader;
use crate::token_counter::O200kTokenCounter;
use crate::tools::ToolRegistry;

/// The configuration of an engine.
pub struct EngineConfig {
    /// Where journals are stored.
    pub store: Arc<dyn Store>,
    /// The flows that sessions can run.
    pub flows: Vec<Arc<dyn DynFlow>>,
    /// Builds the flows of sessions that recorded a definition of their own.
    pub flow_loader: Option<Arc<dyn RecordedFlowLoader>>,
    pub models: Arc<ModelRegistry>,
    /// Which model plays each role.
    pub model_assignment: ModelAssignment,
    pub tools: ToolRegistry,
    /// The operator's rules about tool runs that wait for approval, in addition to what the flows declare.
    pub approval_rules: OperatorToolApprovalRules,
    /// Limits on the calls to each model.
    pub model_limits: BTreeMap<ModelName, ModelCallLimits>,
    /// Settings of new sessions, by flow; a session's own settings override them.
    pub default_settings: BTreeMap<FlowName, Value>,
    /// Decides which calls are allowed, and receives what they used.
    pub call_policy: Arc<dyn CallPolicy>,
    /// Decides which sessions this process may hold; all if absent.
    pub placement: Option<Arc<dyn SessionPlacement>>,
    pub clock: Arc<dyn Clock>,
    pub random: RandomSource,
    pub token_counter: Arc<dyn TokenCounter + Send + Sync>,
    pub recovery: SessionResumePolicy,
    /// How live words of sessions that another node holds are received, if at all.
    pub live_updates: Option<Arc<dyn CrossNodeSessionUpdateSource>>,
    /// Longest wait, at shutdown, for the results of what is running. What is unfinished then is left to recovery.
    pub drain_ms_max: u64,
}

/// When an engine resumes sessions with pending work that a process left unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionResumePolicy {
    /// At once, for every session.
    #[default]
    Immediate,
    /// When a session is used.
    OnUse,
    /// Never. Inputs are recorded, but no effect is started; that is left to another engine.
    Never,
}

impl EngineConfig {
    /// Creates a configuration with the system clock, no tools, `model` for every role, and immediate recovery.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, flows: Vec<Arc<dyn DynFlow>>, models: ModelRegistry, model: &str) -> Self {
        let models = Arc::new(models);
        Self {
            store,
            flows,
            flow_loader: None,
            model_assignment: ModelAssignment::new(models.clone(), model.into()),
            models,
            tools: ToolRegistry::default(),
            approval_rules: OperatorToolApprovalRules::default(),
            model_limits: BTreeMap::new(),
            default_settings: BTreeMap::new(),
            call_policy: Arc::new(AllowAllCallPolicy),
            placement: None,
            clock: Arc::new(SystemClock),
            random: RandomSource::from_entropy(),
            token_counter: Arc::new(O200kTokenCounter),
            recovery: SessionResumePolicy::default(),
            live_updates: None,
            drain_ms_max: DRAIN_MS_MAX,
        }
    }
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Options for a new session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Its name; generated if absent.
    pub session: Option<SessionId>,
    /// Its title; if absent, the beginning of the first message.
    pub title: Option<String>,
    /// What happens to a message that arrives during a turn.
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for this session; they override the engine's default settings one by one.
    pub settings: Value,
    /// Models for roles of this session; they override the engine's model assignment.
    pub role_models: BTreeMap<RoleName, ModelName>,
}

/// Returns the session's settings, completed by the engine's default settings.
pub(crate) fn merge_settings(defaults: Option<&Value>, settings: Value) -> Value {
    match (defaults, settings) {
        (Some(Value::Object(defaults)), Value::Object(settings)) => {
            let mut merged = defaults.clone();
            merged.extend(settings);
            Value::Object(merged)
        }
        (Some(defaults), Value::Null) => defaults.clone(),
        (_, settings) => settings,
    }
}

/// A message from the user.
#[derive(Debug, Clone)]
pub struct UserMessage {
    pub text: String,
    /// Chosen by the client; a second message with the same key counts as the same message.
    pub idempotency_key: Option<IdempotencyKey>,
    /// What happens if the message arrives during a turn; the session's policy if absent.
    pub mid_turn_policy: Option<MidTurnPolicy>,
    pub images: Vec<PromptImage>,
    /// The tools and the output format that the client brings. Such a message follows the session's policy.
    pub options: ClientTurnOptions,
}

impl From<UserMessage> for SessionInput {
    fn from(message: UserMessage) -> Self {
        let UserMessage { text, idempotency_key, mid_turn_policy, images, options } = message;
        if options.is_empty() {
            return Self::Message { text, idempotency_key, mid_turn_policy, images };
        }
        Self::ClientMessage { text, idempotency_key, images, options }
    }
}

impl From<&str> for UserMessage {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for UserMessage {
    fn from(text: String) -> Self {
        let options = ClientTurnOptions::default();
        Self { text, idempotency_key: None, mid_turn_policy: None, images: Vec::new(), options }
    }
}

/// Returns a message for each setting that does not fit the flow. Does not check whether the named models exist.
pub(crate) fn describe_invalid_settings(flow: &dyn DynFlow, settings: &Value) -> Vec<String> {
    let problems: Vec<String> = flow.spec().invalid_settings(settings).iter().map(ToString::to_string).collect();
    if problems.is_empty() { flow.validate_settings(settings) } else { problems }
}
