//! Live streams: a session's journal followed by sequence, whoever writes it. A stream holds nothing that is not in the store, so one
//! that breaks, is too slow or ends with the server loses nothing: the client comes back with the last place it saw.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use segue_core::event::Event;
use segue_core::ids::{MessageId, Seq, TurnId};
use segue_engine::{Error, Subscription, Update};
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::messages::report;
use crate::api::session_view::chronicle;
use crate::extract::Held;
use crate::limits::RECONNECT_MS;
use crate::metrics::Open;
use crate::problem::Problem;
use crate::teller::{Teller, TextsWanted};

/// A stream that is wanted.
#[derive(Debug)]
pub struct Follow {
    /// The session.
    pub held: Held,
    /// From where on.
    pub after: Seq,
    /// The last event there was when it was asked for.
    pub head: Seq,
    /// Which texts come along.
    pub texts: TextsWanted,
    /// Whether words come along as they are said.
    pub words: bool,
    /// How long it goes on.
    pub until: Until,
}

/// How long a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// As long as it is read.
    Ever,
    /// Until the turn of this message has ended.
    Answered(MessageId),
}

struct Following {
    held: Held,
    teller: Teller,
    listener: Subscription,
    words: bool,
    until: Until,
    head: Seq,
    is_live: bool,
    turn: Option<TurnId>,
    ready: VecDeque<Sent>,
    over: bool,
    // Given back when the stream is dropped.
    _permit: OwnedSemaphorePermit,
    _open: Open,
}

impl Follow {
    /// The answer: a stream of events.
    ///
    /// # Errors
    /// There are too many streams, or the session cannot be read.
    pub async fn respond(self) -> Result<Response, Problem> {
        let Self { held, after, head, texts, words, until } = self;
        let app = held.app.clone();
        let permit = app.pace.stream(&held.caller)?;
        let turn = chronicle(&held, None, |chronicle| chronicle.turn_at(after)).await?;
        let listener = app.engine.subscribe(&held.session, after).await.map_err(|error| held.problem(error))?;
        let mut following = Following {
            teller: Teller::new(&held, texts, turn),
            listener,
            words,
            until,
            head,
            is_live: false,
            turn: None,
            ready: VecDeque::from([Sent::default().retry(Duration::from_millis(RECONNECT_MS))]),
            over: false,
            _permit: permit,
            _open: app.metrics.stream(),
            held,
        };
        if let Until::Answered(message) = until {
            let accepted = json!({ "session": following.held.name(), "message": message.to_string(), "after": after });
            following.send("accepted", None, &accepted);
            following.is_live = true;
        }
        following.say_if_live();
        let updates = stream::unfold(following, |mut following| async move {
            let sent = following.next().await?;
            Some((Ok::<_, Infallible>(sent), following))
        });
        let heartbeat = Duration::from_millis(app.options.bounds.heartbeat_ms);
        let mut response =
            Sse::new(updates).keep_alive(KeepAlive::new().interval(heartbeat).text("still here")).into_response();
        // Proxies that gather what they pass on would keep it back.
        response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
        Ok(response)
    }
}

impl Following {
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Some(sent);
            }
            if self.over {
                return None;
            }
            let app = self.held.app.clone();
            tokio::select! {
                () = app.closed() => self.end(),
                update = self.listener.next() => match update {
                    Ok(update) => self.take(update).await,
                    Err(error) => self.fail(&error),
                },
            }
        }
    }

    async fn take(&mut self, update: Update) {
        match update {
            Update::Words { call, attempt, at, text } => {
                if self.words {
                    let words = json!({ "call": call.to_string(), "attempt": attempt, "at": at, "text": text });
                    self.send("words", None, &words);
                }
            }
            Update::Event(recorded) => {
                match self.teller.tell(std::slice::from_ref(&*recorded)).await {
                    Ok(told) => told.iter().for_each(|event| self.send("event", Some(recorded.seq), event)),
                    Err(error) => return self.fail(&error),
                }
                self.say_if_live();
                self.end_if_answered(&recorded.event).await;
            }
        }
    }

    fn say_if_live(&mut self) {
        let seen = self.listener.seen();
        if !self.is_live && seen >= self.head {
            self.is_live = true;
            self.send("live", None, &json!({ "seq": seen }));
        }
    }

    async fn end_if_answered(&mut self, event: &Event) {
        let Until::Answered(message) = self.until else { return };
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => self.turn = Some(*turn),
            Event::TurnEnded { turn, .. } if self.turn == Some(*turn) => {
                match report(&self.held, message, None).await {
                    Ok(report) => self.send("done", None, &report),
                    Err(problem) => self.send("problem", None, &problem.body()),
                }
                self.over = true;
            }
            Event::SessionClosed { reason } if self.turn.is_none() => {
                let refusal = segue_core::decide::Refusal::Closed { reason: reason.clone() };
                self.fail(&Error::Refused(refusal));
            }
            _ => {}
        }
    }

    /// The server ends: whoever listens comes back for the rest.
    fn end(&mut self) {
        let after = self.listener.seen();
        self.send("reconnect", None, &json!({ "after": after, "why": "the server is shutting down" }));
        self.over = true;
    }

    fn fail(&mut self, error: &Error) {
        match error {
            Error::NoSuchSession(_) => self.send("gone", None, &json!({ "session": self.held.name() })),
            error => {
                let problem = self.held.problem(error).body();
                self.send("problem", None, &problem);
            }
        }
        self.over = true;
    }

    fn send(&mut self, kind: &str, id: Option<Seq>, data: &impl Serialize) {
        self.held.app.metrics.sent(kind);
        self.ready.push_back(sse(kind, id, data));
    }
}

/// One event of a stream.
pub fn sse(kind: &str, id: Option<Seq>, data: &impl Serialize) -> Sent {
    let data = serde_json::to_string(data).unwrap_or_default();
    let sent = Sent::default().event(kind).data(data);
    match id {
        Some(id) => sent.id(id.to_string()),
        None => sent,
    }
}
