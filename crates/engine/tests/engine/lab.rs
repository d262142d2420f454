//! What the tests work with: engines on one disk, and the model's side of every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use segue_core::body::BodyId;
use segue_core::event::{Event, Outcome};
use segue_core::flow::{RoleSpec, Rules};
use segue_core::ids::{Epoch, Millis, Seq, SessionId};
use segue_core::phase::guard::Guard;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph, PhaseLimit};
use segue_core::prompt::{Failure, FailureKind, Prompt, ToolCall};
use segue_core::session::State;
use segue_engine::chance::Chance;
use segue_engine::clock::RuntimeClock;
use segue_engine::{Engine, Error, Message, Opening, Setup, TurnReport};
use segue_models::{CallFacts, Chunk, ChunkStream, Description, Finish, Kind, Model, Models, Request};
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_store::{Claim, Commit, Fork, Owes, Page, Query, Record, Report, Snapshot, Store, Takeover};
use segue_testkit::{Puppet, Words};
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
    pub facts: CallFacts,
    pub prompt: Arc<Prompt>,
    pub at: tokio::time::Instant,
    chunks: mpsc::UnboundedSender<Result<Chunk, Failure>>,
}

impl Model for Played {
    fn stream(&self, request: Request) -> ChunkStream {
        let (chunks, stream) = mpsc::unbounded_channel();
        let at = tokio::time::Instant::now();
        let asked = Asked { facts: request.call, prompt: request.prompt, at, chunks };
        // A test that has seen enough does not hear of further calls; they hang.
        if let Err(unheard) = self.0.send(asked) {
            std::mem::forget(unheard.0.chunks);
        }
        futures_util::stream::unfold(stream, |mut stream| async move { Some((stream.recv().await?, stream)) }).boxed()
    }

    fn describe(&self) -> Description {
        Description { kind: Kind::Scripted, label: "played".to_owned(), window_tokens: 100_000 }
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
        let _ = self.chunks.send(Ok(Chunk::Text(text.to_owned())));
    }

    /// Says the rest, and that this was it.
    pub fn answer(self, text: &str) {
        self.say(text);
        let _ = self.chunks.send(Ok(Chunk::Finish(Finish::default())));
    }

    /// Wants a tool run.
    pub fn want(self, tool: &str) {
        let call = ToolCall { id: "w1".to_owned(), name: tool.into(), arguments: serde_json::json!({"at": 1}) };
        let _ = self.chunks.send(Ok(Chunk::ToolCall(call)));
        let _ = self.chunks.send(Ok(Chunk::Finish(Finish::default())));
    }

    pub fn fail(self, kind: FailureKind) {
        let _ = self.chunks.send(Err(Failure::new(kind, "as the test wants")));
    }

    pub fn fail_with(self, failure: Failure) {
        let _ = self.chunks.send(Err(failure));
    }

    /// Returns when nobody listens to the answer any more.
    pub async fn dropped(&self) {
        let dropped = tokio::time::timeout(Duration::from_secs(3_600), self.chunks.closed()).await;
        dropped.expect("the stream is dropped");
    }

    /// The last message of the prompt.
    pub fn last(&self) -> String {
        self.prompt.messages.last().map(segue_core::prompt::Message::text).unwrap_or_default()
    }
}

/// The flow of most tests: one role answers each turn, and is heard by the user.
pub fn chat() -> Arc<dyn Rules> {
    chat_of(speaker())
}

pub fn speaker() -> RoleSpec {
    Puppet::speaker().heard_by_user(segue_core::signal::BlockNames::new())
}

pub fn chat_of(speaker: RoleSpec) -> Arc<dyn Rules> {
    Arc::new(Puppet::chat(speaker))
}

/// A chat whose phase `hot` turns `cold` after so long.
pub fn cooling(ms: u64) -> Arc<dyn Rules> {
    let mut hot = Phase::named("hot");
    hot.limit = Some(PhaseLimit { turns_max: None, ms_max: Some(ms), exit: "cold".into() });
    let edge = |from: &str, to: &str| Edge { from: from.into(), to: to.into(), guard: Guard::Always };
    let graph = PhaseGraph {
        name: "heat".into(),
        attached: Attached::Session,
        start: "hot".into(),
        phases: vec![hot, Phase::named("cold")],
        edges: vec![edge("hot", "cold"), edge("cold", "hot")],
        gates: Vec::new(),
    };
    Arc::new(Puppet::new(Puppet::spec_of(speaker().lives_by("heat")).graph(graph), Puppet::chats))
}

/// A setup on a disk, and the calls that will reach its model.
pub fn setup(store: impl Store + 'static, flow: Arc<dyn Rules>) -> (Setup, Calls) {
    let (calls, heard) = mpsc::unbounded_channel();
    let base = Setup::new(Arc::new(store), vec![flow], Models::only(Arc::new(Played(calls))), "played");
    let clock = Arc::new(RuntimeClock::starting(Millis(1_000_000)));
    (Setup { clock, chance: Chance::seeded(7), count: Arc::new(Words), ..base }, Calls(heard))
}

/// An engine of a flow on a disk.
pub async fn engine_of(disk: &MemoryDisk, flow: Arc<dyn Rules>) -> (Engine, Calls) {
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
    let opening = Opening { session: Some(name.into()), ..Opening::default() };
    engine.open(&"puppet".into(), opening).await.expect("a session opens")
}

/// A question that is on its way.
pub fn ask(engine: &Engine, session: &SessionId, text: &str) -> tokio::task::JoinHandle<Result<TurnReport, Error>> {
    let (engine, session, message) = (engine.clone(), session.clone(), Message::from(text));
    tokio::spawn(async move { engine.ask(&session, message).await })
}

/// Asks, has the model answer, and gives what came of it.
pub async fn turn(engine: &Engine, calls: &mut Calls, session: &SessionId, text: &str, answer: &str) -> TurnReport {
    let asked = ask(engine, session, text);
    calls.next().await.answer(answer);
    asked.await.expect("the task lives").expect("it is answered")
}

pub async fn state(engine: &Engine, session: &SessionId) -> State {
    engine.state(session).await.expect("it can be read").1
}

pub async fn events(engine: &Engine, session: &SessionId) -> Vec<Event> {
    let events = engine.events(session, Seq(0), usize::MAX).await.expect("it can be read");
    events.into_iter().map(|recorded| recorded.event).collect()
}

/// How turns ended, in order.
pub async fn outcomes(engine: &Engine, session: &SessionId) -> Vec<Outcome> {
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
    async fn create(&self, session: &SessionId) -> Answer<Claim> {
        self.inner.create(session).await
    }

    async fn claim(&self, session: &SessionId, takeover: Takeover) -> Answer<Claim> {
        fails(&self.trouble.claims_fail)?;
        self.inner.claim(session, takeover).await
    }

    async fn release(&self, session: &SessionId, epoch: Epoch) -> Answer<()> {
        self.inner.release(session, epoch).await
    }

    async fn append(&self, commit: Commit) -> Answer<Seq> {
        let written = self.inner.append(commit).await;
        pass(self.trouble.told_after_ms.load(Ordering::Relaxed)).await;
        written
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Answer<Vec<Record>> {
        self.trouble.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(session, after, limit).await
    }

    async fn heads(&self, sessions: &[SessionId]) -> Answer<Vec<Option<Seq>>> {
        self.trouble.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.heads(sessions).await
    }

    async fn bodies(&self, session: &SessionId, ids: &[BodyId]) -> Answer<Vec<Arc<str>>> {
        fails(&self.trouble.texts_fail)?;
        self.inner.bodies(session, ids).await
    }

    async fn snapshot(&self, session: &SessionId) -> Answer<Option<Snapshot>> {
        self.inner.snapshot(session).await
    }

    async fn keep_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Answer<()> {
        self.inner.keep_snapshot(session, snapshot).await
    }

    async fn list(&self, query: &Query) -> Answer<Page> {
        self.inner.list(query).await
    }

    async fn owing(&self) -> Answer<Vec<(SessionId, Owes)>> {
        self.inner.owing().await
    }

    async fn fork(&self, fork: Fork) -> Answer<()> {
        self.inner.fork(fork).await
    }

    async fn delete(&self, session: &SessionId) -> Answer<()> {
        self.inner.delete(session).await
    }

    async fn check(&self) -> Answer<Report> {
        self.inner.check().await
    }

    async fn close(&self) -> Answer<()> {
        self.inner.close().await
    }
}
