//! A vendor's model in the file: `[models.NAME]` with a provider, and `provider/model` wherever a model is named.

use segue_core::ids::ModelName;
use segue_models::Catalog;
use segue_models::catalog::{Known, Wanted};
use segue_models::vendor::{Effort, Json, Manner, Wire};

use super::reader::{Error, Table};
use super::{Config, Model, ModelKind, Setting};

pub(super) const VENDOR_KEYS: [&str; 11] = [
    "provider",
    "model",
    "wire",
    "base_url",
    "key_env",
    "temperature",
    "effort",
    "json",
    "images",
    "tools",
    "output_tokens_max",
];

pub(super) const WIRE_WORDS: [(&str, Wire); 5] = [
    ("chat", Wire::Chat),
    ("responses", Wire::Responses),
    ("anthropic", Wire::Anthropic),
    ("gemini", Wire::Gemini),
    ("ollama", Wire::Ollama),
];
pub(super) const EFFORT_WORDS: [(&str, Effort); 4] =
    [("none", Effort::None), ("low", Effort::Low), ("medium", Effort::Medium), ("high", Effort::High)];
pub(super) const JSON_WORDS: [(&str, Json); 3] =
    [("schema", Json::Schema), ("object", Json::Object), ("told", Json::Told)];

/// The highest temperature any vendor takes.
const HOTTEST: f64 = 2.0;

/// Reads what is special to a vendor's model.
pub(super) fn read(table: &Table<'_>, name: &str, catalog: &Catalog) -> Result<Wanted, Error> {
    let Some(provider) = table.text("provider")? else {
        return Err(table.complain(format!("`models.{name}.provider` is missing: who serves it")));
    };
    let value = |setting: Option<Setting<String>>| setting.map(|setting| setting.value);
    let key_env = value(table.text("key_env")?);
    if key_env.as_deref().is_some_and(|env| !is_variable(env)) {
        // It may be the key itself, so it is not repeated.
        let message = format!(
            "`models.{name}.key_env` is the name of a variable of the environment, such as OPENAI_API_KEY, and not the key itself"
        );
        return Err(table.error(table.start_of("key_env"), message));
    }
    let base_url = value(table.text("base_url")?);
    if base_url.as_deref().is_some_and(holds_secret) {
        let message = format!(
            "`models.{name}.base_url` holds a secret; secrets are taken from the environment only, so name its variable with `key_env`"
        );
        return Err(table.error(table.start_of("base_url"), message));
    }
    let wanted = Wanted {
        provider: provider.value,
        model: value(table.text("model")?).unwrap_or_else(|| name.to_owned()),
        wire: table.word("wire", &WIRE_WORDS)?.map(|wire| wire.value),
        base_url,
        key_env,
        login_env: None,
        manner: Manner {
            temperature: table.decimal("temperature", 0.0, HOTTEST)?.map(|number| number.value as f32),
            effort: table.word("effort", &EFFORT_WORDS)?.map(|effort| effort.value),
        },
        known: Known {
            output_tokens_max: table.number("output_tokens_max", 1)?.map(|tokens| tokens.value),
            json: table.word("json", &JSON_WORDS)?.map(|json| json.value),
            images: table.flag("images")?.map(|flag| flag.value),
            tools: table.flag("tools")?.map(|flag| flag.value),
            ..Known::default()
        },
    };
    // Whether the key is there is for the environment to say, not for the file.
    match catalog.find(&wanted, &|_| None) {
        Ok(_) => Ok(wanted),
        Err(wrong) => Err(table.error(table.start_of("provider"), format!("`models.{name}`: {wrong}"))),
    }
}

fn is_variable(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(allowed)
}

/// Whether an address names a user or carries a key.
fn holds_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') || rest.contains("key=") || rest.contains("token=")
}

/// The model that `provider/model` stands for, if the provider is known.
pub fn shorthand(catalog: &Catalog, name: &str) -> Option<Model> {
    let (provider, model) = name.split_once('/')?;
    let known = catalog.providers().into_iter().find(|(known, _)| *known == provider)?.1;
    // A provider may have put its own name before its model's.
    let model = if known.default.as_deref() == Some(name) { name } else { model };
    let wanted = Wanted { provider: provider.to_owned(), model: model.to_owned(), ..Wanted::default() };
    let is_known = !model.is_empty() && catalog.find(&wanted, &|_| None).is_ok();
    is_known.then(|| Model { kind: ModelKind::Vendor(Box::new(wanted)), window_tokens: None, price: None })
}

impl Config {
    /// Adds the model that is named as `provider/model`, if it is and is not there yet.
    pub fn adopt(&mut self, name: &Setting<ModelName>) {
        if self.models.contains_key(&name.value) {
            return;
        }
        if let Some(model) = shorthand(&self.catalog, name.value.as_str()) {
            self.models.insert(name.value.clone(), Setting { value: model, origin: name.origin });
        }
    }
}
