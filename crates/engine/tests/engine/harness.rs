//! Helpers for the tests: engines on one disk, a model that the test controls, and a store that fails on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use segue_core::body::BodyId;
use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::{DynFlow, RoleSpec};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId, UnixMillis};
use segue_core::phase::{Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseLimit, PhaseSpec};
use segue_core::prompt::{CallFailure, CallFailureKind, Prompt, ToolCall};
use segue_core::session::SessionState;
use segue_engine::clock::PausableTokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, Error, SessionOptions, TurnReport, UserMessage};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelCallOrigin, ModelDescription, ModelRegistry, ModelRequest, ReplyChunk,
    ReplyChunkStream, ReplyFinish,
};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_store::{
    InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit, JournalReader,
    JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy, NewInboxSubmission,
    PendingWorkPage, PendingWorkQuery, SessionCatalog, SessionForkSpec, SessionListChangeCursor, SessionListChangePage,
    SessionListPage, SessionNameAndUid, SessionQuery, Snapshot, Store, StoreMaintenance,
};
use segue_testkit::{ClosureFlow, WordCounter};
use tokio::sync::mpsc;

/// A model whose answers the test sends.
#[derive(Debug)]
struct ControlledModel(mpsc::UnboundedSender<ReceivedCall>);

/// The calls that reach the model, in order.
#[derive(Debug)]
pub(crate) struct ReceivedCalls(mpsc::UnboundedReceiver<ReceivedCall>);

/// A call that the model received. The test sends its reply.
#[derive(Debug)]
pub(crate) struct ReceivedCall {
    pub metadata: ModelCallOrigin,
    pub prompt: Arc<Prompt>,
    pub at: tokio::time::Instant,
    chunks: mpsc::UnboundedSender<Result<ReplyChunk, CallFailure>>,
}

impl LanguageModel for ControlledModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let (chunks, stream) = mpsc::unbounded_channel();
        let at = tokio::time::Instant::now();
        let call = ReceivedCall { metadata: request.metadata, prompt: request.prompt, at, chunks };
        // Calls that arrive after the test has dropped the receiver hang.
        if let Err(unreceived) = self.0.send(call) {
            std::mem::forget(unreceived.0.chunks);
        }
        futures_util::stream::unfold(stream, |mut stream| async move { Some((stream.recv().await?, stream)) }).boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelBackendKind::Scripted, label: "controlled".to_owned(), window_tokens: 100_000 }
    }
}

impl ReceivedCalls {
    /// Waits for the next call.
    pub(crate) async fn next(&mut self) -> ReceivedCall {
        let call = tokio::time::timeout(Duration::from_secs(3_600), self.0.recv()).await;
        call.expect("a call is made").expect("the model exists")
    }

    /// Asserts that no call was made so far.
    pub(crate) fn expect_none_yet(&mut self) {
        let call = self.0.try_recv();
        assert!(call.is_err(), "unexpected call: {call:?}");
    }

    /// Asserts that no call is made for a long time.
    pub(crate) async fn expect_none(&mut self) {
        let call = tokio::time::timeout(Duration::from_secs(3_600), self.0.recv()).await;
        assert!(call.is_err(), "unexpected call: {call:?}");
    }
}

impl ReceivedCall {
    /// Streams a part of the reply.
    pub(crate) fn send_text(&self, text: &str) {
        let _ = self.chunks.send(Ok(ReplyChunk::Text(text.to_owned())));
    }

    /// Streams the rest of the reply and ends it.
    pub(crate) fn answer(self, text: &str) {
        self.send_text(text);
        let _ = self.chunks.send(Ok(ReplyChunk::Finish(ReplyFinish::default())));
    }

    /// Replies with a tool call.
    pub(crate) fn call_tool(self, tool: &str) {
        let arguments = serde_json::json!({"at": 1});
        self.call_tool_with(ToolCall { id: "w1".to_owned(), name: tool.into(), arguments });
    }

    /// Replies with this tool call.
    pub(crate) fn call_tool_with(self, call: ToolCall) {
        let _ = self.chunks.send(Ok(ReplyChunk::ToolCall(call)));
        let _ = self.chunks.send(Ok(ReplyChunk::Finish(ReplyFinish::default())));
    }

    pub(crate) fn fail(self, kind: CallFailureKind) {
        let _ = self.chunks.send(Err(CallFailure::new(kind, "requested by the test")));
    }

    pub(crate) fn fail_with(self, failure: CallFailure) {
        let _ = self.chunks.send(Err(failure));
    }

    /// Waits until the engine drops the reply stream.
    pub(crate) async fn wait_until_dropped(&self) {
        let dropped = tokio::time::timeout(Duration::from_secs(3_600), self.chunks.closed()).await;
        dropped.expect("the stream is dropped");
    }

    /// Returns the text of the last message of the prompt.
    pub(crate) fn last_message(&self) -> String {
        self.prompt.messages.last().map(segue_core::prompt::PromptMessage::text).unwrap_or_default()
    }
}

/// The flow of most tests: one role that answers the user in each turn.
pub(crate) fn chat_flow() -> Arc<dyn DynFlow> {
    chat_with_role(speaker_role())
}

pub(crate) fn speaker_role() -> RoleSpec {
    ClosureFlow::speaker_role().visible_to_user(segue_core::signal::BlockSet::default())
}

pub(crate) fn chat_with_role(speaker: RoleSpec) -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::single_speaker(speaker))
}

/// A chat whose phase changes from `hot` to `cold` after `ms`.
pub(crate) fn cooling_flow(ms: u64) -> Arc<dyn DynFlow> {
    let mut hot = PhaseSpec::new("hot");
    hot.limit = Some(PhaseLimit { ms_max: Some(ms), includes_waiting: true, ..PhaseLimit::new("cold") });
    let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
    let graph = PhaseGraph {
        name: "heat".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "hot".into(),
        phases: vec![hot, PhaseSpec::new("cold")],
        edges: vec![edge("hot", "cold"), edge("cold", "hot")],
        gates: Vec::new(),
    };
    Arc::new(ClosureFlow::new(
        ClosureFlow::spec_with_role(speaker_role().with_phase_graph("heat")).with_graph(graph),
        ClosureFlow::react_as_chat,
    ))
}

/// Returns a configuration, and the calls that will reach its model.
pub(crate) fn engine_config(store: impl Store + 'static, flow: Arc<dyn DynFlow>) -> (EngineConfig, ReceivedCalls) {
    let (calls, received) = mpsc::unbounded_channel();
    let base = EngineConfig::new(
        Arc::new(store),
        vec![flow],
        ModelRegistry::from_single_model(Arc::new(ControlledModel(calls))),
        "controlled",
    );
    let clock = Arc::new(PausableTokioClock::starting_at(UnixMillis(1_000_000)));
    (
        EngineConfig { clock, random: RandomSource::from_seed(7), token_counter: Arc::new(WordCounter), ..base },
        ReceivedCalls(received),
    )
}

/// Starts an engine with a flow on a disk.
pub(crate) async fn engine_with_flow(disk: &InMemoryStoreDisk, flow: Arc<dyn DynFlow>) -> (Engine, ReceivedCalls) {
    let (config, calls) = engine_config(InMemoryStore::open(disk), flow);
    (Engine::start(config).await.expect("the engine starts"), calls)
}

/// Starts an engine with the chat flow on a disk.
pub(crate) async fn chat_engine(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls) {
    engine_with_flow(disk, chat_flow()).await
}

/// Opens a session with the name `s`.
pub(crate) async fn open_session(engine: &Engine) -> SessionId {
    open_named_session(engine, "s").await
}

pub(crate) async fn open_named_session(engine: &Engine, name: &str) -> SessionId {
    let options = SessionOptions { session: Some(name.into()), ..SessionOptions::default() };
    engine.open_session(&"puppet".into(), options).await.expect("a session opens")
}

/// Sends a message in a task that waits for the turn's report.
pub(crate) fn send_in_background(
    engine: &Engine,
    session: &SessionId,
    text: &str,
) -> tokio::task::JoinHandle<Result<TurnReport, Error>> {
    let (engine, session, message) = (engine.clone(), session.clone(), UserMessage::from(text));
    tokio::spawn(async move { engine.send_and_wait(&session, message).await })
}

/// Sends a message, answers its call, and returns the turn's report.
pub(crate) async fn run_turn(
    engine: &Engine,
    calls: &mut ReceivedCalls,
    session: &SessionId,
    text: &str,
    answer: &str,
) -> TurnReport {
    let pending_turn = send_in_background(engine, session, text);
    calls.next().await.answer(answer);
    pending_turn.await.expect("the task lives").expect("it is answered")
}

pub(crate) async fn load_state(engine: &Engine, session: &SessionId) -> SessionState {
    engine.load_session(session).await.expect("it can be read").1
}

pub(crate) async fn read_events(engine: &Engine, session: &SessionId) -> Vec<Event> {
    let events = engine.read_events(session, Seq(0), usize::MAX).await.expect("it can be read");
    events.into_iter().map(|recorded| recorded.event).collect()
}

/// Returns the results of all turns, in order.
pub(crate) async fn turn_outcomes(engine: &Engine, session: &SessionId) -> Vec<TurnOutcome> {
    let events = read_events(engine, session).await.into_iter();
    let ended = events.filter_map(|event| match event {
        Event::TurnEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    ended.collect()
}

/// Advances the paused clock.
pub(crate) async fn advance_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A memory store that counts reads, and fails on request in ways that memory never does.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: InMemoryStore,
    pub faults: Arc<InjectedFaults>,
}

/// The faults and counters of a [`FaultyStore`].
#[derive(Debug, Default)]
pub(crate) struct InjectedFaults {
    pub reads: AtomicU64,
    pub head_reads: AtomicU64,
    pub text_reads: AtomicU64,
    /// How many of the next attempts to acquire a lease fail.
    pub failing_leases: AtomicU64,
    /// How many of the next renewals of leases fail.
    pub failing_renewals: AtomicU64,
    /// How many of the next reads of texts fail.
    pub failing_text_reads: AtomicU64,
    /// How many of the next appends panic.
    pub panicking_appends: AtomicU64,
    /// How long it takes to acquire a lease.
    pub lease_delay_ms: AtomicU64,
    /// Leases that are being acquired now, and the most at any time.
    pub leases_in_progress: AtomicU64,
    pub leases_in_progress_max: AtomicU64,
    /// Delay between writing a commit and acknowledging it.
    pub append_delay_ms: AtomicU64,
}

impl FaultyStore {
    pub(crate) fn open(disk: &InMemoryStoreDisk) -> (Self, Arc<InjectedFaults>) {
        let faults = Arc::new(InjectedFaults::default());
        (Self { inner: InMemoryStore::open(disk), faults: faults.clone() }, faults)
    }
}

type StoreResult<T> = Result<T, segue_store::Error>;

fn fail_if_requested(left: &AtomicU64) -> StoreResult<()> {
    let failed = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let io = segue_store::Error::Io { what: "reading".to_owned(), detail: "injected fault".to_owned() };
    if failed { Err(io) } else { Ok(()) }
}

#[async_trait]
impl JournalReader for FaultyStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> StoreResult<Vec<JournalRecord>> {
        self.faults.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_records(session, after, limit).await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> StoreResult<Vec<Option<Seq>>> {
        self.faults.head_reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_heads(sessions).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> StoreResult<Vec<Arc<str>>> {
        self.faults.text_reads.fetch_add(1, Ordering::Relaxed);
        fail_if_requested(&self.faults.failing_text_reads)?;
        self.inner.read_bodies(session, ids).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> StoreResult<Option<Snapshot>> {
        self.inner.load_snapshot(session).await
    }
}

#[async_trait]
impl JournalWriter for FaultyStore {
    async fn create_session(&self, session: &SessionId) -> StoreResult<Lease> {
        self.inner.create_session(session).await
    }

    async fn append_commit(&self, commit: JournalCommit) -> StoreResult<Seq> {
        if fail_if_requested(&self.faults.panicking_appends).is_err() {
            // Does not call the panic hook, so that the test prints nothing.
            std::panic::resume_unwind(Box::new("the store panics"));
        }
        let written = self.inner.append_commit(commit).await;
        advance_ms(self.faults.append_delay_ms.load(Ordering::Relaxed)).await;
        written
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> StoreResult<()> {
        self.inner.save_snapshot(session, snapshot).await
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> StoreResult<SessionUid> {
        self.inner.fork_session(fork).await
    }

    async fn begin_delete(&self, session: &SessionId) -> StoreResult<Lease> {
        self.inner.begin_delete(session).await
    }

    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> StoreResult<()> {
        self.inner.delete_session(session, notice_to_parent).await
    }
}

#[async_trait]
impl LeaseStore for FaultyStore {
    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> StoreResult<Lease> {
        fail_if_requested(&self.faults.failing_leases)?;
        let in_progress = self.faults.leases_in_progress.fetch_add(1, Ordering::Relaxed) + 1;
        self.faults.leases_in_progress_max.fetch_max(in_progress, Ordering::Relaxed);
        advance_ms(self.faults.lease_delay_ms.load(Ordering::Relaxed)).await;
        self.faults.leases_in_progress.fetch_sub(1, Ordering::Relaxed);
        self.inner.acquire_lease(session, takeover).await
    }

    fn lease_ms(&self) -> Option<u64> {
        self.inner.lease_ms()
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> StoreResult<LeaseRenewalResult> {
        fail_if_requested(&self.faults.failing_renewals)?;
        self.inner.renew_leases(held).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> StoreResult<InboxEmptiness> {
        self.inner.release_lease(session, epoch).await
    }
}

#[async_trait]
impl InboxStore for FaultyStore {
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> StoreResult<SessionUid> {
        self.inner.submit(session, expected, submission).await
    }

    async fn read_inbox(&self, session: &SessionId, limit: usize) -> StoreResult<Vec<InboxEntry>> {
        self.inner.read_inbox(session, limit).await
    }

    async fn read_outcome(&self, session: &SessionId, submission: SubmissionId) -> StoreResult<InboxSubmissionStatus> {
        self.inner.read_outcome(session, submission).await
    }

    async fn held_sessions_with_entries(&self, limit: usize) -> StoreResult<Vec<SessionNameAndUid>> {
        self.inner.held_sessions_with_entries(limit).await
    }
}

#[async_trait]
impl SessionCatalog for FaultyStore {
    async fn list_sessions(&self, query: &SessionQuery) -> StoreResult<SessionListPage> {
        self.inner.list_sessions(query).await
    }

    async fn parent_of(&self, session: &SessionId) -> StoreResult<Option<SessionNameAndUid>> {
        self.inner.parent_of(session).await
    }

    async fn children_of(&self, parent: SessionUid, limit: usize) -> StoreResult<Vec<SessionNameAndUid>> {
        self.inner.children_of(parent, limit).await
    }

    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> StoreResult<PendingWorkPage> {
        self.inner.sessions_with_pending_work(query).await
    }

    async fn sessions_to_delete(&self, limit: usize) -> StoreResult<Vec<SessionNameAndUid>> {
        self.inner.sessions_to_delete(limit).await
    }

    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> StoreResult<SessionListChangePage> {
        self.inner.changes_after(after, limit).await
    }
}

#[async_trait]
impl StoreMaintenance for FaultyStore {
    async fn probe_write(&self) -> StoreResult<()> {
        self.inner.probe_write().await
    }

    async fn check_integrity(&self) -> StoreResult<IntegrityReport> {
        self.inner.check_integrity().await
    }

    async fn close(&self) -> StoreResult<()> {
        self.inner.close().await
    }
}
