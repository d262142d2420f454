//! Streams several sessions, and the changes of the session list, over one connection. Browsers open only a few connections
//! to a server, so the studio follows everything with one stream.

use axum::extract::State;
use axum::response::Response;
use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{Stream, StreamExt};
use segue_core::ids::Seq;
use serde::Deserialize;
use utoipa::IntoParams;

use super::session_changes::session_change_messages;
use super::session_view::with_session_history;
use crate::app::AppState;
use crate::caller::Caller;
use crate::event_view::EventTextFilter;
use crate::extract::{CallerSessionRef, QueryParams};
use crate::limits::STREAMED_SESSIONS_MAX;
use crate::problem::HttpProblem;
use crate::stream::{EventStreamMessage, EventStreamRequest, StreamEndCondition, StreamPermit, sse_response};

/// What a combined stream contains.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MultiSessionStreamParams {
    /// The sessions, each with the sequence number to start after, separated by commas: `fox:12,hen:0`.
    sessions: Option<String>,
    /// Whether changes of the session list are included.
    changes: Option<bool>,
}

/// Stream several sessions over one connection
///
/// The SSE events are those of `/v1/sessions/{session}/events` and of `/v1/changes`. The data of each is an object with
/// `session`, which is `null` for changes of the session list, and `data`. A session that cannot be streamed gets a `problem` or
/// `deleted` event; the others continue.
#[utoipa::path(get, path = "/v1/stream", tag = "events", params(MultiSessionStreamParams),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(crate) async fn stream_combined(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<MultiSessionStreamParams>,
) -> Result<Response, HttpProblem> {
    let sessions = parse_session_positions(params.sessions.as_deref().unwrap_or_default())?;
    let permit = StreamPermit::acquire(&app, &caller)?;
    let mut combined: SelectAll<BoxStream<'static, EventStreamMessage>> = SelectAll::new();
    if params.changes == Some(true) {
        combined.push(tag_messages_with_session(None, session_change_messages(&app, caller.clone())).boxed());
    }
    for (name, after) in sessions {
        combined.push(match session_messages(&app, &caller, &name, after).await {
            Ok(messages) => tag_messages_with_session(Some(name), messages).boxed(),
            Err(problem) => {
                let message = EventStreamMessage::new("problem", None, &problem.to_details());
                tag_messages_with_session(Some(name), stream::iter([message])).boxed()
            }
        });
    }
    Ok(sse_response(&app, permit, combined))
}

async fn session_messages(
    app: &AppState,
    caller: &Caller,
    name: &str,
    after: Seq,
) -> Result<impl Stream<Item = EventStreamMessage> + Send + 'static, HttpProblem> {
    let session_ref = CallerSessionRef::resolve(app, caller.clone(), name).await?;
    let head = with_session_history(&session_ref, None, |history| history.last_seq).await?;
    let request = EventStreamRequest {
        session_ref,
        after,
        head,
        text_filter: EventTextFilter::default(),
        include_deltas: true,
        until: StreamEndCondition::Disconnected,
    };
    request.into_messages().await
}

/// Adds the session to the data of each message. Sequence numbers of several sessions cannot be ids of one stream.
fn tag_messages_with_session(
    session: Option<String>,
    messages: impl Stream<Item = EventStreamMessage> + Send + 'static,
) -> impl Stream<Item = EventStreamMessage> + Send + 'static {
    let session = serde_json::Value::from(session).to_string();
    messages.map(move |EventStreamMessage { kind, data, .. }| EventStreamMessage {
        kind,
        id: None,
        data: format!(r#"{{"session":{session},"data":{data}}}"#),
    })
}

fn parse_session_positions(text: &str) -> Result<Vec<(String, Seq)>, HttpProblem> {
    let invalid = |why: String| HttpProblem::bad_request(why).with_extension("field", "sessions");
    let mut positions = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let position = part.rsplit_once(':').and_then(|(name, seq)| Some((name.to_owned(), Seq(seq.parse().ok()?))));
        positions.push(
            position
                .ok_or_else(|| invalid(format!("`{part}` is not like `fox:12`: a session, `:`, a sequence number")))?,
        );
    }
    if positions.len() > STREAMED_SESSIONS_MAX {
        return Err(invalid(format!(
            "a stream can follow at most {STREAMED_SESSIONS_MAX} sessions; open several streams"
        )));
    }
    Ok(positions)
}
