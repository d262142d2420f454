//! The `[records]` table: the user's own domains, and the path of the records database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::flow::DynFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use serde_json::Value;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue};

pub(super) const RECORDS_KEYS: [&str; 2] = ["path", "domains"];

/// The flow that uses domains, and its setting that selects one.
const DOMAIN_FLOW: &str = "assistant";
const DOMAIN_SETTING: &str = "domain";
/// A value with this ending is a file, not the name of a domain.
const DOMAIN_FILE_EXTENSION: &str = ".toml";

/// A domain that the user declared in a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DomainFile {
    pub file: PathBuf,
    pub domain: DomainSchema,
}

/// Reads `[records]`.
pub(super) fn read_records(
    table: &ConfigTable<'_>,
    file: &Path,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    if let Some(path) = table.string("path")? {
        config.records =
            Some(ConfigValue { value: super::parser::resolve_relative_path(file, &path.value), origin: path.origin });
    }
    for named in table.string_list("domains")? {
        let path = super::parser::resolve_relative_path(file, &named.value);
        let domain = load_domain(&path, read_file)
            .map_err(|reason| table.error_at(table.key_offset("domains"), format!("`records.domains`: {reason}")))?;
        config.domains.push(ConfigValue { value: DomainFile { file: path, domain }, origin: named.origin });
    }
    Ok(())
}

/// Loads the domains whose files are named in flow settings, and replaces each file by the name of its domain.
pub(super) fn load_domains_from_settings(
    file: &Path,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    for setting in
        config.flow_settings.iter_mut().filter(|setting| setting.flow == DOMAIN_FLOW && setting.name == DOMAIN_SETTING)
    {
        let Some(named) = setting.value.value.as_str().filter(|named| named.ends_with(DOMAIN_FILE_EXTENSION)) else {
            continue;
        };
        let path = super::parser::resolve_relative_path(file, named);
        let origin = setting.value.origin;
        let line = if let super::ConfigValueOrigin::File { line } = origin { line } else { 1 };
        let domain = load_domain(&path, read_file).map_err(|reason| ConfigError {
            file: file.to_owned(),
            line,
            message: format!("`flows.{DOMAIN_FLOW}.{DOMAIN_SETTING}`: {reason}"),
        })?;
        setting.value.value = Value::String(domain.name.clone());
        config.domains.push(ConfigValue { value: DomainFile { file: path, domain }, origin });
    }
    Ok(())
}

fn load_domain(path: &Path, read_file: &dyn Fn(&Path) -> Result<String, String>) -> Result<DomainSchema, String> {
    let with_path = |reason: String| format!("{}: {reason}", path.display());
    DomainSchema::parse(&read_file(path).map_err(with_path)?).map_err(with_path)
}

impl Config {
    /// Returns the built-in domains and the user's own; a user's domain replaces a built-in one of the same name.
    pub(crate) fn all_domains(&self) -> ConfiguredDomains {
        let own = self.domains.iter().map(|own| own.value.domain.clone());
        ConfiguredDomains::new(DomainSchema::built_in().into_iter().chain(own))
    }

    /// Returns all flows, with these domains.
    pub(crate) fn flows(&self) -> Vec<Arc<dyn DynFlow>> {
        self.with_flow_files(segue_flows::flows_with_domains(self.all_domains()))
    }

    /// Returns the path of the records database: the configured path, or else a file next to the store.
    pub(crate) fn records_path(&self, store: &ConfigValue<PathBuf>) -> ConfigValue<PathBuf> {
        if let Some(records) = &self.records {
            return records.clone();
        }
        ConfigValue { value: default_records_path(&store.value), origin: store.origin }
    }
}

/// Returns the path of the records next to a store.
pub(crate) fn default_records_path(store: &Path) -> PathBuf {
    let stem = store.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    store.with_file_name(format!("{stem}-records.db"))
}
