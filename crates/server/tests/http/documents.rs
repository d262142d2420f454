//! The documents about the API match the code.

use std::collections::BTreeSet;

use expect_test::expect_file;
use segue_server::SERVER_ERROR_CODES;

use crate::test_server::{TestServer, repository};

/// `UPDATE_EXPECT=1 cargo test -p segue-server --test http` regenerates it.
#[test]
fn committed_openapi_document_is_current() {
    let description = serde_json::to_string_pretty(&segue_server::openapi_document()).expect("JSON");
    expect_file!["../../../../docs/openapi.json"].assert_eq(&format!("{description}\n"));
}

#[tokio::test]
async fn openapi_document_and_reference_page_are_served() {
    let server = TestServer::new().await;
    let served = server.get("/openapi.json").await.expect_json(200);
    assert_eq!(served["openapi"], "3.1.0");
    let page = server.get("/docs").await;
    assert!(page.text.contains("/v1/sessions/{session}/messages") && !page.text.contains("<script"));
}

#[test]
fn http_page_mentions_every_route() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    for path in segue_server::openapi_document().paths.paths.keys() {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{')).collect();
        let is_named = |line: &str| {
            let mut rest = line;
            // A route is written in full, or abbreviated like `…/phases/grant`.
            let wanted = if line.contains("`…/") { &parts[parts.len().saturating_sub(2)..] } else { &parts[..] };
            wanted.iter().all(|part| match rest.find(&format!("/{part}")) {
                Some(index) => {
                    rest = &rest[index + part.len() + 1..];
                    true
                }
                None => false,
            })
        };
        assert!(page.lines().any(is_named), "{path} is missing from the page");
    }
}

/// The codes of the engine and of the server.
#[test]
fn errors_page_has_exactly_the_existing_codes() {
    let page = segue_server::ERRORS_MARKDOWN;
    let headings: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let engine = std::fs::read_to_string(repository("crates/engine/src/error.rs")).expect("the engine's errors");
    let (_, codes) = engine.split_once("pub fn code").expect("the codes begin there");
    let (codes, _) = codes.split_once("#[cfg(test)]").expect("and end there");
    let codes = codes.lines().filter_map(|line| line.split_once("=> \"")?.1.split('"').next());
    let codes: BTreeSet<&str> = codes.chain(SERVER_ERROR_CODES.iter().map(|(code, _)| *code)).collect();
    assert_eq!(codes, headings);
}

#[test]
fn http_page_lists_every_server_code_with_its_status() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    for (code, status) in SERVER_ERROR_CODES {
        let is_row = |line: &str| {
            let statuses = line.strip_prefix("| ").and_then(|line| line.split_once(" |"));
            statuses.is_some_and(|(statuses, codes)| {
                statuses.contains(status.as_str()) && codes.contains(&format!("`{code}`"))
            })
        };
        assert!(page.lines().any(is_row), "`{code}` is not listed under {status}");
    }
}

#[tokio::test]
async fn error_type_is_the_path_of_its_page() {
    let server = TestServer::new().await;
    let problem = server.get("/v1/sessions/nobody").await.expect_json(404);
    let page = server.get(problem["type"].as_str().expect("a link")).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("<h1>no-such-session</h1>"), "{}", page.text);
    assert_eq!(server.get("/errors/no-such-code").await.problem_code(404), "not-found");
    assert!(server.get("/errors").await.text.contains("id=\"shutting-down\""));
}
