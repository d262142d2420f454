//! Which sessions changed, as a stream, for whoever shows a list of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use segue_core::ids::FlowName;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::sessions::SessionListItem;
use crate::app::AppState;
use crate::caller::Caller;
use crate::limits::RECONNECT_MS;
use crate::problem::HttpProblem;
use crate::session_changes::{SessionChange, SessionChangeReceiver};
use crate::stream::sse_event;

/// Which sessions changed, as a live stream
///
/// Events of the kinds `session` (a row as in the list of sessions), `gone` and `reconnect`.
#[utoipa::path(get, path = "/v1/changes", tag = "events", responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_session_changes(State(app): State<AppState>, caller: Caller) -> Result<Response, HttpProblem> {
    let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
    let open = app.metrics.track_open_stream();
    let listener = app.change_feed.subscribe(&app.engine);
    let watching = SessionChangeStream {
        app: app.clone(),
        caller,
        receiver: listener,
        queued_events: VecDeque::new(),
        is_finished: false,
    };
    let ready = VecDeque::from([
        AxumSseEvent::default().retry(Duration::from_millis(RECONNECT_MS)),
        sse_event("live", None, &json!({})),
    ]);
    let watching = SessionChangeStream { queued_events: ready, ..watching };
    let updates = stream::unfold((watching, permit, open), |(mut watching, permit, open)| async move {
        let sent = watching.next_event().await?;
        Some((Ok::<_, Infallible>(sent), (watching, permit, open)))
    });
    let heartbeat = Duration::from_millis(app.options.limits.heartbeat_ms);
    Ok(Sse::new(updates).keep_alive(KeepAlive::new().interval(heartbeat).text("still here")).into_response())
}

struct SessionChangeStream {
    app: AppState,
    caller: Caller,
    receiver: SessionChangeReceiver,
    queued_events: VecDeque<AxumSseEvent>,
    is_finished: bool,
}

impl SessionChangeStream {
    async fn next_event(&mut self) -> Option<AxumSseEvent> {
        loop {
            if let Some(sent) = self.queued_events.pop_front() {
                return Some(sent);
            }
            if self.is_finished {
                return None;
            }
            let app = self.app.clone();
            let change = tokio::select! {
                () = app.wait_for_shutdown() => Err(RecvError::Closed),
                change = self.receiver.recv() => change,
            };
            match change {
                Ok(SessionChange::Updated(row)) => {
                    if self.caller.can_see_session(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        self.queued_events.push_back(sse_event(
                            "session",
                            None,
                            &SessionListItem::from_list_entry(&row, &self.caller),
                        ));
                    }
                }
                Ok(SessionChange::Deleted(row)) => {
                    if self.caller.can_see_session(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        let name = self.caller.public_session_name(&row.session);
                        self.queued_events.push_back(sse_event("gone", None, &json!({ "session": name })));
                    }
                }
                // Whoever missed something reads the list again.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    self.queued_events.push_back(sse_event(
                        "reconnect",
                        None,
                        &json!({ "why": "read the list again" }),
                    ));
                    self.is_finished = true;
                }
            }
        }
    }
}
