//! Rebuilds past prompts and turn reports from the journal.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, SessionId};
use segue_core::prompt::Prompt;
use segue_core::session::{SessionState, ThreadPromptCache};

use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::load::read_events;
use crate::session_flow::read_session_flow;
use crate::text_cache::TextCache;
use crate::turn_report::TurnReport;

impl Engine {
    /// Rebuilds the exact prompt of a call from the journal. If the prompt changed between two attempts (the thread was
    /// compacted, or a fallback model took over), this is the prompt of the last one.
    ///
    /// # Errors
    /// There is no such call, or the session cannot be read.
    pub async fn rebuild_prompt(&self, session: &SessionId, call: CallId) -> Result<Prompt, Error> {
        let flow = read_session_flow(self.shared(), session).await?;
        let mut state = SessionState::new(&*flow);
        loop {
            let events = read_events(&*self.shared().store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
            let is_open = state.session.open_calls.contains_key(&call);
            if events.is_empty() && !is_open {
                return Err(Error::NoSuchCall { session: session.clone(), call });
            }
            let end = events.iter().position(|event| event.event.ends_call(call));
            events.iter().take(end.unwrap_or(events.len())).for_each(|event| state.apply(&*flow, event));
            if end.is_some() || events.is_empty() {
                return self.shared().render_open_call_prompt(session, &state, call).await;
            }
        }
    }
}

impl EngineShared {
    /// Renders the prompt of a call that is open in `state`.
    pub(crate) async fn render_open_call_prompt(
        &self,
        session: &SessionId,
        state: &SessionState,
        call: CallId,
    ) -> Result<Prompt, Error> {
        let no_such_call = || Error::NoSuchCall { session: session.clone(), call };
        let plan = state.session.prompt_plan(call).ok_or_else(no_such_call)?;
        let ids: Vec<BodyId> = plan.required_prompt_body_ids().into_iter().collect();
        let texts =
            self.store.read_bodies(session, &ids).await.map_err(|error| Error::from_store_error(session, error))?;
        let mut cache = TextCache::default();
        ids.into_iter().zip(texts).for_each(|(id, text)| cache.insert(id, text));
        plan.resolve_prompt(&mut ThreadPromptCache::default(), &cache).map_err(|_| no_such_call())
    }

    /// Rebuilds the report of the turn that handled `message`: of the last such turn, if a failed one was retried.
    pub(crate) async fn rebuild_turn_report(
        &self,
        session: &SessionId,
        message: MessageId,
    ) -> Result<TurnReport, Error> {
        let flow = read_session_flow(self, session).await?;
        let mut state = SessionState::new(&*flow);
        let (mut running, mut report, mut reply_ids) = (None, None, Vec::new());
        loop {
            let events = read_events(&*self.store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
            if events.is_empty() {
                break;
            }
            for event in &events {
                state.apply(&*flow, event);
                match &event.event {
                    Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => {
                        running = Some(*turn);
                        reply_ids.clear();
                    }
                    Event::ReplySent(reply) if running.is_some() => reply_ids.push(reply.text.body),
                    Event::TurnEnded { turn, outcome } if running == Some(*turn) => {
                        running = None;
                        report = Some(TurnReport {
                            message,
                            last_seq: event.seq,
                            turn: *turn,
                            outcome: outcome.clone(),
                            replies: Vec::new(),
                            phase: state.session.phases_label(),
                            spent: state.session.ledger.current_turn,
                        });
                    }
                    _ => {}
                }
            }
        }
        let report = report.ok_or_else(|| Error::Stopped(session.clone()))?;
        let texts = self
            .store
            .read_bodies(session, &reply_ids)
            .await
            .map_err(|error| Error::from_store_error(session, error))?;
        Ok(TurnReport { replies: texts.iter().map(ToString::to_string).collect(), ..report })
    }
}
