//! Prometheus metrics. Names and labels are stable. No label contains a session name or a text.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use segue_core::event::TurnOutcome;

/// The media type of the metrics.
pub(crate) const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const LATENCY_BUCKETS_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpRequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

/// The metrics of the server.
pub(crate) struct ServerMetrics {
    registry: Registry,
    requests: Family<HttpRequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram>,
    open_streams: Gauge,
    stream_events: Family<KindLabels, Counter>,
    turns: Family<KindLabels, Counter>,
    deliveries: Family<KindLabels, Counter>,
    active_sessions: Gauge,
}

/// Counts an open stream until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStreamGuard(Gauge);

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerMetrics {
    /// Registers all metrics.
    #[must_use]
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("segue");
        let (requests, stream_events, turns, deliveries) =
            (Family::default(), Family::default(), Family::default(), Family::default());
        let request_seconds = Family::new_with_constructor(Self::new_latency_histogram as fn() -> Histogram);
        let (open_streams, active_sessions) = (Gauge::default(), Gauge::default());
        registry.register("http_requests", "Answered requests", requests.clone());
        registry.register("http_request_seconds", "Time until the response started", request_seconds.clone());
        registry.register("streams_open", "Open streams", open_streams.clone());
        registry.register("stream_events", "Events sent in streams", stream_events.clone());
        registry.register("turns", "Turns that a client waited for, by outcome", turns.clone());
        registry.register("webhook_deliveries", "Webhook delivery attempts, by result", deliveries.clone());
        registry.register("sessions_active", "Sessions this process is working on", active_sessions.clone());
        Self { registry, requests, request_seconds, open_streams, stream_events, turns, deliveries, active_sessions }
    }

    fn new_latency_histogram() -> Histogram {
        Histogram::new(LATENCY_BUCKETS_SECONDS)
    }

    /// Records an answered request.
    pub(crate) fn record_request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let request =
            HttpRequestLabels { method: method.to_string(), route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&request).inc();
        self.request_seconds.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Counts an open stream until the guard is dropped.
    #[must_use]
    pub(crate) fn track_open_stream(&self) -> OpenStreamGuard {
        self.open_streams.inc();
        OpenStreamGuard(self.open_streams.clone())
    }

    /// Records an event sent in a stream.
    pub(crate) fn record_stream_event(&self, kind: &str) {
        self.stream_events.get_or_create(&KindLabels { kind: kind.to_owned() }).inc();
    }

    /// Records the outcome of a turn that a client waited for.
    pub(crate) fn record_turn(&self, outcome: &TurnOutcome) {
        let kind = match outcome {
            TurnOutcome::Done => "done",
            TurnOutcome::Failed { .. } => "failed",
            TurnOutcome::Cancelled => "cancelled",
            TurnOutcome::Interrupted => "interrupted",
        };
        self.turns.get_or_create(&KindLabels { kind: kind.to_owned() }).inc();
    }

    /// Records the result of a delivery attempt.
    pub(crate) fn record_webhook_delivery(&self, result: &str) {
        self.deliveries.get_or_create(&KindLabels { kind: result.to_owned() }).inc();
    }

    /// Encodes all metrics.
    #[must_use]
    pub(crate) fn encode_text(&self, active_sessions: usize) -> String {
        self.active_sessions.set(i64::try_from(active_sessions).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl std::fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerMetrics").finish_non_exhaustive()
    }
}
