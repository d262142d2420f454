//! What is measured, in which order, and how much of it.

use std::path::Path;

use crate::bed::Keeper;
use crate::flows::Shape;
use crate::measure::{Job, What};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything, at full length.
    Full,
    /// Everything, short.
    Quick,
    /// What the comparison with others asks for.
    Peers,
}

/// All jobs whose name contains one of `only`, and those that make what these read; all of them if there is none.
pub fn jobs(extent: Extent, only: &[String], dir: &Path) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut add = |what, keeper, shape, turns, reps, sessions| {
        jobs.push(Job { what, keeper, shape, turns, reps, sessions, dir: dir.to_owned() });
    };
    let both = [Keeper::Sqlite, Keeper::Memory];
    let sized = |full: usize, quick: usize| if extent == Extent::Quick { quick } else { full };
    for keeper in both {
        for shape in Shape::ALL {
            add(What::Turns, keeper, shape, sized(200, 60), sized(7, 3), 1);
        }
    }
    for keeper in both {
        for shape in Shape::ALL {
            add(What::Together, keeper, shape, sized(200, 60), sized(5, 3), 64);
        }
    }
    let long = match extent {
        Extent::Full => 5_000,
        Extent::Quick | Extent::Peers => 1_000,
    };
    for keeper in both {
        for shape in [Shape::Single, Shape::Fanout] {
            add(What::Growth, keeper, shape, long, 1, 1);
            if keeper == Keeper::Sqlite {
                add(What::Opening, keeper, shape, long, sized(9, 5), 1);
                add(What::Resume, keeper, shape, long, 5, 1);
                add(What::Reading, keeper, shape, long, 7, 1);
            }
        }
    }
    for (keeper, shape) in [(Keeper::Sqlite, Shape::Single), (Keeper::Sqlite, Shape::Fanout)] {
        add(What::Idle, keeper, shape, 1, 1, sized(10_000, 2_000));
        add(What::Inflight, keeper, shape, 1, 1, 1_000);
    }
    for shape in [Shape::Single, Shape::Fanout] {
        add(What::Cold, Keeper::Sqlite, shape, 2, sized(7, 3), 1);
    }
    if extent != Extent::Peers {
        add(What::Prompts, Keeper::Memory, Shape::Single, 40, 1, 1);
        for sessions in [1, 64] {
            add(What::Http, Keeper::Sqlite, Shape::Single, sized(100, 30), sized(5, 3), sessions);
        }
        add(What::Streams, Keeper::Sqlite, Shape::Single, 1, 1, 1_000);
    }
    let is_wanted = |job: &Job| only.is_empty() || only.iter().any(|word| job.name().contains(word));
    let read: Vec<String> = jobs.iter().filter(|job| is_wanted(job) && reads_long(job)).map(Job::long_name).collect();
    jobs.retain(|job| is_wanted(job) || (makes_long(job) && read.contains(&job.long_name())));
    jobs
}

fn makes_long(job: &Job) -> bool {
    matches!((job.what, job.keeper), (What::Growth, Keeper::Sqlite))
}

/// Whether it reads the session that another job has made long.
fn reads_long(job: &Job) -> bool {
    matches!(job.what, What::Opening | What::Resume | What::Reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_chosen_by_a_part_of_their_name() {
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            jobs(Extent::Quick, &only, Path::new("x")).iter().map(Job::name).collect()
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
