//! Renders prompt templates. The built-in templates are compiled into the program, so one that cannot be rendered is a
//! bug and panics; the tests render every template. A session's own template that cannot be rendered with some arguments
//! is replaced by the built-in one.
//!
//! The filter `fence` wraps text of users, models, tools and files in a code fence that the text cannot close.

use std::cell::RefCell;
use std::collections::BTreeSet;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use segue_core::signal::wrap_in_code_fence;
use serde::Serialize;

use crate::prompt_overrides::render_override;

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
    environment.add_filter("fence", |text: String| wrap_in_code_fence(text.trim()));
    environment
}

/// Renders `template`, or the session's own template in its place, with `arguments`.
///
/// # Panics
/// Panics if the built-in template is malformed or uses an undefined variable.
pub(crate) fn fill_template(template: &'static str, arguments: &impl Serialize) -> String {
    let own = render_override(template, |own| new_template_environment().render_str(own, Serde(arguments)).ok());
    if let Some(text) = own {
        return text.trim().to_owned();
    }
    TEMPLATE_CACHE.with_borrow_mut(|environment| {
        if environment.get_template(template).is_err() {
            environment.add_template(template, template).expect("built-in templates are well-formed");
        }
        let parsed = environment.get_template(template).expect("the template was added above");
        parsed.render(Serde(arguments)).expect("built-in templates use only defined variables").trim().to_owned()
    })
}

/// Returns the names of the variables that a template uses, or why it is malformed.
pub(crate) fn template_variables(text: &str) -> Result<BTreeSet<String>, String> {
    let environment = new_template_environment();
    let parsed = environment.template_from_str(text).map_err(|error| {
        let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
        format!("{}{line}", error.detail().unwrap_or("it cannot be parsed"))
    })?;
    Ok(parsed.undeclared_variables(false).into_iter().collect())
}
