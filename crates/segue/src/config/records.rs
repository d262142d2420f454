//! Which domains there are beside those that come with the program, and where their records are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::flow::DynFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::DomainCatalog;
use serde_json::Value;

use super::table_reader::{ConfigError, ConfigTable};
use super::{Config, ConfigValue};

pub(super) const RECORDS_KEYS: [&str; 2] = ["path", "domains"];

/// The flow whose domains these are, and its setting that names one.
const DOMAIN_FLOW: &str = "assistant";
const DOMAIN_SETTING: &str = "domain";
/// What tells a file from a name.
const DOMAIN_FILE_EXTENSION: &str = ".toml";

/// A domain of the user's own.
#[derive(Debug, Clone, PartialEq)]
pub struct UserDomain {
    /// The file it was read from.
    pub file: PathBuf,
    /// What it says.
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
        let wrong = |why: String| table.error_at(table.key_offset("domains"), format!("`records.domains`: {why}"));
        let domain = load_domain(&path, read_file).map_err(wrong)?;
        config.domains.push(ConfigValue { value: UserDomain { file: path, domain }, origin: named.origin });
    }
    Ok(())
}

/// A domain may also be named by its file where a flow is set: then it is one of those there are.
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
        let line = if let super::ValueOrigin::File { line } = origin { line } else { 1 };
        let wrong = |why: String| ConfigError {
            file: file.to_owned(),
            line,
            message: format!("`flows.{DOMAIN_FLOW}.{DOMAIN_SETTING}`: {why}"),
        };
        let domain = load_domain(&path, read_file).map_err(wrong)?;
        setting.value.value = Value::String(domain.name.clone());
        config.domains.push(ConfigValue { value: UserDomain { file: path, domain }, origin });
    }
    Ok(())
}

fn load_domain(path: &Path, read_file: &dyn Fn(&Path) -> Result<String, String>) -> Result<DomainSchema, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    DomainSchema::parse(&read_file(path).map_err(named)?).map_err(named)
}

impl Config {
    /// Every domain there is: those that come with the program, and the user's own in their place or beside them.
    pub fn all_domains(&self) -> DomainCatalog {
        let own = self.domains.iter().map(|own| own.value.domain.clone());
        DomainCatalog::new(DomainSchema::built_in().into_iter().chain(own))
    }

    /// Every flow there is, with these domains.
    pub fn flows(&self) -> Vec<Arc<dyn DynFlow>> {
        segue_flows::flows_with_domains(self.all_domains())
    }

    /// Where records are kept: the file's place, else beside the sessions.
    pub fn records_path(&self, store: &ConfigValue<PathBuf>) -> ConfigValue<PathBuf> {
        if let Some(records) = &self.records {
            return records.clone();
        }
        let stem = store.value.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        ConfigValue { value: store.value.with_file_name(format!("{stem}-records.db")), origin: store.origin }
    }
}
