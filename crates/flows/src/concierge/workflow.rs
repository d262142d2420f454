//! The plan that is carried out: its steps, which of them is current, and how it is told. This module reads steps from
//! what a model wrote and confirms a finished one against the current step; it asks nobody and records nothing.
//!
//! Steps are read from a STEPS block: entries of `title`, `description` and `done_when`, each begun by a dash or by a
//! further title; a JSON list of such objects will do too. Where there is no block, the plan's own headings and numbered lists are
//! taken: numbered items first, or headings if there are at least two and no numbered item.

mod read;

use serde::{Deserialize, Serialize};

pub use read::{Unreadable, from_block, from_prose};

use super::words::words;
use crate::template::fill;

/// A plan under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Workflow {
    /// What it is for.
    pub goal: String,
    /// Its steps, in order. Those before the current one are complete, those after it are not.
    pub steps: Vec<PlanStep>,
    /// The place of the current step; the number of steps once all are complete.
    #[serde(default)]
    pub current: usize,
    /// Counts its changes, so that it is shown only when it changed.
    #[serde(default)]
    pub version: u32,
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
pub enum Status {
    /// It comes later.
    Pending,
    /// It is the current one.
    Active,
    /// It is done.
    Complete,
}

impl Status {
    /// How it looks in a list.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Complete => "[x]",
            Self::Active => "[>]",
            Self::Pending => "[ ]",
        }
    }
}

/// Why a step was not marked complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// The plan has no such step.
    Unknown,
    /// It is a step, and not the current one.
    NotCurrent,
}

impl Workflow {
    /// How the step at `place` stands.
    #[must_use]
    pub fn status(&self, place: usize) -> Status {
        match place.cmp(&self.current) {
            std::cmp::Ordering::Less => Status::Complete,
            std::cmp::Ordering::Equal => Status::Active,
            std::cmp::Ordering::Greater => Status::Pending,
        }
    }

    /// The current step, unless all are complete.
    #[must_use]
    pub fn current_step(&self) -> Option<&PlanStep> {
        self.steps.get(self.current)
    }

    /// Whether every step is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.current >= self.steps.len()
    }

    /// Confirms that `named` is the current step: by its title, its number, or both.
    ///
    /// # Errors
    /// It is another step, or none.
    pub fn confirm(&self, named: &str) -> Result<usize, NotDone> {
        let named = plain(named);
        let places: Vec<usize> = (0..self.steps.len()).filter(|place| self.is_called(*place, &named)).collect();
        if places.contains(&self.current) {
            return Ok(self.current);
        }
        Err(if places.is_empty() { NotDone::Unknown } else { NotDone::NotCurrent })
    }

    /// The current step is done.
    pub fn advance(&mut self) {
        self.current = (self.current + 1).min(self.steps.len());
        self.version += 1;
    }

    fn is_called(&self, place: usize, named: &[String]) -> bool {
        let title = plain(&self.steps[place].title);
        let number = vec![(place + 1).to_string()];
        let numbered: Vec<String> = number.iter().chain(&title).cloned().collect();
        let step = |rest: &[String]| std::iter::once("step".to_owned()).chain(rest.iter().cloned()).collect::<Vec<_>>();
        !named.is_empty()
            && (named == title
                || named == number
                || named == numbered
                || named == step(&number)
                || named == step(&numbered))
    }

    /// The plan as people are shown it: a line a step.
    #[must_use]
    pub fn checklist(&self) -> String {
        let mut lines = vec![format!("plan: {} ({} of {} done)", self.goal, self.current, self.steps.len())];
        for (place, step) in self.steps.iter().enumerate() {
            let status = self.status(place);
            let until = match (status, step.done_when.as_str()) {
                (Status::Active, until) if !until.is_empty() => format!(" (until {until})"),
                _ => String::new(),
            };
            lines.push(format!("  {} {}. {}{until}", status.mark(), place + 1, step.title));
        }
        lines.join("\n")
    }

    /// How far it has come, in a sentence.
    #[must_use]
    pub fn account(&self) -> String {
        let next = self.current_step().map(|step| step.title.as_str());
        let arguments = serde_json::json!({"done": self.current, "steps": self.steps.len(), "next": next});
        fill(include_str!("../../prompts/concierge/account.md"), &arguments)
    }

    /// The plan in words: the goal, how far it has come, a mark a step, and only the current one in full.
    #[must_use]
    pub fn rendered(&self) -> String {
        #[derive(Serialize)]
        struct Arguments<'w> {
            goal: &'w str,
            done: usize,
            steps: Vec<Line<'w>>,
        }
        #[derive(Serialize)]
        struct Line<'w> {
            mark: &'static str,
            is_current: bool,
            title: &'w str,
            description: &'w str,
            done_when: &'w str,
        }
        let steps = self.steps.iter().enumerate().map(|(place, step)| {
            let status = self.status(place);
            let mark = status.mark();
            let is_current = status == Status::Active;
            Line { mark, is_current, title: &step.title, description: &step.description, done_when: &step.done_when }
        });
        let arguments = Arguments { goal: &self.goal, done: self.current, steps: steps.collect() };
        fill(include_str!("../../prompts/concierge/workflow.md"), &arguments)
    }
}

fn plain(text: &str) -> Vec<String> {
    words(text).into_iter().map(|word| word.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan() -> Workflow {
        let step = |title: &str, done_when: &str| PlanStep {
            title: title.into(),
            description: format!("how to {title}"),
            done_when: done_when.into(),
        };
        let steps = vec![step("Measure the wall", "you have two numbers"), step("Buy paint", ""), step("Paint", "dry")];
        Workflow { goal: "a green wall".into(), steps, current: 1, version: 1 }
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
        .assert_eq(&plan().rendered());
    }

    #[test]
    fn a_step_is_confirmed_against_the_current_one_by_title_or_number() {
        let plan = plan();
        for named in ["Buy paint", "buy PAINT.", "2", "Step 2", "2. Buy paint", "step 2: Buy paint"] {
            assert_eq!(plan.confirm(named), Ok(1), "{named}");
        }
        for named in ["Paint", "1", "Measure the wall"] {
            assert_eq!(plan.confirm(named), Err(NotDone::NotCurrent), "{named}");
        }
        for named in ["", "4", "Sell paint", "Buy"] {
            assert_eq!(plan.confirm(named), Err(NotDone::Unknown), "{named}");
        }
    }

    #[test]
    fn the_plan_ends_with_its_last_step() {
        let mut plan = plan();
        plan.advance();
        assert!(!plan.is_complete());
        plan.advance();
        assert!(plan.is_complete());
        plan.advance();
        assert_eq!(plan.current, 3, "and goes no further");
        assert_eq!(plan.confirm("Paint"), Err(NotDone::NotCurrent));
    }
}
