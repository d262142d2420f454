//! Listing and searching the files of a workspace.

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, SearcherBuilder};
use segue_core::tool::ToolResult;
use segue_flows::workspace_tools::{
    FileSearchMatch, ListFilesArguments, ListFilesResult, ListedWorkspaceFile, SearchFilesArguments, SearchFilesResult,
};

use crate::confined_folder::{FileMode, read_regular_file};
use crate::file_tools::result_with_value;
use crate::limits::{
    FILE_BYTES_MAX, LISTED_FILES_MAX, SEARCH_LINE_BYTES_MAX, SEARCH_MATCHES_MAX, SEARCH_PATTERN_BYTES_MAX,
    SEARCH_REGEX_BYTES_MAX,
};
use crate::scan::{FoundFile, find_files};
use crate::workspace::OpenWorkspace;
use crate::workspace_path::WorkspacePath;

pub(crate) fn list_files(workspace: &OpenWorkspace, arguments: &ListFilesArguments) -> Result<ToolResult, String> {
    let filter = FileSearchFilter::new(arguments.folder.as_deref(), arguments.glob.as_deref())?;
    let found: Vec<FoundFile> = find_files(&workspace.root)?.into_iter().filter(|file| filter.accepts(file)).collect();
    let listing = file_listing(&found);
    let mut text: String = listing.files.iter().map(|file| format!("{}\t{} bytes\n", file.path, file.bytes)).collect();
    match found.len() {
        0 => text.push_str("no files\n"),
        all if all > listing.files.len() => {
            text.push_str(&format!("… and {} more; use `folder` or `glob`\n", all - listing.files.len()));
        }
        _ => {}
    }
    Ok(result_with_value(text, &listing))
}

/// Returns the first files of a list and the number of all.
pub(crate) fn file_listing(found: &[FoundFile]) -> ListFilesResult {
    let files = found.iter().take(LISTED_FILES_MAX);
    ListFilesResult {
        files: files.map(|file| ListedWorkspaceFile { path: file.path.clone(), bytes: file.bytes }).collect(),
        files_total: found.len() as u64,
    }
}

pub(crate) fn search_files(workspace: &OpenWorkspace, arguments: &SearchFilesArguments) -> Result<ToolResult, String> {
    let SearchFilesArguments { pattern, literal, ignore_case, folder, glob } = arguments;
    if pattern.is_empty() || pattern.len() > SEARCH_PATTERN_BYTES_MAX {
        return Err(format!("the pattern must have 1 to {SEARCH_PATTERN_BYTES_MAX} bytes"));
    }
    let filter = FileSearchFilter::new(folder.as_deref(), glob.as_deref())?;
    let matcher = RegexMatcherBuilder::new()
        .fixed_strings(*literal)
        .case_insensitive(*ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(SEARCH_REGEX_BYTES_MAX)
        .build(pattern)
        .map_err(|error| {
            format!(
                "the pattern is not a valid regular expression: {error}; set `literal` to search for the exact text"
            )
        })?;
    let mut searcher = SearcherBuilder::new().binary_detection(BinaryDetection::quit(0)).line_number(true).build();
    let mut result = SearchFilesResult::default();
    for file in find_files(&workspace.root)?.into_iter().filter(|file| filter.accepts(file)) {
        if file.mode == FileMode::Link {
            continue;
        }
        // A file that is too large, unreadable or gone is not searched.
        let Ok(content) = read_regular_file(workspace.root.dir(), &file.path, FILE_BYTES_MAX) else { continue };
        let sink = Lossy(|line, text| {
            if result.matches.len() >= SEARCH_MATCHES_MAX {
                result.is_incomplete = true;
                return Ok(false);
            }
            let text = text.trim_end();
            let text = text[..text.floor_char_boundary(SEARCH_LINE_BYTES_MAX)].to_owned();
            result.matches.push(FileSearchMatch { path: file.path.clone(), line, text });
            Ok(true)
        });
        searcher.search_slice(&matcher, &content, sink).map_err(|error| format!("the search failed: {error}"))?;
        if result.is_incomplete {
            break;
        }
    }
    let mut text: String =
        result.matches.iter().map(|found| format!("{}:{}: {}\n", found.path, found.line, found.text)).collect();
    match result.matches.len() {
        0 => text.push_str("no matches\n"),
        _ if result.is_incomplete => {
            text.push_str(&format!(
                "… stopped after {SEARCH_MATCHES_MAX} lines; use `folder`, `glob` or a longer pattern\n"
            ));
        }
        _ => {}
    }
    Ok(result_with_value(text, &result))
}

/// Which files a list or a search includes.
struct FileSearchFilter {
    /// A path that ends with `/`.
    folder: Option<String>,
    glob: Option<GlobMatcher>,
}

impl FileSearchFilter {
    fn new(folder: Option<&str>, glob: Option<&str>) -> Result<Self, String> {
        let folder = WorkspacePath::parse_folder(folder)?.map(|folder| format!("{folder}/"));
        let glob = glob.filter(|glob| !glob.is_empty()).map(|glob| {
            // A pattern without a folder is for files in all folders, as in `.gitignore`.
            let pattern =
                if glob.contains('/') { glob.trim_start_matches("./").to_owned() } else { format!("**/{glob}") };
            let built = GlobBuilder::new(&pattern).literal_separator(true).build();
            built.map(|glob| glob.compile_matcher()).map_err(|error| format!("`glob` is not a valid pattern: {error}"))
        });
        Ok(Self { folder, glob: glob.transpose()? })
    }

    fn accepts(&self, file: &FoundFile) -> bool {
        self.folder.as_ref().is_none_or(|folder| file.path.starts_with(folder.as_str()))
            && self.glob.as_ref().is_none_or(|glob| glob.is_match(&file.path))
    }
}
