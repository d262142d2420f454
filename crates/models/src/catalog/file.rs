//! The catalog's file: TOML, read strictly, so that a slip in a price is an error and not a free model.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Catalog, Known, Provider};
use crate::card::{LongPrice, Price};
use crate::vendor::{Dialect, Json, Thinking, Wire};

/// What is wrong with a catalog's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CatalogError(String);

pub(super) fn read(text: &str) -> Result<Catalog, CatalogError> {
    let page: Page = toml::from_str(text).map_err(|error| CatalogError(error.to_string().trim_end().to_owned()))?;
    let mut catalog = Catalog::default();
    for (name, row) in page.providers {
        let provider = row.provider().map_err(|wrong| CatalogError(format!("providers.{name}: {wrong}")))?;
        catalog.providers.insert(name, provider);
    }
    for row in page.models {
        let name = format!("the model `{}` of `{}`", row.name, row.provider);
        catalog.models.push(row.known().map_err(|wrong| CatalogError(format!("{name}: {wrong}")))?);
    }
    Ok(catalog)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    providers: BTreeMap<String, ProviderRow>,
    #[serde(default)]
    models: Vec<ModelRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderRow {
    #[serde(default = "last")]
    rank: u32,
    wire: Wire,
    base_url: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    default: Option<String>,
    window_tokens: Option<u32>,
    json: Option<Json>,
    thinking: Option<Thinking>,
    dialect: Option<Dialect>,
    #[serde(default)]
    free: bool,
}

fn last() -> u32 {
    100
}

impl ProviderRow {
    fn provider(self) -> Result<Provider, String> {
        if self.window_tokens == Some(0) {
            return Err("`window_tokens` must be at least 1".to_owned());
        }
        if self.base_url.as_deref().is_some_and(super::holds_login) {
            return Err("`base_url` holds a name or a password; secrets are taken from the environment only".to_owned());
        }
        Ok(Provider {
            rank: self.rank,
            wire: self.wire,
            base_url: self.base_url,
            keys: self.keys,
            default: self.default,
            assumed: Known {
                window_tokens: self.window_tokens,
                json: self.json,
                thinking: self.thinking,
                dialect: self.dialect,
                ..Known::default()
            },
            is_free: self.free,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelRow {
    provider: String,
    name: String,
    window_tokens: Option<u32>,
    output_tokens_max: Option<u32>,
    price: Option<PriceRow>,
    json: Option<Json>,
    thinking: Option<Thinking>,
    thought_tokens_min: Option<u32>,
    dialect: Option<Dialect>,
    images: Option<bool>,
    tools: Option<bool>,
    #[serde(default)]
    marks: Option<bool>,
}

impl ModelRow {
    fn known(self) -> Result<Known, String> {
        if self.window_tokens == Some(0) || self.output_tokens_max == Some(0) {
            return Err("a number of tokens must be at least 1".to_owned());
        }
        Ok(Known {
            provider: self.provider,
            name: self.name,
            window_tokens: self.window_tokens,
            output_tokens_max: self.output_tokens_max,
            price: self.price.map(|price| price.price()).transpose()?,
            json: self.json,
            thinking: self.thinking,
            thought_tokens_min: self.thought_tokens_min,
            dialect: self.dialect,
            images: self.images,
            tools: self.tools,
            marks: self.marks,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceRow {
    input: f64,
    output: f64,
    cached: Option<f64>,
    written: Option<f64>,
    long: Option<LongRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRow {
    above_tokens: u32,
    input: f64,
    output: f64,
    cached: Option<f64>,
    written: Option<f64>,
}

impl PriceRow {
    fn price(&self) -> Result<Price, String> {
        let long = self.long.as_ref().map(|long| {
            let input = micro(long.input)?;
            Ok::<_, String>(LongPrice {
                above_tokens: long.above_tokens,
                input,
                output: micro(long.output)?,
                cached: long.cached.map_or(Ok(input), micro)?,
                written: long.written.map(micro).transpose()?,
            })
        });
        let input = micro(self.input)?;
        Ok(Price {
            input,
            output: micro(self.output)?,
            cached: self.cached.map_or(Ok(input), micro)?,
            written: self.written.map(micro).transpose()?,
            long: long.transpose()?,
        })
    }
}

/// Dollars as micro-dollars.
fn micro(dollars: f64) -> Result<u64, String> {
    let micro = (dollars * 1e6).round();
    // Beyond this no price is meant, and a whole number is exact below it.
    if (0.0..1e15).contains(&micro) { Ok(micro as u64) } else { Err(format!("{dollars} is no price in dollars")) }
}
