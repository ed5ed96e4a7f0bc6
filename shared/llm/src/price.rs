//! What tokens cost: data in `configs/llm_prices.toml`, in millionths of a dollar for a million tokens.

use serde::Deserialize;

use crate::types::Usage;

const BUILT_IN: &str = include_str!("../../../configs/llm_prices.toml");
const MILLION: u128 = 1_000_000;

/// The price of the models whose name starts with `model`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// How the names start.
    pub model: String,
    /// Date from which it holds, as `2026-01-31`.
    pub effective_from: String,
    /// Of a million tokens read.
    pub input: u64,
    /// Of a million tokens written.
    pub output: u64,
    /// Of a million tokens put into the cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Of a million tokens read from it.
    #[serde(default)]
    pub cache_read: u64,
    /// Share of these prices that a batch costs, in percent.
    #[serde(default = "whole")]
    pub batch_percent: u64,
}

const fn whole() -> u64 {
    100
}

impl Price {
    /// Of models that cost nothing.
    #[must_use]
    pub fn free() -> Self {
        Self {
            model: String::new(),
            effective_from: String::new(),
            input: 0,
            output: 0,
            cache_write: 0,
            cache_read: 0,
            batch_percent: 100,
        }
    }

    /// Millionths of a dollar, rounded up.
    #[must_use]
    pub fn of(&self, usage: &Usage, batch: bool) -> u64 {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_write_tokens, self.cache_write),
            (usage.cache_read_tokens, self.cache_read),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        let percent = u128::from(if batch { self.batch_percent } else { 100 });
        u64::try_from((sum * percent).div_ceil(MILLION * 100)).unwrap_or(u64::MAX)
    }

    /// The most that a call can cost: all input written to the cache, all output used.
    #[must_use]
    pub fn worst(&self, input_tokens: u64, max_tokens: u32, batch: bool) -> u64 {
        let dearest = Self { input: self.input.max(self.cache_write), ..self.clone() };
        let usage = Usage { input_tokens, output_tokens: u64::from(max_tokens), ..Usage::default() };
        dearest.of(&usage, batch)
    }
}

/// A table of prices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    price: Vec<Price>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("table of prices: {0}")]
pub struct BadPrices(#[from] toml::de::Error);

impl Prices {
    /// The table that ships.
    ///
    /// # Errors
    /// Never in a build whose tests passed.
    pub fn built_in() -> Result<Self, BadPrices> {
        Self::parse(BUILT_IN)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// Where it is malformed.
    pub fn parse(text: &str) -> Result<Self, BadPrices> {
        Ok(toml::from_str(text)?)
    }

    /// The price of a model on a day (`2026-01-31`): of the longest beginning that fits, the newest in force.
    #[must_use]
    pub fn find(&self, model: &str, today: &str) -> Option<&Price> {
        self.price
            .iter()
            .filter(|p| model.starts_with(&p.model) && p.effective_from.as_str() <= today)
            .max_by_key(|p| (p.model.len(), p.effective_from.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_and_the_newest_date_win_and_costs_are_rounded_up() {
        let table = Prices::parse(
            "[[price]]\nmodel = 'm'\neffective_from = '2020-01-01'\ninput = 1\noutput = 1\n\
             [[price]]\nmodel = 'm-large'\neffective_from = '2020-01-01'\ninput = 3000000\noutput = 15000000\nbatch_percent = 50\n\
             [[price]]\nmodel = 'm-large'\neffective_from = '2030-01-01'\ninput = 9\noutput = 9\n",
        )
        .expect("reads");
        let price = table.find("m-large-2", "2026-12-01").expect("has a price");
        assert_eq!(price.input, 3_000_000);
        let usage = Usage { input_tokens: 1000, output_tokens: 2001, ..Usage::default() };
        assert_eq!(price.of(&usage, false), 33_015);
        assert_eq!(price.of(&usage, true), 16_508);
        assert_eq!(table.find("m-large-2", "2031-01-01").map(|p| p.input), Some(9));
        assert_eq!(table.find("m-small", "2026-12-01").map(|p| p.input), Some(1));
        assert!(table.find("other", "2026-12-01").is_none());
        assert!(Prices::built_in().expect("reads").find("claude-sonnet-4-5", "2026-12-01").is_some());
    }
}
