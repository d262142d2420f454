//! Tests of the concierge flow: its pure functions, from the mapper's reply to the brief, and whole conversations in a
//! session harness.

mod analysis;
mod brief;
mod checklist;
mod checkpoints;
mod commands;
mod consent;
mod dialogues;
mod empty_replies;
mod failures;
mod golden;
mod injection;
mod leaks;
mod map;
mod operator_commands;
mod oracle;
mod page;
mod plan_requests;
mod plans;
mod prompt_overrides;
mod properties;
mod quoting;
mod records;
mod samples;
mod small_maps;
mod stance;
mod structured;
mod support;
