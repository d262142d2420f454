//! Calls language models. Decides how a prompt reaches a model and how its reply comes back as chunks. Does not decide what
//! is asked, whether a failed call is retried, or what a reply means.
//!
//! Two models need no network: [`ScriptedModel`] answers from a scenario file and is the test tool for flow authors;
//! [`RehearsalModel`] is the built-in demo model that answers when no API key is configured.

pub mod card;
pub mod cassette;
pub mod catalog;
pub mod discovery;
pub mod http;
pub mod limits;
pub mod rehearsal;
pub mod scripted;
pub mod vendor;

mod collect;
mod model;
mod playback;
mod registry;
mod suggest;
mod template;
mod text;

pub use card::{ModelCard, TokenPrice};
pub use catalog::ModelCatalog;
pub use collect::collect_reply;
pub use model::{
    CacheablePromptPart, LanguageModel, ModelBackendKind, ModelCallOrigin, ModelDescription, ModelRequest,
    RehearsalHints, ReplyChunk, ReplyChunkStream, ReplyFinish,
};
pub use registry::ModelRegistry;
pub use rehearsal::RehearsalModel;
pub use scripted::ScriptedModel;
pub use vendor::VendorModelClient;

/// Runs the Rust example on the page as a doctest. The scenarios on it are played by the integration tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/scripted-model.md")]
#[derive(Debug)]
pub struct ScriptedModelDocTest;
