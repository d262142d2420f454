//! The configuration of a server.

use std::net::{IpAddr, SocketAddr};

use segue_core::event::MidTurnPolicy;
use segue_core::ids::FlowName;

use crate::limits;
use crate::live_updates::ClusterSecret;
use crate::shared_state::CrossServerSharedState;

/// The default port.
pub const DEFAULT_PORT: u16 = 7348;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Keys, webhooks and what else the servers of a store share.
    pub shared: CrossServerSharedState,
    /// The flow of a new session that names none.
    pub default_flow: FlowName,
    /// The policy of a new session that names none.
    pub default_mid_turn_policy: MidTurnPolicy,
    /// Whether some role is played by the rehearsal model. Clients must show this to the user.
    pub uses_rehearsal_model: bool,
    /// Whether a key is required on loopback too.
    pub require_key: bool,
    /// Host names that are accepted besides those of loopback.
    pub allowed_hosts: Vec<String>,
    /// Origins from which browsers may send requests.
    pub allowed_origins: Vec<String>,
    pub limits: ServerLimits,
    /// The secret from which webhook keys are derived; without it no webhook can be created.
    pub webhook_secret: Option<WebhookMasterSecret>,
    /// The secret that the nodes of a cluster share; without it this node sends no live words to others.
    pub cluster_secret: Option<ClusterSecret>,
}

impl ServerOptions {
    /// Creates the default configuration: a server that is reachable only from this machine.
    #[must_use]
    pub fn new(shared: CrossServerSharedState) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
            shared,
            default_flow: "chat".into(),
            default_mid_turn_policy: MidTurnPolicy::Queue,
            uses_rehearsal_model: false,
            require_key: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            limits: ServerLimits::default(),
            webhook_secret: None,
            cluster_secret: None,
        }
    }

    /// Returns whether the address is reachable from other machines.
    #[must_use]
    pub(crate) fn is_reachable_remotely(&self) -> bool {
        !match self.address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        }
    }

    /// Returns whether every request needs a key.
    #[must_use]
    pub(crate) fn is_key_required(&self) -> bool {
        self.require_key || self.is_reachable_remotely()
    }
}

/// The configurable limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    pub body_bytes_max: usize,
    /// The maximum size of a body that may contain images.
    pub image_body_bytes_max: usize,
    /// Per key.
    pub requests_per_minute_max: u32,
    /// Open streams per key.
    pub streams_max: usize,
    /// Sessions with a running turn.
    pub turns_max: usize,
    pub connections_max: usize,
    /// Imports at the same time.
    pub imports_max: usize,
    /// The maximum time to receive the headers of a request.
    pub headers_ms_max: u64,
    /// The maximum time without progress while a client reads.
    pub write_stall_ms_max: u64,
    /// The interval of keep-alive comments in a stream.
    pub heartbeat_ms: u64,
    /// The delays before each retry of a delivery.
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
            imports_max: limits::IMPORTS_MAX,
            headers_ms_max: limits::HEADERS_MS_MAX,
            write_stall_ms_max: limits::WRITE_STALL_MS_MAX,
            heartbeat_ms: limits::HEARTBEAT_MS,
            webhook_retry_delays_ms: limits::WEBHOOK_RETRY_DELAYS_MS,
        }
    }
}

/// A secret that is not shown in debug output.
#[derive(Clone)]
pub struct WebhookMasterSecret(pub String);

impl std::fmt::Debug for WebhookMasterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookMasterSecret")
    }
}
