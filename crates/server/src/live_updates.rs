//! Live words between the nodes of a cluster, over HTTP. A node streams what subscribers of a session should see before
//! it is recorded, one JSON object per line, to other nodes that know the cluster's secret.

use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{BoxStream, StreamExt};
use segue_core::ids::SessionId;
use segue_engine::{CrossNodeSessionUpdate, CrossNodeSessionUpdateSource};
use subtle::ConstantTimeEq;

use crate::app::AppState;
use crate::limits::{LIVE_CONNECT_MS_MAX, LIVE_HEARTBEAT_MS, LIVE_LINE_BYTES_MAX, LIVE_SILENCE_MS_MAX};
use crate::problem::HttpProblem;

/// The path of the live updates of a session. Not part of the public API.
pub(crate) const LIVE_PATH: &str = "/internal/live/{session}";

/// The secret that the nodes of a cluster share.
#[derive(Clone)]
pub struct ClusterSecret(pub String);

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// Streams the live updates of a session to another node.
pub(crate) async fn get_live_updates(
    State(app): State<AppState>,
    Path(session): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let refused = || HttpProblem::new("key-invalid", "only nodes of the same cluster may ask this");
    let secret = app.options.cluster_secret.as_ref().ok_or_else(refused)?;
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.strip_prefix("Bearer ").unwrap_or_default();
    if !bool::from(given.as_bytes().ct_eq(secret.0.as_bytes())) {
        return Err(refused());
    }
    let updates = app.engine.live_updates(&SessionId::from(session)).map(|update| to_line(&update));
    let heartbeat = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(LIVE_HEARTBEAT_MS)).await;
        Some((Bytes::from_static(b"\n"), ()))
    });
    // Ends with the updates; the heartbeats alone would go on for ever.
    let updates = updates.map(Some).chain(futures_util::stream::once(async { None }));
    let lines = futures_util::stream::select(updates, heartbeat.map(Some).boxed());
    let lines = lines.take_while(|line| std::future::ready(line.is_some()));
    let body = Body::from_stream(lines.map(|line| Ok::<_, std::convert::Infallible>(line.unwrap_or_default())));
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn to_line(update: &CrossNodeSessionUpdate) -> Bytes {
    // Our own types can always be serialized.
    let mut line = serde_json::to_vec(update).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// Receives live updates from other nodes over HTTP.
#[derive(Debug)]
pub struct HttpCrossNodeUpdateSource {
    client: reqwest::Client,
    secret: ClusterSecret,
}

impl HttpCrossNodeUpdateSource {
    /// Creates a client for nodes with this secret.
    ///
    /// # Errors
    /// The client cannot be created.
    pub fn new(secret: ClusterSecret) -> Result<Self, String> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // The error may be dropped: another thread has installed one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(LIVE_CONNECT_MS_MAX))
            .read_timeout(Duration::from_millis(LIVE_SILENCE_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        Ok(Self { client: client.map_err(|error| error.to_string())?, secret })
    }
}

#[async_trait]
impl CrossNodeSessionUpdateSource for HttpCrossNodeUpdateSource {
    async fn follow_session(
        &self,
        address: &str,
        session: &SessionId,
    ) -> Result<BoxStream<'static, CrossNodeSessionUpdate>, String> {
        let mut url = reqwest::Url::parse(address).map_err(|error| error.to_string())?;
        let segments = url.path_segments_mut().map_err(|()| "the address of the node is no URL with a path".to_owned());
        segments?.pop_if_empty().extend(["internal", "live", session.as_str()]);
        let response = self.client.get(url).bearer_auth(&self.secret.0).send().await;
        let response = response.and_then(reqwest::Response::error_for_status).map_err(|error| error.to_string())?;
        let chunks = response.bytes_stream();
        let lines = futures_util::stream::unfold((chunks, Vec::new()), |(mut chunks, mut buffer)| async move {
            loop {
                if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let rest = buffer.split_off(end + 1);
                    let line = std::mem::replace(&mut buffer, rest);
                    return Some((line, (chunks, buffer)));
                }
                if buffer.len() > LIVE_LINE_BYTES_MAX {
                    return None;
                }
                buffer.extend_from_slice(&chunks.next().await?.ok()?);
            }
        });
        // An empty line is a heartbeat; an unknown one was written by a newer version.
        Ok(lines.filter_map(|line| std::future::ready(serde_json::from_slice(&line).ok())).boxed())
    }
}
