//! Prompts are templates with typed arguments. They are part of the program, so one that cannot be filled is our mistake.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// Steps a template may take; none of ours comes near.
const FUEL: u64 = 10_000_000;

/// Fills a template. What is undefined in it is a mistake, and tests fill every one.
pub(crate) fn fill(template: &str, arguments: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    let filled = environment.render_str(template, Serde(arguments));
    filled.expect("a shipped prompt can be filled").trim().to_owned()
}
