//! Whether everything is in order: configuration, store, models, roles, and what is left to be done.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::ids::{CallId, ModelName};
use segue_core::prompt::{Message, Output, Prompt, Speaker};
use segue_domains::{Records, Remote};
use segue_models::catalog::Catalog;
use segue_models::{CallFacts, Growth, Kind, ModelCard, Request, collect};
use segue_store::sqlite::SqliteStore;
use segue_store::{Owes, Store};
use serde_json::json;

use crate::Quiet;
use crate::cast::{CastModels, Member, Search, Sheet, find_models};
use crate::cli::{Doctor, Global};
use crate::config::{Config, ModelKind, Origin, REHEARSAL};
use crate::limits::{NAMES_SHOWN_MAX, TRY_CHARS_SHOWN_MAX, TRY_MS_MAX};
use crate::print::text::one_line;
use crate::print::{self, Screen, amount, paint::Paint};
use crate::setup::{self, Loaded};

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Good,
    Notable,
    Broken,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Notable => "note",
            Self::Broken => "broken",
        }
    }

    fn painted(self, paint: Paint) -> String {
        let word = format!("{:<6}", self.word());
        match self {
            Self::Good => paint.good(word),
            Self::Notable => paint.warn(word),
            Self::Broken => paint.bad(word),
        }
    }
}

#[derive(Debug)]
struct Finding {
    about: &'static str,
    status: Status,
    detail: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, status: Status, detail: impl Into<String>) {
        self.0.push(Finding { about, status, detail: detail.into() });
    }

    fn is_broken(&self) -> bool {
        self.0.iter().any(|finding| finding.status == Status::Broken)
    }
}

pub async fn run(global: &Global, arguments: &Doctor) -> anyhow::Result<()> {
    let mut findings = Findings::default();
    match setup::load(global) {
        Ok(mut loaded) => {
            let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
            findings.add("config", Status::Good, file.unwrap_or_else(|| "no file; defaults hold".to_owned()));
            look_at_store(&loaded.store.value, &mut findings).await;
            look_at_records(&loaded, &mut findings);
            look_at_servers(&loaded.config, &mut findings).await;
            find_models(&mut loaded.config, Search::Thorough).await;
            look_at_models(&loaded.config, arguments, &mut findings).await;
        }
        Err(error) => findings.add("config", Status::Broken, chain(&error)),
    }
    if global.json {
        let checks: Vec<_> = findings
            .0
            .iter()
            .map(|found| json!({ "about": found.about, "status": found.status.word(), "detail": found.detail }))
            .collect();
        print::json(&json!({ "ok": !findings.is_broken(), "checks": checks }))?;
    } else {
        let screen = Screen::here();
        for Finding { about, status, detail } in &findings.0 {
            let about = screen.paint.dim(format!("{about:<9}"));
            print::out(&format!("{} {about} {}\n", status.painted(screen.paint), one_line(detail)))?;
        }
    }
    if findings.is_broken() { Err(Quiet(1).into()) } else { Ok(()) }
}

fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn look_at_store(path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let bytes = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.add("store", Status::Good, format!("{shown}, which is made at first use"));
            return;
        }
        Err(error) => {
            findings.add("store", Status::Broken, format!("{shown}: {error}"));
            return;
        }
    };
    let store = match SqliteStore::open(path) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            findings.add("store", Status::Broken, error.to_string());
            return;
        }
    };
    match store.check().await {
        Ok(report) => {
            let status = if report.is_clean() { Status::Good } else { Status::Broken };
            let sessions = amount::several(report.sessions as u64, "session");
            findings.add("store", status, format!("{shown}: {}, {sessions} read", amount::bytes(bytes)));
            for (session, detail) in report.damaged {
                findings.add("session", Status::Broken, format!("{session}: {detail}"));
            }
            for complaint in report.complaints {
                findings.add("store", Status::Broken, complaint);
            }
        }
        Err(error) => findings.add("store", Status::Broken, error.to_string()),
    }
    match store.owing().await {
        Ok(owing) => {
            let now: Vec<String> =
                owing.iter().filter(|(_, owes)| *owes == Owes::Now).map(|(session, _)| session.to_string()).collect();
            if !now.is_empty() {
                let mut names = now.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
                if now.len() > NAMES_SHOWN_MAX {
                    names.push_str(", …");
                }
                let sessions = amount::several(now.len() as u64, "session");
                let detail = format!("{sessions} with an unfinished turn, taken up when used next: {names}");
                findings.add("owed", Status::Notable, detail);
            }
        }
        Err(error) => findings.add("owed", Status::Broken, error.to_string()),
    }
    // Nothing is queued there.
    let _ = store.close().await;
}

fn look_at_records(loaded: &Loaded, findings: &mut Findings) {
    let (path, domains) = (loaded.config.records_path(&loaded.store).value, loaded.config.all_domains());
    let names: Vec<String> = domains.iter().map(|domain| domain.name.clone()).collect();
    let named = format!("{} ({})", path.display(), names.join(", "));
    if !path.exists() {
        return findings.add("records", Status::Good, format!("{named}, which is made at first use"));
    }
    match Records::in_file(&path, domains).check() {
        Ok(()) => findings.add("records", Status::Good, named),
        Err(error) => findings.add("records", Status::Broken, error.to_string()),
    }
}

/// Servers whose tools are somebody's domain: each is asked what it has.
async fn look_at_servers(config: &Config, findings: &mut Findings) {
    let domains = config.all_domains();
    let remote = Remote::new(domains.clone());
    for domain in domains.iter().filter(|domain| domain.server.is_some()) {
        match remote.check(domain).await {
            Ok(tools) => {
                let tools = amount::several(tools as u64, "tool");
                findings.add("server", Status::Good, format!("that of `{}` answers and has {tools}", domain.name));
            }
            Err(why) => findings.add("server", Status::Broken, format!("domain `{}`: {why}", domain.name)),
        }
    }
}

async fn look_at_models(config: &Config, arguments: &Doctor, findings: &mut Findings) {
    look_around(config, findings);
    let sheet = match Sheet::of(config).await {
        Ok(sheet) => sheet,
        Err(error) => return findings.add("models", Status::Broken, chain(&error)),
    };
    let cast = match sheet.cast() {
        Ok(cast) => cast,
        Err(error) => return findings.add("models", Status::Broken, chain(&error)),
    };
    let flows = config.flows();
    let parts = || {
        flows
            .iter()
            .map(|rules| rules.spec())
            .flat_map(|spec| cast.parts(spec).into_iter().map(move |part| (spec, part)))
    };
    let used: BTreeSet<ModelName> = parts().flat_map(|(_, part)| [Some(part.model), part.fallback]).flatten().collect();
    for (name, model, card) in cast.models.iter() {
        let member = sheet.members.get(name);
        let (status, detail) = describe(&model.describe().label, card, member, used.contains(name));
        findings.add("model", status, format!("{name}: {detail}"));
    }
    let mut rehearsed = Vec::new();
    for (spec, part) in parts() {
        let place = part.phase.map(|phase| format!(" in {phase}")).unwrap_or_default();
        let fallback = part.fallback.map(|model| format!(", or else {model}")).unwrap_or_default();
        let (flow, role, model) = (&spec.name, &part.role, &part.model);
        findings.add("role", Status::Good, format!("{flow}/{role}{place}: {model}{fallback}"));
        match cast.kind(model) {
            Some(Kind::Rehearsal) => rehearsed.push(format!("{flow}/{role}")),
            Some(Kind::Vendor | Kind::Scripted) => {}
            None => findings.add("role", Status::Broken, format!("there is no model `{model}`")),
        }
    }
    if !rehearsed.is_empty() {
        let detail = format!("a rehearsal model, which only pretends, plays {}", rehearsed.join(", "));
        findings.add("rehearsal", Status::Notable, detail);
    }
    if arguments.try_out {
        try_out(&cast, &used, findings).await;
    }
}

/// What was found without being configured.
fn look_around(config: &Config, findings: &mut Findings) {
    let found = config.models.iter().filter(|(_, model)| model.origin == Origin::Found);
    let by = |model: &ModelKind| match model {
        ModelKind::Vendor(wanted) => Some(wanted.provider.clone()),
        ModelKind::Rehearsal { .. } | ModelKind::Scripted { .. } => None,
    };
    let mut providers: Vec<String> = found.filter_map(|(_, model)| by(&model.value.kind)).collect();
    providers.dedup();
    providers.sort();
    providers.dedup();
    if !providers.is_empty() {
        findings.add("found", Status::Good, format!("{} (by their keys, or on this machine)", providers.join(", ")));
    } else if config.default_model.value == REHEARSAL {
        let keys = config.catalog.providers().into_iter().filter_map(|(_, provider)| provider.keys.first());
        let keys: Vec<&str> = keys.map(String::as_str).take(3).collect();
        let detail = match unnamed(&config.catalog, &crate::cast::env) {
            Some((provider, key)) => {
                format!("{key} is set, and {provider} serves many models: say which, such as `--model {provider}/NAME`")
            }
            None => {
                format!("no model: set a key such as {}, start Ollama, or name a model in segue.toml", keys.join(", "))
            }
        };
        findings.add("found", Status::Notable, detail);
    }
}

/// A provider whose key is set and of which nobody said which model is meant.
fn unnamed(catalog: &Catalog, env: &dyn Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let is_set = |name: &&String| env(name).is_some_and(|key| !key.trim().is_empty());
    let many = catalog.providers().into_iter().filter(|(_, provider)| provider.default.is_none());
    many.filter_map(|(name, provider)| Some((name.to_owned(), provider.keys.iter().find(is_set)?.clone()))).next()
}

/// A model in a line, and whether it can be used.
fn describe(label: &str, card: ModelCard, member: Option<&Member>, is_used: bool) -> (Status, String) {
    let mut detail = format!("{label}, {} tokens", amount::count(u64::from(card.window_tokens)));
    let mut status = Status::Good;
    if let Some(Member::Vendor { is_window_assumed: true, .. }) = member {
        detail.push_str(" (assumed; `window_tokens` says better)");
    }
    if card.price.is_none() {
        detail.push_str(", price unknown");
    }
    if let Some((env, is_set)) = member.and_then(Member::key) {
        if is_set {
            detail.push_str(&format!(", key from {env}"));
        } else {
            detail.push_str(&format!(", and no key: {env} is not set"));
            status = if is_used { Status::Broken } else { Status::Notable };
        }
    }
    (status, detail)
}

/// Makes one short call to each real model that plays somebody.
async fn try_out(cast: &CastModels, used: &BTreeSet<ModelName>, findings: &mut Findings) {
    for name in used.iter().filter(|name| cast.kind(name) == Some(Kind::Vendor)) {
        let Ok(model) = cast.models.get(name) else { continue };
        let started = Instant::now();
        let most = Duration::from_millis(TRY_MS_MAX);
        let tried = tokio::time::timeout(most, collect(model.stream(question(name)), |_| {})).await;
        let took = amount::duration(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
        match tried {
            Ok(Ok(reply)) => {
                let cost = cast.models.card(name).ok().and_then(|card| card.cost(reply.usage?));
                let said: String = one_line(reply.text.trim()).chars().take(TRY_CHARS_SHOWN_MAX).collect();
                if said.is_empty() {
                    let detail = format!("{name} answered in {took} without a word · {}", amount::cost(cost));
                    findings.add("try", Status::Notable, detail);
                    continue;
                }
                let detail = format!("{name} answered in {took}: “{said}” · {}", amount::cost(cost));
                findings.add("try", Status::Good, detail);
            }
            Ok(Err(failure)) => findings.add("try", Status::Broken, format!("{name}: {failure}")),
            Err(_) => findings.add("try", Status::Broken, format!("{name} did not answer within {took}")),
        }
    }
}

/// About how many tokens the question has.
const TRY_TOKENS: u32 = 16;

/// The shortest question there is.
fn question(model: &ModelName) -> Request {
    let prompt = Prompt {
        model: model.clone(),
        messages: vec![Message::plain(Speaker::User, "Answer with the word yes.")].into(),
        tools: Vec::new(),
        output: Output::Text,
        reply_tokens_max: 64,
    };
    let call = CallFacts::new("doctor".into(), "doctor".into(), "doctor".into(), "try".into(), CallId(1));
    Request { prompt: Arc::new(prompt), prompt_tokens: TRY_TOKENS, growth: Growth::Ends, call }
}
