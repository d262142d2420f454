//! Reads a definition from the text of a TOML file. Every mistake is reported with its line and column, not only the first.

use std::fmt;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::FlowDefinition;
use super::check::{FlowDefinitionPath, FlowDefinitionPathSegment, check_definition};
use crate::limits::{DEFINITION_BYTES_MAX, DEFINITION_ERRORS_MAX};
use crate::mcp_tools::McpToolName;

/// A mistake in a flow file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowFileMistake {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for FlowFileMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// A tool of an MCP server that a flow file names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct McpToolInFlowFile {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The whole name, as in the file.
    pub name: String,
}

impl McpToolInFlowFile {
    /// Returns the server and the tool.
    #[must_use]
    pub fn parsed(&self) -> McpToolName<'_> {
        McpToolName::parse(&self.name).expect("only names of such tools are located")
    }

    /// Returns a mistake at this place.
    #[must_use]
    pub fn error(&self, message: String) -> FlowFileMistake {
        FlowFileMistake { line: self.line, column: self.column, message }
    }
}

/// All mistakes that were found in a flow file, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render_with_file_name(""))]
pub struct FlowDefinitionErrors {
    pub errors: Vec<FlowFileMistake>,
}

impl FlowDefinitionErrors {
    /// Returns the mistakes as lines of text, each after the name of the file and a colon, if a name is given.
    #[must_use]
    pub fn render_with_file_name(&self, file: &str) -> String {
        let prefix = if file.is_empty() { String::new() } else { format!("{file}:") };
        self.errors.iter().map(|error| format!("{prefix}{error}")).collect::<Vec<_>>().join("\n")
    }
}

/// The tables of a file that are arrays of tables.
const TABLE_ARRAYS: [&str; 5] = ["agents", "phases", "edges", "gates", "checks"];

impl FlowDefinition {
    /// Reads and checks a definition.
    ///
    /// # Errors
    /// Returns all mistakes. Those that concern several parts of the file are only looked for if each part is well-formed.
    pub fn parse(text: &str) -> Result<Self, FlowDefinitionErrors> {
        let source = FlowFileText(text);
        if text.len() > DEFINITION_BYTES_MAX {
            let message = format!("the file has {} bytes; at most {DEFINITION_BYTES_MAX} are allowed", text.len());
            return Err(FlowDefinitionErrors { errors: vec![source.error_at(0, message)] });
        }
        let (root, syntax) = DeTable::parse_recoverable(text);
        let mut errors: Vec<FlowFileMistake> = syntax
            .iter()
            .map(|error| source.error_at(error.span().map_or(0, |span| span.start), error.message().to_owned()))
            .collect();
        if errors.is_empty() {
            errors = source.malformed_parts(root.get_ref());
        }
        if errors.is_empty() {
            match Self::deserialize_table(root.clone()) {
                Ok(definition) => {
                    let problems = check_definition(&definition);
                    if problems.is_empty() {
                        return Ok(definition);
                    }
                    let located = problems.into_iter().map(|(path, message)| {
                        source.error_at(locate(root.get_ref(), &path).unwrap_or_default(), message)
                    });
                    errors.extend(located);
                }
                Err(error) => errors.push(source.deserialization_error(&error, 0)),
            }
        }
        errors.sort();
        errors.dedup();
        errors.truncate(DEFINITION_ERRORS_MAX);
        Err(FlowDefinitionErrors { errors })
    }

    /// Returns the tools of MCP servers that the text of a definition names, with their places. A text with mistakes has none.
    #[must_use]
    pub fn locate_mcp_tools(text: &str) -> Vec<McpToolInFlowFile> {
        let (Ok(root), Ok(definition)) = (DeTable::parse(text), Self::parse(text)) else { return Vec::new() };
        let source = FlowFileText(text);
        let locate_names = |table: &'static str, index: usize, names: &[String]| {
            let found = names.iter().enumerate().filter_map(|(position, name)| {
                McpToolName::parse(name)?;
                let path: FlowDefinitionPath = vec![table.into(), index.into(), "tools".into(), position.into()];
                let at = source.error_at(locate(root.get_ref(), &path).unwrap_or_default(), String::new());
                Some(McpToolInFlowFile { line: at.line, column: at.column, name: name.clone() })
            });
            found.collect::<Vec<_>>()
        };
        let agents = definition
            .agents
            .iter()
            .enumerate()
            .flat_map(|(index, agent)| locate_names("agents", index, agent.tools.as_deref().unwrap_or_default()));
        let phases = definition.phases.iter().enumerate();
        let mut located: Vec<McpToolInFlowFile> =
            agents.chain(phases.flat_map(|(index, phase)| locate_names("phases", index, &phase.tools))).collect();
        located.sort();
        located
    }

    fn deserialize_table(root: Spanned<DeTable<'_>>) -> Result<Self, toml::de::Error> {
        let span = root.span();
        deserialize_value(Spanned::new(span, DeValue::Table(root.into_inner())))
    }
}

fn deserialize_value<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, toml::de::Error> {
    T::deserialize(ValueDeserializer::from(value))
}

/// The text of a file, used to turn byte offsets into lines and columns.
struct FlowFileText<'t>(&'t str);

impl FlowFileText<'_> {
    fn error_at(&self, byte: usize, message: String) -> FlowFileMistake {
        let before = &self.0[..self.0.floor_char_boundary(byte)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FlowFileMistake {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    }

    fn deserialization_error(&self, error: &toml::de::Error, fallback: usize) -> FlowFileMistake {
        let at = error.span().map_or(fallback, |span| span.start);
        self.error_at(at, error.message().lines().collect::<Vec<_>>().join(" "))
    }

    /// Reads each entry of the arrays on its own, so that a mistake in one does not hide those in others.
    fn malformed_parts(&self, root: &DeTable<'_>) -> Vec<FlowFileMistake> {
        let mut errors = Vec::new();
        for name in TABLE_ARRAYS {
            let Some(value) = root.get(name) else { continue };
            let Some(entries) = value.get_ref().as_array() else { continue };
            for entry in entries.iter() {
                let found = match name {
                    "agents" => deserialize_value::<super::AgentDefinition>(entry.clone()).err(),
                    "phases" => deserialize_value::<super::PhaseDefinition>(entry.clone()).err(),
                    "edges" => deserialize_value::<super::EdgeDefinition>(entry.clone()).err(),
                    "gates" => deserialize_value::<super::GateDefinition>(entry.clone()).err(),
                    _ => deserialize_value::<super::CheckDefinition>(entry.clone()).err(),
                };
                errors.extend(found.map(|error| self.deserialization_error(&error, entry.span().start)));
            }
        }
        errors
    }
}

/// Returns the byte offset of the value at a path, or of the last part of the path that exists.
fn locate(root: &DeTable<'_>, path: &FlowDefinitionPath) -> Option<usize> {
    let mut table = Some(root);
    let mut current: Option<&Spanned<DeValue<'_>>> = None;
    let mut found = None;
    for step in path {
        current = match step {
            FlowDefinitionPathSegment::Key(key) => {
                let holder = table.or_else(|| current.and_then(|value| value.get_ref().as_table()));
                let entry = holder.and_then(|table| table.iter().find(|(name, _)| name.get_ref().as_ref() == *key));
                entry.map(|(_, value)| value)
            }
            FlowDefinitionPathSegment::Index(index) => {
                let array = current.and_then(|value| value.get_ref().as_array());
                // A single value stands for a list of one.
                array.map_or(current.filter(|_| *index == 0), |array| array.get(*index))
            }
        };
        table = None;
        match current {
            Some(value) => found = Some(value.span().start),
            None => break,
        }
    }
    found
}
