//! Simulates the whole engine with a simulated clock, store, models and tools that behave at random, and processes that
//! crash. Everything follows from a seed.
//!
//! `SEGUE_SEED=123 cargo test -p segue-engine --test simulator` runs one seed; `SEGUE_SEEDS=100000` runs that many, and
//! `SEGUE_SEEDS=2000..4000` that range.

mod actions;
mod assistant;
mod check;
mod check_records;
mod exchange;
mod flows;
mod memory;
mod model;
mod plan;
mod records;
mod run;
mod seeded_random;
mod store;
mod tool;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use assistant::ASSISTANT_FLOW;
use check::{check_promises, transcript};
use flows::FLOWS;
use plan::SimPlan;
use run::run_plan;
use store::SimAppendFault;

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 2_000;

/// Number of seeds in an ordinary run of sessions that talk to each other, each of which takes longer.
const EXCHANGE_SEEDS: u64 = 500;

/// Number of seeds in an ordinary run of the assistant, each of which makes many calls.
const ASSISTANT_SEEDS: u64 = 200;

/// Failures after which the run ends.
const FAILURES_MAX: usize = 10;

/// Returns the seeds from the environment, or those of an ordinary run.
fn seeds(ordinary: u64) -> Range<u64> {
    let number =
        |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("`{text}` is not a seed; expected a number"));
    if let Ok(seed) = std::env::var("SEGUE_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("SEGUE_SEEDS") {
        Ok(seeds) => match seeds.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => 0..number(&seeds),
        },
        Err(_) => 0..ordinary,
    }
}

/// Runs a plan and checks the result. Returns the failed check, if any.
fn find_failure(plan: &SimPlan) -> Option<String> {
    let result = catch_unwind(AssertUnwindSafe(|| check_promises(&run_plan(plan), plan)));
    let cause = result.err()?;
    let message = cause.downcast_ref::<String>().cloned();
    Some(message.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
}

#[test]
fn nothing_is_lost_and_nothing_is_done_twice() {
    run_seeds(seeds(SEEDS), SimPlan::random, "nothing_is_lost");
}

#[test]
fn assistant_changes_records_once_and_knows_what_became_of_each_write() {
    run_seeds(seeds(ASSISTANT_SEEDS), |seed| SimPlan::random_for(ASSISTANT_FLOW, seed), "assistant_changes_records");
}

/// Runs the plans of seeds; `test` is how to name the test that runs one of them.
fn run_seeds(seeds: Range<u64>, plan: impl Fn(u64) -> SimPlan, test: &str) {
    let failures = seeds.filter_map(|seed| Some((seed, find_failure(&plan(seed))?)));
    let failures: Vec<String> = failures
        .take(FAILURES_MAX)
        .map(|(seed, failure)| {
            format!("{failure}\n  reproduce with: SEGUE_SEED={seed} cargo test -p segue-engine --test simulator {test}")
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sessions_that_talk_lose_nothing_and_share_claims_in_order() {
    let failures = seeds(EXCHANGE_SEEDS).filter_map(|seed| {
        let cause = catch_unwind(|| exchange::simulate_exchange(seed)).err()?;
        let message = cause.downcast_ref::<String>().cloned();
        let message = message.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Some(format!(
            "{message}\n  reproduce with: SEGUE_SEED={seed} cargo test -p segue-engine --test simulator sessions_that_talk"
        ))
    });
    let failures: Vec<String> = failures.take(FAILURES_MAX).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_process_may_crash_before_and_after_every_commit() {
    inject_at_every_commit(&[SimAppendFault::DeathBefore, SimAppendFault::DeathAfter]);
}

#[test]
fn every_commit_may_fail() {
    inject_at_every_commit(&[SimAppendFault::Before, SimAppendFault::After, SimAppendFault::Full]);
}

/// Runs plans without faults for every flow, each with a fault at every commit in turn.
fn inject_at_every_commit(faults: &[SimAppendFault]) {
    // A run of the assistant makes many commits.
    for (flow, seeds) in FLOWS.map(|flow| (flow, 0..3)).into_iter().chain([(ASSISTANT_FLOW, 0..1)]) {
        for seed in seeds {
            let base_plan = SimPlan::without_faults(seed, flow);
            let commits = run_plan(&base_plan).observations().appends;
            for commit in 1..=commits {
                for fault in faults {
                    let mut plan = base_plan.clone();
                    plan.store_faults.appends.insert(commit, *fault);
                    let failure = find_failure(&plan);
                    assert_eq!(failure, None, "{fault:?} at commit {commit} of seed {seed} of {flow}");
                }
            }
        }
    }
}

#[test]
fn seeds_that_failed_once_pass() {
    let plans = [5_000_804, 5_002_082, 5_002_083].map(SimPlan::random);
    let plans_of_assistant = [29, 59].map(|seed| SimPlan::random_for(ASSISTANT_FLOW, seed));
    for plan in plans.iter().chain(&plans_of_assistant) {
        assert_eq!(find_failure(plan), None, "seed {} of {}", plan.seed, plan.flow);
    }
}

#[test]
fn the_simulation_interrupts_writes() {
    let (mut changed, mut not_executed, mut unknown) = (0, 0, 0);
    for seed in 0..40 {
        let plan = SimPlan::random_for(ASSISTANT_FLOW, seed);
        for journal in check::read_journals(&run_plan(&plan), &plan) {
            let counts = check_records::count_interrupted_writes(&journal);
            changed += counts.changed;
            not_executed += counts.not_executed;
            unknown += counts.unknown;
        }
    }
    let counts = format!("{changed} changed records, {not_executed} were not executed, {unknown} are unknown");
    assert!(changed >= 2 && not_executed >= 3 && unknown >= 2, "interrupted writes are hardly tested: {counts}");
}

#[test]
fn the_simulation_produces_late_answers() {
    let runs = (0..300).map(SimPlan::random);
    let late_answers: usize = runs.map(|plan| check::count_late_answers(&run_plan(&plan), &plan)).sum();
    assert!(late_answers >= 10, "only {late_answers}: late answers are hardly tested");
}

#[test]
fn the_simulation_takes_leases_from_living_processes() {
    let lost_leases: u64 = (0..20).map(exchange::simulate_exchange).sum();
    assert!(lost_leases >= 10, "only {lost_leases}: processes that come back are hardly tested");
}

#[test]
fn the_same_seed_gives_the_same_journals() {
    let plans = (0..150).map(SimPlan::random).chain((0..20).map(|seed| SimPlan::random_for(ASSISTANT_FLOW, seed)));
    for plan in plans {
        let seed = plan.seed;
        let (one, other) = (transcript(&run_plan(&plan), &plan), transcript(&run_plan(&plan), &plan));
        assert_eq!(one, other, "seed {seed}");
    }
}
