//! What was spent, and which sessions there are, as tables.

use segue_core::ids::{Millis, SessionId};
use segue_core::ledger::{Ledger, Tally};
use segue_store::Row;

use super::table::{Column, shortened, table, thousands};

/// A cost in millionths of a dollar.
#[must_use]
pub fn dollars(microusd: Option<u64>) -> String {
    match microusd {
        Some(cost) => format!("${}.{:04}", cost / 1_000_000, cost % 1_000_000 / 100),
        None => "price unknown".to_owned(),
    }
}

/// What `/cost` says.
#[must_use]
pub fn cost(ledger: &Ledger) -> String {
    let heading = ["", "calls", "failed", "tokens in", "cached", "out", "cost"];
    let mut rows = vec![heading.map(ToOwned::to_owned).to_vec()];
    rows.extend(ledger.roles.iter().map(|(role, tally)| row(role.as_str(), tally)));
    rows.extend(ledger.models.iter().map(|(model, tally)| row(&format!("on {model}"), tally)));
    rows.extend(ledger.phases.iter().map(|(phase, tally)| row(&format!("in {phase}"), tally)));
    rows.push(row("this turn", &ledger.turn));
    rows.push(row("in all", &ledger.total));
    let mut columns = [Column::Number; 7];
    columns[0] = Column::Text;
    let mut text = table(&columns, rows);
    if ledger.total.unknown > 0 {
        let tries = if ledger.total.unknown == 1 { "try was" } else { "tries were" };
        text.push_str(&format!("{} {tries} cut off when the program ended: maybe billed\n", ledger.total.unknown));
    }
    text
}

fn row(name: &str, tally: &Tally) -> Vec<String> {
    let cost = if tally.answered == 0 { "–".to_owned() } else { dollars(tally.cost()) };
    let mut row = vec![name.to_owned()];
    row.extend([tally.answered, tally.failed].map(|count| thousands(count.into())));
    row.extend([tally.input, tally.cached, tally.output].map(thousands));
    row.push(cost);
    row
}

const TITLE_CHARS: usize = 60;

/// What `/sessions` says; `here` is the one we are in.
#[must_use]
pub fn sessions(rows: &[Row], here: &SessionId, now: Millis) -> String {
    let heading = ["", "session", "flow", "turns", "changed", "title"];
    let mut lines = vec![heading.map(ToOwned::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let mark = if row.session == *here { "*" } else { "" };
        vec![
            mark.to_owned(),
            row.session.to_string(),
            row.summary.flow.clone(),
            row.summary.turns.to_string(),
            ago(now.since(row.summary.updated)),
            shortened(&row.summary.title, TITLE_CHARS),
        ]
    }));
    table(&[Column::Text, Column::Text, Column::Text, Column::Number, Column::Text, Column::Text], lines)
}

fn ago(ms: u64) -> String {
    let (minute, hour, day) = (60, 3_600, 86_400);
    match ms / 1_000 {
        seconds if seconds < minute => "just now".to_owned(),
        seconds if seconds < hour => format!("{} min ago", seconds / minute),
        seconds if seconds < day => format!("{} h ago", seconds / hour),
        seconds => format!("{} d ago", seconds / day),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
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
            stop: Stop::Done,
            usage: Usage { input: 1_200, output: 30, cached: 1_000, reasoning: 0 },
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
                           calls  failed  tokens in  cached  out           cost
            mapper             1       0      1,200   1,000   30        $1.2500
            speaker            1       0      1,200   1,000   30  price unknown
            on big             1       0      1,200   1,000   30        $1.2500
            on small           1       0      1,200   1,000   30  price unknown
            in talk/start      1       0      1,200   1,000   30  price unknown
            this turn          1       0      1,200   1,000   30  price unknown
            in all             2       0      2,400   2,000   60  price unknown
            1 try was cut off when the program ended: maybe billed
        "#]]
        .assert_eq(&cost(&ledger));
    }

    #[test]
    fn ages_are_told_roughly() {
        assert_eq!([5_000, 120_000, 7_200_000, 172_800_000].map(ago), ["just now", "2 min ago", "2 h ago", "2 d ago"]);
    }
}
