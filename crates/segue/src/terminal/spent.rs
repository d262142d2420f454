//! What was spent, as a table.

use segue_core::ledger::{Ledger, Tally};

use crate::print::amount;
use crate::print::table::{Column, Table};

/// Tokens and cost by role, model and phase, of this turn and in all.
#[must_use]
pub fn cost(ledger: &Ledger) -> Table {
    let mut table = Table::new([
        ("spent", Column::Cut),
        ("calls", Column::Right),
        ("failed", Column::Right),
        ("unknown", Column::Right),
        ("tokens in", Column::Right),
        ("cached", Column::Right),
        ("hits", Column::Right),
        ("out", Column::Right),
        ("cost", Column::Right),
    ]);
    ledger.roles.iter().for_each(|(role, tally)| table.row(row(role.as_str(), tally)));
    ledger.models.iter().for_each(|(model, tally)| table.row(row(&format!("on {model}"), tally)));
    ledger.phases.iter().for_each(|(phase, tally)| table.row(row(&format!("in {phase}"), tally)));
    table.row(row("this turn", &ledger.turn));
    table.row(row("in all", &ledger.total));
    table
}

/// What kept vendors from finding more of a prompt in their caches, in a line.
#[must_use]
pub fn prefixes(ledger: &Ledger) -> String {
    let prefixes = &ledger.prefixes;
    let mut line = format!("prompts: {} extended the one before", prefixes.extended);
    let broken: u32 = prefixes.broken.values().sum();
    if broken > 0 {
        let by = prefixes.broken.iter().map(|(fragment, times)| format!("`{fragment}` {times}×"));
        line.push_str(&format!(", {broken} parted from it: {}", by.collect::<Vec<_>>().join(", ")));
    }
    line
}

fn row(name: &str, tally: &Tally) -> [String; 9] {
    let counts = [tally.answered, tally.failed, tally.unknown].map(|count| amount::count(count.into()));
    let tokens = [tally.input, tally.cached, tally.output].map(amount::count);
    let cost = if tally.answered == 0 { "–".to_owned() } else { amount::cost(tally.cost()) };
    let [answered, failed, unknown] = counts;
    let [input, cached, output] = tokens;
    let hits = tally.cached_percent().map_or_else(|| "–".to_owned(), |percent| format!("{percent} %"));
    [name.to_owned(), answered, failed, unknown, input, cached, hits, output, cost]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use segue_core::context::Prefix;
    use segue_core::event::{CallAnswered, CountedBy};
    use segue_core::ids::{CallId, TurnId};
    use segue_core::ledger::Account;
    use segue_core::prompt::{Stop, Usage};

    use super::*;

    #[test]
    fn costs_are_told_by_role_and_model_and_an_unknown_price_is_not_nothing() {
        let mut ledger = Ledger::default();
        let text = segue_core::body::Text { body: segue_core::body::BodyId::of("x"), tokens: 5 };
        let mut answer = CallAnswered {
            call: CallId(1),
            attempt: 1,
            text,
            reasoning: None,
            tool_calls: Vec::new(),
            seal: None,
            stop: Stop::Done,
            usage: Usage { input: 1_200, output: 30, cached: 1_000, ..Usage::default() },
            sent_back: None,
            counted_by: CountedBy::Vendor,
            cost_microusd: Some(1_250_000),
            ms: 10,
        };
        let (mapper, speaker) = ("mapper".into(), "speaker".into());
        let (big, small) = ("big".into(), "small".into());
        ledger.answered(Account { role: &mapper, model: &big, phase: None, turn: None }, &answer);
        ledger.start_turn(TurnId(2));
        answer.cost_microusd = None;
        ledger.answered(
            Account { role: &speaker, model: &small, phase: Some("talk/start"), turn: Some(TurnId(2)) },
            &answer,
        );
        ledger.unknown(Account { role: &speaker, model: &small, phase: None, turn: None });
        expect![[r#"
            SPENT          CALLS  FAILED  UNKNOWN  TOKENS IN  CACHED  HITS  OUT   COST
            mapper             1       0        0      1,200   1,000  83 %   30  $1.25
            speaker            1       0        1      1,200   1,000  83 %   30      ?
            on big             1       0        0      1,200   1,000  83 %   30  $1.25
            on small           1       0        1      1,200   1,000  83 %   30      ?
            in talk/start      1       0        0      1,200   1,000  83 %   30      ?
            this turn          1       0        0      1,200   1,000  83 %   30      ?
            in all             2       0        1      2,400   2,000  83 %   60      ?
        "#]]
        .assert_eq(&cost(&ledger).render(100, crate::print::paint::Paint::new(false)));
        assert_eq!(prefixes(&ledger), "prompts: 0 extended the one before");
        ledger.prompted(&Prefix::Extends(CallId(1)));
        for by in ["brief", "brief", "tools"] {
            ledger.prompted(&Prefix::Broken { from: CallId(1), kept: 4, by: by.into() });
        }
        let expected = "prompts: 1 extended the one before, 3 parted from it: `brief` 2×, `tools` 1×";
        assert_eq!(prefixes(&ledger), expected);
    }
}
