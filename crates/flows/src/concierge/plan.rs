//! The plan that is carried out: its steps, which of them is current, and how it is told. This module reads steps from
//! what a model wrote and confirms a finished one against the current step, which can be any that is still to be done; it asks
//! nobody and records nothing.
//!
//! Steps are read from a STEPS block: entries of `title`, `description` and `done_when`, each begun by a dash or by a
//! further title; a JSON list of such objects will do too. Where there is no block, the plan's own headings and numbered lists are
//! taken: numbered items first, or headings if there are at least two and no numbered item.

mod parse;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use parse::{StepsParseError, parse_steps_block, parse_steps_from_prose};

use super::phrases::split_words;
use crate::template::fill_template;

/// A plan under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "ConciergePlanRepr")]
pub struct ConciergePlan {
    /// What it is for.
    pub goal: String,
    /// Its steps, in order.
    pub steps: Vec<PlanStep>,
    /// The place of the current step; the number of steps once all are complete.
    pub current: usize,
    /// The places of those that are complete.
    pub done: BTreeSet<usize>,
    /// Counts its changes, so that it is shown only when it changed.
    pub version: u32,
}

/// A plan as it may be written down: once, steps were done in their order, and the current one told how many were.
#[derive(Deserialize)]
struct ConciergePlanRepr {
    goal: String,
    steps: Vec<PlanStep>,
    #[serde(default)]
    current: usize,
    #[serde(default)]
    done: Option<BTreeSet<usize>>,
    #[serde(default)]
    version: u32,
}

impl From<ConciergePlanRepr> for ConciergePlan {
    fn from(written: ConciergePlanRepr) -> Self {
        let ConciergePlanRepr { goal, steps, current, done, version } = written;
        let done = done.unwrap_or_else(|| (0..current.min(steps.len())).collect());
        Self { goal, steps, current, done, version }
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanStep {
    /// What it is called.
    pub title: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How one knows that it is done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub done_when: String,
}

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStepStatus {
    /// It comes later.
    Pending,
    /// It is the current one.
    Active,
    /// It is done.
    Complete,
}

impl PlanStepStatus {
    /// How it looks in a list.
    #[must_use]
    pub fn checkbox(self) -> &'static str {
        match self {
            Self::Complete => "[x]",
            Self::Active => "[>]",
            Self::Pending => "[ ]",
        }
    }
}

/// Why a step was not marked complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepLookupError {
    /// The plan has no such step.
    UnknownStep,
    /// It is a step, and not the current one.
    NotCurrent,
    /// It is complete already.
    AlreadyComplete,
}

impl ConciergePlan {
    /// A plan of which nothing is done yet.
    #[must_use]
    pub fn new(goal: String, steps: Vec<PlanStep>) -> Self {
        Self { goal, steps, current: 0, done: BTreeSet::new(), version: 1 }
    }

    /// How the step at `place` stands.
    #[must_use]
    pub fn step_status(&self, index: usize) -> PlanStepStatus {
        match index {
            _ if self.done.contains(&index) => PlanStepStatus::Complete,
            _ if index == self.current => PlanStepStatus::Active,
            _ => PlanStepStatus::Pending,
        }
    }

    /// The current step, unless all are complete.
    #[must_use]
    pub fn current_step(&self) -> Option<&PlanStep> {
        self.steps.get(self.current)
    }

    /// The steps that are complete, in the plan's order.
    pub fn done_steps(&self) -> impl Iterator<Item = &PlanStep> {
        self.done.iter().filter_map(|place| self.steps.get(*place))
    }

    /// Whether every step is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done.len() >= self.steps.len()
    }

    /// The step that `named` means, if it is still to be done: by its title, its number, or both.
    ///
    /// # Errors
    /// It is complete, or there is no such step.
    pub fn find_open_step(&self, step_name: &str) -> Result<usize, StepLookupError> {
        let places = self.matching_steps(step_name);
        let open = places.iter().find(|place| !self.done.contains(place));
        open.copied().ok_or(if places.is_empty() {
            StepLookupError::UnknownStep
        } else {
            StepLookupError::AlreadyComplete
        })
    }

    /// Confirms that `named` is the current step.
    ///
    /// # Errors
    /// It is another step, or none.
    pub fn confirm_current_step(&self, step_name: &str) -> Result<usize, StepLookupError> {
        if self.matching_steps(step_name).contains(&self.current) {
            return Ok(self.current);
        }
        self.find_open_step(step_name).and(Err(StepLookupError::NotCurrent))
    }

    /// The step at `place` is the current one now.
    pub fn start_step(&mut self, index: usize) {
        if index < self.steps.len() && !self.done.contains(&index) {
            self.current = index;
            self.version += 1;
        }
    }

    /// The step at `place` is done. If it was the current one, the next that is not is, or else the first.
    pub fn complete_step(&mut self, index: usize) {
        if index >= self.steps.len() || !self.done.insert(index) {
            return;
        }
        self.version += 1;
        if index == self.current {
            let mut open = (index..self.steps.len()).chain(0..index).filter(|place| !self.done.contains(place));
            self.current = open.next().unwrap_or(self.steps.len());
        }
    }

    fn matching_steps(&self, step_name: &str) -> Vec<usize> {
        let named = normalized_words(step_name);
        (0..self.steps.len()).filter(|place| self.is_step_named(*place, &named)).collect()
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

    /// The plan as people are shown it: a line a step.
    #[must_use]
    pub fn render_checklist(&self) -> String {
        let mut lines = vec![format!("plan: {} ({} of {} done)", self.goal, self.done.len(), self.steps.len())];
        for (place, step) in self.steps.iter().enumerate() {
            let status = self.step_status(place);
            let until = match (status, step.done_when.as_str()) {
                (PlanStepStatus::Active, until) if !until.is_empty() => format!(" (until {until})"),
                _ => String::new(),
            };
            lines.push(format!("  {} {}. {}{until}", status.checkbox(), place + 1, step.title));
        }
        lines.join("\n")
    }

    /// How far it has come, in a sentence.
    #[must_use]
    pub fn summarize_progress(&self) -> String {
        let next = self.current_step().map(|step| step.title.as_str());
        let arguments = serde_json::json!({"done": self.done.len(), "steps": self.steps.len(), "next": next});
        fill_template(include_str!("../../prompts/concierge/account.md"), &arguments)
    }

    /// The plan in words: the goal, how far it has come, a mark a step, and only the current one in full.
    #[must_use]
    pub fn render_for_prompt(&self) -> String {
        #[derive(Serialize)]
        struct PlanArguments<'w> {
            goal: &'w str,
            done: usize,
            steps: Vec<PlanStepLine<'w>>,
        }
        #[derive(Serialize)]
        struct PlanStepLine<'w> {
            mark: &'static str,
            is_current: bool,
            title: &'w str,
            description: &'w str,
            done_when: &'w str,
        }
        let steps = self.steps.iter().enumerate().map(|(place, step)| {
            let status = self.step_status(place);
            let mark = status.checkbox();
            let is_current = status == PlanStepStatus::Active;
            PlanStepLine {
                mark,
                is_current,
                title: &step.title,
                description: &step.description,
                done_when: &step.done_when,
            }
        });
        let arguments = PlanArguments { goal: &self.goal, done: self.done.len(), steps: steps.collect() };
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
        let step = |title: &str, done_when: &str| PlanStep {
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
    fn s26_every_step_is_shown_and_only_the_current_one_in_full() {
        expect_test::expect![[r#"
            Goal: a green wall
            Progress: 1 of 3 steps done

            [x] 1. Measure the wall
            [>] 2. Buy paint (current)
               how to Buy paint
               Done when: they say so
            [ ] 3. Paint"#]]
        .assert_eq(&plan().render_for_prompt());
    }

    #[test]
    fn a_step_is_confirmed_against_the_current_one_by_title_or_number() {
        let plan = plan();
        for named in ["Buy paint", "buy PAINT.", "2", "Step 2", "2. Buy paint", "step 2: Buy paint"] {
            assert_eq!(plan.confirm_current_step(named), Ok(1), "{named}");
        }
        assert_eq!(plan.confirm_current_step("Paint"), Err(StepLookupError::NotCurrent));
        for named in ["1", "Measure the wall"] {
            assert_eq!(plan.confirm_current_step(named), Err(StepLookupError::AlreadyComplete), "{named}");
        }
        for named in ["", "4", "Sell paint", "Buy"] {
            assert_eq!(plan.confirm_current_step(named), Err(StepLookupError::UnknownStep), "{named}");
        }
    }

    #[test]
    fn any_step_that_is_not_done_can_be_begun_and_what_was_left_out_comes_last() {
        let mut plan = plan();
        assert_eq!(
            (plan.find_open_step("step 3"), plan.find_open_step("1"), plan.find_open_step("4")),
            (Ok(2), Err(StepLookupError::AlreadyComplete), Err(StepLookupError::UnknownStep),)
        );
        plan.start_step(2);
        assert_eq!([0, 1, 2].map(|place| plan.step_status(place).checkbox()), ["[x]", "[ ]", "[>]"]);
        plan.complete_step(2);
        assert_eq!([0, 1, 2].map(|place| plan.step_status(place).checkbox()), ["[x]", "[>]", "[x]"]);
        assert_eq!(
            plan.summarize_progress(),
            "It was left with 2 of 3 steps done; the next would have been “Buy paint”."
        );
    }

    #[test]
    fn the_plan_ends_with_its_last_step() {
        let mut plan = plan();
        plan.complete_step(1);
        assert!(!plan.is_complete());
        plan.complete_step(2);
        assert!(plan.is_complete());
        plan.complete_step(2);
        plan.start_step(1);
        assert_eq!((plan.current, plan.current_step()), (3, None), "and goes no further");
        assert_eq!(plan.confirm_current_step("Paint"), Err(StepLookupError::AlreadyComplete));
    }

    #[test]
    fn a_plan_written_when_steps_were_done_in_order_is_read() {
        let written =
            serde_json::json!({"goal": "g", "steps": [{"title": "a"}, {"title": "b"}], "current": 1, "version": 2});
        let plan: ConciergePlan = serde_json::from_value(written).expect("it is read");
        assert_eq!([0, 1].map(|place| plan.step_status(place)), [PlanStepStatus::Complete, PlanStepStatus::Active]);
    }
}
