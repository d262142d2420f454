//! The journal over HTTP: a page of events, or all of them as they are recorded, with the words of answers as they come.

use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::session_view::with_session_history;
use crate::event_view::{EventRenderer, EventTextFilter, EventView};
use crate::extract::{QueryParams, ResponseFormat, SessionRef};
use crate::limits::{EVENTS_PAGE_DEFAULT, EVENTS_PAGE_MAX};
use crate::problem::HttpProblem;
use crate::stream::{EventStreamRequest, StreamUntil};

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListEventsParams {
    /// Only those after this place; the header `Last-Event-ID` goes before it in a stream.
    after: Option<u64>,
    /// How many at most, in a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Which texts come along.
    texts: Option<EventTextFilter>,
    /// Whether words come as they are said, in a stream.
    deltas: Option<bool>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventsPage {
    /// In order.
    pub events: Vec<EventView>,
    /// The place of the last one here, from which to go on.
    pub last_seq: u64,
    /// Whether there are more.
    pub has_more: bool,
}

/// The journal, as a page or as a live stream
///
/// With `Accept: text/event-stream` it is a stream: events of the kinds `event`, `words`, `live`, `reconnect`, `gone` and `problem`.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", tag = "events", params(super::SessionPath, ListEventsParams),
    responses((status = 200, content((EventsPage = "application/json"), (String = "text/event-stream")))))]
pub async fn get_events(
    session_ref: SessionRef,
    format: ResponseFormat,
    headers: HeaderMap,
    QueryParams(params): QueryParams<ListEventsParams>,
) -> Result<Response, HttpProblem> {
    let texts = params.texts.unwrap_or_default();
    let after = Seq(params.after.unwrap_or(0));
    if format == ResponseFormat::EventStream {
        let after = parse_last_event_id(&headers)?.unwrap_or(after);
        let head = with_session_history(&session_ref, None, |chronicle| chronicle.last_seq).await?;
        let follow = EventStreamRequest {
            session_ref,
            after,
            head,
            text_filter: texts,
            include_deltas: params.deltas.unwrap_or(true),
            until: StreamUntil::Disconnected,
        };
        return follow.into_sse_response().await;
    }
    let limit = super::page_limit(params.limit, EVENTS_PAGE_DEFAULT, EVENTS_PAGE_MAX)?;
    let turn = with_session_history(&session_ref, None, |chronicle| chronicle.turn_at_seq(after)).await?;
    let engine = &session_ref.app.engine;
    let mut found = engine
        .read_events(&session_ref.session, after, limit + 1)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().map_or(after, |event| event.seq).0;
    let events = EventRenderer::new(&session_ref, texts, turn)
        .render_events(&found)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(Json(EventsPage { events, last_seq: last, has_more: more }).into_response())
}

fn parse_last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, HttpProblem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let place = given.to_str().ok().filter(|given| !given.is_empty()).map(str::parse::<u64>);
    match place {
        None => Ok(None),
        Some(Ok(place)) => Ok(Some(Seq(place))),
        Some(Err(_)) => Err(HttpProblem::bad_request("`Last-Event-ID` is the place of an event, such as 17")),
    }
}
