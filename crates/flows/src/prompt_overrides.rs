//! Prompt templates of the user's own, in place of the built-in ones. They are part of a session's settings, so a session
//! keeps the prompts that it was opened with, and its prompts can be rebuilt from the journal. A template is checked
//! before a session is opened: it must be valid, use only the variables of the built-in one, and leave out none of its
//! parts by mistake.

mod flow_templates;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use segue_core::context::RenderedFragment;
use segue_core::flow::{FlowSettingSpec, FlowSettingType};
use serde_json::Value;

use crate::limits::{PROMPT_OVERRIDE_BYTES_MAX, PROMPT_OVERRIDES_BYTES_MAX};
use crate::template;
use flow_templates::flow_templates;

/// The setting with the templates.
pub const PROMPTS_SETTING: &str = "prompts";
/// A comment that starts like this names variables that a template leaves out on purpose.
const UNUSED_COMMENT: &str = "{# unused:";

thread_local! {
    /// The overrides of the session whose prompt is being rendered.
    static ACTIVE: RefCell<Option<ActivePromptOverrides>> = const { RefCell::new(None) };
}

/// The overrides of a session, by the text of the built-in template.
struct ActivePromptOverrides {
    texts: BTreeMap<&'static str, (&'static str, String)>,
    /// The names of those that were used.
    used: BTreeSet<&'static str>,
}

/// Returns the declaration of the setting.
pub(crate) fn prompts_setting_spec() -> FlowSettingSpec {
    FlowSettingSpec::new(
        PROMPTS_SETTING,
        FlowSettingType::AnyTable(PROMPT_OVERRIDES_BYTES_MAX),
        "your own prompt templates by name, in place of the built-in ones",
    )
}

/// Returns what is wrong with the prompt templates in a session's settings.
#[must_use]
pub fn find_prompt_override_problems(flow: &str, settings: &Value) -> Vec<String> {
    let Some(given) = settings.get(PROMPTS_SETTING).and_then(Value::as_object) else { return Vec::new() };
    let known = flow_templates(flow);
    let mut problems = Vec::new();
    for (name, text) in given {
        let Some((_, built_in)) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            problems.push(format!("flow `{flow}` has no prompt `{name}`; it has {}", names.join(", ")));
            continue;
        };
        match text.as_str() {
            Some(text) => {
                let found = check_prompt_override(built_in, text).into_iter();
                problems.extend(found.map(|problem| format!("the prompt `{name}` {problem}")));
            }
            None => problems.push(format!("the prompt `{name}` must be a text")),
        }
    }
    problems
}

/// Returns what is wrong with a template that replaces a built-in one.
fn check_prompt_override(built_in: &'static str, text: &str) -> Vec<String> {
    if text.len() > PROMPT_OVERRIDE_BYTES_MAX {
        return vec![format!("has {} bytes; the limit is {PROMPT_OVERRIDE_BYTES_MAX}", text.len())];
    }
    if text.trim().is_empty() {
        return vec!["is empty".to_owned()];
    }
    let used = match template::template_variables(text) {
        Ok(used) => used,
        Err(why) => return vec![format!("is not a valid template: {why}")],
    };
    let known = template::template_variables(built_in).unwrap_or_default();
    let mut problems = Vec::new();
    let unknown: Vec<String> = used.difference(&known).map(|name| format!("`{name}`")).collect();
    if !unknown.is_empty() {
        let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        problems.push(format!("uses {}, which it is not given; its variables are: {names}", unknown.join(", ")));
    }
    let waived = waived_variables(text);
    let missing: Vec<&String> = known.difference(&used).filter(|name| !waived.contains(name.as_str())).collect();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let comment = format!("{UNUSED_COMMENT} {} #}}", names.join(", "));
        problems.push(format!("does not use {}; if that is intended, add the comment {comment}", quoted.join(", ")));
    }
    let markers = signal_markers(built_in).into_iter().filter(|marker| !text.contains(marker.as_str()));
    let markers: Vec<String> = markers.map(|marker| format!("`{marker}`")).collect();
    if !markers.is_empty() {
        problems.push(format!("does not explain {}, which the flow waits for", markers.join(", ")));
    }
    problems
}

/// Returns the variables that a template leaves out on purpose.
fn waived_variables(text: &str) -> BTreeSet<&str> {
    let comments = text.split(UNUSED_COMMENT).skip(1).filter_map(|rest| rest.split("#}").next());
    comments.flat_map(|names| names.split(',')).map(str::trim).collect()
}

/// Returns the markers of signals in a template, such as `<<<HANDOVER>>>`.
fn signal_markers(text: &str) -> BTreeSet<String> {
    let starts = text.split("<<<").skip(1).filter_map(|rest| rest.split_once(">>>"));
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    starts.filter(|(name, _)| is_name(name)).map(|(name, _)| format!("<<<{name}>>>")).collect()
}

/// Renders a fragment with the session's own templates. If one was used, the reason says so, and with it the receipt.
pub(crate) fn render_with_overrides(
    flow: &str,
    settings: &Value,
    render: impl FnOnce() -> RenderedFragment,
) -> RenderedFragment {
    let (fragment, used) = with_overrides(flow, settings, render);
    match fragment {
        RenderedFragment::New { text, source, why } if !used.is_empty() => {
            let why = format!("{why}; with your own prompt {}", used.join(", "));
            RenderedFragment::New { text, source, why }
        }
        fragment => fragment,
    }
}

/// Runs `work` with the session's own templates. Returns also the names of those that were used.
pub(crate) fn with_overrides<T>(flow: &str, settings: &Value, work: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
    let Some(given) = settings.get(PROMPTS_SETTING).and_then(Value::as_object).filter(|given| !given.is_empty()) else {
        return (work(), Vec::new());
    };
    let own = |(name, built_in): &(&'static str, &'static str)| {
        let text = given.get(*name)?.as_str()?;
        Some((*built_in, (*name, text.to_owned())))
    };
    let texts = flow_templates(flow).iter().filter_map(own).collect();
    let outer = ACTIVE.replace(Some(ActivePromptOverrides { texts, used: BTreeSet::new() }));
    let result = work();
    let used = ACTIVE.replace(outer).map(|active| active.used.into_iter().collect()).unwrap_or_default();
    (result, used)
}

/// Returns what `render` makes of the session's own template in place of a built-in one, and notes that it is used.
/// Returns `None` if there is none, or if it cannot be rendered.
pub(crate) fn render_override(built_in: &str, render: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let find = |active: &Option<ActivePromptOverrides>| active.as_ref()?.texts.get(built_in).cloned();
    let (name, own) = ACTIVE.with_borrow(find)?;
    let text = render(&own)?;
    ACTIVE.with_borrow_mut(|active| {
        if let Some(active) = active {
            active.used.insert(name);
        }
    });
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn problems(flow: &str, name: &str, text: &str) -> Vec<String> {
        find_prompt_override_problems(flow, &json!({"prompts": {name: text}}))
    }

    #[test]
    fn every_template_can_be_overridden() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("prompts");
        for flow in ["assistant", "chat", "concierge"] {
            let mut found = BTreeSet::new();
            let mut folders = vec![root.join(flow)];
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(folder).expect("readable") {
                    let path = entry.expect("readable").path();
                    if path.is_dir() {
                        folders.push(path);
                    } else if path.extension().is_some_and(|extension| extension == "md") {
                        let name = path.strip_prefix(root.join(flow)).expect("inside").with_extension("");
                        found.insert(name.to_string_lossy().replace('\\', "/"));
                    }
                }
            }
            // The answers of the rehearsal model are no prompts.
            found.retain(|name| !name.starts_with("rehearsal/"));
            let listed: BTreeSet<String> = flow_templates(flow).iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(listed, found, "{flow}");
        }
    }

    #[test]
    fn built_in_template_is_a_valid_override_of_itself() {
        for flow in ["assistant", "chat", "concierge"] {
            for (name, text) in flow_templates(flow) {
                assert_eq!(problems(flow, name, text), [""; 0], "{flow}/{name}");
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (name, text, problem) in [
            ("explorr", "x", "flow `concierge` has no prompt `explorr`; it has"),
            ("expert", "", "the prompt `expert` is empty"),
            ("expert", "{% if %}", "the prompt `expert` is not a valid template"),
            ("expert", "Answer {{ topic }}.", "uses `topic`, which it is not given; its variables are: none"),
            (
                "mapper",
                "Make a map.",
                "does not use `format`; if that is intended, add the comment {# unused: format #}",
            ),
            ("repair_steps", "{{ why }}", "does not explain `<<<END>>>`, `<<<STEPS>>>`, which the flow waits for"),
        ] {
            let found = problems("concierge", name, text);
            assert!(found.len() == 1 && found[0].contains(problem), "{name}: {found:?}");
        }
        assert_eq!(problems("concierge", "mapper", "Make a map. {# unused: format #}"), [""; 0]);
        let long = "x".repeat(PROMPT_OVERRIDE_BYTES_MAX + 1);
        assert!(problems("concierge", "expert", &long)[0].contains("the limit is"));
    }
}
