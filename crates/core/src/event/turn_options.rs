//! What a client asks of the calls that answer its message: tools that the client runs itself, and the format of the
//! answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::BodyId;
use crate::ids::ToolRunId;
use crate::limits::{CLIENT_SCHEMA_BYTES_MAX, CLIENT_TOOL_NAME_CHARS_MAX, CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX};
use crate::prompt::{ModelToolSpec, ModelToolUseRules};
use crate::signal::json::canonical_json;

/// The options that a client sends with a message or with the results of its tools. They apply to the calls that
/// follow in the same turn, of roles that [accept them](crate::flow::RoleSpec::accepts_turn_options).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientTurnOptions {
    /// The tools that the client runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ModelToolSpec>,
    #[serde(default, skip_serializing_if = "ModelToolUseRules::is_default")]
    pub tool_use: ModelToolUseRules,
    /// The JSON schema of the answer; `None` for plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// The options as the journal records them. Tools and schema are stored as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordedClientTurnOptions {
    /// The tools, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BodyId>,
    #[serde(default, skip_serializing_if = "ModelToolUseRules::is_default")]
    pub tool_use: ModelToolUseRules,
    /// The JSON schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<BodyId>,
}

/// The result of a tool that a client ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientToolResult {
    pub run: ToolRunId,
    pub text: String,
}

impl ClientTurnOptions {
    /// Returns true if the options change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.output_schema.is_none()
    }

    /// Returns the tools as JSON; `None` if there are none.
    pub(crate) fn tools_json(&self) -> Option<String> {
        let tools = Some(&self.tools).filter(|tools| !tools.is_empty())?;
        serde_json::to_value(tools).ok().map(|tools| canonical_json(&tools))
    }

    /// Checks the limits, and that the tools have distinct names which every vendor accepts.
    ///
    /// # Errors
    /// Fails with the reason.
    pub fn validate(&self) -> Result<(), String> {
        if self.tools.len() > CLIENT_TOOLS_MAX {
            return Err(format!("there are {} tools, but at most {CLIENT_TOOLS_MAX} are allowed", self.tools.len()));
        }
        for (index, tool) in self.tools.iter().enumerate() {
            let name = tool.name.as_str();
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if name.is_empty() || name.len() > CLIENT_TOOL_NAME_CHARS_MAX || !name.chars().all(is_allowed) {
                return Err(format!(
                    "`{name}` is not a name for a tool; use 1 to {CLIENT_TOOL_NAME_CHARS_MAX} letters, digits, `_` and `-`"
                ));
            }
            if self.tools[..index].iter().any(|other| other.name == tool.name) {
                return Err(format!("there are two tools with the name `{name}`"));
            }
            if !tool.parameters.is_object() {
                return Err(format!("the parameters of `{name}` must be a JSON schema"));
            }
        }
        let bytes = self.tools_json().map_or(0, |json| json.len());
        if bytes > CLIENT_TOOLS_BYTES_MAX {
            return Err(format!("the tools have {bytes} bytes, but at most {CLIENT_TOOLS_BYTES_MAX} are allowed"));
        }
        let Some(schema) = &self.output_schema else { return self.validate_tool_use() };
        if !schema.is_object() {
            return Err("the schema of the answer must be an object".to_owned());
        }
        let bytes = schema.to_string().len();
        if bytes > CLIENT_SCHEMA_BYTES_MAX {
            return Err(format!(
                "the schema of the answer has {bytes} bytes, but at most {CLIENT_SCHEMA_BYTES_MAX} are allowed"
            ));
        }
        self.validate_tool_use()
    }

    fn validate_tool_use(&self) -> Result<(), String> {
        match self.tool_use.required_tool() {
            Some(Some(name)) if !self.tools.iter().any(|tool| tool.name == *name) => {
                Err(format!("the model must use the tool `{name}`, but there is no such tool"))
            }
            Some(None) if self.tools.is_empty() => Err("the model must use a tool, but there is none".to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::prompt::ToolChoice;

    fn tool(name: &str) -> ModelToolSpec {
        ModelToolSpec { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) }
    }

    fn problem(options: ClientTurnOptions) -> String {
        options.validate().expect_err("it is refused")
    }

    #[test]
    fn options_are_bounded_and_named_in_refusals() {
        let with_tools = |tools: Vec<ModelToolSpec>| ClientTurnOptions { tools, ..ClientTurnOptions::default() };
        assert_eq!(with_tools(vec![tool("get_weather"), tool("a-1")]).validate(), Ok(()));
        let many = (0..=CLIENT_TOOLS_MAX).map(|number| tool(&format!("t{number}"))).collect();
        assert!(problem(with_tools(many)).contains("at most"));
        assert!(problem(with_tools(vec![tool("a b")])).contains("`a b`"));
        assert!(problem(with_tools(vec![tool("")])).contains("not a name"));
        assert!(problem(with_tools(vec![tool("a"), tool("a")])).contains("two tools"));
        let huge = ModelToolSpec { description: "x".repeat(CLIENT_TOOLS_BYTES_MAX), ..tool("a") };
        assert!(problem(with_tools(vec![huge])).contains("bytes"));
        let untyped = ModelToolSpec { parameters: json!("x"), ..tool("a") };
        assert!(problem(with_tools(vec![untyped])).contains("JSON schema"));
        let schema = |schema: Value| ClientTurnOptions { output_schema: Some(schema), ..ClientTurnOptions::default() };
        assert_eq!(schema(json!({"type": "object"})).validate(), Ok(()));
        assert!(problem(schema(json!("text"))).contains("must be an object"));
        let long = "x".repeat(CLIENT_SCHEMA_BYTES_MAX);
        assert!(problem(schema(json!({"title": long}))).contains("bytes"));
    }

    #[test]
    fn required_tool_must_exist() {
        let requiring = |choice: ToolChoice, tools: Vec<ModelToolSpec>| ClientTurnOptions {
            tools,
            tool_use: ModelToolUseRules { choice, ..ModelToolUseRules::default() },
            ..ClientTurnOptions::default()
        };
        assert_eq!(requiring(ToolChoice::Tool("a".into()), vec![tool("a")]).validate(), Ok(()));
        assert!(problem(requiring(ToolChoice::Tool("b".into()), vec![tool("a")])).contains("`b`"));
        assert!(problem(requiring(ToolChoice::Required, Vec::new())).contains("there is none"));
        assert_eq!(requiring(ToolChoice::None, Vec::new()).validate(), Ok(()));
    }
}
