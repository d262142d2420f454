//! The fold: what each event does to a session's state. Total: an event that makes no sense here changes nothing.

use std::sync::Arc;

use super::{CallStatus, OpenCall, Round, Session, Stand, Timer, Turn, Waiting, Wished};
use crate::context::{Asked, Mark, ThreadUse};
use crate::event::{
    Busy, CallAnswered, CallOpened, CallWish, CountedBy, Event, MessageReceived, Next, Outcome, Owner, PhaseEntered,
    PhaseKey, Recorded, SessionOpened, ThreadCompacted,
};
use crate::flow::FlowSpec;
use crate::ids::{CallId, MessageId, Millis, ModelName, ThreadId, TurnId};
use crate::ledger::Account;
use crate::limits::{HANDOVERS_KEPT_MAX, IDEMPOTENCY_KEYS_MAX, MARKS_MAX, PAST_VISITS_MAX, THREADS_MAX};
use crate::phase::Attached;
use crate::prompt::{FailureKind, Speaker, Spent, ToolCall};
use crate::thread::{Entry, Thread};
use crate::weight::Weight;

impl Session {
    /// Folds one event.
    pub fn apply(&mut self, spec: &FlowSpec, recorded: &Recorded) {
        self.seq = recorded.seq;
        self.at = recorded.at;
        let at = recorded.at;
        match &recorded.event {
            Event::SessionOpened(opened) => self.session_opened(spec, opened, at),
            Event::SessionForked { session, .. } => {
                self.id = Some(session.clone());
                self.closed = None;
                self.calls.values_mut().for_each(OpenCall::leave);
            }
            Event::SessionRenamed { title } => self.title.clone_from(title),
            Event::SessionClosed { reason } => self.closed = Some(reason.clone()),
            Event::MessageReceived(received) => {
                self.last.message = self.last.message.max(received.message);
                let MessageReceived { message, text, busy, images, .. } = received;
                let waiting = Waiting { message: *message, text: *text, busy: *busy, images: images.clone() };
                match received.busy {
                    // A turn was stopped for it: those that wait already wait on.
                    Busy::Interrupt => self.queue.push_front(waiting),
                    Busy::Queue | Busy::Coalesce | Busy::Reject => self.queue.push_back(waiting),
                }
                if let Some(key) = &received.key {
                    let keys = Arc::make_mut(&mut self.keys);
                    keys.push_back((key.clone(), received.message));
                    keep_newest(keys, IDEMPOTENCY_KEYS_MAX);
                }
            }
            Event::MessagePosted(posted) => {
                self.last.message = self.last.message.max(posted.message);
                self.inboxes.entry(posted.to.clone()).or_default().push(posted.clone());
            }
            Event::MessageTaken { message } => {
                self.inboxes.values_mut().for_each(|inbox| inbox.retain(|mail| mail.message != *message));
                self.inboxes.retain(|_, inbox| !inbox.is_empty());
            }
            Event::TurnStarted { turn, messages, again } => self.turn_started(*turn, messages, *again, at),
            Event::Said(said) => self.last_said = Some(said.text),
            Event::TurnEnded { turn, outcome } => self.turn_ended(*turn, outcome),
            Event::CallOpened(opened) => self.call_opened(spec, opened, at),
            Event::CallDeferred(deferred) => {
                self.last.deferred = self.last.deferred.max(deferred.deferred);
                self.deferred.insert(deferred.deferred, (**deferred).clone());
            }
            Event::CallResumed { deferred } | Event::CallDropped { deferred, .. } => {
                self.deferred.remove(deferred);
            }
            Event::CallAnswered(answered) => self.call_answered(answered, at),
            Event::CallFailed { call, next, failure, .. } => {
                self.learn_window(*call, failure.kind);
                self.call_missed(*call, *next, Missed::Failed(failure.spent));
            }
            Event::CallMoved { call, to, .. } => self.call_moved(*call, to),
            Event::CallUnknown { call, next, .. } => self.call_missed(*call, *next, Missed::Unknown),
            Event::CallTakenUp { call } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.take_up();
                }
            }
            Event::CallResolved { call, next } => self.call_missed(*call, *next, Missed::Resolved),
            Event::CallCancelled { call, in_flight, .. } => self.call_cancelled(*call, *in_flight),
            Event::CallAnsweredLate { call, usage, cost_microusd, .. } => {
                self.answered_late(*call, *usage, *cost_microusd);
            }
            Event::ThreadReset { slot, .. } => *self.resets.entry(slot.clone()).or_default() += 1,
            Event::ThreadCompacted(compacted) => self.thread_compacted(compacted),
            Event::PhaseEntered(entered) => self.phase_entered(spec, entered, at),
            Event::SkipGranted { phase, grant } => {
                if let Some(stand) = self.stand_mut(spec, phase) {
                    stand.now.granted(grant.clone());
                }
            }
            Event::HandoverMade(handover) => {
                self.last.handover = self.last.handover.max(handover.id);
                self.asked.remove(&handover.kind);
                for stand in self.phases.values_mut() {
                    Arc::make_mut(stand).handed.insert(handover.kind.clone());
                }
                let handovers = Arc::make_mut(&mut self.handovers);
                handovers.push_back(Arc::new(crate::handover::Handover { at, ..handover.clone() }));
                keep_newest(handovers, HANDOVERS_KEPT_MAX);
            }
            Event::HandoverAsked { kind } => *self.asked.entry(kind.clone()).or_default() += 1,
            Event::ToolOpened(opened) => {
                self.last.tool = self.last.tool.max(opened.run);
                self.tools.insert(opened.run, opened.clone());
            }
            Event::ToolAnswered { run, text, failed, .. } => self.tool_answered(*run, *text, *failed),
            Event::RoundDropped { call, .. } => self.end_round(*call),
            Event::TimerSet { timer, name, at, turn } => {
                self.last.timer = self.last.timer.max(*timer);
                self.timers.retain(|_, running| running.name != *name);
                self.timers.insert(*timer, Timer { name: name.clone(), at: *at, turn: *turn });
            }
            Event::TimerFired { timer, .. } | Event::TimerStopped { timer } => {
                self.timers.remove(timer);
            }
            Event::WorkLeased { agent, work } => {
                match work {
                    Some(work) => self.leases.insert(agent.clone(), work.clone()),
                    None => self.leases.remove(agent),
                };
            }
            Event::PhaseRefused(_) | Event::Commanded { .. } | Event::StepRefused { .. } | Event::Fact { .. } => {}
        }
    }

    fn session_opened(&mut self, spec: &FlowSpec, opened: &SessionOpened, at: Millis) {
        self.id = Some(opened.session.clone());
        self.flow = Some(opened.flow.clone());
        self.title = opened.title.clone().unwrap_or_default();
        self.busy = opened.busy;
        self.settings = Arc::new(opened.settings.clone());
        self.cast = opened.cast.clone();
        self.opened = at;
        for graph in spec.graphs.values() {
            match graph.attached {
                Attached::Session => {
                    self.stand_mut(spec, &PhaseKey { graph: graph.name.clone(), owner: Owner::Session });
                }
                Attached::Role => {
                    for role in spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name)) {
                        let owner = Owner::Role(role.name.clone());
                        self.stand_mut(spec, &PhaseKey { graph: graph.name.clone(), owner });
                    }
                }
                Attached::Agent => {}
            }
        }
    }

    fn turn_started(&mut self, turn: TurnId, messages: &[MessageId], again: Option<TurnId>, at: Millis) {
        self.last.turn = self.last.turn.max(turn);
        let failed = self.failed.take().filter(|failed| Some(failed.id) == again);
        let (mut taken, left): (Vec<_>, Vec<_>) =
            self.queue.drain(..).partition(|waiting| messages.contains(&waiting.message));
        self.queue = left.into();
        taken.extend(failed.into_iter().flat_map(|failed| failed.messages));
        self.turn = Some(Turn { id: turn, messages: taken, started: at, calls: 0 });
        self.ledger.start_turn(turn);
    }

    fn turn_ended(&mut self, turn: TurnId, outcome: &Outcome) {
        let ended = self.turn.take();
        self.failed = ended.filter(|_| matches!(outcome, Outcome::Failed { .. }));
        if matches!(outcome, Outcome::Cancelled | Outcome::Interrupted) {
            let of_turn = self.given_up.iter_mut().filter(|given_up| given_up.turn == Some(turn));
            of_turn.for_each(|given_up| given_up.stopped = true);
        }
        let rounds: Vec<CallId> =
            self.rounds.iter().filter(|(_, round)| round.turn == Some(turn)).map(|(call, _)| *call).collect();
        rounds.into_iter().for_each(|call| self.end_round(call));
        for stand in self.phases.values_mut().filter(|stand| stand.counted == Some(turn)) {
            Arc::make_mut(stand).now.turn_ended();
        }
    }

    fn call_opened(&mut self, spec: &FlowSpec, opened: &Arc<CallOpened>, at: Millis) {
        self.last.call = self.last.call.max(opened.call);
        if opened.recomputes.is_some() {
            self.recompute_opened(spec, opened, at);
            return;
        }
        self.ledger.prompted(&opened.receipt.prefix);
        let thread_id = opened.receipt.thread.thread();
        if let ThreadUse::Opened { thread, slot, tag, .. } = &opened.receipt.thread {
            self.last.thread = self.last.thread.max(*thread);
            let opening = opened.receipt.opening.iter();
            let opening = opening.filter_map(|piece| Some((piece.name.clone(), piece.text?))).collect();
            let slot = Arc::new(slot.clone());
            let new = Thread::open(*thread, slot.clone(), tag.clone(), at, opened.call, opening);
            self.threads.insert(*thread, Arc::new(new));
            if tag.fresh.is_none()
                && let Some(old) = self.slots.insert(slot, *thread)
            {
                self.drop_if_left_behind(old);
            }
        }
        let (root, round) = match opened.follows.and_then(|follows| self.rounds.remove(&follows)) {
            Some(round) => (round.root, round.round + 1),
            None => (opened.call, 0),
        };
        if let Some(thread) = self.threads.get_mut(&thread_id).map(Arc::make_mut) {
            thread.busy = Some(opened.call);
            thread.used = at;
            let ask = opened.receipt.ask.iter().filter_map(|piece| Some((piece.name.clone(), piece.text?)));
            let mark = Arc::new(Mark {
                call: opened.call,
                thread: thread_id,
                compactions: thread.compactions,
                carried: opened.receipt.carried,
                opening: thread.opening.clone(),
                ask: ask.collect(),
                asked: Asked::InPassing,
                tools: opened.tools,
            });
            thread.mark = Some(mark.clone());
            // A late round of a thread that was left behind says nothing about the one that took its place.
            if thread.tag.fresh.is_some() || self.slots.get(&thread.slot) == Some(&thread_id) {
                self.marks.insert(thread.slot.clone(), mark);
            }
        }
        if let Some(thread) = opened.compacts.and_then(|thread| self.threads.get_mut(&thread)) {
            Arc::make_mut(thread).busy = Some(opened.call);
        }
        self.evict_threads();
        self.evict_marks();
        let key = Self::phase_key(spec, &opened.role, opened.agent.as_ref());
        let account = key.as_ref().zip(opened.phase.as_ref()).map(|(key, phase)| format!("{}/{phase}", key.graph));
        if let Some(stand) = key.and_then(|key| self.stand_mut(spec, &key))
            && opened.turn.is_some()
            && stand.counted != opened.turn
        {
            stand.counted = opened.turn;
            stand.now.turn_begun();
        }
        if let Some(turn) = self.turn.as_mut().filter(|turn| Some(turn.id) == opened.turn) {
            turn.calls += 1;
        }
        self.calls.insert(
            opened.call,
            OpenCall {
                opened: opened.clone(),
                attempt: 1,
                on_model_since: 1,
                status: CallStatus::Due,
                since: at,
                root,
                round,
                account,
            },
        );
    }

    /// A past call is made once more: it is owed and paid for, and touches nothing else.
    fn recompute_opened(&mut self, spec: &FlowSpec, opened: &Arc<CallOpened>, at: Millis) {
        let key = Self::phase_key(spec, &opened.role, opened.agent.as_ref());
        let account = key.zip(opened.phase.as_ref()).map(|(key, phase)| format!("{}/{phase}", key.graph));
        let (opened, root) = (opened.clone(), opened.call);
        let (attempt, on_model_since, status, round) = (1, 1, CallStatus::Due, 0);
        let open = OpenCall { opened, attempt, on_model_since, status, since: at, root, round, account };
        self.calls.insert(root, open);
    }

    fn call_answered(&mut self, answered: &CallAnswered, at: Millis) {
        let Some(open) = self.calls.get(&answered.call).cloned() else { return };
        self.ledger.answered(account(&open), answered);
        let opened = &open.opened;
        if opened.recomputes.is_some() {
            self.calls.remove(&answered.call);
            return;
        }
        self.learn_weight(opened, answered);
        let thread_id = opened.receipt.thread.thread();
        let waits_for_tools = !answered.tool_calls.is_empty();
        if let Some(thread) = self.threads.get_mut(&thread_id).map(Arc::make_mut) {
            let parts: Vec<_> = opened.receipt.ask.iter().filter_map(|piece| piece.text).collect();
            if !parts.is_empty() {
                let pinned = opened.receipt.ask.iter().any(|piece| piece.pinned);
                let words = opened.receipt.words().collect();
                let images = opened.receipt.ask.iter().flat_map(|piece| &piece.images).copied().collect();
                thread.push(Entry { pinned, words, images, ..Entry::asked(opened.call, parts) });
            }
            if let Some(mark) = thread.mark.as_mut().filter(|mark| mark.call == opened.call) {
                Arc::make_mut(mark).asked = Asked::ForGood;
                let of_slot = self.marks.get_mut(&thread.slot).filter(|of_slot| of_slot.call == opened.call);
                of_slot.into_iter().for_each(|of_slot| of_slot.clone_from(mark));
            }
            thread.push(Entry {
                parts: vec![answered.text],
                tool_calls: answered.tool_calls.clone(),
                seal: answered.seal,
                ..Entry::silent(opened.call, Speaker::Assistant)
            });
            thread.used = at;
        }
        if waits_for_tools {
            let results = answered.tool_calls.iter().map(Wished::of).collect();
            let round = Round {
                wish: wish_of(opened),
                turn: opened.turn,
                thread: thread_id,
                root: open.root,
                round: open.round,
                results,
            };
            self.rounds.insert(answered.call, round);
            self.calls.remove(&answered.call);
        } else {
            self.close_call(answered.call);
        }
    }

    fn call_missed(&mut self, call: CallId, next: Next, how: Missed) {
        let Some(open) = self.calls.get_mut(&call) else {
            return self.failed_late(call, how);
        };
        match how {
            Missed::Failed(spent) => self.ledger.failed(account(open), spent),
            Missed::Unknown => self.ledger.unknown(account(open)),
            Missed::Resolved => {}
        }
        match next {
            Next::Retry { at } => {
                open.attempt += 1;
                open.status = CallStatus::Waiting(at);
            }
            Next::Ask => open.status = CallStatus::Held,
            Next::GiveUp => self.give_up(call),
        }
    }

    /// A model that says a prompt is too long is believed, whatever its card says.
    fn learn_window(&mut self, call: CallId, kind: FailureKind) {
        let refused = self.calls.get(&call).filter(|_| kind == FailureKind::ContextTooLong);
        // What we did not send for want of room no model has refused.
        let Some(open) = refused.filter(|open| open.opened.has_room()) else { return };
        let (model, tokens) = (open.opened.model.clone(), open.opened.receipt.tokens);
        let known = self.narrow.entry(model).or_insert(tokens);
        *known = (*known).min(tokens);
    }

    /// A vendor's own figure for a prompt says what our tokens weigh with its model. Of an answer that was sent back first, the figure
    /// for that one counts: the prompt was longer the second time.
    fn learn_weight(&mut self, opened: &CallOpened, answered: &CallAnswered) {
        if answered.counted_by != CountedBy::Vendor {
            return;
        }
        let reported = answered.sent_back.unwrap_or(answered.usage).input;
        let mut weight = self.weight(&opened.model);
        weight.learn(self.sent_tokens(opened), reported);
        if weight != Weight::default() {
            self.weights.insert(opened.model.clone(), weight);
        }
    }

    /// Another model makes the tries from here on.
    fn call_moved(&mut self, call: CallId, to: &ModelName) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        let mut opened = CallOpened { model: to.clone(), ..(*open.opened).clone() };
        // That was reckoned for the other model.
        opened.receipt.corrected = None;
        open.opened = Arc::new(opened);
        open.on_model_since = open.attempt;
    }

    pub(super) fn close_call(&mut self, call: CallId) {
        let Some(open) = self.calls.remove(&call) else { return };
        for id in [Some(open.opened.receipt.thread.thread()), open.opened.compacts].into_iter().flatten() {
            self.release(id, call);
        }
    }

    /// Nobody goes on with an answer that asked for tools.
    fn end_round(&mut self, call: CallId) {
        let Some(round) = self.rounds.remove(&call) else { return };
        // No thread may keep a tool call without its results, not even one copied from the middle of a decision.
        if !round.is_complete() {
            self.push_results(call, &round);
        }
        self.release(round.thread, call);
    }

    /// `call` is done with a thread; it goes back to the round it was shortened in the middle of, if there is one.
    fn release(&mut self, id: ThreadId, call: CallId) {
        if let Some(thread) = self.threads.get_mut(&id).filter(|thread| thread.busy == Some(call)) {
            Arc::make_mut(thread).busy =
                self.rounds.iter().find(|(_, round)| round.thread == id).map(|(call, _)| *call);
        }
        self.drop_if_left_behind(id);
    }

    /// A thread that no call can continue any more is forgotten: it stands in no slot, and no call uses it.
    fn drop_if_left_behind(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(&id) else { return };
        let stands = self.slots.get(&thread.slot) == Some(&id);
        let used = thread.busy.is_some_and(|call| self.calls.contains_key(&call) || self.rounds.contains_key(&call));
        if !stands && !used {
            self.threads.remove(&id);
        }
    }

    fn evict_threads(&mut self) {
        while self.threads.len() > THREADS_MAX {
            let idle = self.threads.values().filter(|thread| thread.busy.is_none());
            let Some(oldest) = idle.min_by_key(|thread| (thread.used, thread.id)) else { return };
            let (id, slot) = (oldest.id, oldest.slot.clone());
            self.threads.remove(&id);
            if self.slots.get(&slot) == Some(&id) {
                self.slots.remove(&slot);
            }
        }
    }

    fn evict_marks(&mut self) {
        while self.marks.len() > MARKS_MAX {
            let oldest = self.marks.iter().min_by_key(|(_, mark)| mark.call).map(|(slot, _)| slot.clone());
            oldest.map(|slot| self.marks.remove(&slot));
        }
    }

    fn thread_compacted(&mut self, compacted: &ThreadCompacted) {
        let Some(thread) = self.threads.get_mut(&compacted.thread).map(Arc::make_mut) else { return };
        let kept: Vec<usize> = compacted.kept.iter().map(|place| *place as usize).collect();
        let summary = (!compacted.summary.is_empty()).then(|| {
            let by = compacted.by.unwrap_or(thread.opened_by);
            Entry { words: compacted.words.clone(), ..Entry::asked(by, compacted.summary.clone()) }
        });
        thread.fold(summary, &kept);
    }

    fn phase_entered(&mut self, spec: &FlowSpec, entered: &PhaseEntered, at: Millis) {
        let turn = self.turn.as_ref().map(|turn| turn.id);
        let Some(stand) = self.stand_mut(spec, &entered.phase) else { return };
        if !entered.transition.begins_visit() {
            return;
        }
        stand.past.push_back(stand.now.clone());
        keep_newest(&mut stand.past, PAST_VISITS_MAX);
        stand.now.enter(&entered.transition, at);
        stand.handed.clear();
        // The turn that brought the transition counts for the new visit only once somebody speaks in it.
        if stand.counted == turn {
            stand.counted = None;
        }
    }

    fn tool_answered(&mut self, run: crate::ids::ToolRunId, text: crate::body::Text, failed: bool) {
        let Some(opened) = self.tools.remove(&run) else { return };
        let Some((call, id)) = opened.wish else { return };
        let Some(round) = self.rounds.get_mut(&call) else { return };
        if let Some(wished) = round.results.iter_mut().find(|wished| wished.id == id && wished.text.is_none()) {
            (wished.text, wished.failed) = (Some(text), failed);
        }
        if round.is_complete() {
            let round = round.clone();
            self.push_results(call, &round);
        }
    }

    fn push_results(&mut self, call: CallId, round: &Round) {
        let Some(thread) = self.threads.get_mut(&round.thread).map(Arc::make_mut) else { return };
        for Wished { id, text, failed } in &round.results {
            thread.push(Entry {
                parts: text.iter().copied().collect(),
                answers: Some(id.clone()),
                failed: *failed,
                ..Entry::silent(call, Speaker::Tool)
            });
        }
    }

    pub(crate) fn stand_mut(&mut self, spec: &FlowSpec, key: &PhaseKey) -> Option<&mut Stand> {
        if !self.phases.contains_key(key) {
            let stand = self.stand(spec.graphs.get(&key.graph)?, key);
            self.phases.insert(key.clone(), Arc::new(stand));
        }
        self.phases.get_mut(key).map(Arc::make_mut)
    }
}

impl OpenCall {
    /// The session is a copy from here on, and in the copy nobody has begun it.
    fn leave(&mut self) {
        self.status = match self.status {
            CallStatus::Due => CallStatus::Left(Millis(0)),
            CallStatus::Waiting(until) => CallStatus::Left(until),
            stands @ (CallStatus::Held | CallStatus::Left(_)) => stands,
        };
    }

    /// Somebody makes it from here on.
    fn take_up(&mut self) {
        self.status = match self.status {
            CallStatus::Left(Millis(0)) => CallStatus::Due,
            CallStatus::Left(until) => CallStatus::Waiting(until),
            stands @ (CallStatus::Due | CallStatus::Waiting(_) | CallStatus::Held) => stands,
        };
    }
}

impl Round {
    /// Whether every tool has answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.results.iter().all(|wished| wished.text.is_some())
    }
}

impl Wished {
    fn of(wish: &ToolCall) -> Self {
        Self { id: wish.id.clone(), text: None, failed: false }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Missed {
    Failed(Option<Spent>),
    Unknown,
    Resolved,
}

pub(super) fn account(open: &OpenCall) -> Account<'_> {
    let opened = &open.opened;
    Account { role: &opened.role, model: &opened.model, phase: open.account.as_deref(), turn: opened.turn }
}

/// The call as a flow would wish it again.
pub(crate) fn wish_of(opened: &CallOpened) -> CallWish {
    CallWish {
        role: opened.role.clone(),
        ask: opened.ask.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone(),
        model: Some(opened.model.clone()),
        sample: opened.sample,
        note: opened.note.clone(),
    }
}

pub(super) fn keep_newest<T>(queue: &mut std::collections::VecDeque<T>, most: usize) {
    while queue.len() > most {
        queue.pop_front();
    }
}
