//! From the text of a file to a configuration. Every key of the file is known here and nowhere else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use segue_core::event::Busy;
use segue_core::flow::settings::models_named;
use segue_core::flow::{FlowSpec, Rules};
use segue_core::ids::{FlowName, ModelName, RoleName};
use segue_engine::limits::MODEL_CALLS_MAX;
use segue_models::Catalog;
use segue_models::card::Price;
use toml::de::{DeTable, DeValue};

use super::reader::{Error, Named, Page, Table};
use super::records::{self, RECORDS_KEYS};
use super::server::{self, SERVER_KEYS};
use super::vendor::{self, VENDOR_KEYS};
use super::{Cast, Config, Discovery, FlowSetting, KINDS, Limits, Model, ModelKind, Origin, Pace, REHEARSAL, Setting};
use crate::settings::{as_json, complaint};
use crate::suggest::{hint, listed};

pub(super) const TOP_KEYS: [&str; 9] =
    ["store", "session", "models", "catalog", "roles", "flows", "records", "limits", "server"];
pub(super) const STORE_KEYS: [&str; 1] = ["path"];
pub(super) const SESSION_KEYS: [&str; 2] = ["flow", "busy"];
pub(super) const MODEL_KEYS: [&str; 3] = ["kind", "window_tokens", "price"];
pub(super) const REHEARSAL_KEYS: [&str; 1] = ["pace"];
pub(super) const SCRIPTED_KEYS: [&str; 1] = ["file"];
pub(super) const PRICE_KEYS: [&str; 4] = ["input", "output", "cached", "written"];
pub(super) const CATALOG_KEYS: [&str; 1] = ["file"];
/// The one key of `[flows.NAME]` that is no setting.
pub(super) const ROLES: &str = "roles";
pub(super) const ROLE_KEYS: [&str; 3] = ["default", "phases", "fallback"];
pub(super) const KEYS_OF_LIMITS: [&str; 3] = ["calls_max", "calls_per_minute_max", "silence_s_max"];

/// The word for a model that is no stand-in.
const VENDOR: &str = "vendor";
/// The keys of `[models]` that are no models.
pub(super) const MODELS_KEYS: [&str; 3] = [DEFAULT, FALLBACK, DISCOVER];
const DEFAULT: &str = "default";
const FALLBACK: &str = "fallback";
const DISCOVER: &str = "discover";

const BUSY_WORDS: [(&str, Busy); 4] =
    [("queue", Busy::Queue), ("coalesce", Busy::Coalesce), ("reject", Busy::Reject), ("interrupt", Busy::Interrupt)];
const PACE_WORDS: [(&str, Pace); 2] = [("reading", Pace::Reading), ("instant", Pace::Instant)];

/// The word for a busy policy, as it stands in the file.
pub(super) fn busy_word(busy: Busy) -> &'static str {
    BUSY_WORDS.iter().find(|(_, known)| *known == busy).map_or("queue", |(word, _)| word)
}

/// The word for a pace, as it stands in the file.
pub(super) fn pace_word(pace: Pace) -> &'static str {
    PACE_WORDS.iter().find(|(_, known)| *known == pace).map_or("reading", |(word, _)| word)
}

/// Reads a configuration. `look` reads another file that this one names.
///
/// # Errors
/// Names the file, the line and what would be right.
pub fn parse(file: &Path, text: &str, look: &dyn Fn(&Path) -> Result<String, String>) -> Result<Config, Error> {
    let page = Page { file, text };
    let table = DeTable::parse(text)
        .map_err(|error| page.error(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let top = Table::top(page, table.get_ref())?.only(&TOP_KEYS)?;
    let mut config = Config { file: Some(file.to_owned()), ..Config::built_in() };
    if let Some(store) = top.table("store")? {
        let path = store.only(&STORE_KEYS)?.text("path")?;
        config.store = path.map(|path| Setting { value: beside(file, &path.value), origin: path.origin });
    }
    if let Some(session) = top.table("session")? {
        let session = session.only(&SESSION_KEYS)?;
        if let Some(flow) = session.text("flow")? {
            config.flow = Setting { value: flow.value.into(), origin: flow.origin };
        }
        config.busy = session.word("busy", &BUSY_WORDS)?.unwrap_or(config.busy);
    }
    if let Some(table) = top.table("catalog")? {
        catalog(&table.only(&CATALOG_KEYS)?, file, look, &mut config)?;
    }
    models(&top, file, &mut config)?;
    if let Some(roles) = top.table("roles")? {
        casts(&roles, None, &mut config)?;
    }
    if let Some(flows) = top.table("flows")? {
        for named in flows.names() {
            let flow = flows.named_table(&named)?;
            let name = FlowName::from(named.name.as_str());
            config.named_flows.push(Setting { value: name.clone(), origin: flows.origin(named.start) });
            if let Some(roles) = flow.table(ROLES)? {
                casts(&roles, Some(&name), &mut config)?;
            }
            for setting in flow.names().iter().filter(|setting| setting.name != ROLES) {
                let value = Setting { value: as_json(setting.value), origin: flow.origin(setting.start) };
                config.settings.push(FlowSetting { flow: name.clone(), name: setting.name.clone(), value });
            }
        }
    }
    if let Some(table) = top.table("records")? {
        records::read(&table.only(&RECORDS_KEYS)?, file, look, &mut config)?;
    }
    records::adopt(file, look, &mut config)?;
    if let Some(limits) = top.table("limits")? {
        read_limits(&limits, &mut config)?;
    }
    if let Some(table) = top.table("server")? {
        server::read(&table.only(&SERVER_KEYS)?, &mut config)?;
    }
    for name in named_models(&config) {
        config.adopt(&name);
    }
    check_models(&top, &config)?;
    Ok(config)
}

fn catalog(
    table: &Table<'_>,
    file: &Path,
    look: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), Error> {
    let Some(named) = table.text("file")? else { return Ok(()) };
    let path = beside(file, &named.value);
    let wrong = |why: String| table.error(table.start_of("file"), format!("`catalog.file`: {}: {why}", path.display()));
    let users = Catalog::parse(&look(&path).map_err(wrong)?).map_err(|error| wrong(error.to_string()))?;
    config.catalog = std::mem::take(&mut config.catalog).with(users);
    config.catalog_file = Some(Setting { value: path, origin: named.origin });
    Ok(())
}

/// A path in a file counts from the file's folder.
pub(super) fn beside(file: &Path, path: &str) -> std::path::PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn models(top: &Table<'_>, file: &Path, config: &mut Config) -> Result<(), Error> {
    let Some(models) = top.table("models")? else { return Ok(()) };
    if let Some(discover) = models.flag(DISCOVER)? {
        let value = if discover.value { Discovery::On } else { Discovery::Off };
        config.discovery = Setting { value, origin: discover.origin };
    }
    let fallback = models.text(FALLBACK)?;
    config.fallback_model = fallback.map(|name| Setting { value: name.value.into(), origin: name.origin });
    for named in models.names().iter().filter(|named| !MODELS_KEYS.contains(&named.name.as_str())) {
        let model = model(&models.named_table(named)?, file, &named.name, &config.catalog)?;
        let model = Setting { value: model, origin: models.origin(named.start) };
        config.models.insert(named.name.as_str().into(), model);
    }
    if let Some(default) = models.text(DEFAULT)? {
        config.default_model = Setting { value: default.value.into(), origin: default.origin };
        return Ok(());
    }
    let mut configured = config.models.iter().filter(|(_, model)| model.origin != Origin::Default);
    match (configured.next(), configured.next()) {
        (Some((name, model)), None) => {
            config.default_model = Setting { value: name.clone(), origin: model.origin };
            Ok(())
        }
        (Some(_), Some(_)) => {
            let names = listed(config.models.keys().map(ModelName::as_str));
            Err(models.complain(format!(
                "`models.default` is missing: with several models, say which is for everybody; there are {names}"
            )))
        }
        (None, _) => Ok(()),
    }
}

fn model(table: &Table<'_>, file: &Path, name: &str, catalog: &Catalog) -> Result<Model, Error> {
    let kind = match table.text("kind")? {
        Some(kind) => kind.value,
        // Whoever names a provider means a real model.
        None if table.text("provider")?.is_some() => VENDOR.to_owned(),
        None => {
            let message = format!(
                "`models.{name}` needs a `provider`, such as \"anthropic\", or a `kind`, which is one of {}",
                listed(KINDS)
            );
            return Err(table.complain(message));
        }
    };
    let keys = |own: &[&'static str]| MODEL_KEYS.iter().chain(own).copied().collect::<Vec<_>>();
    let (table, kind) = match kind.as_str() {
        "rehearsal" => {
            let table = table.clone().only(&keys(&REHEARSAL_KEYS))?;
            let pace = table.word("pace", &PACE_WORDS)?.map(|pace| pace.value).unwrap_or_default();
            (table, ModelKind::Rehearsal { pace })
        }
        "scripted" => {
            let table = table.clone().only(&keys(&SCRIPTED_KEYS))?;
            let Some(script) = table.text("file")? else {
                return Err(table.complain(format!("`models.{name}.file` is missing: the scenario it answers from")));
            };
            (table, ModelKind::Scripted { file: beside(file, &script.value) })
        }
        VENDOR => {
            let table = table.clone().only(&keys(&VENDOR_KEYS))?;
            let wanted = vendor::read(&table, name, catalog)?;
            (table, ModelKind::Vendor(Box::new(wanted)))
        }
        other => {
            let message = format!("`models.{name}.kind`: no such kind `{other}`{}", hint(other, KINDS));
            return Err(table.error(table.start_of("kind"), message));
        }
    };
    let window_tokens = table.number("window_tokens", 1)?.map(|tokens| tokens.value);
    let price = match table.table("price")? {
        Some(price) => Some(read_price(price.only(&PRICE_KEYS)?)?),
        None => None,
    };
    Ok(Model { kind, window_tokens, price })
}

fn read_price(table: Table<'_>) -> Result<Price, Error> {
    let need = |key: &str| {
        let found = table.dollars(key)?;
        found
            .map(|dollars| dollars.value)
            .ok_or_else(|| table.complain(format!("a price needs `{key}`: dollars for a million tokens")))
    };
    let (input, output) = (need("input")?, need("output")?);
    let cached = table.dollars("cached")?.map_or(input, |cached| cached.value);
    let written = table.dollars("written")?.map(|written| written.value);
    Ok(Price { written, ..Price::plain(input, output, cached) })
}

fn casts(roles: &Table<'_>, flow: Option<&FlowName>, config: &mut Config) -> Result<(), Error> {
    for named in roles.names() {
        let role = RoleName::from(named.name.as_str());
        let cast = |phase: Option<&str>, model| Cast {
            flow: flow.cloned(),
            role: role.clone(),
            phase: phase.map(Into::into),
            model,
        };
        if !matches!(named.value, DeValue::Table(_)) {
            config.casts.push(cast(None, roles.model(&named)?));
            continue;
        }
        let table = roles.named_table(&named)?.only(&ROLE_KEYS)?;
        let model = |found: Setting<String>| Setting { value: found.value.into(), origin: found.origin };
        if let Some(default) = table.text("default")? {
            config.casts.push(cast(None, model(default)));
        }
        if let Some(fallback) = table.text("fallback")? {
            config.fallbacks.push(cast(None, model(fallback)));
        }
        if let Some(phases) = table.table("phases")? {
            for phase in phases.names() {
                config.casts.push(cast(Some(&phase.name), phases.model(&phase)?));
            }
        }
    }
    Ok(())
}

fn read_limits(limits: &Table<'_>, config: &mut Config) -> Result<(), Error> {
    for named in limits.names() {
        known_model(limits, &named, config)?;
        let table = limits.named_table(&named)?.only(&KEYS_OF_LIMITS)?;
        let calls_max =
            table.number("calls_max", 1)?.unwrap_or(Setting { value: MODEL_CALLS_MAX, origin: Origin::Default });
        let silence = table.number("silence_s_max", 1)?;
        let limit = Limits {
            calls_max,
            calls_per_minute_max: table.number("calls_per_minute_max", 1)?,
            silence_ms_max: silence.map(|seconds: Setting<u32>| Setting {
                value: u64::from(seconds.value) * 1_000,
                origin: seconds.origin,
            }),
        };
        config.limits.insert(named.name.as_str().into(), limit);
    }
    Ok(())
}

fn known_model(table: &Table<'_>, named: &Named<'_>, config: &Config) -> Result<(), Error> {
    if config.models.contains_key(named.name.as_str()) {
        return Ok(());
    }
    Err(table.error(named.start, no_model(&named.name, config)))
}

fn no_model(name: &str, config: &Config) -> String {
    format!("there is no model `{name}`{}", hint(name, config.models.keys().map(ModelName::as_str)))
}

/// Whether every model that is named is there.
fn check_models(top: &Table<'_>, config: &Config) -> Result<(), Error> {
    for setting in named_models(config) {
        if setting.value != REHEARSAL && !config.models.contains_key(&setting.value) {
            return Err(at(top, setting.origin, no_model(setting.value.as_str(), config)));
        }
    }
    Ok(())
}

impl Config {
    /// Every model that plays somebody, steps in, or is named in a flow's settings.
    pub fn named_models(&self) -> BTreeSet<ModelName> {
        let flows = self.flows();
        let cast = named_models(self).into_iter().chain(models_in_settings(self, &flows));
        cast.map(|model| model.value).collect()
    }
}

/// Every model that plays somebody, or steps in.
fn named_models(config: &Config) -> Vec<Setting<ModelName>> {
    let casts = config.casts.iter().chain(&config.fallbacks).map(|cast| &cast.model);
    std::iter::once(&config.default_model).chain(&config.fallback_model).chain(casts).cloned().collect()
}

/// Adds the models that a flow's settings name as `provider/model`.
pub fn adopt_settings(config: &mut Config, flows: &[Arc<dyn Rules>]) {
    let named = models_in_settings(config, flows);
    named.iter().for_each(|name| config.adopt(name));
}

fn models_in_settings(config: &Config, flows: &[Arc<dyn Rules>]) -> Vec<Setting<ModelName>> {
    let mut named = Vec::new();
    for setting in &config.settings {
        let Some(rules) = flows.iter().find(|rules| rules.spec().name == setting.flow) else { continue };
        let settings = serde_json::json!({ &setting.name: setting.value.value });
        let models = models_named(&rules.spec().settings, &settings).into_iter();
        named.extend(models.map(|(_, model)| Setting { value: model, origin: setting.value.origin }));
    }
    named
}

fn at(top: &Table<'_>, origin: Origin, message: String) -> Error {
    let mut error = top.complain(message);
    if let Origin::File { line } = origin {
        error.line = line;
    }
    error
}

/// Whether every flow, role and phase that the file names is there, and every setting fits.
///
/// # Errors
/// Names the first that is not.
pub fn check(config: &Config, flows: &[Arc<dyn Rules>]) -> Result<(), Error> {
    let specs: Vec<&FlowSpec> = flows.iter().map(|rules| rules.spec()).collect();
    let file = config.file.clone().unwrap_or_default();
    let wrong = |origin: Origin, message: String| {
        let line = if let Origin::File { line } = origin { line } else { 1 };
        Err(Error { file: file.clone(), line, message })
    };
    let flow_names = || specs.iter().map(|spec| spec.name.as_str());
    if !specs.iter().any(|spec| spec.name == config.flow.value) {
        let name = config.flow.value.as_str();
        return wrong(
            config.flow.origin,
            format!("`session.flow`: there is no flow `{name}`{}", hint(name, flow_names())),
        );
    }
    for cast in config.casts.iter().chain(&config.fallbacks) {
        let origin = cast.model.origin;
        if let Some(flow) = cast.flow.as_ref().filter(|flow| !specs.iter().any(|spec| spec.name == **flow)) {
            return wrong(origin, format!("there is no flow `{flow}`{}", hint(flow.as_str(), flow_names())));
        }
        let meant = specs.iter().filter(|spec| cast.flow.as_ref().is_none_or(|flow| *flow == spec.name));
        let roles: Vec<&str> = meant.clone().flat_map(|spec| spec.roles.keys()).map(RoleName::as_str).collect();
        if !roles.contains(&cast.role.as_str()) {
            let role = cast.role.as_str();
            return wrong(origin, format!("there is no role `{role}`{}", hint(role, roles.iter().copied())));
        }
        let Some(phase) = &cast.phase else { continue };
        let graphs = meant.flat_map(|spec| spec.graphs.values());
        let phases: Vec<&str> = graphs.flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
        if !phases.contains(&phase.as_str()) {
            let phase = phase.as_str();
            return wrong(origin, format!("there is no phase `{phase}`{}", hint(phase, phases.iter().copied())));
        }
    }
    check_settings(config, &specs).or_else(|(origin, message)| wrong(origin, message))?;
    // A table without a key says nothing, and is a mistake all the same.
    match config.named_flows.iter().find(|named| !specs.iter().any(|spec| spec.name == named.value)) {
        Some(named) => {
            let name = named.value.as_str();
            wrong(named.origin, format!("there is no flow `{name}`{}", hint(name, flow_names())))
        }
        None => Ok(()),
    }
}

/// Whether every setting fits its flow, and the models it names are there.
fn check_settings(config: &Config, specs: &[&FlowSpec]) -> Result<(), (Origin, String)> {
    for setting in &config.settings {
        let (flow, origin) = (setting.flow.as_str(), setting.value.origin);
        let Some(spec) = specs.iter().find(|spec| spec.name == flow) else {
            let known = specs.iter().map(|spec| spec.name.as_str());
            return Err((origin, format!("there is no flow `{flow}`{}", hint(flow, known))));
        };
        let settings = serde_json::json!({ &setting.name: setting.value.value });
        if let Some(misfit) = spec.misfits(&settings).first() {
            return Err((origin, complaint(spec, &format!("flows.{flow}."), misfit)));
        }
        for (at, model) in models_named(&spec.settings, &settings) {
            if !config.models.contains_key(&model) {
                return Err((origin, format!("`flows.{flow}.{at}`: {}", no_model(model.as_str(), config))));
            }
        }
    }
    Ok(())
}
