//! Three nodes on one PostgreSQL, under clients that send and follow, and under a nemesis that kills, pauses, restarts and
//! disconnects. A checker compares what the clients saw, what the model server was asked, and the journals.
//!
//! `SEGUE_CLUSTER_ROUNDS` is the number of disturbances (`cargo xtask cluster` runs more of them than a test does);
//! `SEGUE_SEED` selects the random choices. With `SEGUE_CLUSTER_URL` (`cargo xtask failover`) the nodes use a database with
//! standbys, and the only disturbance is that its primary is killed: then no call at all may be made twice.

#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "the figures of a run are read by people")]

mod checker;
mod clients;
mod database;
mod live_words;
mod migrate;
mod migrate_shared;
mod model_server;
mod nemesis;
mod nodes;
mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use checker::check_cluster;
use clients::{ClientReport, run_client, run_follower};
use database::Database;
use model_server::ModelServer;
use nemesis::{kill_primaries, run_nemesis};
use nodes::Cluster;
use random::SeededRandom;

const NODES: usize = 3;
const CLIENTS: usize = 6;
const ROUNDS_DEFAULT: usize = 5;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn every_acknowledged_message_is_answered_once_whatever_happens_to_nodes_and_database() {
    let rounds = number_from_env("SEGUE_CLUSTER_ROUNDS").map_or(ROUNDS_DEFAULT, |rounds| rounds as usize);
    let seed = number_from_env("SEGUE_SEED").unwrap_or(1);
    let started = Instant::now();
    let model = ModelServer::start();
    let database = Database::from_env().unwrap_or_else(Database::start_temporary);
    let has_standbys = database.has_standbys();
    let cluster = Arc::new(Cluster::start(NODES, &model, database));
    let (is_over, have_clients_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut clients = Vec::new();
    let mut followers = Vec::new();
    for number in 0..CLIENTS {
        let random = SeededRandom::new(seed * 1_000 + number as u64);
        let (ports, over) = (cluster.ports(), is_over.clone());
        let progress = cluster.progress();
        clients.push(std::thread::spawn(move || run_client(number, &ports, random, &over, &progress)));
        let (random, ports) = (SeededRandom::new(seed * 2_000 + number as u64), cluster.ports());
        let ended = have_clients_ended.clone();
        followers.push(std::thread::spawn(move || run_follower(number, &ports, random, &ended)));
    }
    let disturbances = if has_standbys {
        kill_primaries(&cluster, rounds)
    } else {
        run_nemesis(&cluster, rounds, SeededRandom::new(seed))
    };
    is_over.store(true, Ordering::Release);
    let clients: Vec<ClientReport> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
    have_clients_ended.store(true, Ordering::Release);
    let followed = followers.into_iter().map(|follower| follower.join().expect("a follower")).collect();
    let figures = check_cluster(&cluster, &model, &clients, followed);
    if has_standbys {
        figures.assert_no_call_was_repeated();
    }
    println!("{disturbances:?}\n{figures}, in {} s", started.elapsed().as_secs());
}
