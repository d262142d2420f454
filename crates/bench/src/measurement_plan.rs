//! What is measured, in which order, and how much of it.

use std::path::Path;

use crate::bench_engine::StoreKind;
use crate::bench_flows::TurnShape;
use crate::measure::{Measurement, MeasurementKind};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchExtent {
    /// Everything, at full length.
    Full,
    /// Everything, short.
    Quick,
    /// What the comparison with others asks for.
    Peers,
}

/// All jobs whose name contains one of `only`, and those that make what these read; all of them if there is none.
pub fn plan_measurements(extent: BenchExtent, only: &[String], dir: &Path) -> Vec<Measurement> {
    let mut jobs = Vec::new();
    let mut add = |what, keeper, shape, turns, reps, sessions| {
        jobs.push(Measurement {
            kind: what,
            store_kind: keeper,
            shape,
            turns,
            repetitions: reps,
            sessions,
            dir: dir.to_owned(),
        });
    };
    let both = [StoreKind::Sqlite, StoreKind::Memory];
    let sized = |full: usize, quick: usize| if extent == BenchExtent::Quick { quick } else { full };
    for keeper in both {
        for shape in TurnShape::ALL {
            add(MeasurementKind::Turns, keeper, shape, sized(200, 60), sized(7, 3), 1);
        }
    }
    for keeper in both {
        for shape in TurnShape::ALL {
            add(MeasurementKind::Concurrent, keeper, shape, sized(200, 60), sized(5, 3), 64);
        }
    }
    let long = match extent {
        BenchExtent::Full => 5_000,
        BenchExtent::Quick | BenchExtent::Peers => 1_000,
    };
    for keeper in both {
        for shape in [TurnShape::Single, TurnShape::Fanout] {
            add(MeasurementKind::Growth, keeper, shape, long, 1, 1);
            if keeper == StoreKind::Sqlite {
                add(MeasurementKind::Open, keeper, shape, long, sized(9, 5), 1);
                add(MeasurementKind::Resume, keeper, shape, long, 5, 1);
                add(MeasurementKind::Read, keeper, shape, long, 7, 1);
            }
        }
    }
    for (keeper, shape) in [(StoreKind::Sqlite, TurnShape::Single), (StoreKind::Sqlite, TurnShape::Fanout)] {
        add(MeasurementKind::Idle, keeper, shape, 1, 1, sized(10_000, 2_000));
        add(MeasurementKind::InFlight, keeper, shape, 1, 1, 1_000);
    }
    for shape in [TurnShape::Single, TurnShape::Fanout] {
        add(MeasurementKind::ColdStart, StoreKind::Sqlite, shape, 2, sized(7, 3), 1);
    }
    if extent != BenchExtent::Peers {
        for sessions in [1, 64] {
            add(MeasurementKind::Http, StoreKind::Sqlite, TurnShape::Single, sized(100, 30), sized(5, 3), sessions);
        }
        add(MeasurementKind::Streams, StoreKind::Sqlite, TurnShape::Single, 1, 1, 1_000);
        add(MeasurementKind::Prompts, StoreKind::Memory, TurnShape::Single, 40, 1, 1);
    }
    let is_wanted = |job: &Measurement| only.is_empty() || only.iter().any(|word| job.name().contains(word));
    let read: Vec<String> = jobs
        .iter()
        .filter(|job| is_wanted(job) && reads_long_session(job))
        .map(Measurement::long_session_name)
        .collect();
    jobs.retain(|job| is_wanted(job) || (creates_long_session(job) && read.contains(&job.long_session_name())));
    jobs
}

fn creates_long_session(job: &Measurement) -> bool {
    matches!((job.kind, job.store_kind), (MeasurementKind::Growth, StoreKind::Sqlite))
}

/// Whether it reads the session that another job has made long.
fn reads_long_session(job: &Measurement) -> bool {
    matches!(job.kind, MeasurementKind::Open | MeasurementKind::Resume | MeasurementKind::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_chosen_by_a_part_of_their_name() {
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            plan_measurements(BenchExtent::Quick, &only, Path::new("x")).iter().map(Measurement::name).collect()
        };
        assert_eq!(
            names(&["cold", "conc.sqlite.fan"]),
            ["conc.sqlite.fanout", "cold.sqlite.single", "cold.sqlite.fanout"]
        );
        assert_eq!(names(&["open.sqlite.single"]), ["grow.sqlite.single", "open.sqlite.single"]);
        assert!(names(&[]).len() > 20);
        assert_eq!(names(&["nothing of that name"]), [""; 0]);
    }
}
