//! Parses catalog files. Unknown keys are errors, so that a typo in a price does not make a model free.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CatalogModel, CatalogModelProvider, ModelCatalog};
use crate::card::{LongPromptPrice, TokenPrice};
use crate::limits::PRICE_SOURCES_MIN;
use crate::vendor::{ChatCompletionsDialect, JsonMode, ThinkingSupport, WireFormat};

/// Why a catalog file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelCatalogFileError(String);

pub(super) fn parse_catalog(text: &str) -> Result<ModelCatalog, ModelCatalogFileError> {
    let file: ModelCatalogFile =
        toml::from_str(text).map_err(|error| ModelCatalogFileError(error.to_string().trim_end().to_owned()))?;
    let mut catalog = ModelCatalog::default();
    for (name, row) in file.providers {
        let provider =
            row.into_provider().map_err(|problem| ModelCatalogFileError(format!("providers.{name}: {problem}")))?;
        catalog.providers.insert(name, provider);
    }
    for row in file.models {
        let name = format!("model `{}` of provider `{}`", row.name, row.provider);
        catalog.models.push(row.into_profile().map_err(|problem| ModelCatalogFileError(format!("{name}: {problem}")))?);
    }
    Ok(catalog)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCatalogFile {
    #[serde(default)]
    providers: BTreeMap<String, ModelCatalogFileProvider>,
    #[serde(default)]
    models: Vec<ModelCatalogFileModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCatalogFileProvider {
    #[serde(default = "default_provider_rank")]
    rank: u32,
    wire: WireFormat,
    base_url: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    default: Option<String>,
    window_tokens: Option<u32>,
    json: Option<JsonMode>,
    thinking: Option<ThinkingSupport>,
    dialect: Option<ChatCompletionsDialect>,
    #[serde(default)]
    free: bool,
}

fn default_provider_rank() -> u32 {
    100
}

impl ModelCatalogFileProvider {
    fn into_provider(self) -> Result<CatalogModelProvider, String> {
        if self.window_tokens == Some(0) {
            return Err("`window_tokens` must be at least 1".to_owned());
        }
        if self.base_url.as_deref().is_some_and(super::has_url_credentials) {
            return Err(
                "`base_url` contains a user name or password; secrets are read from the environment only".to_owned()
            );
        }
        Ok(CatalogModelProvider {
            rank: self.rank,
            wire: self.wire,
            base_url: self.base_url,
            key_env_vars: self.keys,
            default_model: self.default,
            model_defaults: CatalogModel {
                window_tokens: self.window_tokens,
                json: self.json,
                thinking: self.thinking,
                dialect: self.dialect,
                ..CatalogModel::default()
            },
            is_free: self.free,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCatalogFileModel {
    provider: String,
    name: String,
    window_tokens: Option<u32>,
    output_tokens_max: Option<u32>,
    price: Option<ModelCatalogFilePrice>,
    /// The day on which the price was compared with published sources, such as `2026-11-18`.
    price_checked: Option<String>,
    /// The published sources that the price was compared with, at least two.
    #[serde(default)]
    price_sources: Vec<String>,
    json: Option<JsonMode>,
    thinking: Option<ThinkingSupport>,
    thinking_tokens_min: Option<u32>,
    dialect: Option<ChatCompletionsDialect>,
    images: Option<bool>,
    tools: Option<bool>,
    #[serde(default)]
    cache_breakpoints: Option<bool>,
    inline_signals: Option<bool>,
}

impl ModelCatalogFileModel {
    fn into_profile(self) -> Result<CatalogModel, String> {
        if self.window_tokens == Some(0) || self.output_tokens_max == Some(0) {
            return Err("token counts must be at least 1".to_owned());
        }
        if let Some(day) = &self.price_checked {
            if !is_iso_date(day) {
                return Err(format!("`price_checked` must be a day such as 2026-11-18, not `{day}`"));
            }
            if self.price.is_none() {
                return Err("`price_checked` needs a `price`".to_owned());
            }
        }
        if self.price_checked.is_some() != (self.price_sources.len() >= PRICE_SOURCES_MIN) {
            return Err(format!(
                "`price_checked` and `price_sources` go together, with at least {PRICE_SOURCES_MIN} sources"
            ));
        }
        Ok(CatalogModel {
            provider: self.provider,
            name: self.name,
            window_tokens: self.window_tokens,
            output_tokens_max: self.output_tokens_max,
            price: self.price.map(|price| price.to_token_price()).transpose()?,
            json: self.json,
            thinking: self.thinking,
            thinking_tokens_min: self.thinking_tokens_min,
            dialect: self.dialect,
            images: self.images,
            tools: self.tools,
            cache_breakpoints: self.cache_breakpoints,
            inline_signals: self.inline_signals,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCatalogFilePrice {
    input: f64,
    output: f64,
    cached: Option<f64>,
    written: Option<f64>,
    long: Option<ModelCatalogFileLongPromptPrice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCatalogFileLongPromptPrice {
    above_tokens: u32,
    input: f64,
    output: f64,
    cached: Option<f64>,
    written: Option<f64>,
}

impl ModelCatalogFilePrice {
    fn to_token_price(&self) -> Result<TokenPrice, String> {
        let long = self.long.as_ref().map(|long| {
            let input = dollars_to_micro(long.input)?;
            Ok::<_, String>(LongPromptPrice {
                above_tokens: long.above_tokens,
                input,
                output: dollars_to_micro(long.output)?,
                cached: long.cached.map_or(Ok(input), dollars_to_micro)?,
                written: long.written.map(dollars_to_micro).transpose()?,
            })
        });
        let input = dollars_to_micro(self.input)?;
        Ok(TokenPrice {
            input,
            output: dollars_to_micro(self.output)?,
            cached: self.cached.map_or(Ok(input), dollars_to_micro)?,
            written: self.written.map(dollars_to_micro).transpose()?,
            long: long.transpose()?,
        })
    }
}

/// Returns whether a text has the form of a date, such as `2026-11-18`.
fn is_iso_date(text: &str) -> bool {
    let has_form =
        |(index, byte): (usize, u8)| if index == 4 || index == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(has_form)
}

/// Converts dollars to micro-dollars.
fn dollars_to_micro(dollars: f64) -> Result<u64, String> {
    let micro = (dollars * 1e6).round();
    // Larger numbers are not prices, and would not be exact.
    if (0.0..1e15).contains(&micro) { Ok(micro as u64) } else { Err(format!("{dollars} is not a price in dollars")) }
}
