//! The `[server]` table: limits of the HTTP server.

use segue_server::ServerLimits;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ConfigValueOrigin};

pub(super) const SERVER_KEYS: [&str; 4] = ["body_bytes_max", "requests_per_minute_max", "streams_max", "turns_max"];

/// The configured limits; an absent one has the server's default.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ServerLimitsConfig {
    /// Bytes of a request body.
    pub body_bytes_max: Option<ConfigValue<usize>>,
    /// Requests per minute and API key.
    pub requests_per_minute_max: Option<ConfigValue<u32>>,
    /// Open streams per API key.
    pub streams_max: Option<ConfigValue<usize>>,
    /// Sessions with a running turn.
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
    /// Returns the configured limits, completed with the defaults.
    pub(crate) fn effective_limits(&self) -> ServerLimits {
        let mut limits = ServerLimits::default();
        let set = |limit: &mut usize, setting: &Option<ConfigValue<usize>>| {
            *limit = setting.as_ref().map_or(*limit, |setting| setting.value);
        };
        set(&mut limits.body_bytes_max, &self.body_bytes_max);
        set(&mut limits.streams_max, &self.streams_max);
        set(&mut limits.turns_max, &self.turns_max);
        if let Some(requests) = &self.requests_per_minute_max {
            limits.requests_per_minute_max = requests.value;
        }
        limits
    }

    /// Returns the configured limits as rows for `segue config`.
    pub(super) fn config_rows(&self) -> Vec<(String, String, ConfigValueOrigin)> {
        let number =
            |setting: &Option<ConfigValue<usize>>| setting.as_ref().map(|limit| (limit.value as u64, limit.origin));
        let requests = self.requests_per_minute_max.as_ref().map(|limit| (u64::from(limit.value), limit.origin));
        let values = [number(&self.body_bytes_max), requests, number(&self.streams_max), number(&self.turns_max)];
        SERVER_KEYS
            .iter()
            .zip(values)
            .filter_map(|(key, limit)| {
                limit.map(|(value, origin)| (format!("server.{key}"), value.to_string(), origin))
            })
            .collect()
    }
}
