//! What a stand-in for a model plays, so that a whole conversation can be tried without one, in any domain: it aligns, reads,
//! weighs, drafts, writes and deletes. It goes by the words of the message, by what is known, and by the declaration. No model
//! is ever told any of it.

use segue_core::event::CallOpened;
use serde_json::{Map, Value, json};

use super::answer::cut;
use super::context::samples;
use super::desk::Desk;
use super::domain::{Domain, Field, Kind, RecordType};
use super::facts::{End, PlannedStep, StepEnd, StepKind};
use super::registry::{Entity, Tier};
use super::spec::{ACT, ASK_REASONING, ASK_RESULT, REPLY, SUMMARIZE, THINK, UNDERSTAND};
use super::state::Running;
use super::tools::{Offer, offers};
use super::{calendar, step};
use crate::template::fill;

/// Words that rule out what follows them.
const NOT: [&str; 5] = ["no", "not", "without", "except", "avoid"];
/// Words that ask for something to be stored.
const STORE: [&str; 12] =
    ["add", "plan", "put", "save", "go", "take", "choose", "schedule", "store", "keep", "note", "yes"];
/// Words that ask for something to be deleted.
const DELETE: [&str; 4] = ["delete", "remove", "erase", "cancel"];
/// Words that ask for something new.
const NEW: [&str; 6] = ["invent", "write", "draft", "compose", "new", "create"];
/// Words that ask to look.
const LOOK: [&str; 12] =
    ["show", "list", "what", "which", "find", "look", "read", "any", "days", "suggest", "have", "search"];
/// Words too common to mean a record.
const COMMON: [&str; 12] = ["the", "and", "with", "of", "a", "an", "in", "on", "for", "to", "one", "ones"];
/// Records written at once at most.
const WRITTEN: usize = 3;

/// What the stand-in answers to a call; `{{mark}}` is filled by the stand-in itself.
pub(super) fn hint(desk: &Desk<'_>, call: &CallOpened) -> Option<String> {
    if call.role == *SUMMARIZE {
        let memory = desk.memory();
        let through = if call.ask == *ASK_REASONING {
            memory.reasoning.aged.back().map(|summary| summary.turn)
        } else {
            memory.conversation.aged.back().map(|exchange| exchange.turn)
        };
        let arguments = json!({"turn": through.unwrap_or_else(|| memory.turn()), "mark": "{{mark}}"});
        return Some(fill(include_str!("../../prompts/assistant/rehearsal/summary.md"), &arguments));
    }
    let running = desk.memory().running.as_ref()?;
    let said: Vec<String> = running.said.iter().map(|(_, text)| desk.view.text(*text).to_string()).collect();
    let play = Play { desk, running, words: words(&said.join(" ")), said: said.join(" ") };
    match call.role.as_str() {
        UNDERSTAND => Some(play.understand().to_string()),
        THINK => Some(play.think().to_string()),
        ACT => Some(play.act(call)?.to_string()),
        REPLY => Some(play.reply()),
        _ => None,
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether two words are the same but for an ending.
fn alike(one: &str, other: &str) -> bool {
    let stem = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    one.chars().count() > 2 && stem(one) == stem(other)
}

struct Play<'a> {
    desk: &'a Desk<'a>,
    running: &'a Running,
    words: Vec<String>,
    said: String,
}

impl Play<'_> {
    fn says(&self, any: &[&str]) -> bool {
        self.words.iter().any(|word| any.contains(&word.as_str()))
    }

    fn domain(&self) -> &Domain {
        self.desk.domain
    }

    fn near(&self) -> Vec<(&str, &Entity)> {
        let memory = self.desk.memory();
        memory.entities.near(memory.turn()).into_iter().map(|(name, entity, _)| (name, entity)).collect()
    }

    /// Those whose name shares a word with these.
    fn named(&self, wanted: &[String]) -> Vec<(String, bool)> {
        let memory = self.desk.memory();
        let known = memory.entities.newest(memory.turn()).into_iter().filter(|(_, _, tier)| *tier != Tier::Dropped);
        let mut found: Vec<(String, bool)> = Vec::new();
        for (reference, entity, _) in known {
            let label: Vec<String> =
                words(&entity.label).into_iter().filter(|word| !COMMON.contains(&word.as_str())).collect();
            if wanted.iter().any(|word| label.iter().any(|part| alike(word, part))) {
                found.push((reference.to_owned(), entity.is_saved()));
            }
        }
        found.sort();
        found
    }

    /// The words behind a word that rules out.
    fn ruled_out(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (place, word) in self.words.iter().enumerate() {
            if NOT.contains(&word.as_str()) {
                out.extend(self.words.iter().skip(place + 1).take(2).cloned());
            }
        }
        out
    }

    fn understand(&self) -> Value {
        let ruled_out = self.ruled_out();
        let demoted = self.named(&ruled_out);
        let wanted: Vec<String> = self.words.iter().filter(|word| !ruled_out.contains(word)).cloned().collect();
        let references: Vec<String> = self.named(&wanted).into_iter().map(|(name, _)| name).collect();
        let demote = demoted.iter().map(|(name, _)| json!({"ref": name, "reason": cut(&self.said, 60)}));
        let pending = self.desk.memory().conversation.pending.as_ref().map(|_| "answered");
        json!({
            "expressed": cut(&self.said, 80), "references": references, "retain": [],
            "demote": demote.collect::<Vec<_>>(), "drop": [], "clear": false, "pending": pending,
        })
    }

    fn think(&self) -> Value {
        let understood = self.running.understood.clone().unwrap_or_default();
        let drafts: Vec<String> =
            self.near().into_iter().filter(|(_, entity)| !entity.is_saved()).map(|(name, _)| name.to_owned()).collect();
        let chosen: Vec<String> = understood
            .references
            .iter()
            .filter(|name| !understood.demote.iter().any(|aside| aside.reference == **name))
            .cloned()
            .collect();
        let is_served = self.domain().server.is_some();
        if is_served && !chosen.is_empty() && [&STORE[..], &DELETE[..], &NEW[..]].iter().any(|any| self.says(any)) {
            let write = self.step("do what was asked", StepKind::Write, self.kind_of(&chosen), 1, &chosen);
            return self.steps("do what was asked", vec![write]);
        }
        if self.says(&DELETE) && !chosen.is_empty() {
            return self.steps(
                "remove what was named",
                vec![self.step("delete what was named", StepKind::Write, self.kind_of(&chosen), 1, &chosen)],
            );
        }
        if self.says(&STORE) && !drafts.is_empty() {
            return self.steps(
                "keep the draft",
                vec![self.step("save the draft", StepKind::Write, self.kind_of(&drafts), 1, &drafts)],
            );
        }
        if self.says(&STORE)
            && let Some((kind, refs)) = self.follow_up(&chosen)
        {
            let description = format!("make a {} of what was chosen", kind.name);
            return self
                .steps("store what was chosen", vec![self.step(&description, StepKind::Write, &kind.name, 1, &refs)]);
        }
        if self.says(&NEW) {
            let kind = self.meant().into_iter().next().or_else(|| self.domain().types.first());
            let name = kind.map_or("", |kind| kind.name.as_str());
            return self.steps(
                "have something new",
                vec![self.step(&format!("write a {name}"), StepKind::Generate, name, 1, &[])],
            );
        }
        let is_known = !self.near().is_empty();
        if !understood.demote.is_empty() || (is_known && !self.says(&LOOK)) {
            let is_near = |name: &&str| self.near().iter().any(|(_, entity)| entity.kind == **name);
            let kind = self.domain().type_names().find(is_near).unwrap_or_default().to_owned();
            return self.steps(
                "narrow it down",
                vec![self.step("say what is left of what is at hand", StepKind::Analyze, &kind, 1, &[])],
            );
        }
        if self.running.turn == 1 && !self.says(&LOOK) {
            let types: Vec<&str> = self.domain().type_names().collect();
            let say = fill(
                include_str!("../../prompts/assistant/rehearsal/proposal.md"),
                &json!({"types": types.join(", ")}),
            );
            return json!({"decision": "propose", "goal": "agree on the frame", "steps": [], "say": say});
        }
        self.look()
    }

    fn look(&self) -> Value {
        let meant = self.meant();
        let kinds: Vec<&RecordType> =
            if meant.is_empty() { self.domain().types.iter().take(2).collect() } else { meant };
        // What was read in full need not be read again.
        let mut steps: Vec<Value> = kinds
            .iter()
            .filter(|kind| !self.desk.memory().is_complete(&kind.name))
            .map(|kind| self.step(&format!("read every {}", kind.name), StepKind::Read, &kind.name, 1, &[]))
            .collect();
        if kinds.is_empty() {
            steps.push(self.step("see what the server has", StepKind::Read, "", 1, &[]));
        }
        let first = kinds.first().map_or("", |kind| kind.name.as_str());
        steps.push(self.step("say what there is, and what stands out", StepKind::Analyze, first, 2, &[]));
        self.steps("see what there is", steps)
    }

    fn steps(&self, goal: &str, steps: Vec<Value>) -> Value {
        json!({"decision": "plan_direct", "goal": goal, "steps": steps, "say": null})
    }

    fn step(&self, description: &str, kind: StepKind, subdomain: &str, group: u32, refs: &[String]) -> Value {
        let subdomain =
            if subdomain.is_empty() { self.domain().type_names().next().unwrap_or_default() } else { subdomain };
        json!({"description": description, "type": kind.word(), "subdomain": subdomain, "group": group, "refs": refs})
    }

    fn kind_of<'s>(&'s self, references: &[String]) -> &'s str {
        let first = references.first().and_then(|reference| self.desk.memory().entities.get(reference));
        first.map_or("", |entity| entity.kind.as_str())
    }

    /// The types that the message names.
    fn meant(&self) -> Vec<&RecordType> {
        let named = |kind: &&RecordType| self.words.iter().any(|word| alike(word, &kind.name));
        self.domain().types.iter().filter(named).collect()
    }

    /// A type that is made from what was chosen: one that must link to it.
    fn follow_up(&self, chosen: &[String]) -> Option<(&RecordType, Vec<String>)> {
        let entities = &self.desk.memory().entities;
        for kind in &self.domain().types {
            let Some(link) = kind.fields.iter().find(|field| field.required && field.kind == Kind::Link) else {
                continue;
            };
            let fits = |name: &&String| {
                entities.get(name).is_some_and(|entity| Some(&entity.kind) == link.to.as_ref() && entity.is_saved())
            };
            let refs: Vec<String> = chosen.iter().filter(fits).take(WRITTEN).cloned().collect();
            if !refs.is_empty() {
                return Some((kind, refs));
            }
        }
        None
    }

    fn act(&self, call: &CallOpened) -> Option<Value> {
        let number = step::number(call)?;
        let planned = self.running.planned(number)?;
        if call.ask == *ASK_RESULT {
            return Some(self.concluded(planned));
        }
        if self.domain().server.is_some() {
            return Some(self.serve(planned));
        }
        let kind = self.domain().find(&planned.subdomain)?;
        Some(match planned.kind {
            StepKind::Read => {
                json!({"action": "tool_call", "tool": "read", "arguments": {"type": kind.name, "limit": 25}})
            }
            StepKind::Analyze => self.concluded(planned),
            StepKind::Generate => {
                let content = self.drafted(kind);
                json!({"action": "step_complete", "outcome": format!("a {} is written", kind.name),
                    "result": "It is made up.", "drafts": [{"type": kind.name, "content": content}]})
            }
            StepKind::Write => self.write(planned, kind),
        })
    }

    /// A step over the tools of a server: the first that fits.
    fn serve(&self, planned: &PlannedStep) -> Value {
        let memory = self.desk.memory();
        let offers = self.domain().server.as_ref().map(|server| offers(server, &memory.tools)).unwrap_or_default();
        let returns = |offer: &Offer<'_>| {
            offer.declared.and_then(|tool| tool.returned.as_ref()).is_some_and(|kind| *kind == planned.subdomain)
        };
        let kind_of = |reference: &&String| memory.entities.get(reference).map(|entity| entity.kind.as_str());
        let given = |offer: &Offer<'_>| {
            let wanted = offer.declared.into_iter().flat_map(|tool| &tool.references);
            let found = wanted.map(|(name, kind)| {
                let fits = planned.refs.iter().find(|reference| kind_of(reference) == Some(kind.as_str()))?;
                Some((name.clone(), json!(fits)))
            });
            found.collect::<Option<Map<String, Value>>>()
        };
        let call = |offer: &Offer<'_>| json!({"action": "tool_call", "tool": offer.name, "arguments": given(offer).unwrap_or_default()});
        let (found, why) = match planned.kind {
            StepKind::Read => {
                let reads: Vec<&Offer<'_>> = offers.iter().filter(|offer| !offer.writes).collect();
                let found = reads.iter().find(|offer| returns(offer)).or(reads.first()).copied();
                (found, "the server has no tool that only reads")
            }
            StepKind::Write => {
                let fits = |offer: &&Offer<'_>| offer.writes && given(offer).is_some_and(|given| !given.is_empty());
                (offers.iter().find(fits), "the server has no tool for that")
            }
            StepKind::Analyze | StepKind::Generate => return self.concluded(planned),
        };
        found.map_or_else(|| json!({"action": "blocked", "reason": why}), call)
    }

    fn concluded(&self, planned: &PlannedStep) -> Value {
        let own: Vec<(&str, &Entity)> =
            self.near().into_iter().filter(|(_, entity)| entity.kind == planned.subdomain).collect();
        let refs: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let outcome = match (planned.kind, own.len()) {
            (StepKind::Write, _) => "it is stored".to_owned(),
            (_, _) if self.domain().types.is_empty() => "the server answered".to_owned(),
            (StepKind::Read, count) => format!("{count} of type {} are at hand", planned.subdomain),
            (_, count) => format!("{count} of type {} remain", planned.subdomain),
        };
        json!({"action": "step_complete", "outcome": outcome, "result": {"fitting": refs}, "refs": refs})
    }

    fn drafted(&self, kind: &RecordType) -> Value {
        let (mut content, _) = samples(kind);
        let fields = content.as_object_mut().map(std::mem::take).unwrap_or_default();
        let filled: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| {
                let field = kind.field(&name)?;
                let is_label = name == kind.label;
                let value = match field.kind {
                    Kind::Text if is_label => json!(format!("A new {}", kind.name)),
                    Kind::Link => {
                        json!(self.near().into_iter().find(|(_, entity)| Some(&entity.kind) == field.to.as_ref())?.0)
                    }
                    Kind::Links => return None,
                    Kind::List => json!(["something", "something else"]),
                    _ => value,
                };
                Some((name, value))
            })
            .collect();
        Value::Object(filled)
    }

    fn write(&self, planned: &PlannedStep, kind: &RecordType) -> Value {
        let entities = &self.desk.memory().entities;
        if self.says(&DELETE) {
            return json!({"action": "tool_call", "tool": "delete", "arguments": {"refs": planned.refs}});
        }
        let drafts: Vec<&String> =
            planned.refs.iter().filter(|name| entities.get(name).is_some_and(|entity| !entity.is_saved())).collect();
        if !drafts.is_empty() {
            return json!({"action": "tool_call", "tool": "create", "arguments": {"drafts": drafts}});
        }
        let records = planned.refs.iter().zip(1..).map(|(reference, place)| self.record(kind, reference, place));
        json!({"action": "tool_call", "tool": "create", "arguments": {"type": kind.name, "records": records.collect::<Vec<_>>()}})
    }

    /// A record that links to what was chosen, with whatever else it must have.
    fn record(&self, kind: &RecordType, reference: &str, place: i64) -> Value {
        let required = kind.fields.iter().filter(|field| field.required);
        let value = |field: &Field| match field.kind {
            Kind::Link => json!(reference),
            Kind::Date => json!(calendar::date(
                calendar::days(self.desk.view.session.at, self.desk.settings.utc_offset_minutes) + place
            )),
            Kind::Text if !field.one_of.is_empty() => {
                let said = field.one_of.iter().find(|choice| self.words.iter().any(|word| alike(word, choice)));
                json!(said.or(field.one_of.last()))
            }
            Kind::Text => json!(cut(&self.said, 200)),
            _ => samples(kind).0.get(&field.name).cloned().unwrap_or(Value::Null),
        };
        let fields: Map<String, Value> = required.map(|field| (field.name.clone(), value(field))).collect();
        Value::Object(fields)
    }

    fn reply(&self) -> String {
        let entities = &self.desk.memory().entities;
        let plan = self.running.plan.as_ref();
        let say = plan.and_then(|plan| plan.say.clone());
        let mut lines = Vec::new();
        let ends: Vec<&StepEnd> = self.running.steps.values().filter_map(|state| state.end.as_ref()).collect();
        for (place, end) in ends.iter().enumerate() {
            // What an earlier step named already need not be named again.
            if !end.refs.is_empty() && ends[..place].iter().any(|before| before.refs == end.refs) {
                continue;
            }
            let labels = end.refs.iter().filter_map(|name| entities.get(name)).map(|entity| entity.label.clone());
            let labels: Vec<String> = labels.take(12).collect();
            let named = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(", ")) };
            let how = if end.end == End::Done { String::new() } else { format!(" ({})", End::words(Some(end.end))) };
            lines.push(format!("{}{how}{named}", entities.in_words(&end.outcome)));
        }
        let drafts =
            self.running.steps.values().filter_map(|state| state.end.as_ref()).any(|end| !end.drafts.is_empty());
        let arguments = json!({
            "first": self.running.turn == 1, "say": say, "lines": lines, "wrote": self.running.wrote,
            "drafts": drafts, "mark": "{{mark}}",
        });
        fill(include_str!("../../prompts/assistant/rehearsal/reply.md"), &arguments)
    }
}
