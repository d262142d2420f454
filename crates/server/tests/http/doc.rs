//! The page about HTTP is played as it stands: every request is made, and every example must be true. Words must be the same, unless they hold an
//! ellipsis; numbers and what is empty or `null` stand for any of their kind.

use reqwest::Method;
use serde_json::Value;

use crate::lab::{Lab, answer, repository};

#[tokio::test]
async fn every_example_of_the_page_is_true() {
    let page = std::fs::read_to_string(repository("docs/http.md")).expect("the page");
    let lab = Lab::with(crate::lab::TOUR, |options| {
        options.webhook_secret = Some(segue_server::options::WebhookSecret("any text will do".into()));
    })
    .await;
    let (mut request, mut played) = (None, 0);
    for block in blocks(&page) {
        match block {
            Block::Request { method, path, body } => {
                assert!(request.is_none(), "the request before `{path}` has no answer");
                request = Some((method, path, body));
            }
            Block::Answer { status, example } => {
                let (method, path, body) = request.take().expect("an answer follows its request");
                let mut ask = lab.ask(method.clone(), &path);
                if let Some(body) = body {
                    ask = ask.header("content-type", "application/json").body(body);
                }
                let found = answer(ask).await;
                assert_eq!(found.status.as_u16(), status, "{method} {path}: {}", found.text);
                let example: Value =
                    serde_json::from_str(&example).unwrap_or_else(|error| panic!("{error}: {example}"));
                if let Err(why) = fits(&example, &found.json(), "") {
                    panic!("{method} {path}: {why}\n{}", serde_json::to_string_pretty(&found.json()).expect("JSON"));
                }
                played += 1;
            }
        }
    }
    assert!(played > 30, "only {played} examples");
}

enum Block {
    Request { method: Method, path: String, body: Option<String> },
    Answer { status: u16, example: String },
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
            blocks.push(Block::Answer { status: status.parse().expect("a status"), example: text.join("\n") });
        }
    }
    blocks
}

fn fits(example: &Value, found: &Value, path: &str) -> Result<(), String> {
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
            items.try_for_each(|(place, (example, found))| fits(example, found, &format!("{path}[{place}]")))
        }
        (Value::Object(example), Value::Object(found)) => {
            for (key, example) in example {
                let path = format!("{path}.{key}");
                // Names that are made stand for any name.
                let value = if key.contains('…') { found.values().next() } else { found.get(key) };
                fits(example, value.ok_or_else(|| format!("`{path}` is not there"))?, &path)?;
            }
            Ok(())
        }
        _ => Err(format!("`{path}` is {found}, and the example says {example}")),
    }
}
