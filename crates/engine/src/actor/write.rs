//! From an input to a durable, published decision. A commit of which nobody knows whether it took effect is cleared up
//! before anything else is decided.

use std::panic::{AssertUnwindSafe, catch_unwind};

use segue_core::body::BodyId;
use segue_core::codec;
use segue_core::decide::{Decision, Env, Input, Refusal, Undecided, decide, give_up};
use segue_core::event::{Event, Recorded};
use segue_core::flow::Lookup;
use segue_core::ids::MessageId;
use segue_core::session::State;
use segue_store::{Commit, Owes, Snapshot, Summary};

use super::{Actor, Lost, owes, summary_of};
use crate::error::Error;
use crate::limits::{SNAPSHOT_EVENTS_MIN, WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::load::{Trace, find_trace, named, records};
use crate::registry::Job;
use crate::report::{Answered, Ended, TurnReport};

/// A commit of which nobody knows whether it took effect.
pub(super) struct Doubt {
    decision: Decision,
    waiter: Option<Answered>,
    error: Error,
}

impl Actor {
    /// Commits an input that must not be lost: what the store does not take now, it is offered again.
    pub(super) async fn insist(&mut self, input: Input) -> Result<Result<Option<MessageId>, Error>, Lost> {
        self.clear_doubt_for_sure().await?;
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.commit(input.clone(), None).await {
                Err(error) if error.is_passing() => {
                    if self.clear_doubt_for_sure().await? == Some(Trace::There) {
                        return Ok(Ok(None));
                    }
                    self.hold_out(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) if error.ends_work() => return Err(Lost(error)),
                result => return Ok(result),
            }
        }
    }

    /// Decide, append, apply, publish.
    pub(super) async fn commit(&mut self, input: Input, waiter: Option<Answered>) -> Result<Option<MessageId>, Error> {
        let decision = match self.decide(input).await {
            Ok(decision) => decision,
            Err(error) => {
                tell(waiter, &error);
                return Err(error);
            }
        };
        let message = decision.message;
        match self.append(&decision).await {
            Ok(()) => {
                self.accept(decision, waiter).await;
                Ok(message)
            }
            Err(error) if leaves_doubt(&error) => {
                let error = Error::from_store(&self.session, error);
                self.doubt = Some(Doubt { decision, waiter, error: error.clone() });
                match self.clear_doubt().await {
                    Ok(Some(Trace::There)) => Ok(message),
                    Ok(Some(Trace::Missing) | None) => Err(error),
                    Err(error) => Err(error),
                }
            }
            Err(error) => {
                let error = Error::from_store(&self.session, error);
                tell(waiter, &error);
                Err(error)
            }
        }
    }

    /// Finds out about a commit in doubt, if there is one, and takes it for what it is.
    async fn clear_doubt(&mut self) -> Result<Option<Trace>, Error> {
        let Some(doubt) = self.doubt.take() else { return Ok(None) };
        match find_trace(&*self.shared.store, &self.session, &doubt.decision.events).await {
            Ok((trace, epoch)) => {
                self.epoch = epoch;
                match trace {
                    Trace::There => self.accept(doubt.decision, doubt.waiter).await,
                    Trace::Missing => tell(doubt.waiter, &doubt.error),
                }
                Ok(Some(trace))
            }
            Err(error) => {
                self.doubt = Some(doubt);
                Err(error)
            }
        }
    }

    async fn clear_doubt_for_sure(&mut self) -> Result<Option<Trace>, Lost> {
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.clear_doubt().await {
                Ok(trace) => return Ok(trace),
                Err(error) if error.is_passing() => {
                    self.hold_out(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) => return Err(Lost(error)),
            }
        }
    }

    async fn decide(&mut self, input: Input) -> Result<Decision, Error> {
        self.clear_doubt().await?;
        loop {
            let fault = match self.ask_flow(input.clone()) {
                Ok(Ok(decision)) => return Ok(decision),
                Ok(Err(Undecided::NeedTexts(ids))) => {
                    self.fetch(ids).await?;
                    continue;
                }
                Ok(Err(Undecided::Refused(fault @ Refusal::TooManySteps { .. }))) => Error::Refused(fault),
                Ok(Err(Undecided::Refused(refusal))) => return Err(refusal.into()),
                Err(_) => Error::BrokenFlow(self.rules.spec().name.clone()),
            };
            return self.give_up(input, fault);
        }
    }

    fn ask_flow(&self, input: Input) -> std::thread::Result<Result<Decision, Undecided>> {
        let (rules, state, env) = (&*self.rules, &self.resident.state, self.env());
        catch_unwind(AssertUnwindSafe(|| decide(rules, state, input, env)))
    }

    /// Decides about an input over which the flow loops or breaks down. A new message is refused; what must be taken is
    /// taken without the flow, which fails the turn and nothing more.
    fn give_up(&mut self, input: Input, fault: Error) -> Result<Decision, Error> {
        if matches!(input, Input::Message { .. } | Input::Open(_)) {
            return Err(fault);
        }
        if !matches!(input, Input::Tick) {
            // What waits behind the turn goes on.
            self.backlog.push_back(Job::quiet(Input::Tick));
        }
        match give_up(&*self.rules, &self.resident.state, input, self.env(), &fault.to_string()) {
            Ok(decision) => Ok(decision),
            Err(Undecided::Refused(refusal)) => Err(refusal.into()),
            Err(Undecided::NeedTexts(_)) => Err(fault),
        }
    }

    fn env(&self) -> Env<'_> {
        Env {
            now: self.shared.clock.now(),
            chance: self.shared.chance.next(),
            count: &*self.shared.count,
            texts: &self.resident.shelf,
            catalog: &self.shared.casting,
            doing: self.shared.doing(),
        }
    }

    pub(super) async fn fetch(&mut self, ids: Vec<BodyId>) -> Result<(), Error> {
        let texts = self.shared.store.bodies(&self.session, &ids).await;
        let texts = texts.map_err(|error| Error::from_store(&self.session, error))?;
        for (id, text) in ids.into_iter().zip(texts) {
            self.resident.shelf.put(id, text);
        }
        Ok(())
    }

    async fn append(&mut self, decision: &Decision) -> Result<(), segue_store::Error> {
        if decision.events.is_empty() {
            return Ok(());
        }
        self.settled.set(false);
        let owes = owes(&decision.state.session, self.rules.spec());
        let commit = Commit {
            session: self.session.clone(),
            epoch: self.epoch,
            expected: self.session().seq,
            records: records(&decision.events),
            bodies: decision.bodies.clone(),
            names: named,
            summary: self.summary(decision, owes),
        };
        self.shared.store.append(commit).await.map(|_| ())
    }

    /// The session's row in lists, if it says anything new.
    fn summary(&self, decision: &Decision, owes: Owes) -> Option<Summary> {
        let notable = decision.events.iter().any(|event| {
            matches!(
                event.event,
                Event::SessionOpened(_)
                    | Event::SessionForked { .. }
                    | Event::SessionRenamed { .. }
                    | Event::SessionClosed { .. }
                    | Event::TurnEnded { .. }
                    | Event::CallAnsweredLate { .. }
                    | Event::MessageReceived(_)
                    | Event::PhaseEntered(_)
            )
        });
        (notable || self.owes != Some(owes)).then(|| summary_of(&decision.state.session, owes))
    }

    /// Takes a decision for the truth: it is recorded.
    async fn accept(&mut self, decision: Decision, waiter: Option<Answered>) {
        if !decision.events.is_empty() {
            self.owes = Some(owes(&decision.state.session, self.rules.spec()));
        }
        let mut late = None;
        if let Some((message, waiter)) = decision.message.zip(waiter) {
            if is_received(&decision.events, message) {
                self.waiters.add(message, waiter);
            } else {
                late = Some((message, waiter));
            }
        }
        self.resident.shelf.put_all(&decision.bodies);
        let before = std::mem::replace(&mut self.resident.state, decision.state);
        self.shared.hub.publish(&self.session, &decision.events);
        for ended in self.waiters.follow(&decision.events) {
            let report = self.report(&before, &decision.events, &ended).await;
            ended.tell(&report);
        }
        if let Some((message, waiter)) = late {
            self.wait_for(message, waiter).await;
        }
        self.resident.shelf.prune(&self.resident.state.session);
        self.keep_snapshot(SNAPSHOT_EVENTS_MIN);
    }

    /// What a turn came to that ended among `events`.
    async fn report(&self, before: &State, events: &[Recorded], ended: &Ended) -> Result<TurnReport, Error> {
        let words = |text: &segue_core::body::Text| self.resident.shelf.find(text.body).map(|text| text.to_string());
        let said: Option<Vec<String>> = ended.said.as_ref().and_then(|said| said.iter().map(words).collect());
        let Some(said) = said else {
            return self.shared.past_report(&self.session, ended.message).await;
        };
        // The next turn may have begun since, with an account of its own.
        let mut earlier = None;
        if events.last().is_some_and(|event| event.seq > ended.seq) {
            let state = earlier.insert(before.clone());
            events.iter().take_while(|event| event.seq <= ended.seq).for_each(|event| state.apply(&*self.rules, event));
        }
        let session = &earlier.as_ref().unwrap_or(&self.resident.state).session;
        Ok(TurnReport {
            message: ended.message,
            seq: ended.seq,
            turn: ended.turn,
            outcome: ended.outcome.clone(),
            said,
            phase: session.phase_label(),
            spent: session.ledger.turn,
        })
    }

    /// Somebody waits for the turn of a message that was known: one that is under way, or one that was answered before.
    async fn wait_for(&mut self, message: MessageId, waiter: Answered) {
        let session = self.session();
        let queued = session.queue.iter().any(|waiting| waiting.message == message);
        let runs = session.turn.as_ref().is_some_and(|turn| turn.messages.iter().any(|of| of.message == message));
        match &session.closed {
            Some(reason) if queued => {
                let refusal = Refusal::Closed { reason: reason.clone() };
                tell(Some(waiter), &refusal.into());
            }
            _ if queued || runs => self.waiters.add(message, waiter),
            _ => {
                let report = self.shared.past_report(&self.session, message).await;
                // Whoever asked may have gone away.
                let _ = waiter.send(report);
            }
        }
    }

    fn keep_snapshot(&mut self, events_min: u64) {
        let seq = self.session().seq;
        if seq.0.saturating_sub(self.resident.snapshot_at.0) < events_min || self.session().turn.is_some() {
            return;
        }
        self.resident.snapshot_at = seq;
        let Some(bytes) = codec::encode_snapshot(&*self.rules, &self.resident.state) else { return };
        let (store, session) = (self.shared.store.clone(), self.session.clone());
        let snapshot = Snapshot { seq, format: codec::SNAPSHOT_FORMAT, bytes };
        tokio::spawn(async move {
            // A cache: if it is not kept, opening takes longer, and nothing else.
            let _ = store.keep_snapshot(&session, snapshot).await;
        });
    }
}

fn is_received(events: &[Recorded], message: MessageId) -> bool {
    events.iter().any(|event| matches!(&event.event, Event::MessageReceived(received) if received.message == message))
}

fn leaves_doubt(error: &segue_store::Error) -> bool {
    matches!(error, segue_store::Error::Io { .. } | segue_store::Error::Busy { .. })
}

fn tell(waiter: Option<Answered>, error: &Error) {
    if let Some(waiter) = waiter {
        // Whoever asked may have gone away.
        let _ = waiter.send(Err(error.clone()));
    }
}
