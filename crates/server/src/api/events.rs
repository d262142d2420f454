//! The journal over HTTP: a page of events, or all of them as they are recorded, with the words of answers as they come.

use axum::Json;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use segue_core::ids::Seq;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::session_view::chronicle;
use crate::extract::{Held, Params, Wanted};
use crate::limits::{EVENTS_PAGE, EVENTS_PAGE_MAX};
use crate::problem::Problem;
use crate::stream::{Follow, Until};
use crate::teller::{EventView, Teller, TextsWanted};

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsParams {
    /// Only those after this place; the header `Last-Event-ID` goes before it in a stream.
    after: Option<u64>,
    /// How many at most, in a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Which texts come along.
    texts: Option<TextsWanted>,
    /// Whether words come as they are said, in a stream.
    words: Option<bool>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventsPage {
    /// In order.
    pub events: Vec<EventView>,
    /// The place of the last one here, from which to go on.
    pub last: u64,
    /// Whether there are more.
    pub more: bool,
}

/// The journal, as a page or as a live stream
///
/// With `Accept: text/event-stream` it is a stream: events of the kinds `event`, `words`, `live`, `reconnect`, `gone` and `problem`.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", tag = "events", params(super::Named, EventsParams),
    responses((status = 200, content((EventsPage = "application/json"), (String = "text/event-stream")))))]
pub async fn events(
    held: Held,
    wanted: Wanted,
    headers: HeaderMap,
    Params(params): Params<EventsParams>,
) -> Result<Response, Problem> {
    let texts = params.texts.unwrap_or_default();
    let after = Seq(params.after.unwrap_or(0));
    if wanted == Wanted::Stream {
        let after = last_event_id(&headers)?.unwrap_or(after);
        let head = chronicle(&held, None, |chronicle| chronicle.seq).await?;
        let follow = Follow { held, after, head, texts, words: params.words.unwrap_or(true), until: Until::Ever };
        return follow.respond().await;
    }
    let limit = super::page(params.limit, EVENTS_PAGE, EVENTS_PAGE_MAX)?;
    let turn = chronicle(&held, None, |chronicle| chronicle.turn_at(after)).await?;
    let engine = &held.app.engine;
    let mut found = engine.events(&held.session, after, limit + 1).await.map_err(|error| held.problem(error))?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().map_or(after, |event| event.seq).0;
    let events = Teller::new(&held, texts, turn).tell(&found).await.map_err(|error| held.problem(error))?;
    Ok(Json(EventsPage { events, last, more }).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let place = given.to_str().ok().filter(|given| !given.is_empty()).map(str::parse::<u64>);
    match place {
        None => Ok(None),
        Some(Ok(place)) => Ok(Some(Seq(place))),
        Some(Err(_)) => Err(Problem::bad_request("`Last-Event-ID` is the place of an event, such as 17")),
    }
}
