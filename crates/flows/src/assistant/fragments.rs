//! The text of every fragment of every node: a template, filled from that node's own reading of the state.

use segue_core::body::Text;
use segue_core::context::{Rendered, Source};
use segue_core::flow::Asking;
use segue_core::signal::fence;
use segue_core::signal::json::canonical;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::cut;
use super::calendar;
use super::context::{self, Past, Rows, Talk, samples};
use super::desk::Desk;
use super::domain::{Domain, Kind, Op, RecordType};
use super::facts::StepKind;
use super::spec::*;
use super::tools::{ITEM, Offer, Reported, offers};
use crate::limits::{FOLDED_TOKENS_MAX, STEP_TOOL_CALLS_MAX, TOOL_LINE_CHARS_MAX, TOOL_SCHEMAS_CHARS_MAX};
use crate::template::fill;

/// A template of this flow, by its path under `prompts/assistant`.
macro_rules! prompt {
    ($name:literal) => {
        ($name, include_str!(concat!("../../prompts/assistant/", $name, ".md")))
    };
}

/// Words a folded text may have, as models count.
const FOLDED_WORDS: u32 = FOLDED_TOKENS_MAX * 3 / 5;

/// The text of a fragment.
pub(super) fn rendered(desk: &Desk<'_>, asking: &Asking<'_>, name: &str) -> Rendered {
    match (asking.wish.role.as_str(), name) {
        (_, MESSAGE) => message(desk),
        (_, TODAY) => today(desk),
        (REPLY, REPAIR) => template(prompt!("reply/repair"), &(), "the answer was empty"),
        (_, REPAIR) => repair(asking),
        (REPLY, DOMAIN) => template(prompt!("shared/domain_brief"), desk.domain, "what it is about"),
        (role, DOMAIN) => {
            let tools = if role == THINK { tool_lines(desk) } else { Vec::new() };
            template(prompt!("shared/domain"), &described(desk.domain, &tools), "what records there are")
        }
        (UNDERSTAND, name) => understand(desk, name),
        (THINK, name) => think(desk, name),
        (ACT, name) => act(desk, asking, name),
        (REPLY, name) => reply(desk, name),
        (SUMMARIZE, name) => summarize(desk, asking, name),
        _ => out("there is nothing of that name"),
    }
}

fn out(why: &str) -> Rendered {
    Rendered::Out(why.to_owned())
}

fn template(prompt: (&str, &'static str), arguments: &impl Serialize, why: &str) -> Rendered {
    let (name, text) = prompt;
    let source = Source::Template(format!("assistant/{name}"));
    Rendered::New { text: fill(text, arguments), source, why: why.to_owned() }
}

/// The same from the state, in the template's words.
fn state(prompt: (&str, &'static str), arguments: &impl Serialize, why: impl Into<String>) -> Rendered {
    Rendered::New { text: fill(prompt.1, arguments), source: Source::State, why: why.into() }
}

fn message(desk: &Desk<'_>) -> Rendered {
    let Some(running) = desk.running() else { return out("no turn runs") };
    let said: Vec<String> = running.said.iter().map(|(_, text)| desk.view.text(*text).to_string()).collect();
    let Some((last, _)) = running.said.last() else { return out("the turn has no message") };
    let text = fill(prompt!("shared/message").1, &json!({"words": fence(&said.join("\n\n"))}));
    Rendered::New { text, source: Source::Message(*last), why: "what the user said".to_owned() }
}

fn today(desk: &Desk<'_>) -> Rendered {
    let (at, offset) = (desk.view.session.at, desk.settings.utc_offset_minutes);
    let arguments = json!({"day": calendar::day(at, offset), "weekday": calendar::weekday(at, offset)});
    template(prompt!("shared/today"), &arguments, "the day of the journal's clock")
}

fn repair(asking: &Asking<'_>) -> Rendered {
    let complaints = asking.wish.note.get("complaints").cloned().unwrap_or_else(|| json!([]));
    template(prompt!("shared/repair"), &json!({"complaints": complaints}), "what could not be used")
}

/// A declaration in the form of its template.
fn described(domain: &Domain, tools: &[Value]) -> Value {
    let types = domain.types.iter().map(|kind| {
        let fields = kind.fields.iter().map(|field| {
            json!({"name": field.name, "kind": field.kind.word(), "to": field.to, "required": field.required,
                "one_of": field.one_of, "min": field.min, "max": field.max, "about": field.about})
        });
        json!({"name": kind.name, "about": kind.about, "fields": fields.collect::<Vec<_>>()})
    });
    json!({"about": domain.about, "types": types.collect::<Vec<_>>(), "tools": tools})
}

/// The tools of the domain's server, for whoever plans with them.
fn tool_lines(desk: &Desk<'_>) -> Vec<Value> {
    let offers = desk.domain.server.as_ref().map(|server| offers(server, &desk.memory().tools)).unwrap_or_default();
    let line = |offer: &Offer<'_>| {
        let about = offer.about.split_whitespace().collect::<Vec<_>>().join(" ");
        json!({"name": offer.name, "about": cut(&about, TOOL_LINE_CHARS_MAX), "writes": offer.writes})
    };
    offers.iter().map(line).collect()
}

/// What stands in for a domain's own words in samples.
fn sample_words(domain: &Domain) -> Value {
    let kind = domain.types.first();
    let (tool, arguments) = match &domain.server {
        Some(server) => (server.tools.iter().flatten().next().map_or("search", |tool| tool.name.as_str()), json!({})),
        None => ("read", json!({"type": kind.map(|kind| &kind.name)})),
    };
    json!({
        "type": kind.map_or(ITEM, |kind| kind.name.as_str()),
        "typed": kind.is_some(),
        "tool": tool,
        "tool_arguments": canonical(&arguments),
        "tool_calls_max": STEP_TOOL_CALLS_MAX,
    })
}

fn understand(desk: &Desk<'_>, name: &str) -> Rendered {
    if name == INSTRUCTION {
        return template(prompt!("understand/instruction"), &sample_words(desk.domain), "how to understand");
    }
    let shown = context::understand(desk.view, desk.settings);
    match name {
        ENTITIES => {
            state(prompt!("understand/entities"), &shown, format!("the {} newest of what is known", shown.rows.len()))
        }
        CONVERSATION => talk(&shown.conversation),
        DECISIONS if shown.decisions.is_empty() => out("nothing was understood before"),
        DECISIONS => {
            state(prompt!("understand/decisions"), &json!({"turns": shown.decisions}), "its own past decisions")
        }
        PENDING => pending(&shown.pending),
        _ => out("there is nothing of that name"),
    }
}

fn talk(talk: &Talk) -> Rendered {
    if talk.is_empty() {
        return out("nothing was said before");
    }
    state(prompt!("shared/conversation"), talk, format!("the last {} turns", talk.turns.len()))
}

fn pending(pending: &Option<context::PendingShown>) -> Rendered {
    match pending {
        Some(pending) => state(prompt!("shared/pending"), pending, "it waits for an answer"),
        None => out("nothing waits for an answer"),
    }
}

fn think(desk: &Desk<'_>, name: &str) -> Rendered {
    if name == INSTRUCTION {
        return template(prompt!("think/instruction"), &sample_words(desk.domain), "how to decide");
    }
    let shown = context::think(desk.view, desk.settings);
    match name {
        ENTITIES => state(prompt!("think/entities"), &shown, "references and labels of what is near"),
        LOADED if shown.loaded.is_empty() && shown.complete.is_empty() => out("nothing is loaded"),
        LOADED => state(prompt!("think/loaded"), &shown, "what need not be read again"),
        CONVERSATION => talk(&shown.conversation),
        PENDING => pending(&shown.pending),
        REASONING => match &shown.reasoning {
            Some(past) => state(prompt!("think/reasoning"), past, format!("{} turns in full", past.turns.len())),
            None if !desk.settings.turn_narratives => out("turns are not narrated in this session"),
            None => out("nothing was decided before"),
        },
        CURATION => match &shown.curation {
            Some(curation) => state(prompt!("think/curation"), curation, "what was understood in this turn"),
            None => out("nothing was understood"),
        },
        _ => out("there is nothing of that name"),
    }
}

fn act(desk: &Desk<'_>, asking: &Asking<'_>, name: &str) -> Rendered {
    if name == INSTRUCTION {
        return template(prompt!("act/instruction"), &sample_words(desk.domain), "how to act");
    }
    let number = asking.wish.note.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
    let number = number.unwrap_or_default();
    let Some(shown) = context::act(desk.view, desk.domain, number) else { return out("there is no such step") };
    match name {
        GUIDE => guide(desk, shown.step.kind, &shown.step.subdomain),
        STEP => state(prompt!("act/step"), &shown, "what is to be done"),
        RECORDS_AT_HAND => state(prompt!("act/records"), &shown.records, "what is at hand of the step's records"),
        ENTITIES if shown.others.is_empty() => out("nothing else is known"),
        ENTITIES => state(prompt!("act/entities"), &json!({"rows": shown.others}), "what else is known, by name"),
        RESULTS if shown.results.is_empty() => out("no step came before"),
        RESULTS => state(prompt!("act/results"), &json!({"steps": shown.results}), "what came of earlier steps"),
        RESULT => result(desk, asking, number),
        _ => out("there is nothing of that name"),
    }
}

/// How a step of a kind is done, with the tools for it.
fn guide(desk: &Desk<'_>, kind: StepKind, subdomain: &str) -> Rendered {
    let domain = desk.domain;
    let about = domain.find(subdomain).or_else(|| domain.types.first());
    let sample = about.map(|about| samples(about).0).unwrap_or_else(|| json!({}));
    let arguments = json!({
        "type": about.map_or(ITEM, |about| about.name.as_str()),
        "sample": canonical(&sample),
        "tools": tools(desk, kind, about),
    });
    let (prompt, why) = match kind {
        StepKind::Read => (prompt!("act/read"), "how to read"),
        StepKind::Analyze => (prompt!("act/analyze"), "how to analyze"),
        StepKind::Generate => (prompt!("act/generate"), "how to generate"),
        StepKind::Write => (prompt!("act/write"), "how to write"),
    };
    template(prompt, &arguments, why)
}

fn tools(desk: &Desk<'_>, kind: StepKind, about: Option<&RecordType>) -> String {
    let domain = desk.domain;
    let writes = kind == StepKind::Write;
    let server = domain.server.as_ref().map(|server| {
        let offers: Vec<Offer<'_>> = offers(server, &desk.memory().tools);
        let offers: Vec<&Offer<'_>> = offers.iter().filter(|offer| writes || !offer.writes).collect();
        // Where there are many, each is told more briefly.
        let chars_max = TOOL_SCHEMAS_CHARS_MAX / offers.len().max(1);
        offers.iter().map(|offer| told_of(offer, chars_max)).collect::<Vec<_>>()
    });
    let (sample, change) = about.map(samples).unwrap_or_else(|| (json!({}), json!({})));
    let fields = domain.types.iter().flat_map(|kind| kind.fields.iter().map(move |field| (kind, field)));
    let links = fields.into_iter().find(|(_, field)| field.kind == Kind::Links);
    let links = links.map(|(kind, field)| json!({"type": kind.name, "field": field.name, "to": field.to}));
    let operators: Vec<&str> = Op::ALL.iter().map(|(word, _)| *word).collect();
    let arguments = json!({
        "server": server,
        "type": about.map(|about| about.name.as_str()),
        "label": about.map(|about| about.fields.iter().find(|field| field.kind == Kind::Text).map_or(&about.label, |field| &field.name)),
        "operators": operators.join(", "),
        "writes": writes,
        "sample": canonical(&sample),
        "change": canonical(&change),
        "links": links,
    });
    fill(prompt!("act/tools").1, &arguments)
}

/// A tool of a server, for whoever may call it.
fn told_of(offer: &Offer<'_>, chars_max: usize) -> Value {
    let references = offer.declared.into_iter().flat_map(|declared| &declared.references);
    let references = references.map(|(name, kind)| json!({"name": name, "type": kind}));
    json!({
        "name": offer.name, "about": offer.about, "writes": offer.writes,
        "arguments": offer.arguments.map(|arguments| cut(arguments, chars_max)),
        "references": references.collect::<Vec<_>>(),
    })
}

/// What a step asked for, as it is told.
fn result(desk: &Desk<'_>, asking: &Asking<'_>, number: u32) -> Rendered {
    let note = &asking.wish.note;
    let used = desk.running().and_then(|running| running.steps.get(&number)).map_or(0, |state| state.tool_calls);
    let mut arguments = json!({
        "kind": "not_done", "tool": note.get("tool"), "why": note.get("why"), "left": STEP_TOOL_CALLS_MAX.saturating_sub(used),
        "rows": null, "more": 0, "total": null, "shown": 0, "wrote": [], "said": null, "gone": [], "turn": null, "step": null,
    });
    let text = note.get("text").and_then(|text| serde_json::from_value::<Text>(text.clone()).ok());
    let rows = Rows::new(desk.view, desk.domain);
    if let Some(references) = note.get("at_hand").and_then(Value::as_array) {
        let lines = rows.lines(references.iter().filter_map(Value::as_str));
        arguments["kind"] = json!("at_hand");
        arguments["rows"] = json!(lines.rows);
        return state(prompt!("act/result"), &arguments, "it is at hand already");
    }
    let Some(text) = text else { return state(prompt!("act/result"), &arguments, "why it was not done") };
    if let Some(of) = note.get("retrieved") {
        let result = context::result_in(&desk.view.text(text)).unwrap_or_else(|| "It left no result.".to_owned());
        arguments["kind"] = json!("retrieved");
        arguments["rows"] = json!(fence(&result));
        (arguments["turn"], arguments["step"]) = (of["turn"].clone(), of["step"].clone());
        return state(prompt!("act/result"), &arguments, "the result of an earlier step");
    }
    let reported = Reported::read(&desk.view.text(text)).unwrap_or_default();
    let lines = rows.result(&reported);
    let entities = &desk.memory().entities;
    let gone = reported.gone.iter().filter_map(|item| entities.reference_of(&item.kind, &item.id));
    let run = note.get("run").and_then(Value::as_u64);
    let wrote = desk.memory().writes.iter().find(|write| Some(u64::from(write.run.0)) == run);
    arguments["kind"] = json!("rows");
    arguments["rows"] = json!(lines.rows);
    arguments["more"] = json!(lines.more);
    arguments["total"] = json!(reported.total);
    arguments["shown"] = json!(reported.rows.len());
    arguments["wrote"] = json!(wrote.map(|write| write.what.clone()).unwrap_or_default());
    arguments["said"] = json!(reported.said.as_deref().map(|said| fence(&entities.without_ids(said))));
    arguments["gone"] = json!(gone.collect::<Vec<_>>());
    state(prompt!("act/result"), &arguments, "what the tool brought")
}

fn reply(desk: &Desk<'_>, name: &str) -> Rendered {
    if name == INSTRUCTION {
        return template(prompt!("reply/instruction"), &(), "how to speak");
    }
    let shown = context::reply(desk.view, desk.domain);
    match name {
        FLOW => state(prompt!("reply/flow"), &shown, "where the conversation stands"),
        ENTITIES if shown.rows.is_empty() => out("nothing is known"),
        ENTITIES => state(prompt!("reply/entities"), &shown, "what is talked about, by name"),
        CONVERSATION => talk(&shown.conversation),
        HAPPENED => state(prompt!("reply/happened"), &shown.happened, "what really happened"),
        _ => out("there is nothing of that name"),
    }
}

fn summarize(desk: &Desk<'_>, asking: &Asking<'_>, name: &str) -> Rendered {
    let words = json!({"words": FOLDED_WORDS});
    match (name, asking.wish.ask.as_str()) {
        (INSTRUCTION, ASK_REASONING) => template(prompt!("summarize/reasoning"), &words, "how to fold decisions"),
        (INSTRUCTION, _) => template(prompt!("summarize/conversation"), &words, "how to fold what was said"),
        (OLDER, ASK_REASONING) => {
            state(prompt!("summarize/older_reasoning"), &Past::aged(desk.view), "turns that are no longer kept in full")
        }
        (OLDER, _) => {
            state(prompt!("summarize/older_conversation"), &Talk::aged(desk.view), "turns that are no longer shown")
        }
        _ => out("there is nothing of that name"),
    }
}
