//! What is known of a model beforehand: how much fits into it and what it costs. Prices come from configuration; this
//! module only multiplies.

use segue_core::prompt::Usage;
use serde::{Deserialize, Serialize};

const TOKENS_PER_PRICE: u128 = 1_000_000;

/// A model's window and price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCard {
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
    /// What it costs, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// Micro-dollars for a million tokens: 3 dollars are `3_000_000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens that were not cached.
    pub input: u64,
    /// Answer tokens, reasoning included.
    pub output: u64,
    /// Prompt tokens the vendor had cached.
    pub cached: u64,
}

impl ModelCard {
    /// A card with a window and no known price.
    #[must_use]
    pub fn unpriced(window_tokens: u32) -> Self {
        Self { window_tokens, price: None }
    }

    /// Micro-dollars for this usage, rounded up so that a sum never understates; `None` if the price is unknown.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> Option<u64> {
        let price = self.price?;
        let cached = usage.cached.min(usage.input);
        let total = u128::from(usage.input - cached) * u128::from(price.input)
            + u128::from(cached) * u128::from(price.cached)
            + u128::from(usage.output) * u128::from(price.output);
        Some(u64::try_from(total.div_ceil(TOKENS_PER_PRICE)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: ModelCard =
        ModelCard { window_tokens: 1000, price: Some(Price { input: 3_000_000, output: 15_000_000, cached: 300_000 }) };

    #[test]
    fn cached_tokens_are_billed_at_their_own_price() {
        let usage = Usage { input: 1000, output: 100, cached: 900, reasoning: 0 };
        assert_eq!(CARD.cost(usage), Some(100 * 3 + 270 + 100 * 15));
    }

    #[test]
    fn a_fraction_of_a_micro_dollar_counts_as_one() {
        let card = ModelCard { price: Some(Price { input: 1, output: 0, cached: 0 }), ..CARD };
        assert_eq!(card.cost(Usage { input: 1, ..Usage::default() }), Some(1));
        assert_eq!(card.cost(Usage::default()), Some(0));
    }

    #[test]
    fn without_a_price_there_is_no_cost() {
        assert_eq!(ModelCard::unpriced(10).cost(Usage { input: 5, ..Usage::default() }), None);
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let most = Usage { input: u32::MAX, output: u32::MAX, cached: u32::MAX, reasoning: u32::MAX };
        let card = ModelCard { price: Some(Price { input: u64::MAX, output: u64::MAX, cached: u64::MAX }), ..CARD };
        assert_eq!(card.cost(most), Some(u64::MAX));
        let more_cached_than_sent = Usage { input: 10, output: 0, cached: 99, reasoning: 0 };
        assert_eq!(CARD.cost(more_cached_than_sent), Some(3));
    }
}
