//! Parses the tools and the output format that a client sends, in both APIs.

use segue_core::event::ClientTurnOptions;
use segue_core::ids::FlowName;
use segue_core::prompt::{ModelToolSpec, ModelToolUseRules, ToolChoice};
use serde_json::{Value, json};

use crate::app::AppState;
use crate::problem::HttpProblem;

/// The fields of a request that concern tools and the output format.
#[derive(Debug, Default)]
pub(crate) struct RequestedToolsAndFormat {
    pub tools: Option<Vec<Value>>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    /// `response_format` of chat completions, `text.format` of responses.
    pub format: Option<Value>,
    /// The name of the field with the format, for errors.
    pub format_field: &'static str,
}

impl RequestedToolsAndFormat {
    /// Parses the options.
    ///
    /// # Errors
    /// An option is not supported, or breaks a limit.
    pub(crate) fn parse(self) -> Result<ClientTurnOptions, HttpProblem> {
        let tools = self.tools.unwrap_or_default().iter().map(parse_tool).collect::<Result<Vec<_>, _>>()?;
        let choice = parse_tool_choice(self.tool_choice.as_ref())?;
        let is_single_call = self.parallel_tool_calls == Some(false) && !tools.is_empty();
        let choice = if tools.is_empty() && choice == ToolChoice::None { ToolChoice::Auto } else { choice };
        let tool_use = ModelToolUseRules { choice, is_single_call };
        let output_schema = parse_format(self.format.as_ref(), self.format_field)?;
        let options = ClientTurnOptions { tools, tool_use, output_schema };
        options.validate().map_err(|why| invalid_option_problem("tools", why))?;
        Ok(options)
    }
}

/// Refuses options that the flow does not accept.
///
/// # Errors
/// No role of the flow accepts the client's tools and format.
pub(crate) fn check_flow_accepts(
    app: &AppState,
    flow: &FlowName,
    options: &ClientTurnOptions,
    format_field: &str,
) -> Result<(), HttpProblem> {
    if options.is_empty() || flow_accepts_options(app, flow) {
        return Ok(());
    }
    if !options.tools.is_empty() {
        return Err(invalid_option_problem(
            "tools",
            format!("the flow `{flow}` uses its own tools; omit `tools`, or use `chat`"),
        ));
    }
    let detail = format!("the flow `{flow}` decides the format of its replies; omit `{format_field}`, or use `chat`");
    Err(invalid_option_problem(format_field, detail))
}

/// Returns whether a role of the flow accepts the client's tools and format.
#[must_use]
pub(crate) fn flow_accepts_options(app: &AppState, flow: &FlowName) -> bool {
    let spec = app.engine.flows().map(|known| known.spec()).find(|spec| spec.name == *flow);
    spec.is_some_and(|spec| spec.roles.values().any(|role| role.accepts_turn_options))
}

/// Parses a tool: nested under `function` in chat completions, flat in responses.
fn parse_tool(tool: &Value) -> Result<ModelToolSpec, HttpProblem> {
    if tool["type"] != "function" {
        let kind = tool["type"].as_str().unwrap_or_default();
        return Err(invalid_option_problem(
            "tools",
            format!("tools of the type `{kind}` are not supported; send functions"),
        ));
    }
    let function = tool.get("function").unwrap_or(tool);
    let name =
        function["name"].as_str().ok_or_else(|| invalid_option_problem("tools", "a tool has no `name`".to_owned()))?;
    let parameters = match &function["parameters"] {
        Value::Null => json!({ "type": "object", "properties": {} }),
        parameters => parameters.clone(),
    };
    let description = function["description"].as_str().unwrap_or_default().to_owned();
    Ok(ModelToolSpec { name: name.into(), description, parameters })
}

fn parse_tool_choice(choice: Option<&Value>) -> Result<ToolChoice, HttpProblem> {
    let unsupported = || {
        let detail = "`tool_choice` must be `auto`, `none`, `required`, or name a function".to_owned();
        Err(invalid_option_problem("tool_choice", detail))
    };
    match choice {
        None | Some(Value::Null) => Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            _ => unsupported(),
        },
        Some(choice) if choice["type"] == "function" => {
            match choice["function"]["name"].as_str().or(choice["name"].as_str()) {
                Some(name) => Ok(ToolChoice::Tool(name.into())),
                None => unsupported(),
            }
        }
        Some(_) => unsupported(),
    }
}

/// Returns the schema of the reply; `None` for plain text.
fn parse_format(format: Option<&Value>, field: &str) -> Result<Option<Value>, HttpProblem> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({ "type": "object" }))),
        Some("json_schema") => {
            let schema = format.get("json_schema").unwrap_or(format).get("schema");
            let missing = || invalid_option_problem(field, format!("`{field}` has no `schema`"));
            schema.cloned().map(Some).ok_or_else(missing)
        }
        _ => Err(invalid_option_problem(
            field,
            format!("the type of `{field}` must be `text`, `json_object` or `json_schema`"),
        )),
    }
}

fn invalid_option_problem(field: &str, detail: String) -> HttpProblem {
    HttpProblem::bad_request(detail).with_extension("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: RequestedToolsAndFormat) -> Result<ClientTurnOptions, String> {
        let options = RequestedToolsAndFormat { format_field: "response_format", ..options };
        options.parse().map_err(|problem| problem.detail)
    }

    #[test]
    fn both_apis_describe_the_same_options() {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let function = json!({"name": "get_weather", "description": "Reads it.", "parameters": parameters});
        let mut flat = function.clone();
        flat["type"] = json!("function");
        let schema = json!({"type": "object", "required": ["a"]});
        let chat = parse(RequestedToolsAndFormat {
            tools: Some(vec![json!({"type": "function", "function": function})]),
            tool_choice: Some(json!({"type": "function", "function": {"name": "get_weather"}})),
            parallel_tool_calls: Some(false),
            format: Some(json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})),
            ..RequestedToolsAndFormat::default()
        });
        let responses = parse(RequestedToolsAndFormat {
            tools: Some(vec![flat]),
            tool_choice: Some(json!({"type": "function", "name": "get_weather"})),
            parallel_tool_calls: Some(false),
            format: Some(json!({"type": "json_schema", "name": "x", "schema": schema})),
            ..RequestedToolsAndFormat::default()
        });
        let options = chat.clone().expect("it parses");
        assert_eq!(chat, responses);
        assert_eq!((options.tools[0].name.as_str(), &options.tools[0].parameters), ("get_weather", &parameters));
        assert_eq!(
            options.tool_use,
            ModelToolUseRules { choice: ToolChoice::Tool("get_weather".into()), is_single_call: true }
        );
        assert_eq!(options.output_schema, Some(schema));
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        let tool = |tool: Value| {
            parse(RequestedToolsAndFormat { tools: Some(vec![tool]), ..RequestedToolsAndFormat::default() })
        };
        assert!(tool(json!({"type": "web_search"})).is_err_and(|why| why.contains("`web_search`")));
        assert!(tool(json!({"type": "function", "function": {}})).is_err_and(|why| why.contains("no `name`")));
        assert!(tool(json!({"type": "function", "name": "a b"})).is_err_and(|why| why.contains("`a b`")));
        let choice = |choice: Value| {
            parse(RequestedToolsAndFormat { tool_choice: Some(choice), ..RequestedToolsAndFormat::default() })
        };
        assert!(choice(json!("sometimes")).is_err_and(|why| why.contains("tool_choice")));
        assert!(choice(json!("required")).is_err_and(|why| why.contains("there is none")));
        assert!(choice(json!("none")).is_ok_and(|options| options == ClientTurnOptions::default()));
        let format = |format: Value| {
            parse(RequestedToolsAndFormat { format: Some(format), ..RequestedToolsAndFormat::default() })
        };
        assert!(format(json!({"type": "grammar"})).is_err_and(|why| why.contains("response_format")));
        assert!(format(json!({"type": "json_schema"})).is_err_and(|why| why.contains("schema")));
        assert!(format(json!({"type": "text"})).is_ok_and(|options| options.is_empty()));
    }
}
