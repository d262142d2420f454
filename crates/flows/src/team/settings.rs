//! The settings of a session.

use segue_core::flow::{FlowSettingSpec, FlowSettingType, resolve_settings};
use serde_json::Value;

use super::path_pattern::pattern_problem;
use super::product_spec::ProductSpec;
use crate::limits::{PRODUCT_SPEC_BYTES_MAX, TEAM_CODERS_MAX};
use crate::workspace_tools::WORKSPACE_SETTING;

/// The settings of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct TeamSettings {
    pub coders: u32,
    pub contexts: ArchitectThreadPartitioning,
    /// After how long the architect's thread is replaced; `None` for never.
    pub context_age_ms_max: Option<u64>,
    /// The path of the knowledge file in the repository.
    pub knowledge_file: String,
    /// The spec, if it is given from the start.
    pub spec: Option<ProductSpec>,
    /// Whether the turn lasts until the spec has ended. Nobody is asked anything.
    pub is_headless: bool,
}

/// How the architect's memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchitectThreadPartitioning {
    /// One thread for each assignment of each agent.
    PerAssignment,
    /// One thread for all agents, which every request resets. Only for comparison.
    Single,
}

/// Returns the declarations of all settings.
#[must_use]
pub fn team_setting_specs() -> Vec<FlowSettingSpec> {
    let spec = FlowSettingType::OneOf(vec![
        FlowSettingType::AnyTable(PRODUCT_SPEC_BYTES_MAX),
        FlowSettingType::LongText(PRODUCT_SPEC_BYTES_MAX),
    ]);
    vec![
        FlowSettingSpec::new(
            WORKSPACE_SETTING,
            FlowSettingType::Text,
            "the workspace whose git repository the team works in, as named in the configuration",
        ),
        FlowSettingSpec::new(
            "coders",
            FlowSettingType::Integer { min: 1, max: u64::from(TEAM_CODERS_MAX) },
            "how many coders work in parallel",
        )
        .with_default(2),
        FlowSettingSpec::new(
            "contexts",
            FlowSettingType::Choice(vec!["per_assignment".to_owned(), "single".to_owned()]),
            "whether the architect has one context for each assignment, or a single one for comparison",
        )
        .with_default("per_assignment"),
        FlowSettingSpec::new(
            "context_age_minutes",
            FlowSettingType::Integer { min: 0, max: 60 * 24 * 30 },
            "after how many minutes the architect's context of an assignment is replaced; 0 for never",
        )
        .with_default(0),
        FlowSettingSpec::new(
            "knowledge_file",
            FlowSettingType::Text,
            "the path of the knowledge file in the repository",
        )
        .with_default("knowledge.dot"),
        FlowSettingSpec::new(
            "spec",
            spec,
            "the spec, as a table or as JSON with title, goal, requirements and acceptance; otherwise the product manager asks",
        ),
        FlowSettingSpec::new(
            "headless",
            FlowSettingType::Bool,
            "whether the team starts without a confirmation and the turn lasts until it has finished",
        )
        .with_default(false),
    ]
}

impl TeamSettings {
    /// Parses settings; the second value lists what is invalid.
    #[must_use]
    pub fn parse(value: &Value) -> (Self, Vec<String>) {
        let (resolved, invalid) = resolve_settings(&team_setting_specs(), value);
        let mut problems: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        let number = |name: &str| resolved[name].as_u64().unwrap_or_default();
        let knowledge_file = resolved["knowledge_file"].as_str().unwrap_or_default().trim().to_owned();
        if knowledge_file.is_empty() || knowledge_file.contains(['*', '?']) {
            problems.push("`knowledge_file` must be the path of one file".to_owned());
        }
        problems.extend(pattern_problem(&knowledge_file).map(|problem| format!("`knowledge_file`: {problem}")));
        let spec = match &resolved["spec"] {
            Value::String(text) if !text.trim().is_empty() => match serde_json::from_str::<Value>(text) {
                Ok(value) => Some(ProductSpec::from_value(&value)),
                Err(error) => {
                    problems.push(format!("`spec` is not JSON: {error}"));
                    None
                }
            },
            table @ Value::Object(_) => Some(ProductSpec::from_value(table)),
            _ => None,
        };
        if let Some(missing) = spec.as_ref().map(ProductSpec::missing_fields).filter(|missing| !missing.is_empty()) {
            let names: Vec<String> = missing.iter().map(|field| format!("{field:?}").to_lowercase()).collect();
            problems.push(format!("`spec` lacks {}", names.join(", ")));
        }
        let is_headless = resolved["headless"] == true;
        if is_headless && spec.is_none() {
            problems.push("`headless` needs `spec`, because nobody can be asked".to_owned());
        }
        let contexts = match resolved["contexts"].as_str() {
            Some("single") => ArchitectThreadPartitioning::Single,
            _ => ArchitectThreadPartitioning::PerAssignment,
        };
        let settings = Self {
            coders: u32::try_from(number("coders")).unwrap_or(1).max(1),
            contexts,
            context_age_ms_max: Some(number("context_age_minutes") * 60_000).filter(|ms| *ms > 0),
            knowledge_file,
            spec,
            is_headless,
        };
        (settings, problems)
    }
}
