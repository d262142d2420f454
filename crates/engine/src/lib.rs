//! Runs sessions: takes inputs, lets `segue-core` decide, writes the decisions to a store, and performs their effects
//! (model calls, tool runs, timers).
//!
//! The engine decides *when* things happen; core decides *what* happens. The engine knows no particular flow, store or
//! model, and other processes may use the same store.
//!
//! ```
//! use std::sync::Arc;
//!
//! use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
//! use segue_models::{ModelRegistry, ScriptedModel};
//! use segue_store::memory::InMemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model: ScriptedModel = "[default]\ntext = \"You said: {{last}}\"".parse()?;
//! let engine = Engine::start(EngineConfig::new(
//!     Arc::new(InMemoryStore::with_own_disk()),
//!     segue_flows::built_in_flows(),
//!     ModelRegistry::from_single_model(Arc::new(model)),
//!     "scripted",
//! ))
//! .await?;
//! let session = engine.open_session(&"chat".into(), SessionOptions::default()).await?;
//! let report = engine.send_and_wait(&session, UserMessage::from("hello")).await?;
//! assert_eq!(report.replies, ["You said: hello"]);
//! engine.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! A longer example, and what to rely on, is in `docs/embedding.md`; the terms are defined in `docs/concepts.md`.

mod abandoned_calls;
mod actor;
mod call_policy;
mod circuit_breaker;
pub mod clock;
mod commit_gate;
mod config;
mod diff;
mod dispatch;
mod engine;
mod error;
mod event_log;
mod inbox;
mod inspect;
mod leases;
pub mod limits;
mod live_updates;
mod load;
mod maintenance;
mod model_assignment;
mod on_demand;
mod placement;
pub mod random;
pub mod rate_limit;
mod recompute;
mod registry;
mod repetition_guard;
mod replay;
mod session_flow;
mod session_name;
mod shutdown;
mod subscriptions;
mod text_cache;
mod token_counter;
pub mod tools;
mod transfer;
mod turn_follower;
mod turn_report;

pub use call_policy::{CallPolicy, SessionUsageChange};
pub use config::{EngineConfig, SessionOptions, SessionResumePolicy, UserMessage};
pub use diff::{TextDiffLine, diff_lines};
pub use engine::Engine;
pub use error::Error;
pub use inbox::InboxSubmissionProgress;
pub use leases::LeaseCounts;
pub use live_updates::{CrossNodeSessionUpdate, CrossNodeSessionUpdateSource};
pub use model_assignment::ModelAssignment;
pub use placement::SessionPlacement;
pub use recompute::{ComparedCallAnswer, ComparedCallRun, RecomputedCallComparison};
pub use segue_store::{
    ConcurrencySlotLease, ConcurrencySlotRequest, Error as StoreError, PendingWorkStatus, RateLimitTokenGrant,
    RateLimitTokenRequest, SessionCatalog, SessionListChangeCursor, SessionListChangePage, SessionListCursor,
    SessionListPage, SessionQuery, SessionSummary, SharedMeters, SharedRecordReadOutcome, SharedRecordVersion,
    SharedRecordWrite, SharedRecordWriteCondition, SharedRecordWriteOutcome, SharedRecords, SharedState, StoreMetrics,
    StoredSessionListChange, StoredSessionListEntry, UsageAccountUpdate, UsageAmounts,
};
pub use session_flow::RecordedFlowLoader;
pub use session_name::{NAMESPACE_SEPARATOR, parent_session_name, root_session_name, validate_session_name};
pub use subscriptions::{SessionSubscription, SessionUpdate};
pub use token_counter::O200kTokenCounter;
pub use transfer::{ParsedSessionExport, SessionExportStream};
pub use turn_report::TurnReport;

/// The pages of the documentation whose examples run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/embedding.md")]
    struct EmbeddingDocTest;
    #[doc = include_str!("../../../docs/flows.md")]
    struct FlowsDocTest;
}
