//! The properties that must hold when all sessions are idle, whatever happened before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::TextRef;
use segue_core::codec;
use segue_core::context::FragmentContentKind;
use segue_core::event::{CallOpened, Event, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, MessageId, Seq, SessionId, ToolRunId, TurnId};
use segue_core::session::{SessionState, UsageTotals};
use segue_core::signal::parse_reply;
use segue_engine::TurnReport;
use segue_store::memory::InMemoryStore;
use segue_store::{JournalReader, PendingWorkStatus, SessionCatalog, SessionQuery};
use segue_testkit::assert_invariants;

use crate::assistant::ASSISTANT_FLOW;
use crate::check_records::{check_records, check_refusals};
use crate::flows::tuned_flow;
use crate::memory;
use crate::plan::SimPlan;
use crate::seeded_random::SeededRandom;
use crate::store::expect_ready;
use crate::world::{
    FinishedAnswer, ListenerLog, Observations, SendOutcome, SentMessage, SimWorld, StartedCall, StartedToolRun,
};

/// A session's journal and state, read from the disk.
pub(crate) struct CheckedJournal {
    pub session: SessionId,
    pub flow: Arc<dyn DynFlow>,
    pub events: Vec<RecordedEvent>,
    pub state: SessionState,
    texts: BTreeMap<segue_core::body::BodyId, Arc<str>>,
}

impl CheckedJournal {
    /// Returns the content of a text.
    pub(crate) fn text(&self, text: TextRef) -> &str {
        &self.texts[&text.body]
    }

    fn format_event(&self, recorded: &RecordedEvent) -> String {
        let excerpt = |text: TextRef| self.text(text).chars().take(60).collect::<String>().replace('\n', "⏎");
        format!("{:>4} {} {}", recorded.seq, recorded.at.0, recorded.event.summary_line(&excerpt))
    }
}

/// Reads every session on the disk.
pub(crate) fn read_journals(world: &SimWorld, plan: &SimPlan) -> Vec<CheckedJournal> {
    let store = InMemoryStore::open(&world.disk);
    let page = expect_ready(store.list_sessions(&SessionQuery::newest(usize::MAX))).expect("the disk can be read");
    let flow = tuned_flow(plan.flow, SeededRandom::new(plan.seed));
    page.entries.into_iter().map(|entry| read_journal(&store, &entry.session, flow.clone())).collect()
}

fn read_journal(store: &InMemoryStore, session: &SessionId, flow: Arc<dyn DynFlow>) -> CheckedJournal {
    let records = expect_ready(store.read_records(session, Seq(0), usize::MAX)).expect("it is there");
    let decode = |record: &segue_store::JournalRecord| codec::decode_event(record.seq, record.at, &record.bytes);
    let events: Vec<RecordedEvent> = records.iter().map(|record| decode(record).expect("it can be read")).collect();
    let ids: BTreeSet<_> = events.iter().flat_map(|event| event.event.referenced_bodies()).map(|(id, _)| id).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let texts = expect_ready(store.read_bodies(session, &ids)).expect("every text that an event refers to is stored");
    let state = SessionState::fold(&*flow, &events);
    CheckedJournal { session: session.clone(), flow, events, state, texts: ids.into_iter().zip(texts).collect() }
}

/// Returns the whole disk as text, to compare two runs.
pub(crate) fn transcript(world: &SimWorld, plan: &SimPlan) -> String {
    let mut lines = String::new();
    for journal in read_journals(world, plan) {
        lines.push_str(&format!("== {}\n", journal.session));
        for recorded in &journal.events {
            lines.push_str(&serde_json::to_string(recorded).expect("events serialize to JSON"));
            lines.push('\n');
        }
    }
    lines
}

/// Checks all properties. Panics if one does not hold; with `SEGUE_SEED` set, the journal is printed.
pub(crate) fn check_promises(world: &SimWorld, plan: &SimPlan) {
    let observations = world.observations();
    let journals = read_journals(world, plan);
    if !observations.unexpected_errors.is_empty() {
        let _printer: Vec<JournalPrinter<'_>> = journals.iter().map(JournalPrinter).collect();
        panic!("{:#?}", observations.unexpected_errors);
    }
    for journal in &journals {
        let _printer = JournalPrinter(journal);
        // Core's invariants are checked after every input in core's own tests. They take long, so not for every seed.
        if plan.seed.is_multiple_of(8) {
            assert_invariants(&*journal.flow, &journal.events, &journal.state);
        }
        check_session_is_idle(journal);
        check_turns_end(journal);
        if plan.flow == "concierge" {
            check_turns_reply(journal);
        }
        if plan.flow == ASSISTANT_FLOW {
            check_records(journal, &world.records(), &observations);
            check_refusals(journal, &observations);
        }
        check_ledger_totals(journal);
        check_nothing_is_done_twice(journal, &observations);
        check_answers_are_recorded(journal, &observations);
        memory::check_memory_scopes(journal, &observations.streams);
        check_accepted_messages(journal, &observations.sent);
        for log in observations.listeners.iter().filter(|log| log.session == journal.session) {
            check_listener(journal, log);
        }
    }
    for session in observations.sessions.difference(&observations.deleted).filter(|session| session.as_str().len() == 2)
    {
        assert!(journals.iter().any(|journal| journal.session == *session), "{session} was opened and is gone");
    }
    check_summaries(world, &journals);
}

/// Prints a journal if a check of it panics.
struct JournalPrinter<'a>(&'a CheckedJournal);

impl Drop for JournalPrinter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("SEGUE_SEED").is_some() {
            let lines: Vec<String> = self.0.events.iter().map(|event| self.0.format_event(event)).collect();
            print_to_stderr(&format!("journal of {}:\n{}", self.0.session, lines.join("\n")));
        }
    }
}

#[expect(clippy::print_stderr, reason = "a failing test prints what it saw")]
fn print_to_stderr(text: &str) {
    eprintln!("{text}");
}

fn check_session_is_idle(journal: &CheckedJournal) {
    let session = &journal.state.session;
    assert!(session.is_idle(), "something is still pending");
    assert!(
        session.deferred_calls.is_empty() && session.tool_rounds.is_empty(),
        "a deferred call or tool round is left over"
    );
    assert!(
        session.threads.values().all(|thread| thread.active_call.is_none()),
        "a thread has an active call although none is open"
    );
    assert_eq!(session.id.as_ref(), Some(&journal.session), "it has its own name");
}

fn check_turns_end(journal: &CheckedJournal) {
    let (mut running, mut failed): (Option<TurnId>, Option<TurnId>) = (None, None);
    let mut handled: BTreeSet<MessageId> = BTreeSet::new();
    let mut received: BTreeSet<MessageId> = BTreeSet::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::UserMessageReceived(message) => {
                assert!(received.insert(message.message), "a message is recorded once")
            }
            Event::TurnStarted { turn, messages, retry_of } => {
                assert_eq!(running.replace(*turn), None, "turns do not interleave");
                assert!(
                    retry_of.is_none() || *retry_of == failed.take(),
                    "only the last turn is retried, and only if it failed"
                );
                for message in messages {
                    let is_new = received.contains(message) && handled.insert(*message);
                    assert_eq!(is_new, retry_of.is_none(), "{message} gets one turn, and another only for a retry");
                }
            }
            Event::TurnEnded { turn, outcome } => {
                assert_eq!(running.take(), Some(*turn), "the running turn ends");
                failed = matches!(outcome, TurnOutcome::Failed { .. }).then_some(*turn);
            }
            _ => {}
        }
    }
    assert_eq!(running, None, "every turn ends");
    assert!(received == handled || journal.state.session.closed_reason.is_some(), "every message gets its turn");
}

/// Checks that a successful turn has replied to the user, without any part of a block.
fn check_turns_reply(journal: &CheckedJournal) {
    let mut replies: Vec<&str> = Vec::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::TurnStarted { .. } => replies.clear(),
            Event::ReplySent(text) => {
                replies.push(journal.text(text.text));
                // Replies written by the flow itself may quote the user.
                let model_text = text.call.map(|_| journal.text(text.text)).unwrap_or_default();
                let is_marker =
                    |line: &str| ["<<<HANDOVER", "<<<BATCH", "<<<STEP"].iter().any(|it| line.starts_with(it));
                assert!(!model_text.lines().any(is_marker), "part of a block is in a reply: {model_text}");
            }
            Event::TurnEnded { turn, outcome: TurnOutcome::Done } => {
                assert!(replies.iter().any(|text| !text.trim().is_empty()), "{turn} is done without a reply");
            }
            _ => {}
        }
    }
}

fn check_ledger_totals(journal: &CheckedJournal) {
    let mut sum = UsageTotals::default();
    // Calls that were cancelled in flight and whose outcome is not recorded yet.
    let mut in_flight: BTreeSet<CallId> = BTreeSet::new();
    for recorded in &journal.events {
        if let Event::CallAnsweredLate { call, .. } | Event::CallFailed { call, .. } = &recorded.event {
            sum.unknown_attempts -= u32::from(in_flight.remove(call));
        }
        let spent = match &recorded.event {
            Event::CallAnswered(answered) => {
                sum.answered_calls += 1;
                Some((answered.usage, answered.cost_microusd))
            }
            Event::CallAnsweredLate { usage, cost_microusd, .. } => {
                sum.late_answers += 1;
                Some((*usage, *cost_microusd))
            }
            Event::CallFailed { failure, .. } => {
                sum.failed_attempts += 1;
                failure.cost.map(|spent| (spent.usage.unwrap_or_default(), spent.cost_microusd))
            }
            Event::CallOutcomeUnknown { .. } => {
                sum.unknown_attempts += 1;
                None
            }
            Event::CallCancelled { call, in_flight: true, .. } => {
                sum.unknown_attempts += u32::from(in_flight.insert(*call));
                None
            }
            _ => None,
        };
        let Some((usage, cost)) = spent else { continue };
        sum.input_tokens += u64::from(usage.input_tokens);
        sum.output_tokens += u64::from(usage.output_tokens);
        sum.cached_tokens += u64::from(usage.cached_tokens);
        sum.cost_microusd += cost.unwrap_or(0);
        sum.unpriced_answers += u32::from(cost.is_none());
    }
    let ledger = &journal.state.session.ledger;
    assert_eq!(ledger.total, sum, "the ledger is the sum of the recorded events");
    let add = |totals: Vec<&UsageTotals>| {
        totals.iter().fold((0, 0, 0, 0), |sum, totals_of_one| {
            (
                sum.0 + totals_of_one.answered_calls,
                sum.1 + totals_of_one.unknown_attempts,
                sum.2 + totals_of_one.input_tokens,
                sum.3 + totals_of_one.cost_microusd,
            )
        })
    };
    let total = (sum.answered_calls, sum.unknown_attempts, sum.input_tokens, sum.cost_microusd);
    assert_eq!(add(ledger.by_role.values().collect()), total, "roles add up");
    assert_eq!(add(ledger.by_model.values().collect()), total, "models add up");
}

/// The state of a call before an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallState {
    Open {
        attempt: u32,
        awaits_operator: bool,
    },
    /// It was answered; nothing can follow.
    Closed,
    /// It failed permanently; a late answer may follow.
    GivenUp,
    /// It was cancelled; a late answer may follow.
    Cancelled,
}

/// Longest time until a result is recorded: as long as a session waits for a failing disk.
const RECORDED_MS_MAX: u64 = 6_000;

/// Checks that every finished answer is recorded, even if its session no longer needed it.
fn check_answers_are_recorded(journal: &CheckedJournal, observations: &Observations) {
    // Deleting a session ends its calls, even if the deletion then fails.
    if observations.deleted.contains(&journal.session) {
        return;
    }
    let recorded: BTreeSet<(CallId, Option<u32>)> =
        journal.events.iter().filter_map(|event| recorded_result(&event.event)).collect();
    let in_time = |finished: &&FinishedAnswer| {
        let until = observations.fault_free_until.get(&finished.process);
        until.is_some_and(|until| finished.at.plus_ms(RECORDED_MS_MAX) <= *until)
    };
    let of_session = observations.finished_answers.iter().filter(|finished| finished.session == journal.session);
    for FinishedAnswer { call, attempt, at, .. } in of_session.filter(in_time) {
        let is_recorded = recorded.contains(&(*call, Some(*attempt))) || recorded.contains(&(*call, None));
        assert!(is_recorded, "{call} (attempt {attempt}) was answered at {}, and the answer is lost", at.0);
    }
}

/// Returns how many late answers are recorded of calls whose turn had ended.
pub(crate) fn count_late_answers(world: &SimWorld, plan: &SimPlan) -> usize {
    read_journals(world, plan).iter().map(|journal| count_late_in_journal(&journal.events)).sum()
}

fn count_late_in_journal(events: &[RecordedEvent]) -> usize {
    let (mut turns, mut ended, mut late) = (BTreeMap::new(), BTreeSet::new(), 0);
    for recorded in events {
        match &recorded.event {
            Event::CallOpened(opened) => {
                turns.insert(opened.call, opened.turn);
            }
            Event::TurnEnded { turn, outcome: TurnOutcome::Done | TurnOutcome::Failed { .. } } => {
                ended.insert(Some(*turn));
            }
            Event::CallAnsweredLate { call, .. } => late += usize::from(ended.contains(&turns[call])),
            _ => {}
        }
    }
    late
}

/// Returns the attempt whose result an event records. A late answer does not say which attempt it was.
fn recorded_result(event: &Event) -> Option<(CallId, Option<u32>)> {
    match event {
        Event::CallAnswered(answered) => Some((answered.call, Some(answered.attempt))),
        // A model may finish an answer that cannot be used.
        Event::CallFailed { call, attempt, .. } => Some((*call, Some(*attempt))),
        Event::CallAnsweredLate { call, .. } => Some((*call, None)),
        _ => None,
    }
}

fn check_nothing_is_done_twice(journal: &CheckedJournal, observations: &Observations) {
    let of_session = |session: &SessionId| *session == journal.session;
    let mut streams: Vec<&StartedCall> =
        observations.streams.iter().filter(|started_call| of_session(&started_call.session)).collect();
    streams.sort_by_key(|started_call| started_call.head);
    let mut runs: Vec<&StartedToolRun> = observations.runs.iter().filter(|run| of_session(&run.session)).collect();
    runs.sort_by_key(|run| run.head);
    let (mut streams, mut runs) = (streams.into_iter().peekable(), runs.into_iter().peekable());
    let mut calls: BTreeMap<CallId, CallState> = BTreeMap::new();
    let mut tools: BTreeMap<ToolRunId, bool> = BTreeMap::new();
    let mut started: BTreeSet<(CallId, u32)> = BTreeSet::new();
    let mut inherited: BTreeSet<CallId> = BTreeSet::new();
    // The events before a fork happened in another session.
    let forked = journal.events.iter().rposition(|recorded| matches!(recorded.event, Event::SessionForked { .. }));
    let first_own_event = forked.map_or(0, |index| index + 1);
    for (index, recorded) in journal.events.iter().enumerate() {
        if index < first_own_event {
            started.extend(answered_attempt(&recorded.event));
        }
        while let Some(started_call) = streams.next_if(|started_call| started_call.head < recorded.seq) {
            check_call_start(started_call, &calls, &mut started);
        }
        while let Some(run) = runs.next_if(|run| run.head < recorded.seq) {
            assert_eq!(tools.get(&run.run), Some(&true), "{} runs while it is pending", run.run);
        }
        apply_to_call_states(recorded, &mut calls, &mut tools, &started);
        check_inherited_calls(recorded, &calls, &mut inherited);
    }
    streams.for_each(|started_call| check_call_start(started_call, &calls, &mut started));
    assert_eq!(runs.count(), 0, "no tool runs when all sessions are idle");
}

/// Checks inherited calls: a fork has not started the calls it was copied with until it is resumed, so they cannot be
/// lost and cost nothing.
fn check_inherited_calls(
    recorded: &RecordedEvent,
    calls: &BTreeMap<CallId, CallState>,
    inherited: &mut BTreeSet<CallId>,
) {
    match &recorded.event {
        Event::SessionForked { .. } => {
            let open = calls
                .iter()
                .filter(|(_, call_state)| matches!(call_state, CallState::Open { awaits_operator: false, .. }));
            inherited.extend(open.map(|(call, _)| *call));
        }
        Event::InheritedCallStarted { call } => {
            assert!(inherited.remove(call), "{call} is started as inherited, but was not inherited")
        }
        Event::CallOutcomeUnknown { call, .. } | Event::CallCancelled { call, in_flight: true, .. } => {
            assert!(!inherited.contains(call), "{call} was inherited and not started, but counts as in flight");
        }
        Event::CallAnswered(answered) => {
            assert!(!inherited.contains(&answered.call), "{} is answered, but was not started", answered.call);
        }
        _ => {}
    }
}

/// Returns the attempt that an event of another session answers.
fn answered_attempt(event: &Event) -> Option<(CallId, u32)> {
    match event {
        Event::CallAnswered(answered) => Some((answered.call, answered.attempt)),
        _ => None,
    }
}

fn check_call_start(
    started_call: &StartedCall,
    calls: &BTreeMap<CallId, CallState>,
    started: &mut BTreeSet<(CallId, u32)>,
) {
    let StartedCall { call, attempt, .. } = started_call;
    assert_eq!(
        calls.get(call),
        Some(&CallState::Open { attempt: *attempt, awaits_operator: false }),
        "{call} is made (attempt {attempt}) while that attempt is pending"
    );
    assert!(
        started.insert((*call, *attempt)),
        "attempt {attempt} of {call} is made once; each further attempt is recorded first"
    );
}

fn apply_to_call_states(
    recorded: &RecordedEvent,
    calls: &mut BTreeMap<CallId, CallState>,
    tools: &mut BTreeMap<ToolRunId, bool>,
    started: &BTreeSet<(CallId, u32)>,
) {
    let mut apply_failure = |call: &CallId, next: &RetryDecision| {
        let attempt = match (calls.get(call), next) {
            (Some(CallState::Open { attempt, .. }), _) => *attempt,
            // The cost of a cancelled call is recorded, and nothing more follows.
            (Some(CallState::Cancelled), RetryDecision::GiveUp) => {
                calls.insert(*call, CallState::Closed);
                return;
            }
            (call_state, _) => panic!("{call} fails and is {call_state:?}"),
        };
        let call_state = match next {
            RetryDecision::Retry { .. } => CallState::Open { attempt: attempt + 1, awaits_operator: false },
            RetryDecision::AwaitOperator => CallState::Open { attempt, awaits_operator: true },
            RetryDecision::GiveUp => CallState::GivenUp,
        };
        calls.insert(*call, call_state);
    };
    match &recorded.event {
        Event::CallOpened(opened) => {
            calls.insert(opened.call, CallState::Open { attempt: 1, awaits_operator: false });
        }
        Event::CallAnswered(answered) => {
            let previous_state = calls.insert(answered.call, CallState::Closed);
            assert_eq!(
                previous_state,
                Some(CallState::Open { attempt: answered.attempt, awaits_operator: false }),
                "a pending attempt is answered"
            );
            assert!(started.contains(&(answered.call, answered.attempt)), "an answered call was started");
        }
        Event::CallFailed { call, next, .. }
        | Event::CallOutcomeUnknown { call, next, .. }
        | Event::CallResolved { call, next } => apply_failure(call, next),
        Event::CallCancelled { call, in_flight, .. } => {
            if let Some(CallState::Open { attempt, awaits_operator: false }) = calls.insert(*call, CallState::Cancelled)
            {
                assert!(
                    *in_flight || !started.contains(&(*call, attempt)),
                    "{call} (attempt {attempt}) was started, but is not recorded as in flight"
                );
            }
        }
        Event::CallAnsweredLate { call, .. } => {
            let previous_state = calls.insert(*call, CallState::Closed);
            assert!(
                matches!(previous_state, Some(CallState::Cancelled | CallState::GivenUp)),
                "{call} is answered late, once, and was {previous_state:?}"
            );
        }
        Event::ToolRunOpened(opened) => {
            tools.insert(opened.run, true);
        }
        Event::ToolRunEnded { run, .. } => {
            assert_eq!(tools.insert(*run, false), Some(true), "{run} is answered once");
        }
        _ => {}
    }
}

fn check_accepted_messages(journal: &CheckedJournal, sent: &[SentMessage]) {
    let received = journal.events.iter().filter_map(|recorded| match &recorded.event {
        Event::UserMessageReceived(received) => Some(received),
        _ => None,
    });
    let received: Vec<_> = received.collect();
    for sent in sent.iter().filter(|sent| sent.session == journal.session) {
        let texts = received.iter().filter(|message| journal.text(message.text) == sent.text).count();
        assert!(texts <= 1, "{:?} is recorded {texts} times", sent.text);
        let found = received.iter().find(|message| match &sent.key {
            Some(key) => message.idempotency_key.as_ref() == Some(key),
            None => journal.text(message.text) == sent.text,
        });
        if let Some(key) = &sent.key {
            let same = received.iter().filter(|message| message.idempotency_key.as_ref() == Some(key)).count();
            assert!(same <= 1, "{key} is recorded {same} times");
        }
        match &sent.outcome {
            SendOutcome::Unknown | SendOutcome::Refused(_) => {}
            SendOutcome::Accepted(message) => {
                assert_eq!(
                    found.map(|found| found.message),
                    Some(*message),
                    "{:?} was accepted and is lost",
                    sent.text
                );
            }
            SendOutcome::Answered(report) => {
                let found = found.unwrap_or_else(|| panic!("{:?} was answered and is lost", sent.text));
                check_report(journal, found.message, report, sent.head);
            }
        }
    }
}

/// Checks a report that the sender received: it is that of a turn of the message, and not of one that had been retried
/// before the message was sent.
fn check_report(journal: &CheckedJournal, message: MessageId, report: &TurnReport, sent_at: Seq) {
    let turns = expected_reports(journal, message);
    let expected = turns.iter().find(|turn| turn.turn == report.turn);
    assert_eq!(Some(report), expected, "the report matches the journal");
    let is_outdated = turns.iter().any(|turn| report.last_seq < turn.last_seq && turn.last_seq <= sent_at);
    assert!(!is_outdated, "{message} was retried, but the report is that of {}", report.turn);
}

/// Computes the reports of all turns of a message from the journal: one, and another for each retry.
fn expected_reports(journal: &CheckedJournal, message: MessageId) -> Vec<TurnReport> {
    let mut state = SessionState::new(&*journal.flow);
    let (mut turn, mut replies, mut turns) = (None, Vec::new(), Vec::new());
    for recorded in &journal.events {
        state.apply(&*journal.flow, recorded);
        match &recorded.event {
            Event::TurnStarted { turn: id, messages, .. } if messages.contains(&message) => turn = Some(*id),
            Event::ReplySent(text) if turn.is_some() => replies.push(journal.text(text.text).to_owned()),
            Event::TurnEnded { turn: id, outcome } if turn.take_if(|turn| turn == id).is_some() => {
                let (phase, spent) = (state.session.phases_label(), state.session.ledger.current_turn);
                let (seq, outcome, replies) = (recorded.seq, outcome.clone(), std::mem::take(&mut replies));
                turns.push(TurnReport { message, last_seq: seq, turn: *id, outcome, replies, phase, spent });
            }
            _ => {}
        }
    }
    turns
}

fn check_listener(journal: &CheckedJournal, log: &ListenerLog) {
    for (index, event) in log.events.iter().enumerate() {
        let seq = log.after.0 + index as u64 + 1;
        assert_eq!(event.seq.0, seq, "a listener gets every event once and in order");
        assert_eq!(Some(event), journal.events.get(usize::try_from(seq - 1).expect("small")), "as it was recorded");
    }
    let opened = |call: CallId| {
        journal.events.iter().find_map(|recorded| match &recorded.event {
            Event::CallOpened(opened) if opened.call == call => Some((recorded.seq, opened.clone())),
            _ => None,
        })
    };
    let answers = log.events.iter().filter_map(|recorded| match &recorded.event {
        Event::CallAnswered(answered) => Some(answered),
        _ => None,
    });
    for (answered, (call, attempt, text)) in answers.zip(&log.call_texts) {
        assert_eq!(answered.call, *call);
        let (opened_at, opened) = opened(*call).expect("an answered call was opened");
        let role = journal.flow.spec().roles.get(&opened.role).filter(|_| opened.recomputation.is_none());
        let visible = match role.and_then(|role| role.hidden_blocks(&opened.ask)) {
            Some(blocks) => {
                let foreign = foreign_texts(journal, &opened);
                parse_reply(journal.text(answered.text), blocks, &foreign).visible_text
            }
            None => String::new(),
        };
        let joined_late = opened_at <= log.joined && text.is_empty();
        // A subscriber that is slower than the buffer may miss streamed text; the recorded answer has all of it.
        let fell_behind = log.is_slow && visible.starts_with(text.as_str());
        assert!(joined_late || fell_behind || *text == visible, "{call}: received {text:?} of {visible:?}");
        assert!(text.is_empty() || *attempt == answered.attempt, "the text of {call} is that of its last attempt");
    }
}

/// Returns the texts of others in the thread of a call, up to this call.
fn foreign_texts<'j>(journal: &'j CheckedJournal, opened: &CallOpened) -> Vec<&'j str> {
    let thread = opened.receipt.thread.thread_id();
    let calls = journal.events.iter().filter_map(|recorded| match &recorded.event {
        Event::CallOpened(other) if other.call <= opened.call => Some(other),
        _ => None,
    });
    let in_thread = calls.filter(|other| other.receipt.thread.thread_id() == thread);
    let fragments = in_thread.flat_map(|other| other.receipt.opening.iter().chain(&other.receipt.ask));
    let is_foreign =
        |layer: FragmentContentKind| !matches!(layer, FragmentContentKind::Instruction | FragmentContentKind::Task);
    let foreign = fragments.filter(|fragment| is_foreign(fragment.layer));
    foreign.filter_map(|fragment| fragment.text).map(|text| journal.text(text)).collect()
}

/// Checks the rows of lists, which recovery uses too.
fn check_summaries(world: &SimWorld, journals: &[CheckedJournal]) {
    let store = InMemoryStore::open(&world.disk);
    let page = expect_ready(store.list_sessions(&SessionQuery::newest(usize::MAX))).expect("the disk can be read");
    for entry in page.entries {
        let journal = journals.iter().find(|journal| journal.session == entry.session).expect("it is there");
        let session = &journal.state.session;
        let _printer = JournalPrinter(journal);
        assert_ne!(entry.summary.pending_work, PendingWorkStatus::Now, "the summary has pending work");
        assert_eq!(entry.summary.title, session.title);
        assert_eq!(
            (entry.summary.turns, entry.summary.calls),
            (session.last_ids.turn.0, session.last_ids.call.0),
            "the summary matches the journal"
        );
        assert_eq!(entry.summary.phase, session.phases_label());
    }
}
