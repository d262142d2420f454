//! Processes live and die on one disk until everything has come to rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::{OperatorCommand, UnknownCallResolution};
use segue_core::ids::{CallId, SessionId};
use segue_engine::clock::{Clock, TokioClock};
use segue_engine::random::RandomSource;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, Error, ModelAssignment, SessionOptions};
use segue_models::{ModelCard, ModelRegistry, TokenPrice};
use segue_store::{PendingWork, SessionQuery};
use segue_testkit::WordCounter;
use tokio::runtime::Builder;

use crate::actions::{SimClient, run_action};
use crate::flows::tuned_flow;
use crate::model::SimModel;
use crate::plan::{ProcessEnd, ProcessPlan, SimPlan};
use crate::seeded_random::SeededRandom;
use crate::store::SimStore;
use crate::tool::SimTool;
use crate::world::SimWorld;

/// How long, in the end, we wait for everything to come to rest: looks, and the time between two.
const LOOKS_MAX: u32 = 1_500;
const LOOK_MS: u64 = 5_000;

/// Plays a plan to its end.
pub fn run_plan(plan: &SimPlan) -> Arc<SimWorld> {
    let world = Arc::new(SimWorld::new());
    let mut number = 0;
    for (place, life) in plan.processes.iter().enumerate() {
        number += 1;
        let is_last = place + 1 == plan.processes.len();
        let mut died = live(&world, plan, life, number, is_last);
        // Whoever dies in the last life is brought back, until there is nothing left to die of.
        let bare = ProcessPlan { actions: Vec::new(), ..life.clone() };
        while is_last && died {
            number += 1;
            died = live(&world, plan, &bare, number, is_last);
        }
    }
    world
}

/// One process, from its start to its end. Says whether it died of a commit.
fn live(world: &Arc<SimWorld>, plan: &SimPlan, life: &ProcessPlan, number: u64, is_last: bool) -> bool {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let mut dice = SeededRandom::new(plan.seed.wrapping_add(number << 40));
    {
        let mut notes = world.observations();
        notes.process = number;
        notes.pending.clear();
        notes.listeners.iter_mut().for_each(|heard| heard.is_listening = false);
    }
    let (died, stores) = runtime.block_on(async {
        let clock = TokioClock::starting_at(world.observations().now);
        let (engine, store) = start(world, plan, clock, &mut dice).await;
        let rival = if life.has_rival { Some(start(world, plan, clock, &mut dice).await) } else { None };
        let hand =
            SimClient { world: world.clone(), first: engine, rival: rival.as_ref().map(|(rival, _)| rival.clone()) };
        let stores: Vec<Arc<SimStore>> = [Some(store), rival.map(|(_, store)| store)].into_iter().flatten().collect();
        let rival_death = async {
            match stores.get(1) {
                Some(store) => store.wait_for_death().await,
                None => std::future::pending().await,
            }
        };
        let died = tokio::select! {
            biased;
            () = stores[0].wait_for_death() => true,
            () = rival_death => true,
            () = spend(&hand, &stores, plan, life, is_last) => false,
        };
        world.observations().now = clock.now().plus_ms(1);
        (died, stores)
    });
    // As kill -9 would have it: every task ends where it stands.
    drop(runtime);
    stores.iter().for_each(|store| store.kill());
    died
}

async fn start(
    world: &Arc<SimWorld>,
    plan: &SimPlan,
    clock: TokioClock,
    dice: &mut SeededRandom,
) -> (Engine, Arc<SimStore>) {
    let store = Arc::new(SimStore::open(world, plan.store_faults.clone(), dice.split()));
    let model = Arc::new(SimModel::new(world, plan.model_behavior, dice.split(), clock));
    let price = TokenPrice::flat(3_000_000, 15_000_000, 300_000);
    let card = ModelCard { window_tokens: plan.model_behavior.window_tokens, price: Some(price) };
    let models = ["sim", "ant", "bee"]
        .into_iter()
        .fold(ModelRegistry::new(), |models, name| models.with_card(name, model.clone(), card));
    let models = Arc::new(models.with_model("cat", model));
    let setup = EngineConfig {
        recovery: segue_engine::RecoveryPolicy::Immediate,
        store: store.clone(),
        flows: vec![tuned_flow(plan.flow, SeededRandom::new(plan.seed))],
        model_assignment: ModelAssignment::new(models.clone(), "sim".into()),
        models,
        tools: ToolRegistry::default().with_tool("look", Arc::new(SimTool::new(world, dice.split()))),
        model_limits: BTreeMap::from([(
            "sim".into(),
            ModelCallLimits { concurrent_calls_max: plan.calls_max, ..Default::default() },
        )]),
        default_settings: BTreeMap::new(),
        clock: Arc::new(clock),
        random: RandomSource::from_seed(dice.next_u64()),
        token_counter: Arc::new(WordCounter),
    };
    (Engine::start(setup).await.expect("an engine starts"), store)
}

async fn spend(hand: &SimClient, stores: &[Arc<SimStore>], plan: &SimPlan, life: &ProcessPlan, is_last: bool) {
    open_sessions(hand, plan).await;
    let mut tasks = Vec::new();
    for (place, (after, deed)) in life.actions.iter().enumerate() {
        let (hand, deed, after) = (hand.clone(), deed.clone(), Duration::from_millis(*after));
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            run_action(hand, deed, place as u64).await;
        }));
    }
    tokio::time::sleep(Duration::from_millis(life.ms)).await;
    if is_last {
        stores.iter().for_each(|store| store.stop_faults());
        if let Some(rival) = &hand.rival {
            rival.shutdown().await;
        }
        open_sessions(hand, plan).await;
        come_to_rest(hand).await;
    }
    // What is held up by a failing disk or by a rival is recorded in the end only if there is time enough.
    if is_last || (hand.rival.is_none() && plan.store_faults.has_only_delays()) {
        let mut notes = hand.world.observations();
        let life = notes.process;
        notes.fault_free_until.insert(life, hand.first.now());
    }
    if is_last || life.end == ProcessEnd::Shutdown {
        hand.first.shutdown().await;
    }
}

async fn open_sessions(hand: &SimClient, plan: &SimPlan) {
    for place in 0..plan.sessions {
        let session = SessionId::from(format!("s{place}"));
        if hand.world.observations().deleted.contains(&session) {
            continue;
        }
        let (busy, settings) = (plan.busy, plan.settings.clone());
        let opening = SessionOptions {
            session: Some(session.clone()),
            mid_turn_policy: busy,
            settings,
            ..SessionOptions::default()
        };
        match hand.first.open_session(&plan.flow.into(), opening).await {
            Ok(_) | Err(Error::SessionExists(_)) => {
                hand.world.observations().sessions.insert(session);
            }
            // It is tried again in the next life.
            Err(error) if error.is_transient() => {}
            Err(error) => hand.world.observations().unexpected_errors.push(format!("opening {session}: {error}")),
        }
    }
}

/// Waits until nobody owes anybody anything.
async fn come_to_rest(hand: &SimClient) {
    let mut restless = Vec::new();
    for _ in 0..LOOKS_MAX {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        restless = unrest(hand).await;
        if restless.is_empty() && hand.world.observations().pending.is_empty() {
            // Claims are given back.
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            return;
        }
    }
    let pending = hand.world.observations().pending.clone();
    hand.world
        .observations()
        .unexpected_errors
        .push(format!("it never comes to rest: {restless:?}; deeds {pending:?} wait"));
}

/// What keeps the world from its rest.
async fn unrest(hand: &SimClient) -> Vec<String> {
    let page = hand.first.list_sessions(&SessionQuery::newest(usize::MAX)).await.expect("the disk can be read");
    let mut restless = Vec::new();
    for row in page.entries {
        let (session, head) = (&row.session, row.head);
        if row.summary.pending_work == PendingWork::Now {
            restless.push(format!("{session} owes something"));
            resolve(hand, session).await;
        }
        // Even the slowest listener hears the last of it.
        let notes = hand.world.observations();
        let listeners = notes.listeners.iter().filter(|heard| heard.is_listening && heard.session == *session);
        let behind = listeners.filter(|heard| heard.last_seq() != head);
        restless.extend(behind.map(|heard| format!("a listener of {session} heard {} of {head}", heard.last_seq())));
    }
    restless
}

/// Decides about calls whose end is not known, looking again after each: one that is given up may end the turn of others.
async fn resolve(hand: &SimClient, session: &SessionId) {
    while let Some(call) = held(hand, session).await {
        let how = if call.0 % 2 == 0 { UnknownCallResolution::Retry } else { UnknownCallResolution::Fail };
        let resolved = hand.first.apply_command(session, OperatorCommand::Resolve { call, resolution: how }).await;
        if let Err(error) = resolved
            && held(hand, session).await == Some(call)
        {
            hand.world
                .observations()
                .unexpected_errors
                .push(format!("{call} of {session} cannot be resolved: {error}"));
            return;
        }
    }
}

/// The first call that waits for a person's decision.
async fn held(hand: &SimClient, session: &SessionId) -> Option<CallId> {
    let (_, state) = hand.first.load_session(session).await.ok()?;
    state.session.calls_awaiting_operator().next().map(|(call, _)| *call)
}
