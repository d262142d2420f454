//! Renders the results as tables, and whether the performance goals are met.

use std::fmt::Write as _;

use serde_json::Value;

use crate::measure::BenchMeasurementFigures;

/// Renders all tables and goals.
pub(crate) fn render_report(rows: &[BenchMeasurementFigures], noise: f64) -> String {
    let mut out = String::new();
    for table in REPORT_TABLES {
        table.render(rows, noise, &mut out);
    }
    out.push_str("\ngoals\n");
    for goal in PERFORMANCE_GOALS {
        goal.render(rows, &mut out);
    }
    if rows.iter().any(|row| number_at_path(row, "others").is_some_and(|others| others > noise)) {
        let _ = writeln!(out, "\n* other processes used more than {noise} cores during that measurement");
    }
    out
}

struct BenchReportTable {
    metric: &'static str,
    title: &'static str,
    /// The heading, and the path of the figure.
    columns: &'static [(&'static str, &'static str)],
}

const REPORT_TABLES: &[BenchReportTable] = &[
    BenchReportTable {
        metric: "turn_ms",
        title: "one session at a time (ms per turn)",
        columns: &[
            ("p50", "median"),
            ("p99", "p99"),
            ("first", "first_turn"),
            ("turns/s", "turns_per_s"),
            ("cpu ms", "cpu_ms"),
            ("commits/turn", "commits_per_turn"),
            ("raw turns/s", "raw_turns_per_s"),
            ("of raw", "of_raw"),
        ],
    },
    BenchReportTable {
        metric: "conc",
        title: "64 concurrent sessions (ms per turn)",
        columns: &[
            ("p50", "lat_ms.median"),
            ("p99", "lat_ms.p99"),
            ("turns/s", "turns_per_s"),
            ("cpu ms", "cpu_ms"),
            ("commits/turn", "commits_per_turn"),
            ("group", "group"),
            ("row bytes", "row_bytes"),
            ("stored", "kept_bytes"),
            ("at full load", "full_turns_per_s"),
            ("raw turns/s", "raw_turns_per_s"),
            ("of raw", "of_raw"),
            ("of bare loop", "of_bare"),
        ],
    },
    BenchReportTable {
        metric: "grow",
        title: "one long session: ms of turn N",
        columns: &[
            ("10", "ms_at.10"),
            ("100", "ms_at.100"),
            ("1000", "ms_at.1000"),
            ("5000", "ms_at.5000"),
            ("last/10", "ratio_last_to_10"),
            ("cpu 10", "cpu_ms_at.10"),
            ("cpu 100", "cpu_ms_at.100"),
            ("cpu 1000", "cpu_ms_at.1000"),
            ("cpu 5000", "cpu_ms_at.5000"),
            ("last/10", "cpu_ratio_last_to_10"),
            ("mean cpu", "cpu_ms"),
        ],
    },
    BenchReportTable {
        metric: "grow",
        title: "one long session: bytes per turn",
        columns: &[
            ("turns", "turns"),
            ("new text", "new_text_bytes_per_turn"),
            ("on disk at 100", "disk_bytes_per_turn.100"),
            ("at 1000", "disk_bytes_per_turn.1000"),
            ("at 5000", "disk_bytes_per_turn.5000"),
            ("disk/text", "disk_to_text"),
            ("written", "written_bytes_per_turn"),
            ("RSS grown MB", "rss_grown_mb"),
        ],
    },
    BenchReportTable {
        metric: "open",
        title: "a long session in a new engine (ms)",
        columns: &[
            ("turns", "turns"),
            ("store and engine", "open_ms"),
            ("state ready", "ready_ms"),
            ("next answer", "answer_ms"),
        ],
    },
    BenchReportTable {
        metric: "resume",
        title: "the same in a new process, after reading all of it (ms)",
        columns: &[
            ("messages", "messages"),
            ("total", "total_ms"),
            ("open", "open_ms"),
            ("read", "read_ms"),
            ("turn", "turn_ms"),
            ("RSS MB", "rss_mb"),
        ],
    },
    BenchReportTable {
        metric: "cold",
        title: "first turn of a new process (ms)",
        columns: &[
            ("total", "total_ms"),
            ("open", "open_ms"),
            ("first", "first_ms"),
            ("second", "second_ms"),
            ("RSS MB", "rss_mb"),
        ],
    },
    BenchReportTable {
        metric: "prompt",
        title: "an assistant's prompts over 40 turns (tokens)",
        columns: &[
            ("turn 1", "tokens_at.1"),
            ("5", "tokens_at.5"),
            ("10", "tokens_at.10"),
            ("20", "tokens_at.20"),
            ("40", "tokens_at.40"),
            ("max", "tokens_most"),
            ("33–40 to 9–16", "last_to_16"),
        ],
    },
    BenchReportTable { metric: "read_all", title: "all messages of a long session (ms)", columns: READ_COLUMNS },
    BenchReportTable { metric: "read_last20", title: "its last 20 messages (ms)", columns: READ_COLUMNS },
    BenchReportTable {
        metric: "list",
        title: "list of all sessions (ms)",
        columns: &[("sessions", "sessions"), ("p50", "median"), ("p95", "p95")],
    },
    BenchReportTable {
        metric: "idle",
        title: "parked sessions",
        columns: &[
            ("sessions", "sessions"),
            ("RSS MB", "rss_mb"),
            ("before", "base_mb"),
            ("peak", "rss_mb_peak"),
            ("KB/session", "kb_per_session"),
            ("threads", "threads"),
            ("fds", "fds"),
        ],
    },
    BenchReportTable {
        metric: "inflight",
        title: "sessions with calls in flight",
        columns: &[
            ("sessions", "sessions"),
            ("RSS MB", "rss_mb"),
            ("before", "base_mb"),
            ("KB/session", "kb_per_session"),
            ("threads", "threads"),
            ("drain s", "drain_s"),
            ("errors", "errors"),
        ],
    },
    BenchReportTable {
        metric: "http",
        title: "turns over HTTP, compared with in process (ms per turn)",
        columns: &[
            ("sessions", "sessions"),
            ("p50", "median"),
            ("p99", "p99"),
            ("turns/s", "turns_per_s"),
            ("in process: p50", "in_process_median"),
            ("p99", "in_process_p99"),
            ("turns/s", "in_process_turns_per_s"),
            ("share", "of_in_process"),
            ("RSS MB", "rss_mb"),
        ],
    },
    BenchReportTable {
        metric: "nodes",
        title: "64 sessions on one node and on two nodes of one database (turns/s)",
        columns: &[("one", "one_turns_per_s"), ("two", "two_turns_per_s"), ("two/one", "two_to_one")],
    },
    BenchReportTable {
        metric: "idlecost",
        title: "a node whose sessions are all idle, with few sessions and with many",
        columns: &[
            ("few", "few"),
            ("CPU ms/s", "few_cpu_ms_per_s"),
            ("transactions/s", "few_transactions_per_s"),
            ("RSS MB", "few_rss_mb"),
            ("ms per turn", "few_turn_ms"),
            ("many", "sessions"),
            ("CPU ms/s", "cpu_ms_per_s"),
            ("transactions/s", "transactions_per_s"),
            ("RSS MB", "rss_mb"),
            ("ms per turn", "turn_ms"),
            ("ratio", "turn_ratio"),
            ("bytes/session", "database_bytes_per_session"),
        ],
    },
    BenchReportTable {
        metric: "catalog",
        title: "the catalog with few sessions and with many (ms)",
        columns: &[
            ("few", "few"),
            ("p50", "few_ms"),
            ("many", "many"),
            ("p50", "many_ms"),
            ("many/few", "many_to_few"),
        ],
    },
    BenchReportTable { metric: "tokens", title: "prompt tokens of the concierge", columns: TOKEN_COLUMNS },
    BenchReportTable {
        metric: "tokens_every_turn",
        title: "prompt tokens of the concierge, with the experts asked in every turn",
        columns: TOKEN_COLUMNS,
    },
    BenchReportTable {
        metric: "tokens_short_visits",
        title: "prompt tokens of the concierge, with short visits to each phase",
        columns: TOKEN_COLUMNS,
    },
    BenchReportTable {
        metric: "tokens_short_visits_every_turn",
        title: "the same, with the experts asked in every turn",
        columns: TOKEN_COLUMNS,
    },
    BenchReportTable {
        metric: "streams",
        title: "open event streams, with a turn in each session",
        columns: &[
            ("streams", "streams"),
            ("opened in ms", "opened_ms"),
            ("events", "events"),
            ("received in ms", "heard_ms"),
            ("events/s", "events_per_s"),
            ("RSS MB", "rss_mb"),
            ("before", "base_mb"),
            ("KB/stream", "kb_per_stream"),
            ("fds", "fds"),
        ],
    },
];

const TOKEN_COLUMNS: &[(&str, &str)] = &[
    ("turns", "turns"),
    ("calls", "calls"),
    ("tokens", "tokens"),
    ("full history", "naive_tokens"),
    ("share", "of_naive"),
    ("cacheable", "cacheable"),
    ("without answers", "cacheable_without_answers"),
    ("from 1,024", "cacheable_from_minimum"),
    ("to inline", "to_inline"),
];
const READ_COLUMNS: &[(&str, &str)] = &[("items", "items"), ("p50", "median"), ("p95", "p95")];

impl BenchReportTable {
    fn render(&self, rows: &[BenchMeasurementFigures], noise: f64, out: &mut String) {
        let rows: Vec<&BenchMeasurementFigures> =
            rows.iter().filter(|row| text_field(row, "metric") == self.metric).collect();
        if rows.is_empty() {
            return;
        }
        let mut lines = vec![
            std::iter::once(String::new())
                .chain(self.columns.iter().map(|(heading, _)| (*heading).to_owned()))
                .collect(),
        ];
        for row in rows {
            let noisy = if number_at_path(row, "others").is_some_and(|others| others > noise) { " *" } else { "" };
            let label = format!("{} {}{noisy}", text_field(row, "store"), text_field(row, "shape"));
            let figures =
                self.columns.iter().map(|(_, path)| number_at_path(row, path).map_or("–".to_owned(), format_figure));
            lines.push(std::iter::once(label).chain(figures).collect::<Vec<String>>());
        }
        let _ = writeln!(out, "\n{}", self.title);
        let widths: Vec<usize> = (0..=self.columns.len())
            .map(|index| lines.iter().map(|line| line[index].chars().count()).max().unwrap_or(0))
            .collect();
        for line in &lines {
            let _ = write!(out, "  {:<width$}", line[0], width = widths[0]);
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                let _ = write!(out, "  {cell:>width$}");
            }
            out.push('\n');
        }
    }
}

/// A goal for one figure.
struct PerformanceGoal {
    description: &'static str,
    metric: &'static str,
    path: &'static str,
    bound: PerformanceGoalBound,
    /// Restricts the goal to rows whose figure at this path is at least this large.
    applies_to: Option<(&'static str, f64)>,
}

enum PerformanceGoalBound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

const PERFORMANCE_GOALS: &[PerformanceGoal] = &[
    PerformanceGoal {
        description: "64 sessions at half the raw limit or better",
        metric: "conc",
        path: "of_raw",
        bound: PerformanceGoalBound::AtLeast(0.5),
        // Only SQLite has a bare loop.
        applies_to: Some(("of_bare", 0.0)),
    },
    PerformanceGoal {
        description: "64 sessions at 0.4 of the raw limit or better",
        metric: "conc",
        path: "of_raw",
        bound: PerformanceGoalBound::AtLeast(0.4),
        applies_to: None,
    },
    PerformanceGoal {
        description: "two nodes at least as fast as one",
        metric: "nodes",
        path: "two_to_one",
        bound: PerformanceGoalBound::AtLeast(1.0),
        applies_to: None,
    },
    PerformanceGoal {
        description: "a turn beside idle sessions costs the same",
        metric: "idlecost",
        path: "turn_ratio",
        bound: PerformanceGoalBound::AtMost(1.2),
        applies_to: None,
    },
    PerformanceGoal {
        description: "catalog costs the same with many sessions",
        metric: "catalog",
        path: "many_to_few",
        bound: PerformanceGoalBound::AtMost(1.5),
        applies_to: None,
    },
    PerformanceGoal {
        description: "structured signals within 1.2 of inline",
        metric: "tokens",
        path: "to_inline",
        bound: PerformanceGoalBound::AtMost(1.2),
        applies_to: None,
    },
    PerformanceGoal {
        description: "95 % of the prompts cacheable",
        metric: "tokens",
        path: "cacheable",
        bound: PerformanceGoalBound::AtLeast(0.95),
        applies_to: None,
    },
    PerformanceGoal {
        description: "experts in every turn at 15 % of the history",
        metric: "tokens_every_turn",
        path: "of_naive",
        bound: PerformanceGoalBound::AtMost(0.15),
        applies_to: None,
    },
    PerformanceGoal {
        description: "turn 5,000 within 1.2 of turn 10 (time)",
        metric: "grow",
        path: "ratio_last_to_10",
        bound: PerformanceGoalBound::AtMost(1.2),
        applies_to: Some(("turns", 1_000.0)),
    },
    PerformanceGoal {
        description: "turn 5,000 within 1.2 of turn 10 (CPU)",
        metric: "grow",
        path: "cpu_ratio_last_to_10",
        bound: PerformanceGoalBound::AtMost(1.2),
        applies_to: Some(("turns", 1_000.0)),
    },
    PerformanceGoal {
        description: "disk within 2 of the new text",
        metric: "grow",
        path: "disk_to_text",
        bound: PerformanceGoalBound::AtMost(2.0),
        applies_to: None,
    },
    PerformanceGoal {
        description: "an assistant's prompts do not grow",
        metric: "prompt",
        path: "last_to_16",
        bound: PerformanceGoalBound::AtMost(1.05),
        applies_to: None,
    },
    PerformanceGoal {
        description: "10,000 parked sessions under 50 MB",
        metric: "idle",
        path: "rss_mb",
        bound: PerformanceGoalBound::Below(50.0),
        applies_to: None,
    },
    PerformanceGoal {
        description: "a 5,000-turn session opens under 10 ms",
        metric: "open",
        path: "ready_ms",
        bound: PerformanceGoalBound::Below(10.0),
        applies_to: None,
    },
];

impl PerformanceGoal {
    fn render(&self, rows: &[BenchMeasurementFigures], out: &mut String) {
        let applies = |row: &&BenchMeasurementFigures| {
            self.applies_to.is_none_or(|(path, min)| number_at_path(row, path).is_some_and(|size| size >= min))
        };
        for row in rows.iter().filter(|row| text_field(row, "metric") == self.metric).filter(applies) {
            let Some(figure) = number_at_path(row, self.path) else { continue };
            let (is_met, bound) = match self.bound {
                PerformanceGoalBound::AtLeast(bound) => (figure >= bound, format!("≥ {bound}")),
                PerformanceGoalBound::AtMost(bound) => (figure <= bound, format!("≤ {bound}")),
                PerformanceGoalBound::Below(bound) => (figure < bound, format!("< {bound}")),
            };
            let verdict = if is_met { "met" } else { "missed" };
            let label = format!("{} {}", text_field(row, "store"), text_field(row, "shape"));
            let _ = writeln!(
                out,
                "  {verdict:<6}  {:<45} {label:<14} {:>8} ({bound})",
                self.description,
                format_figure(figure)
            );
        }
    }
}

fn text_field<'a>(row: &'a BenchMeasurementFigures, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the figure at a path whose parts are joined by dots.
fn number_at_path(row: &BenchMeasurementFigures, path: &str) -> Option<f64> {
    let mut parts = path.split('.');
    let first = row.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))?.as_f64()
}

fn format_figure(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> BenchMeasurementFigures {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn a_goal_is_met_or_missed_with_its_figure() {
        let grown = json!({"metric": "grow", "store": "sqlite", "shape": "single", "turns": 5000, "disk_to_text": 2.5,
            "ratio_last_to_10": 1.1, "others": 0.5});
        let text = render_report(&[row(grown)], 0.2);
        assert!(text.contains("met     turn 5,000 within 1.2 of turn 10 (time)"), "{text}");
        assert!(text.contains("2.50 (≤ 2)") && text.contains("missed  disk"), "{text}");
        assert!(text.contains("sqlite single *"), "{text}");
    }

    #[test]
    fn a_missing_figure_is_a_dash() {
        let turns = json!({"metric": "turn_ms", "store": "memory", "shape": "fanout", "median": 0.1234});
        let text = render_report(&[row(turns)], 0.2);
        assert!(text.contains("0.123") && text.contains('–'), "{text}");
    }
}
