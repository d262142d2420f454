//! Tool names as vendors allow them: letters, digits, `_` and `-`, at most 64, and a letter or `_` first. Ours may hold more, so they are changed on the way
//! out and changed back on the way in.

use std::collections::BTreeMap;

use segue_core::ids::ToolName;
use segue_core::prompt::ToolSpec;

use crate::limits::TOOL_NAME_BYTES_MAX;

/// The names of one request's tools.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    sent: BTreeMap<ToolName, String>,
    ours: BTreeMap<String, ToolName>,
}

impl Names {
    /// The names of these tools, no two of them alike.
    pub fn of(tools: &[ToolSpec]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            let plain = allowed(tool.name.as_str());
            let numbered = (2..).map(|number| format!("{}_{number}", cut(&plain, TOOL_NAME_BYTES_MAX - 6)));
            let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !names.ours.contains_key(name));
            let sent = free.unwrap_or(plain);
            names.ours.insert(sent.clone(), tool.name.clone());
            names.sent.insert(tool.name.clone(), sent);
        }
        names
    }

    /// As a vendor is told it. A tool that is no longer at hand may still stand in the conversation.
    pub fn sent(&self, name: &ToolName) -> String {
        self.sent.get(name).cloned().unwrap_or_else(|| allowed(name.as_str()))
    }

    /// As we know it. A tool nobody offered keeps the name the model made up, and is refused under it.
    pub fn ours(&self, sent: &str) -> ToolName {
        self.ours.get(sent).cloned().unwrap_or_else(|| sent.into())
    }
}

fn allowed(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let begins_well = name.starts_with(|c: char| allowed(c) == '_' || c.is_ascii_alphabetic());
    let first = (!begins_well).then_some('_');
    first.into_iter().chain(name.chars().map(allowed)).take(TOOL_NAME_BYTES_MAX).collect()
}

fn cut(name: &str, bytes: usize) -> &str {
    &name[..name.len().min(bytes)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(tools: &[&str]) -> Names {
        let spec = |name: &&str| ToolSpec { name: (*name).into(), description: String::new(), parameters: json!({}) };
        Names::of(&tools.iter().map(spec).collect::<Vec<_>>())
    }

    #[test]
    fn every_name_comes_back_as_it_went_out() {
        let long = "x".repeat(90);
        let longer = format!("{long}y");
        let tools = ["look", "files/read", "files.read", "größe", "", "3d.view", "_3d_view", "-x", &long, &longer];
        let names = names(&tools);
        let mut seen = std::collections::BTreeSet::new();
        for tool in tools {
            let sent = names.sent(&tool.into());
            assert!(sent.len() <= TOOL_NAME_BYTES_MAX && !sent.is_empty(), "{sent}");
            assert!(sent.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{sent}");
            assert!(sent.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), "{sent}");
            assert_eq!(names.ours(&sent), ToolName::from(tool));
            assert!(seen.insert(sent));
        }
        assert_eq!(names.sent(&"look".into()), "look");
    }

    #[test]
    fn names_that_were_not_offered_pass() {
        assert_eq!(names(&[]).ours("invented"), ToolName::from("invented"));
        assert_eq!(names(&[]).sent(&"gone.by".into()), "gone_by");
    }
}
