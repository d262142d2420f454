//! What the server bears, where it is to be other than it is by itself.

use segue_server::options::Bounds;

use super::reader::{Error, Table};
use super::{Config, Origin, Setting};

pub(super) const SERVER_KEYS: [&str; 4] = ["body_bytes_max", "requests_per_minute_max", "streams_max", "turns_max"];

/// What the server bears, as far as somebody said so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Server {
    /// Bytes of a body.
    pub body_bytes_max: Option<Setting<usize>>,
    /// Requests a minute of one key.
    pub requests_per_minute_max: Option<Setting<u32>>,
    /// Open streams of one key.
    pub streams_max: Option<Setting<usize>>,
    /// Sessions at work at once.
    pub turns_max: Option<Setting<usize>>,
}

/// Reads `[server]`.
pub(super) fn read(table: &Table<'_>, config: &mut Config) -> Result<(), Error> {
    config.server = Server {
        body_bytes_max: table.number("body_bytes_max", 1)?,
        requests_per_minute_max: table.number("requests_per_minute_max", 1)?,
        streams_max: table.number("streams_max", 1)?,
        turns_max: table.number("turns_max", 1)?,
    };
    Ok(())
}

impl Server {
    /// All that the server bears.
    pub fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        let set = |bound: &mut usize, setting: &Option<Setting<usize>>| {
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
    pub(super) fn rows(&self) -> Vec<(String, String, Origin)> {
        let number =
            |setting: &Option<Setting<usize>>| setting.as_ref().map(|given| (given.value as u64, given.origin));
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
