//! Prometheus metrics. Names and labels are stable. No label contains a session name or a text.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use segue_core::event::TurnOutcome;
use segue_engine::{LeaseCounts, StoreMetrics};

/// The media type of the metrics.
pub(crate) const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const LATENCY_BUCKETS_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpRequestMetricLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteMetricLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindMetricLabels {
    kind: String,
}

/// The metrics of the server.
pub(crate) struct ServerMetrics {
    registry: Registry,
    requests: Family<HttpRequestMetricLabels, Counter>,
    request_seconds: Family<RouteMetricLabels, Histogram>,
    open_streams: Gauge,
    stream_events: Family<KindMetricLabels, Counter>,
    turns: Family<KindMetricLabels, Counter>,
    deliveries: Family<KindMetricLabels, Counter>,
    active_sessions: Gauge,
    cluster: StoreAndLeaseMetrics,
}

/// Metrics of the store and of this node's leases. What a backend does not count stays zero.
#[derive(Debug, Default)]
struct StoreAndLeaseMetrics {
    held_sessions: Gauge,
    lease_renewals: Counter,
    failed_lease_renewals: Counter,
    lost_leases: Counter,
    takeovers: Counter,
    commit_groups: Counter,
    commits: Counter,
    commit_micros: Counter,
    inbox_entries: Gauge,
    live_nodes: Gauge,
}

impl StoreAndLeaseMetrics {
    fn register(&self, registry: &mut Registry) {
        let counters = [
            ("lease_renewals", "Renewals of the leases of this node", &self.lease_renewals),
            ("lease_renewal_failures", "Renewals that failed", &self.failed_lease_renewals),
            ("leases_lost", "Leases that another node took", &self.lost_leases),
            ("takeovers", "Sessions that this node took from a dead node", &self.takeovers),
            ("commit_groups", "Groups of commits written together", &self.commit_groups),
            ("commits", "Commits in these groups", &self.commits),
            ("commit_microseconds", "Time spent writing these groups", &self.commit_micros),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register("sessions_held", "Sessions whose lease this node holds", self.held_sessions.clone());
        registry.register("inbox_entries", "Entries in the inboxes of all sessions", self.inbox_entries.clone());
        registry.register("nodes_live", "Live nodes on the same store", self.live_nodes.clone());
    }

    fn set(&self, leases: LeaseCounts, store: StoreMetrics) {
        let set_counter = |counter: &Counter, value: u64| counter.inner().store(value, Ordering::Relaxed);
        let set_gauge = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set_gauge(&self.held_sessions, leases.held);
        set_counter(&self.lease_renewals, leases.renewals);
        set_counter(&self.failed_lease_renewals, leases.failed_renewals);
        set_counter(&self.lost_leases, leases.lost);
        set_counter(&self.takeovers, store.takeovers.unwrap_or_default());
        set_counter(&self.commit_groups, store.commit_groups.unwrap_or_default());
        set_counter(&self.commits, store.grouped_commits.unwrap_or_default());
        set_counter(&self.commit_micros, store.commit_micros.unwrap_or_default());
        set_gauge(&self.inbox_entries, store.inbox_entries.unwrap_or_default());
        set_gauge(&self.live_nodes, store.live_nodes.unwrap_or_default());
    }
}

/// Counts an open stream until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStreamCountGuard(Gauge);

impl Drop for OpenStreamCountGuard {
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
        let cluster = StoreAndLeaseMetrics::default();
        cluster.register(&mut registry);
        Self {
            registry,
            requests,
            request_seconds,
            open_streams,
            stream_events,
            turns,
            deliveries,
            active_sessions,
            cluster,
        }
    }

    fn new_latency_histogram() -> Histogram {
        Histogram::new(LATENCY_BUCKETS_SECONDS)
    }

    /// Records an answered request.
    pub(crate) fn record_request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let request =
            HttpRequestMetricLabels { method: method.to_string(), route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&request).inc();
        self.request_seconds.get_or_create(&RouteMetricLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Counts an open stream until the guard is dropped.
    #[must_use]
    pub(crate) fn track_open_stream(&self) -> OpenStreamCountGuard {
        self.open_streams.inc();
        OpenStreamCountGuard(self.open_streams.clone())
    }

    /// Records an event sent in a stream.
    pub(crate) fn record_stream_event(&self, kind: &str) {
        self.stream_events.get_or_create(&KindMetricLabels { kind: kind.to_owned() }).inc();
    }

    /// Records the outcome of a turn that a client waited for.
    pub(crate) fn record_turn(&self, outcome: &TurnOutcome) {
        let kind = match outcome {
            TurnOutcome::Done => "done",
            TurnOutcome::Failed { .. } => "failed",
            TurnOutcome::Cancelled => "cancelled",
            TurnOutcome::Interrupted => "interrupted",
        };
        self.turns.get_or_create(&KindMetricLabels { kind: kind.to_owned() }).inc();
    }

    /// Records the result of a delivery attempt.
    pub(crate) fn record_webhook_delivery(&self, result: &str) {
        self.deliveries.get_or_create(&KindMetricLabels { kind: result.to_owned() }).inc();
    }

    /// Encodes all metrics.
    #[must_use]
    pub(crate) fn encode_text(&self, active_sessions: usize, leases: LeaseCounts, store: StoreMetrics) -> String {
        self.cluster.set(leases, store);
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
