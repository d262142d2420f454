//! What is written about the API is what the code does.

use std::collections::BTreeSet;

use expect_test::expect_file;
use segue_server::problem::SERVER_ERROR_CODES;

use crate::lab::{Lab, repository};

/// `UPDATE_EXPECT=1 cargo test -p segue-server --test http` writes it anew.
#[test]
fn the_description_that_is_checked_in_is_that_of_the_code() {
    let description = serde_json::to_string_pretty(&segue_server::openapi_document()).expect("JSON");
    expect_file!["../../../../docs/openapi.json"].assert_eq(&format!("{description}\n"));
}

#[tokio::test]
async fn the_description_is_served_for_machines_and_for_reading() {
    let lab = Lab::new().await;
    let served = lab.get("/openapi.json").await.expect(200);
    assert_eq!(served["openapi"], "3.1.0");
    let page = lab.get("/docs").await;
    assert!(page.text.contains("/v1/sessions/{session}/messages") && !page.text.contains("<script"));
}

#[test]
fn every_route_has_its_place_on_the_page() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    for path in segue_server::openapi_document().paths.paths.keys() {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{')).collect();
        let is_named = |line: &str| {
            let mut rest = line;
            // A route is written out, or as the end of another: `…/phases/grant`.
            let wanted = if line.contains("`…/") { &parts[parts.len().saturating_sub(2)..] } else { &parts[..] };
            wanted.iter().all(|part| match rest.find(&format!("/{part}")) {
                Some(place) => {
                    rest = &rest[place + part.len() + 1..];
                    true
                }
                None => false,
            })
        };
        assert!(page.lines().any(is_named), "{path} is not on the page");
    }
}

/// Codes of the engine and of the server, and no others.
#[test]
fn every_error_has_its_page_and_every_page_its_error() {
    let page = segue_server::pages::ERRORS_MARKDOWN;
    let headings: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let engine = std::fs::read_to_string(repository("crates/engine/src/error.rs")).expect("the engine's errors");
    let (_, codes) = engine.split_once("pub fn code").expect("the codes begin there");
    let (codes, _) = codes.split_once("#[cfg(test)]").expect("and end there");
    let codes = codes.lines().filter_map(|line| line.split_once("=> \"")?.1.split('"').next());
    let codes: BTreeSet<&str> = codes.chain(SERVER_ERROR_CODES.iter().map(|(code, _)| *code)).collect();
    assert_eq!(codes, headings);
}

#[test]
fn every_code_stands_in_the_table_of_the_page() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    for (code, status) in SERVER_ERROR_CODES {
        let is_row = |line: &str| {
            let statuses = line.strip_prefix("| ").and_then(|line| line.split_once(" |"));
            statuses.is_some_and(|(statuses, codes)| {
                statuses.contains(status.as_str()) && codes.contains(&format!("`{code}`"))
            })
        };
        assert!(page.lines().any(is_row), "`{code}` does not stand under {status}");
    }
}

#[tokio::test]
async fn an_error_leads_to_its_page() {
    let lab = Lab::new().await;
    let problem = lab.get("/v1/sessions/nobody").await.expect(404);
    let page = lab.get(problem["type"].as_str().expect("a link")).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("<h1>no-such-session</h1>"), "{}", page.text);
    assert_eq!(lab.get("/errors/no-such-code").await.problem(404), "no-such-thing");
    assert!(lab.get("/errors").await.text.contains("id=\"shutting-down\""));
}
