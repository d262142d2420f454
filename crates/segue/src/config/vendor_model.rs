//! Vendor models in the file: the table `[models.NAME]` with a provider, and the shorthand `provider/model`.

use segue_core::ids::ModelName;
use segue_models::ModelCatalog;
use segue_models::catalog::{CatalogModel, RequestedVendorModel};
use segue_models::vendor::{GenerationParams, JsonMode, ReasoningEffort, WireFormat};

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ModelConfig, ModelConfigKind};

pub(super) const VENDOR_KEYS: [&str; 11] = [
    "provider",
    "model",
    "api_format",
    "base_url",
    "key_env",
    "temperature",
    "effort",
    "json",
    "images",
    "tools",
    "output_tokens_max",
];

pub(super) const API_FORMAT_NAMES: [(&str, WireFormat); 5] = [
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

/// The highest temperature that any vendor accepts.
const HIGHEST_TEMPERATURE: f64 = 2.0;

/// Reads the keys that only a vendor model has.
pub(super) fn read_vendor_model(
    table: &ConfigTable<'_>,
    name: &str,
    catalog: &ModelCatalog,
) -> Result<RequestedVendorModel, ConfigError> {
    let Some(provider) = table.string("provider")? else {
        return Err(table.table_error(format!("`models.{name}.provider` is missing: the provider of the model")));
    };
    let value = |setting: Option<ConfigValue<String>>| setting.map(|setting| setting.value);
    let key_env = value(table.string("key_env")?);
    if key_env.as_deref().is_some_and(|env| !is_env_var_name(env)) {
        // The value may be the key itself, so the message does not repeat it.
        let message = format!(
            "`models.{name}.key_env` must be the name of an environment variable, such as OPENAI_API_KEY, not the key itself"
        );
        return Err(table.error_at(table.key_offset("key_env"), message));
    }
    let base_url = value(table.string("base_url")?);
    if base_url.as_deref().is_some_and(url_contains_secret) {
        let message = format!(
            "`models.{name}.base_url` contains a secret; put it into an environment variable and name that with `key_env`"
        );
        return Err(table.error_at(table.key_offset("base_url"), message));
    }
    let spec = RequestedVendorModel {
        provider: provider.value,
        model: value(table.string("model")?).unwrap_or_else(|| name.to_owned()),
        wire: table.choice("api_format", &API_FORMAT_NAMES)?.map(|format| format.value),
        base_url,
        key_env,
        login_env: None,
        params: GenerationParams {
            temperature: table.float("temperature", 0.0, HIGHEST_TEMPERATURE)?.map(|number| number.value as f32),
            effort: table.choice("effort", &EFFORT_NAMES)?.map(|effort| effort.value),
        },
        overrides: CatalogModel {
            output_tokens_max: table.integer("output_tokens_max", 1)?.map(|tokens| tokens.value),
            json: table.choice("json", &JSON_MODE_NAMES)?.map(|json| json.value),
            images: table.boolean("images")?.map(|flag| flag.value),
            tools: table.boolean("tools")?.map(|flag| flag.value),
            ..CatalogModel::default()
        },
    };
    // The environment is left out: a missing API key is not a mistake in the file.
    match catalog.resolve_model(&spec, &|_| None) {
        Ok(_) => Ok(spec),
        Err(error) => Err(table.error_at(table.key_offset("provider"), format!("`models.{name}`: {error}"))),
    }
}

fn is_env_var_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(allowed)
}

/// Whether an address contains a user name or an API key.
fn url_contains_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') || rest.contains("key=") || rest.contains("token=")
}

/// Returns the model that `provider/model` refers to, or `None` if the provider is unknown.
pub(crate) fn parse_model_shorthand(catalog: &ModelCatalog, name: &str) -> Option<ModelConfig> {
    let (provider, model) = name.split_once('/')?;
    let known = catalog.providers_by_rank().into_iter().find(|(known, _)| *known == provider)?.1;
    // Some providers have models whose names begin with the provider's own name.
    let model = if known.default_model.as_deref() == Some(name) { name } else { model };
    let spec = RequestedVendorModel {
        provider: provider.to_owned(),
        model: model.to_owned(),
        ..RequestedVendorModel::default()
    };
    let is_known = !model.is_empty() && catalog.resolve_model(&spec, &|_| None).is_ok();
    is_known.then(|| ModelConfig { kind: ModelConfigKind::Vendor(Box::new(spec)), window_tokens: None, price: None })
}

impl Config {
    /// Adds a model that is named as `provider/model`, unless it is configured already.
    pub(crate) fn add_shorthand_model(&mut self, name: &ConfigValue<ModelName>) {
        if self.models.contains_key(&name.value) {
            return;
        }
        if let Some(model) = parse_model_shorthand(&self.catalog, name.value.as_str()) {
            self.models.insert(name.value.clone(), ConfigValue { value: model, origin: name.origin });
        }
    }
}
