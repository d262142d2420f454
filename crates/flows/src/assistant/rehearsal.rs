//! What a stand-in for a model plays, so that a whole conversation can be tried without one, in any domain: it aligns, reads,
//! weighs, drafts, writes and deletes. It goes by the words of the message, by what is known, and by the declaration. No model
//! is ever told any of it.

use segue_core::event::CallOpened;
use serde_json::{Map, Value, json};

use super::answer::truncate_chars;
use super::assistant_context::AssistantContext;
use super::domain::{DomainSchema, FieldKind, RecordField, RecordType};
use super::facts::{PlannedStep, StepEnd, StepEndStatus, StepKind};
use super::prompt_context::sample_record_and_change;
use super::registry::{Entity, RelevanceTier};
use super::spec::{ACT_ROLE, ASK_REASONING, ASK_RESULT, REPLY_ROLE, SUMMARIZE_ROLE, THINK_ROLE, UNDERSTAND_ROLE};
use super::state::TurnProgress;
use super::tools::{AvailableTool, list_available_tools};
use super::{calendar, step};
use crate::template::fill_template;

/// Words that rule out what follows them.
const NEGATION_WORDS: [&str; 5] = ["no", "not", "without", "except", "avoid"];
/// Words that ask for something to be stored.
const SAVE_WORDS: [&str; 12] =
    ["add", "plan", "put", "save", "go", "take", "choose", "schedule", "store", "keep", "note", "yes"];
/// Words that ask for something to be deleted.
const DELETE_WORDS: [&str; 4] = ["delete", "remove", "erase", "cancel"];
/// Words that ask for something new.
const CREATE_WORDS: [&str; 6] = ["invent", "write", "draft", "compose", "new", "create"];
/// Words that ask to look.
const READ_WORDS: [&str; 12] =
    ["show", "list", "what", "which", "find", "look", "read", "any", "days", "suggest", "have", "search"];
/// Words too common to mean a record.
const STOP_WORDS: [&str; 12] = ["the", "and", "with", "of", "a", "an", "in", "on", "for", "to", "one", "ones"];
/// Records written at once at most.
const RECORDS_WRITTEN_MAX: usize = 3;

/// What the stand-in answers to a call; `{{mark}}` is filled by the stand-in itself.
pub(super) fn rehearse_node_answer(context: &AssistantContext<'_>, call: &CallOpened) -> Option<String> {
    if call.role == *SUMMARIZE_ROLE {
        let memory = context.state();
        let through = if call.ask == *ASK_REASONING {
            memory.reasoning.uncompacted.back().map(|summary| summary.turn)
        } else {
            memory.conversation.uncompacted.back().map(|exchange| exchange.turn)
        };
        let arguments = json!({"turn": through.unwrap_or_else(|| memory.current_turn_number()), "mark": "{{mark}}"});
        return Some(fill_template(include_str!("../../prompts/assistant/rehearsal/summary.md"), &arguments));
    }
    let running = context.state().current_turn.as_ref()?;
    let said: Vec<String> =
        running.messages.iter().map(|(_, text)| context.view.read_text(*text).to_string()).collect();
    let play = AssistantRehearsal {
        context,
        running,
        words: split_lowercase_words(&said.join(" ")),
        user_text: said.join(" "),
    };
    match call.role.as_str() {
        UNDERSTAND_ROLE => Some(play.understand_answer().to_string()),
        THINK_ROLE => Some(play.think_answer().to_string()),
        ACT_ROLE => Some(play.act_answer(call)?.to_string()),
        REPLY_ROLE => Some(play.reply_text()),
        _ => None,
    }
}

fn split_lowercase_words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether two words are the same but for an ending.
fn is_same_word_stem(one: &str, other: &str) -> bool {
    let stem = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    one.chars().count() > 2 && stem(one) == stem(other)
}

struct AssistantRehearsal<'a> {
    context: &'a AssistantContext<'a>,
    running: &'a TurnProgress,
    words: Vec<String>,
    user_text: String,
}

impl AssistantRehearsal<'_> {
    fn mentions_any(&self, any: &[&str]) -> bool {
        self.words.iter().any(|word| any.contains(&word.as_str()))
    }

    fn domain(&self) -> &DomainSchema {
        self.context.domain
    }

    fn relevant_entities(&self) -> Vec<(&str, &Entity)> {
        let memory = self.context.state();
        memory
            .entities
            .relevant_entities(memory.current_turn_number())
            .into_iter()
            .map(|(name, entity, _)| (name, entity))
            .collect()
    }

    /// Those whose name shares a word with these.
    fn find_entities_by_label(&self, wanted: &[String]) -> Vec<(String, bool)> {
        let memory = self.context.state();
        let known = memory
            .entities
            .entities_by_recency(memory.current_turn_number())
            .into_iter()
            .filter(|(_, _, tier)| *tier != RelevanceTier::Dropped);
        let mut found: Vec<(String, bool)> = Vec::new();
        for (reference, entity, _) in known {
            let label: Vec<String> = split_lowercase_words(&entity.label)
                .into_iter()
                .filter(|word| !STOP_WORDS.contains(&word.as_str()))
                .collect();
            if wanted.iter().any(|word| label.iter().any(|part| is_same_word_stem(word, part))) {
                found.push((reference.to_owned(), entity.is_saved()));
            }
        }
        found.sort();
        found
    }

    /// The words behind a word that rules out.
    fn negated_words(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (place, word) in self.words.iter().enumerate() {
            if NEGATION_WORDS.contains(&word.as_str()) {
                out.extend(self.words.iter().skip(place + 1).take(2).cloned());
            }
        }
        out
    }

    fn understand_answer(&self) -> Value {
        let ruled_out = self.negated_words();
        let demoted = self.find_entities_by_label(&ruled_out);
        let wanted: Vec<String> = self.words.iter().filter(|word| !ruled_out.contains(word)).cloned().collect();
        let references: Vec<String> = self.find_entities_by_label(&wanted).into_iter().map(|(name, _)| name).collect();
        let demote =
            demoted.iter().map(|(name, _)| json!({"ref": name, "reason": truncate_chars(&self.user_text, 60)}));
        let pending = self.context.state().conversation.pending.as_ref().map(|_| "answered");
        json!({
            "expressed": truncate_chars(&self.user_text, 80), "references": references, "retain": [],
            "demote": demote.collect::<Vec<_>>(), "drop": [], "clear": false, "pending": pending,
        })
    }

    fn think_answer(&self) -> Value {
        let understood = self.running.understanding.clone().unwrap_or_default();
        let drafts: Vec<String> = self
            .relevant_entities()
            .into_iter()
            .filter(|(_, entity)| !entity.is_saved())
            .map(|(name, _)| name.to_owned())
            .collect();
        let chosen: Vec<String> = understood
            .references
            .iter()
            .filter(|name| !understood.demoted.iter().any(|aside| aside.reference == **name))
            .cloned()
            .collect();
        let is_served = self.domain().server.is_some();
        if is_served
            && !chosen.is_empty()
            && [&SAVE_WORDS[..], &DELETE_WORDS[..], &CREATE_WORDS[..]].iter().any(|any| self.mentions_any(any))
        {
            let write =
                self.plan_step_json("do what was asked", StepKind::Write, self.first_record_type(&chosen), 1, &chosen);
            return self.plan_answer("do what was asked", vec![write]);
        }
        if self.mentions_any(&DELETE_WORDS) && !chosen.is_empty() {
            return self.plan_answer(
                "remove what was named",
                vec![self.plan_step_json(
                    "delete what was named",
                    StepKind::Write,
                    self.first_record_type(&chosen),
                    1,
                    &chosen,
                )],
            );
        }
        if self.mentions_any(&SAVE_WORDS) && !drafts.is_empty() {
            return self.plan_answer(
                "keep the draft",
                vec![self.plan_step_json(
                    "save the draft",
                    StepKind::Write,
                    self.first_record_type(&drafts),
                    1,
                    &drafts,
                )],
            );
        }
        if self.mentions_any(&SAVE_WORDS)
            && let Some((kind, refs)) = self.find_type_linking_to(&chosen)
        {
            let description = format!("make a {} of what was chosen", kind.name);
            return self.plan_answer(
                "store what was chosen",
                vec![self.plan_step_json(&description, StepKind::Write, &kind.name, 1, &refs)],
            );
        }
        if self.mentions_any(&CREATE_WORDS) {
            let kind = self.mentioned_types().into_iter().next().or_else(|| self.domain().types.first());
            let name = kind.map_or("", |kind| kind.name.as_str());
            return self.plan_answer(
                "have something new",
                vec![self.plan_step_json(&format!("write a {name}"), StepKind::Generate, name, 1, &[])],
            );
        }
        let is_known = !self.relevant_entities().is_empty();
        if !understood.demoted.is_empty() || (is_known && !self.mentions_any(&READ_WORDS)) {
            let is_near = |name: &&str| self.relevant_entities().iter().any(|(_, entity)| entity.kind == **name);
            let kind = self.domain().type_names().find(is_near).unwrap_or_default().to_owned();
            return self.plan_answer(
                "narrow it down",
                vec![self.plan_step_json("say what is left of what is at hand", StepKind::Analyze, &kind, 1, &[])],
            );
        }
        if self.running.turn == 1 && !self.mentions_any(&READ_WORDS) {
            let types: Vec<&str> = self.domain().type_names().collect();
            let say = fill_template(
                include_str!("../../prompts/assistant/rehearsal/proposal.md"),
                &json!({"types": types.join(", ")}),
            );
            return json!({"decision": "propose", "goal": "agree on the frame", "steps": [], "say": say});
        }
        self.plan_read_answer()
    }

    fn plan_read_answer(&self) -> Value {
        let meant = self.mentioned_types();
        let kinds: Vec<&RecordType> =
            if meant.is_empty() { self.domain().types.iter().take(2).collect() } else { meant };
        // What was read in full need not be read again.
        let mut steps: Vec<Value> = kinds
            .iter()
            .filter(|kind| !self.context.state().is_type_fully_loaded(&kind.name))
            .map(|kind| self.plan_step_json(&format!("read every {}", kind.name), StepKind::Read, &kind.name, 1, &[]))
            .collect();
        if kinds.is_empty() {
            steps.push(self.plan_step_json("see what the server has", StepKind::Read, "", 1, &[]));
        }
        let first = kinds.first().map_or("", |kind| kind.name.as_str());
        steps.push(self.plan_step_json("say what there is, and what stands out", StepKind::Analyze, first, 2, &[]));
        self.plan_answer("see what there is", steps)
    }

    fn plan_answer(&self, goal: &str, steps: Vec<Value>) -> Value {
        json!({"decision": "plan_direct", "goal": goal, "steps": steps, "say": null})
    }

    fn plan_step_json(&self, description: &str, kind: StepKind, subdomain: &str, group: u32, refs: &[String]) -> Value {
        let subdomain =
            if subdomain.is_empty() { self.domain().type_names().next().unwrap_or_default() } else { subdomain };
        json!({"description": description, "type": kind.as_str(), "subdomain": subdomain, "group": group, "refs": refs})
    }

    fn first_record_type<'s>(&'s self, references: &[String]) -> &'s str {
        let first = references.first().and_then(|reference| self.context.state().entities.get(reference));
        first.map_or("", |entity| entity.kind.as_str())
    }

    /// The types that the message names.
    fn mentioned_types(&self) -> Vec<&RecordType> {
        let named = |kind: &&RecordType| self.words.iter().any(|word| is_same_word_stem(word, &kind.name));
        self.domain().types.iter().filter(named).collect()
    }

    /// A type that is made from what was chosen: one that must link to it.
    fn find_type_linking_to(&self, chosen: &[String]) -> Option<(&RecordType, Vec<String>)> {
        let entities = &self.context.state().entities;
        for kind in &self.domain().types {
            let Some(link) = kind.fields.iter().find(|field| field.required && field.kind == FieldKind::Link) else {
                continue;
            };
            let fits = |name: &&String| {
                entities.get(name).is_some_and(|entity| Some(&entity.kind) == link.to.as_ref() && entity.is_saved())
            };
            let refs: Vec<String> = chosen.iter().filter(fits).take(RECORDS_WRITTEN_MAX).cloned().collect();
            if !refs.is_empty() {
                return Some((kind, refs));
            }
        }
        None
    }

    fn act_answer(&self, call: &CallOpened) -> Option<Value> {
        let number = step::call_step_number(call)?;
        let planned = self.running.planned_step(number)?;
        if call.ask == *ASK_RESULT {
            return Some(self.step_complete_answer(planned));
        }
        if self.domain().server.is_some() {
            return Some(self.server_tool_answer(planned));
        }
        let kind = self.domain().find_type(&planned.subdomain)?;
        Some(match planned.kind {
            StepKind::Read => {
                json!({"action": "tool_call", "tool": "read", "arguments": {"type": kind.name, "limit": 25}})
            }
            StepKind::Analyze => self.step_complete_answer(planned),
            StepKind::Generate => {
                let content = self.draft_fields(kind);
                json!({"action": "step_complete", "outcome": format!("a {} is written", kind.name),
                    "result": "It is made up.", "drafts": [{"type": kind.name, "content": content}]})
            }
            StepKind::Write => self.write_tool_answer(planned, kind),
        })
    }

    /// A step over the tools of a server: the first that fits.
    fn server_tool_answer(&self, planned: &PlannedStep) -> Value {
        let memory = self.context.state();
        let offers = self
            .domain()
            .server
            .as_ref()
            .map(|server| list_available_tools(server, &memory.server_tools))
            .unwrap_or_default();
        let returns = |offer: &AvailableTool<'_>| {
            offer.config.and_then(|tool| tool.returned_type.as_ref()).is_some_and(|kind| *kind == planned.subdomain)
        };
        let kind_of = |reference: &&String| memory.entities.get(reference).map(|entity| entity.kind.as_str());
        let given = |offer: &AvailableTool<'_>| {
            let wanted = offer.config.into_iter().flat_map(|tool| &tool.references);
            let found = wanted.map(|(name, kind)| {
                let fits = planned.refs.iter().find(|reference| kind_of(reference) == Some(kind.as_str()))?;
                Some((name.clone(), json!(fits)))
            });
            found.collect::<Option<Map<String, Value>>>()
        };
        let call = |offer: &AvailableTool<'_>| json!({"action": "tool_call", "tool": offer.name, "arguments": given(offer).unwrap_or_default()});
        let (found, why) = match planned.kind {
            StepKind::Read => {
                let reads: Vec<&AvailableTool<'_>> = offers.iter().filter(|offer| !offer.is_write).collect();
                let found = reads.iter().find(|offer| returns(offer)).or(reads.first()).copied();
                (found, "the server has no tool that only reads")
            }
            StepKind::Write => {
                let fits =
                    |offer: &&AvailableTool<'_>| offer.is_write && given(offer).is_some_and(|given| !given.is_empty());
                (offers.iter().find(fits), "the server has no tool for that")
            }
            StepKind::Analyze | StepKind::Generate => return self.step_complete_answer(planned),
        };
        found.map_or_else(|| json!({"action": "blocked", "reason": why}), call)
    }

    fn step_complete_answer(&self, planned: &PlannedStep) -> Value {
        let own: Vec<(&str, &Entity)> =
            self.relevant_entities().into_iter().filter(|(_, entity)| entity.kind == planned.subdomain).collect();
        let refs: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let outcome = match (planned.kind, own.len()) {
            (StepKind::Write, _) => "it is stored".to_owned(),
            (_, _) if self.domain().types.is_empty() => "the server answered".to_owned(),
            (StepKind::Read, count) => format!("{count} of type {} are at hand", planned.subdomain),
            (_, count) => format!("{count} of type {} remain", planned.subdomain),
        };
        json!({"action": "step_complete", "outcome": outcome, "result": {"fitting": refs}, "refs": refs})
    }

    fn draft_fields(&self, kind: &RecordType) -> Value {
        let (mut content, _) = sample_record_and_change(kind);
        let fields = content.as_object_mut().map(std::mem::take).unwrap_or_default();
        let filled: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| {
                let field = kind.field(&name)?;
                let is_label = name == kind.label;
                let value = match field.kind {
                    FieldKind::Text if is_label => json!(format!("A new {}", kind.name)),
                    FieldKind::Link => {
                        json!(
                            self.relevant_entities()
                                .into_iter()
                                .find(|(_, entity)| Some(&entity.kind) == field.to.as_ref())?
                                .0
                        )
                    }
                    FieldKind::Links => return None,
                    FieldKind::List => json!(["something", "something else"]),
                    _ => value,
                };
                Some((name, value))
            })
            .collect();
        Value::Object(filled)
    }

    fn write_tool_answer(&self, planned: &PlannedStep, kind: &RecordType) -> Value {
        let entities = &self.context.state().entities;
        if self.mentions_any(&DELETE_WORDS) {
            return json!({"action": "tool_call", "tool": "delete", "arguments": {"refs": planned.refs}});
        }
        let drafts: Vec<&String> =
            planned.refs.iter().filter(|name| entities.get(name).is_some_and(|entity| !entity.is_saved())).collect();
        if !drafts.is_empty() {
            return json!({"action": "tool_call", "tool": "create", "arguments": {"drafts": drafts}});
        }
        let records =
            planned.refs.iter().zip(1..).map(|(reference, place)| self.linked_record_fields(kind, reference, place));
        json!({"action": "tool_call", "tool": "create", "arguments": {"type": kind.name, "records": records.collect::<Vec<_>>()}})
    }

    /// A record that links to what was chosen, with whatever else it must have.
    fn linked_record_fields(&self, kind: &RecordType, reference: &str, day_offset: i64) -> Value {
        let required = kind.fields.iter().filter(|field| field.required);
        let value = |field: &RecordField| match field.kind {
            FieldKind::Link => json!(reference),
            FieldKind::Date => json!(calendar::date_from_epoch_days(
                calendar::days_since_epoch(
                    self.context.view.session.last_event_at,
                    self.context.settings.utc_offset_minutes
                ) + day_offset
            )),
            FieldKind::Text if !field.one_of.is_empty() => {
                let said =
                    field.one_of.iter().find(|choice| self.words.iter().any(|word| is_same_word_stem(word, choice)));
                json!(said.or(field.one_of.last()))
            }
            FieldKind::Text => json!(truncate_chars(&self.user_text, 200)),
            _ => sample_record_and_change(kind).0.get(&field.name).cloned().unwrap_or(Value::Null),
        };
        let fields: Map<String, Value> = required.map(|field| (field.name.clone(), value(field))).collect();
        Value::Object(fields)
    }

    fn reply_text(&self) -> String {
        let entities = &self.context.state().entities;
        let plan = self.running.plan.as_ref();
        let say = plan.and_then(|plan| plan.message_to_user.clone());
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
            let how = if end.status == StepEndStatus::Done {
                String::new()
            } else {
                format!(" ({})", StepEndStatus::describe(Some(end.status)))
            };
            lines.push(format!("{}{how}{named}", entities.replace_references_with_labels(&end.outcome)));
        }
        let drafts =
            self.running.steps.values().filter_map(|state| state.end.as_ref()).any(|end| !end.drafts.is_empty());
        let arguments = json!({
            "first": self.running.turn == 1, "say": say, "lines": lines, "wrote": self.running.write_summaries,
            "drafts": drafts, "mark": "{{mark}}",
        });
        fill_template(include_str!("../../prompts/assistant/rehearsal/reply.md"), &arguments)
    }
}
