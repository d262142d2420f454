//! Taking a write back: from what the journal says stood there before. A person asks for it, beside the conversation.

use segue_core::body::Text;
use segue_core::flow::{Speech, Step};
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::desk::Desk;
use super::facts::Fact;
use super::state::{Memory, Write};
use super::tools::{Operation, Purpose, RECORDS, Reported, Told, taken};
use crate::template::fill;

/// The write that is meant: the one named, or the last that still stands.
///
/// # Errors
/// There is none, and why.
pub(super) fn meant<'m>(memory: &'m Memory, arguments: &Value) -> Result<&'m Write, String> {
    let Some(named) = arguments.get("run").filter(|run| !run.is_null()) else {
        let standing = memory.writes.iter().rev().find(|write| !write.undone);
        return standing.ok_or_else(|| "nothing was written in this session that could be taken back".to_owned());
    };
    let run = match named {
        Value::String(text) => text.parse::<ToolRunId>()?,
        other => {
            let number = other.as_u64().and_then(|number| u32::try_from(number).ok());
            ToolRunId(number.ok_or_else(|| format!("`run` must be the number of a tool run, not {other}"))?)
        }
    };
    let known = || {
        let runs: Vec<String> = memory.writes.iter().map(|write| write.run.to_string()).collect();
        if runs.is_empty() { "none".to_owned() } else { runs.join(", ") }
    };
    let write = memory.writes.iter().find(|write| write.run == run);
    let write = write.ok_or_else(|| format!("{run} wrote nothing that is remembered; those that did: {}", known()))?;
    if write.undone { Err(format!("{run} was taken back already")) } else { Ok(write) }
}

/// A person wants a write taken back.
pub(super) fn asked(desk: &Desk<'_>, arguments: &Value) -> Vec<Step> {
    let Ok(write) = meant(desk.memory(), arguments) else { return Vec::new() };
    let Some(reported) = Reported::read(&desk.view.text(write.text)) else { return Vec::new() };
    if reported.changes.is_empty() {
        let why = "what it changed is not known here; only whoever did it can take it back".to_owned();
        return refused(write.run, why);
    }
    let mut rest = Map::new();
    rest.insert("of".to_owned(), json!(write.run.0));
    rest.insert("changes".to_owned(), json!(reported.changes));
    let told = Told {
        domain: desk.domain.name.clone(),
        op: Operation::Undo,
        purpose: Purpose::Undo,
        turn: desk.memory().turn(),
        step: None,
        step_type: None,
        rest,
    };
    vec![Step::RunTool { tool: RECORDS.into(), arguments: told.arguments(), agent: None }]
}

fn refused(of: ToolRunId, why: String) -> Vec<Step> {
    let text = said(&json!({"why": why, "what": []}));
    vec![Fact::NotUndone { of, why }.note(), Step::Say { text: Speech::New(text), by: None, call: None }]
}

fn said(arguments: &Value) -> String {
    fill(include_str!("../../prompts/assistant/shared/undone.md"), arguments)
}

/// The host has taken it back, or not.
pub(super) fn ended(
    desk: &Desk<'_>,
    run: ToolRunId,
    told: &Told,
    reported: Option<Reported>,
    text: Text,
    words: &str,
) -> Vec<Step> {
    let of = told.rest.get("of").and_then(Value::as_u64).and_then(|of| u32::try_from(of).ok()).map(ToolRunId);
    let Some(of) = of else { return Vec::new() };
    let reported = match reported {
        Some(Reported { refused: Some(why), .. }) => return refused(of, why),
        None => return refused(of, words.to_owned()),
        Some(reported) => reported,
    };
    let records = taken(desk.domain, &desk.memory().entities, run, told, &reported, text);
    let text = said(&json!({"why": null, "what": records.wrote}));
    let say = Step::Say { text: Speech::New(text), by: None, call: None };
    vec![Fact::Records(Box::new(records)).note(), Fact::Undone { of }.note(), say]
}
