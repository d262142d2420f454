//! What a model was shown in a call, and why: the receipt as a table, the exact prompt, or what changed since the call
//! before.

pub mod find;
pub mod receipt;
mod tools;

use anyhow::bail;
use segue_core::diff::{Line, compare};
use segue_core::ids::SessionId;
use segue_core::prompt::Prompt;
use segue_engine::Engine;
use serde_json::json;

use crate::cli::{Explain, Global};
use crate::print::text::harmless;
use crate::print::{self, Screen};
use crate::{lookup, setup};
use find::{Found, find};

pub async fn run(global: &Global, arguments: Explain) -> anyhow::Result<()> {
    let (session, call) = lookup::call(&arguments.what)?;
    let engine = setup::look_into(global).await?;
    let session = lookup::session(&engine, session).await?;
    let found = find(&engine, &session, call).await?;
    if arguments.bytes {
        return show_bytes(global, &engine.prompt(&session, call).await?);
    }
    if arguments.diff {
        return show_diff(global, &engine, &session, &found).await;
    }
    if global.json {
        return print::json(&json!({
            "session": session,
            "call": call.to_string(),
            "seq": found.opened.0.seq,
            "at": found.opened.0.at,
            "opened": *found.opened.1,
            "thread_opened_by": found.opening.as_ref().map(|(by, _)| by.to_string()),
            "thread_opening": found.opening.as_ref().map(|(_, pieces)| pieces),
            "previous": found.previous.map(|call| call.to_string()),
            "tools": found.tools,
            "tries": found.tries,
            "answered": found.answered,
        }));
    }
    let screen = Screen::here();
    let role = engine.state(&session).await?.0.spec().roles.get(&found.opened.1.role).cloned();
    print::out(&receipt::render(&session, &found, role.as_ref(), screen))
}

fn show_bytes(global: &Global, prompt: &Prompt) -> anyhow::Result<()> {
    if global.json {
        return print::json(prompt);
    }
    let text = prompt.written();
    // A pipe gets the bytes as they are; a terminal must not obey them.
    print::out(&if Screen::here().is_terminal { harmless(&text) } else { text })
}

async fn show_diff(global: &Global, engine: &Engine, session: &SessionId, found: &Found) -> anyhow::Result<()> {
    let opened = &found.opened.1;
    let Some(previous) = found.previous else {
        bail!(
            "{} is the first call of {} in this session, so there is nothing to compare it with",
            opened.call,
            opened.role
        );
    };
    let before = engine.prompt(session, previous).await?.written();
    let after = engine.prompt(session, opened.call).await?.written();
    let lines = compare(&before, &after);
    if global.json {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| match line {
                Line::Same(text) => json!({ "same": text }),
                Line::Gone(text) => json!({ "gone": text }),
                Line::New(text) => json!({ "new": text }),
            })
            .collect();
        return print::json(&json!({ "from": previous.to_string(), "to": opened.call.to_string(), "lines": lines }));
    }
    let paint = Screen::here().paint;
    let mut out = format!("{}\n{}\n", paint.bad(format!("--- {previous}")), paint.good(format!("+++ {}", opened.call)));
    for line in lines {
        out.push_str(&match line {
            Line::Same(text) => format!(" {}", harmless(text)),
            Line::Gone(text) => paint.bad(format!("-{}", harmless(text))),
            Line::New(text) => paint.good(format!("+{}", harmless(text))),
        });
        out.push('\n');
    }
    print::out(&out)
}
