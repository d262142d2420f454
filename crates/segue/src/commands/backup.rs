//! `segue backup`: copies the store and the records to new files, and checks the copies.

use anyhow::bail;
use segue_domains::SqliteRecordsTool;
use segue_store::sqlite::{BackupError, backup_store};
use serde_json::json;

use crate::cli::{BackupStoreArgs, GlobalArgs};
use crate::config::default_records_path;
use crate::print::number_format::format_plural;
use crate::store_location::StoreLocation;
use crate::{print, setup};

pub(crate) fn run_backup(global: &GlobalArgs, arguments: &BackupStoreArgs) -> anyhow::Result<()> {
    let loaded = setup::load_config(global)?;
    let store = &loaded.store_path.value;
    if let StoreLocation::Database(_) = StoreLocation::parse(store) {
        bail!("the sessions are in a PostgreSQL database; back it up with pg_dump or the tools of its operator");
    }
    if !store.exists() {
        bail!("there are no sessions yet: the store {} does not exist", store.display());
    }
    let file = &arguments.file;
    let records = loaded.config.records_path(&loaded.store_path, &loaded.data_folder).value;
    // The same name that a store at `file` gives to its records, so that the copies can be used together.
    let records_copy = default_records_path(file);
    if records.exists() && records_copy.symlink_metadata().is_ok() {
        return Err(BackupError::FileExists { path: records_copy.display().to_string() }.into());
    }
    let report = backup_store(store, file)?;
    let copied = SqliteRecordsTool::in_file(&records, loaded.config.all_domains()).backup_databases(&records_copy);
    let records_copies = copied.inspect_err(|_| {
        // Half a backup would look like a whole one. If it cannot be removed, the error still says what is missing.
        let _ = std::fs::remove_file(file);
    })?;
    if global.json {
        let sessions = report.session_count;
        return print::print_json(&json!({ "file": file, "records": records_copies, "sessions": sessions }));
    }
    let sessions = format_plural(report.session_count as u64, "session");
    let file = file.display();
    if records_copies.is_empty() {
        return print::write_stdout(&format!("saved {sessions} to {file} and checked the copy\n"));
    }
    let records: Vec<String> = records_copies.iter().map(|copy| copy.display().to_string()).collect();
    let records = records.join(", ");
    print::write_stdout(&format!("saved {sessions} to {file} and the records to {records}, and checked the copies\n"))
}
