//! Runs sessions against the world: the only loop, the only clock, the tool host.
//!
//! Decides when things happen; what happens is decided in core. It knows no particular flow, store or model, and does not
//! assume to be the only process on its store.

mod actor;
mod breaker;
pub mod casting;
pub mod chance;
pub mod clock;
pub mod count;
mod dispatch;
mod ending;
pub mod engine;
pub mod error;
mod house;
pub mod hub;
mod late;
pub mod limits;
mod load;
mod look;
pub mod pace;
mod past;
mod recompute;
mod registry;
pub mod report;
mod settled;
mod shelf;
pub mod tools;
pub mod transfer;

pub use casting::Casting;
pub use engine::{Engine, Message, Opening, Recovery, Setup};
pub use error::Error;
pub use hub::{Subscription, Update};
pub use recompute::{Made, Recomputed, Version};
pub use report::TurnReport;
pub use segue_store::{Cursor, Owes, Page, Query, Row, Summary};

/// The page whose example runs here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingPage;
