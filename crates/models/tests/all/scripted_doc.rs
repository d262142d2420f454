//! Every example in `docs/scripted-model.md` is played and compared with what the page says.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use segue_core::ids::{CallId, TurnId};
use segue_core::prompt::CallFailure;
use segue_models::scripted::{Scenario, ScriptedModel};
use segue_models::{LanguageModel, ReplyChunk};
use tokio::time::{Instant, timeout};

use crate::support::{Asking, ask};

const PAGE: &str = include_str!("../../../../docs/scripted-model.md");

/// The code blocks of a page: the words after the fence, the line, the content.
fn blocks(page: &str) -> Vec<(&str, usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let content = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        blocks.push((kind, at + 1, content.fold(String::new(), |text, line| text + line + "\n")));
    }
    blocks
}

fn read_call(line: &str, number: u32) -> Asking {
    let quote = line.find('"').expect("a call ends with a message in quotes");
    let message = line[quote..].trim_matches('"');
    let mut asking = ask(message);
    asking.call.call = CallId(number);
    for fact in line[..quote].split_whitespace() {
        let (key, value) = fact.split_once('=').expect("key=value");
        match key {
            "role" => asking.call.role = value.into(),
            "phase" => asking.call.phase = Some(value.into()),
            "agent" => asking.call.agent = Some(value.into()),
            "turn" => asking.call.turn = Some(TurnId(value.parse().expect("a turn"))),
            "attempt" => asking.call.attempt = value.parse().expect("an attempt"),
            _ => panic!("the page uses an unknown fact: {key}"),
        }
    }
    asking
}

fn show_failure(failure: &CallFailure) -> String {
    let after = failure.retry_after_ms.map_or_else(String::new, |ms| format!(" (retry after {ms} ms)"));
    format!("  ✗ {}{after}\n", failure.to_string().replace('\n', "\n    "))
}

async fn play(model: &ScriptedModel, asking: &Asking) -> String {
    let start = Instant::now();
    let mut stream = model.stream(asking.request());
    let (mut said, mut ending) = (Vec::new(), String::new());
    let elapsed = loop {
        let Ok(next) = timeout(Duration::from_secs(60), stream.next()).await else {
            ending.push_str("  … hangs\n");
            break Duration::ZERO;
        };
        match next {
            None => break start.elapsed(),
            Some(Ok(ReplyChunk::Text(text))) => said.push(text.replace('\n', "⏎")),
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
            Some(Err(failure)) => ending.push_str(&show_failure(&failure)),
        }
    };
    let said = if said.is_empty() { String::new() } else { format!("  → {}\n", said.join("|")) };
    let elapsed = if elapsed.is_zero() { String::new() } else { format!("  (after {} ms)\n", elapsed.as_millis()) };
    said + &ending + &elapsed
}

#[tokio::test(start_paused = true)]
async fn every_example_on_the_page_runs_as_it_says() {
    let (mut model, mut mistake, mut played, mut refused) = (None, None, 0, 0);
    for (kind, line, content) in blocks(PAGE) {
        match kind {
            "toml" => {
                let read = content.parse::<ScriptedModel>();
                model = Some(read.unwrap_or_else(|error| panic!("the scenario on line {line} is broken: {error}")));
            }
            "calls" => {
                let model = model.take().expect("a scenario stands before its calls");
                let mut found = String::new();
                for (number, call) in (1..).zip(content.lines().filter(|line| !line.starts_with(' '))) {
                    let _ = writeln!(found, "{call}");
                    found.push_str(&play(&model, &read_call(call, number)).await);
                }
                assert_eq!(found, content, "the calls on line {line}");
                played += 1;
            }
            "toml error" => {
                let error = content.parse::<Scenario>().expect_err("the page says that this is a mistake");
                mistake = Some(error.to_string());
            }
            "error" => {
                assert_eq!(mistake.take().as_deref(), Some(content.trim_end()), "the error on line {line}");
                refused += 1;
            }
            "rust" => {}
            _ => panic!("line {line} has a block of an unknown kind: {kind}"),
        }
    }
    assert!(played >= 8 && refused >= 4, "the examples were found: {played} played, {refused} refused");
}
