//! What is owed is started, what is no longer owed is stopped or let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::body::BodyId;
use segue_core::decide::Input;
use segue_core::event::CallOpened;
use segue_core::flow::{About, Lookup, Sight, Texts};
use segue_core::ids::{CallId, Millis, ToolRunId};
use segue_core::prompt::Prompt;
use segue_core::session::Act;
use segue_models::{Hints, Kind};
use tokio::task::JoinHandle;

use super::{Actor, Lost};
use crate::dispatch::{CallErrand, make_call, run_tool};
use crate::engine::Recovery;
use crate::error::Error;
use crate::late::{Course, Flight, TryId};
use crate::limits::{WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::tools::ToolRequest;

impl Actor {
    /// Starts what is owed and not under way; parts with what is under way and no longer owed.
    pub(super) async fn dispatch(&mut self) -> Result<(), Lost> {
        if self.shared.recovery == Recovery::Never {
            return Ok(());
        }
        let owed = self.session().owed(self.rules.spec());
        self.wake = None;
        let mut due = Vec::new();
        for act in &owed {
            match act {
                Act::Call { call, attempt, not_before } if !self.calls.contains_key(&(*call, *attempt)) => {
                    due.push((*call, *attempt, *not_before));
                }
                Act::Tool { run } if !self.tools.contains_key(run) => self.run_tool(*run),
                Act::Call { .. } | Act::Tool { .. } => {}
                Act::Wake { at } => self.wake = Some(*at),
            }
        }
        let wanted = |id: &TryId| {
            owed.iter().any(|act| matches!(act, Act::Call { call, attempt, .. } if (*call, *attempt) == *id))
        };
        self.part_with_others(&wanted);
        self.settled.set(self.doubt.is_none());
        self.tools.retain(|run, _| owed.contains(&Act::Tool { run: *run }));
        for (call, attempt, not_before) in due {
            self.make_call(call, attempt, not_before).await?;
        }
        Ok(())
    }

    /// Parts with calls that are no longer wanted. Those that the flow went on without go on by themselves, unless somebody waits
    /// for their model or the engine stops, which would not record them; all others end here.
    fn part_with_others(&mut self, wanted: &dyn Fn(&TryId) -> bool) {
        let stops = self.shared.closing.load(Ordering::Acquire);
        let others: Vec<TryId> = self.calls.keys().filter(|id| !wanted(id)).copied().collect();
        for id in &others {
            let Some(flight) = self.calls.remove(id) else { continue };
            let is_awaited = !stops && self.session().awaits_late(id.0) && !self.shared.pace.is_awaited(&flight.model);
            if let Some(flight) = self.shared.late.take(&self.session, *id, flight, is_awaited) {
                self.calls.insert(*id, flight);
            }
        }
        if !others.is_empty() {
            self.shared.hub.keep_words(&self.session, wanted);
        }
        self.shared.late.keep(&self.session, |call| self.session().awaits_late(call));
    }

    /// Notes that what came of a call has arrived.
    pub(super) fn is_back(&mut self, input: &Input) {
        if let Input::Answer { call, attempt, .. } | Input::Failure { call, attempt, .. } = input
            && let Some(flight) = self.calls.get_mut(&(*call, *attempt))
        {
            flight.is_back = true;
        }
    }

    /// What the flow tells a stand-in about a call.
    fn hints(&self, opened: &CallOpened, prompt: &Prompt) -> Hints {
        let model = self.shared.models.get(&opened.model);
        if !model.is_ok_and(|model| model.describe().kind == Kind::Rehearsal) {
            return Hints::default();
        }
        let texts = Texts::new(&self.resident.shelf);
        let (state, about) = (&self.resident.state, About::default());
        let sight = Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about };
        Hints { rehearse: self.rules.rehearse(sight, opened, prompt) }
    }

    async fn make_call(&mut self, call: CallId, attempt: u32, not_before: Millis) -> Result<(), Lost> {
        let Some(plan) = self.session().plan(call) else { return Ok(()) };
        let mut filled = self.resident.shelf.fill(&plan);
        // As a rule all of it is at hand, and then nothing need be looked up twice.
        if filled.is_err() {
            let missing = self.resident.shelf.missing(plan.needs());
            self.fetch_for_sure(missing).await?;
            filled = self.resident.shelf.fill(&plan);
        }
        let Ok(prompt) = filled else { return Ok(()) };
        let hints = self.hints(&plan.opened, &prompt);
        let words = plan.opened.receipt.words().filter_map(|text| self.resident.shelf.find(text.body)).collect();
        let course = Course::new();
        let errand = CallErrand {
            shared: self.shared.clone(),
            session: self.session.clone(),
            since: self.session().opened,
            rules: self.rules.clone(),
            opened: plan.opened.clone(),
            attempt,
            not_before,
            prompt: Arc::new(prompt),
            words,
            hints,
            course: course.clone(),
            settled: self.settled.look(),
            back: self.desk.jobs.clone(),
        };
        let model = plan.opened.model.clone();
        let flight = Flight { task: tokio::spawn(make_call(errand)), course, model, is_back: false };
        self.calls.insert((call, attempt), flight);
        Ok(())
    }

    /// Fetches texts, however long that takes: a call that is owed is not forgotten because a disk fails for a moment.
    async fn fetch_for_sure(&mut self, ids: Vec<BodyId>) -> Result<(), Lost> {
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.fetch(ids.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_passing() => {
                    self.hold_out(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) => return Err(Lost(error)),
            }
        }
    }

    fn run_tool(&mut self, run: ToolRunId) {
        let Some(opened) = self.session().tools.get(&run).cloned() else { return };
        let (since, settings) = (self.session().opened, (*self.session().settings).clone());
        let request = ToolRequest { session: self.session.clone(), since, settings, opened };
        let task = tokio::spawn(run_tool(self.shared.clone(), request, self.desk.jobs.clone()));
        self.tools.insert(run, ToolFlight(task));
    }

    /// Waits while the store takes or gives nothing. Whoever asks for something meanwhile is told why it cannot be done;
    /// what was paid for waits.
    pub(super) async fn hold_out(&mut self, wait_ms: u64, error: &Error) {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        self.shared.hub.set_trouble(&self.session, Some(error.clone()));
        while let Ok(Some(job)) = tokio::time::timeout_at(deadline, self.jobs.recv()).await {
            if job.is_quiet() {
                self.backlog.push_back(job);
            } else {
                job.fail(error);
            }
        }
        self.shared.hub.set_trouble(&self.session, None);
    }
}

/// The task of a tool, which ends when nobody wants it any more.
pub(super) struct ToolFlight(JoinHandle<()>);

impl Drop for ToolFlight {
    fn drop(&mut self) {
        self.0.abort();
    }
}
