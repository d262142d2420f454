//! Follows a session while it works: words on the terminal as they come, what was said, and what each call came to.

mod progress;
mod voice;

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::event::{CountedBy, Event, Next, Outcome, Recorded};
use segue_core::ids::{CallId, MessageId, Millis, ModelName, RoleName, Seq, SessionId, TurnId};
use segue_core::ledger::Tally;
use segue_core::prompt::{Stop, Usage};
use segue_core::session::Session;
use segue_engine::{Engine, Subscription, Update};

use crate::limits::EVENTS_AT_ONCE;
use crate::print;
use crate::progress::{Rounds, line};
use crate::terminal::now;
use progress::Progress;
use voice::Voice;

const TICK: Duration = Duration::from_millis(250);

/// Whether words are shown as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// On standard output.
    Words,
    /// Not at all.
    Nothing,
}

/// A call that was followed.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow {
    pub call: CallId,
    pub turn: Option<TurnId>,
    pub role: RoleName,
    pub model: ModelName,
    pub end: CallEnd,
    /// Tries that brought no answer in time, and what they took all the same: those that failed, those of unknown end, a late answer.
    pub lost: Tally,
}

impl CallRow {
    /// A call that was cancelled while it was under way has a known end after all.
    fn heard_of(&mut self) {
        if let CallEnd::Cancelled { in_flight, .. } = &mut self.end
            && std::mem::take(in_flight)
        {
            self.lost.found();
        }
    }

    /// What is to be said about an answer that is not whole.
    pub fn shortfall(&self) -> Option<String> {
        let CallEnd::Answered { stop, usage, .. } = &self.end else { return None };
        shortfall(&self.role, *stop, usage.output)
    }
}

/// What is to be said about an answer that ended in this way, if it is not whole.
pub fn shortfall(role: &RoleName, stop: Stop, output_tokens: u32) -> Option<String> {
    match stop {
        Stop::Done | Stop::Tools => None,
        Stop::Length => {
            Some(format!("the answer of {role} was cut off after {output_tokens} tokens, the most it may have"))
        }
        Stop::Filtered => Some(format!("the vendor's filter cut the answer of {role}")),
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// It has not.
    Open,
    /// With an answer.
    Answered { usage: Usage, counted_by: CountedBy, cost_microusd: Option<u64>, ms: u64, stop: Stop },
    /// Without.
    Failed(String),
    /// It was no longer wanted.
    Cancelled {
        reason: String,
        /// Whether it was under way then and was not heard of since.
        in_flight: bool,
    },
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Turned {
    pub turn: TurnId,
    pub outcome: Outcome,
    /// What was said to the user, in order.
    pub said: Vec<String>,
    /// Its calls.
    pub calls: Vec<CallRow>,
}

/// How following ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// The turn is over.
    Turned(Turned),
    /// A person must decide about this call first.
    Held(CallId),
    /// Whoever looks on wants to stop; this turn was running, if any.
    Stopped(Option<TurnId>),
}

/// Somebody who follows one session.
#[derive(Debug)]
pub struct Follower<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    updates: Subscription,
    calls: BTreeMap<CallId, CallRow>,
    said: Vec<String>,
    voice: Voice,
    progress: Progress,
    rounds: Rounds,
    started: Millis,
    frame: usize,
    /// Whether it was said that nothing can be written.
    has_complained: bool,
}

impl<'e> Follower<'e> {
    /// From after a place in the journal on.
    pub async fn after(engine: &'e Engine, session: &'e SessionId, after: Seq, live: Live) -> anyhow::Result<Self> {
        let updates = engine.subscribe(session, after).await?;
        Ok(Self {
            engine,
            session,
            updates,
            calls: BTreeMap::new(),
            said: Vec::new(),
            voice: Voice::new(live),
            progress: Progress::new(),
            rounds: Rounds::default(),
            started: now(),
            frame: 0,
            has_complained: false,
        })
    }

    /// Until the turn that answers `message` is over.
    pub async fn answer_to(mut self, message: MessageId) -> anyhow::Result<End> {
        let mut ours = None;
        loop {
            let Some(update) = self.next().await? else { return Ok(End::Stopped(ours)) };
            match update {
                Update::Words { call, attempt, text, .. } => {
                    let turn = self.calls.get(&call).and_then(|row| row.turn);
                    if turn.is_some() && turn == ours {
                        self.progress.clear();
                        print::out(&self.voice.words(call, attempt, &text))?;
                    }
                }
                Update::Event(event) => {
                    self.note(&event);
                    match &event.event {
                        Event::TurnStarted { turn, messages, .. } if messages.contains(&message) => ours = Some(*turn),
                        Event::Said(said) if said.turn.is_some() && said.turn == ours => {
                            self.hear(said.call, said.text.body).await?;
                        }
                        Event::TurnEnded { turn, outcome } if Some(*turn) == ours => {
                            if !self.is_tried_again(message).await? {
                                return self.turned(*turn, outcome.clone());
                            }
                            self.said.clear();
                        }
                        Event::CallUnknown { call, next: Next::Ask, .. } if self.is_held(*call).await? => {
                            return Ok(End::Held(*call));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Whether a later turn, which the journal has already, answers the same message: one that failed was tried again.
    async fn is_tried_again(&self, message: MessageId) -> anyhow::Result<bool> {
        let mut after = self.updates.seen();
        loop {
            let events = self.engine.events(self.session, after, EVENTS_AT_ONCE).await?;
            let Some(last) = events.last() else { return Ok(false) };
            after = last.seq;
            let answers = |event: &Recorded| matches!(&event.event, Event::TurnStarted { messages, .. } if messages.contains(&message));
            if events.iter().any(answers) {
                return Ok(true);
            }
        }
    }

    /// Whether a person must still decide about a call.
    async fn is_held(&self, call: CallId) -> anyhow::Result<bool> {
        let (_, state) = self.engine.state(self.session).await?;
        Ok(state.session.held().any(|(held, _)| *held == call))
    }

    /// Until nothing is owed at once; everything said is heard.
    pub async fn until_rest(mut self) -> anyhow::Result<End> {
        let mut last = None;
        loop {
            let (_, state) = self.engine.state(self.session).await?;
            if let Some(call) = stands_still(&state.session) {
                return Ok(End::Held(call));
            }
            let seen = self.updates.seen() >= state.session.seq;
            if state.session.is_idle() && seen {
                let (turn, outcome) = last.unwrap_or((state.session.last.turn, Outcome::Done));
                return self.turned(turn, outcome);
            }
            let Some(update) = self.next().await? else {
                return Ok(End::Stopped(state.session.turn.as_ref().map(|turn| turn.id)));
            };
            match update {
                Update::Words { call, attempt, text, .. } => {
                    self.progress.clear();
                    print::out(&self.voice.words(call, attempt, &text))?;
                }
                Update::Event(event) => {
                    self.note(&event);
                    match &event.event {
                        Event::Said(said) => self.hear(said.call, said.text.body).await?,
                        Event::TurnEnded { turn, outcome } => last = Some((*turn, outcome.clone())),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The next update; nothing if somebody wants to stop.
    async fn next(&mut self) -> anyhow::Result<Option<Update>> {
        loop {
            let stop = tokio::signal::ctrl_c();
            tokio::select! {
                biased;
                update = self.updates.next() => return Ok(Some(update?)),
                _ = stop => {
                    self.progress.clear();
                    print::out(&self.voice.break_off())?;
                    return Ok(None);
                }
                () = tokio::time::sleep(TICK) => {
                    if let Some(trouble) = self.engine.trouble(self.session).filter(|_| !self.has_complained) {
                        self.has_complained = true;
                        self.progress.clear();
                        print::note(&cannot_write(&trouble));
                    }
                    if self.progress.is_on() && !self.voice.is_speaking() {
                        let (_, state) = self.engine.state(self.session).await?;
                        self.frame = self.frame.wrapping_add(1);
                        self.progress.show(&line(&state.session, &self.rounds, self.started, now(), self.frame));
                    }
                }
            }
        }
    }

    async fn hear(&mut self, call: Option<CallId>, body: segue_core::body::BodyId) -> anyhow::Result<()> {
        let text: String = self.engine.texts(self.session, &[body]).await?.concat();
        self.progress.clear();
        print::out(&self.voice.said(call, &text))?;
        self.said.push(text);
        Ok(())
    }

    fn turned(mut self, turn: TurnId, outcome: Outcome) -> anyhow::Result<End> {
        self.progress.clear();
        print::out(&self.voice.break_off())?;
        let calls = self.calls.into_values().filter(|row| row.turn == Some(turn)).collect();
        Ok(End::Turned(Turned { turn, outcome, said: self.said, calls }))
    }

    /// Keeps account of calls.
    fn note(&mut self, event: &Recorded) {
        self.rounds.note(&event.event);
        if let Event::CallOpened(opened) = &event.event {
            let row = CallRow {
                call: opened.call,
                turn: opened.turn,
                role: opened.role.clone(),
                model: opened.model.clone(),
                end: CallEnd::Open,
                lost: Tally::default(),
            };
            self.calls.insert(opened.call, row);
        }
        note(&event.event, &mut self.calls);
    }
}

/// What is said to somebody who waits while nothing can be written.
pub fn cannot_write(trouble: &segue_engine::Error) -> String {
    format!("what came cannot be written: {trouble}; it is kept and tried again, and Ctrl-C gives it up")
}

fn note(event: &Event, calls: &mut BTreeMap<CallId, CallRow>) {
    let mut change = |call: &CallId, change: &dyn Fn(&mut CallRow)| {
        if let Some(row) = calls.get_mut(call) {
            change(row);
        }
    };
    match event {
        Event::CallAnswered(answered) => change(&answered.call, &|row| {
            row.end = CallEnd::Answered {
                usage: answered.usage,
                counted_by: answered.counted_by,
                cost_microusd: answered.cost_microusd,
                ms: answered.ms,
                stop: answered.stop,
            };
        }),
        Event::CallFailed { call, failure, next, .. } => change(call, &|row| {
            row.heard_of();
            row.lost.failed(failure.spent);
            if *next == Next::GiveUp && row.end == CallEnd::Open {
                row.end = CallEnd::Failed(failure.to_string());
            }
        }),
        Event::CallUnknown { call, next, .. } => change(call, &|row| {
            row.lost.unknown += 1;
            if *next == Next::GiveUp {
                row.end = CallEnd::Failed("its end is not known".to_owned());
            }
        }),
        Event::CallMoved { call, to, .. } => change(call, &|row| row.model = to.clone()),
        Event::CallCancelled { call, reason, in_flight } => change(call, &|row| {
            row.end = CallEnd::Cancelled { reason: reason.clone(), in_flight: *in_flight };
            row.lost.unknown += u32::from(*in_flight);
        }),
        Event::CallAnsweredLate { call, usage, cost_microusd, .. } => change(call, &|row| {
            row.heard_of();
            row.lost.answered_late(*usage, *cost_microusd);
        }),
        _ => {}
    }
}

/// The call a person must decide about, if nothing else goes on.
fn stands_still(session: &Session) -> Option<CallId> {
    let (held, _) = session.held().next()?;
    (session.held().count() == session.calls.len() && session.tools.is_empty()).then_some(*held)
}

/// What some calls came to.
pub fn sum(calls: &[CallRow]) -> Tally {
    let mut tally = Tally::default();
    for row in calls {
        tally.failed += row.lost.failed;
        tally.unknown += row.lost.unknown;
        tally.late += row.lost.late;
        tally.input += row.lost.input;
        tally.output += row.lost.output;
        tally.cached += row.lost.cached;
        tally.cost_microusd = tally.cost_microusd.saturating_add(row.lost.cost_microusd);
        tally.unpriced += row.lost.unpriced;
        if let CallEnd::Answered { usage, cost_microusd, .. } = &row.end {
            tally.answered += 1;
            tally.input += u64::from(usage.input);
            tally.output += u64::from(usage.output);
            tally.cached += u64::from(usage.cached);
            match cost_microusd {
                Some(cost) => tally.cost_microusd += cost,
                None => tally.unpriced += 1,
            }
        }
    }
    tally
}
