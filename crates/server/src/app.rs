//! What every request shares: the engine, the keys, what is at hand, and whether the end has come.

use std::sync::Arc;

use segue_engine::Engine;
use tokio::sync::watch;

use crate::history::HistoryCache;
use crate::keys::ApiKeyStore;
use crate::metrics::ServerMetrics;
use crate::openai::ConversationCache;
use crate::options::ServerOptions;
use crate::rate_limit::CallerRateLimiter;
use crate::session_changes::SessionChangeFeed;
use crate::webhooks::WebhookStore;

/// What every request shares. Clones are the same.
#[derive(Clone)]
pub struct AppState(Arc<AppInner>);

/// The parts of it.
pub struct AppInner {
    /// Runs sessions.
    pub engine: Engine,
    /// How the server is set.
    pub options: ServerOptions,
    /// Who may ask.
    pub keys: ApiKeyStore,
    /// Accounts of sessions at hand.
    pub histories: HistoryCache,
    /// How much each asks.
    pub rate_limiter: CallerRateLimiter,
    /// What is counted.
    pub metrics: ServerMetrics,
    /// Which sessions changed.
    pub change_feed: SessionChangeFeed,
    /// Who is told of events elsewhere.
    pub webhooks: WebhookStore,
    /// Which answers of the OpenAI-compatible door were heard.
    pub conversation_cache: ConversationCache,
    /// Whether the end has come.
    shutdown_signal: watch::Sender<bool>,
}

impl AppState {
    /// A server's parts around an engine.
    #[must_use]
    pub fn new(engine: Engine, options: ServerOptions) -> Self {
        Self(Arc::new(AppInner {
            keys: ApiKeyStore::from_folder(&options.folder),
            webhooks: WebhookStore::from_folder(&options.folder),
            rate_limiter: CallerRateLimiter::new(options.limits),
            histories: HistoryCache::default(),
            metrics: ServerMetrics::new(),
            change_feed: SessionChangeFeed::default(),
            conversation_cache: ConversationCache::default(),
            shutdown_signal: watch::Sender::new(false),
            engine,
            options,
        }))
    }

    /// Says that the end has come.
    pub fn begin_shutdown(&self) {
        self.shutdown_signal.send_replace(true);
    }

    /// Whether the end has come.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        *self.shutdown_signal.borrow()
    }

    /// Returns when the end has come.
    pub async fn wait_for_shutdown(&self) {
        let mut closing = self.shutdown_signal.subscribe();
        // The sender lives as long as this does.
        let _ = closing.wait_for(|closing| *closing).await;
    }
}

impl std::ops::Deref for AppState {
    type Target = AppInner;

    fn deref(&self) -> &AppInner {
        &self.0
    }
}

impl std::fmt::Debug for AppInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("options", &self.options).finish_non_exhaustive()
    }
}
