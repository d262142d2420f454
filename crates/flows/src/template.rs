//! Renders prompt templates. The templates are compiled into the program, so a template that cannot be rendered is a
//! bug and panics; the tests render every template.

use std::cell::RefCell;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// Most instructions that one rendering may execute.
const TEMPLATE_FUEL: u64 = 10_000_000;

thread_local! {
    /// Parsed templates, named by their own text.
    static TEMPLATE_CACHE: RefCell<Environment<'static>> = RefCell::new(new_template_environment());
}

fn new_template_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(TEMPLATE_FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment
}

/// Renders `template` with `arguments`.
///
/// # Panics
/// Panics if the template is malformed or uses an undefined variable.
pub(crate) fn fill_template(template: &'static str, arguments: &impl Serialize) -> String {
    TEMPLATE_CACHE.with_borrow_mut(|environment| {
        if environment.get_template(template).is_err() {
            environment.add_template(template, template).expect("built-in templates are well-formed");
        }
        let parsed = environment.get_template(template).expect("the template was added above");
        parsed.render(Serde(arguments)).expect("built-in templates use only defined variables").trim().to_owned()
    })
}
