//! The HTTP server: JSON routes, event streams, OpenAI-compatible endpoints, webhooks and the web studio.
//!
//! This crate authenticates callers and turns requests into engine calls and results into responses. It decides nothing about a
//! conversation, and it knows no flow, vendor or store. Several processes may serve the same store, so streams are read from the
//! journal and not from memory.

mod api;
mod app;
mod caller;
mod event_view;
mod extract;
mod files;
mod guard;
mod history;
mod http_server;
mod images;
mod keys;
mod limits;
mod live_updates;
mod metrics;
mod openai;
mod openapi;
mod options;
mod pages;
mod problem;
mod rate_limit;
mod readiness;
mod router;
mod session_changes;
mod shared_state;
mod stream;
mod studio;
mod usage;
mod webhooks;

pub use http_server::{BoundHttpServer, Error};
pub use keys::{ApiKeyStore, ApiKeyToCreate, Error as ApiKeyError, StoredApiKey};
pub use live_updates::{ClusterSecret, HttpCrossNodeUpdateSource};
pub use options::{DEFAULT_PORT, ServerLimits, ServerOptions, WebhookMasterSecret};
pub use pages::ERRORS_MARKDOWN;
pub use problem::SERVER_ERROR_CODES;
pub use router::openapi_document;
pub use shared_state::{
    CrossServerSharedState, SharedStateCopyError, SharedStateCopyReport, SharedStateCopyToDatabase,
};
pub use usage::{ApiKeyDailyUsage, ApiKeyLimitCallPolicy, ApiKeyLimits, ApiKeyUsageStore, UtcDay};
pub use webhooks::sign_delivery;
