//! Simulates sessions that talk to each other: several engines on one store, children, claims, a workspace, and tool runs
//! that wait for approval, while processes crash and disks fail. At the end the journal of each session is checked.
//!
//! In a part of the runs leases expire. Then processes are also cut off from the store, longer than their leases last, and
//! write when they come back; their clocks differ, and the store's clock jumps.
//!
//! Each turn of a *boss* requests the claim `execute`, starts children, and waits for their results; then it stores a
//! lesson, releases the claim and replies. A child, a *worker*, runs a tool that needs approval, and reports a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use segue_core::decide::OperatorCommand;
use segue_core::event::{
    AskOutcome, CallRequest, ChildSessionOutcome, Event, RecordedEvent, RetryDecision, TurnOutcome,
};
use segue_core::flow::{
    DynFlow, FlowContext, FlowSpec, FlowStep, FlowToolApprovalPolicy, FlowToolDeclaration, SpawnChildSessionRequest,
    UnknownOutcomePolicy,
};
use segue_core::ids::{Seq, SessionId, ToolRunId};
use segue_core::prompt::{CallFailure, CallFailureKind, ModelToolSpec, ToolCall};
use segue_core::tool::ToolResult;
use segue_engine::clock::{Clock, PausableTokioClock};
use segue_engine::random::RandomSource;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionResumePolicy};
use segue_flows::workspace::WorkspaceFlow;
use segue_flows::workspace::requests::{LessonToAdd, WorkspaceSessionRequest, workspace_session};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelDescription, ModelRegistry, ModelRequest, ReplyChunk, ReplyChunkStream,
    ReplyFinish,
};
use segue_store::memory::InMemoryStoreDisk;
use segue_store::{PendingWorkStatus, SessionQuery, StoreClock};
use segue_testkit::{ClosureFlow, WordCounter};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::seeded_random::SeededRandom;
use crate::store::{SimAppendFault, SimStore, StoreFaults};
use crate::world::SimWorld;

const WORKSPACE: &str = "shop~workspace";
/// How long everybody waits for each other. Longer than any run, so that no wait expires.
const WAIT_MS: u64 = 24 * 3_600_000;
/// How often, and at what interval, to check at the end whether all sessions rest.
const REST_CHECKS_MAX: u32 = 2_000;
const REST_CHECK_MS: u64 = 5_000;
/// How long a lease lasts, where leases expire.
const LEASE_MS: u64 = 800;
/// By how much the clocks of two processes differ at most.
const CLOCK_SKEW_MS_MAX: u64 = 30_000;

/// Runs a seed and checks the result. Returns how many leases were taken from a process that was alive.
pub(crate) fn simulate_exchange(seed: u64) -> u64 {
    let mut random = SeededRandom::new(seed);
    let plan = ExchangePlan::random(&mut random);
    let world = Arc::new(match plan.leases {
        SimLeases::LastAsLongAsProcesses => SimWorld::new(),
        SimLeases::Expire => SimWorld::with_disk(InMemoryStoreDisk::with_expiring_leases(LEASE_MS)),
    });
    let mut accepted = BTreeMap::new();
    let mut processes = plan.processes;
    let mut ended = false;
    while !ended {
        processes = processes.saturating_sub(1);
        ended = run_period(&world, &plan, &mut random, processes == 0, &mut accepted);
    }
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let clock = PausableTokioClock::starting_at(world.observations().now);
        let faultless = ExchangePlan { faults: StoreFaults::default(), ..plan };
        let (engine, _) = start_engine(&world, &faultless, clock, &mut random).await;
        check_journals(&engine, &accepted).await;
        engine.shutdown().await;
    });
    world.observations().lost_leases
}

/// How a run goes, apart from what is drawn on the way.
#[derive(Debug, Clone)]
struct ExchangePlan {
    bosses: u64,
    engines: u64,
    processes: u64,
    model_failures_percent: u64,
    leases: SimLeases,
    faults: StoreFaults,
}

/// Whether leases expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimLeases {
    LastAsLongAsProcesses,
    Expire,
}

impl ExchangePlan {
    fn random(random: &mut SeededRandom) -> Self {
        let kinds =
            [SimAppendFault::Before, SimAppendFault::After, SimAppendFault::DeathBefore, SimAppendFault::DeathAfter];
        let count = random.below(5);
        let appends = (0..count).map(|_| (random.between(1, 150), *random.pick(&kinds))).collect();
        let faults = StoreFaults {
            appends,
            other_failures_percent: *random.pick(&[0, 0, 2]),
            ms_max: *random.pick(&[0, 0, 5, 40]),
        };
        Self {
            bosses: random.between(1, 4),
            engines: random.between(1, 3),
            processes: random.between(1, 3),
            model_failures_percent: *random.pick(&[0, 0, 15]),
            leases: *random.pick(&[SimLeases::LastAsLongAsProcesses, SimLeases::Expire]),
            faults,
        }
    }
}

fn boss_flow() -> Arc<dyn DynFlow> {
    let mut spec = FlowSpec::new("boss", "claims, delegates, learns");
    spec.child_flows.insert("worker".into());
    let react = |view: &FlowContext<'_, ()>, event: &RecordedEvent| {
        let own_name = view.session.id.clone().unwrap_or_else(|| "none".into());
        let workspace = workspace_session(&own_name, "shop").expect("the name is valid");
        match &event.event {
            Event::TurnStarted { .. } => {
                vec![FlowStep::Claim { workspace, name: "execute".to_owned(), wait_ms: WAIT_MS }]
            }
            Event::AskEnded { outcome: AskOutcome::Answered { body }, .. } if body.get("name").is_some() => {
                let turn = view.session.current_turn.as_ref().expect("claims are requested in turns");
                let text = view.read_text(turn.messages[0].text);
                text.split_whitespace().map(|key| FlowStep::Spawn(worker_request(key))).collect()
            }
            Event::ChildEnded { .. } if view.session.current_turn.is_some() => {
                if !view.session.open_children.is_empty() {
                    return Vec::new();
                }
                let turn = view.session.current_turn.as_ref().expect("it was checked").id;
                let lesson = LessonToAdd {
                    agent: own_name.to_string(),
                    title: format!("{own_name} {turn}"),
                    text: "wait for everybody".to_owned(),
                };
                vec![WorkspaceSessionRequest::LessonAdd(lesson).into_step(workspace, WAIT_MS)]
            }
            Event::AskEnded { outcome: AskOutcome::Answered { .. }, .. } => vec![
                FlowStep::ReleaseClaim { reason: "the turn is done".to_owned() },
                FlowStep::EndTurn(TurnOutcome::Done),
            ],
            Event::AskEnded { outcome, .. } if view.session.current_turn.is_some() => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: format!("{outcome:?}") })]
            }
            _ => Vec::new(),
        }
    };
    Arc::new(ClosureFlow::new(spec, react))
}

fn worker_request(key: &str) -> SpawnChildSessionRequest {
    SpawnChildSessionRequest {
        flow: "worker".into(),
        key: key.to_owned(),
        title: None,
        settings: Value::Null,
        message: key.to_owned(),
        wait_ms: WAIT_MS,
        allotment: None,
    }
}

fn worker_flow() -> Arc<dyn DynFlow> {
    let tool =
        ModelToolSpec { name: "build".into(), description: "builds".into(), parameters: json!({"type": "object"}) };
    let tool = FlowToolDeclaration {
        approval: FlowToolApprovalPolicy::Required,
        unknown_outcome: UnknownOutcomePolicy::Retry,
        ..FlowToolDeclaration::for_host(tool)
    };
    let mut role = ClosureFlow::speaker_role().with_tool("build");
    role.unknown_outcome = UnknownOutcomePolicy::Retry;
    role.retry_policy.attempts_max = 12;
    let spec = FlowSpec::new("worker", "does one thing").with_role(role).with_tool(tool);
    let react = |view: &FlowContext<'_, ()>, event: &RecordedEvent| {
        let close = |result: Value| {
            vec![
                FlowStep::SetResult(result),
                FlowStep::EndTurn(TurnOutcome::Done),
                FlowStep::CloseSession { reason: "the work is done".to_owned() },
            ]
        };
        match &event.event {
            Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
            Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
                let turn = view.session.current_turn.as_ref().expect("it works in its turn");
                close(json!({ "key": &*view.read_text(turn.messages[0].text) }))
            }
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. } => close(json!("failed")),
            _ => Vec::new(),
        }
    };
    Arc::new(ClosureFlow::new(spec, react))
}

/// Calls the tool first, and answers when it has its result. Fails at random.
#[derive(Debug)]
struct WorkerModel {
    failures_percent: u64,
    random: Mutex<SeededRandom>,
}

impl LanguageModel for WorkerModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let (delay, fails) = {
            let mut random = self.random.lock().expect("not poisoned");
            (random.below(2_000), random.chance_percent(self.failures_percent))
        };
        let has_result = request.prompt.messages.iter().any(|message| message.text().contains("built"));
        let reply = match (fails, has_result) {
            (true, _) => vec![Err(CallFailure::new(CallFailureKind::Overload, "busy"))],
            (false, true) => {
                vec![Ok(ReplyChunk::Text("done".to_owned())), Ok(ReplyChunk::Finish(ReplyFinish::default()))]
            }
            (false, false) => {
                let call = ToolCall { id: "w1".to_owned(), name: "build".into(), arguments: json!({}) };
                vec![Ok(ReplyChunk::ToolCall(call)), Ok(ReplyChunk::Finish(ReplyFinish::default()))]
            }
        };
        let wait = stream::once(tokio::time::sleep(Duration::from_millis(delay))).filter_map(|()| async { None });
        wait.chain(stream::iter(reply)).boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelBackendKind::Scripted, label: "worker".to_owned(), window_tokens: 100_000 }
    }
}

/// A tool that takes some time.
struct BuildTool(Mutex<SeededRandom>);

#[async_trait]
impl Tool for BuildTool {
    async fn run(&self, _: ToolInvocation, _: ToolRunContext) -> ToolResult {
        let ms = self.0.lock().expect("not poisoned").below(1_500);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        ToolResult::done("built")
    }
}

async fn start_engine(
    world: &Arc<SimWorld>,
    plan: &ExchangePlan,
    clock: PausableTokioClock,
    random: &mut SeededRandom,
) -> (Engine, Arc<SimStore>) {
    let store = Arc::new(SimStore::open(world, plan.faults.clone(), random.split()));
    let model = WorkerModel { failures_percent: plan.model_failures_percent, random: Mutex::new(random.split()) };
    let flows: Vec<Arc<dyn DynFlow>> = vec![boss_flow(), worker_flow(), Arc::new(WorkspaceFlow::new())];
    let base = EngineConfig::new(store.clone(), flows, ModelRegistry::from_single_model(Arc::new(model)), "worker");
    let config = EngineConfig {
        recovery: SessionResumePolicy::Immediate,
        clock: Arc::new(clock),
        random: RandomSource::from_seed(random.next_u64()),
        token_counter: Arc::new(WordCounter),
        tools: ToolRegistry::default().with_tool("build", Arc::new(BuildTool(Mutex::new(random.split())))),
        ..base
    };
    (Engine::start(config).await.expect("an engine starts"), store)
}

/// The messages that were accepted, by boss.
type AcceptedMessages = BTreeMap<SessionId, u64>;

/// Runs several engines until they are killed or, in the last period, until everything rests. Returns whether it ended
/// in peace.
fn run_period(
    world: &Arc<SimWorld>,
    plan: &ExchangePlan,
    random: &mut SeededRandom,
    is_last: bool,
    accepted: &mut AcceptedMessages,
) -> bool {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let (ended, stores) = runtime.block_on(async {
        let started_at = world.observations().now;
        let clock = PausableTokioClock::starting_at(started_at);
        let (mut engines, mut stores) = (Vec::new(), Vec::new());
        for _ in 0..plan.engines {
            let skew_ms = match plan.leases {
                SimLeases::LastAsLongAsProcesses => 0,
                SimLeases::Expire => random.below(CLOCK_SKEW_MS_MAX),
            };
            let own_clock = PausableTokioClock::starting_at(started_at.plus_ms(skew_ms));
            let (engine, store) = start_engine(world, plan, own_clock, random).await;
            engines.push(engine);
            stores.push(store);
        }
        if plan.leases == SimLeases::Expire {
            stores.iter().for_each(|store| drop(tokio::spawn(cut_off_repeatedly(store.clone(), random.split()))));
            tokio::spawn(move_store_clock(world.disk.clock(), random.split()));
        }
        let deaths = futures_util::future::select_all(stores.iter().map(|store| Box::pin(store.wait_for_death())));
        let ended = tokio::select! {
            biased;
            _ = deaths => false,
            () = act(plan, random, &engines, &stores, is_last, accepted) => is_last,
        };
        let now = clock.now().plus_ms(1);
        world.observations().now = now;
        world.observations().lost_leases += engines.iter().map(|engine| engine.lease_counts().lost).sum::<u64>();
        // The next runtime starts at the real time again, and the store's clock with it.
        world.disk.clock().advance_ms(now.0 - started_at.0);
        (ended, stores)
    });
    // Like kill -9: every task ends where it is.
    drop(runtime);
    stores.iter().for_each(|store| store.kill());
    ended
}

/// Cuts a process off from the store now and then, often longer than its leases last.
async fn cut_off_repeatedly(store: Arc<SimStore>, mut random: SeededRandom) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.below(4 * LEASE_MS))).await;
        store.pause(random.below(6 * LEASE_MS)).await;
    }
}

/// Moves the store's clock forward now and then.
async fn move_store_clock(clock: StoreClock, mut random: SeededRandom) {
    for _ in 0..random.below(4) {
        tokio::time::sleep(Duration::from_millis(random.below(4 * LEASE_MS))).await;
        clock.advance_ms(random.below(2 * LEASE_MS));
    }
}

async fn act(
    plan: &ExchangePlan,
    random: &mut SeededRandom,
    engines: &[Engine],
    stores: &[Arc<SimStore>],
    is_last: bool,
    accepted: &mut AcceptedMessages,
) {
    for number in 0..plan.bosses {
        let options = SessionOptions { session: Some(format!("boss{number}").into()), ..SessionOptions::default() };
        // It may exist, or the disk may fail; then it is opened in the next period.
        let _ = random.pick(engines).open_session(&"boss".into(), options).await;
    }
    for _ in 0..random.between(1, 6) {
        let session = SessionId::from(format!("boss{}", random.below(plan.bosses)));
        let keys: Vec<String> = (0..random.between(1, 3)).map(|number| format!("k{number}")).collect();
        let sent = random.pick(engines).send_message(&session, keys.join(" ").as_str().into()).await;
        if sent.is_ok() {
            *accepted.entry(session).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(random.below(3_000))).await;
        approve_held_runs(random.pick(engines)).await;
    }
    if !is_last {
        return;
    }
    stores.iter().for_each(|store| store.stop_faults());
    let mut busy = Vec::new();
    for _ in 0..REST_CHECKS_MAX {
        tokio::time::sleep(Duration::from_millis(REST_CHECK_MS)).await;
        let approved = approve_held_runs(random.pick(engines)).await;
        wake_quarantined_sessions(random.pick(engines)).await;
        busy = busy_sessions(&engines[0]).await;
        if busy.is_empty() && approved == 0 {
            for engine in engines {
                engine.shutdown().await;
            }
            return;
        }
    }
    panic!("these sessions never rest: {busy:?}");
}

async fn all_sessions(engine: &Engine) -> Vec<SessionId> {
    let page = engine.list_sessions(&SessionQuery::newest(10_000)).await;
    page.map(|page| page.entries.into_iter().map(|entry| entry.session).collect()).unwrap_or_default()
}

/// Approves the tool runs that wait for it. Returns how many there were.
async fn approve_held_runs(engine: &Engine) -> usize {
    let mut approved = 0;
    for session in all_sessions(engine).await {
        let Ok((_, state)) = engine.load_session(&session).await else { continue };
        for run in state.session.held_tool_runs.keys() {
            let approve = OperatorCommand::Approve { run: *run, arguments: None, remember: false, by: None };
            // Another process may have ended the run, or the disk fails; then it is tried again.
            let _ = engine.apply_command(&session, approve).await;
            approved += 1;
        }
    }
    approved
}

/// Does what a person does about a session that was taken over too often: asks something of it. The command is refused,
/// but the process that received it resumes the session.
pub(crate) async fn wake_quarantined_sessions(engine: &Engine) {
    let page = engine.list_sessions(&SessionQuery::newest(10_000)).await.expect("the disk can be read");
    for entry in page.entries.iter().filter(|entry| entry.is_quarantined) {
        let unknown_run = OperatorCommand::Deny { run: ToolRunId(u32::MAX), reason: String::new() };
        let denied = engine.apply_command(&entry.session, unknown_run).await;
        assert!(denied.is_err(), "{} has no such run", entry.session);
    }
}

async fn busy_sessions(engine: &Engine) -> Vec<String> {
    let page = engine.list_sessions(&SessionQuery::newest(10_000)).await.expect("the disk can be read");
    let mut busy = Vec::new();
    for entry in page.entries {
        let (_, state) = engine.load_session(&entry.session).await.expect("a session can be loaded");
        let session = state.session;
        let is_waiting = session.current_turn.is_some() || !session.open_children.is_empty() || session.claim.is_some();
        if entry.summary.pending_work == PendingWorkStatus::Now || is_waiting || !session.is_idle() {
            busy.push(entry.session.to_string());
        }
    }
    busy
}

async fn journal(engine: &Engine, session: &SessionId) -> Vec<RecordedEvent> {
    engine.read_events(session, Seq(0), usize::MAX).await.expect("a journal can be read")
}

/// Checks the journal of every session against what was promised to others.
async fn check_journals(engine: &Engine, accepted: &AcceptedMessages) {
    let mut journals = BTreeMap::new();
    for session in all_sessions(engine).await {
        let events: Vec<Event> = journal(engine, &session).await.into_iter().map(|recorded| recorded.event).collect();
        journals.insert(session, events);
    }
    for (session, events) in journals.iter().filter(|(_, events)| flow_of(events) == "boss") {
        check_boss(session, events, &journals, accepted.get(session).copied().unwrap_or_default());
    }
    for (session, events) in journals.iter().filter(|(_, events)| flow_of(events) == "worker") {
        check_worker(session, events);
    }
    if let Some(events) = journals.get(&SessionId::from(WORKSPACE)) {
        check_workspace(events, &journals);
    }
}

fn flow_of(events: &[Event]) -> String {
    match events.first() {
        Some(Event::SessionOpened(opened)) => opened.flow.to_string(),
        other => panic!("a journal begins with {other:?}"),
    }
}

fn check_boss(session: &SessionId, events: &[Event], journals: &BTreeMap<SessionId, Vec<Event>>, accepted: u64) {
    let mut turns = BTreeMap::new();
    let mut messages = 0;
    let mut children = BTreeMap::new();
    let mut results = BTreeMap::new();
    for event in events {
        match event {
            Event::UserMessageReceived(_) => messages += 1,
            Event::TurnStarted { turn, .. } => drop(turns.insert(*turn, None)),
            Event::TurnEnded { turn, outcome } => {
                let earlier = turns.insert(*turn, Some(outcome.clone()));
                assert_eq!(earlier, Some(None), "{session}: {turn} ended twice or never began");
            }
            Event::ChildSpawned(spawned) => {
                let earlier = children.insert(spawned.child, (**spawned).clone());
                assert_eq!(earlier, None, "{session} started a child twice");
            }
            Event::ChildEnded { child, outcome, .. } => {
                let earlier = results.insert(*child, outcome.clone());
                assert_eq!(earlier, None, "{session}: {child} ended twice");
            }
            _ => {}
        }
    }
    assert!(messages >= accepted, "{session} lost a message: {messages} of {accepted}");
    for (turn, outcome) in &turns {
        assert_eq!(*outcome, Some(TurnOutcome::Done), "{session}: {turn}");
    }
    for (child, spawned) in &children {
        let outcome = results.get(child).unwrap_or_else(|| panic!("{session}: {child} never ended"));
        let ChildSessionOutcome::Done { result } = outcome else { panic!("{session}: {child} ended as {outcome:?}") };
        assert!(*result == json!({ "key": spawned.key }) || *result == json!("failed"), "{session}: {child}: {result}");
        let events = journals.get(&spawned.session).unwrap_or_else(|| panic!("{} does not exist", spawned.session));
        assert_eq!(flow_of(events), "worker");
        let reported = events.iter().filter(|event| matches!(event, Event::ResultReported)).count();
        assert_eq!(reported, 1, "{} reported {reported} times", spawned.session);
    }
}

/// Checks that no call was answered and no tool run ended twice, whichever process did the work.
fn check_worker(session: &SessionId, events: &[Event]) {
    let (mut answered, mut finished) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            Event::CallAnswered(answer) => {
                assert!(answered.insert(answer.call), "{session}: {} was answered twice", answer.call);
            }
            Event::ToolRunEnded { run, .. } => assert!(finished.insert(*run), "{session}: {run} ended twice"),
            _ => {}
        }
    }
}

/// Checks that the claim had one holder at a time, in the order of requests, and that each lesson was stored once.
fn check_workspace(events: &[Event], journals: &BTreeMap<SessionId, Vec<Event>>) {
    let mut holder: Option<Value> = None;
    let mut queue: Vec<Value> = Vec::new();
    let mut lessons = BTreeSet::new();
    for event in events {
        let Event::FlowFactRecorded { kind, value } = event else { continue };
        match kind.as_str() {
            "claim_queued" => queue.push(value["by"].clone()),
            "claim_withdrawn" => queue.retain(|waiting| *waiting != value["by"]),
            "claim_granted" => {
                assert_eq!(holder, None, "the claim has two holders");
                if queue.contains(&value["to"]) {
                    assert_eq!(queue.remove(0), value["to"], "the claim was not granted in order");
                } else {
                    assert!(queue.is_empty(), "somebody jumped the queue");
                }
                holder = Some(value["to"].clone());
            }
            "claim_freed" => assert_eq!(holder.take(), Some(value["from"].clone())),
            "lesson_stored" => {
                assert!(lessons.insert(value["title"].to_string()), "a lesson was stored twice: {value}")
            }
            other => panic!("unexpected fact {other}"),
        }
    }
    assert_eq!((holder, queue), (None, Vec::new()), "the claim is free at the end");
    let bosses = journals.values().filter(|events| flow_of(events) == "boss");
    let turns = bosses.flatten().filter(|event| matches!(event, Event::TurnEnded { .. })).count();
    assert_eq!(lessons.len(), turns, "every turn taught one lesson");
}
