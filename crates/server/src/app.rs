//! What every request shares: the engine, the keys, what is at hand, and whether the end has come.

use std::sync::Arc;

use segue_engine::Engine;
use tokio::sync::watch;

use crate::changes::Changes;
use crate::chronicle::Chronicles;
use crate::door::Heard;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::pace::Pace;
use crate::webhooks::Webhooks;

/// What every request shares. Clones are the same.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The parts of it.
pub struct Inner {
    /// Runs sessions.
    pub engine: Engine,
    /// How the server is set.
    pub options: Options,
    /// Who may ask.
    pub keys: Keys,
    /// Accounts of sessions at hand.
    pub chronicles: Chronicles,
    /// How much each asks.
    pub pace: Pace,
    /// What is counted.
    pub metrics: Metrics,
    /// Which sessions changed.
    pub changes: Changes,
    /// Who is told of events elsewhere.
    pub webhooks: Webhooks,
    /// Which answers of the OpenAI-compatible door were heard.
    pub heard: Heard,
    /// Whether the end has come.
    closing: watch::Sender<bool>,
}

impl App {
    /// A server's parts around an engine.
    #[must_use]
    pub fn new(engine: Engine, options: Options) -> Self {
        Self(Arc::new(Inner {
            keys: Keys::in_folder(&options.folder),
            webhooks: Webhooks::in_folder(&options.folder),
            pace: Pace::new(options.bounds),
            chronicles: Chronicles::default(),
            metrics: Metrics::new(),
            changes: Changes::default(),
            heard: Heard::default(),
            closing: watch::Sender::new(false),
            engine,
            options,
        }))
    }

    /// Says that the end has come.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether the end has come.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Returns when the end has come.
    pub async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as this does.
        let _ = closing.wait_for(|closing| *closing).await;
    }
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("options", &self.options).finish_non_exhaustive()
    }
}
