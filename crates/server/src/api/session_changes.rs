//! Streams changes of the session list.

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

/// Stream changes of the session list
///
/// The SSE events are `live`, `session` (a row of the session list), `deleted`, `reconnect` and `problem`.
#[utoipa::path(get, path = "/v1/changes", tag = "events", responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(crate) async fn stream_session_changes(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<Response, HttpProblem> {
    let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
    let open_stream = app.metrics.track_open_stream();
    let receiver = app.change_feed.subscribe(&app.engine);
    let change_stream =
        SessionChangeStream { app: app.clone(), caller, receiver, queued_events: VecDeque::new(), is_finished: false };
    let queued_events = VecDeque::from([
        AxumSseEvent::default().retry(Duration::from_millis(RECONNECT_MS)),
        sse_event("live", None, &json!({})),
    ]);
    let change_stream = SessionChangeStream { queued_events, ..change_stream };
    let updates =
        stream::unfold((change_stream, permit, open_stream), |(mut change_stream, permit, open_stream)| async move {
            let event = change_stream.next_event().await?;
            Some((Ok::<_, Infallible>(event), (change_stream, permit, open_stream)))
        });
    let heartbeat = Duration::from_millis(app.options.limits.heartbeat_ms);
    Ok(Sse::new(updates).keep_alive(KeepAlive::new().interval(heartbeat).text("keep-alive")).into_response())
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
            if let Some(event) = self.queued_events.pop_front() {
                return Some(event);
            }
            if self.is_finished {
                return None;
            }
            let app = self.app.clone();
            let change = tokio::select! {
                biased;
                () = app.wait_for_shutdown() => Err(RecvError::Closed),
                () = app.keys.wait_for_revocation(&self.caller) => {
                    let problem = HttpProblem::key_revoked().to_details();
                    self.queued_events.push_back(sse_event("problem", None, &problem));
                    self.is_finished = true;
                    continue;
                }
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
                        self.queued_events.push_back(sse_event("deleted", None, &json!({ "session": name })));
                    }
                }
                // A client that missed changes must read the list again.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    self.queued_events.push_back(sse_event(
                        "reconnect",
                        None,
                        &json!({ "reason": "read the list of sessions again" }),
                    ));
                    self.is_finished = true;
                }
            }
        }
    }
}
