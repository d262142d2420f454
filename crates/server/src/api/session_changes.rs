//! Streams changes of the session list.

use std::collections::VecDeque;

use axum::extract::State;
use axum::response::Response;
use futures_util::{Stream, stream};
use segue_core::ids::FlowName;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::sessions::SessionListItem;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;
use crate::session_changes::{SessionListChange, SessionListChangeReceiver};
use crate::stream::{EventStreamMessage, StreamPermit, sse_response};

/// Stream changes of the session list
///
/// The SSE events are `live`, `session` (a row of the session list), `deleted`, `reconnect` and `problem`.
#[utoipa::path(get, path = "/v1/changes", tag = "events", responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(crate) async fn stream_session_changes(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<Response, HttpProblem> {
    let permit = StreamPermit::acquire(&app, &caller)?;
    let messages = session_change_messages(&app, caller);
    Ok(sse_response(&app, permit, messages))
}

/// Streams the changes that the caller may see, from now on.
pub(crate) fn session_change_messages(
    app: &AppState,
    caller: Caller,
) -> impl Stream<Item = EventStreamMessage> + Send + 'static {
    let receiver = app.change_feed.subscribe(&app.engine);
    let queued_messages = VecDeque::from([EventStreamMessage::new("live", None, &json!({}))]);
    let change_stream =
        SessionListChangeStream { app: app.clone(), caller, receiver, queued_messages, is_finished: false };
    stream::unfold(change_stream, |mut change_stream| async move {
        Some((change_stream.next_message().await?, change_stream))
    })
}

struct SessionListChangeStream {
    app: AppState,
    caller: Caller,
    receiver: SessionListChangeReceiver,
    queued_messages: VecDeque<EventStreamMessage>,
    is_finished: bool,
}

impl SessionListChangeStream {
    async fn next_message(&mut self) -> Option<EventStreamMessage> {
        loop {
            if let Some(message) = self.queued_messages.pop_front() {
                return Some(message);
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
                    self.queued_messages.push_back(EventStreamMessage::new("problem", None, &problem));
                    self.is_finished = true;
                    continue;
                }
                change = self.receiver.recv() => change,
            };
            match change {
                Ok(SessionListChange::Updated(row)) => {
                    if self.caller.can_see_session(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        self.queued_messages.push_back(EventStreamMessage::new(
                            "session",
                            None,
                            &SessionListItem::from_list_entry(&row, &self.caller),
                        ));
                    }
                }
                Ok(SessionListChange::Deleted(row)) => {
                    if self.caller.can_see_session(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        let name = self.caller.public_session_name(&row.session);
                        self.queued_messages.push_back(EventStreamMessage::new(
                            "deleted",
                            None,
                            &json!({ "session": name }),
                        ));
                    }
                }
                // A client that missed changes must read the list again.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    self.queued_messages.push_back(EventStreamMessage::new(
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
