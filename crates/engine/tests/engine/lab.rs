//! What the tests work with: engines on one disk, and the model's side of every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use segue_core::body::BodyId;
use segue_core::event::{Event, TurnResult};
use segue_core::flow::{DynFlow, RoleSpec};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, UnixMillis};
use segue_core::phase::guard::Guard;
use segue_core::phase::{PhaseEdge, PhaseGraph, PhaseLimit, PhaseOwnerKind, PhaseSpec};
use segue_core::prompt::{CallFailure, FailureKind, Prompt, ToolCall};
use segue_core::session::SessionState;
use segue_engine::clock::TokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, Error, SessionOptions, TurnReport, UserMessage};
use segue_models::{
    CallMetadata, LanguageModel, ModelDescription, ModelRegistry, ModelRequest, ModelSource, ReplyChunk,
    ReplyChunkStream, ReplyFinish,
};
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_store::{
    Commit, ForkSpec, IntegrityReport, JournalRecord, Lease, PendingWork, SessionListPage, SessionQuery, Snapshot,
    Store, TakeoverPolicy,
};
use segue_testkit::{ClosureFlow, WordCounter};
use tokio::sync::mpsc;

/// A model whose answers the test gives.
#[derive(Debug)]
struct Played(mpsc::UnboundedSender<Asked>);

/// The calls that reach the model, in their order.
#[derive(Debug)]
pub struct Calls(mpsc::UnboundedReceiver<Asked>);

/// A call that waits for what the test lets the model say.
#[derive(Debug)]
pub struct Asked {
    pub facts: CallMetadata,
    pub prompt: Arc<Prompt>,
    pub at: tokio::time::Instant,
    chunks: mpsc::UnboundedSender<Result<ReplyChunk, CallFailure>>,
}

impl LanguageModel for Played {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let (chunks, stream) = mpsc::unbounded_channel();
        let at = tokio::time::Instant::now();
        let asked = Asked { facts: request.metadata, prompt: request.prompt, at, chunks };
        // A test that has seen enough does not hear of further calls; they hang.
        if let Err(unheard) = self.0.send(asked) {
            std::mem::forget(unheard.0.chunks);
        }
        futures_util::stream::unfold(stream, |mut stream| async move { Some((stream.recv().await?, stream)) }).boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelSource::Scripted, label: "played".to_owned(), window_tokens: 100_000 }
    }
}

impl Calls {
    /// The next call.
    pub async fn next(&mut self) -> Asked {
        let asked = tokio::time::timeout(Duration::from_secs(3_600), self.0.recv()).await;
        asked.expect("a call is made").expect("the model lives")
    }

    /// Says that no call is made for a long time.
    pub async fn none(&mut self) {
        let asked = tokio::time::timeout(Duration::from_secs(3_600), self.0.recv()).await;
        assert!(asked.is_err(), "{asked:?} is made");
    }
}

impl Asked {
    /// Says a piece.
    pub fn say(&self, text: &str) {
        let _ = self.chunks.send(Ok(ReplyChunk::Text(text.to_owned())));
    }

    /// Says the rest, and that this was it.
    pub fn answer(self, text: &str) {
        self.say(text);
        let _ = self.chunks.send(Ok(ReplyChunk::Finish(ReplyFinish::default())));
    }

    /// Wants a tool run.
    pub fn want(self, tool: &str) {
        let call = ToolCall { id: "w1".to_owned(), name: tool.into(), arguments: serde_json::json!({"at": 1}) };
        let _ = self.chunks.send(Ok(ReplyChunk::ToolCall(call)));
        let _ = self.chunks.send(Ok(ReplyChunk::Finish(ReplyFinish::default())));
    }

    pub fn fail(self, kind: FailureKind) {
        let _ = self.chunks.send(Err(CallFailure::new(kind, "as the test wants")));
    }

    pub fn fail_with(self, failure: CallFailure) {
        let _ = self.chunks.send(Err(failure));
    }

    /// Returns when nobody listens to the answer any more.
    pub async fn dropped(&self) {
        let dropped = tokio::time::timeout(Duration::from_secs(3_600), self.chunks.closed()).await;
        dropped.expect("the stream is dropped");
    }

    /// The last message of the prompt.
    pub fn last(&self) -> String {
        self.prompt.messages.last().map(segue_core::prompt::PromptMessage::text).unwrap_or_default()
    }
}

/// The flow of most tests: one role answers each turn, and is heard by the user.
pub fn chat() -> Arc<dyn DynFlow> {
    chat_of(speaker())
}

pub fn speaker() -> RoleSpec {
    ClosureFlow::speaker_role().visible_to_user(segue_core::signal::BlockSet::new())
}

pub fn chat_of(speaker: RoleSpec) -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::single_speaker(speaker))
}

/// A chat whose phase `hot` turns `cold` after so long.
pub fn cooling(ms: u64) -> Arc<dyn DynFlow> {
    let mut hot = PhaseSpec::new("hot");
    hot.limit = Some(PhaseLimit { turns_max: None, ms_max: Some(ms), exit: "cold".into() });
    let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
    let graph = PhaseGraph {
        name: "heat".into(),
        owner_kind: PhaseOwnerKind::Session,
        start: "hot".into(),
        phases: vec![hot, PhaseSpec::new("cold")],
        edges: vec![edge("hot", "cold"), edge("cold", "hot")],
        gates: Vec::new(),
    };
    Arc::new(ClosureFlow::new(
        ClosureFlow::spec_with_role(speaker().with_phase_graph("heat")).with_graph(graph),
        ClosureFlow::react_as_chat,
    ))
}

/// A setup on a disk, and the calls that will reach its model.
pub fn setup(store: impl Store + 'static, flow: Arc<dyn DynFlow>) -> (EngineConfig, Calls) {
    let (calls, heard) = mpsc::unbounded_channel();
    let base = EngineConfig::new(
        Arc::new(store),
        vec![flow],
        ModelRegistry::from_single_model(Arc::new(Played(calls))),
        "played",
    );
    let clock = Arc::new(TokioClock::starting_at(UnixMillis(1_000_000)));
    (
        EngineConfig { clock, random: RandomSource::from_seed(7), token_counter: Arc::new(WordCounter), ..base },
        Calls(heard),
    )
}

/// An engine of a flow on a disk.
pub async fn engine_of(disk: &MemoryDisk, flow: Arc<dyn DynFlow>) -> (Engine, Calls) {
    let (setup, calls) = setup(MemoryStore::open(disk), flow);
    (Engine::start(setup).await.expect("the engine starts"), calls)
}

/// An engine of the chat on a disk.
pub async fn engine(disk: &MemoryDisk) -> (Engine, Calls) {
    engine_of(disk, chat()).await
}

/// A session called `s`.
pub async fn open(engine: &Engine) -> SessionId {
    open_as(engine, "s").await
}

pub async fn open_as(engine: &Engine, name: &str) -> SessionId {
    let opening = SessionOptions { session: Some(name.into()), ..SessionOptions::default() };
    engine.open_session(&"puppet".into(), opening).await.expect("a session opens")
}

/// A question that is on its way.
pub fn ask(engine: &Engine, session: &SessionId, text: &str) -> tokio::task::JoinHandle<Result<TurnReport, Error>> {
    let (engine, session, message) = (engine.clone(), session.clone(), UserMessage::from(text));
    tokio::spawn(async move { engine.send_and_wait(&session, message).await })
}

/// Asks, has the model answer, and gives what came of it.
pub async fn turn(engine: &Engine, calls: &mut Calls, session: &SessionId, text: &str, answer: &str) -> TurnReport {
    let asked = ask(engine, session, text);
    calls.next().await.answer(answer);
    asked.await.expect("the task lives").expect("it is answered")
}

pub async fn state(engine: &Engine, session: &SessionId) -> SessionState {
    engine.load_session(session).await.expect("it can be read").1
}

pub async fn events(engine: &Engine, session: &SessionId) -> Vec<Event> {
    let events = engine.read_events(session, Seq(0), usize::MAX).await.expect("it can be read");
    events.into_iter().map(|recorded| recorded.event).collect()
}

/// How turns ended, in order.
pub async fn outcomes(engine: &Engine, session: &SessionId) -> Vec<TurnResult> {
    let events = events(engine, session).await.into_iter();
    let ended = events.filter_map(|event| match event {
        Event::TurnEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    ended.collect()
}

/// Time passes.
pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A store that counts reads and can fail for a while at what memory never fails at.
#[derive(Debug)]
pub struct Flaky {
    inner: MemoryStore,
    pub trouble: Arc<Trouble>,
}

/// What a flaky store does.
#[derive(Debug, Default)]
pub struct Trouble {
    pub reads: AtomicU64,
    pub looks: AtomicU64,
    /// How many of the next claims, and of the next readings of texts, fail.
    pub claims_fail: AtomicU64,
    pub texts_fail: AtomicU64,
    /// How long it takes until somebody is told that something was written.
    pub told_after_ms: AtomicU64,
}

impl Flaky {
    pub fn open(disk: &MemoryDisk) -> (Self, Arc<Trouble>) {
        let trouble = Arc::new(Trouble::default());
        (Self { inner: MemoryStore::open(disk), trouble: trouble.clone() }, trouble)
    }
}

type Answer<T> = Result<T, segue_store::Error>;

fn fails(left: &AtomicU64) -> Answer<()> {
    let failed = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let io = segue_store::Error::Io { what: "reading".to_owned(), detail: "the disk hiccups".to_owned() };
    if failed { Err(io) } else { Ok(()) }
}

#[async_trait]
impl Store for Flaky {
    async fn create_session(&self, session: &SessionId) -> Answer<Lease> {
        self.inner.create_session(session).await
    }

    async fn acquire_lease(&self, session: &SessionId, takeover: TakeoverPolicy) -> Answer<Lease> {
        fails(&self.trouble.claims_fail)?;
        self.inner.acquire_lease(session, takeover).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Answer<()> {
        self.inner.release_lease(session, epoch).await
    }

    async fn append_commit(&self, commit: Commit) -> Answer<Seq> {
        let written = self.inner.append_commit(commit).await;
        pass(self.trouble.told_after_ms.load(Ordering::Relaxed)).await;
        written
    }

    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Answer<Vec<JournalRecord>> {
        self.trouble.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_records(session, after, limit).await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Answer<Vec<Option<Seq>>> {
        self.trouble.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.read_heads(sessions).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Answer<Vec<Arc<str>>> {
        fails(&self.trouble.texts_fail)?;
        self.inner.read_bodies(session, ids).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> Answer<Option<Snapshot>> {
        self.inner.load_snapshot(session).await
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Answer<()> {
        self.inner.save_snapshot(session, snapshot).await
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Answer<SessionListPage> {
        self.inner.list_sessions(query).await
    }

    async fn sessions_with_pending_work(&self) -> Answer<Vec<(SessionId, PendingWork)>> {
        self.inner.sessions_with_pending_work().await
    }

    async fn fork_session(&self, fork: ForkSpec) -> Answer<()> {
        self.inner.fork_session(fork).await
    }

    async fn delete_session(&self, session: &SessionId) -> Answer<()> {
        self.inner.delete_session(session).await
    }

    async fn check_integrity(&self) -> Answer<IntegrityReport> {
        self.inner.check_integrity().await
    }

    async fn close(&self) -> Answer<()> {
        self.inner.close().await
    }
}
