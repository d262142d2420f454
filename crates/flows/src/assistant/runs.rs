//! What comes of tool runs: records become known, a step goes on with what it asked for, a write that was cut off is settled.
//! A run that ends when its turn is over is still taken in; it only moves nothing on.

use segue_core::body::Text;
use segue_core::event::{ToolOpened, ToolOutcome};
use segue_core::flow::Step;
use segue_core::ids::ToolRunId;
use segue_core::signal::json::canonical;
use serde_json::{Value, json};

use super::answer::cut;
use super::desk::{Desk, act_go, act_result, agent, go};
use super::facts::{DescribedTool, End, Fact};
use super::registry::Action as Deed;
use super::spec::UNDERSTAND;
use super::step::{Stand, ended, object};
use super::tools::{Operation, Purpose, RECORDS, REMOTE, Reported, Told, taken};
use crate::limits::{EMPTY_READS_MAX, OUTCOME_CHARS_MAX, REFERENCES_TOLD_MAX, REMARK_CHARS_MAX, TOOL_SCHEMA_CHARS_MAX};

/// A tool has ended.
pub(super) fn tool_ended(desk: &Desk<'_>, opened: &ToolOpened, outcome: ToolOutcome, text: Text) -> Vec<Step> {
    let Some(told) = Told::of(&opened.arguments) else { return Vec::new() };
    let words = desk.view.text(text);
    let reported = (outcome == ToolOutcome::Done).then(|| Reported::read(&words)).flatten();
    match (told.purpose, reported) {
        (Purpose::Undo, reported) => super::undo::ended(desk, opened.run, &told, reported, text, &words),
        (Purpose::Settle, Some(reported)) => settled(desk, &told, reported, text),
        (Purpose::Settle, None) => match told.settles() {
            Some((run, was)) => {
                not_known(desk, run, &was, "it is not known whether this was done; look at the records".to_owned())
            }
            None => Vec::new(),
        },
        (Purpose::Load, reported) => loaded(desk, opened.run, &told, reported, text, &words),
        (Purpose::Call, Some(reported)) => came(desk, opened.run, &told, reported, text),
        // A write that was cut off may have been done: whoever keeps the records knows.
        (Purpose::Call, None) if told.op.writes() => vec![settle(opened.run, &told)],
        (Purpose::Call, None) if is_remote_write(&told) => {
            not_known(desk, opened.run, &told, format!("it is not known whether this was done: {words}"))
        }
        (Purpose::Call, None) => {
            let failed = tool_failed(opened.run, told.step, &words);
            std::iter::once(failed).chain(go_on(desk, &told, json!({"why": cut(&words, OUTCOME_CHARS_MAX)}))).collect()
        }
        (Purpose::Describe, reported) => described(desk, opened.run, &told, reported, &words),
    }
}

/// Whether a turn waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Yes,
    No,
}

/// What tells a description that is waited for.
const AWAITED: &str = "awaited";

/// Asks the server which tools it has and what they take.
pub(super) fn describe(desk: &Desk<'_>, awaited: Awaited) -> Step {
    let told = Told {
        domain: desk.domain.name.clone(),
        op: Operation::Describe,
        purpose: Purpose::Describe,
        turn: desk.memory().turn(),
        step: None,
        step_type: None,
        rest: object(json!({AWAITED: awaited == Awaited::Yes})),
    };
    Step::RunTool { tool: REMOTE.into(), arguments: told.arguments(), agent: None }
}

/// The server has said which tools it has, or not: then what was known before has to do.
fn described(desk: &Desk<'_>, run: ToolRunId, told: &Told, reported: Option<Reported>, words: &str) -> Vec<Step> {
    let fact = match reported {
        Some(reported) if reported.refused.is_none() => {
            let tools: Vec<DescribedTool> = reported.tools.iter().map(described_tool).collect();
            let is_news = tools != desk.memory().tools;
            is_news.then(|| Fact::Described { tools }.note())
        }
        reported => {
            let why = reported.and_then(|reported| reported.refused);
            Some(tool_failed(run, None, why.as_deref().unwrap_or(words)))
        }
    };
    let is_awaited = told.rest.get(AWAITED).and_then(Value::as_bool).unwrap_or(true);
    fact.into_iter().chain((is_awaited && desk.is_current()).then(|| go(UNDERSTAND))).collect()
}

fn described_tool(tool: &Value) -> DescribedTool {
    let text = |name: &str, chars_max: usize| match tool.get(name) {
        Some(Value::String(text)) => cut(text, chars_max),
        Some(Value::Null) | None => String::new(),
        Some(other) => cut(&canonical(other), chars_max),
    };
    DescribedTool {
        name: text("name", REMARK_CHARS_MAX),
        about: text("about", OUTCOME_CHARS_MAX),
        arguments: text("arguments", TOOL_SCHEMA_CHARS_MAX),
        writes: tool.get("writes").and_then(Value::as_bool),
    }
}

/// Nobody can say whether something was written: the step has failed, and nobody claims anything.
fn not_known(desk: &Desk<'_>, run: ToolRunId, told: &Told, why: String) -> Vec<Step> {
    let failed = tool_failed(run, told.step, &why);
    let stand = told.step.filter(|_| desk.is_current()).and_then(|step| Stand::of(desk, step));
    std::iter::once(failed).chain(stand.into_iter().flat_map(|stand| stand.failed(why.clone()))).collect()
}

/// Whether a run was of a server's tool that changes something.
fn is_remote_write(told: &Told) -> bool {
    told.op == Operation::Call && told.rest.get("writes").and_then(Value::as_bool).unwrap_or(true)
}

fn tool_failed(run: ToolRunId, step: Option<u32>, why: &str) -> Step {
    Fact::ToolFailed { run, step, why: cut(why, OUTCOME_CHARS_MAX) }.note()
}

fn settle(run: ToolRunId, was: &Told) -> Step {
    let told = Told {
        op: Operation::Settle,
        purpose: Purpose::Settle,
        rest: object(json!({"of": run.0, "was": was.arguments()})),
        ..was.clone()
    };
    let step = was.step.map(agent);
    Step::RunTool { tool: RECORDS.into(), arguments: told.arguments(), agent: step }
}

/// What became of a write that was cut off.
fn settled(desk: &Desk<'_>, told: &Told, reported: Reported, text: Text) -> Vec<Step> {
    let Some((run, was)) = told.settles() else { return Vec::new() };
    if reported.never {
        let why = "it was not done";
        let failed = tool_failed(run, was.step, why);
        return std::iter::once(failed).chain(go_on(desk, &was, json!({"why": why}))).collect();
    }
    let mut steps = came(desk, run, &was, reported, text);
    // Whoever stopped the turn believes that nothing came of it.
    let is_unheard = !desk.is_current();
    let wrote = steps.first().filter(|_| is_unheard).and_then(|step| match step {
        Step::Note { value, .. } => {
            value.get("wrote").filter(|wrote| wrote.as_array().is_some_and(|wrote| !wrote.is_empty()))
        }
        _ => None,
    });
    if let Some(wrote) = wrote {
        steps.push(super::turn::told_late(wrote));
    }
    steps
}

/// Goes on with the step that a run was for, if its turn still runs.
fn go_on(desk: &Desk<'_>, told: &Told, mut note: Value) -> Option<Step> {
    let step = told.step.filter(|_| desk.is_current())?;
    Stand::of(desk, step)?;
    let tool = told.rest.get("tool").and_then(Value::as_str).unwrap_or(told.op.word());
    note["tool"] = json!(tool);
    Some(act_result(step, note))
}

/// What a server did, in words: nobody but the server knows more.
fn deed(desk: &Desk<'_>, told: &Told, tool: &str) -> String {
    let mut ids = Vec::new();
    texts(told.rest.get("arguments").unwrap_or(&Value::Null), &mut ids);
    let known = desk.memory().entities.entities.values().filter(|entity| !entity.label.is_empty());
    let named = known.filter(|entity| entity.id.as_deref().is_some_and(|id| ids.contains(&id)));
    let named: Vec<String> = named.map(|entity| format!("“{}”", entity.label)).take(REFERENCES_TOLD_MAX).collect();
    let about = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("{tool} was done{about}")
}

/// Every text in a value.
fn texts<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(members) => members.values().for_each(|member| texts(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a run brought.
fn came(desk: &Desk<'_>, run: ToolRunId, told: &Told, reported: Reported, text: Text) -> Vec<Step> {
    if let Some(why) = &reported.refused {
        let failed = tool_failed(run, told.step, why);
        return std::iter::once(failed).chain(go_on(desk, told, json!({"why": cut(why, OUTCOME_CHARS_MAX)}))).collect();
    }
    let mut records = taken(desk.domain, &desk.memory().entities, run, told, &reported, text);
    if is_remote_write(told) {
        records.did = Deed::Updated;
        records.wrote.push(deed(desk, told, &records.tool));
    }
    let empty = records.empty.clone();
    let mut steps = vec![Fact::Records(Box::new(records)).note()];
    let stand = told.step.filter(|_| desk.is_current()).and_then(|step| Stand::of(desk, step));
    let times = |stand: &Stand<'_>, read: &String| stand.state.empty.get(read).copied().unwrap_or(0) + 1;
    match (stand, empty) {
        (Some(stand), Some(read)) if times(&stand, &read) >= EMPTY_READS_MAX => {
            steps.push(ended(stand.end(End::Done, "nothing was found, twice".to_owned())));
        }
        _ => steps.extend(go_on(desk, told, json!({"run": run.0, "text": text}))),
    }
    steps
}

/// The records of a step are at hand, or could not be had; it begins either way.
fn loaded(
    desk: &Desk<'_>,
    run: ToolRunId,
    told: &Told,
    reported: Option<Reported>,
    text: Text,
    words: &str,
) -> Vec<Step> {
    let fact = match reported {
        Some(reported) if reported.refused.is_none() => {
            let records = taken(desk.domain, &desk.memory().entities, run, told, &reported, text);
            Fact::Records(Box::new(records)).note()
        }
        reported => {
            tool_failed(run, told.step, reported.and_then(|reported| reported.refused).as_deref().unwrap_or(words))
        }
    };
    let begins = told.step.filter(|step| desk.is_current() && Stand::of(desk, *step).is_some());
    std::iter::once(fact).chain(begins.map(act_go)).collect()
}
