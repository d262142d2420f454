//! One past call once more: on another model, or with other settings. The session does not move; both answers are shown side
//! by side.

use anyhow::bail;
use segue_core::decide::Change;
use segue_core::ids::{CallId, SessionId};
use segue_engine::{Engine, Made, Recomputed, Version};
use serde_json::{Value, json};

use crate::cli::{Global, Recompute};
use crate::print::columns::side_by_side;
use crate::print::text::one_line;
use crate::print::{self, Screen, amount, error_paint};
use crate::setup::{Start, start_with};
use crate::{lookup, settings};

pub async fn run(global: &Global, arguments: Recompute) -> anyhow::Result<()> {
    let (session, call) = lookup::call(&arguments.what)?;
    let running = start_with(global, Start::to_act(arguments.script.as_deref())).await?;
    if running.rehearsal {
        print::note(&error_paint().warn(crate::commands::REHEARSAL_NOTE));
    }
    let engine = &running.engine;
    let session = lookup::session(engine, session).await?;
    let both = once_more(engine, &session, call, arguments.model.as_deref(), &arguments.set).await;
    engine.shutdown().await;
    let both = both?;
    if global.json {
        return print::json(&as_json(&session, &both));
    }
    print::out(&page(&both, Screen::here()))?;
    match &both.now.answer {
        Ok(_) => Ok(()),
        Err(why) => bail!("{} brought no answer: {why}", both.now.call),
    }
}

/// Makes the call once more, with what was asked for in words.
pub async fn once_more(
    engine: &Engine,
    session: &SessionId,
    call: CallId,
    model: Option<&str>,
    set: &[String],
) -> anyhow::Result<Recomputed> {
    let (rules, _) = engine.state(session).await?;
    let change = Change { model: model.map(Into::into), settings: settings::given(rules.spec(), set)? };
    Ok(engine.recompute(session, call, &change).await?)
}

/// Both answers, for people.
pub fn page(both: &Recomputed, screen: Screen) -> String {
    let Recomputed { role, then, now, changed } = both;
    let fragments: Vec<&str> = changed.iter().map(|name| name.as_str()).collect();
    let differs = match fragments.as_slice() {
        [] => String::new(),
        several => format!(" · its prompt differs in: {}", several.join(", ")),
    };
    let heading = |made: &Made, when: &str| format!("{when}: {} {role} on {}{}", made.call, made.model, spent(made));
    let (before, after) = (heading(then, "then"), heading(now, "now"));
    let columns = side_by_side((&before, &told(then)), (&after, &told(now)), screen.width);
    let note = format!("the conversation did not move{differs} · `segue explain {}` shows the prompt", now.call);
    format!("{columns}\n{}\n", screen.paint.dim(one_line(&note)))
}

fn spent(made: &Made) -> String {
    let Ok(Version { usage, cost_microusd, ms, .. }) = &made.answer else { return String::new() };
    let count = |tokens: u32| amount::count(u64::from(tokens));
    let cost = amount::cost(*cost_microusd);
    format!("\n{} in, {} out · {cost} · {}", count(usage.input), count(usage.output), amount::duration(*ms))
}

/// What an answer comes to, or what it says where that is for people anyway.
fn told(made: &Made) -> String {
    match &made.answer {
        Ok(version) => version.gist.clone().unwrap_or_else(|| version.text.clone()),
        Err(why) => format!("({why})"),
    }
}

fn as_json(session: &SessionId, both: &Recomputed) -> Value {
    let made = |made: &Made| {
        let version = made.answer.as_ref().ok();
        json!({
            "call": made.call.to_string(),
            "model": made.model,
            "answer": version.map(|version| &version.text),
            "gist": version.and_then(|version| version.gist.as_ref()),
            "failed": made.answer.as_ref().err(),
            "tokens_in": version.map(|version| version.usage.input),
            "tokens_out": version.map(|version| version.usage.output),
            "cost_microusd": version.and_then(|version| version.cost_microusd),
            "ms": version.map(|version| version.ms),
        })
    };
    json!({
        "session": session,
        "role": both.role,
        "then": made(&both.then),
        "now": made(&both.now),
        "changed": both.changed,
    })
}
