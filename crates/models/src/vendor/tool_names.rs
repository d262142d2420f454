//! Tool names as vendors accept them: at most 64 letters, digits, `_` and `-`, beginning with a letter or `_`. Our names may
//! contain other characters, so they are converted in requests and converted back in replies.

use std::collections::BTreeMap;

use segue_core::ids::ToolName;
use segue_core::prompt::ModelToolSpec;

use crate::limits::TOOL_NAME_BYTES_MAX;

/// The tool names of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct VendorToolNameMap {
    vendor_names: BTreeMap<ToolName, String>,
    tool_names: BTreeMap<String, ToolName>,
}

impl VendorToolNameMap {
    /// Maps the names of these tools to unique vendor names.
    pub(super) fn from_tools(tools: &[ModelToolSpec]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            let plain = sanitize_tool_name(tool.name.as_str());
            let numbered =
                (2..).map(|number| format!("{}_{number}", truncate_tool_name(&plain, TOOL_NAME_BYTES_MAX - 6)));
            let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !names.tool_names.contains_key(name));
            let sent = free.unwrap_or(plain);
            names.tool_names.insert(sent.clone(), tool.name.clone());
            names.vendor_names.insert(tool.name.clone(), sent);
        }
        names
    }

    /// Returns the vendor's form of a name, even for a tool of an earlier turn that is no longer offered.
    pub(super) fn vendor_name(&self, name: &ToolName) -> String {
        self.vendor_names.get(name).cloned().unwrap_or_else(|| sanitize_tool_name(name.as_str()))
    }

    /// Returns our form of a name. An unknown tool keeps the name that the model made up, and is refused under it.
    pub(super) fn tool_name(&self, vendor_name: &str) -> ToolName {
        self.tool_names.get(vendor_name).cloned().unwrap_or_else(|| vendor_name.into())
    }
}

fn sanitize_tool_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let has_valid_start = name.starts_with(|c: char| allowed(c) == '_' || c.is_ascii_alphabetic());
    let first = (!has_valid_start).then_some('_');
    first.into_iter().chain(name.chars().map(allowed)).take(TOOL_NAME_BYTES_MAX).collect()
}

fn truncate_tool_name(name: &str, bytes: usize) -> &str {
    &name[..name.len().min(bytes)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(tools: &[&str]) -> VendorToolNameMap {
        let spec =
            |name: &&str| ModelToolSpec { name: (*name).into(), description: String::new(), parameters: json!({}) };
        VendorToolNameMap::from_tools(&tools.iter().map(spec).collect::<Vec<_>>())
    }

    #[test]
    fn every_name_survives_the_round_trip() {
        let long = "x".repeat(90);
        let longer = format!("{long}y");
        let tools = ["look", "files/read", "files.read", "größe", "", "3d.view", "_3d_view", "-x", &long, &longer];
        let names = names(&tools);
        let mut seen = std::collections::BTreeSet::new();
        for tool in tools {
            let sent = names.vendor_name(&tool.into());
            assert!(sent.len() <= TOOL_NAME_BYTES_MAX && !sent.is_empty(), "{sent}");
            assert!(sent.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{sent}");
            assert!(sent.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), "{sent}");
            assert_eq!(names.tool_name(&sent), ToolName::from(tool));
            assert!(seen.insert(sent));
        }
        assert_eq!(names.vendor_name(&"look".into()), "look");
    }

    #[test]
    fn unknown_names_are_passed_on() {
        assert_eq!(names(&[]).tool_name("invented"), ToolName::from("invented"));
        assert_eq!(names(&[]).vendor_name(&"gone.by".into()), "gone_by");
    }
}
