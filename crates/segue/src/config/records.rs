//! Which domains there are beside those that come with the program, and where their records are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::flow::Rules;
use segue_flows::assistant::domain::Domain;
use segue_flows::assistant::settings::Domains;
use serde_json::Value;

use super::reader::{Error, Table};
use super::{Config, Setting};

pub(super) const RECORDS_KEYS: [&str; 2] = ["path", "domains"];

/// The flow whose domains these are, and its setting that names one.
const FLOW: &str = "assistant";
const SETTING: &str = "domain";
/// What tells a file from a name.
const FILE_ENDING: &str = ".toml";

/// A domain of the user's own.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnDomain {
    /// The file it was read from.
    pub file: PathBuf,
    /// What it says.
    pub domain: Domain,
}

/// Reads `[records]`.
pub(super) fn read(
    table: &Table<'_>,
    file: &Path,
    look: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), Error> {
    if let Some(path) = table.text("path")? {
        config.records = Some(Setting { value: super::read::beside(file, &path.value), origin: path.origin });
    }
    for named in table.texts("domains")? {
        let path = super::read::beside(file, &named.value);
        let wrong = |why: String| table.error(table.start_of("domains"), format!("`records.domains`: {why}"));
        let domain = read_domain(&path, look).map_err(wrong)?;
        config.domains.push(Setting { value: OwnDomain { file: path, domain }, origin: named.origin });
    }
    Ok(())
}

/// A domain may also be named by its file where a flow is set: then it is one of those there are.
pub(super) fn adopt(
    file: &Path,
    look: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), Error> {
    for setting in config.settings.iter_mut().filter(|setting| setting.flow == FLOW && setting.name == SETTING) {
        let Some(named) = setting.value.value.as_str().filter(|named| named.ends_with(FILE_ENDING)) else { continue };
        let path = super::read::beside(file, named);
        let origin = setting.value.origin;
        let line = if let super::Origin::File { line } = origin { line } else { 1 };
        let wrong =
            |why: String| Error { file: file.to_owned(), line, message: format!("`flows.{FLOW}.{SETTING}`: {why}") };
        let domain = read_domain(&path, look).map_err(wrong)?;
        setting.value.value = Value::String(domain.name.clone());
        config.domains.push(Setting { value: OwnDomain { file: path, domain }, origin });
    }
    Ok(())
}

fn read_domain(path: &Path, look: &dyn Fn(&Path) -> Result<String, String>) -> Result<Domain, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    Domain::parse(&look(path).map_err(named)?).map_err(named)
}

impl Config {
    /// Every domain there is: those that come with the program, and the user's own in their place or beside them.
    pub fn all_domains(&self) -> Domains {
        let own = self.domains.iter().map(|own| own.value.domain.clone());
        Domains::new(Domain::shipped().into_iter().chain(own))
    }

    /// Every flow there is, with these domains.
    pub fn flows(&self) -> Vec<Arc<dyn Rules>> {
        segue_flows::with(self.all_domains())
    }

    /// Where records are kept: the file's place, else beside the sessions.
    pub fn records_path(&self, store: &Setting<PathBuf>) -> Setting<PathBuf> {
        if let Some(records) = &self.records {
            return records.clone();
        }
        let stem = store.value.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Setting { value: store.value.with_file_name(format!("{stem}-records.db")), origin: store.origin }
    }
}
