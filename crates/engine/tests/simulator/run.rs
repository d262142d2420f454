//! Runs the processes of a plan, one after the other on one disk, until all sessions are idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::{OperatorCommand, UnknownCallOutcomeResolution};
use segue_core::ids::{CallId, SessionId};
use segue_engine::clock::{Clock, PausableTokioClock};
use segue_engine::random::RandomSource;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, Error, ModelAssignment, SessionOptions};
use segue_flows::assistant::tools::RECORDS_TOOL;
use segue_models::{ModelCard, ModelRegistry, TokenPrice};
use segue_store::{PendingWorkStatus, SessionQuery};
use segue_testkit::WordCounter;
use tokio::runtime::Builder;

use crate::actions::{SimClient, run_action};
use crate::exchange::wake_quarantined_sessions;
use crate::flows::tuned_flow;
use crate::model::SimModel;
use crate::plan::{ProcessEnd, ProcessPlan, SimPlan};
use crate::records::SimRecordsTool;
use crate::seeded_random::SeededRandom;
use crate::store::SimStore;
use crate::tool::SimTool;
use crate::world::SimWorld;

/// How often, and at what interval, to check at the end whether all sessions are idle.
const IDLE_CHECKS_MAX: u32 = 1_500;
const IDLE_CHECK_MS: u64 = 5_000;

/// Runs a plan to its end.
pub(crate) fn run_plan(plan: &SimPlan) -> Arc<SimWorld> {
    let world = Arc::new(SimWorld::new());
    let mut process_number = 0;
    for (index, process_plan) in plan.processes.iter().enumerate() {
        process_number += 1;
        let is_last = index + 1 == plan.processes.len();
        let mut crashed = run_process(&world, plan, process_plan, process_number, is_last);
        // A process that crashes at the end is restarted without actions until no fault is left.
        let without_actions = ProcessPlan { actions: Vec::new(), ..process_plan.clone() };
        while is_last && crashed {
            process_number += 1;
            crashed = run_process(&world, plan, &without_actions, process_number, is_last);
        }
    }
    world
}

/// Runs one process from its start to its end. Returns whether it crashed at a commit.
fn run_process(
    world: &Arc<SimWorld>,
    plan: &SimPlan,
    process_plan: &ProcessPlan,
    process_number: u64,
    is_last: bool,
) -> bool {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let mut random = SeededRandom::new(plan.seed.wrapping_add(process_number << 40));
    {
        let mut observations = world.observations();
        observations.process = process_number;
        observations.pending.clear();
        observations.listeners.iter_mut().for_each(|log| log.is_listening = false);
    }
    let (crashed, stores) = runtime.block_on(async {
        let clock = PausableTokioClock::starting_at(world.observations().now);
        let (engine, store) = start_engine(world, plan, clock, &mut random).await;
        let rival =
            if process_plan.has_rival { Some(start_engine(world, plan, clock, &mut random).await) } else { None };
        let client =
            SimClient { world: world.clone(), first: engine, rival: rival.as_ref().map(|(rival, _)| rival.clone()) };
        let stores: Vec<Arc<SimStore>> = [Some(store), rival.map(|(_, store)| store)].into_iter().flatten().collect();
        let rival_crash = async {
            match stores.get(1) {
                Some(store) => store.wait_for_death().await,
                None => std::future::pending().await,
            }
        };
        let crashed = tokio::select! {
            biased;
            () = stores[0].wait_for_death() => true,
            () = rival_crash => true,
            () = run_actions(&client, &stores, plan, process_plan, is_last) => false,
        };
        world.observations().now = clock.now().plus_ms(1);
        (crashed, stores)
    });
    // Like kill -9: every task ends where it is.
    drop(runtime);
    stores.iter().for_each(|store| store.kill());
    crashed
}

async fn start_engine(
    world: &Arc<SimWorld>,
    plan: &SimPlan,
    clock: PausableTokioClock,
    random: &mut SeededRandom,
) -> (Engine, Arc<SimStore>) {
    let store = Arc::new(SimStore::open(world, plan.store_faults.clone(), random.split()));
    let model = Arc::new(SimModel::new(world, plan.model_behavior, random.split(), clock));
    let price = TokenPrice::flat(3_000_000, 15_000_000, 300_000);
    let card = ModelCard { price: Some(price), ..ModelCard::unpriced(plan.model_behavior.window_tokens) };
    let models = ["sim", "ant", "bee"]
        .into_iter()
        .fold(ModelRegistry::new(), |models, name| models.with_card(name, model.clone(), card));
    let models = Arc::new(models.with_model("cat", model));
    let flows = vec![tuned_flow(plan.flow, SeededRandom::new(plan.seed))];
    let random_of_tools = random.split();
    let tools = ToolRegistry::default()
        .with_tool("look", Arc::new(SimTool::new(world, random_of_tools.clone())))
        .with_tool(RECORDS_TOOL, Arc::new(SimRecordsTool::new(world, random_of_tools)));
    let config = EngineConfig {
        recovery: segue_engine::SessionResumePolicy::Immediate,
        model_assignment: ModelAssignment::new(models.clone(), "sim".into()),
        models,
        tools,
        model_limits: BTreeMap::from([(
            "sim".into(),
            ModelCallLimits { concurrent_calls_max: plan.calls_max, ..Default::default() },
        )]),
        clock: Arc::new(clock),
        random: RandomSource::from_seed(random.next_u64()),
        token_counter: Arc::new(WordCounter),
        ..EngineConfig::new(store.clone(), flows, ModelRegistry::new(), "sim")
    };
    (Engine::start(config).await.expect("an engine starts"), store)
}

async fn run_actions(
    client: &SimClient,
    stores: &[Arc<SimStore>],
    plan: &SimPlan,
    process_plan: &ProcessPlan,
    is_last: bool,
) {
    open_sessions(client, plan).await;
    let mut tasks = Vec::new();
    for (index, (after, action)) in process_plan.actions.iter().enumerate() {
        let (client, action, after) = (client.clone(), action.clone(), Duration::from_millis(*after));
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            run_action(client, action, index as u64).await;
        }));
    }
    tokio::time::sleep(Duration::from_millis(process_plan.ms)).await;
    if is_last {
        stores.iter().for_each(|store| store.stop_faults());
        if let Some(rival) = &client.rival {
            rival.shutdown().await;
        }
        open_sessions(client, plan).await;
        wait_until_idle(client).await;
    }
    // With a failing disk or a second process, results are recorded in time only at the end.
    if is_last || (client.rival.is_none() && plan.store_faults.has_only_delays()) {
        let mut observations = client.world.observations();
        let process = observations.process;
        observations.fault_free_until.insert(process, client.first.now());
    }
    if is_last || process_plan.end == ProcessEnd::Shutdown {
        client.first.shutdown().await;
    }
}

async fn open_sessions(client: &SimClient, plan: &SimPlan) {
    for index in 0..plan.sessions {
        let session = SessionId::from(format!("s{index}"));
        if client.world.observations().deleted.contains(&session) {
            continue;
        }
        let (mid_turn_policy, settings) = (plan.mid_turn_policy, plan.settings.clone());
        let options =
            SessionOptions { session: Some(session.clone()), mid_turn_policy, settings, ..SessionOptions::default() };
        match client.first.open_session(&plan.flow.into(), options).await {
            Ok(_) | Err(Error::SessionExists(_)) => {
                client.world.observations().sessions.insert(session);
            }
            // It is opened in the next process.
            Err(error) if error.is_transient() => {}
            Err(error) => client.world.observations().unexpected_errors.push(format!("opening {session}: {error}")),
        }
    }
}

/// Waits until nothing is pending in any session.
async fn wait_until_idle(client: &SimClient) {
    let mut pending_work = Vec::new();
    for _ in 0..IDLE_CHECKS_MAX {
        tokio::time::sleep(Duration::from_millis(IDLE_CHECK_MS)).await;
        pending_work = list_pending_work(client).await;
        if pending_work.is_empty() && client.world.observations().pending.is_empty() {
            // Leases are released.
            tokio::time::sleep(Duration::from_millis(IDLE_CHECK_MS)).await;
            return;
        }
    }
    let pending = client.world.observations().pending.clone();
    client
        .world
        .observations()
        .unexpected_errors
        .push(format!("the sessions never become idle: {pending_work:?}; actions {pending:?} have not ended"));
}

/// Returns what is still pending.
async fn list_pending_work(client: &SimClient) -> Vec<String> {
    // Several processes in a row may have died before any of them made progress.
    wake_quarantined_sessions(&client.first).await;
    let page = client.first.list_sessions(&SessionQuery::newest(usize::MAX)).await.expect("the disk can be read");
    let mut pending_work = Vec::new();
    for entry in page.entries {
        let (session, head) = (&entry.session, entry.head);
        if entry.summary.pending_work == PendingWorkStatus::Now {
            pending_work.push(format!("{session} has pending work"));
        }
        // Such a session is at rest, so nothing but a decision continues it.
        if call_awaiting_operator(client, session).await.is_some() {
            pending_work.push(format!("{session} waits for an operator"));
            resolve_unknown_calls(client, session).await;
        }
        // Even the slowest subscriber gets the last event.
        let observations = client.world.observations();
        let listeners = observations.listeners.iter().filter(|log| log.is_listening && log.session == *session);
        let lagging = listeners.filter(|log| log.last_seq() != head);
        pending_work.extend(lagging.map(|log| format!("a listener of {session} is at {} of {head}", log.last_seq())));
    }
    pending_work
}

/// Resolves calls with an unknown outcome one by one: giving one up may end the turn of others.
async fn resolve_unknown_calls(client: &SimClient, session: &SessionId) {
    while let Some(call) = call_awaiting_operator(client, session).await {
        let resolution =
            if call.0 % 2 == 0 { UnknownCallOutcomeResolution::Retry } else { UnknownCallOutcomeResolution::Fail };
        let resolved = client.first.apply_command(session, OperatorCommand::Resolve { call, resolution }).await;
        if let Err(error) = resolved
            && call_awaiting_operator(client, session).await == Some(call)
        {
            client
                .world
                .observations()
                .unexpected_errors
                .push(format!("{call} of {session} cannot be resolved: {error}"));
            return;
        }
    }
}

/// Returns the first call that awaits an operator.
async fn call_awaiting_operator(client: &SimClient, session: &SessionId) -> Option<CallId> {
    let (_, state) = client.first.load_session(session).await.ok()?;
    state.session.calls_awaiting_operator().next().map(|(call, _)| *call)
}
