//! Prompts are templates with typed arguments. They are part of the program, so one that cannot be filled is our mistake.

use std::cell::RefCell;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// Steps a template may take; none of ours comes near.
const TEMPLATE_FUEL: u64 = 10_000_000;

thread_local! {
    /// Templates that were read already, under their own text. A template means the same whoever fills it, and when.
    static TEMPLATE_CACHE: RefCell<Environment<'static>> = RefCell::new(new_template_environment());
}

fn new_template_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(TEMPLATE_FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment
}

/// Fills a template. What is undefined in it is a mistake, and tests fill every one.
pub(crate) fn fill_template(template: &'static str, arguments: &impl Serialize) -> String {
    TEMPLATE_CACHE.with_borrow_mut(|environment| {
        if environment.get_template(template).is_err() {
            environment.add_template(template, template).expect("a shipped prompt can be read");
        }
        let read = environment.get_template(template).expect("it was read just now");
        read.render(Serde(arguments)).expect("a shipped prompt can be filled").trim().to_owned()
    })
}
