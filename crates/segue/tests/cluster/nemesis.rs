//! Disturbs the cluster, one thing at a time. Between two disturbances the clients must make progress: that is also the
//! test that the cluster recovers by itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::nodes::Cluster;
use crate::random::SeededRandom;

/// Answers between two disturbances.
const ANSWERS_BETWEEN: usize = 12;
/// Answers while a node is gone, before it comes back.
const ANSWERS_WHILE_GONE: usize = 3;
/// Longest time in which the cluster must make that progress.
const PROGRESS_TIME_MAX: Duration = Duration::from_secs(90);

/// What was done, and how often.
pub(crate) type Disturbances = BTreeMap<&'static str, usize>;

pub(crate) fn run_nemesis(cluster: &Cluster, rounds: usize, mut random: SeededRandom) -> Disturbances {
    let mut done = Disturbances::new();
    wait_for_answers(cluster, ANSWERS_BETWEEN, "at the start");
    for round in 0..rounds {
        let node = random.below(cluster.ports().len());
        // The first rounds do each thing once.
        let kind = if round < 5 { round } else { random.below(5) };
        let name = match kind {
            0 => {
                cluster.kill(node);
                wait_for_answers(cluster, ANSWERS_WHILE_GONE, "while a node is dead");
                cluster.restart(node);
                "kills"
            }
            1 => {
                cluster.signal(node, "-STOP");
                wait_until_abandoned(cluster, node);
                // Its sessions are taken over meanwhile.
                wait_for_answers(cluster, ANSWERS_WHILE_GONE, "while a node is paused");
                cluster.signal(node, "-CONT");
                "pauses"
            }
            2 => {
                cluster.database.lock().expect("nobody panicked").restart();
                "database restarts"
            }
            3 => {
                let _ = cluster.run_sql(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE application_name LIKE 'segue%' AND pid <> pg_backend_pid()",
                );
                "cut connections"
            }
            _ => {
                cluster.stop_gracefully(node);
                wait_for_answers(cluster, ANSWERS_WHILE_GONE, "while a node is stopped");
                cluster.restart(node);
                "rolling restarts"
            }
        };
        *done.entry(name).or_default() += 1;
        wait_for_answers(cluster, ANSWERS_BETWEEN, name);
    }
    done
}

/// Kills the primary of the database again and again. Returns how long no client got an answer, at most, each time.
pub(crate) fn kill_primaries(cluster: &Cluster, rounds: usize) -> Disturbances {
    let mut done = Disturbances::new();
    wait_for_answers(cluster, ANSWERS_BETWEEN, "at the start");
    for _ in 0..rounds {
        cluster.database.lock().expect("nobody panicked").kill_primary();
        let killed = Instant::now();
        // Calls that were in flight cannot be recorded before another server is the primary.
        wait_for_answers(cluster, 1, "after the primary was killed");
        println!("the first answer came {:.1} s after the primary was killed", killed.elapsed().as_secs_f64());
        wait_for_answers(cluster, ANSWERS_BETWEEN, "with one server less");
        cluster.database.lock().expect("nobody panicked").repair();
        wait_for_answers(cluster, ANSWERS_BETWEEN, "with all servers");
        *done.entry("killed primaries").or_default() += 1;
    }
    done
}

/// Waits until clients got some more answers.
fn wait_for_answers(cluster: &Cluster, count: usize, what: &str) {
    let (wanted, deadline) = (cluster.answered() + count, Instant::now() + PROGRESS_TIME_MAX);
    while cluster.answered() < wanted {
        assert!(Instant::now() < deadline, "no progress: {what}; {} of {wanted}", cluster.answered());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the leases of a node that is paused have expired.
fn wait_until_abandoned(cluster: &Cluster, node: usize) {
    let deadline = Instant::now() + PROGRESS_TIME_MAX;
    let live = format!(
        "SELECT count(*) FROM segue_nodes WHERE address = 'http://127.0.0.1:{}'
         AND expires_at > extract(epoch FROM clock_timestamp()) * 1000",
        cluster.ports()[node]
    );
    while cluster.run_sql(&live) != "0" {
        assert!(Instant::now() < deadline, "a paused node keeps its leases");
        std::thread::sleep(Duration::from_millis(100));
    }
}
