//! The key `file` of `[flows.NAME]`: a flow that the user has written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::flow::DynFlow;
use segue_core::ids::FlowName;
use segue_engine::RecordedFlowLoader;
use segue_flows::project::ProjectFlow;
use segue_flows::project::definition::FlowDefinition;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue};

/// The key of `[flows.NAME]` that names a file.
pub(super) const FLOW_FILE_KEY: &str = "file";
/// The only built-in flow that a file may replace.
pub(crate) const REPLACEABLE_FLOW: &str = "project";

/// A flow that the user declared in a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowFile {
    pub name: FlowName,
    pub file: PathBuf,
    pub source: String,
    pub definition: FlowDefinition,
}

/// Reads the file of a flow, if `[flows.NAME]` names one.
pub(super) fn read_flow_file(
    table: &ConfigTable<'_>,
    name: &FlowName,
    file: &Path,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let Some(named) = table.string(FLOW_FILE_KEY)? else { return Ok(()) };
    let path = super::parser::resolve_relative_path(file, &named.value);
    let error =
        |reason: String| table.error_at(table.key_offset(FLOW_FILE_KEY), format!("`flows.{name}.file`: {reason}"));
    let source = read_file(&path).map_err(error)?;
    let definition = FlowDefinition::parse(&source).map_err(|errors| {
        error(format!("the flow file has mistakes\n{}", errors.render_with_file_name(&path.display().to_string())))
    })?;
    if definition.name != name.as_str() {
        let reason = format!("the file declares flow `{}`; the table must be [flows.{0}]", definition.name);
        return Err(error(reason));
    }
    let is_built_in = segue_flows::built_in_flows().iter().any(|flow| flow.spec().name == *name);
    if is_built_in && name.as_str() != REPLACEABLE_FLOW {
        return Err(error(format!("`{name}` is a built-in flow; choose another name")));
    }
    let value = FlowFile { name: name.clone(), file: path, source, definition };
    config.flow_files.push(ConfigValue { value, origin: named.origin });
    Ok(())
}

impl Config {
    /// Adds the user's flows to the built-in ones. A file may replace the built-in project flow.
    pub(crate) fn with_flow_files(&self, mut flows: Vec<Arc<dyn DynFlow>>) -> Vec<Arc<dyn DynFlow>> {
        for own in &self.flow_files {
            // The file was checked when the configuration was parsed.
            let Ok(flow) = ProjectFlow::from_source(&own.value.source) else { continue };
            flows.retain(|flow| flow.spec().name != own.value.name);
            flows.push(Arc::new(flow));
        }
        flows
    }
}

/// Builds flows from the definitions that sessions have recorded.
#[derive(Debug)]
pub(crate) struct RecordedDefinitionLoader;

impl RecordedFlowLoader for RecordedDefinitionLoader {
    fn load_flow(&self, _name: &FlowName, definition: &str) -> Result<Arc<dyn DynFlow>, String> {
        let flow = ProjectFlow::from_source(definition).map_err(|errors| errors.to_string())?;
        Ok(Arc::new(flow))
    }
}
