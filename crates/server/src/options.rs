//! How a server is set.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use segue_core::event::MidTurnPolicy;
use segue_core::ids::FlowName;

use crate::limits;

/// The port where nothing else is said.
pub const DEFAULT_PORT: u16 = 7348;

/// How a server is set.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where it listens.
    pub address: SocketAddr,
    /// The folder that keys and webhooks are kept in.
    pub folder: PathBuf,
    /// The flow of a session that is begun without saying.
    pub default_flow: FlowName,
    /// What happens to a message that arrives while a turn runs, where nothing is said.
    pub default_mid_turn_policy: MidTurnPolicy,
    /// Whether some role is played by a stand-in for a model. Must be shown.
    pub uses_rehearsal_model: bool,
    /// Whether a key is needed on loopback too.
    pub require_key: bool,
    /// Names beside those of loopback under which it is reached.
    pub allowed_hosts: Vec<String>,
    /// Web sites that may ask from a browser.
    pub allowed_origins: Vec<String>,
    /// What it bears.
    pub limits: ServerLimits,
    /// What webhooks are signed with; none can be made without.
    pub webhook_secret: Option<WebhookSecret>,
}

impl ServerOptions {
    /// A server for whoever is at this machine.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
            folder,
            default_flow: "chat".into(),
            default_mid_turn_policy: MidTurnPolicy::Queue,
            uses_rehearsal_model: false,
            require_key: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            limits: ServerLimits::default(),
            webhook_secret: None,
        }
    }

    /// Whether it can be reached from other machines.
    #[must_use]
    pub fn is_reachable_remotely(&self) -> bool {
        !match self.address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        }
    }

    /// Whether every request needs a key.
    #[must_use]
    pub fn is_key_required(&self) -> bool {
        self.require_key || self.is_reachable_remotely()
    }
}

/// What a server bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Bytes of a body that can hold images.
    pub image_body_bytes_max: usize,
    /// Requests a minute of one key.
    pub requests_per_minute_max: u32,
    /// Open streams of one key.
    pub streams_max: usize,
    /// Sessions at work at once.
    pub turns_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// How long a client may take to send its headers.
    pub headers_ms_max: u64,
    /// How long a client may leave what is ready untaken.
    pub write_stall_ms_max: u64,
    /// How often a stream says that it is still there.
    pub heartbeat_ms: u64,
    /// Waits before each further try to tell a webhook.
    pub webhook_retry_delays_ms: [u64; limits::WEBHOOK_RETRY_DELAYS_MS.len()],
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            image_body_bytes_max: limits::IMAGE_BODY_BYTES_MAX,
            requests_per_minute_max: limits::REQUESTS_PER_MINUTE_MAX,
            streams_max: limits::STREAMS_MAX,
            turns_max: limits::TURNS_MAX,
            connections_max: limits::CONNECTIONS_MAX,
            headers_ms_max: limits::HEADERS_MS_MAX,
            write_stall_ms_max: limits::WRITE_STALL_MS_MAX,
            heartbeat_ms: limits::HEARTBEAT_MS,
            webhook_retry_delays_ms: limits::WEBHOOK_RETRY_DELAYS_MS,
        }
    }
}

/// Something nobody must see.
#[derive(Clone)]
pub struct WebhookSecret(pub String);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
