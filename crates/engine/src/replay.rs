//! What is over, rebuilt from the journal: the prompt of a call, the report of a turn; and what a flow shows of it.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, SessionId};
use segue_core::prompt::Prompt;
use segue_core::session::SessionState;

use crate::actor::read_flow_name;
use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::load::read_events;
use crate::text_cache::TextCache;
use crate::turn_report::TurnReport;

impl Engine {
    /// The exact prompt of any call, rebuilt from the journal: of its last try, if its thread was shortened or another model
    /// stepped in between two.
    ///
    /// # Errors
    /// There is no such call, or the session cannot be read.
    pub async fn rebuild_prompt(&self, session: &SessionId, call: CallId) -> Result<Prompt, Error> {
        let rules = self.shared().find_flow(read_flow_name(self.shared(), session).await?.as_ref())?;
        let mut state = SessionState::new(&*rules);
        loop {
            let events = read_events(&*self.shared().store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
            let is_open = state.session.open_calls.contains_key(&call);
            if events.is_empty() && !is_open {
                return Err(Error::NoSuchCall { session: session.clone(), call });
            }
            let end = events.iter().position(|event| event.event.ends_call(call));
            events.iter().take(end.unwrap_or(events.len())).for_each(|event| state.apply(&*rules, event));
            if end.is_some() || events.is_empty() {
                return self.shared().render_open_call_prompt(session, &state, call).await;
            }
        }
    }
}

impl EngineShared {
    /// The prompt of a call that is open in `state`.
    pub async fn render_open_call_prompt(
        &self,
        session: &SessionId,
        state: &SessionState,
        call: CallId,
    ) -> Result<Prompt, Error> {
        let no_call = || Error::NoSuchCall { session: session.clone(), call };
        let plan = state.session.prompt_plan(call).ok_or_else(no_call)?;
        let ids: Vec<BodyId> = plan.required_body_ids().into_iter().collect();
        let texts =
            self.store.read_bodies(session, &ids).await.map_err(|error| Error::from_store_error(session, error))?;
        let mut shelf = TextCache::default();
        ids.into_iter().zip(texts).for_each(|(id, text)| shelf.insert(id, text));
        plan.resolve_prompt(&shelf).map_err(|_| no_call())
    }

    /// What the turn of an old message came to: the last of them, if one that failed was tried again.
    pub async fn rebuild_turn_report(&self, session: &SessionId, message: MessageId) -> Result<TurnReport, Error> {
        let rules = self.find_flow(read_flow_name(self, session).await?.as_ref())?;
        let mut state = SessionState::new(&*rules);
        let (mut running, mut report, mut said) = (None, None, Vec::new());
        loop {
            let events = read_events(&*self.store, session, state.session.last_seq, READ_EVENTS_MAX).await?;
            if events.is_empty() {
                break;
            }
            for event in &events {
                state.apply(&*rules, event);
                match &event.event {
                    Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => {
                        running = Some(*turn);
                        said.clear();
                    }
                    Event::ReplySent(words) if running.is_some() => said.push(words.text.body),
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
        let texts =
            self.store.read_bodies(session, &said).await.map_err(|error| Error::from_store_error(session, error))?;
        Ok(TurnReport { replies: texts.iter().map(ToString::to_string).collect(), ..report })
    }
}
