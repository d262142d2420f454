//! What the server bears, where it is to be other than it is by itself.

use segue_server::ServerLimits;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ValueOrigin};

pub(super) const SERVER_KEYS: [&str; 4] = ["body_bytes_max", "requests_per_minute_max", "streams_max", "turns_max"];

/// What the server bears, as far as somebody said so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerLimitsConfig {
    /// Bytes of a body.
    pub body_bytes_max: Option<ConfigValue<usize>>,
    /// Requests a minute of one key.
    pub requests_per_minute_max: Option<ConfigValue<u32>>,
    /// Open streams of one key.
    pub streams_max: Option<ConfigValue<usize>>,
    /// Sessions at work at once.
    pub turns_max: Option<ConfigValue<usize>>,
}

/// Reads `[server]`.
pub(super) fn read_server_limits(table: &ConfigTable<'_>, config: &mut Config) -> Result<(), ConfigError> {
    config.server_limits = ServerLimitsConfig {
        body_bytes_max: table.integer("body_bytes_max", 1)?,
        requests_per_minute_max: table.integer("requests_per_minute_max", 1)?,
        streams_max: table.integer("streams_max", 1)?,
        turns_max: table.integer("turns_max", 1)?,
    };
    Ok(())
}

impl ServerLimitsConfig {
    /// All that the server bears.
    pub fn effective_limits(&self) -> ServerLimits {
        let mut bounds = ServerLimits::default();
        let set = |bound: &mut usize, setting: &Option<ConfigValue<usize>>| {
            *bound = setting.as_ref().map_or(*bound, |setting| setting.value);
        };
        set(&mut bounds.body_bytes_max, &self.body_bytes_max);
        set(&mut bounds.streams_max, &self.streams_max);
        set(&mut bounds.turns_max, &self.turns_max);
        if let Some(requests) = &self.requests_per_minute_max {
            bounds.requests_per_minute_max = requests.value;
        }
        bounds
    }

    /// For people.
    pub(super) fn config_rows(&self) -> Vec<(String, String, ValueOrigin)> {
        let number =
            |setting: &Option<ConfigValue<usize>>| setting.as_ref().map(|given| (given.value as u64, given.origin));
        let requests = self.requests_per_minute_max.as_ref().map(|given| (u64::from(given.value), given.origin));
        let all = [number(&self.body_bytes_max), requests, number(&self.streams_max), number(&self.turns_max)];
        let named = SERVER_KEYS.iter().zip(all);
        named
            .filter_map(|(key, given)| {
                given.map(|(value, origin)| (format!("server.{key}"), value.to_string(), origin))
            })
            .collect()
    }
}
