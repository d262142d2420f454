//! The plan that a session carries out: its steps, the current step, and how it is rendered. This module parses steps and
//! finds them by name; it makes no calls and records nothing.
//!
//! Steps are parsed from a STEPS block with entries of `title`, `description` and `done_when`. An entry starts with a dash
//! or with another title. A JSON list of such objects is accepted too. Without a block, the steps are the plan's numbered
//! items, or its headings if there are at least two and no numbered item.

mod parse;

use std::collections::BTreeSet;

use segue_core::signal::wrap_in_code_fence;
use serde::{Deserialize, Serialize};

pub(super) use parse::truncate_steps;
pub use parse::{PlanStepsBlockParseError, parse_steps_block, parse_steps_from_prose};

use super::phrases::split_words;
use crate::template::fill_template;

/// A plan and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "ConciergePlanRepr")]
pub struct ConciergePlan {
    pub goal: String,
    pub steps: Vec<ConciergePlanStep>,
    /// The index of the current step; the number of steps once all are complete.
    pub current: usize,
    /// The indexes of the completed steps.
    pub done: BTreeSet<usize>,
    /// Incremented with each change. The concierge sees the plan again when it has changed.
    pub version: u32,
}

/// The serialized form of a plan. An early form has no `done`: all steps before the current one are complete.
#[derive(Deserialize)]
struct ConciergePlanRepr {
    goal: String,
    steps: Vec<ConciergePlanStep>,
    #[serde(default)]
    current: usize,
    #[serde(default)]
    done: Option<BTreeSet<usize>>,
    #[serde(default)]
    version: u32,
}

impl From<ConciergePlanRepr> for ConciergePlan {
    fn from(repr: ConciergePlanRepr) -> Self {
        let ConciergePlanRepr { goal, steps, current, done, version } = repr;
        let done = done.unwrap_or_else(|| (0..current.min(steps.len())).collect());
        Self { goal, steps, current, done, version }
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConciergePlanStep {
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The condition that tells the user the step is done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub done_when: String,
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConciergePlanStepStatus {
    Pending,
    /// The current step.
    Active,
    Complete,
}

impl ConciergePlanStepStatus {
    /// Returns the mark for a list.
    #[must_use]
    pub fn checkbox(self) -> &'static str {
        match self {
            Self::Complete => "[x]",
            Self::Active => "[>]",
            Self::Pending => "[ ]",
        }
    }
}

/// Why a step name could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConciergePlanStepLookupError {
    /// The plan has no such step.
    UnknownStep,
    /// It is not the current step.
    NotCurrent,
    /// It is already complete.
    AlreadyComplete,
}

impl ConciergePlan {
    /// Creates a plan with no completed steps.
    #[must_use]
    pub fn new(goal: String, steps: Vec<ConciergePlanStep>) -> Self {
        Self { goal, steps, current: 0, done: BTreeSet::new(), version: 1 }
    }

    /// Returns the status of the step at `index`.
    #[must_use]
    pub fn step_status(&self, index: usize) -> ConciergePlanStepStatus {
        match index {
            _ if self.done.contains(&index) => ConciergePlanStepStatus::Complete,
            _ if index == self.current => ConciergePlanStepStatus::Active,
            _ => ConciergePlanStepStatus::Pending,
        }
    }

    /// Returns the current step, or `None` if all are complete.
    #[must_use]
    pub fn current_step(&self) -> Option<&ConciergePlanStep> {
        self.steps.get(self.current)
    }

    /// Returns the completed steps in plan order.
    pub fn done_steps(&self) -> impl Iterator<Item = &ConciergePlanStep> {
        self.done.iter().filter_map(|index| self.steps.get(*index))
    }

    /// Returns whether every step is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done.len() >= self.steps.len()
    }

    /// Finds an incomplete step by its title, its number, or both.
    ///
    /// # Errors
    /// If the step is complete or the plan has no such step.
    pub fn find_open_step(&self, step_name: &str) -> Result<usize, ConciergePlanStepLookupError> {
        let matches = self.matching_steps(step_name);
        let open = matches.iter().find(|index| !self.done.contains(index));
        open.copied().ok_or(if matches.is_empty() {
            ConciergePlanStepLookupError::UnknownStep
        } else {
            ConciergePlanStepLookupError::AlreadyComplete
        })
    }

    /// Checks that `step_name` is the current step and returns its index.
    ///
    /// # Errors
    /// If it is another step or the plan has no such step.
    pub fn confirm_current_step(&self, step_name: &str) -> Result<usize, ConciergePlanStepLookupError> {
        if self.matching_steps(step_name).contains(&self.current) {
            return Ok(self.current);
        }
        self.find_open_step(step_name).and(Err(ConciergePlanStepLookupError::NotCurrent))
    }

    /// Makes the step at `index` the current one, unless it is complete.
    pub fn start_step(&mut self, index: usize) {
        if index < self.steps.len() && !self.done.contains(&index) {
            self.current = index;
            self.version += 1;
        }
    }

    /// Completes the step at `index`. If it was the current one, the next incomplete step becomes current; after the last
    /// step the search starts over at the first.
    pub fn complete_step(&mut self, index: usize) {
        if index >= self.steps.len() || !self.done.insert(index) {
            return;
        }
        self.version += 1;
        if index == self.current {
            let mut open = (index..self.steps.len()).chain(0..index).filter(|index| !self.done.contains(index));
            self.current = open.next().unwrap_or(self.steps.len());
        }
    }

    fn matching_steps(&self, step_name: &str) -> Vec<usize> {
        let name_words = normalized_words(step_name);
        (0..self.steps.len()).filter(|index| self.is_step_named(*index, &name_words)).collect()
    }

    fn is_step_named(&self, index: usize, name_words: &[String]) -> bool {
        let title = normalized_words(&self.steps[index].title);
        let number = vec![(index + 1).to_string()];
        let numbered: Vec<String> = number.iter().chain(&title).cloned().collect();
        let step = |rest: &[String]| std::iter::once("step".to_owned()).chain(rest.iter().cloned()).collect::<Vec<_>>();
        !name_words.is_empty()
            && (name_words == title
                || name_words == number
                || name_words == numbered
                || name_words == step(&number)
                || name_words == step(&numbered))
    }

    /// Renders the plan for people, one line for each step.
    #[must_use]
    pub fn render_checklist(&self) -> String {
        let mut lines = vec![format!("plan: {} ({} of {} done)", self.goal, self.done.len(), self.steps.len())];
        for (index, step) in self.steps.iter().enumerate() {
            let status = self.step_status(index);
            let until = match (status, step.done_when.as_str()) {
                (ConciergePlanStepStatus::Active, until) if !until.is_empty() => format!(" (until {until})"),
                _ => String::new(),
            };
            lines.push(format!("  {} {}. {}{until}", status.checkbox(), index + 1, step.title));
        }
        lines.join("\n")
    }

    /// Describes the progress in one or two sentences.
    #[must_use]
    pub fn summarize_progress(&self) -> String {
        let next = self.current_step().map(|step| step.title.as_str());
        let arguments = serde_json::json!({"done": self.done.len(), "steps": self.steps.len(), "next": next});
        fill_template(include_str!("../../prompts/concierge/progress.md"), &arguments)
    }

    /// Renders the plan as fenced content of a prompt: its words come from experts and users, too.
    #[must_use]
    pub(super) fn render_fenced_plan(&self) -> String {
        wrap_in_code_fence(&self.render_plan_for_prompt())
    }

    /// Renders the plan for a prompt: goal, progress, and all steps. Only the current step has its details.
    #[must_use]
    pub fn render_plan_for_prompt(&self) -> String {
        #[derive(Serialize)]
        struct ConciergePlanTemplateFields<'w> {
            goal: &'w str,
            done: usize,
            steps: Vec<ConciergePlanStepTemplateFields<'w>>,
        }
        #[derive(Serialize)]
        struct ConciergePlanStepTemplateFields<'w> {
            mark: &'static str,
            is_current: bool,
            title: &'w str,
            description: &'w str,
            done_when: &'w str,
        }
        let steps = self.steps.iter().enumerate().map(|(index, step)| {
            let status = self.step_status(index);
            let mark = status.checkbox();
            let is_current = status == ConciergePlanStepStatus::Active;
            ConciergePlanStepTemplateFields {
                mark,
                is_current,
                title: &step.title,
                description: &step.description,
                done_when: &step.done_when,
            }
        });
        let arguments = ConciergePlanTemplateFields { goal: &self.goal, done: self.done.len(), steps: steps.collect() };
        fill_template(include_str!("../../prompts/concierge/workflow.md"), &arguments)
    }
}

fn normalized_words(text: &str) -> Vec<String> {
    split_words(text).into_iter().map(|word| word.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan() -> ConciergePlan {
        let step = |title: &str, done_when: &str| ConciergePlanStep {
            title: title.into(),
            description: format!("how to {title}"),
            done_when: done_when.into(),
        };
        let steps = vec![step("Measure the wall", "you have two numbers"), step("Buy paint", ""), step("Paint", "dry")];
        let mut plan = ConciergePlan::new("a green wall".into(), steps);
        plan.complete_step(0);
        plan
    }

    #[test]
    fn s26_all_steps_are_rendered_and_only_the_current_one_in_full() {
        expect_test::expect![[r#"
            Goal: a green wall
            Progress: 1 of 3 steps done

            [x] 1. Measure the wall
            [>] 2. Buy paint (current)
               how to Buy paint
               Done when: the user says so
            [ ] 3. Paint"#]]
        .assert_eq(&plan().render_plan_for_prompt());
    }

    #[test]
    fn a_step_is_confirmed_against_the_current_one_by_title_or_number() {
        let plan = plan();
        for name in ["Buy paint", "buy PAINT.", "2", "Step 2", "2. Buy paint", "step 2: Buy paint"] {
            assert_eq!(plan.confirm_current_step(name), Ok(1), "{name}");
        }
        assert_eq!(plan.confirm_current_step("Paint"), Err(ConciergePlanStepLookupError::NotCurrent));
        for name in ["1", "Measure the wall"] {
            assert_eq!(plan.confirm_current_step(name), Err(ConciergePlanStepLookupError::AlreadyComplete), "{name}");
        }
        for name in ["", "4", "Sell paint", "Buy"] {
            assert_eq!(plan.confirm_current_step(name), Err(ConciergePlanStepLookupError::UnknownStep), "{name}");
        }
    }

    #[test]
    fn any_incomplete_step_can_be_started_and_skipped_steps_come_last() {
        let mut plan = plan();
        assert_eq!(
            (plan.find_open_step("step 3"), plan.find_open_step("1"), plan.find_open_step("4")),
            (Ok(2), Err(ConciergePlanStepLookupError::AlreadyComplete), Err(ConciergePlanStepLookupError::UnknownStep),)
        );
        plan.start_step(2);
        assert_eq!([0, 1, 2].map(|index| plan.step_status(index).checkbox()), ["[x]", "[ ]", "[>]"]);
        plan.complete_step(2);
        assert_eq!([0, 1, 2].map(|index| plan.step_status(index).checkbox()), ["[x]", "[>]", "[x]"]);
        assert_eq!(
            plan.summarize_progress(),
            "The plan was left with 2 of 3 steps done. The next step was “Buy paint”."
        );
    }

    #[test]
    fn plan_is_complete_after_its_last_step() {
        let mut plan = plan();
        plan.complete_step(1);
        assert!(!plan.is_complete());
        plan.complete_step(2);
        assert!(plan.is_complete());
        plan.complete_step(2);
        plan.start_step(1);
        assert_eq!((plan.current, plan.current_step()), (3, None), "it stays complete");
        assert_eq!(plan.confirm_current_step("Paint"), Err(ConciergePlanStepLookupError::AlreadyComplete));
    }

    #[test]
    fn plan_without_done_steps_is_deserialized() {
        let json =
            serde_json::json!({"goal": "g", "steps": [{"title": "a"}, {"title": "b"}], "current": 1, "version": 2});
        let plan: ConciergePlan = serde_json::from_value(json).expect("it is valid");
        assert_eq!(
            [0, 1].map(|index| plan.step_status(index)),
            [ConciergePlanStepStatus::Complete, ConciergePlanStepStatus::Active]
        );
    }
}
