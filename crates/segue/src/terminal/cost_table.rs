//! The table of `/cost`.

use segue_core::session::{Ledger, UsageTotals};

use crate::print::number_format;
use crate::print::text_table::{ColumnLayout, TextTable};

/// Returns tokens and costs by role, model and phase, for the current turn, and in total.
#[must_use]
pub(crate) fn cost_table(ledger: &Ledger) -> TextTable {
    let mut table = TextTable::new([
        ("", ColumnLayout::Truncate),
        ("calls", ColumnLayout::Right),
        ("failed", ColumnLayout::Right),
        ("unknown", ColumnLayout::Right),
        ("tokens in", ColumnLayout::Right),
        ("cached", ColumnLayout::Right),
        ("hits", ColumnLayout::Right),
        ("out", ColumnLayout::Right),
        ("cost", ColumnLayout::Right),
    ]);
    ledger.by_role.iter().for_each(|(role, totals)| table.add_row(cost_row(role.as_str(), totals)));
    ledger.by_model.iter().for_each(|(model, totals)| table.add_row(cost_row(&format!("on {model}"), totals)));
    ledger.by_phase.iter().for_each(|(phase, totals)| table.add_row(cost_row(&format!("in {phase}"), totals)));
    table.add_row(cost_row("this turn", &ledger.current_turn));
    table.add_row(cost_row("total", &ledger.total));
    table
}

/// Describes how many prompts extended the previous one, and which fragments broke the cached prefix.
#[must_use]
pub(crate) fn describe_prefix_reuse(ledger: &Ledger) -> String {
    let prefixes = &ledger.prompt_prefixes;
    let mut line = format!("prompts: {} extended the previous prompt", prefixes.extended);
    let broken: u32 = prefixes.broken_by_fragment.values().sum();
    if broken > 0 {
        let causes = prefixes.broken_by_fragment.iter().map(|(fragment, times)| format!("`{fragment}` {times}×"));
        line.push_str(&format!(", {broken} broke its prefix: {}", causes.collect::<Vec<_>>().join(", ")));
    }
    line
}

fn cost_row(name: &str, totals: &UsageTotals) -> [String; 9] {
    let counts = [totals.answered_calls, totals.failed_attempts, totals.unknown_attempts]
        .map(|count| number_format::format_count(count.into()));
    let tokens = [totals.input_tokens, totals.cached_tokens, totals.output_tokens].map(number_format::format_count);
    let cost = if totals.answered_calls == 0 {
        "–".to_owned()
    } else {
        number_format::format_cost(totals.exact_cost_microusd())
    };
    let [answered, failed, unknown] = counts;
    let [input, cached, output] = tokens;
    let hits = number_format::cached_percent(totals).map_or_else(|| "–".to_owned(), |percent| format!("{percent} %"));
    [name.to_owned(), answered, failed, unknown, input, cached, hits, output, cost]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use segue_core::ids::TurnId;

    use super::*;

    #[test]
    fn costs_are_listed_by_role_model_and_phase_and_an_unknown_price_is_not_zero() {
        let priced = UsageTotals {
            answered_calls: 1,
            input_tokens: 1_200,
            output_tokens: 30,
            cached_tokens: 1_000,
            cost_microusd: 1_250_000,
            ..UsageTotals::default()
        };
        let unpriced = UsageTotals { cost_microusd: 0, unpriced_answers: 1, ..priced };
        let with_unknown_attempt = UsageTotals { unknown_attempts: 1, ..unpriced };
        let mut ledger = Ledger {
            total: UsageTotals {
                answered_calls: 2,
                input_tokens: 2_400,
                output_tokens: 60,
                cached_tokens: 2_000,
                cost_microusd: 1_250_000,
                ..with_unknown_attempt
            },
            current_turn: unpriced,
            current_turn_id: Some(TurnId(2)),
            by_role: [("mapper".into(), priced), ("speaker".into(), with_unknown_attempt)].into(),
            by_model: [("big".into(), priced), ("small".into(), with_unknown_attempt)].into(),
            by_phase: [("talk/start".into(), unpriced)].into(),
            ..Ledger::default()
        };
        expect![[r#"
                           CALLS  FAILED  UNKNOWN  TOKENS IN  CACHED  HITS  OUT   COST
            mapper             1       0        0      1,200   1,000  83 %   30  $1.25
            speaker            1       0        1      1,200   1,000  83 %   30      ?
            on big             1       0        0      1,200   1,000  83 %   30  $1.25
            on small           1       0        1      1,200   1,000  83 %   30      ?
            in talk/start      1       0        0      1,200   1,000  83 %   30      ?
            this turn          1       0        0      1,200   1,000  83 %   30      ?
            total              2       0        1      2,400   2,000  83 %   60      ?
        "#]]
        .assert_eq(&cost_table(&ledger).render(100, crate::print::paint::Paint::new(false)));
        assert_eq!(describe_prefix_reuse(&ledger), "prompts: 0 extended the previous prompt");
        ledger.prompt_prefixes.extended = 1;
        ledger.prompt_prefixes.broken_by_fragment = [("brief".into(), 2), ("tools".into(), 1)].into();
        let expected = "prompts: 1 extended the previous prompt, 3 broke its prefix: `brief` 2×, `tools` 1×";
        assert_eq!(describe_prefix_reuse(&ledger), expected);
    }
}
