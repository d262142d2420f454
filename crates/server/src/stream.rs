//! Live streams: a session's journal followed by sequence, whoever writes it. A stream holds nothing that is not in the store, so one
//! that breaks, is too slow or ends with the server loses nothing: the client comes back with the last place it saw.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use segue_core::event::Event;
use segue_core::ids::{MessageId, Seq, TurnId};
use segue_engine::{Error, SessionUpdate, Subscription};
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::messages::build_message_result;
use crate::api::session_view::with_session_history;
use crate::event_view::{EventRenderer, EventTextFilter};
use crate::extract::SessionRef;
use crate::limits::RECONNECT_MS;
use crate::metrics::OpenStreamGuard;
use crate::problem::HttpProblem;

/// A stream that is wanted.
#[derive(Debug)]
pub struct EventStreamRequest {
    /// The session.
    pub session_ref: SessionRef,
    /// From where on.
    pub after: Seq,
    /// The last event there was when it was asked for.
    pub head: Seq,
    /// Which texts come along.
    pub text_filter: EventTextFilter,
    /// Whether words come along as they are said.
    pub include_deltas: bool,
    /// How long it goes on.
    pub until: StreamUntil,
}

/// How long a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamUntil {
    /// As long as it is read.
    Disconnected,
    /// Until the turn of this message has ended.
    TurnEnded(MessageId),
}

struct SessionEventStream {
    session_ref: SessionRef,
    renderer: EventRenderer,
    subscription: Subscription,
    include_deltas: bool,
    until: StreamUntil,
    head: Seq,
    is_live: bool,
    awaited_turn: Option<TurnId>,
    queued_events: VecDeque<AxumSseEvent>,
    is_finished: bool,
    // Given back when the stream is dropped.
    _permit: OwnedSemaphorePermit,
    _open_stream: OpenStreamGuard,
}

impl EventStreamRequest {
    /// The answer: a stream of events.
    ///
    /// # Errors
    /// There are too many streams, or the session cannot be read.
    pub async fn into_sse_response(self) -> Result<Response, HttpProblem> {
        let Self { session_ref: held, after, head, text_filter: texts, include_deltas: words, until } = self;
        let app = held.app.clone();
        let permit = app.rate_limiter.acquire_stream_permit(&held.caller)?;
        let turn = with_session_history(&held, None, |chronicle| chronicle.turn_at_seq(after)).await?;
        let listener = app.engine.subscribe(&held.session, after).await.map_err(|error| held.to_problem(error))?;
        let mut following = SessionEventStream {
            renderer: EventRenderer::new(&held, texts, turn),
            subscription: listener,
            include_deltas: words,
            until,
            head,
            is_live: false,
            awaited_turn: None,
            queued_events: VecDeque::from([AxumSseEvent::default().retry(Duration::from_millis(RECONNECT_MS))]),
            is_finished: false,
            _permit: permit,
            _open_stream: app.metrics.track_open_stream(),
            session_ref: held,
        };
        if let StreamUntil::TurnEnded(message) = until {
            let accepted = json!({ "session": following.session_ref.public_name(), "message": message.to_string(), "after": after });
            following.queue_event("accepted", None, &accepted);
            following.is_live = true;
        }
        following.announce_if_live();
        let updates = stream::unfold(following, |mut following| async move {
            let sent = following.next_event().await?;
            Some((Ok::<_, Infallible>(sent), following))
        });
        let heartbeat = Duration::from_millis(app.options.limits.heartbeat_ms);
        let mut response =
            Sse::new(updates).keep_alive(KeepAlive::new().interval(heartbeat).text("still here")).into_response();
        // Proxies that gather what they pass on would keep it back.
        response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
        Ok(response)
    }
}

impl SessionEventStream {
    async fn next_event(&mut self) -> Option<AxumSseEvent> {
        loop {
            if let Some(sent) = self.queued_events.pop_front() {
                return Some(sent);
            }
            if self.is_finished {
                return None;
            }
            let app = self.session_ref.app.clone();
            tokio::select! {
                () = app.wait_for_shutdown() => self.send_reconnect(),
                update = self.subscription.next_update() => match update {
                    Ok(update) => self.handle_update(update).await,
                    Err(error) => self.send_failure(&error),
                },
            }
        }
    }

    async fn handle_update(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::TextDelta { call, attempt, offset: at, text } => {
                if self.include_deltas {
                    let words = json!({ "call": call.to_string(), "attempt": attempt, "at": at, "text": text });
                    self.queue_event("words", None, &words);
                }
            }
            SessionUpdate::Event(recorded) => {
                match self.renderer.render_events(std::slice::from_ref(&*recorded)).await {
                    Ok(told) => told.iter().for_each(|event| self.queue_event("event", Some(recorded.seq), event)),
                    Err(error) => return self.send_failure(&error),
                }
                self.announce_if_live();
                self.finish_if_turn_ended(&recorded.event).await;
            }
        }
    }

    fn announce_if_live(&mut self) {
        let seen = self.subscription.last_seq();
        if !self.is_live && seen >= self.head {
            self.is_live = true;
            self.queue_event("live", None, &json!({ "seq": seen }));
        }
    }

    async fn finish_if_turn_ended(&mut self, event: &Event) {
        let StreamUntil::TurnEnded(message) = self.until else { return };
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => self.awaited_turn = Some(*turn),
            Event::TurnEnded { turn, .. } if self.awaited_turn == Some(*turn) => {
                match build_message_result(&self.session_ref, message, None).await {
                    Ok(report) => self.queue_event("done", None, &report),
                    Err(problem) => self.queue_event("problem", None, &problem.to_details()),
                }
                self.is_finished = true;
            }
            Event::SessionClosed { reason } if self.awaited_turn.is_none() => {
                let refusal = segue_core::decide::InputRefusal::Closed { reason: reason.clone() };
                self.send_failure(&Error::Refused(refusal));
            }
            _ => {}
        }
    }

    /// The server ends: whoever listens comes back for the rest.
    fn send_reconnect(&mut self) {
        let after = self.subscription.last_seq();
        self.queue_event("reconnect", None, &json!({ "after": after, "why": "the server is shutting down" }));
        self.is_finished = true;
    }

    fn send_failure(&mut self, error: &Error) {
        match error {
            Error::NoSuchSession(_) => {
                self.queue_event("gone", None, &json!({ "session": self.session_ref.public_name() }))
            }
            error => {
                let problem = self.session_ref.to_problem(error).to_details();
                self.queue_event("problem", None, &problem);
            }
        }
        self.is_finished = true;
    }

    fn queue_event(&mut self, kind: &str, id: Option<Seq>, data: &impl Serialize) {
        self.session_ref.app.metrics.record_stream_event(kind);
        self.queued_events.push_back(sse_event(kind, id, data));
    }
}

/// One event of a stream.
pub fn sse_event(kind: &str, id: Option<Seq>, data: &impl Serialize) -> AxumSseEvent {
    let data = serde_json::to_string(data).unwrap_or_default();
    let sent = AxumSseEvent::default().event(kind).data(data);
    match id {
        Some(id) => sent.id(id.to_string()),
        None => sent,
    }
}
