//! Which models are at hand, what they cost, and what a provider serves beside them.

use std::time::Duration;

use anyhow::Context;
use segue_core::ids::ModelName;
use segue_models::card::{ModelCard, Price};
use segue_models::catalog::Wanted;
use segue_models::discover::{offered, placed};
use segue_models::http::{Client, Patience};
use segue_models::limits::LISTING_MS_MAX;
use serde_json::{Value, json};

use crate::cast::{Member, Search, Sheet, env, find_models};
use crate::cli::{Global, ModelList};
use crate::config::{Config, ModelKind, Origin};
use crate::print::table::{Column, Table};
use crate::print::{self, Screen, amount};
use crate::setup;

pub async fn run(global: &Global, arguments: &ModelList) -> anyhow::Result<()> {
    let mut config = setup::load(global)?.config;
    match &arguments.provider {
        Some(provider) => served(global, &config, provider).await,
        None => {
            find_models(&mut config, Search::Thorough).await;
            at_hand(global, &config).await
        }
    }
}

/// What is configured or was found.
async fn at_hand(global: &Global, config: &Config) -> anyhow::Result<()> {
    let sheet = Sheet::of(config).await?;
    let rows: Vec<Row<'_>> = sheet.members.iter().map(|(name, member)| Row::of(name, member, config)).collect();
    if global.json {
        return print::json(&json!({ "models": rows.iter().map(Row::json).collect::<Vec<_>>() }));
    }
    let mut table = Table::new([
        ("model", Column::Left),
        ("of", Column::Left),
        ("window", Column::Right),
        ("$ in", Column::Right),
        ("$ cached", Column::Right),
        ("$ out", Column::Right),
        ("note", Column::Wrap),
    ]);
    for row in rows {
        let [input, cached, output] = prices(row.card);
        let window = row.card.map_or_else(|| "–".to_owned(), |card| amount::count(u64::from(card.window_tokens)));
        table.row([row.name.to_string(), row.of.clone(), window, input, cached, output, row.notes.join("; ")]);
    }
    let screen = Screen::here();
    print::out(&table.render(screen.width, screen.paint))
}

struct Row<'m> {
    name: &'m ModelName,
    of: String,
    card: Option<ModelCard>,
    notes: Vec<String>,
}

impl<'m> Row<'m> {
    fn of(name: &'m ModelName, member: &'m Member, config: &Config) -> Self {
        let mut notes = Vec::new();
        if config.default_model.value == *name {
            notes.push("for everybody".to_owned());
        }
        if config.models.get(name).is_some_and(|model| model.origin == Origin::Found) {
            notes.push("found here".to_owned());
        }
        if let Some((env, false)) = member.key() {
            notes.push(format!("no key: {env} is not set"));
        }
        let (of, card) = match member {
            Member::Vendor { connection, card, is_window_assumed } => {
                if *is_window_assumed {
                    notes.push("its window is assumed".to_owned());
                }
                if connection.model != name.as_str() {
                    notes.push(format!("called {} there", connection.model));
                }
                (connection.provider.clone(), Some(*card))
            }
            Member::Rehearsal { card, .. } => {
                notes.push("only pretends".to_owned());
                ("rehearsal".to_owned(), *card)
            }
            Member::Scripted { card, .. } => ("scripted".to_owned(), *card),
        };
        Self { name, of, card, notes }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "of": self.of,
            "window_tokens": self.card.map(|card| card.window_tokens),
            "price": self.card.and_then(|card| card.price),
            "notes": self.notes,
        })
    }
}

/// Dollars for a million tokens: in, cached, out.
fn prices(card: Option<ModelCard>) -> [String; 3] {
    let dollars = |micro: u64| format!("{}", micro as f64 / 1e6);
    match card.and_then(|card| card.price) {
        Some(Price { input, output, cached, .. }) => [input, cached, output].map(dollars),
        None => ["?", "?", "?"].map(str::to_owned),
    }
}

/// What somebody is to be asked for who is named: as a model of the configuration, or as a provider.
fn wanted(config: &Config, name: &str) -> Wanted {
    let configured = config.models.get(&ModelName::from(name)).map(|model| &model.value.kind);
    if let Some(ModelKind::Vendor(wanted)) = configured {
        return placed((**wanted).clone(), &env);
    }
    let provider = config.catalog.providers().into_iter().find(|(provider, _)| *provider == name);
    let model = provider.and_then(|(_, provider)| provider.default.clone()).unwrap_or_else(|| "any".to_owned());
    placed(Wanted { provider: name.to_owned(), model, ..Wanted::default() }, &env)
}

/// What a provider says it serves, or the server of a configured model.
async fn served(global: &Global, config: &Config, name: &str) -> anyhow::Result<()> {
    let wanted = wanted(config, name);
    let provider = wanted.provider.as_str();
    let connection = config.catalog.find(&wanted, &env)?.connection;
    let place = match connection.host() {
        host if host.contains(provider) => provider.to_owned(),
        host => format!("{provider} at {host}"),
    };
    let client = Client::new(Patience::Ample);
    let listing = tokio::time::timeout(Duration::from_millis(LISTING_MS_MAX), offered(&client, &connection)).await;
    let names = match listing {
        Ok(names) => names.map_err(|failure| anyhow::anyhow!("{}", failure.message)),
        Err(_) => Err(anyhow::anyhow!("no answer within {} s", LISTING_MS_MAX / 1_000)),
    };
    let names = names.with_context(|| format!("{place} does not say what it serves"))?;
    if global.json {
        return print::json(&json!({ "provider": provider, "models": names }));
    }
    let mut table = Table::new([
        ("model", Column::Left),
        ("window", Column::Right),
        ("$ in", Column::Right),
        ("$ out", Column::Right),
    ]);
    for name in names {
        let known = config.catalog.known(provider, &name);
        let window =
            known.as_ref().and_then(|known| known.window_tokens).map(|tokens| amount::count(u64::from(tokens)));
        let card = known.map(|known| ModelCard { window_tokens: 0, price: known.price });
        let [input, _, output] = prices(card);
        table.row([format!("{provider}/{name}"), window.unwrap_or_else(|| "?".to_owned()), input, output]);
    }
    let screen = Screen::here();
    print::out(&table.render(screen.width, screen.paint))
}
