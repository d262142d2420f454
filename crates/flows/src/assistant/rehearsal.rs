//! The replies of the rehearsal model, so that the flow can be tried in any domain without a real model: it proposes, reads, compares,
//! drafts, writes and deletes. The replies depend on keywords in the message, the known records and the domain's declaration. No real
//! model is shown any of this.

use segue_core::event::CallOpened;
use serde_json::{Map, Value, json};

use super::answer::truncate_chars;
use super::assistant_context::AssistantSessionContext;
use super::domain::{DomainSchema, RecordField, RecordFieldKind, RecordType};
use super::facts::{AssistantPlanStep, AssistantPlanStepKind, AssistantStepEnd, AssistantStepEndStatus};
use super::prompt_context::sample_record_and_change;
use super::registry::{EntityRelevanceTier, KnownRecordOrDraft};
use super::spec::{ACT_ROLE, ASK_REASONING, ASK_RESULT, REPLY_ROLE, SUMMARIZE_ROLE, THINK_ROLE, UNDERSTAND_ROLE};
use super::state::AssistantTurnProgress;
use super::tools::{AvailableMcpTool, list_available_tools};
use super::{calendar, step};
use crate::limits::{LABELS_LISTED_MAX, RECORDS_WRITTEN_MAX};
use crate::template::fill_template;

/// Words that rule out the records named after them.
const NEGATION_WORDS: [&str; 5] = ["no", "not", "without", "except", "avoid"];
/// Words that ask to store something.
const SAVE_WORDS: [&str; 12] =
    ["add", "plan", "put", "save", "go", "take", "choose", "schedule", "store", "keep", "note", "yes"];
/// Words that ask to delete something.
const DELETE_WORDS: [&str; 4] = ["delete", "remove", "erase", "cancel"];
/// Words that ask to change a record, which the demo model cannot do.
const CHANGE_WORDS: [&str; 7] = ["change", "update", "set", "rename", "edit", "replace", "move"];
/// Words that name a day, which the demo model does not understand.
const DAY_WORDS: [&str; 10] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "today", "tomorrow", "tonight"];
/// Words that ask for a draft.
const CREATE_WORDS: [&str; 6] = ["invent", "write", "draft", "compose", "new", "create"];
/// Words that ask to read records.
const READ_WORDS: [&str; 12] =
    ["show", "list", "what", "which", "find", "look", "read", "any", "days", "suggest", "have", "search"];
/// Words of a label that do not identify a record.
const STOP_WORDS: [&str; 12] = ["the", "and", "with", "of", "a", "an", "in", "on", "for", "to", "one", "ones"];

/// Returns the rehearsal model's answer to a call. The model itself fills in `{{mark}}`.
pub(super) fn rehearse_node_answer(context: &AssistantSessionContext<'_>, call: &CallOpened) -> Option<String> {
    if call.role == *SUMMARIZE_ROLE {
        let state = context.state();
        let through_turn = if call.ask == *ASK_REASONING {
            state.reasoning.uncompacted.back().map(|summary| summary.turn)
        } else {
            state.conversation.uncompacted.back().map(|exchange| exchange.turn)
        };
        let arguments =
            json!({"turn": through_turn.unwrap_or_else(|| state.current_turn_number()), "mark": "{{mark}}"});
        return Some(fill_template(include_str!("../../prompts/assistant/rehearsal/summary.md"), &arguments));
    }
    let running = context.state().current_turn.as_ref()?;
    let messages: Vec<String> =
        running.messages.iter().map(|(_, text)| context.view.read_text(*text).to_string()).collect();
    let rehearsal = AssistantRehearsal {
        context,
        running,
        words: split_lowercase_words(&messages.join(" ")),
        user_text: messages.join(" "),
    };
    match call.role.as_str() {
        UNDERSTAND_ROLE => Some(rehearsal.understand_answer().to_string()),
        THINK_ROLE => Some(rehearsal.think_answer().to_string()),
        ACT_ROLE => Some(rehearsal.act_answer(call)?.to_string()),
        REPLY_ROLE => Some(rehearsal.reply_text()),
        _ => None,
    }
}

fn split_lowercase_words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns whether two words are equal except for a plural `s`.
fn is_same_word_stem(one: &str, other: &str) -> bool {
    let stem = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    one.chars().count() > 2 && stem(one) == stem(other)
}

struct AssistantRehearsal<'a> {
    context: &'a AssistantSessionContext<'a>,
    running: &'a AssistantTurnProgress,
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

    fn relevant_entities(&self) -> Vec<(&str, &KnownRecordOrDraft)> {
        let state = self.context.state();
        state
            .entities
            .relevant_entities(state.current_turn_number())
            .into_iter()
            .map(|(name, entity, _)| (name, entity))
            .collect()
    }

    /// Returns the known entities whose label shares a word with `wanted`, and whether each is saved.
    fn find_entities_by_label(&self, wanted: &[String]) -> Vec<(String, bool)> {
        let state = self.context.state();
        let known = state
            .entities
            .entities_by_recency(state.current_turn_number())
            .into_iter()
            .filter(|(_, _, tier)| *tier != EntityRelevanceTier::Dropped);
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

    /// Returns the two words after each negation.
    fn negated_words(&self) -> Vec<String> {
        let mut negated = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if NEGATION_WORDS.contains(&word.as_str()) {
                negated.extend(self.words.iter().skip(index + 1).take(2).cloned());
            }
        }
        negated
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
        let understanding = self.running.understanding.clone().unwrap_or_default();
        let drafts: Vec<String> = self
            .relevant_entities()
            .into_iter()
            .filter(|(_, entity)| !entity.is_saved())
            .map(|(name, _)| name.to_owned())
            .collect();
        let chosen: Vec<String> = understanding
            .references
            .iter()
            .filter(|name| !understanding.demoted.iter().any(|item| item.reference == **name))
            .cloned()
            .collect();
        if self.domain().server.is_none() && drafts.is_empty() && self.asks_for_impossible_write(&chosen) {
            let say = fill_template(include_str!("../../prompts/assistant/rehearsal/impossible.md"), &json!({}));
            return json!({"decision": "clarify", "goal": "say what is possible", "steps": [], "say": say});
        }
        if self.domain().server.is_some()
            && !chosen.is_empty()
            && [&SAVE_WORDS[..], &DELETE_WORDS[..], &CREATE_WORDS[..]].iter().any(|any| self.mentions_any(any))
        {
            let tool = self.find_server_write_tool(&chosen).map_or("write", |tool| tool.name).to_owned();
            let description = "call a tool for what you named";
            let write = self.plan_write_json(description, &tool, self.first_record_type(&chosen), &chosen);
            return self.plan_answer("do what you asked for", vec![write]);
        }
        if self.mentions_any(&DELETE_WORDS) && !chosen.is_empty() {
            return self.plan_answer(
                "delete what you named",
                vec![self.plan_write_json("delete what you named", "delete", self.first_record_type(&chosen), &chosen)],
            );
        }
        if self.mentions_any(&SAVE_WORDS) && !drafts.is_empty() {
            return self.plan_answer(
                "save the draft",
                vec![self.plan_write_json("save the draft", "create", self.first_record_type(&drafts), &drafts)],
            );
        }
        if self.mentions_any(&SAVE_WORDS)
            && let Some((kind, refs)) = self.find_type_linking_to(&chosen)
        {
            let description = format!("create {} for what you named", count_records(refs.len(), &kind.name));
            return self.plan_answer(
                "store what you named",
                vec![self.plan_write_json(&description, "create", &kind.name, &refs)],
            );
        }
        if self.mentions_any(&CREATE_WORDS) {
            let kind = self.mentioned_types().into_iter().next().or_else(|| self.domain().types.first());
            let name = kind.map_or("", |kind| kind.name.as_str());
            return self.plan_answer(
                "write something new",
                vec![self.plan_step_json(
                    &format!("draft a new {name} record"),
                    AssistantPlanStepKind::Generate,
                    name,
                    1,
                    &[],
                )],
            );
        }
        let is_known = !self.relevant_entities().is_empty();
        if !understanding.demoted.is_empty() || (is_known && !self.mentions_any(&READ_WORDS)) {
            let is_relevant = |name: &&str| self.relevant_entities().iter().any(|(_, entity)| entity.kind == **name);
            let kind = self.domain().type_names().find(is_relevant).unwrap_or_default().to_owned();
            return self.plan_answer(
                "narrow down the choice",
                vec![self.plan_step_json(
                    "list the records that are left",
                    AssistantPlanStepKind::Analyze,
                    &kind,
                    1,
                    &[],
                )],
            );
        }
        if self.running.turn == 1 && !self.mentions_any(&READ_WORDS) {
            let types: Vec<&str> = self.domain().type_names().collect();
            let proposal = fill_template(
                include_str!("../../prompts/assistant/rehearsal/proposal.md"),
                &json!({"types": types.join(", ")}),
            );
            return json!({"decision": "propose", "goal": "agree on what to do", "steps": [], "say": proposal});
        }
        self.plan_read_answer()
    }

    /// Returns whether a write that the keywords suggest would not be the one that was asked for.
    fn asks_for_impossible_write(&self, chosen: &[String]) -> bool {
        if chosen.is_empty() {
            return false;
        }
        if self.mentions_any(&DELETE_WORDS) {
            return chosen.len() > 1;
        }
        if self.mentions_any(&CHANGE_WORDS) {
            return true;
        }
        let Some((kind, _)) = self.find_type_linking_to(chosen).filter(|_| self.mentions_any(&SAVE_WORDS)) else {
            return false;
        };
        let is_dated = kind.fields.iter().any(|field| field.required && field.kind == RecordFieldKind::Date);
        let is_about_other_type = self.mentioned_types().iter().any(|mentioned| mentioned.name != kind.name);
        is_about_other_type || (is_dated && self.mentions_any(&DAY_WORDS))
    }

    fn plan_read_answer(&self) -> Value {
        let mentioned = self.mentioned_types();
        let kinds: Vec<&RecordType> =
            if mentioned.is_empty() { self.domain().types.iter().take(2).collect() } else { mentioned };
        // A type whose records are all loaded is not read again.
        let mut steps: Vec<Value> = kinds
            .iter()
            .filter(|kind| !self.context.state().is_type_fully_loaded(&kind.name))
            .map(|kind| {
                self.plan_step_json(
                    &format!("read every {} record", kind.name),
                    AssistantPlanStepKind::Read,
                    &kind.name,
                    1,
                    &[],
                )
            })
            .collect();
        if kinds.is_empty() {
            steps.push(self.plan_step_json("read from the server", AssistantPlanStepKind::Read, "", 1, &[]));
        }
        let first = kinds.first().map_or("", |kind| kind.name.as_str());
        steps.push(self.plan_step_json("list what was found", AssistantPlanStepKind::Analyze, first, 2, &[]));
        self.plan_answer("show the records", steps)
    }

    fn plan_answer(&self, goal: &str, steps: Vec<Value>) -> Value {
        json!({"decision": "plan_direct", "goal": goal, "steps": steps, "say": null})
    }

    fn plan_step_json(
        &self,
        description: &str,
        kind: AssistantPlanStepKind,
        subdomain: &str,
        group: u32,
        refs: &[String],
    ) -> Value {
        let subdomain =
            if subdomain.is_empty() { self.domain().type_names().next().unwrap_or_default() } else { subdomain };
        json!({"description": description, "type": kind.as_str(), "operation": null, "subdomain": subdomain,
            "group": group, "refs": refs})
    }

    fn plan_write_json(&self, description: &str, operation: &str, subdomain: &str, refs: &[String]) -> Value {
        let mut step = self.plan_step_json(description, AssistantPlanStepKind::Write, subdomain, 1, refs);
        step["operation"] = json!(operation);
        step
    }

    fn first_record_type<'s>(&'s self, references: &[String]) -> &'s str {
        let first = references.first().and_then(|reference| self.context.state().entities.get(reference));
        first.map_or("", |entity| entity.kind.as_str())
    }

    /// Returns the types that the message names.
    fn mentioned_types(&self) -> Vec<&RecordType> {
        let named = |kind: &&RecordType| self.words.iter().any(|word| is_same_word_stem(word, &kind.name));
        self.domain().types.iter().filter(named).collect()
    }

    /// Returns a type with a required link to the chosen records, and those records.
    fn find_type_linking_to(&self, chosen: &[String]) -> Option<(&RecordType, Vec<String>)> {
        let entities = &self.context.state().entities;
        for kind in &self.domain().types {
            let Some(link) = kind.fields.iter().find(|field| field.required && field.kind == RecordFieldKind::Link)
            else {
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
            AssistantPlanStepKind::Read => {
                json!({"action": "tool_call", "tool": "read", "arguments": {"type": kind.name, "limit": 25}})
            }
            AssistantPlanStepKind::Analyze => self.step_complete_answer(planned),
            AssistantPlanStepKind::Generate => {
                let content = self.example_draft_fields(kind);
                json!({"action": "step_complete", "outcome": format!("one {} draft is written", kind.name),
                    "result": "The demo model filled in placeholder values.", "drafts": [{"type": kind.name, "content": content}]})
            }
            AssistantPlanStepKind::Write => self.write_tool_answer(planned, kind),
        })
    }

    fn server_tools(&self) -> Vec<AvailableMcpTool<'_>> {
        let server = self.domain().server.as_ref();
        server.map(|server| list_available_tools(server, &self.context.state().server_tools)).unwrap_or_default()
    }

    /// Returns the arguments of a server's tool: the first fitting record for each declared reference.
    fn server_tool_arguments(&self, tool: &AvailableMcpTool<'_>, refs: &[String]) -> Option<Map<String, Value>> {
        let entities = &self.context.state().entities;
        let wanted = tool.config.into_iter().flat_map(|tool| &tool.references);
        let found = wanted.map(|(name, kind)| {
            let fits = refs.iter().find(|name| entities.get(name).is_some_and(|entity| entity.kind == *kind))?;
            Some((name.clone(), json!(fits)))
        });
        found.collect()
    }

    /// Returns the first tool of the server that writes and takes the named records.
    fn find_server_write_tool(&self, refs: &[String]) -> Option<AvailableMcpTool<'_>> {
        let takes_records = |tool: &AvailableMcpTool<'_>| {
            self.server_tool_arguments(tool, refs).is_some_and(|arguments| !arguments.is_empty())
        };
        self.server_tools().into_iter().find(|tool| tool.is_write && takes_records(tool))
    }

    /// Answers a step of a domain with a server: calls the first suitable tool.
    fn server_tool_answer(&self, planned: &AssistantPlanStep) -> Value {
        let tools = self.server_tools();
        let returns = |tool: &AvailableMcpTool<'_>| {
            tool.config.and_then(|tool| tool.returned_type.as_ref()).is_some_and(|kind| *kind == planned.subdomain)
        };
        let arguments =
            |tool: &AvailableMcpTool<'_>| self.server_tool_arguments(tool, &planned.refs).unwrap_or_default();
        let call = |tool: &AvailableMcpTool<'_>| json!({"action": "tool_call", "tool": tool.name, "arguments": arguments(tool)});
        let (found, why) = match planned.kind {
            AssistantPlanStepKind::Read => {
                let reads: Vec<&AvailableMcpTool<'_>> = tools.iter().filter(|tool| !tool.is_write).collect();
                let found = reads.iter().find(|tool| returns(tool)).or(reads.first()).copied();
                (found, "the server has no tool that only reads")
            }
            AssistantPlanStepKind::Write => {
                let planned_tool = tools.iter().find(|tool| planned.operation.as_deref() == Some(tool.name));
                (planned_tool, "the server has no tool that writes and takes what you named")
            }
            AssistantPlanStepKind::Analyze | AssistantPlanStepKind::Generate => {
                return self.step_complete_answer(planned);
            }
        };
        found.map_or_else(|| json!({"action": "blocked", "reason": why}), call)
    }

    fn step_complete_answer(&self, planned: &AssistantPlanStep) -> Value {
        let own: Vec<(&str, &KnownRecordOrDraft)> =
            self.relevant_entities().into_iter().filter(|(_, entity)| entity.kind == planned.subdomain).collect();
        let refs: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let outcome = match (planned.kind, own.len()) {
            (AssistantPlanStepKind::Write, _) => "the tool confirmed the change".to_owned(),
            (_, _) if self.domain().types.is_empty() => "the server answered".to_owned(),
            (AssistantPlanStepKind::Read, count) => format!("{} loaded", count_records(count, &planned.subdomain)),
            (_, count) => format!("{} left", count_records(count, &planned.subdomain)),
        };
        json!({"action": "step_complete", "outcome": outcome, "result": {"fitting": refs}, "refs": refs})
    }

    fn example_draft_fields(&self, kind: &RecordType) -> Value {
        let (mut content, _) = sample_record_and_change(kind);
        let fields = content.as_object_mut().map(std::mem::take).unwrap_or_default();
        let filled: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| {
                let field = kind.field(&name)?;
                let is_label = name == kind.label;
                let value = match field.kind {
                    RecordFieldKind::Text if is_label => json!(format!("A new {}", kind.name)),
                    RecordFieldKind::Link => {
                        json!(
                            self.relevant_entities()
                                .into_iter()
                                .find(|(_, entity)| Some(&entity.kind) == field.to.as_ref())?
                                .0
                        )
                    }
                    RecordFieldKind::Links => return None,
                    RecordFieldKind::List => json!(["example 1", "example 2"]),
                    _ => value,
                };
                Some((name, value))
            })
            .collect();
        Value::Object(filled)
    }

    fn write_tool_answer(&self, planned: &AssistantPlanStep, kind: &RecordType) -> Value {
        let entities = &self.context.state().entities;
        if planned.operation.as_deref() == Some("delete") {
            return json!({"action": "tool_call", "tool": "delete", "arguments": {"refs": planned.refs}});
        }
        let drafts: Vec<&String> =
            planned.refs.iter().filter(|name| entities.get(name).is_some_and(|entity| !entity.is_saved())).collect();
        if !drafts.is_empty() {
            return json!({"action": "tool_call", "tool": "create", "arguments": {"drafts": drafts}});
        }
        let records = planned
            .refs
            .iter()
            .zip(1..)
            .map(|(reference, day_offset)| self.linked_record_fields(kind, reference, day_offset));
        json!({"action": "tool_call", "tool": "create", "arguments": {"type": kind.name, "records": records.collect::<Vec<_>>()}})
    }

    /// Returns the fields of a new record that links to a chosen one, with values for the other required fields.
    fn linked_record_fields(&self, kind: &RecordType, reference: &str, day_offset: i64) -> Value {
        let required = kind.fields.iter().filter(|field| field.required);
        let value = |field: &RecordField| match field.kind {
            RecordFieldKind::Link => json!(reference),
            RecordFieldKind::Date => json!(calendar::date_from_epoch_days(
                calendar::days_since_epoch(
                    self.context.view.session.last_event_at,
                    self.context.settings.utc_offset_minutes
                ) + day_offset
            )),
            RecordFieldKind::Text if !field.one_of.is_empty() => {
                let mentioned =
                    field.one_of.iter().find(|choice| self.words.iter().any(|word| is_same_word_stem(word, choice)));
                json!(mentioned.or(field.one_of.last()))
            }
            RecordFieldKind::Text => json!(truncate_chars(&self.user_text, 200)),
            _ => sample_record_and_change(kind).0.get(&field.name).cloned().unwrap_or(Value::Null),
        };
        let fields: Map<String, Value> = required.map(|field| (field.name.clone(), value(field))).collect();
        Value::Object(fields)
    }

    fn reply_text(&self) -> String {
        let plan = self.running.plan.as_ref();
        let steps: &[AssistantPlanStep] = plan.map(|plan| plan.steps.as_slice()).unwrap_or_default();
        let ends = self.running.steps.values().filter_map(|state| state.end.as_ref());
        let drafts = ends.into_iter().any(|end| !end.drafts.is_empty());
        let arguments = json!({
            "first": self.running.turn == 1,
            "turn": self.running.turn,
            "message": plan.and_then(|plan| plan.message_to_user.clone()),
            "planned": steps.iter().map(|step| step.description.clone()).collect::<Vec<_>>(),
            "lines": self.reply_lines(steps),
            "write_summaries": self.running.write_summaries,
            "drafts": drafts,
            "mark": "{{mark}}",
        });
        fill_template(include_str!("../../prompts/assistant/rehearsal/reply.md"), &arguments)
    }

    /// Returns one line for each step that did something other than writing, and one for the ruled-out records.
    fn reply_lines(&self, steps: &[AssistantPlanStep]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut listed: Vec<&[String]> = Vec::new();
        for step in steps {
            let Some(end) = self.running.steps.get(&step.step).and_then(|state| state.end.as_ref()) else {
                lines.push(format!("not started: {}", step.description));
                continue;
            };
            if end.status != AssistantStepEndStatus::Done {
                let status = AssistantStepEndStatus::describe(Some(end.status));
                lines.push(format!("{}: {status} ({})", step.description, end.outcome));
                continue;
            }
            // Records that an earlier line lists are not repeated.
            if step.kind == AssistantPlanStepKind::Write
                || (!end.refs.is_empty() && listed.contains(&end.refs.as_slice()))
            {
                continue;
            }
            listed.push(&end.refs);
            let verb = match step.kind {
                AssistantPlanStepKind::Read => "read",
                AssistantPlanStepKind::Generate => "drafted",
                AssistantPlanStepKind::Analyze | AssistantPlanStepKind::Write => "left",
            };
            lines.push(format!("{verb}: {}", self.describe_result(step, end)));
        }
        let demoted = self.running.understanding.iter().flat_map(|understanding| &understanding.demoted);
        let demoted: Vec<&str> = demoted.filter_map(|item| self.label(&item.reference)).collect();
        if !demoted.is_empty() {
            lines.push(format!("ruled out for now: {}", demoted.join(", ")));
        }
        lines
    }

    fn label(&self, reference: &str) -> Option<&str> {
        self.context.state().entities.get(reference).map(|entity| entity.label.as_str())
    }

    /// Returns the number and labels of the records of a step, or its outcome if it has none.
    fn describe_result(&self, step: &AssistantPlanStep, end: &AssistantStepEnd) -> String {
        let mut labels: Vec<&str> = end.refs.iter().filter_map(|reference| self.label(reference)).collect();
        if labels.is_empty() {
            return end.outcome.clone();
        }
        let count = count_records(labels.len(), &step.subdomain);
        if labels.len() > LABELS_LISTED_MAX {
            labels.truncate(LABELS_LISTED_MAX);
            labels.push("…");
        }
        format!("{count} ({})", labels.join(", "))
    }
}

fn count_records(count: usize, kind: &str) -> String {
    format!("{count} {kind} {}", if count == 1 { "record" } else { "records" })
}
