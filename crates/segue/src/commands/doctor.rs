//! `segue doctor`: checks the configuration, the store, the models and the roles, and reports pending work.

mod workspaces;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::ids::{CallId, ModelName, UnixMillis};
use segue_core::prompt::{ChatRole, ModelOutputFormat, Prompt, PromptMessage};
use segue_domains::{DomainMcpServersTool, SqliteRecordsTool};
use segue_mcp::McpToolHost;
use segue_models::catalog::ModelCatalog;
use segue_models::{CacheablePromptPart, ModelBackendKind, ModelCallOrigin, ModelCard, ModelRequest, collect_reply};
use segue_store::postgres::database_location;
use segue_store::sqlite::SqliteStore;
use segue_store::{PendingWorkQuery, Store, StoreMaintenance};
use serde_json::json;

use crate::SilentExit;
use crate::cli::{DoctorArgs, GlobalArgs};
use crate::commands::flows::{McpServerAccess, check_listed_tools};
use crate::config::{Config, ConfigValueOrigin, ModelConfigKind, REHEARSAL_MODEL_NAME};
use crate::limits::{NAMES_SHOWN_MAX, PENDING_SESSIONS_SHOWN_MAX, TRIAL_CALL_MS_MAX, TRIAL_REPLY_CHARS_MAX};
use crate::model_setup::{
    ModelDiscoveryExtent, ModelsWithRoleAssignment, ResolvedModel, ResolvedModelSetup, discover_models,
};
use crate::print::text::to_single_line;
use crate::print::{self, CliOutputCapabilities, number_format, paint::Paint};
use crate::setup::{self, ConfigWithStorePath};
use crate::store_location::{ClusterNodeOptions, StoreLocation, open_database};
use crate::trust::ConfigTrustStatus;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DoctorCheckStatus {
    Passed,
    Warning,
    Failed,
}

impl DoctorCheckStatus {
    fn label(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }

    fn colored_label(self, paint: Paint) -> String {
        let label = format!("{:<7}", self.label());
        match self {
            Self::Passed => paint.success(label),
            Self::Warning => paint.warning(label),
            Self::Failed => paint.error(label),
        }
    }
}

#[derive(Debug)]
struct DoctorFinding {
    subject: &'static str,
    status: DoctorCheckStatus,
    detail: String,
}

#[derive(Debug, Default)]
struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    fn add_finding(&mut self, subject: &'static str, status: DoctorCheckStatus, detail: impl Into<String>) {
        self.0.push(DoctorFinding { subject, status, detail: detail.into() });
    }

    fn has_failures(&self) -> bool {
        self.0.iter().any(|finding| finding.status == DoctorCheckStatus::Failed)
    }
}

pub(crate) async fn run_doctor(global: &GlobalArgs, arguments: &DoctorArgs) -> anyhow::Result<()> {
    let mut findings = DoctorReport::default();
    match setup::load_config(global) {
        Ok(mut loaded) => {
            let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
            findings.add_finding(
                "config",
                DoctorCheckStatus::Passed,
                file.unwrap_or_else(|| "no file; using the defaults".to_owned()),
            );
            check_trust(&loaded, &mut findings);
            match StoreLocation::parse(&loaded.store_path.value) {
                StoreLocation::File(path) => check_store(path, &mut findings).await,
                StoreLocation::Database(url) => check_database(url, &mut findings).await,
            }
            check_records(&loaded, &mut findings);
            workspaces::check_workspaces(&loaded.config, &mut findings);
            // These checks start programs and send keys.
            if loaded.is_trusted() {
                check_tool_servers(&loaded.config, &mut findings).await;
                check_agent_servers(&loaded.config, &mut findings).await;
                discover_models(&mut loaded.config, ModelDiscoveryExtent::Everywhere).await;
                check_model_setup(&loaded.config, arguments, &mut findings).await;
            }
        }
        Err(error) => findings.add_finding("config", DoctorCheckStatus::Failed, format_error_chain(&error)),
    }
    if global.json {
        let checks: Vec<_> = findings
            .0
            .iter()
            .map(|found| json!({ "subject": found.subject, "status": found.status.label(), "detail": found.detail }))
            .collect();
        print::print_json(&json!({ "ok": !findings.has_failures(), "checks": checks }))?;
    } else {
        let screen = CliOutputCapabilities::for_stdout();
        for DoctorFinding { subject, status, detail } in &findings.0 {
            let subject = screen.paint.dim(format!("{subject:<9}"));
            print::write_stdout(&format!(
                "{} {subject} {}\n",
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

/// Reports whether the configuration of the current folder is trusted, if it needs to be.
fn check_trust(loaded: &ConfigWithStorePath, findings: &mut DoctorReport) {
    let Some(trust) = &loaded.folder_trust else { return };
    let detail = format!("{} {}", trust.display_file(), trust.status.describe());
    match trust.status {
        ConfigTrustStatus::NotNeeded => {}
        ConfigTrustStatus::Trusted => findings.add_finding("trust", DoctorCheckStatus::Passed, detail),
        ConfigTrustStatus::Changed | ConfigTrustStatus::Untrusted => {
            let hint = "its models and servers were not checked; `segue trust` shows what it wants";
            findings.add_finding("trust", DoctorCheckStatus::Failed, format!("{detail}; {hint}"));
        }
    }
}

async fn check_store(path: &Path, findings: &mut DoctorReport) {
    let shown = path.display();
    let bytes = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.add_finding("store", DoctorCheckStatus::Passed, format!("{shown} (created at first use)"));
            return;
        }
        Err(error) => {
            findings.add_finding("store", DoctorCheckStatus::Failed, format!("{shown}: {error}"));
            return;
        }
    };
    let store = match SqliteStore::open(path) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            findings.add_finding("store", DoctorCheckStatus::Failed, error.to_string());
            return;
        }
    };
    let size = format!("{shown}: {}", number_format::format_bytes(bytes));
    check_opened_store(&*store, &size, findings).await;
    // The error may be dropped: this store was only read, so no write can be lost.
    let _ = store.close().await;
}

/// Checks a PostgreSQL database: its settings, the nodes, and the sessions.
async fn check_database(url: &str, findings: &mut DoctorReport) {
    let store = match open_database(url, ClusterNodeOptions::default()) {
        Ok(store) => store,
        Err(error) => return findings.add_finding("store", DoctorCheckStatus::Failed, format_error_chain(&error)),
    };
    if let Err(error) = store.probe_write().await {
        findings.add_finding("store", DoctorCheckStatus::Failed, error.to_string());
    }
    let mut location = database_location(url);
    match store.report_database().await {
        Ok(report) => {
            location = format!("{}: PostgreSQL {}, format {}", report.location, report.server_version, report.format);
            for (is_wrong, problem) in [
                (report.is_standby, "the database is a standby and cannot be written".to_owned()),
                (
                    report.default_isolation != "read committed",
                    format!("default_transaction_isolation is {}, not read committed", report.default_isolation),
                ),
                (
                    report.synchronous_commit == "off",
                    "synchronous_commit is off, so a crash of the database loses acknowledged commits".to_owned(),
                ),
            ] {
                if is_wrong {
                    findings.add_finding("store", DoctorCheckStatus::Failed, problem);
                }
            }
            // This process is one of them.
            let nodes = number_format::format_plural(report.live_nodes.saturating_sub(1), "live node");
            let held = number_format::format_plural(report.held_sessions, "held session");
            let waiting = number_format::format_plural(report.inbox_entries, "waiting submission");
            findings.add_finding("cluster", DoctorCheckStatus::Passed, format!("{nodes}, {held}, {waiting}"));
            if report.orphaned_sessions > 0 {
                let orphans = number_format::format_plural(report.orphaned_sessions, "session");
                let detail = format!("{orphans} of dead nodes; those with pending work are resumed by a live node");
                findings.add_finding("cluster", DoctorCheckStatus::Warning, detail);
            }
        }
        Err(error) => findings.add_finding("store", DoctorCheckStatus::Failed, error.to_string()),
    }
    check_opened_store(&store, &location, findings).await;
    // The error may be dropped: nothing was written.
    let _ = store.close().await;
}

/// Checks the sessions of a store. `description` says where it is.
async fn check_opened_store(store: &dyn Store, description: &str, findings: &mut DoctorReport) {
    match store.check_integrity().await {
        Ok(report) => {
            let status = if report.is_clean() { DoctorCheckStatus::Passed } else { DoctorCheckStatus::Failed };
            let sessions = number_format::format_plural(report.session_count as u64, "session");
            findings.add_finding("store", status, format!("{description}, {sessions} checked"));
            for (session, detail) in report.damaged_sessions {
                findings.add_finding("session", DoctorCheckStatus::Failed, format!("{session}: {detail}"));
            }
            for problem in report.store_problems {
                findings.add_finding("store", DoctorCheckStatus::Failed, problem);
            }
        }
        Err(error) => findings.add_finding("store", DoctorCheckStatus::Failed, error.to_string()),
    }
    let query = PendingWorkQuery { due_until: UnixMillis(0), after_cursor: None, limit: PENDING_SESSIONS_SHOWN_MAX };
    match store.sessions_with_pending_work(&query).await {
        Ok(pending) => {
            let now: Vec<String> = pending.sessions.iter().map(|pending| pending.session.to_string()).collect();
            if !now.is_empty() {
                let mut names = now.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
                if now.len() > NAMES_SHOWN_MAX {
                    names.push_str(", …");
                }
                let sessions = number_format::format_plural(now.len() as u64, "session");
                let detail = format!("{sessions} with an unfinished turn, resumed at the next use: {names}");
                findings.add_finding("pending", DoctorCheckStatus::Warning, detail);
            }
        }
        Err(error) => findings.add_finding("pending", DoctorCheckStatus::Failed, error.to_string()),
    }
}

fn check_records(loaded: &ConfigWithStorePath, findings: &mut DoctorReport) {
    let (path, domains) =
        (loaded.config.records_path(&loaded.store_path, &loaded.data_folder).value, loaded.config.all_domains());
    let names: Vec<String> = domains.iter().map(|domain| domain.name.clone()).collect();
    let named = format!("{} ({})", path.display(), names.join(", "));
    if !path.exists() {
        return findings.add_finding("records", DoctorCheckStatus::Passed, format!("{named}, created at first use"));
    }
    match SqliteRecordsTool::in_file(&path, domains).check_database() {
        Ok(()) => findings.add_finding("records", DoctorCheckStatus::Passed, named),
        Err(error) => findings.add_finding("records", DoctorCheckStatus::Failed, error.to_string()),
    }
}

/// Connects to the MCP server of each domain that has one, and counts its tools.
async fn check_tool_servers(config: &Config, findings: &mut DoctorReport) {
    let domains = config.all_domains();
    let remote = DomainMcpServersTool::new(domains.clone());
    for domain in domains.iter().filter(|domain| domain.server.is_some()) {
        match remote.check_server(domain).await {
            Ok(tools) => {
                let tools = number_format::format_plural(tools as u64, "tool");
                findings.add_finding(
                    "server",
                    DoctorCheckStatus::Passed,
                    format!("domain `{}`: reachable, {tools}", domain.name),
                );
            }
            Err(error) => {
                findings.add_finding("server", DoctorCheckStatus::Failed, format!("domain `{}`: {error}", domain.name));
            }
        }
    }
}

/// Connects to the MCP servers for agents, and checks that they have the tools that flow files list.
async fn check_agent_servers(config: &Config, findings: &mut DoctorReport) {
    let host = McpToolHost::new(config.mcp_agent_servers());
    for name in config.mcp_servers.keys() {
        let (status, detail) = match host.list_tool_names(name).await {
            Ok(tools) => {
                let tools = number_format::format_plural(tools.len() as u64, "tool");
                (DoctorCheckStatus::Passed, format!("MCP server `{name}`: reachable, {tools}"))
            }
            Err(error) => (DoctorCheckStatus::Failed, format!("MCP server `{name}`: {error}")),
        };
        findings.add_finding("server", status, detail);
    }
    for own in &config.flow_files {
        let checked = check_listed_tools(config, &own.value.source, McpServerAccess::Allowed).await;
        for error in &checked.errors.errors {
            findings.add_finding("flow", DoctorCheckStatus::Failed, format!("{}:{error}", own.value.file.display()));
        }
    }
}

async fn check_model_setup(config: &Config, arguments: &DoctorArgs, findings: &mut DoctorReport) {
    check_discovered_models(config, findings);
    let setup = match ResolvedModelSetup::from_config(config).await {
        Ok(setup) => setup,
        Err(error) => return findings.add_finding("models", DoctorCheckStatus::Failed, format_error_chain(&error)),
    };
    let assigned = match setup.connect() {
        Ok(assigned) => assigned,
        Err(error) => return findings.add_finding("models", DoctorCheckStatus::Failed, format_error_chain(&error)),
    };
    let flows = config.flows();
    let role_models = || {
        flows
            .iter()
            .map(|flow| flow.spec())
            .flat_map(|spec| assigned.role_models(spec).into_iter().map(move |role| (spec, role)))
    };
    let used: BTreeSet<ModelName> =
        role_models().flat_map(|(_, role)| [Some(role.model), role.fallback]).flatten().collect();
    for (name, model, card) in assigned.models.iter() {
        let resolved = setup.models.get(name);
        let (status, detail) = describe_model(&model.describe().label, card, resolved, used.contains(name));
        findings.add_finding("model", status, format!("{name}: {detail}"));
    }
    let mut rehearsed = Vec::new();
    for (spec, role_model) in role_models() {
        let phase = role_model.phase.map(|phase| format!(" in {phase}")).unwrap_or_default();
        let fallback = role_model.fallback.map(|model| format!(", fallback {model}")).unwrap_or_default();
        let (flow, role, model) = (&spec.name, &role_model.role, &role_model.model);
        findings.add_finding("role", DoctorCheckStatus::Passed, format!("{flow}/{role}{phase}: {model}{fallback}"));
        match assigned.model_kind(model) {
            Some(ModelBackendKind::Rehearsal) => rehearsed.push(format!("{flow}/{role}")),
            Some(ModelBackendKind::Vendor | ModelBackendKind::Scripted) => {}
            None => findings.add_finding("role", DoctorCheckStatus::Failed, format!("there is no model `{model}`")),
        }
    }
    if !rehearsed.is_empty() {
        let detail = format!("the rehearsal model gives canned replies for {}", rehearsed.join(", "));
        findings.add_finding("rehearsal", DoctorCheckStatus::Warning, detail);
    }
    if arguments.call_models {
        call_each_model(&assigned, &used, findings).await;
    }
}

/// Reports the providers of discovered models, or how to get a model if none was found.
fn check_discovered_models(config: &Config, findings: &mut DoctorReport) {
    let found = config.models.iter().filter(|(_, model)| model.origin == ConfigValueOrigin::Discovered);
    let provider = |model: &ModelConfigKind| match model {
        ModelConfigKind::Vendor(spec) => Some(spec.provider.clone()),
        ModelConfigKind::Rehearsal { .. } | ModelConfigKind::Scripted { .. } => None,
    };
    let mut providers: Vec<String> = found.filter_map(|(_, model)| provider(&model.value.kind)).collect();
    providers.dedup();
    providers.sort();
    providers.dedup();
    if !providers.is_empty() {
        findings.add_finding(
            "found",
            DoctorCheckStatus::Passed,
            format!("{} (by API key, or on this machine)", providers.join(", ")),
        );
    } else if config.default_model.value == REHEARSAL_MODEL_NAME {
        let keys =
            config.catalog.providers_by_rank().into_iter().filter_map(|(_, provider)| provider.key_env_vars.first());
        let keys: Vec<&str> = keys.map(String::as_str).take(3).collect();
        let detail = match provider_without_default_model(&config.catalog, &crate::model_setup::read_env_var) {
            Some((provider, key)) => {
                format!("{key} is set, but {provider} has no default model; name one with `--model {provider}/NAME`")
            }
            None => {
                format!(
                    "no model: set an API key such as {}, start Ollama, or configure a model in segue.toml",
                    keys.join(", ")
                )
            }
        };
        findings.add_finding("found", DoctorCheckStatus::Warning, detail);
    }
}

/// Returns a provider, and its environment variable, whose API key is set but which has no default model.
fn provider_without_default_model(
    catalog: &ModelCatalog,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let is_set = |name: &&String| env(name).is_some_and(|key| !key.trim().is_empty());
    let without_default =
        catalog.providers_by_rank().into_iter().filter(|(_, provider)| provider.default_model.is_none());
    without_default
        .filter_map(|(name, provider)| Some((name.to_owned(), provider.key_env_vars.iter().find(is_set)?.clone())))
        .next()
}

/// Describes a model on one line, and says whether it can be used.
fn describe_model(
    label: &str,
    card: ModelCard,
    resolved: Option<&ResolvedModel>,
    is_used: bool,
) -> (DoctorCheckStatus, String) {
    let mut detail = format!("{label}, {} tokens", number_format::format_count(u64::from(card.window_tokens)));
    let mut status = DoctorCheckStatus::Passed;
    if let Some(ResolvedModel::Vendor { is_window_assumed: true, .. }) = resolved {
        detail.push_str(" (assumed; set `window_tokens`)");
    }
    if card.price.is_none() {
        detail.push_str(", price unknown");
    }
    if let Some((env, is_set)) = resolved.and_then(ResolvedModel::api_key_env_with_presence) {
        if is_set {
            detail.push_str(&format!(", key from {env}"));
        } else {
            detail.push_str(&format!(", no key: {env} is not set"));
            status = if is_used { DoctorCheckStatus::Failed } else { DoctorCheckStatus::Warning };
        }
    }
    (status, detail)
}

/// Makes one short call to each vendor model that a role uses.
async fn call_each_model(assigned: &ModelsWithRoleAssignment, used: &BTreeSet<ModelName>, findings: &mut DoctorReport) {
    for name in used.iter().filter(|name| assigned.model_kind(name) == Some(ModelBackendKind::Vendor)) {
        let Ok(model) = assigned.models.get(name) else { continue };
        let started = Instant::now();
        let timeout = Duration::from_millis(TRIAL_CALL_MS_MAX);
        let result = tokio::time::timeout(timeout, collect_reply(model.stream(trial_request(name)), |_| {})).await;
        let took = number_format::format_duration(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
        match result {
            Ok(Ok(reply)) => {
                let cost = assigned.models.card(name).ok().and_then(|card| card.cost(reply.usage?));
                let text: String = to_single_line(reply.text.trim()).chars().take(TRIAL_REPLY_CHARS_MAX).collect();
                if text.is_empty() {
                    let detail =
                        format!("{name} answered in {took} with an empty text · {}", number_format::format_cost(cost));
                    findings.add_finding("call", DoctorCheckStatus::Warning, detail);
                    continue;
                }
                let detail = format!("{name} answered in {took}: “{text}” · {}", number_format::format_cost(cost));
                findings.add_finding("call", DoctorCheckStatus::Passed, detail);
            }
            Ok(Err(failure)) => findings.add_finding("call", DoctorCheckStatus::Failed, format!("{name}: {failure}")),
            Err(_) => {
                findings.add_finding("call", DoctorCheckStatus::Failed, format!("{name} did not answer within {took}"))
            }
        }
    }
}

/// Approximate tokens of the trial prompt.
const TRIAL_PROMPT_TOKENS: u32 = 16;

/// Returns a request with a very short prompt.
fn trial_request(model: &ModelName) -> ModelRequest {
    let prompt = Prompt {
        model: model.clone(),
        messages: vec![PromptMessage::from_text(ChatRole::User, "Answer with the word yes.")].into(),
        tools: Vec::new(),
        tool_use: segue_core::prompt::ModelToolUseRules::default(),
        output_format: ModelOutputFormat::Text,
        reply_tokens_max: 64,
    };
    let metadata = ModelCallOrigin::new("doctor".into(), "doctor".into(), "doctor".into(), "trial".into(), CallId(1));
    ModelRequest {
        prompt: Arc::new(prompt),
        prompt_tokens: TRIAL_PROMPT_TOKENS,
        caching: CacheablePromptPart::SystemOnly,
        metadata,
    }
}
