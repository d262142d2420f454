//! Which sessions changed, as a stream, for whoever shows a list of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use segue_core::ids::FlowName;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::sessions::SessionRow;
use crate::app::App;
use crate::caller::Caller;
use crate::changes::{Change, Listener};
use crate::limits::RECONNECT_MS;
use crate::problem::Problem;
use crate::stream::sse;

/// Which sessions changed, as a live stream
///
/// Events of the kinds `session` (a row as in the list of sessions), `gone` and `reconnect`.
#[utoipa::path(get, path = "/v1/changes", tag = "events", responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn changes(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    let permit = app.pace.stream(&caller)?;
    let open = app.metrics.stream();
    let listener = app.changes.listen(&app.engine);
    let watching = Watching { app: app.clone(), caller, listener, ready: VecDeque::new(), over: false };
    let ready =
        VecDeque::from([Sent::default().retry(Duration::from_millis(RECONNECT_MS)), sse("live", None, &json!({}))]);
    let watching = Watching { ready, ..watching };
    let updates = stream::unfold((watching, permit, open), |(mut watching, permit, open)| async move {
        let sent = watching.next().await?;
        Some((Ok::<_, Infallible>(sent), (watching, permit, open)))
    });
    let heartbeat = Duration::from_millis(app.options.bounds.heartbeat_ms);
    Ok(Sse::new(updates).keep_alive(KeepAlive::new().interval(heartbeat).text("still here")).into_response())
}

struct Watching {
    app: App,
    caller: Caller,
    listener: Listener,
    ready: VecDeque<Sent>,
    over: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Some(sent);
            }
            if self.over {
                return None;
            }
            let app = self.app.clone();
            let change = tokio::select! {
                () = app.closed() => Err(RecvError::Closed),
                change = self.listener.next() => change,
            };
            match change {
                Ok(Change::Row(row)) => {
                    if self.caller.sees(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        self.ready.push_back(sse("session", None, &SessionRow::of(&row, &self.caller)));
                    }
                }
                Ok(Change::Gone(row)) => {
                    if self.caller.sees(&row.session, &FlowName::from(row.summary.flow.as_str())) {
                        let name = self.caller.public(&row.session);
                        self.ready.push_back(sse("gone", None, &json!({ "session": name })));
                    }
                }
                // Whoever missed something reads the list again.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    self.ready.push_back(sse("reconnect", None, &json!({ "why": "read the list again" })));
                    self.over = true;
                }
            }
        }
    }
}
