//! The file with the results of evaluations, in the user's data folder.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use segue_eval::limits::RESULTS_BYTES_MAX;
use segue_eval::results::StoredEvaluationResultList;

use crate::config::UserDirs;

fn results_path(dirs: &UserDirs) -> Option<PathBuf> {
    Some(dirs.data_home.as_ref()?.join("segue").join("evaluations.json"))
}

/// Reads the results; they are empty if there is no file.
pub(crate) fn load_evaluation_results(dirs: &UserDirs) -> anyhow::Result<StoredEvaluationResultList> {
    let Some(path) = results_path(dirs) else { return Ok(StoredEvaluationResultList::default()) };
    let unreadable = || format!("cannot read the evaluation results {}", path.display());
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(StoredEvaluationResultList::default()),
        Err(error) => return Err(error).with_context(unreadable),
        Ok(found) if found.len() > RESULTS_BYTES_MAX => {
            bail!("{} has {} bytes; the limit is {RESULTS_BYTES_MAX}", path.display(), found.len())
        }
        Ok(_) => {}
    }
    let bytes = std::fs::read(&path).with_context(unreadable)?;
    serde_json::from_slice(&bytes).with_context(unreadable)
}

/// Replaces the file.
pub(crate) fn save_evaluation_results(dirs: &UserDirs, results: &StoredEvaluationResultList) -> anyhow::Result<()> {
    let path = results_path(dirs)
        .ok_or_else(|| anyhow!("there is no data folder for evaluation results, because HOME is not set"))?;
    let failed = || format!("cannot write the evaluation results {}", path.display());
    if let Some(folder) = path.parent() {
        crate::private_files::create_private_folder(folder).with_context(failed)?;
    }
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = crate::private_files::create_private_file(&part).and_then(|mut file| {
        file.write_all(&serde_json::to_vec_pretty(results)?)?;
        file.sync_all()?;
        std::fs::rename(&part, &path)
    });
    if written.is_err() {
        // The error may be dropped: the name of the file says that it is incomplete.
        let _ = std::fs::remove_file(&part);
    }
    written.with_context(failed)
}
