//! `segue models`: lists the available models with windows and prices, or all models of a provider.

use std::time::Duration;

use anyhow::Context;
use segue_core::ids::ModelName;
use segue_models::card::{ModelCard, TokenPrice};
use segue_models::catalog::RequestedVendorModel;
use segue_models::discovery::{apply_ollama_env, list_provider_models};
use segue_models::http::{CompletionOrProbeTimeouts, ReqwestTransport};
use segue_models::limits::MODEL_LISTING_MS_MAX;
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, ListModelsArgs};
use crate::config::{Config, ConfigValueOrigin, ModelConfigKind};
use crate::model_setup::{ModelDiscoveryExtent, ResolvedModel, ResolvedModelSetup, discover_models, read_env_var};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities, number_format};
use crate::setup::{self, ConfigWithStorePath};
use crate::trust::{self, ConfigActionsUsedByCommand};

pub(crate) async fn run_models(global: &GlobalArgs, arguments: &ListModelsArgs) -> anyhow::Result<()> {
    let ConfigWithStorePath { mut config, folder_trust, .. } = setup::load_config(global)?;
    trust::require_trust(folder_trust.as_ref(), ConfigActionsUsedByCommand::Everything)?;
    match &arguments.provider {
        Some(provider) => print_provider_models(global, &config, provider).await,
        None => {
            discover_models(&mut config, ModelDiscoveryExtent::Everywhere).await;
            print_available_models(global, &config).await
        }
    }
}

/// Lists the configured and discovered models.
async fn print_available_models(global: &GlobalArgs, config: &Config) -> anyhow::Result<()> {
    let setup = ResolvedModelSetup::from_config(config).await?;
    let rows: Vec<ModelListRow<'_>> =
        setup.models.iter().map(|(name, model)| ModelListRow::from_model(name, model, config)).collect();
    if global.json {
        return print::print_json(&json!({ "models": rows.iter().map(ModelListRow::to_json).collect::<Vec<_>>() }));
    }
    let mut table = TextTable::new([
        ("model", ColumnLayout::Left),
        ("provider", ColumnLayout::Left),
        ("window", ColumnLayout::Right),
        ("$ in", ColumnLayout::Right),
        ("$ cached", ColumnLayout::Right),
        ("$ out", ColumnLayout::Right),
        ("notes", ColumnLayout::Wrap),
    ]);
    for row in rows {
        let [input, cached, output] = format_prices(row.card);
        let window =
            row.card.map_or_else(|| "–".to_owned(), |card| number_format::format_count(u64::from(card.window_tokens)));
        table.add_row([
            row.name.to_string(),
            row.provider.clone(),
            window,
            input,
            cached,
            output,
            row.notes.join("; "),
        ]);
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}

struct ModelListRow<'m> {
    name: &'m ModelName,
    provider: String,
    card: Option<ModelCard>,
    notes: Vec<String>,
}

impl<'m> ModelListRow<'m> {
    fn from_model(name: &'m ModelName, model: &'m ResolvedModel, config: &Config) -> Self {
        let mut notes = Vec::new();
        if config.default_model.value == *name {
            notes.push("default".to_owned());
        }
        if config.models.get(name).is_some_and(|model| model.origin == ConfigValueOrigin::Discovered) {
            notes.push("discovered".to_owned());
        }
        if let Some((env, false)) = model.api_key_env_with_presence() {
            notes.push(format!("no key: {env} is not set"));
        }
        let (provider, card) = match model {
            ResolvedModel::Vendor { connection, card, is_window_assumed } => {
                if *is_window_assumed {
                    notes.push("window assumed".to_owned());
                }
                if connection.model != name.as_str() {
                    notes.push(format!("provider's name: {}", connection.model));
                }
                (connection.provider.clone(), Some(*card))
            }
            ResolvedModel::Rehearsal { card, .. } => {
                notes.push("canned replies".to_owned());
                ("rehearsal".to_owned(), *card)
            }
            ResolvedModel::Scripted { card, .. } => ("scripted".to_owned(), *card),
        };
        Self { name, provider, card, notes }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "provider": self.provider,
            "window_tokens": self.card.map(|card| card.window_tokens),
            "price": self.card.and_then(|card| card.price),
            "signals": self.card.map(|card| card.signal_form),
            "notes": self.notes,
        })
    }
}

/// Formats the price per million tokens in dollars: input, cached input, output.
fn format_prices(card: Option<ModelCard>) -> [String; 3] {
    let dollars = |micro: u64| format!("{}", micro as f64 / 1e6);
    match card.and_then(|card| card.price) {
        Some(TokenPrice { input, output, cached, .. }) => [input, cached, output].map(dollars),
        None => ["?", "?", "?"].map(str::to_owned),
    }
}

/// Returns the endpoint to ask for `name`, which is a configured model or a provider.
fn resolve_vendor_model_spec(config: &Config, name: &str) -> RequestedVendorModel {
    let configured = config.models.get(&ModelName::from(name)).map(|model| &model.value.kind);
    if let Some(ModelConfigKind::Vendor(spec)) = configured {
        return apply_ollama_env((**spec).clone(), &read_env_var);
    }
    let provider = config.catalog.providers_by_rank().into_iter().find(|(provider, _)| *provider == name);
    let model = provider.and_then(|(_, provider)| provider.default_model.clone()).unwrap_or_else(|| "any".to_owned());
    apply_ollama_env(
        RequestedVendorModel { provider: name.to_owned(), model, ..RequestedVendorModel::default() },
        &read_env_var,
    )
}

/// Lists the models that a provider, or the server of a configured model, reports.
async fn print_provider_models(global: &GlobalArgs, config: &Config, name: &str) -> anyhow::Result<()> {
    let spec = resolve_vendor_model_spec(config, name);
    let provider = spec.provider.as_str();
    let connection = config.catalog.resolve_model(&spec, &read_env_var)?.endpoint;
    let server = match connection.host_and_port() {
        host if host.contains(provider) => provider.to_owned(),
        host => format!("{provider} at {host}"),
    };
    let client = ReqwestTransport::new(CompletionOrProbeTimeouts::Completion);
    let listing =
        tokio::time::timeout(Duration::from_millis(MODEL_LISTING_MS_MAX), list_provider_models(&client, &connection))
            .await;
    let names = match listing {
        Ok(names) => names.map_err(|failure| anyhow::anyhow!("{}", failure.message)),
        Err(_) => Err(anyhow::anyhow!("no response within {} s", MODEL_LISTING_MS_MAX / 1_000)),
    };
    let names = names.with_context(|| format!("cannot list the models of {server}"))?;
    if global.json {
        return print::print_json(&json!({ "provider": provider, "models": names }));
    }
    let mut table = TextTable::new([
        ("model", ColumnLayout::Left),
        ("window", ColumnLayout::Right),
        ("$ in", ColumnLayout::Right),
        ("$ out", ColumnLayout::Right),
    ]);
    for name in names {
        let known = config.catalog.find_profile(provider, &name);
        let window = known
            .as_ref()
            .and_then(|known| known.window_tokens)
            .map(|tokens| number_format::format_count(u64::from(tokens)));
        let card = known.map(|known| ModelCard { price: known.price, ..ModelCard::unpriced(0) });
        let [input, _, output] = format_prices(card);
        table.add_row([format!("{provider}/{name}"), window.unwrap_or_else(|| "?".to_owned()), input, output]);
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}
