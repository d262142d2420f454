//! What is over, rebuilt from the journal: the prompt of a call, the report of a turn; and what a flow shows of it.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, SessionId};
use segue_core::prompt::Prompt;
use segue_core::session::State;

use crate::actor::flow_of;
use crate::engine::{Engine, Shared};
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::load::read_events;
use crate::report::TurnReport;
use crate::shelf::Shelf;

impl Engine {
    /// The exact prompt of any call, rebuilt from the journal.
    ///
    /// # Errors
    /// There is no such call, or the session cannot be read.
    pub async fn prompt(&self, session: &SessionId, call: CallId) -> Result<Prompt, Error> {
        let rules = self.shared().rules(flow_of(self.shared(), session).await?.as_ref())?;
        let mut state = State::fresh(&*rules);
        loop {
            let events = read_events(&*self.shared().store, session, state.session.seq, READ_EVENTS_MAX).await?;
            if events.is_empty() {
                return Err(Error::NoSuchCall { session: session.clone(), call });
            }
            for event in &events {
                state.apply(&*rules, event);
                if matches!(&event.event, Event::CallOpened(opened) if opened.call == call) {
                    return self.shared().fill(session, &state, call).await;
                }
            }
        }
    }
}

impl Shared {
    /// The prompt of a call that is open in `state`.
    pub async fn fill(&self, session: &SessionId, state: &State, call: CallId) -> Result<Prompt, Error> {
        let no_call = || Error::NoSuchCall { session: session.clone(), call };
        let plan = state.session.plan(call).ok_or_else(no_call)?;
        let ids: Vec<BodyId> = plan.needs().into_iter().collect();
        let texts = self.store.bodies(session, &ids).await.map_err(|error| Error::from_store(session, error))?;
        let mut shelf = Shelf::default();
        ids.into_iter().zip(texts).for_each(|(id, text)| shelf.put(id, text));
        plan.fill(&shelf).map_err(|_| no_call())
    }

    /// What the turn of an old message came to: the last one, if it was tried again.
    pub async fn past_report(&self, session: &SessionId, message: MessageId) -> Result<TurnReport, Error> {
        let rules = self.rules(flow_of(self, session).await?.as_ref())?;
        let mut state = State::fresh(&*rules);
        let mut said = Vec::new();
        let mut turn = None;
        let mut last = None;
        loop {
            let events = read_events(&*self.store, session, state.session.seq, READ_EVENTS_MAX).await?;
            if events.is_empty() {
                break;
            }
            for event in &events {
                state.apply(&*rules, event);
                match &event.event {
                    Event::TurnStarted { turn: id, messages, .. } if messages.contains(&message) => turn = Some(*id),
                    Event::Said(words) if turn.is_some() => said.push(words.text.body),
                    Event::TurnEnded { turn: id, outcome } if turn.take_if(|turn| turn == id).is_some() => {
                        let report = TurnReport {
                            message,
                            seq: event.seq,
                            turn: *id,
                            outcome: outcome.clone(),
                            said: Vec::new(),
                            phase: state.session.phase_label(),
                            spent: state.session.ledger.turn,
                        };
                        last = Some((report, std::mem::take(&mut said)));
                    }
                    _ => {}
                }
            }
        }
        let (report, said) = last.ok_or_else(|| Error::Stopped(session.clone()))?;
        let texts = self.store.bodies(session, &said).await.map_err(|error| Error::from_store(session, error))?;
        Ok(TurnReport { said: texts.iter().map(ToString::to_string).collect(), ..report })
    }
}
