//! Whether everything is in order: configuration, store, models, roles, and what is left to be done.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::ids::{CallId, ModelName};
use segue_core::prompt::{ChatRole, OutputFormat, Prompt, PromptMessage};
use segue_domains::{McpServersTool, SqliteRecordsTool};
use segue_models::catalog::ModelCatalog;
use segue_models::{CallMetadata, ModelCard, ModelRequest, ModelSource, PromptCaching, collect_reply};
use segue_store::sqlite::SqliteStore;
use segue_store::{PendingWork, Store};
use serde_json::json;

use crate::SilentExit;
use crate::cli::{DoctorArgs, GlobalArgs};
use crate::config::{Config, ModelConfigKind, REHEARSAL_MODEL_NAME, ValueOrigin};
use crate::limits::{NAMES_SHOWN_MAX, TRIAL_CALL_MS_MAX, TRIAL_REPLY_CHARS_MAX};
use crate::model_setup::{AssignedModels, DiscoveryScope, ResolvedModel, ResolvedModelSetup, discover_models};
use crate::print::text::to_single_line;
use crate::print::{self, RenderOptions, number_format, paint::Paint};
use crate::setup::{self, LoadedConfig};

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Passed,
    Warning,
    Failed,
}

impl CheckStatus {
    fn label(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "note",
            Self::Failed => "broken",
        }
    }

    fn colored_label(self, paint: Paint) -> String {
        let word = format!("{:<6}", self.label());
        match self {
            Self::Passed => paint.success(word),
            Self::Warning => paint.warning(word),
            Self::Failed => paint.error(word),
        }
    }
}

#[derive(Debug)]
struct DoctorFinding {
    subject: &'static str,
    status: CheckStatus,
    detail: String,
}

#[derive(Debug, Default)]
struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    fn add_finding(&mut self, about: &'static str, status: CheckStatus, detail: impl Into<String>) {
        self.0.push(DoctorFinding { subject: about, status, detail: detail.into() });
    }

    fn has_failures(&self) -> bool {
        self.0.iter().any(|finding| finding.status == CheckStatus::Failed)
    }
}

pub async fn run_doctor(global: &GlobalArgs, arguments: &DoctorArgs) -> anyhow::Result<()> {
    let mut findings = DoctorReport::default();
    match setup::load_config(global) {
        Ok(mut loaded) => {
            let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
            findings.add_finding(
                "config",
                CheckStatus::Passed,
                file.unwrap_or_else(|| "no file; defaults hold".to_owned()),
            );
            check_store(&loaded.store_path.value, &mut findings).await;
            check_records(&loaded, &mut findings);
            check_tool_servers(&loaded.config, &mut findings).await;
            discover_models(&mut loaded.config, DiscoveryScope::Everywhere).await;
            check_model_setup(&loaded.config, arguments, &mut findings).await;
        }
        Err(error) => findings.add_finding("config", CheckStatus::Failed, format_error_chain(&error)),
    }
    if global.json {
        let checks: Vec<_> = findings
            .0
            .iter()
            .map(|found| json!({ "about": found.subject, "status": found.status.label(), "detail": found.detail }))
            .collect();
        print::print_json(&json!({ "ok": !findings.has_failures(), "checks": checks }))?;
    } else {
        let screen = RenderOptions::for_stdout();
        for DoctorFinding { subject: about, status, detail } in &findings.0 {
            let about = screen.paint.dim(format!("{about:<9}"));
            print::write_stdout(&format!(
                "{} {about} {}\n",
                status.colored_label(screen.paint),
                to_single_line(detail)
            ))?;
        }
    }
    if findings.has_failures() { Err(SilentExit(1).into()) } else { Ok(()) }
}

fn format_error_chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn check_store(path: &Path, findings: &mut DoctorReport) {
    let shown = path.display();
    let bytes = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.add_finding("store", CheckStatus::Passed, format!("{shown}, which is made at first use"));
            return;
        }
        Err(error) => {
            findings.add_finding("store", CheckStatus::Failed, format!("{shown}: {error}"));
            return;
        }
    };
    let store = match SqliteStore::open(path) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            findings.add_finding("store", CheckStatus::Failed, error.to_string());
            return;
        }
    };
    match store.check_integrity().await {
        Ok(report) => {
            let status = if report.is_clean() { CheckStatus::Passed } else { CheckStatus::Failed };
            let sessions = number_format::format_plural(report.session_count as u64, "session");
            findings.add_finding(
                "store",
                status,
                format!("{shown}: {}, {sessions} read", number_format::format_bytes(bytes)),
            );
            for (session, detail) in report.damaged_sessions {
                findings.add_finding("session", CheckStatus::Failed, format!("{session}: {detail}"));
            }
            for complaint in report.store_problems {
                findings.add_finding("store", CheckStatus::Failed, complaint);
            }
        }
        Err(error) => findings.add_finding("store", CheckStatus::Failed, error.to_string()),
    }
    match store.sessions_with_pending_work().await {
        Ok(owing) => {
            let now: Vec<String> = owing
                .iter()
                .filter(|(_, owes)| *owes == PendingWork::Now)
                .map(|(session, _)| session.to_string())
                .collect();
            if !now.is_empty() {
                let mut names = now.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
                if now.len() > NAMES_SHOWN_MAX {
                    names.push_str(", …");
                }
                let sessions = number_format::format_plural(now.len() as u64, "session");
                let detail = format!("{sessions} with an unfinished turn, taken up when used next: {names}");
                findings.add_finding("owed", CheckStatus::Warning, detail);
            }
        }
        Err(error) => findings.add_finding("owed", CheckStatus::Failed, error.to_string()),
    }
    // Nothing is queued there.
    let _ = store.close().await;
}

fn check_records(loaded: &LoadedConfig, findings: &mut DoctorReport) {
    let (path, domains) = (loaded.config.records_path(&loaded.store_path).value, loaded.config.all_domains());
    let names: Vec<String> = domains.iter().map(|domain| domain.name.clone()).collect();
    let named = format!("{} ({})", path.display(), names.join(", "));
    if !path.exists() {
        return findings.add_finding("records", CheckStatus::Passed, format!("{named}, which is made at first use"));
    }
    match SqliteRecordsTool::in_file(&path, domains).check_database() {
        Ok(()) => findings.add_finding("records", CheckStatus::Passed, named),
        Err(error) => findings.add_finding("records", CheckStatus::Failed, error.to_string()),
    }
}

/// Servers whose tools are somebody's domain: each is asked what it has.
async fn check_tool_servers(config: &Config, findings: &mut DoctorReport) {
    let domains = config.all_domains();
    let remote = McpServersTool::new(domains.clone());
    for domain in domains.iter().filter(|domain| domain.server.is_some()) {
        match remote.check_server(domain).await {
            Ok(tools) => {
                let tools = number_format::format_plural(tools as u64, "tool");
                findings.add_finding(
                    "server",
                    CheckStatus::Passed,
                    format!("that of `{}` answers and has {tools}", domain.name),
                );
            }
            Err(why) => findings.add_finding("server", CheckStatus::Failed, format!("domain `{}`: {why}", domain.name)),
        }
    }
}

async fn check_model_setup(config: &Config, arguments: &DoctorArgs, findings: &mut DoctorReport) {
    check_discovered_models(config, findings);
    let sheet = match ResolvedModelSetup::from_config(config).await {
        Ok(sheet) => sheet,
        Err(error) => return findings.add_finding("models", CheckStatus::Failed, format_error_chain(&error)),
    };
    let cast = match sheet.connect() {
        Ok(cast) => cast,
        Err(error) => return findings.add_finding("models", CheckStatus::Failed, format_error_chain(&error)),
    };
    let flows = config.flows();
    let parts = || {
        flows
            .iter()
            .map(|rules| rules.spec())
            .flat_map(|spec| cast.role_models(spec).into_iter().map(move |part| (spec, part)))
    };
    let used: BTreeSet<ModelName> = parts().flat_map(|(_, part)| [Some(part.model), part.fallback]).flatten().collect();
    for (name, model, card) in cast.models.iter() {
        let member = sheet.models.get(name);
        let (status, detail) = describe_model(&model.describe().label, card, member, used.contains(name));
        findings.add_finding("model", status, format!("{name}: {detail}"));
    }
    let mut rehearsed = Vec::new();
    for (spec, part) in parts() {
        let place = part.phase.map(|phase| format!(" in {phase}")).unwrap_or_default();
        let fallback = part.fallback.map(|model| format!(", or else {model}")).unwrap_or_default();
        let (flow, role, model) = (&spec.name, &part.role, &part.model);
        findings.add_finding("role", CheckStatus::Passed, format!("{flow}/{role}{place}: {model}{fallback}"));
        match cast.model_source(model) {
            Some(ModelSource::Rehearsal) => rehearsed.push(format!("{flow}/{role}")),
            Some(ModelSource::Vendor | ModelSource::Scripted) => {}
            None => findings.add_finding("role", CheckStatus::Failed, format!("there is no model `{model}`")),
        }
    }
    if !rehearsed.is_empty() {
        let detail = format!("a rehearsal model, which only pretends, plays {}", rehearsed.join(", "));
        findings.add_finding("rehearsal", CheckStatus::Warning, detail);
    }
    if arguments.call_models {
        call_each_model(&cast, &used, findings).await;
    }
}

/// What was found without being configured.
fn check_discovered_models(config: &Config, findings: &mut DoctorReport) {
    let found = config.models.iter().filter(|(_, model)| model.origin == ValueOrigin::Discovered);
    let by = |model: &ModelConfigKind| match model {
        ModelConfigKind::Vendor(wanted) => Some(wanted.provider.clone()),
        ModelConfigKind::Rehearsal { .. } | ModelConfigKind::Scripted { .. } => None,
    };
    let mut providers: Vec<String> = found.filter_map(|(_, model)| by(&model.value.kind)).collect();
    providers.dedup();
    providers.sort();
    providers.dedup();
    if !providers.is_empty() {
        findings.add_finding(
            "found",
            CheckStatus::Passed,
            format!("{} (by their keys, or on this machine)", providers.join(", ")),
        );
    } else if config.default_model.value == REHEARSAL_MODEL_NAME {
        let keys =
            config.catalog.providers_by_rank().into_iter().filter_map(|(_, provider)| provider.key_env_vars.first());
        let keys: Vec<&str> = keys.map(String::as_str).take(3).collect();
        let detail = match provider_without_default_model(&config.catalog, &crate::model_setup::read_env_var) {
            Some((provider, key)) => {
                format!("{key} is set, and {provider} serves many models: say which, such as `--model {provider}/NAME`")
            }
            None => {
                format!("no model: set a key such as {}, start Ollama, or name a model in segue.toml", keys.join(", "))
            }
        };
        findings.add_finding("found", CheckStatus::Warning, detail);
    }
}

/// A provider whose key is set and of which nobody said which model is meant.
fn provider_without_default_model(
    catalog: &ModelCatalog,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let is_set = |name: &&String| env(name).is_some_and(|key| !key.trim().is_empty());
    let many = catalog.providers_by_rank().into_iter().filter(|(_, provider)| provider.default_model.is_none());
    many.filter_map(|(name, provider)| Some((name.to_owned(), provider.key_env_vars.iter().find(is_set)?.clone())))
        .next()
}

/// A model in a line, and whether it can be used.
fn describe_model(
    label: &str,
    card: ModelCard,
    member: Option<&ResolvedModel>,
    is_used: bool,
) -> (CheckStatus, String) {
    let mut detail = format!("{label}, {} tokens", number_format::format_count(u64::from(card.window_tokens)));
    let mut status = CheckStatus::Passed;
    if let Some(ResolvedModel::Vendor { is_window_assumed: true, .. }) = member {
        detail.push_str(" (assumed; `window_tokens` says better)");
    }
    if card.price.is_none() {
        detail.push_str(", price unknown");
    }
    if let Some((env, is_set)) = member.and_then(ResolvedModel::api_key_env) {
        if is_set {
            detail.push_str(&format!(", key from {env}"));
        } else {
            detail.push_str(&format!(", and no key: {env} is not set"));
            status = if is_used { CheckStatus::Failed } else { CheckStatus::Warning };
        }
    }
    (status, detail)
}

/// Makes one short call to each real model that plays somebody.
async fn call_each_model(cast: &AssignedModels, used: &BTreeSet<ModelName>, findings: &mut DoctorReport) {
    for name in used.iter().filter(|name| cast.model_source(name) == Some(ModelSource::Vendor)) {
        let Ok(model) = cast.models.get(name) else { continue };
        let started = Instant::now();
        let most = Duration::from_millis(TRIAL_CALL_MS_MAX);
        let tried = tokio::time::timeout(most, collect_reply(model.stream(trial_request(name)), |_| {})).await;
        let took = number_format::format_duration(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
        match tried {
            Ok(Ok(reply)) => {
                let cost = cast.models.card(name).ok().and_then(|card| card.cost(reply.usage?));
                let said: String = to_single_line(reply.text.trim()).chars().take(TRIAL_REPLY_CHARS_MAX).collect();
                if said.is_empty() {
                    let detail =
                        format!("{name} answered in {took} without a word · {}", number_format::format_cost(cost));
                    findings.add_finding("try", CheckStatus::Warning, detail);
                    continue;
                }
                let detail = format!("{name} answered in {took}: “{said}” · {}", number_format::format_cost(cost));
                findings.add_finding("try", CheckStatus::Passed, detail);
            }
            Ok(Err(failure)) => findings.add_finding("try", CheckStatus::Failed, format!("{name}: {failure}")),
            Err(_) => findings.add_finding("try", CheckStatus::Failed, format!("{name} did not answer within {took}")),
        }
    }
}

/// About how many tokens the question has.
const TRIAL_PROMPT_TOKENS: u32 = 16;

/// The shortest question there is.
fn trial_request(model: &ModelName) -> ModelRequest {
    let prompt = Prompt {
        model: model.clone(),
        messages: vec![PromptMessage::from_text(ChatRole::User, "Answer with the word yes.")].into(),
        tools: Vec::new(),
        output_format: OutputFormat::Text,
        reply_tokens_max: 64,
    };
    let call = CallMetadata::new("doctor".into(), "doctor".into(), "doctor".into(), "try".into(), CallId(1));
    ModelRequest {
        prompt: Arc::new(prompt),
        prompt_tokens: TRIAL_PROMPT_TOKENS,
        caching: PromptCaching::SystemOnly,
        metadata: call,
    }
}
