//! The `[approval]` table: which tool runs wait for a person.

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue, ConfigValueOrigin};
use segue_core::flow::{OperatorToolApprovalRules, ToolRunPattern};

pub(super) const APPROVAL_KEYS: [&str; 2] = ["ask", "allow"];

/// The configured patterns of tool runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ApprovalConfig {
    /// Runs that wait for a person.
    pub ask: Vec<ConfigValue<String>>,
    /// Runs that never wait.
    pub allow: Vec<ConfigValue<String>>,
}

/// Reads `[approval]`.
pub(super) fn read_approval(table: &ConfigTable<'_>, config: &mut Config) -> Result<(), ConfigError> {
    let read_patterns = |key: &str| -> Result<Vec<ConfigValue<String>>, ConfigError> {
        let patterns = table.string_list(key)?;
        for pattern in &patterns {
            parse_pattern(pattern)
                .map_err(|why| table.error_at(table.key_offset(key), format!("`approval.{key}`: {why}")))?;
        }
        Ok(patterns)
    };
    config.approval = ApprovalConfig { ask: read_patterns("ask")?, allow: read_patterns("allow")? };
    Ok(())
}

fn parse_pattern(pattern: &ConfigValue<String>) -> Result<ToolRunPattern, String> {
    pattern.value.parse()
}

impl ApprovalConfig {
    /// Returns the rules for the engine. All patterns were checked when they were read.
    pub(crate) fn to_rules(&self) -> OperatorToolApprovalRules {
        let parse = |patterns: &[ConfigValue<String>]| patterns.iter().flat_map(parse_pattern).collect();
        OperatorToolApprovalRules { ask: parse(&self.ask), allow: parse(&self.allow) }
    }

    /// Returns the patterns as rows for `segue config`.
    pub(super) fn config_rows(&self) -> Vec<(String, String, ConfigValueOrigin)> {
        let rows = APPROVAL_KEYS.into_iter().zip([&self.ask, &self.allow]).flat_map(|(key, patterns)| {
            patterns.iter().map(move |pattern| (format!("approval.{key}"), pattern.value.clone(), pattern.origin))
        });
        rows.collect()
    }
}
