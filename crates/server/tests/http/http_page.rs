//! Runs the examples of `docs/http.md` against a server. Strings must be equal unless the example contains an ellipsis. Numbers only need
//! to be numbers, and `null` or an empty list matches anything of its kind.

use reqwest::Method;
use serde_json::Value;

use crate::test_server::{TestServer, repository, send};

#[tokio::test]
async fn every_example_of_the_http_page_is_true() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    let server = TestServer::with_options(crate::test_server::DEFAULT_SCENARIO, |options| {
        options.webhook_secret = Some(segue_server::WebhookMasterSecret("any text will do".into()));
    })
    .await;
    let (mut request, mut checked) = (None, 0);
    for block in blocks(&page) {
        match block {
            Block::Request { method, path, body } => {
                assert!(request.is_none(), "the request before `{path}` has no answer");
                request = Some((method, path, body));
            }
            Block::HttpResponse { status, example } => {
                let (method, path, body) = request.take().expect("an answer follows its request");
                let mut ask = server.request(method.clone(), &path);
                if let Some(body) = body {
                    ask = ask.header("content-type", "application/json").body(body);
                }
                let found = send(ask).await;
                assert_eq!(found.status.as_u16(), status, "{method} {path}: {}", found.text);
                let example: Value =
                    serde_json::from_str(&example).unwrap_or_else(|error| panic!("{error}: {example}"));
                if let Err(mismatch) = check_matches(&example, &found.json(), "") {
                    panic!(
                        "{method} {path}: {mismatch}\n{}",
                        serde_json::to_string_pretty(&found.json()).expect("JSON")
                    );
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} examples");
}

enum Block {
    Request { method: Method, path: String, body: Option<String> },
    HttpResponse { status: u16, example: String },
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if info == "http" {
            let (method, path) = text[0].split_once(' ').expect("a method and a path");
            let body = text[1..].join("\n");
            let method = method.parse().expect("a method");
            blocks.push(Block::Request {
                method,
                path: path.to_owned(),
                body: Some(body).filter(|body| !body.is_empty()),
            });
        } else if let Some(status) = info.strip_prefix("json ") {
            blocks.push(Block::HttpResponse { status: status.parse().expect("a status"), example: text.join("\n") });
        }
    }
    blocks
}

fn check_matches(example: &Value, found: &Value, path: &str) -> Result<(), String> {
    match (example, found) {
        (Value::Null, _) => Ok(()),
        (Value::String(example), Value::String(found)) if example.contains('…') || example == found => Ok(()),
        (Value::Number(_), Value::Number(_)) => Ok(()),
        (Value::Bool(example), Value::Bool(found)) if example == found => Ok(()),
        (Value::Array(example), Value::Array(found)) => {
            if found.len() < example.len() {
                return Err(format!("`{path}` has {} items, and the example {}", found.len(), example.len()));
            }
            let mut items = example.iter().zip(found).enumerate();
            items.try_for_each(|(index, (example, found))| check_matches(example, found, &format!("{path}[{index}]")))
        }
        (Value::Object(example), Value::Object(found)) => {
            for (key, example) in example {
                let path = format!("{path}.{key}");
                // A key with an ellipsis matches the first key.
                let value = if key.contains('…') { found.values().next() } else { found.get(key) };
                check_matches(example, value.ok_or_else(|| format!("`{path}` is not there"))?, &path)?;
            }
            Ok(())
        }
        _ => Err(format!("`{path}` is {found}, and the example says {example}")),
    }
}
