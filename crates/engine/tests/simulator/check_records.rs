//! Checks what the assistant's journals say about records against what happened to them, and that inputs were refused only
//! where the session's own history explains it.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::event::{Event, RecordedEvent, ToolRunOutcome, TurnOutcome};
use segue_core::ids::{Seq, ToolRunId, UnixMillis};
use segue_flows::assistant::facts::AssistantFact;
use segue_flows::assistant::spec::UNDO_COMMAND;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolRunPurpose};
use serde_json::json;

use crate::check::CheckedJournal;
use crate::records::{ExecutedWrite, SimRecords};
use crate::world::{Observations, RefusedInput};

/// What a journal says became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RecordedWriteEnd {
    Changed,
    Undone,
    NotExecuted,
    /// It may have been executed.
    Unknown,
    Refused(String),
}

impl RecordedWriteEnd {
    /// Returns the end of a write that is recorded as failed.
    fn from_reason(why: &str) -> Self {
        match why {
            "the request was not executed" => Self::NotExecuted,
            why if why.contains("unknown whether") => Self::Unknown,
            why => Self::Refused(why.to_owned()),
        }
    }
}

/// The writes of one session, as its journal tells them.
#[derive(Debug, Default)]
struct RecordedWrites {
    requests: BTreeMap<ToolRunId, DomainToolRequest>,
    ends: BTreeMap<ToolRunId, Vec<RecordedWriteEnd>>,
    /// The runs whose writes were undone.
    undone: Vec<ToolRunId>,
    undo_commands: usize,
    /// How many undo commands have ended.
    undo_ends: usize,
}

/// Checks every session's writes: each was executed at most once, and the journal knows what became of it.
pub(crate) fn check_records(journal: &CheckedJournal, records: &SimRecords, observations: &Observations) {
    let opened_at = journal.state.session.opened_at;
    let executed: Vec<&ExecutedWrite> =
        records.executed.iter().filter(|write| is_of(write, journal, opened_at)).collect();
    let recorded = collect_writes(journal);
    check_each_is_executed_once(journal, &executed);
    for write in &executed {
        let request = recorded.requests.get(&write.run);
        assert_eq!(request, Some(&write.request), "{} changed records, but was not recorded before", write.run);
        let ends = recorded.ends.get(&write.run).map(Vec::as_slice).unwrap_or_default();
        assert!(
            matches!(ends, [RecordedWriteEnd::Changed | RecordedWriteEnd::Undone | RecordedWriteEnd::Unknown]),
            "{} changed records, but the journal says {ends:?}",
            write.run
        );
    }
    for (run, ends) in &recorded.ends {
        let says_changed = ends.iter().any(|end| matches!(end, RecordedWriteEnd::Changed | RecordedWriteEnd::Undone));
        let is_executed = executed.iter().any(|write| write.run == *run);
        assert!(!says_changed || is_executed, "the journal says that {run} changed records, but it did not");
    }
    for run in recorded.requests.keys() {
        assert!(recorded.ends.contains_key(run), "the journal does not say what became of {run}");
    }
    let distinct: BTreeSet<_> = recorded.undone.iter().collect();
    assert_eq!(distinct.len(), recorded.undone.len(), "a write was undone twice: {:?}", recorded.undone);
    let is_undo = |command: &OperatorCommand| matches!(command, OperatorCommand::Flow { .. });
    let accepted = observations.accepted_commands.iter();
    let accepted = accepted.filter(|(session, command)| *session == journal.session && is_undo(command)).count();
    assert!(recorded.undo_commands >= accepted, "an accepted undo was lost: {} of {accepted}", recorded.undo_commands);
    assert_eq!(recorded.undo_ends, recorded.undo_commands, "every undo ends once");
}

fn is_of(write: &ExecutedWrite, journal: &CheckedJournal, opened_at: UnixMillis) -> bool {
    write.session == journal.session && write.session_opened_at == opened_at
}

/// Checks that no run and no answer of a model changed records twice. Each answer has a marker, which is part of the name
/// of all records that it writes.
fn check_each_is_executed_once(journal: &CheckedJournal, executed: &[&ExecutedWrite]) {
    let (mut runs, mut markers, mut undone) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for write in executed {
        assert!(runs.insert(write.run), "{} of {} changed records twice", write.run, journal.session);
        if write.request.operation == DomainOperation::Undo {
            let run = write.request.parameters.get("run").map(ToString::to_string);
            assert!(undone.insert(run.clone()), "the write {run:?} of {} was undone twice", journal.session);
            continue;
        }
        let arguments = write.request.to_arguments().to_string();
        let own: BTreeSet<&str> = arguments.split('⟦').skip(1).filter_map(|rest| rest.split('⟧').next()).collect();
        // An item keeps the name that an earlier answer gave it, so only new names count.
        let is_named = matches!(write.request.operation, DomainOperation::Create | DomainOperation::Update);
        for marker in own.into_iter().filter(|_| is_named) {
            let is_new = markers.insert(marker.to_owned());
            assert!(is_new, "the answer {marker} of {} changed records twice", journal.session);
        }
    }
}

fn collect_writes(journal: &CheckedJournal) -> RecordedWrites {
    let mut writes = RecordedWrites::default();
    for recorded in own_events(journal) {
        match &recorded.event {
            Event::ToolRunOpened(opened) => {
                let request = DomainToolRequest::parse(&opened.arguments).filter(|it| it.operation.is_table_write());
                writes.requests.extend(request.map(|request| (opened.run, request)));
            }
            Event::CommandIssued { command, .. } if command == UNDO_COMMAND => writes.undo_commands += 1,
            event => {
                if let Some(fact) = AssistantFact::from_event(event) {
                    writes.apply_fact(&fact);
                }
            }
        }
    }
    writes
}

/// Returns the events that happened in the session itself and not in the one that it was copied from.
fn own_events(journal: &CheckedJournal) -> &[RecordedEvent] {
    let copied = journal.events.iter().rposition(|recorded| matches!(recorded.event, Event::SessionForked { .. }));
    &journal.events[copied.map_or(0, |index| index + 1)..]
}

impl RecordedWrites {
    fn apply_fact(&mut self, fact: &AssistantFact) {
        match fact {
            AssistantFact::RecordsReceived(outcome) => match self.purpose_of(outcome.run) {
                Some(DomainToolRunPurpose::Undo) => self.end(outcome.run, RecordedWriteEnd::Undone),
                Some(_) => self.end(outcome.run, RecordedWriteEnd::Changed),
                None => {}
            },
            AssistantFact::ToolFailed { run, why, .. } if self.requests.contains_key(run) => {
                self.end(*run, RecordedWriteEnd::from_reason(why));
            }
            AssistantFact::WriteUndone { run } => {
                self.undone.push(*run);
                self.undo_ends += usize::from(self.undo_of(*run).is_some());
            }
            // An undo that a copy inherited belongs to the original.
            AssistantFact::UndoFailed { run, why } => {
                if let Some(undo) = self.undo_of(*run) {
                    self.undo_ends += 1;
                    self.end(undo, RecordedWriteEnd::from_reason(why));
                }
            }
            _ => {}
        }
    }

    /// Returns the last run that was to undo a write.
    fn undo_of(&self, write: ToolRunId) -> Option<ToolRunId> {
        let mut undos = self.requests.iter().rev().filter(|(_, request)| request.operation == DomainOperation::Undo);
        undos.find(|(_, request)| request.parameters.get("run") == Some(&json!(write.0))).map(|(undo, _)| *undo)
    }

    fn purpose_of(&self, run: ToolRunId) -> Option<DomainToolRunPurpose> {
        self.requests.get(&run).map(|request| request.purpose)
    }

    fn end(&mut self, run: ToolRunId, end: RecordedWriteEnd) {
        self.ends.entry(run).or_default().push(end);
    }
}

/// How the interrupted writes of a session ended, by its journal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InterruptedWrites {
    pub changed: usize,
    pub not_executed: usize,
    pub unknown: usize,
}

/// Counts the writes of which the tool returned no result.
pub(crate) fn count_interrupted_writes(journal: &CheckedJournal) -> InterruptedWrites {
    let ended_without_result = own_events(journal).iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunEnded { run, outcome, .. } if *outcome != ToolRunOutcome::Done => Some(*run),
        _ => None,
    });
    let ended_without_result: BTreeSet<ToolRunId> = ended_without_result.collect();
    let mut counts = InterruptedWrites::default();
    let ends = collect_writes(journal).ends.into_iter().filter(|(run, _)| ended_without_result.contains(run));
    for end in ends.flat_map(|(_, ends)| ends) {
        match end {
            RecordedWriteEnd::Changed | RecordedWriteEnd::Undone => counts.changed += 1,
            RecordedWriteEnd::NotExecuted => counts.not_executed += 1,
            RecordedWriteEnd::Unknown => counts.unknown += 1,
            RecordedWriteEnd::Refused(_) => {}
        }
    }
    counts
}

/// What an input is refused for, at one moment of a session.
#[derive(Debug, Clone, Default)]
struct SessionMoment {
    is_open: bool,
    is_closed: bool,
    is_turn_running: bool,
    has_failed_turn: bool,
    /// The writes that were not undone.
    writes: BTreeSet<ToolRunId>,
}

/// Checks that each refusal is explained by a moment between the time when the input was sent and when it was refused.
pub(crate) fn check_refusals(journal: &CheckedJournal, observations: &Observations) {
    let refused = observations.refused.iter().filter(|refused| refused.sent.session == journal.session);
    for refused in refused {
        let is_explained = moments(journal, refused).iter().any(|moment| moment.explains(refused));
        assert!(is_explained, "nothing in the history of {} explains {refused:?}", journal.session);
    }
}

/// Returns the states of the session from the moment when an input was sent.
fn moments(journal: &CheckedJournal, refused: &RefusedInput) -> Vec<SessionMoment> {
    let mut moment = SessionMoment::default();
    let mut moments = Vec::new();
    if refused.sent.sent_at == Seq(0) {
        moments.push(moment.clone());
    }
    for recorded in journal.events.iter().take_while(|recorded| recorded.seq <= refused.refused_at) {
        moment.apply(&recorded.event);
        if recorded.seq >= refused.sent.sent_at {
            moments.push(moment.clone());
        }
    }
    moments
}

impl SessionMoment {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionOpened(_) => self.is_open = true,
            // A copy is open, also if the original was closed.
            Event::SessionForked { .. } => self.is_closed = false,
            Event::SessionClosed { .. } => self.is_closed = true,
            Event::TurnStarted { .. } => (self.is_turn_running, self.has_failed_turn) = (true, false),
            Event::TurnEnded { outcome, .. } => {
                self.is_turn_running = false;
                self.has_failed_turn = matches!(outcome, TurnOutcome::Failed { .. });
            }
            event => match AssistantFact::from_event(event) {
                Some(AssistantFact::RecordsReceived(outcome))
                    if !outcome.write_summaries.is_empty() && outcome.tool != DomainOperation::Undo.as_str() =>
                {
                    self.writes.insert(outcome.run);
                }
                Some(AssistantFact::WriteUndone { run }) => {
                    self.writes.remove(&run);
                }
                _ => {}
            },
        }
    }

    fn explains(&self, refused: &RefusedInput) -> bool {
        match &refused.refusal {
            InputRefusal::NotOpen => !self.is_open,
            InputRefusal::Closed { .. } => self.is_closed,
            InputRefusal::Busy => self.is_turn_running,
            InputRefusal::NoTurnRunning => !self.is_turn_running,
            InputRefusal::LastTurnNotFailed => self.is_turn_running || !self.has_failed_turn,
            InputRefusal::FlowCommandRefused(_) => {
                let can_undo = match refused.sent.run_to_undo {
                    Some(run) => self.writes.contains(&run),
                    None => !self.writes.is_empty(),
                };
                self.is_turn_running || !can_undo
            }
            _ => false,
        }
    }
}
