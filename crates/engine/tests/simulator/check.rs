//! What must hold when everything has come to rest, whatever happened before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::TextRef;
use segue_core::codec;
use segue_core::event::{Event, RecordedEvent, RetryDecision, TurnResult};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, MessageId, Seq, SessionId, ToolRunId, TurnId};
use segue_core::ledger::UsageTotals;
use segue_core::session::SessionState;
use segue_core::signal::parse_reply_ignoring_quotes;
use segue_engine::TurnReport;
use segue_store::memory::MemoryStore;
use segue_store::{PendingWork, SessionQuery, Store};
use segue_testkit::assert_invariants;

use crate::flows::tuned_flow;
use crate::memory;
use crate::plan::SimPlan;
use crate::seeded_random::SeededRandom;
use crate::store::expect_ready;
use crate::world::{
    FinishedAnswer, ListenerLog, Observations, SendOutcome, SentMessage, SimWorld, StartedCall, StartedToolRun,
};

/// A session as it stands on the disk.
pub struct CheckedJournal {
    pub session: SessionId,
    pub flow: Arc<dyn DynFlow>,
    pub events: Vec<RecordedEvent>,
    pub state: SessionState,
    texts: BTreeMap<segue_core::body::BodyId, Arc<str>>,
}

impl CheckedJournal {
    /// The words of a text.
    pub fn text(&self, text: TextRef) -> &str {
        &self.texts[&text.body]
    }

    fn line(&self, recorded: &RecordedEvent) -> String {
        let words = |text: TextRef| self.text(text).chars().take(60).collect::<String>().replace('\n', "⏎");
        format!("{:>4} {} {}", recorded.seq, recorded.at.0, recorded.event.summary_line(&words))
    }
}

/// Every session on the disk.
pub fn read_journals(world: &SimWorld, plan: &SimPlan) -> Vec<CheckedJournal> {
    let store = MemoryStore::open(&world.disk);
    let page = expect_ready(store.list_sessions(&SessionQuery::newest(usize::MAX))).expect("the disk can be read");
    let rules = tuned_flow(plan.flow, SeededRandom::new(plan.seed));
    page.entries.into_iter().map(|row| journal(&store, &row.session, rules.clone())).collect()
}

fn journal(store: &MemoryStore, session: &SessionId, rules: Arc<dyn DynFlow>) -> CheckedJournal {
    let records = expect_ready(store.read_records(session, Seq(0), usize::MAX)).expect("it is there");
    let decode = |record: &segue_store::JournalRecord| codec::decode_event(record.seq, record.at, &record.bytes);
    let events: Vec<RecordedEvent> = records.iter().map(|record| decode(record).expect("it can be read")).collect();
    let ids: BTreeSet<_> = events.iter().flat_map(|event| event.event.referenced_bodies()).map(|(id, _)| id).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let texts = expect_ready(store.read_bodies(session, &ids)).expect("every text that an event names is stored");
    let state = SessionState::fold(&*rules, &events);
    CheckedJournal { session: session.clone(), flow: rules, events, state, texts: ids.into_iter().zip(texts).collect() }
}

/// The whole disk as text, to compare two runs.
pub fn transcript(world: &SimWorld, plan: &SimPlan) -> String {
    let mut lines = String::new();
    for journal in read_journals(world, plan) {
        lines.push_str(&format!("== {}\n", journal.session));
        for recorded in &journal.events {
            lines.push_str(&serde_json::to_string(recorded).expect("events are JSON"));
            lines.push('\n');
        }
    }
    lines
}

/// Checks everything. Panics where something does not hold, with the journal it does not hold for.
pub fn check_promises(world: &SimWorld, plan: &SimPlan) {
    let notes = world.observations();
    let journals = read_journals(world, plan);
    if !notes.unexpected_errors.is_empty() {
        let _shown: Vec<JournalPrinter<'_>> = journals.iter().map(JournalPrinter).collect();
        panic!("{:#?}", notes.unexpected_errors);
    }
    for journal in &journals {
        let _shown = JournalPrinter(journal);
        // Core's own promises are checked after every input in its own tests; they take their time.
        if plan.seed.is_multiple_of(8) {
            assert_invariants(&*journal.flow, &journal.events, &journal.state);
        }
        it_rests(journal);
        turns_end(journal);
        if plan.flow == "concierge" {
            nobody_is_left_without_a_word(journal);
        }
        the_ledger_is_the_sum(journal);
        nothing_is_done_twice(journal, &notes);
        answers_are_recorded(journal, &notes);
        memory::check_memory_scopes(journal, &notes.streams);
        what_was_accepted_is_there(journal, &notes.sent);
        for heard in notes.listeners.iter().filter(|heard| heard.session == journal.session) {
            a_listener_heard_all(journal, heard);
        }
    }
    for session in notes.sessions.difference(&notes.deleted).filter(|session| session.as_str().len() == 2) {
        assert!(journals.iter().any(|journal| journal.session == *session), "{session} was opened and is gone");
    }
    rows_are_true(world, &journals);
}

/// Prints a journal if something is wrong with it.
struct JournalPrinter<'j>(&'j CheckedJournal);

impl Drop for JournalPrinter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("SEGUE_SEED").is_some() {
            let lines: Vec<String> = self.0.events.iter().map(|event| self.0.line(event)).collect();
            show(&format!("{} is wrong:\n{}", self.0.session, lines.join("\n")));
        }
    }
}

#[expect(clippy::print_stderr, reason = "a failing test says what it saw")]
fn show(text: &str) {
    eprintln!("{text}");
}

fn it_rests(journal: &CheckedJournal) {
    let session = &journal.state.session;
    assert!(session.is_idle(), "something stays owed");
    assert!(session.deferred_calls.is_empty() && session.tool_rounds.is_empty(), "something waits for nothing");
    assert!(session.threads.values().all(|thread| thread.active_call.is_none()), "a thread is busy with no call");
    assert_eq!(session.id.as_ref(), Some(&journal.session), "it knows its name");
}

fn turns_end(journal: &CheckedJournal) {
    let (mut running, mut failed): (Option<TurnId>, Option<TurnId>) = (None, None);
    let mut taken: BTreeSet<MessageId> = BTreeSet::new();
    let mut received: BTreeSet<MessageId> = BTreeSet::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::UserMessageReceived(message) => {
                assert!(received.insert(message.message), "a message is recorded once")
            }
            Event::TurnStarted { turn, messages, retry_of: again } => {
                assert_eq!(running.replace(*turn), None, "turns do not interleave");
                assert!(
                    again.is_none() || *again == failed.take(),
                    "only the last turn is tried again, and only if it failed"
                );
                for message in messages {
                    let is_new = received.contains(message) && taken.insert(*message);
                    assert_eq!(is_new, again.is_none(), "{message} gets one turn, and another only to try again");
                }
            }
            Event::TurnEnded { turn, outcome } => {
                assert_eq!(running.take(), Some(*turn), "the turn that runs ends");
                failed = matches!(outcome, TurnResult::Failed { .. }).then_some(*turn);
            }
            _ => {}
        }
    }
    assert_eq!(running, None, "every turn ends");
    assert!(received == taken || journal.state.session.closed_reason.is_some(), "every message gets its turn");
}

/// A turn that ends well has told the user something, and no part of a block.
fn nobody_is_left_without_a_word(journal: &CheckedJournal) {
    let mut said: Vec<&str> = Vec::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::TurnStarted { .. } => said.clear(),
            Event::ReplySent(words) => {
                said.push(journal.text(words.text));
                // What the rules say themselves may cite the user.
                let spoken = words.call.map(|_| journal.text(words.text)).unwrap_or_default();
                let is_marker =
                    |line: &str| ["<<<HANDOVER", "<<<BATCH", "<<<STEP"].iter().any(|it| line.starts_with(it));
                assert!(!spoken.lines().any(is_marker), "part of a block is said: {spoken}");
            }
            Event::TurnEnded { turn, outcome: TurnResult::Done } => {
                assert!(said.iter().any(|words| !words.trim().is_empty()), "{turn} is done and nothing was said");
            }
            _ => {}
        }
    }
}

fn the_ledger_is_the_sum(journal: &CheckedJournal) {
    let mut sum = UsageTotals::default();
    // Those that were cancelled under way, until they are heard of.
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
    assert_eq!(ledger.total, sum, "the ledger is the sum of what was recorded");
    let add = |tallies: Vec<&UsageTotals>| {
        tallies.iter().fold((0, 0, 0, 0), |sum, tally| {
            (
                sum.0 + tally.answered_calls,
                sum.1 + tally.unknown_attempts,
                sum.2 + tally.input_tokens,
                sum.3 + tally.cost_microusd,
            )
        })
    };
    let total = (sum.answered_calls, sum.unknown_attempts, sum.input_tokens, sum.cost_microusd);
    assert_eq!(add(ledger.by_role.values().collect()), total, "roles add up");
    assert_eq!(add(ledger.by_model.values().collect()), total, "models add up");
}

/// How a call stands before an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallState {
    Open {
        attempt: u32,
        held: bool,
    },
    /// Nothing can follow.
    Closed,
    /// It failed for good; an answer may still come.
    GivenUp,
    /// The same, for one that was cancelled.
    Cancelled,
}

/// How long it takes at most until what came is recorded: as long as a session waits for a disk that fails.
const RECORDED_MS_MAX: u64 = 6_000;

/// An answer that came is recorded, whoever still waited for it.
fn answers_are_recorded(journal: &CheckedJournal, notes: &Observations) {
    // Deleting a session ends its calls, even if the deletion then fails.
    if notes.deleted.contains(&journal.session) {
        return;
    }
    let recorded: BTreeSet<(CallId, Option<u32>)> =
        journal.events.iter().filter_map(|event| end(&event.event)).collect();
    let in_time = |given: &&FinishedAnswer| {
        let until = notes.fault_free_until.get(&given.process);
        until.is_some_and(|until| given.at.plus_ms(RECORDED_MS_MAX) <= *until)
    };
    let own = notes.finished_answers.iter().filter(|given| given.session == journal.session);
    for FinishedAnswer { call, attempt, at, .. } in own.filter(in_time) {
        let is_there = recorded.contains(&(*call, Some(*attempt))) || recorded.contains(&(*call, None));
        assert!(is_there, "{call} (try {attempt}) was answered at {} and that is lost", at.0);
    }
}

/// How many answers are recorded of calls whose turn had ended without them.
pub fn count_late_answers(world: &SimWorld, plan: &SimPlan) -> usize {
    read_journals(world, plan).iter().map(|journal| late_in(&journal.events)).sum()
}

fn late_in(events: &[RecordedEvent]) -> usize {
    let (mut turns, mut ended, mut late) = (BTreeMap::new(), BTreeSet::new(), 0);
    for recorded in events {
        match &recorded.event {
            Event::CallOpened(opened) => {
                turns.insert(opened.call, opened.turn);
            }
            Event::TurnEnded { turn, outcome: TurnResult::Done | TurnResult::Failed { .. } } => {
                ended.insert(Some(*turn));
            }
            Event::CallAnsweredLate { call, .. } => late += usize::from(ended.contains(&turns[call])),
            _ => {}
        }
    }
    late
}

/// The try that an event makes an end of with what came of it; a late one does not say which it was.
fn end(event: &Event) -> Option<(CallId, Option<u32>)> {
    match event {
        Event::CallAnswered(answered) => Some((answered.call, Some(answered.attempt))),
        // A model may end an answer that cannot be used.
        Event::CallFailed { call, attempt, .. } => Some((*call, Some(*attempt))),
        Event::CallAnsweredLate { call, .. } => Some((*call, None)),
        _ => None,
    }
}

fn nothing_is_done_twice(journal: &CheckedJournal, notes: &Observations) {
    let of_session = |session: &SessionId| *session == journal.session;
    let mut streams: Vec<&StartedCall> = notes.streams.iter().filter(|stream| of_session(&stream.session)).collect();
    streams.sort_by_key(|stream| stream.head);
    let mut runs: Vec<&StartedToolRun> = notes.runs.iter().filter(|run| of_session(&run.session)).collect();
    runs.sort_by_key(|run| run.head);
    let (mut streams, mut runs) = (streams.into_iter().peekable(), runs.into_iter().peekable());
    let mut calls: BTreeMap<CallId, CallState> = BTreeMap::new();
    let mut tools: BTreeMap<ToolRunId, bool> = BTreeMap::new();
    let mut begun: BTreeSet<(CallId, u32)> = BTreeSet::new();
    let mut left: BTreeSet<CallId> = BTreeSet::new();
    // What a copy was made of happened elsewhere.
    let forked = journal.events.iter().rposition(|recorded| matches!(recorded.event, Event::SessionForked { .. }));
    let own = forked.map_or(0, |place| place + 1);
    for (place, recorded) in journal.events.iter().enumerate() {
        if place < own {
            begun.extend(elsewhere(&recorded.event));
        }
        while let Some(stream) = streams.next_if(|stream| stream.head < recorded.seq) {
            begins(stream, &calls, &mut begun);
        }
        while let Some(run) = runs.next_if(|run| run.head < recorded.seq) {
            assert_eq!(tools.get(&run.run), Some(&true), "{} is run while it is owed", run.run);
        }
        follow(recorded, &mut calls, &mut tools, &begun);
        what_was_left_was_not_lost(recorded, &calls, &mut left);
    }
    streams.for_each(|stream| begins(stream, &calls, &mut begun));
    assert_eq!(runs.count(), 0, "no tool runs when everything rests");
}

/// A copy has not begun what it was copied with, until somebody takes it up: it cannot have been lost, and is nobody's to pay.
fn what_was_left_was_not_lost(
    recorded: &RecordedEvent,
    calls: &BTreeMap<CallId, CallState>,
    left: &mut BTreeSet<CallId>,
) {
    match &recorded.event {
        Event::SessionForked { .. } => {
            let open = calls.iter().filter(|(_, stands)| matches!(stands, CallState::Open { held: false, .. }));
            left.extend(open.map(|(call, _)| *call));
        }
        Event::InheritedCallStarted { call } => assert!(left.remove(call), "{call} is taken up, and was not left"),
        Event::CallOutcomeUnknown { call, .. } | Event::CallCancelled { call, in_flight: true, .. } => {
            assert!(!left.contains(call), "{call} was left by another, and is said to have been under way");
        }
        Event::CallAnswered(answered) => {
            assert!(!left.contains(&answered.call), "{} was made, and nobody took it up", answered.call);
        }
        _ => {}
    }
}

/// The try that an event of another session's past answers.
fn elsewhere(event: &Event) -> Option<(CallId, u32)> {
    match event {
        Event::CallAnswered(answered) => Some((answered.call, answered.attempt)),
        _ => None,
    }
}

fn begins(stream: &StartedCall, calls: &BTreeMap<CallId, CallState>, begun: &mut BTreeSet<(CallId, u32)>) {
    let StartedCall { call, attempt, .. } = stream;
    assert_eq!(
        calls.get(call),
        Some(&CallState::Open { attempt: *attempt, held: false }),
        "{call} is made (try {attempt}) while that is what is owed"
    );
    assert!(
        begun.insert((*call, *attempt)),
        "try {attempt} of {call} is made once; each further one is recorded first"
    );
}

fn follow(
    recorded: &RecordedEvent,
    calls: &mut BTreeMap<CallId, CallState>,
    tools: &mut BTreeMap<ToolRunId, bool>,
    begun: &BTreeSet<(CallId, u32)>,
) {
    let mut missed = |call: &CallId, next: &RetryDecision| {
        let attempt = match (calls.get(call), next) {
            (Some(CallState::Open { attempt, .. }), _) => *attempt,
            // What it took is recorded, and nothing more comes of it.
            (Some(CallState::Cancelled), RetryDecision::GiveUp) => {
                calls.insert(*call, CallState::Closed);
                return;
            }
            (stands, _) => panic!("{call} fails and is {stands:?}"),
        };
        let stands = match next {
            RetryDecision::Retry { .. } => CallState::Open { attempt: attempt + 1, held: false },
            RetryDecision::AwaitOperator => CallState::Open { attempt, held: true },
            RetryDecision::GiveUp => CallState::GivenUp,
        };
        calls.insert(*call, stands);
    };
    match &recorded.event {
        Event::CallOpened(opened) => {
            calls.insert(opened.call, CallState::Open { attempt: 1, held: false });
        }
        Event::CallAnswered(answered) => {
            let stood = calls.insert(answered.call, CallState::Closed);
            assert_eq!(
                stood,
                Some(CallState::Open { attempt: answered.attempt, held: false }),
                "what was owed is answered"
            );
            assert!(begun.contains(&(answered.call, answered.attempt)), "what is answered was asked");
        }
        Event::CallFailed { call, next, .. }
        | Event::CallOutcomeUnknown { call, next, .. }
        | Event::CallResolved { call, next } => missed(call, next),
        Event::CallCancelled { call, in_flight, .. } => {
            if let Some(CallState::Open { attempt, held: false }) = calls.insert(*call, CallState::Cancelled) {
                assert!(
                    *in_flight || !begun.contains(&(*call, attempt)),
                    "{call} (try {attempt}) was asked, and that it may be billed is not said"
                );
            }
        }
        Event::CallAnsweredLate { call, .. } => {
            let stood = calls.insert(*call, CallState::Closed);
            assert!(
                matches!(stood, Some(CallState::Cancelled | CallState::GivenUp)),
                "{call} is answered late, once, and was {stood:?}"
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

fn what_was_accepted_is_there(journal: &CheckedJournal, sent: &[SentMessage]) {
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
                the_report_is_true(journal, found.message, report, sent.head);
            }
        }
    }
}

/// Whoever asked at `asked` is told what a turn of the message came to: none that had been tried again by then.
fn the_report_is_true(journal: &CheckedJournal, message: MessageId, report: &TurnReport, asked: Seq) {
    let turns = came_to(journal, message);
    let told = turns.iter().find(|turn| turn.turn == report.turn);
    assert_eq!(Some(report), told, "the report of a turn is what it came to");
    let is_outdated = turns.iter().any(|turn| report.last_seq < turn.last_seq && turn.last_seq <= asked);
    assert!(!is_outdated, "{message} was tried again, and the report is that of {}", report.turn);
}

/// What the turns of a message came to, by the journal: one, and another each time it was tried again.
fn came_to(journal: &CheckedJournal, message: MessageId) -> Vec<TurnReport> {
    let mut state = SessionState::new(&*journal.flow);
    let (mut turn, mut said, mut turns) = (None, Vec::new(), Vec::new());
    for recorded in &journal.events {
        state.apply(&*journal.flow, recorded);
        match &recorded.event {
            Event::TurnStarted { turn: id, messages, .. } if messages.contains(&message) => turn = Some(*id),
            Event::ReplySent(words) if turn.is_some() => said.push(journal.text(words.text).to_owned()),
            Event::TurnEnded { turn: id, outcome } if turn.take_if(|turn| turn == id).is_some() => {
                let (phase, spent) = (state.session.phases_label(), state.session.ledger.current_turn);
                let (seq, outcome, said) = (recorded.seq, outcome.clone(), std::mem::take(&mut said));
                turns.push(TurnReport { message, last_seq: seq, turn: *id, outcome, replies: said, phase, spent });
            }
            _ => {}
        }
    }
    turns
}

fn a_listener_heard_all(journal: &CheckedJournal, heard: &ListenerLog) {
    for (place, event) in heard.events.iter().enumerate() {
        let seq = heard.after.0 + place as u64 + 1;
        assert_eq!(event.seq.0, seq, "a listener hears every event once and in order");
        assert_eq!(Some(event), journal.events.get(usize::try_from(seq - 1).expect("small")), "as it was recorded");
    }
    let opened = |call: CallId| {
        journal.events.iter().find_map(|recorded| match &recorded.event {
            Event::CallOpened(opened) if opened.call == call => Some((recorded.seq, opened.clone())),
            _ => None,
        })
    };
    let answers = heard.events.iter().filter_map(|recorded| match &recorded.event {
        Event::CallAnswered(answered) => Some(answered),
        _ => None,
    });
    for (answered, (call, attempt, words)) in answers.zip(&heard.call_texts) {
        assert_eq!(answered.call, *call);
        let (opened_at, opened) = opened(*call).expect("what is answered was opened");
        let role = journal.flow.spec().roles.get(&opened.role).filter(|_| opened.recomputation.is_none());
        let visible = match role.and_then(|role| role.hidden_blocks(&opened.ask)) {
            Some(blocks) => {
                let words: Vec<&str> = opened.receipt.user_words().map(|text| journal.text(text)).collect();
                parse_reply_ignoring_quotes(journal.text(answered.text), blocks, &words).visible_text
            }
            None => String::new(),
        };
        let joined_late = opened_at <= heard.joined && words.is_empty();
        // A subscriber that is slower than the buffer may miss streamed text; the recorded answer has all of it.
        let fell_behind = heard.is_slow && visible.starts_with(words.as_str());
        assert!(joined_late || fell_behind || *words == visible, "{call}: heard {words:?} of {visible:?}");
        assert!(words.is_empty() || *attempt == answered.attempt, "the words of {call} are those of its last try");
    }
}

/// What lists say, and what recovery goes by.
fn rows_are_true(world: &SimWorld, journals: &[CheckedJournal]) {
    let store = MemoryStore::open(&world.disk);
    let page = expect_ready(store.list_sessions(&SessionQuery::newest(usize::MAX))).expect("the disk can be read");
    for row in page.entries {
        let journal = journals.iter().find(|journal| journal.session == row.session).expect("it is there");
        let session = &journal.state.session;
        let _shown = JournalPrinter(journal);
        assert_ne!(row.summary.pending_work, PendingWork::Now, "the store believes that something is owed");
        assert_eq!(row.summary.title, session.title);
        assert_eq!(
            (row.summary.turns, row.summary.calls),
            (session.last_ids.turn.0, session.last_ids.call.0),
            "the row is true"
        );
        assert_eq!(row.summary.phase, session.phases_label());
    }
}
