//! The context window and price of a model, and the cost of a call. Prices come from configuration; this module only
//! multiplies.

use segue_core::prompt::TokenUsage;
use segue_core::signal::SignalForm;
use serde::{Deserialize, Serialize};

const TOKENS_PER_PRICE_UNIT: u128 = 1_000_000;

/// The context window, price and signal form of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCard {
    /// Tokens that prompt and reply may use together.
    pub window_tokens: u32,
    /// `None` if the price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<TokenPrice>,
    /// How it is asked for signals: in its replies if it is known to write blocks reliably.
    #[serde(default)]
    pub signal_form: SignalForm,
    /// Whether it is known to support tool calls.
    #[serde(default)]
    pub has_tool_calls: bool,
}

/// Prices in micro-dollars per million tokens: 3 dollars are `3_000_000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    /// Price of prompt tokens that were not cached.
    pub input: u64,
    /// Price of reply tokens, including reasoning.
    pub output: u64,
    /// Price of prompt tokens read from the vendor's cache.
    pub cached: u64,
    /// Price of prompt tokens written to the vendor's cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// Prices for long prompts, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPromptPrice>,
}

/// Prices of a whole call whose prompt is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPromptPrice {
    /// A prompt with more tokens than this is long.
    pub above_tokens: u32,
    /// Price of prompt tokens that were not cached.
    pub input: u64,
    /// Price of reply tokens, including reasoning.
    pub output: u64,
    /// Price of prompt tokens read from the vendor's cache.
    pub cached: u64,
    /// Price of prompt tokens written to the vendor's cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
}

impl TokenPrice {
    /// Creates a price without surcharges for long prompts or cache writes.
    #[must_use]
    pub fn flat(input: u64, output: u64, cached: u64) -> Self {
        Self { input, output, cached, written: None, long: None }
    }

    /// Returns the rates for a prompt of `prompt_tokens`: input, output, cached, written.
    fn rates_for_prompt(&self, prompt_tokens: u32) -> [u64; 4] {
        match self.long.filter(|long| prompt_tokens > long.above_tokens) {
            Some(long) => [long.input, long.output, long.cached, long.written.unwrap_or(long.input)],
            None => [self.input, self.output, self.cached, self.written.unwrap_or(self.input)],
        }
    }
}

impl ModelCard {
    /// Creates a card with a window and no known price.
    #[must_use]
    pub fn unpriced(window_tokens: u32) -> Self {
        Self { window_tokens, price: None, signal_form: SignalForm::Inline, has_tool_calls: true }
    }

    /// Returns the cost in micro-dollars, rounded up so that a sum is never too low; `None` if the price is unknown.
    #[must_use]
    pub fn cost(&self, usage: TokenUsage) -> Option<u64> {
        let price = self.price?;
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let plain = usage.input_tokens - cached - written;
        let tokens = [plain, usage.output_tokens, cached, written].map(u128::from);
        let total: u128 = tokens
            .iter()
            .zip(price.rates_for_prompt(usage.input_tokens))
            .map(|(tokens, price)| tokens * u128::from(price))
            .sum();
        Some(u64::try_from(total.div_ceil(TOKENS_PER_PRICE_UNIT)).unwrap_or(u64::MAX))
    }

    /// Returns the cost of a reply that replaced a rejected one: two requests, each with its own price. `usage` includes
    /// `rejected`.
    #[must_use]
    pub fn cost_with_rejected_reply(&self, usage: TokenUsage, rejected: Option<TokenUsage>) -> Option<u64> {
        let Some(first) = rejected else { return self.cost(usage) };
        Some(self.cost(first)?.saturating_add(self.cost(usage - first)?))
    }

    /// Returns the cost of a call that failed. If its usage is unknown, so is its cost, unless the model is free.
    #[must_use]
    pub fn cost_of_failed_call(&self, usage: Option<TokenUsage>) -> Option<u64> {
        match usage {
            Some(usage) => self.cost(usage),
            None => self.price.filter(|price| *price == TokenPrice::flat(0, 0, 0)).map(|_| 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: ModelCard = ModelCard {
        window_tokens: 1000,
        price: Some(TokenPrice { written: Some(3_750_000), ..PRICE }),
        signal_form: SignalForm::Inline,
        has_tool_calls: true,
    };
    const PRICE: TokenPrice =
        TokenPrice { input: 3_000_000, output: 15_000_000, cached: 300_000, written: None, long: None };

    #[test]
    fn cached_tokens_are_billed_at_their_own_price() {
        let usage = TokenUsage { input_tokens: 1000, output_tokens: 100, cached_tokens: 900, ..TokenUsage::default() };
        assert_eq!(CARD.cost(usage), Some(100 * 3 + 270 + 100 * 15));
        let filling = TokenUsage { cache_write_tokens: 60, ..usage };
        assert_eq!(CARD.cost(filling), Some(40 * 3 + 60 * 375 / 100 + 270 + 100 * 15));
    }

    #[test]
    fn a_long_prompt_has_a_price_of_its_own() {
        let long =
            LongPromptPrice { above_tokens: 500, input: 6_000_000, output: 20_000_000, cached: 600_000, written: None };
        let card = ModelCard { price: Some(TokenPrice { long: Some(long), ..PRICE }), ..CARD };
        assert_eq!(
            card.cost(TokenUsage { input_tokens: 500, output_tokens: 1, ..TokenUsage::default() }),
            Some(500 * 3 + 15)
        );
        assert_eq!(
            card.cost(TokenUsage { input_tokens: 501, output_tokens: 1, ..TokenUsage::default() }),
            Some(501 * 6 + 20)
        );
    }

    #[test]
    fn two_requests_are_not_one_long_prompt() {
        let long =
            LongPromptPrice { above_tokens: 500, input: 6_000_000, output: 20_000_000, cached: 600_000, written: None };
        let card = ModelCard { price: Some(TokenPrice { long: Some(long), ..PRICE }), ..CARD };
        let each = TokenUsage { input_tokens: 400, output_tokens: 1, ..TokenUsage::default() };
        assert_eq!(card.cost_with_rejected_reply(each + each, Some(each)), Some(2 * (400 * 3 + 15)));
        assert_eq!(card.cost_with_rejected_reply(each, None), Some(400 * 3 + 15));
    }

    #[test]
    fn a_failed_call_costs_its_known_usage() {
        let usage = TokenUsage { input_tokens: 10, ..TokenUsage::default() };
        assert_eq!((CARD.cost_of_failed_call(Some(usage)), CARD.cost_of_failed_call(None)), (Some(30), None));
        let free = ModelCard { price: Some(TokenPrice::flat(0, 0, 0)), ..CARD };
        assert_eq!(free.cost_of_failed_call(None), Some(0));
    }

    #[test]
    fn a_fraction_of_a_micro_dollar_counts_as_one() {
        let card = ModelCard { price: Some(TokenPrice::flat(1, 0, 0)), ..CARD };
        assert_eq!(card.cost(TokenUsage { input_tokens: 1, ..TokenUsage::default() }), Some(1));
        assert_eq!(card.cost(TokenUsage::default()), Some(0));
    }

    #[test]
    fn without_a_price_there_is_no_cost() {
        assert_eq!(ModelCard::unpriced(10).cost(TokenUsage { input_tokens: 5, ..TokenUsage::default() }), None);
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let most = TokenUsage {
            input_tokens: u32::MAX,
            output_tokens: u32::MAX,
            cached_tokens: 7,
            cache_write_tokens: u32::MAX,
            reasoning_tokens: u32::MAX,
        };
        let card = ModelCard { price: Some(TokenPrice::flat(u64::MAX, u64::MAX, u64::MAX)), ..CARD };
        assert_eq!(card.cost(most), Some(u64::MAX));
        let more_cached_than_sent = TokenUsage { input_tokens: 10, cached_tokens: 99, ..TokenUsage::default() };
        assert_eq!(CARD.cost(more_cached_than_sent), Some(3));
    }
}
