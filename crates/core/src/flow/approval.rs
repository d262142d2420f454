//! Which tool runs wait until a person approves them.
//!
//! A flow declares it for each of its tools, and the operator's rules add to that. "Allow for the rest of this session"
//! is an event of the session.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{FlowName, PhaseName, RoleName, ToolName};

/// Which runs of a tool a flow wants to have approved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FlowToolApprovalPolicy {
    /// No run needs approval.
    #[default]
    NotRequired,
    /// Every run needs approval.
    Required,
    /// Those that one of these roles requests in one of these phases. An empty list stands for all roles or phases.
    RequiredFor { roles: Vec<RoleName>, phases: Vec<PhaseName> },
}

impl FlowToolApprovalPolicy {
    fn requires_approval(&self, run: &ToolApprovalRuleInputs<'_>) -> bool {
        fn is_unrestricted_or_contains<T: PartialEq>(listed: &[T], value: Option<&T>) -> bool {
            listed.is_empty() || value.is_some_and(|value| listed.contains(value))
        }
        match self {
            Self::NotRequired => false,
            Self::Required => true,
            Self::RequiredFor { roles, phases } => {
                is_unrestricted_or_contains(roles, run.role) && is_unrestricted_or_contains(phases, run.phase)
            }
        }
    }
}

/// The operator's rules. A run is held if its flow or a pattern in `ask` says so, unless a pattern in `allow` matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperatorToolApprovalRules {
    pub ask: Vec<ToolRunPattern>,
    pub allow: Vec<ToolRunPattern>,
}

impl OperatorToolApprovalRules {
    pub(crate) fn requires_approval(
        &self,
        declared: &FlowToolApprovalPolicy,
        run: &ToolApprovalRuleInputs<'_>,
    ) -> bool {
        let matches = |patterns: &[ToolRunPattern]| patterns.iter().any(|pattern| pattern.matches(run));
        (declared.requires_approval(run) || matches(&self.ask)) && !matches(&self.allow)
    }
}

/// What rules about tool runs can refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolApprovalRuleInputs<'a> {
    pub flow: &'a FlowName,
    /// `None` if the flow itself requested the run.
    pub role: Option<&'a RoleName>,
    pub phase: Option<&'a PhaseName>,
    pub tool: &'a ToolName,
}

/// Matches tool runs. It is written as `TOOL`, `ROLE/TOOL`, `@PHASE/TOOL` or `ROLE@PHASE/TOOL`, each after an optional
/// `FLOW:`. A `*` matches anything.
///
/// ```
/// use segue_core::flow::ToolRunPattern;
///
/// assert!("project:coder@build/run_command".parse::<ToolRunPattern>().is_ok());
/// assert!("coder/".parse::<ToolRunPattern>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRunPattern {
    flow: Option<FlowName>,
    role: Option<RoleName>,
    phase: Option<PhaseName>,
    tool: Option<ToolName>,
}

impl ToolRunPattern {
    fn matches(&self, run: &ToolApprovalRuleInputs<'_>) -> bool {
        self.flow.as_ref().is_none_or(|flow| flow == run.flow)
            && self.role.as_ref().is_none_or(|role| Some(role) == run.role)
            && self.phase.as_ref().is_none_or(|phase| Some(phase) == run.phase)
            && self.tool.as_ref().is_none_or(|tool| tool == run.tool)
    }
}

impl FromStr for ToolRunPattern {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let (flow, rest) = pattern.split_once(':').map_or((None, pattern), |(flow, rest)| (Some(flow), rest));
        let (caller, tool) = rest.split_once('/').map_or((None, rest), |(caller, tool)| (Some(caller), tool));
        let (role, phase) = match caller.map(|caller| caller.split_once('@').unwrap_or((caller, ANY_NAME))) {
            Some(("", phase)) if caller.is_some_and(|caller| caller.contains('@')) => (ANY_NAME, phase),
            Some((role, phase)) => (role, phase),
            None => (ANY_NAME, ANY_NAME),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains([':', '/', '@', ' ']);
        let flow = flow.unwrap_or(ANY_NAME);
        if ![flow, role, phase, tool].into_iter().all(is_name) {
            return Err(format!(
                "`{pattern}` is not a pattern of tool runs; write TOOL, ROLE/TOOL or ROLE@PHASE/TOOL, after an optional FLOW:"
            ));
        }
        Ok(Self {
            flow: non_wildcard_name(flow).map(FlowName::from),
            role: non_wildcard_name(role).map(RoleName::from),
            phase: non_wildcard_name(phase).map(PhaseName::from),
            tool: non_wildcard_name(tool).map(ToolName::from),
        })
    }
}

const ANY_NAME: &str = "*";

fn non_wildcard_name(name: &str) -> Option<&str> {
    (name != ANY_NAME).then_some(name)
}

/// Runs that a person has allowed for the rest of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionToolApproval {
    pub tool: ToolName,
    /// The role that may use the tool; `None` for the flow itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_by_flow_role_phase_and_tool() {
        let (flow, role, phase, tool) = ("project".into(), "coder".into(), "build".into(), "run".into());
        let by_role = ToolApprovalRuleInputs { flow: &flow, role: Some(&role), phase: Some(&phase), tool: &tool };
        let by_flow = ToolApprovalRuleInputs { role: None, phase: None, ..by_role };
        for (pattern, matches_role, matches_flow) in [
            ("run", true, true),
            ("*", true, true),
            ("coder/run", true, false),
            ("coder/*", true, false),
            ("tester/run", false, false),
            ("@build/run", true, false),
            ("coder@build/run", true, false),
            ("coder@test/run", false, false),
            ("project:run", true, true),
            ("project:coder@build/run", true, false),
            ("chat:run", false, false),
            ("walk", false, false),
        ] {
            let parsed: ToolRunPattern = pattern.parse().expect("it is well-formed");
            assert_eq!((parsed.matches(&by_role), parsed.matches(&by_flow)), (matches_role, matches_flow), "{pattern}");
        }
        for malformed in ["", "/run", "coder/", "a/b/c", ":run", "coder@/run", "a b", "a:b:c"] {
            assert!(malformed.parse::<ToolRunPattern>().is_err(), "{malformed}");
        }
    }

    #[test]
    fn allowing_outranks_asking() {
        let (flow, tool) = ("project".into(), "run".into());
        let run = ToolApprovalRuleInputs { flow: &flow, role: None, phase: None, tool: &tool };
        let rules = |ask: &str, allow: &str| OperatorToolApprovalRules {
            ask: ask.parse().into_iter().collect(),
            allow: allow.parse().into_iter().collect(),
        };
        let (not_required, required) = (FlowToolApprovalPolicy::NotRequired, FlowToolApprovalPolicy::Required);
        assert!(!rules("", "").requires_approval(&not_required, &run));
        assert!(rules("*", "").requires_approval(&not_required, &run));
        assert!(rules("", "").requires_approval(&required, &run));
        assert!(!rules("*", "project:run").requires_approval(&required, &run));
    }
}
