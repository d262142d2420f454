//! Serves the journal as pages of events and as a live stream with text deltas.

use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::session_view::with_session_history;
use crate::event_view::{EventTextFilter, EventView, EventViewBuilder};
use crate::extract::{CallerSessionRef, NegotiatedResponseFormat, QueryParams};
use crate::limits::{EVENTS_PAGE_DEFAULT, EVENTS_PAGE_MAX};
use crate::problem::HttpProblem;
use crate::stream::{EventStreamRequest, StreamEndCondition};

/// Paging and content of the event list or stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListEventsParams {
    /// Only events after this sequence number. In a stream, the header `Last-Event-ID` takes precedence.
    after: Option<u64>,
    /// The maximum number of events on a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Which texts are included.
    texts: Option<EventTextFilter>,
    /// Whether a stream includes text deltas.
    deltas: Option<bool>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventsPage {
    pub events: Vec<EventView>,
    /// The sequence number of the last event on this page; use it as `after` for the next page.
    pub last_seq: u64,
    pub has_more: bool,
}

/// Get or stream the journal
///
/// With `Accept: text/event-stream` the response is a stream with the SSE events `event`, `delta`, `live`, `reconnect`,
/// `deleted` and `problem`.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", tag = "events", params(super::SessionPathParamDocs, ListEventsParams),
    responses((status = 200, content((EventsPage = "application/json"), (String = "text/event-stream")))))]
pub(crate) async fn get_events(
    session_ref: CallerSessionRef,
    format: NegotiatedResponseFormat,
    headers: HeaderMap,
    QueryParams(params): QueryParams<ListEventsParams>,
) -> Result<Response, HttpProblem> {
    let texts = params.texts.unwrap_or_default();
    let after = Seq(params.after.unwrap_or(0));
    if format == NegotiatedResponseFormat::EventStream {
        let after = parse_last_event_id(&headers)?.unwrap_or(after);
        let head = with_session_history(&session_ref, None, |history| history.last_seq).await?;
        let request = EventStreamRequest {
            session_ref,
            after,
            head,
            text_filter: texts,
            include_deltas: params.deltas.unwrap_or(true),
            until: StreamEndCondition::Disconnected,
        };
        return request.into_sse_response().await;
    }
    let limit = super::page_limit(params.limit, EVENTS_PAGE_DEFAULT, EVENTS_PAGE_MAX)?;
    let turn = with_session_history(&session_ref, None, |history| history.turn_at_seq(after)).await?;
    let engine = &session_ref.app.engine;
    let mut found = engine
        .read_events(&session_ref.session, after, limit + 1)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last_seq = found.last().map_or(after, |event| event.seq).0;
    let events = EventViewBuilder::new(&session_ref, texts, turn)
        .render_events(&found)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(Json(EventsPage { events, last_seq, has_more }).into_response())
}

fn parse_last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, HttpProblem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let seq = given.to_str().ok().filter(|given| !given.is_empty()).map(str::parse::<u64>);
    match seq {
        None => Ok(None),
        Some(Ok(seq)) => Ok(Some(Seq(seq))),
        Some(Err(_)) => {
            Err(HttpProblem::bad_request("`Last-Event-ID` must be the sequence number of an event, such as 17"))
        }
    }
}
