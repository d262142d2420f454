//! One past call once more: on another model, or with other settings. The session does not move; both answers are shown side
//! by side.

use anyhow::bail;
use segue_core::decide::RecomputeOptions;
use segue_core::ids::{CallId, SessionId};
use segue_engine::{CallAnswer, CallRun, Engine, RecomputeResult};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, RecomputeArgs};
use crate::print::side_by_side::render_side_by_side;
use crate::print::text::to_single_line;
use crate::print::{self, RenderOptions, number_format, stderr_paint};
use crate::setup::{EngineStartOptions, start_engine};
use crate::{name_lookup, setting_values};

pub async fn run_recompute(global: &GlobalArgs, arguments: RecomputeArgs) -> anyhow::Result<()> {
    let (session, call) = name_lookup::parse_session_and_call(&arguments.session_and_call)?;
    let running = start_engine(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    if running.uses_rehearsal_model {
        print::write_stderr_line(&stderr_paint().warning(crate::commands::REHEARSAL_WARNING));
    }
    let engine = &running.engine;
    let session = name_lookup::resolve_session(engine, session).await?;
    let both = recompute_call(engine, &session, call, arguments.model.as_deref(), &arguments.set).await;
    engine.shutdown().await;
    let both = both?;
    if global.json {
        return print::print_json(&recompute_result_json(&session, &both));
    }
    print::write_stdout(&render_recompute_result(&both, RenderOptions::for_stdout()))?;
    match &both.rerun.answer {
        Ok(_) => Ok(()),
        Err(why) => bail!("{} brought no answer: {why}", both.rerun.call),
    }
}

/// Makes the call once more, with what was asked for in words.
pub async fn recompute_call(
    engine: &Engine,
    session: &SessionId,
    call: CallId,
    model: Option<&str>,
    set: &[String],
) -> anyhow::Result<RecomputeResult> {
    let (rules, _) = engine.load_session(session).await?;
    let change =
        RecomputeOptions { model: model.map(Into::into), settings: setting_values::parse_settings(rules.spec(), set)? };
    Ok(engine.recompute_call(session, call, &change).await?)
}

/// Both answers, for people.
pub fn render_recompute_result(both: &RecomputeResult, screen: RenderOptions) -> String {
    let RecomputeResult { role, original: then, rerun: now, changed_fragments: changed } = both;
    let fragments: Vec<&str> = changed.iter().map(|name| name.as_str()).collect();
    let differs = match fragments.as_slice() {
        [] => String::new(),
        several => format!(" · its prompt differs in: {}", several.join(", ")),
    };
    let heading = |made: &CallRun, when: &str| {
        format!("{when}: {} {role} on {}{}", made.call, made.model, format_answer_usage(made))
    };
    let (before, after) = (heading(then, "then"), heading(now, "now"));
    let columns = render_side_by_side((&before, &answer_text(then)), (&after, &answer_text(now)), screen.width);
    let note = format!("the conversation did not move{differs} · `segue explain {}` shows the prompt", now.call);
    format!("{columns}\n{}\n", screen.paint.dim(to_single_line(&note)))
}

fn format_answer_usage(made: &CallRun) -> String {
    let Ok(CallAnswer { usage, cost_microusd, duration_ms: ms, .. }) = &made.answer else { return String::new() };
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let cost = number_format::format_cost(*cost_microusd);
    format!(
        "\n{} in, {} out · {cost} · {}",
        count(usage.input_tokens),
        count(usage.output_tokens),
        number_format::format_duration(*ms)
    )
}

/// What an answer comes to, or what it says where that is for people anyway.
fn answer_text(made: &CallRun) -> String {
    match &made.answer {
        Ok(version) => version.answer_summary.clone().unwrap_or_else(|| version.text.clone()),
        Err(why) => format!("({why})"),
    }
}

fn recompute_result_json(session: &SessionId, both: &RecomputeResult) -> Value {
    let made = |made: &CallRun| {
        let version = made.answer.as_ref().ok();
        json!({
            "call": made.call.to_string(),
            "model": made.model,
            "answer": version.map(|version| &version.text),
            "gist": version.and_then(|version| version.answer_summary.as_ref()),
            "failed": made.answer.as_ref().err(),
            "tokens_in": version.map(|version| version.usage.input_tokens),
            "tokens_out": version.map(|version| version.usage.output_tokens),
            "cost_microusd": version.and_then(|version| version.cost_microusd),
            "ms": version.map(|version| version.duration_ms),
        })
    };
    json!({
        "session": session,
        "role": both.role,
        "then": made(&both.original),
        "now": made(&both.rerun),
        "changed": both.changed_fragments,
    })
}
