//! Which measurements are run, in which order, and how extensively.

use std::path::Path;

use crate::bench_engine::StoreKind;
use crate::bench_flows::BenchTurnShape;
use crate::measure::{BenchMeasurementSpec, BenchWorkloadKind};

/// How extensive a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchExtent {
    /// All measurements, at full length.
    Full,
    /// All measurements, shortened.
    Quick,
    /// The measurements for the comparison with other frameworks.
    Peers,
}

/// Returns the measurements whose name contains one of `only`, and those that create data for them; all if `only` is
/// empty.
pub(crate) fn plan_measurements(extent: BenchExtent, only: &[String], dir: &Path) -> Vec<BenchMeasurementSpec> {
    let mut measurements = Vec::new();
    let mut add_measurement = |kind, store_kind, shape, turns, repetitions, sessions| {
        measurements.push(BenchMeasurementSpec {
            kind,
            store_kind,
            shape,
            turns,
            repetitions,
            sessions,
            dir: dir.to_owned(),
        });
    };
    let store_kinds = [StoreKind::Sqlite, StoreKind::Memory];
    let by_extent = |full: usize, quick: usize| if extent == BenchExtent::Quick { quick } else { full };
    for store_kind in store_kinds {
        for shape in BenchTurnShape::ALL {
            add_measurement(BenchWorkloadKind::Turns, store_kind, shape, by_extent(200, 60), by_extent(7, 3), 1);
        }
    }
    for store_kind in store_kinds {
        for shape in BenchTurnShape::ALL {
            add_measurement(BenchWorkloadKind::Concurrent, store_kind, shape, by_extent(200, 60), by_extent(5, 3), 64);
        }
    }
    let long_session_turns = match extent {
        BenchExtent::Full => 5_000,
        BenchExtent::Quick | BenchExtent::Peers => 1_000,
    };
    for store_kind in store_kinds {
        for shape in [BenchTurnShape::Single, BenchTurnShape::Fanout] {
            add_measurement(BenchWorkloadKind::Growth, store_kind, shape, long_session_turns, 1, 1);
            if store_kind == StoreKind::Sqlite {
                add_measurement(BenchWorkloadKind::Open, store_kind, shape, long_session_turns, by_extent(9, 5), 1);
                add_measurement(BenchWorkloadKind::Resume, store_kind, shape, long_session_turns, 5, 1);
                add_measurement(BenchWorkloadKind::Read, store_kind, shape, long_session_turns, 7, 1);
            }
        }
    }
    for (store_kind, shape) in
        [(StoreKind::Sqlite, BenchTurnShape::Single), (StoreKind::Sqlite, BenchTurnShape::Fanout)]
    {
        add_measurement(BenchWorkloadKind::Idle, store_kind, shape, 1, 1, by_extent(10_000, 2_000));
        add_measurement(BenchWorkloadKind::InFlight, store_kind, shape, 1, 1, 1_000);
    }
    for shape in [BenchTurnShape::Single, BenchTurnShape::Fanout] {
        add_measurement(BenchWorkloadKind::ColdStart, StoreKind::Sqlite, shape, 2, by_extent(7, 3), 1);
    }
    if extent != BenchExtent::Peers {
        for sessions in [1, 64] {
            add_measurement(
                BenchWorkloadKind::Http,
                StoreKind::Sqlite,
                BenchTurnShape::Single,
                by_extent(100, 30),
                by_extent(5, 3),
                sessions,
            );
        }
        add_measurement(BenchWorkloadKind::Streams, StoreKind::Sqlite, BenchTurnShape::Single, 1, 1, 1_000);
        add_measurement(BenchWorkloadKind::Prompts, StoreKind::Memory, BenchTurnShape::Single, 40, 1, 1);
        add_measurement(BenchWorkloadKind::Tokens, StoreKind::Memory, BenchTurnShape::Single, 60, 1, 1);
        for store_kind in [StoreKind::Sqlite, StoreKind::Postgres] {
            let (repetitions, sessions) = (by_extent(41, 11), by_extent(100_000, 4_000));
            add_measurement(BenchWorkloadKind::Catalog, store_kind, BenchTurnShape::Single, 1, repetitions, sessions);
        }
        let (postgres, fanout) = (StoreKind::Postgres, BenchTurnShape::Fanout);
        add_measurement(BenchWorkloadKind::Concurrent, postgres, fanout, by_extent(100, 40), by_extent(5, 3), 64);
        add_measurement(BenchWorkloadKind::Growth, postgres, fanout, long_session_turns, 1, 1);
        add_measurement(BenchWorkloadKind::Nodes, postgres, fanout, by_extent(100, 40), by_extent(5, 3), 64);
        let sessions = by_extent(100_000, 2_000);
        add_measurement(BenchWorkloadKind::IdleCost, postgres, BenchTurnShape::Single, 1, 1, sessions);
    }
    let is_wanted = |measurement: &BenchMeasurementSpec| {
        only.is_empty() || only.iter().any(|part| measurement.name().contains(part))
    };
    let long_sessions_read: Vec<String> = measurements
        .iter()
        .filter(|measurement| is_wanted(measurement) && reads_long_session(measurement))
        .map(BenchMeasurementSpec::long_session_name)
        .collect();
    measurements.retain(|measurement| {
        is_wanted(measurement)
            || (creates_long_session(measurement) && long_sessions_read.contains(&measurement.long_session_name()))
    });
    measurements
}

fn creates_long_session(measurement: &BenchMeasurementSpec) -> bool {
    matches!((measurement.kind, measurement.store_kind), (BenchWorkloadKind::Growth, StoreKind::Sqlite))
}

/// Returns whether the measurement reads the long session of another.
fn reads_long_session(measurement: &BenchMeasurementSpec) -> bool {
    matches!(measurement.kind, BenchWorkloadKind::Open | BenchWorkloadKind::Resume | BenchWorkloadKind::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_chosen_by_a_part_of_their_name() {
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            plan_measurements(BenchExtent::Quick, &only, Path::new("x"))
                .iter()
                .map(BenchMeasurementSpec::name)
                .collect()
        };
        assert_eq!(
            names(&["cold", "conc.sqlite.fan"]),
            ["conc.sqlite.fanout", "cold.sqlite.single", "cold.sqlite.fanout"]
        );
        let postgres = ["catalog.postgres.single", "conc.postgres.fanout", "grow.postgres.fanout"];
        assert_eq!(names(&["postgres"])[..3], postgres);
        assert_eq!(names(&["open.sqlite.single"]), ["grow.sqlite.single", "open.sqlite.single"]);
        assert!(names(&[]).len() > 20);
        assert_eq!(names(&["no such name"]), [""; 0]);
    }
}
