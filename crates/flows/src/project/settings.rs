//! The settings of a session.

use std::collections::BTreeMap;

use segue_core::flow::{FlowSettingSpec, FlowSettingType, resolve_settings};
use serde_json::{Value, json};

use super::definition::{ActionMode, AgentDefinition, FlowDefinition, PlanApprovalMode};
use crate::limits::{CHECK_COMMAND_CHARS_MAX, DEFINITION_CHECKS_MAX};
use crate::workspace_tools::{COPY_SETTING, WORKSPACE_SETTING};

const PLAN_APPROVAL_SETTING: &str = "plan_approval";
const ACTIONS_SETTING: &str = "actions";
const CHECKS_SETTING: &str = "checks";

/// The settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectSettings {
    /// The workspace in which agents work; `None` if the session has none.
    pub(super) workspace: Option<String>,
    /// Whether the session works in a copy of the workspace.
    pub(super) has_copy: bool,
    pub(super) plan_approval: PlanApprovalMode,
    /// Commands that test the content, besides those of the workspace.
    pub(super) checks: Vec<String>,
    /// How agents choose their actions, by agent. Agents that are not listed do as their definition says.
    pub(super) actions: BTreeMap<String, ActionMode>,
}

/// Returns the declarations of all settings.
pub(super) fn setting_specs(definition: &FlowDefinition) -> Vec<FlowSettingSpec> {
    let approval = match definition.defaults.plan_approval {
        PlanApprovalMode::User => "user",
        PlanApprovalMode::Auto => "auto",
    };
    let checks: Vec<&str> = definition.checks.iter().map(|check| check.command.as_str()).collect();
    let command = Box::new(FlowSettingType::LongText(CHECK_COMMAND_CHARS_MAX));
    vec![
        FlowSettingSpec::new(
            PLAN_APPROVAL_SETTING,
            FlowSettingType::Choice(vec!["user".to_owned(), "auto".to_owned()]),
            "who approves a plan before it is carried out",
        )
        .with_default(approval),
        FlowSettingSpec::new(
            CHECKS_SETTING,
            FlowSettingType::List { item: command, items_max: DEFINITION_CHECKS_MAX },
            "commands that test the content of the workspace, besides its own",
        )
        .with_default(json!(checks)),
        FlowSettingSpec::new(
            ACTIONS_SETTING,
            action_modes_setting_type(definition),
            "how agents choose their actions: with the tool calls of their model or with a small schema; for all, or by agent",
        ),
        FlowSettingSpec::new(WORKSPACE_SETTING, FlowSettingType::Text, "the workspace in which agents work")
            .with_default(""),
        FlowSettingSpec::new(COPY_SETTING, FlowSettingType::Text, "the isolated copy of the workspace to work in")
            .with_default(""),
    ]
}

/// One mode for all agents, or a table with the modes of single agents.
fn action_modes_setting_type(definition: &FlowDefinition) -> FlowSettingType {
    let mode = || FlowSettingType::Choice(ActionMode::ALL.map(|mode| mode.as_str().to_owned()).into());
    let agents = definition.agents.iter();
    let agents = agents.map(|agent| FlowSettingSpec::new(&agent.name, mode(), "how this agent chooses its actions"));
    FlowSettingType::OneOf(vec![mode(), FlowSettingType::Table(agents.collect())])
}

fn parse_action_modes(definition: &FlowDefinition, value: &Value) -> BTreeMap<String, ActionMode> {
    let mode_of = |agent: &AgentDefinition| {
        let name = value.as_str().or_else(|| value.get(&agent.name)?.as_str())?;
        Some((agent.name.clone(), ActionMode::from_name(name)?))
    };
    definition.agents.iter().filter_map(mode_of).collect()
}

impl ProjectSettings {
    /// Reads settings. Invalid values were refused when the session was opened.
    pub(super) fn parse(definition: &FlowDefinition, value: &Value) -> Self {
        let (resolved, _) = resolve_settings(&setting_specs(definition), value);
        let text = |name: &str| resolved[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let checks = resolved[CHECKS_SETTING].as_array().into_iter().flatten();
        Self {
            workspace: text(WORKSPACE_SETTING),
            has_copy: text(COPY_SETTING).is_some(),
            plan_approval: match resolved[PLAN_APPROVAL_SETTING].as_str() {
                Some("auto") => PlanApprovalMode::Auto,
                _ => PlanApprovalMode::User,
            },
            checks: checks.filter_map(|check| check.as_str().map(str::to_owned)).collect(),
            actions: parse_action_modes(definition, &resolved[ACTIONS_SETTING]),
        }
    }
}
