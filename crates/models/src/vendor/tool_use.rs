//! The vendors' forms of the rules about tool use.

use segue_core::prompt::{ModelToolUseRules, ToolChoice};
use serde_json::{Value, json};

use super::wire_format::VendorRequestBuilder;

/// The fields that name the required tool, by API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenAiToolChoiceApi {
    ChatCompletions,
    Responses,
}

impl VendorRequestBuilder<'_> {
    /// Returns the rules to send: those of the prompt, but without a required tool if the vendor refuses to force one.
    fn effective_tool_use(&self) -> ModelToolUseRules {
        let rules = self.prompt.tool_use.clone();
        let is_required = matches!(rules.choice, ToolChoice::Required | ToolChoice::Tool(_));
        let is_refused = is_required && !self.features.forced_tools;
        if is_refused { ModelToolUseRules { choice: ToolChoice::Auto, ..rules } } else { rules }
    }

    /// Sets the rules in OpenAI's formats.
    pub(super) fn set_openai_tool_use(&self, body: &mut Value, form: OpenAiToolChoiceApi) {
        if self.prompt.tools.is_empty() {
            return;
        }
        let rules = self.effective_tool_use();
        match &rules.choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = json!("none"),
            ToolChoice::Required => body["tool_choice"] = json!("required"),
            ToolChoice::Tool(name) => {
                let name = self.tool_names.vendor_name(name);
                body["tool_choice"] = match form {
                    OpenAiToolChoiceApi::ChatCompletions => {
                        json!({ "type": "function", "function": { "name": name } })
                    }
                    OpenAiToolChoiceApi::Responses => json!({ "type": "function", "name": name }),
                };
            }
        }
        if rules.is_single_call {
            body["parallel_tool_calls"] = json!(false);
        }
    }

    /// Returns Anthropic's `tool_choice`, if it differs from the default. A model that thinks cannot be forced.
    pub(super) fn anthropic_tool_choice(&self, thinks: bool) -> Option<Value> {
        let rules = self.effective_tool_use();
        if self.prompt.tools.is_empty() || rules == ModelToolUseRules::default() {
            return None;
        }
        let mut choice = match &rules.choice {
            ToolChoice::None => return Some(json!({ "type": "none" })),
            ToolChoice::Required if !thinks => json!({ "type": "any" }),
            ToolChoice::Tool(name) if !thinks => json!({ "type": "tool", "name": self.tool_names.vendor_name(name) }),
            ToolChoice::Auto | ToolChoice::Required | ToolChoice::Tool(_) => json!({ "type": "auto" }),
        };
        if rules.is_single_call {
            choice["disable_parallel_tool_use"] = json!(true);
        }
        Some(choice)
    }

    /// Returns Gemini's `toolConfig`, if it differs from the default. The API has no rule for parallel calls.
    pub(super) fn gemini_tool_config(&self) -> Option<Value> {
        let mode = match self.effective_tool_use().choice {
            _ if self.prompt.tools.is_empty() => return None,
            ToolChoice::Auto => return None,
            ToolChoice::None => json!({ "mode": "NONE" }),
            ToolChoice::Required => json!({ "mode": "ANY" }),
            ToolChoice::Tool(name) => {
                json!({ "mode": "ANY", "allowedFunctionNames": [self.tool_names.vendor_name(&name)] })
            }
        };
        Some(json!({ "functionCallingConfig": mode }))
    }
}
