//! The state that all requests share.

use std::sync::Arc;

use segue_engine::Engine;
use tokio::sync::{Semaphore, watch};

use crate::history::SessionHistoryCache;
use crate::keys::ApiKeyStore;
use crate::metrics::ServerMetrics;
use crate::openai::OpenAiConversationCache;
use crate::options::ServerOptions;
use crate::rate_limit::CallerRateLimiter;
use crate::readiness::ReadinessCheckCache;
use crate::session_changes::SessionListChangeFeed;
use crate::usage::AdmittedTurns;
use crate::webhooks::WebhookStore;

/// The state that all requests share. Clones refer to the same state.
#[derive(Clone)]
pub(crate) struct AppState(Arc<AppStateInner>);

/// The fields of [`AppState`].
pub(crate) struct AppStateInner {
    pub engine: Engine,
    pub options: ServerOptions,
    pub keys: ApiKeyStore,
    pub histories: SessionHistoryCache,
    pub rate_limiter: CallerRateLimiter,
    pub readiness: ReadinessCheckCache,
    pub metrics: ServerMetrics,
    pub change_feed: SessionListChangeFeed,
    pub webhooks: WebhookStore,
    pub conversation_cache: OpenAiConversationCache,
    pub import_permits: Semaphore,
    pub admitted_turns: AdmittedTurns,
    shutdown_signal: watch::Sender<bool>,
}

impl AppState {
    /// Creates the state of a server around an engine.
    #[must_use]
    pub(crate) fn new(engine: Engine, options: ServerOptions) -> Self {
        Self(Arc::new(AppStateInner {
            keys: options.shared.keys(),
            webhooks: WebhookStore::new(options.shared.records.clone()),
            rate_limiter: CallerRateLimiter::new(options.limits, options.shared.meters.clone()),
            readiness: ReadinessCheckCache::default(),
            histories: SessionHistoryCache::default(),
            metrics: ServerMetrics::new(),
            change_feed: SessionListChangeFeed::default(),
            conversation_cache: OpenAiConversationCache::default(),
            import_permits: Semaphore::new(options.limits.imports_max),
            admitted_turns: AdmittedTurns::default(),
            shutdown_signal: watch::Sender::new(false),
            engine,
            options,
        }))
    }

    /// Signals that the server is shutting down.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown_signal.send_replace(true);
    }

    #[must_use]
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutdown_signal.borrow()
    }

    /// Waits until the server is shutting down.
    pub(crate) async fn wait_for_shutdown(&self) {
        let mut closing = self.shutdown_signal.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    }
}

impl std::ops::Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}

impl std::fmt::Debug for AppStateInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppStateInner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState").field("options", &self.options).finish_non_exhaustive()
    }
}
