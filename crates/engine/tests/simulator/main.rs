//! The whole engine, with a clock, a store, models and tools that do as the dice fall, and processes that die.
//!
//! `SEGUE_SEED=123 cargo test -p segue-engine --test simulator` plays one seed; `SEGUE_SEEDS=100000` plays so many,
//! and `SEGUE_SEEDS=2000..4000` those.

mod actions;
mod check;
mod flows;
mod memory;
mod model;
mod plan;
mod run;
mod seeded_random;
mod store;
mod tool;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use check::{check_promises, transcript};
use flows::FLOWS;
use plan::SimPlan;
use run::run_plan;
use store::SimAppendFault;

/// Seeds in an ordinary run.
const SEEDS: u64 = 2_000;

/// Faults after which it is enough.
const FAULTS_MAX: usize = 10;

/// The seeds that are asked for, or those of an ordinary run.
fn seeds() -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("`{text}` is no number of a seed"));
    if let Ok(seed) = std::env::var("SEGUE_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("SEGUE_SEEDS") {
        Ok(seeds) => match seeds.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => 0..number(&seeds),
        },
        Err(_) => 0..SEEDS,
    }
}

/// Plays a plan and checks what came of it. What is wrong with it, if anything.
fn fault(plan: &SimPlan) -> Option<String> {
    let played = catch_unwind(AssertUnwindSafe(|| check_promises(&run_plan(plan), plan)));
    let cause = played.err()?;
    let words = cause.downcast_ref::<String>().cloned();
    Some(words.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
}

#[test]
fn whatever_happens_nothing_is_lost_and_nothing_is_done_twice() {
    let faults = seeds().filter_map(|seed| Some((seed, fault(&SimPlan::random(seed))?)));
    let faults: Vec<String> = faults
        .take(FAULTS_MAX)
        .map(|(seed, fault)| {
            format!("{fault}\n  play it again: SEGUE_SEED={seed} cargo test -p segue-engine --test simulator whatever")
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_process_may_die_before_and_after_every_commit() {
    disturb(&[SimAppendFault::DeathBefore, SimAppendFault::DeathAfter]);
}

#[test]
fn every_commit_may_fail() {
    disturb(&[SimAppendFault::Before, SimAppendFault::After, SimAppendFault::Full]);
}

/// Plays quiet runs of every flow, each disturbed at every commit in turn.
fn disturb(mishaps: &[SimAppendFault]) {
    for flow in FLOWS {
        for seed in 0..3 {
            let quiet = SimPlan::without_faults(seed, flow);
            let commits = run_plan(&quiet).observations().appends;
            for commit in 1..=commits {
                for mishap in mishaps {
                    let mut plan = quiet.clone();
                    plan.store_faults.appends.insert(commit, *mishap);
                    let fault = fault(&plan);
                    assert_eq!(fault, None, "{mishap:?} at commit {commit} of the quiet run {seed} of {flow}");
                }
            }
        }
    }
}

#[test]
fn some_answers_come_when_their_turn_has_ended() {
    let runs = (0..300).map(SimPlan::random);
    let late: usize = runs.map(|plan| check::count_late_answers(&run_plan(&plan), &plan)).sum();
    assert!(late >= 10, "only {late}: what is claimed of them is hardly tried");
}

#[test]
fn the_same_seed_gives_the_same_journals() {
    for seed in 0..150 {
        let plan = SimPlan::random(seed);
        let (one, other) = (transcript(&run_plan(&plan), &plan), transcript(&run_plan(&plan), &plan));
        assert_eq!(one, other, "seed {seed}");
    }
}
