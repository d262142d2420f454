//! Plays every example in `docs/scripted-model.md` and compares the result with the page.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use segue_core::ids::{CallId, TurnId};
use segue_core::prompt::CallFailure;
use segue_models::scripted::{Scenario, ScriptedModel};
use segue_models::{LanguageModel, ReplyChunk};
use tokio::time::{Instant, timeout};

use crate::support::{TestRequest, ask};

const PAGE: &str = include_str!("../../../../docs/scripted-model.md");

/// Returns the code blocks of a page: info string, line number and content.
fn code_blocks(page: &str) -> Vec<(&str, usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let content = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        blocks.push((kind, index + 1, content.fold(String::new(), |text, line| text + line + "\n")));
    }
    blocks
}

fn parse_call(line: &str, number: u32) -> TestRequest {
    let quote = line.find('"').expect("a call ends with a message in quotes");
    let message = line[quote..].trim_matches('"');
    let mut request = ask(message);
    request.call.call = CallId(number);
    for condition in line[..quote].split_whitespace() {
        let (key, value) = condition.split_once('=').expect("key=value");
        match key {
            "role" => request.call.role = value.into(),
            "phase" => request.call.phase = Some(value.into()),
            "agent" => request.call.agent = Some(value.into()),
            "turn" => request.call.turn = Some(TurnId(value.parse().expect("a turn"))),
            "attempt" => request.call.attempt = value.parse().expect("an attempt"),
            _ => panic!("the page uses an unknown key: {key}"),
        }
    }
    request
}

fn format_failure(failure: &CallFailure) -> String {
    let after = failure.retry_after_ms.map_or_else(String::new, |ms| format!(" (retry after {ms} ms)"));
    format!("  ✗ {}{after}\n", failure.to_string().replace('\n', "\n    "))
}

async fn play(model: &ScriptedModel, request: &TestRequest) -> String {
    let start = Instant::now();
    let mut stream = model.stream(request.model_request());
    let (mut chunks, mut ending) = (Vec::new(), String::new());
    let elapsed = loop {
        let Ok(next) = timeout(Duration::from_secs(60), stream.next()).await else {
            ending.push_str("  … hangs\n");
            break Duration::ZERO;
        };
        match next {
            None => break start.elapsed(),
            Some(Ok(ReplyChunk::Text(text))) => chunks.push(text.replace('\n', "⏎")),
            Some(Ok(ReplyChunk::Reasoning(_))) => {}
            Some(Ok(ReplyChunk::ToolCall(call))) => {
                let _ = writeln!(ending, "  ⚙ {} {}", call.name, call.arguments);
            }
            Some(Ok(ReplyChunk::Finish(finish))) => {
                if let Some(usage) = finish.usage {
                    let _ = writeln!(
                        ending,
                        "  ({} in, {} of them cached, {} out)",
                        usage.input_tokens, usage.cached_tokens, usage.output_tokens
                    );
                }
            }
            Some(Ok(ReplyChunk::VendorState(_) | ReplyChunk::KeepAlive)) => {}
            Some(Err(failure)) => ending.push_str(&format_failure(&failure)),
        }
    };
    let chunks = if chunks.is_empty() { String::new() } else { format!("  → {}\n", chunks.join("|")) };
    let elapsed = if elapsed.is_zero() { String::new() } else { format!("  (after {} ms)\n", elapsed.as_millis()) };
    chunks + &ending + &elapsed
}

#[tokio::test(start_paused = true)]
async fn every_example_on_the_page_runs_as_shown() {
    let (mut model, mut parse_error, mut play_count, mut error_count) = (None, None, 0, 0);
    for (kind, line, content) in code_blocks(PAGE) {
        match kind {
            "toml" => {
                let read = content.parse::<ScriptedModel>();
                model = Some(read.unwrap_or_else(|error| panic!("the scenario on line {line} is broken: {error}")));
            }
            "calls" => {
                let model = model.take().expect("a scenario comes before its calls");
                let mut found = String::new();
                for (number, call) in (1..).zip(content.lines().filter(|line| !line.starts_with(' '))) {
                    let _ = writeln!(found, "{call}");
                    found.push_str(&play(&model, &parse_call(call, number)).await);
                }
                assert_eq!(found, content, "the calls on line {line}");
                play_count += 1;
            }
            "toml error" => {
                let error = content.parse::<Scenario>().expect_err("the page says that this is an error");
                parse_error = Some(error.to_string());
            }
            "error" => {
                assert_eq!(parse_error.take().as_deref(), Some(content.trim_end()), "the error on line {line}");
                error_count += 1;
            }
            "rust" => {}
            _ => panic!("line {line} has a block of an unknown kind: {kind}"),
        }
    }
    assert!(play_count >= 8 && error_count >= 4, "the examples were found: {play_count} played, {error_count} errors");
}
