//! A vendor's model in the file: `[models.NAME]` with a provider, and `provider/model` wherever a model is named.

use segue_core::ids::ModelName;
use segue_models::ModelCatalog;
use segue_models::catalog::{ModelProfile, VendorModelSpec};
use segue_models::vendor::{GenerationParams, JsonMode, ReasoningEffort, WireFormat};

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ModelConfig, ModelConfigKind};

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

pub(super) const WIRE_FORMAT_NAMES: [(&str, WireFormat); 5] = [
    ("chat", WireFormat::Chat),
    ("responses", WireFormat::Responses),
    ("anthropic", WireFormat::Anthropic),
    ("gemini", WireFormat::Gemini),
    ("ollama", WireFormat::Ollama),
];
pub(super) const EFFORT_NAMES: [(&str, ReasoningEffort); 4] = [
    ("none", ReasoningEffort::None),
    ("low", ReasoningEffort::Low),
    ("medium", ReasoningEffort::Medium),
    ("high", ReasoningEffort::High),
];
pub(super) const JSON_MODE_NAMES: [(&str, JsonMode); 3] =
    [("schema", JsonMode::Schema), ("object", JsonMode::Object), ("prompt", JsonMode::Prompt)];

/// The highest temperature any vendor takes.
const HIGHEST_TEMPERATURE: f64 = 2.0;

/// Reads what is special to a vendor's model.
pub(super) fn read_vendor_model(
    table: &ConfigTable<'_>,
    name: &str,
    catalog: &ModelCatalog,
) -> Result<VendorModelSpec, ConfigError> {
    let Some(provider) = table.string("provider")? else {
        return Err(table.table_error(format!("`models.{name}.provider` is missing: who serves it")));
    };
    let value = |setting: Option<ConfigValue<String>>| setting.map(|setting| setting.value);
    let key_env = value(table.string("key_env")?);
    if key_env.as_deref().is_some_and(|env| !is_env_var_name(env)) {
        // It may be the key itself, so it is not repeated.
        let message = format!(
            "`models.{name}.key_env` is the name of a variable of the environment, such as OPENAI_API_KEY, and not the key itself"
        );
        return Err(table.error_at(table.key_offset("key_env"), message));
    }
    let base_url = value(table.string("base_url")?);
    if base_url.as_deref().is_some_and(url_contains_secret) {
        let message = format!(
            "`models.{name}.base_url` holds a secret; secrets are taken from the environment only, so name its variable with `key_env`"
        );
        return Err(table.error_at(table.key_offset("base_url"), message));
    }
    let wanted = VendorModelSpec {
        provider: provider.value,
        model: value(table.string("model")?).unwrap_or_else(|| name.to_owned()),
        wire: table.choice("wire", &WIRE_FORMAT_NAMES)?.map(|wire| wire.value),
        base_url,
        key_env,
        login_env: None,
        params: GenerationParams {
            temperature: table.float("temperature", 0.0, HIGHEST_TEMPERATURE)?.map(|number| number.value as f32),
            effort: table.choice("effort", &EFFORT_NAMES)?.map(|effort| effort.value),
        },
        overrides: ModelProfile {
            output_tokens_max: table.integer("output_tokens_max", 1)?.map(|tokens| tokens.value),
            json: table.choice("json", &JSON_MODE_NAMES)?.map(|json| json.value),
            images: table.boolean("images")?.map(|flag| flag.value),
            tools: table.boolean("tools")?.map(|flag| flag.value),
            ..ModelProfile::default()
        },
    };
    // Whether the key is there is for the environment to say, not for the file.
    match catalog.resolve_model(&wanted, &|_| None) {
        Ok(_) => Ok(wanted),
        Err(wrong) => Err(table.error_at(table.key_offset("provider"), format!("`models.{name}`: {wrong}"))),
    }
}

fn is_env_var_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(allowed)
}

/// Whether an address names a user or carries a key.
fn url_contains_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') || rest.contains("key=") || rest.contains("token=")
}

/// The model that `provider/model` stands for, if the provider is known.
pub fn parse_model_shorthand(catalog: &ModelCatalog, name: &str) -> Option<ModelConfig> {
    let (provider, model) = name.split_once('/')?;
    let known = catalog.providers_by_rank().into_iter().find(|(known, _)| *known == provider)?.1;
    // A provider may have put its own name before its model's.
    let model = if known.default_model.as_deref() == Some(name) { name } else { model };
    let wanted =
        VendorModelSpec { provider: provider.to_owned(), model: model.to_owned(), ..VendorModelSpec::default() };
    let is_known = !model.is_empty() && catalog.resolve_model(&wanted, &|_| None).is_ok();
    is_known.then(|| ModelConfig { kind: ModelConfigKind::Vendor(Box::new(wanted)), window_tokens: None, price: None })
}

impl Config {
    /// Adds the model that is named as `provider/model`, if it is and is not there yet.
    pub fn add_shorthand_model(&mut self, name: &ConfigValue<ModelName>) {
        if self.models.contains_key(&name.value) {
            return;
        }
        if let Some(model) = parse_model_shorthand(&self.catalog, name.value.as_str()) {
            self.models.insert(name.value.clone(), ConfigValue { value: model, origin: name.origin });
        }
    }
}
