//! `segue eval`: holds conversations with a model and reports what it is good enough for. What is measured is decided in
//! `segue-eval`; this module chooses models and conversations, shows progress, and keeps the results.

mod eval_progress;
mod eval_report;
mod eval_session;
mod eval_workspace;

use std::path::Path;

use anyhow::{Context, bail};
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, ModelName};
use segue_engine::clock::{Clock, SystemClock};
use segue_eval::conversation::EvalConversationSpec;
use segue_eval::library::built_in_conversations;
use segue_eval::limits::{CONVERSATION_BYTES_MAX, CONVERSATIONS_MAX};
use segue_eval::record::EvalConversationRecord;
use segue_eval::report::ModelEvaluationInFlow;
use segue_eval::results::StoredEvaluationResult;
use segue_flows::workspace_tools::WORKSPACE_SETTING;
use segue_models::ModelBackendKind;

use crate::SilentExit;
use crate::cli::{EvalArgs, GlobalArgs};
use crate::commands::send::EXIT_CODE_INTERRUPTED;
use crate::config::{Config, UserDirs};
use crate::evaluation_results::{load_evaluation_results, save_evaluation_results};
use crate::model_setup::{ModelDiscoveryExtent, ModelsWithRoleAssignment, ResolvedModelSetup, discover_models};
use crate::print::{self, stderr_paint};
use crate::setup::{self, ConfigWithStorePath};
use crate::suggest::suggestion_hint;
use crate::trust::{self, ConfigActionsUsedByCommand};
use eval_progress::EvalProgressDisplay;
use eval_report::ModelEvaluationInAllFlows;
use eval_session::EvalEngineFactory;

pub(crate) async fn run_eval(global: &GlobalArgs, arguments: EvalArgs) -> anyhow::Result<()> {
    let ConfigWithStorePath { mut config, folder_trust, .. } = setup::load_config(global)?;
    let flows = config.flows();
    let conversations = select_conversations(&arguments, &flows)?;
    if arguments.list {
        return eval_report::print_conversations(global, &conversations);
    }
    let needed = if arguments.replay.is_some() {
        ConfigActionsUsedByCommand::DomainServers
    } else {
        ConfigActionsUsedByCommand::Everything
    };
    trust::require_trust(folder_trust.as_ref(), needed)?;
    if arguments.model.len() > 1 && arguments.record.is_some() {
        bail!("a cassette holds the traffic of one model; name one with --model");
    }
    for flow in &flows {
        // Settings are checked before the first call is paid for.
        if conversations.iter().any(|conversation| conversation.flow == flow.spec().name) {
            crate::setting_values::parse_settings(flow.spec(), &arguments.set)?;
        }
    }
    let mut display = EvalProgressDisplay::new(conversations.len());
    let mut evaluations = Vec::new();
    let mut is_interrupted = false;
    for model in evaluated_models(&mut config, &arguments).await? {
        let factory = EvalEngineFactory::new(&config, &model.models, &model.name, &arguments);
        let outcome = evaluate_model(&factory, &flows, &conversations, &mut display).await?;
        is_interrupted = outcome.is_interrupted;
        let evaluation =
            ModelEvaluationInAllFlows { model: model.name, identity: model.identity, flows: outcome.flows };
        if let Some(identity) = evaluation.identity.as_ref().filter(|_| arguments.replay.is_none() && !is_interrupted) {
            save_flow_evaluations(identity, &evaluation.flows)?;
        }
        evaluations.push(evaluation);
        if is_interrupted {
            break;
        }
    }
    display.clear();
    eval_report::print_evaluations(global, &evaluations, is_interrupted)?;
    if is_interrupted { Err(SilentExit(EXIT_CODE_INTERRUPTED).into()) } else { Ok(()) }
}

/// A model to evaluate.
struct ModelToEvaluate {
    name: ModelName,
    /// The model as its provider knows it; `None` for a model that is not real.
    identity: Option<String>,
    models: ModelsWithRoleAssignment,
}

async fn evaluated_models(config: &mut Config, arguments: &EvalArgs) -> anyhow::Result<Vec<ModelToEvaluate>> {
    if let Some(file) = &arguments.replay {
        let (setup, models) = ResolvedModelSetup::load_cassette(file)?;
        let name = setup.default_model().clone();
        return Ok(vec![ModelToEvaluate { identity: setup.provider_model_name(&name), name, models }]);
    }
    for model in &arguments.model {
        setup::set_default_model(config, model)?;
    }
    discover_models(config, ModelDiscoveryExtent::UntilFound).await;
    let mut names: Vec<ModelName> = arguments.model.iter().map(|name| ModelName::from(name.as_str())).collect();
    if names.is_empty() {
        names.push(config.default_model.value.clone());
    }
    let setup = ResolvedModelSetup::from_config(config).await?;
    let mut evaluated = Vec::new();
    for name in names {
        let setup = setup.with_only_model(&name);
        let models = match &arguments.record {
            Some(file) => setup.connect_recording(file)?,
            None => setup.connect()?,
        };
        if models.model_kind(&name) == Some(ModelBackendKind::Rehearsal) {
            let warning =
                "this is the rehearsal model, which gives canned replies; the result says nothing about a real model";
            print::write_stderr_line(&stderr_paint().warning(warning));
        }
        evaluated.push(ModelToEvaluate { identity: setup.provider_model_name(&name), name, models });
    }
    Ok(evaluated)
}

struct ModelEvaluationOutcome {
    flows: Vec<ModelEvaluationInFlow>,
    is_interrupted: bool,
}

/// Holds all conversations with one model, flow by flow.
async fn evaluate_model(
    factory: &EvalEngineFactory<'_>,
    flows: &[std::sync::Arc<dyn DynFlow>],
    conversations: &[EvalConversationSpec],
    display: &mut EvalProgressDisplay,
) -> anyhow::Result<ModelEvaluationOutcome> {
    let mut outcome = ModelEvaluationOutcome { flows: Vec::new(), is_interrupted: false };
    for flow in flows.iter().map(|flow| flow.spec()) {
        let mine: Vec<&EvalConversationSpec> =
            conversations.iter().filter(|conversation| conversation.flow == flow.name).collect();
        if mine.is_empty() {
            continue;
        }
        let mut records: Vec<EvalConversationRecord> = Vec::new();
        for conversation in mine {
            match factory.hold_in_new_engine(conversation, flow, display).await? {
                Some(record) => {
                    display.show_finished(&record);
                    records.push(record);
                }
                None => {
                    outcome.is_interrupted = true;
                    break;
                }
            }
        }
        if !records.is_empty() {
            outcome.flows.push(ModelEvaluationInFlow::from_records(flow.name.as_str(), &records));
        }
        if outcome.is_interrupted {
            break;
        }
    }
    Ok(outcome)
}

/// Returns the built-in conversations and those that the user adds, as far as they are chosen.
fn select_conversations(
    arguments: &EvalArgs,
    flows: &[std::sync::Arc<dyn DynFlow>],
) -> anyhow::Result<Vec<EvalConversationSpec>> {
    let mut all = built_in_conversations();
    for path in &arguments.add {
        all.extend(load_conversations(path)?);
    }
    if all.len() > CONVERSATIONS_MAX {
        bail!("there are {} conversations; at most {CONVERSATIONS_MAX} are allowed", all.len());
    }
    let known_flows: Vec<&FlowName> = flows.iter().map(|flow| &flow.spec().name).collect();
    for conversation in &all {
        if !known_flows.contains(&&conversation.flow) {
            bail!("conversation `{}` is for flow `{}`, which does not exist", conversation.name, conversation.flow);
        }
        let flow = flows.iter().find(|flow| flow.spec().name == conversation.flow);
        let has_setting = flow.is_some_and(|flow| flow.spec().settings.iter().any(|one| one.name == WORKSPACE_SETTING));
        if conversation.workspace.is_some() && !has_setting {
            bail!(
                "conversation `{}` has a `[workspace]`, but flow `{}` does not work in one",
                conversation.name,
                conversation.flow
            );
        }
    }
    for flow in &arguments.flows {
        if !known_flows.iter().any(|known| *known == flow.as_str()) {
            let hint = suggestion_hint(flow, known_flows.iter().map(|known| known.as_str()));
            bail!("there is no flow `{flow}`{hint}");
        }
        if !all.iter().any(|conversation| conversation.flow == *flow.as_str()) {
            bail!("flow `{flow}` has no conversations yet; add your own with --add");
        }
    }
    for name in &arguments.conversation {
        if !all.iter().any(|conversation| conversation.name == *name) {
            let hint = suggestion_hint(name, all.iter().map(|known| known.name.as_str()));
            bail!("there is no conversation `{name}`{hint}");
        }
    }
    let is_chosen = |conversation: &EvalConversationSpec| {
        let has_flow =
            arguments.flows.is_empty() || arguments.flows.iter().any(|flow| conversation.flow == *flow.as_str());
        has_flow && (arguments.conversation.is_empty() || arguments.conversation.contains(&conversation.name))
    };
    all.retain(is_chosen);
    if all.is_empty() {
        bail!("no conversation of these flows has one of these names");
    }
    Ok(all)
}

/// Loads a conversation, or all conversations of a folder, ordered by file name.
fn load_conversations(path: &Path) -> anyhow::Result<Vec<EvalConversationSpec>> {
    let read_error = || format!("cannot read {}", path.display());
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(read_error)?;
        files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>().with_context(read_error)?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
    }
    let load = |file: &std::path::PathBuf| {
        let bytes = std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
        if bytes > CONVERSATION_BYTES_MAX as u64 {
            bail!("{} has {bytes} bytes; the limit is {CONVERSATION_BYTES_MAX}", file.display());
        }
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        EvalConversationSpec::parse(&text).with_context(|| format!("{} is not a valid conversation", file.display()))
    };
    files.iter().map(load).collect()
}

/// Adds results to those in the data folder.
fn save_flow_evaluations(identity: &str, evaluations: &[ModelEvaluationInFlow]) -> anyhow::Result<()> {
    let dirs = UserDirs::from_env();
    let mut results = load_evaluation_results(&dirs)?;
    for evaluation in evaluations {
        results.add(StoredEvaluationResult::new(identity, evaluation, SystemClock.now()));
    }
    save_evaluation_results(&dirs, &results)
}
