//! Talks to models. Decides how a prompt reaches a model and how its answer comes back as chunks; does not decide what is
//! asked, whether a failed call is tried again, or what an answer means.
//!
//! Two models need no network: the [`scripted::Scripted`] model answers from a scenario file and is the testing tool for
//! flow authors; the [`rehearsal::Rehearsal`] model plays any role well enough to try a flow without a key.

pub mod card;
pub mod cassette;
pub mod catalog;
pub mod collect;
pub mod discovery;
pub mod http;
pub mod limits;
pub mod model;
pub mod registry;
pub mod rehearsal;
pub mod scripted;
pub mod vendor;

mod playback;
mod suggest;
mod template;
mod text;

pub use card::{ModelCard, TokenPrice};
pub use catalog::ModelCatalog;
pub use collect::collect_reply;
pub use model::{
    CallMetadata, LanguageModel, ModelDescription, ModelRequest, ModelSource, PromptCaching, RehearsalHints,
    ReplyChunk, ReplyChunkStream, ReplyFinish,
};
pub use registry::ModelRegistry;
pub use rehearsal::RehearsalModel;
pub use scripted::ScriptedModel;
pub use vendor::VendorModel;

/// The page's Rust example runs as a documentation test; its scenarios are played in the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/scripted-model.md")]
#[derive(Debug)]
pub struct ScriptedModelPage;
