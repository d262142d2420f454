//! Live streams of a session's journal. A stream reads events by sequence number, whichever process writes them, and keeps
//! nothing that is not in the store. A client whose stream ends can therefore reconnect with the last sequence number it
//! received.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use segue_core::event::Event;
use segue_core::ids::{MessageId, Seq, TurnId};
use segue_engine::{Error, SessionSubscription, SessionUpdate};
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::messages::build_message_result;
use crate::api::session_view::with_session_history;
use crate::app::AppState;
use crate::caller::Caller;
use crate::event_view::{EventTextFilter, EventViewBuilder};
use crate::extract::CallerSessionRef;
use crate::limits::RECONNECT_MS;
use crate::metrics::OpenStreamCountGuard;
use crate::problem::HttpProblem;

/// A request for an event stream.
#[derive(Debug)]
pub(crate) struct EventStreamRequest {
    pub session_ref: CallerSessionRef,
    /// The sequence number to start after.
    pub after: Seq,
    /// The last sequence number at the time of the request.
    pub head: Seq,
    pub text_filter: EventTextFilter,
    pub include_deltas: bool,
    pub until: StreamEndCondition,
}

/// When a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEndCondition {
    /// When the client disconnects.
    Disconnected,
    /// When the turn of this message has ended.
    TurnEnded(MessageId),
}

struct SessionEventStream {
    session_ref: CallerSessionRef,
    renderer: EventViewBuilder,
    subscription: SessionSubscription,
    include_deltas: bool,
    until: StreamEndCondition,
    head: Seq,
    is_live: bool,
    awaited_turn: Option<TurnId>,
    queued_messages: VecDeque<EventStreamMessage>,
    is_finished: bool,
}

/// An event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct EventStreamMessage {
    pub kind: &'static str,
    pub id: Option<Seq>,
    /// The data, as JSON.
    pub data: String,
}

impl EventStreamMessage {
    /// Creates a message.
    #[must_use]
    pub(crate) fn new(kind: &'static str, id: Option<Seq>, data: &impl Serialize) -> Self {
        // Our own types can always be serialized.
        Self { kind, id, data: serde_json::to_string(data).unwrap_or_default() }
    }

    fn into_sse_event(self) -> AxumSseEvent {
        let event = AxumSseEvent::default().event(self.kind).data(self.data);
        match self.id {
            Some(id) => event.id(id.to_string()),
            None => event,
        }
    }
}

/// Holds one of the caller's streams until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    _permit: OwnedSemaphorePermit,
    _open_stream: OpenStreamCountGuard,
}

impl StreamPermit {
    /// Reserves a stream.
    ///
    /// # Errors
    /// The caller has too many open streams.
    pub(crate) fn acquire(app: &AppState, caller: &Caller) -> Result<Self, HttpProblem> {
        let permit = app.rate_limiter.acquire_stream_permit(caller)?;
        Ok(Self { _permit: permit, _open_stream: app.metrics.track_open_stream() })
    }
}

/// Builds the response of a stream.
pub(crate) fn sse_response(
    app: &AppState,
    permit: StreamPermit,
    messages: impl Stream<Item = EventStreamMessage> + Send + 'static,
) -> Response {
    let retry = AxumSseEvent::default().retry(Duration::from_millis(RECONNECT_MS));
    let messages = messages.map(move |message| {
        // The permit belongs to the closure, which lives as long as the stream.
        let _ = &permit;
        message.into_sse_event()
    });
    let events = stream::iter([retry]).chain(messages).map(Ok::<_, Infallible>);
    let heartbeat = Duration::from_millis(app.options.limits.heartbeat_ms);
    let mut response =
        Sse::new(events).keep_alive(KeepAlive::new().interval(heartbeat).text("keep-alive")).into_response();
    // Tells proxies not to buffer the stream.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

impl EventStreamRequest {
    /// Starts the stream as a response of its own.
    ///
    /// # Errors
    /// The caller has too many open streams, or the session cannot be read.
    pub(crate) async fn into_sse_response(self) -> Result<Response, HttpProblem> {
        let app = self.session_ref.app.clone();
        let permit = StreamPermit::acquire(&app, &self.session_ref.caller)?;
        Ok(sse_response(&app, permit, self.into_messages().await?))
    }

    /// Starts the stream.
    ///
    /// # Errors
    /// The session cannot be read.
    pub(crate) async fn into_messages(
        self,
    ) -> Result<impl Stream<Item = EventStreamMessage> + Send + 'static, HttpProblem> {
        let Self { session_ref, after, head, text_filter, include_deltas, until } = self;
        let app = session_ref.app.clone();
        let turn = with_session_history(&session_ref, None, |history| history.turn_at_seq(after)).await?;
        let subscription =
            app.engine.subscribe(&session_ref.session, after).await.map_err(|error| session_ref.to_problem(error))?;
        let mut event_stream = SessionEventStream {
            renderer: EventViewBuilder::new(&session_ref, text_filter, turn),
            subscription,
            include_deltas,
            until,
            head,
            is_live: false,
            awaited_turn: None,
            queued_messages: VecDeque::new(),
            is_finished: false,
            session_ref,
        };
        if let StreamEndCondition::TurnEnded(message) = until {
            let accepted = json!({ "session": event_stream.session_ref.public_name(), "message": message.to_string(), "after": after });
            event_stream.queue_event("accepted", None, &accepted);
            event_stream.is_live = true;
        }
        event_stream.queue_live_event_if_caught_up();
        Ok(stream::unfold(event_stream, |mut event_stream| async move {
            Some((event_stream.next_message().await?, event_stream))
        }))
    }
}

impl SessionEventStream {
    async fn next_message(&mut self) -> Option<EventStreamMessage> {
        loop {
            if let Some(message) = self.queued_messages.pop_front() {
                return Some(message);
            }
            if self.is_finished {
                return None;
            }
            let app = self.session_ref.app.clone();
            tokio::select! {
                biased;
                () = app.wait_for_shutdown() => self.send_reconnect(),
                () = app.keys.wait_for_revocation(&self.session_ref.caller) => self.send_problem(&HttpProblem::key_revoked()),
                update = self.subscription.next_update() => match update {
                    Ok(update) => self.handle_update(update).await,
                    Err(error) => self.send_failure(&error),
                },
            }
        }
    }

    async fn handle_update(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::TextDelta { call, attempt, offset, text } => {
                if self.include_deltas {
                    let delta = json!({ "call": call.to_string(), "attempt": attempt, "offset": offset, "text": text });
                    self.queue_event("delta", None, &delta);
                }
            }
            SessionUpdate::ToolProgress { run, text } => {
                if self.include_deltas {
                    self.queue_event("tool_progress", None, &json!({ "run": run.to_string(), "text": text }));
                }
            }
            SessionUpdate::Event(recorded) => {
                match self.renderer.render_events(std::slice::from_ref(&*recorded)).await {
                    Ok(views) => views.iter().for_each(|event| self.queue_event("event", Some(recorded.seq), event)),
                    Err(error) => return self.send_failure(&error),
                }
                self.queue_live_event_if_caught_up();
                self.finish_if_turn_ended(&recorded.event).await;
            }
        }
    }

    fn queue_live_event_if_caught_up(&mut self) {
        let seen = self.subscription.last_seq();
        if !self.is_live && seen >= self.head {
            self.is_live = true;
            self.queue_event("live", None, &json!({ "seq": seen }));
        }
    }

    async fn finish_if_turn_ended(&mut self, event: &Event) {
        let StreamEndCondition::TurnEnded(message) = self.until else { return };
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

    /// Asks the client to reconnect, because the server is shutting down.
    fn send_reconnect(&mut self) {
        let after = self.subscription.last_seq();
        self.queue_event("reconnect", None, &json!({ "after": after, "reason": "the server is shutting down" }));
        self.is_finished = true;
    }

    fn send_failure(&mut self, error: &Error) {
        match error {
            Error::NoSuchSession(_) => {
                self.queue_event("deleted", None, &json!({ "session": self.session_ref.public_name() }))
            }
            error => self.send_problem(&self.session_ref.to_problem(error)),
        }
        self.is_finished = true;
    }

    fn send_problem(&mut self, problem: &HttpProblem) {
        self.queue_event("problem", None, &problem.to_details());
        self.is_finished = true;
    }

    fn queue_event(&mut self, kind: &'static str, id: Option<Seq>, data: &impl Serialize) {
        self.session_ref.app.metrics.record_stream_event(kind);
        self.queued_messages.push_back(EventStreamMessage::new(kind, id, data));
    }
}
