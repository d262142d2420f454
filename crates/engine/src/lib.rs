//! Runs sessions against the world: the only loop, the only clock, the tool host.
//!
//! Decides when things happen; what happens is decided in core. It knows no particular flow, store or model, and does not
//! assume to be the only process on its store.

mod abandoned_calls;
mod actor;
mod circuit_breaker;
pub mod clock;
mod commit_gate;
mod dispatch;
pub mod engine;
pub mod error;
mod inspect;
pub mod limits;
mod load;
mod maintenance;
pub mod model_assignment;
pub mod random;
pub mod rate_limit;
mod recompute;
mod registry;
mod replay;
mod shutdown;
pub mod subscriptions;
mod text_cache;
pub mod token_counter;
pub mod tools;
pub mod transfer;
pub mod turn_report;

pub use engine::{Engine, EngineConfig, RecoveryPolicy, SessionOptions, UserMessage};
pub use error::Error;
pub use model_assignment::ModelAssignment;
pub use recompute::{CallAnswer, CallRun, RecomputeResult};
pub use segue_store::{
    PendingWork, SessionListCursor, SessionListEntry, SessionListPage, SessionQuery, SessionSummary,
};
pub use subscriptions::{SessionUpdate, Subscription};
pub use turn_report::TurnReport;

/// The page whose example runs here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingDocTest;
