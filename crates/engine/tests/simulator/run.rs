//! Processes live and die on one disk until everything has come to rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::{Command, Resolution};
use segue_core::ids::{CallId, SessionId};
use segue_engine::chance::Chance;
use segue_engine::clock::{Clock, RuntimeClock};
use segue_engine::pace::ModelLimits;
use segue_engine::tools::Tools;
use segue_engine::{Casting, Engine, Error, Opening, Setup};
use segue_models::{ModelCard, Models, Price};
use segue_store::{Owes, Query};
use segue_testkit::Words;
use tokio::runtime::Builder;

use crate::deeds::{Hand, act};
use crate::dice::Dice;
use crate::flows::tuned;
use crate::model::SimModel;
use crate::plan::{End, Life, Plan};
use crate::store::SimStore;
use crate::tool::SimTool;
use crate::world::World;

/// How long, in the end, we wait for everything to come to rest: looks, and the time between two.
const LOOKS_MAX: u32 = 1_500;
const LOOK_MS: u64 = 5_000;

/// Plays a plan to its end.
pub fn play(plan: &Plan) -> Arc<World> {
    let world = Arc::new(World::new());
    let mut number = 0;
    for (place, life) in plan.lives.iter().enumerate() {
        number += 1;
        let is_last = place + 1 == plan.lives.len();
        let mut died = live(&world, plan, life, number, is_last);
        // Whoever dies in the last life is brought back, until there is nothing left to die of.
        let bare = Life { deeds: Vec::new(), ..life.clone() };
        while is_last && died {
            number += 1;
            died = live(&world, plan, &bare, number, is_last);
        }
    }
    world
}

/// One process, from its start to its end. Says whether it died of a commit.
fn live(world: &Arc<World>, plan: &Plan, life: &Life, number: u64, is_last: bool) -> bool {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let mut dice = Dice::new(plan.seed.wrapping_add(number << 40));
    {
        let mut notes = world.notes();
        notes.life = number;
        notes.pending.clear();
        notes.heard.iter_mut().for_each(|heard| heard.listens = false);
    }
    let (died, stores) = runtime.block_on(async {
        let clock = RuntimeClock::starting(world.notes().now);
        let (engine, store) = start(world, plan, clock, &mut dice).await;
        let rival = if life.rival { Some(start(world, plan, clock, &mut dice).await) } else { None };
        let hand = Hand { world: world.clone(), first: engine, rival: rival.as_ref().map(|(rival, _)| rival.clone()) };
        let stores: Vec<Arc<SimStore>> = [Some(store), rival.map(|(_, store)| store)].into_iter().flatten().collect();
        let rival_death = async {
            match stores.get(1) {
                Some(store) => store.death().await,
                None => std::future::pending().await,
            }
        };
        let died = tokio::select! {
            biased;
            () = stores[0].death() => true,
            () = rival_death => true,
            () = spend(&hand, &stores, plan, life, is_last) => false,
        };
        world.notes().now = clock.now().after(1);
        (died, stores)
    });
    // As kill -9 would have it: every task ends where it stands.
    drop(runtime);
    stores.iter().for_each(|store| store.kill());
    died
}

async fn start(world: &Arc<World>, plan: &Plan, clock: RuntimeClock, dice: &mut Dice) -> (Engine, Arc<SimStore>) {
    let store = Arc::new(SimStore::open(world, plan.trouble.clone(), dice.apart()));
    let model = Arc::new(SimModel::new(world, plan.temper, dice.apart(), clock));
    let price = Price::plain(3_000_000, 15_000_000, 300_000);
    let card = ModelCard { window_tokens: plan.temper.window_tokens, price: Some(price) };
    let models = ["sim", "ant", "bee"]
        .into_iter()
        .fold(Models::new(), |models, name| models.with_card(name, model.clone(), card));
    let models = Arc::new(models.with("cat", model));
    let setup = Setup {
        recovery: segue_engine::Recovery::Now,
        store: store.clone(),
        flows: vec![tuned(plan.flow, Dice::new(plan.seed))],
        casting: Casting::new(models.clone(), "sim".into()),
        models,
        tools: Tools::default().with("look", Arc::new(SimTool::new(world, dice.apart()))),
        model_limits: BTreeMap::from([("sim".into(), ModelLimits { calls_max: plan.calls_max, ..Default::default() })]),
        settings: BTreeMap::new(),
        clock: Arc::new(clock),
        chance: Chance::seeded(dice.roll()),
        count: Arc::new(Words),
    };
    (Engine::start(setup).await.expect("an engine starts"), store)
}

async fn spend(hand: &Hand, stores: &[Arc<SimStore>], plan: &Plan, life: &Life, is_last: bool) {
    open_sessions(hand, plan).await;
    let mut tasks = Vec::new();
    for (place, (after, deed)) in life.deeds.iter().enumerate() {
        let (hand, deed, after) = (hand.clone(), deed.clone(), Duration::from_millis(*after));
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            act(hand, deed, place as u64).await;
        }));
    }
    tokio::time::sleep(Duration::from_millis(life.ms)).await;
    if is_last {
        stores.iter().for_each(|store| store.calm_down());
        if let Some(rival) = &hand.rival {
            rival.shutdown().await;
        }
        open_sessions(hand, plan).await;
        come_to_rest(hand).await;
    }
    // What is held up by a failing disk or by a rival is recorded in the end only if there is time enough.
    if is_last || (hand.rival.is_none() && plan.trouble.is_slow_at_most()) {
        let mut notes = hand.world.notes();
        let life = notes.life;
        notes.untroubled.insert(life, hand.first.now());
    }
    if is_last || life.end == End::Shutdown {
        hand.first.shutdown().await;
    }
}

async fn open_sessions(hand: &Hand, plan: &Plan) {
    for place in 0..plan.sessions {
        let session = SessionId::from(format!("s{place}"));
        if hand.world.notes().deleted.contains(&session) {
            continue;
        }
        let (busy, settings) = (plan.busy, plan.settings.clone());
        let opening = Opening { session: Some(session.clone()), busy, settings, ..Opening::default() };
        match hand.first.open(&plan.flow.into(), opening).await {
            Ok(_) | Err(Error::SessionExists(_)) => {
                hand.world.notes().sessions.insert(session);
            }
            // It is tried again in the next life.
            Err(error) if error.is_passing() => {}
            Err(error) => hand.world.notes().wrong.push(format!("opening {session}: {error}")),
        }
    }
}

/// Waits until nobody owes anybody anything.
async fn come_to_rest(hand: &Hand) {
    let mut restless = Vec::new();
    for _ in 0..LOOKS_MAX {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        restless = unrest(hand).await;
        if restless.is_empty() && hand.world.notes().pending.is_empty() {
            // Claims are given back.
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            return;
        }
    }
    let pending = hand.world.notes().pending.clone();
    hand.world.notes().wrong.push(format!("it never comes to rest: {restless:?}; deeds {pending:?} wait"));
}

/// What keeps the world from its rest.
async fn unrest(hand: &Hand) -> Vec<String> {
    let page = hand.first.list(&Query::newest(usize::MAX)).await.expect("the disk can be read");
    let mut restless = Vec::new();
    for row in page.rows {
        let (session, head) = (&row.session, row.head);
        if row.summary.owes == Owes::Now {
            restless.push(format!("{session} owes something"));
            resolve(hand, session).await;
        }
        // Even the slowest listener hears the last of it.
        let notes = hand.world.notes();
        let listeners = notes.heard.iter().filter(|heard| heard.listens && heard.session == *session);
        let behind = listeners.filter(|heard| heard.reached() != head);
        restless.extend(behind.map(|heard| format!("a listener of {session} heard {} of {head}", heard.reached())));
    }
    restless
}

/// Decides about calls whose end is not known, looking again after each: one that is given up may end the turn of others.
async fn resolve(hand: &Hand, session: &SessionId) {
    while let Some(call) = held(hand, session).await {
        let how = if call.0 % 2 == 0 { Resolution::Retry } else { Resolution::Fail };
        let resolved = hand.first.command(session, Command::Resolve { call, how }).await;
        if let Err(error) = resolved
            && held(hand, session).await == Some(call)
        {
            hand.world.notes().wrong.push(format!("{call} of {session} cannot be resolved: {error}"));
            return;
        }
    }
}

/// The first call that waits for a person's decision.
async fn held(hand: &Hand, session: &SessionId) -> Option<CallId> {
    let (_, state) = hand.first.state(session).await.ok()?;
    state.session.held().next().map(|(call, _)| *call)
}
