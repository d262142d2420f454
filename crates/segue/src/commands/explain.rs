//! `segue explain`: the receipt of a call, its exact prompt, or the difference from the previous prompt of its role.

pub(crate) mod call_history;
pub(crate) mod receipt;
mod tool_results;

use anyhow::bail;
use segue_core::ids::SessionId;
use segue_core::prompt::Prompt;
use segue_engine::{Engine, TextDiffLine, diff_lines};
use serde_json::json;

use crate::cli::{ExplainCallArgs, GlobalArgs};
use crate::print::text::sanitize_for_terminal;
use crate::print::{self, CliOutputCapabilities};
use crate::{name_lookup, setup};
use call_history::{ExplainedCall, load_call_history};

pub(crate) async fn run_explain(global: &GlobalArgs, arguments: ExplainCallArgs) -> anyhow::Result<()> {
    let (session, call) = name_lookup::parse_session_and_call(&arguments.session_and_call)?;
    let engine = setup::require_read_only_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, session).await?;
    let history = load_call_history(&engine, &session, call).await?;
    if arguments.prompt {
        return print_prompt(global, &engine.rebuild_prompt(&session, call).await?);
    }
    if arguments.diff {
        return print_prompt_diff(global, &engine, &session, &history).await;
    }
    if global.json {
        return print::print_json(&json!({
            "session": session,
            "call": call.to_string(),
            "seq": history.opened.0.seq,
            "at": history.opened.0.at,
            "opened": *history.opened.1,
            "thread_opened_by": history.thread_opening.as_ref().map(|(call, _)| call.to_string()),
            "thread_opening": history.thread_opening.as_ref().map(|(_, fragments)| fragments),
            "previous_call": history.previous_call.map(|call| call.to_string()),
            "tool_results": history.tool_results,
            "failed_attempts": history.failed_attempts,
            "answered": history.answered,
        }));
    }
    let screen = CliOutputCapabilities::for_stdout();
    let role = engine.load_session(&session).await?.0.spec().roles.get(&history.opened.1.role).cloned();
    print::write_stdout(&receipt::render_receipt(&session, &history, role.as_ref(), screen))
}

fn print_prompt(global: &GlobalArgs, prompt: &Prompt) -> anyhow::Result<()> {
    if global.json {
        return print::print_json(prompt);
    }
    let text = prompt.to_string();
    // A pipe gets the exact bytes; a terminal must not interpret control characters in them.
    print::write_stdout(&if CliOutputCapabilities::for_stdout().is_terminal {
        sanitize_for_terminal(&text)
    } else {
        text
    })
}

async fn print_prompt_diff(
    global: &GlobalArgs,
    engine: &Engine,
    session: &SessionId,
    history: &ExplainedCall,
) -> anyhow::Result<()> {
    let opened = &history.opened.1;
    let Some(previous) = history.previous_call else {
        bail!(
            "{} is the first call of {} in this session, so there is nothing to compare it with",
            opened.call,
            opened.role
        );
    };
    let before = engine.rebuild_prompt(session, previous).await?.to_string();
    let after = engine.rebuild_prompt(session, opened.call).await?.to_string();
    let lines = diff_lines(&before, &after);
    if global.json {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| match line {
                TextDiffLine::Unchanged(text) => json!({ "unchanged": text }),
                TextDiffLine::Removed(text) => json!({ "removed": text }),
                TextDiffLine::Added(text) => json!({ "added": text }),
            })
            .collect();
        return print::print_json(
            &json!({ "from": previous.to_string(), "to": opened.call.to_string(), "lines": lines }),
        );
    }
    let paint = CliOutputCapabilities::for_stdout().paint;
    let mut out =
        format!("{}\n{}\n", paint.error(format!("--- {previous}")), paint.success(format!("+++ {}", opened.call)));
    for line in lines {
        out.push_str(&match line {
            TextDiffLine::Unchanged(text) => format!(" {}", sanitize_for_terminal(text)),
            TextDiffLine::Removed(text) => paint.error(format!("-{}", sanitize_for_terminal(text))),
            TextDiffLine::Added(text) => paint.success(format!("+{}", sanitize_for_terminal(text))),
        });
        out.push('\n');
    }
    print::write_stdout(&out)
}
