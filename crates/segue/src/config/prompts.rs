//! `[flows.FLOW.prompts]`: prompt templates of the user's own, each in a file.

use std::path::Path;

use segue_flows::prompt_overrides::{PROMPTS_SETTING, find_prompt_override_problems};
use serde_json::Value;

use super::table_reader::ConfigError;
use super::{Config, ConfigValueOrigin, FlowSettingConfig};

/// Replaces the name of each file by its text, and checks the templates.
pub(super) fn load_prompt_files(
    file: &Path,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    for setting in config.flow_settings.iter_mut().filter(|setting| setting.name == PROMPTS_SETTING) {
        let flow = setting.flow.clone();
        let line = if let ConfigValueOrigin::File { line } = setting.value.origin { line } else { 1 };
        let mistake = |message: String| ConfigError { file: file.to_owned(), line, message };
        // The type of the setting is checked with all others.
        let Value::Object(prompts) = &mut setting.value.value else { continue };
        for (name, value) in prompts.iter_mut() {
            let key = format!("`flows.{flow}.{PROMPTS_SETTING}.{name}`");
            let Some(path) = value.as_str() else {
                return Err(mistake(format!("{key}: expected the name of a file with the template, found {value}")));
            };
            let path = super::parser::resolve_relative_path(file, path);
            let text = read_file(&path).map_err(|reason| mistake(format!("{key}: {reason}")))?;
            *value = Value::String(text);
        }
        let settings = serde_json::json!({ PROMPTS_SETTING: setting.value.value });
        if let Some(problem) = find_prompt_override_problems(flow.as_str(), &settings).into_iter().next() {
            return Err(mistake(format!("`flows.{flow}.{PROMPTS_SETTING}`: {problem}")));
        }
    }
    Ok(())
}

impl FlowSettingConfig {
    /// Returns the names of the prompts that the setting overrides; empty for other settings.
    pub(crate) fn overridden_prompts(&self) -> Vec<&str> {
        let prompts = self.value.value.as_object().filter(|_| self.name == PROMPTS_SETTING);
        prompts.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }
}
