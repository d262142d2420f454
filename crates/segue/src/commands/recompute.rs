//! `segue recompute`: makes a past call again, with another model or other settings, and shows both answers side by
//! side. The conversation does not change.

use anyhow::bail;
use segue_core::decide::RecomputeCallOverrides;
use segue_core::ids::{CallId, SessionId};
use segue_engine::{ComparedCallAnswer, ComparedCallRun, Engine, RecomputedCallComparison};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, RecomputeCallArgs};
use crate::print::side_by_side::render_side_by_side;
use crate::print::text::to_single_line;
use crate::print::{self, CliOutputCapabilities, number_format};
use crate::setup::{EngineStartOptions, start_engine};
use crate::{name_lookup, setting_values};

pub(crate) async fn run_recompute(global: &GlobalArgs, arguments: RecomputeCallArgs) -> anyhow::Result<()> {
    let (session, call) = name_lookup::parse_session_and_call(&arguments.session_and_call)?;
    let running = start_engine(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    running.print_rehearsal_warning();
    let engine = &running.engine;
    let session = name_lookup::resolve_session(engine, session).await?;
    let result = recompute_call(engine, &session, call, arguments.model.as_deref(), &arguments.set).await;
    engine.shutdown().await;
    let result = result?;
    if global.json {
        return print::print_json(&recompute_result_json(&session, &result));
    }
    print::write_stdout(&render_recompute_result(&result, CliOutputCapabilities::for_stdout()))?;
    match &result.rerun.answer {
        Ok(_) => Ok(()),
        Err(reason) => bail!("{} was not answered: {reason}", result.rerun.call),
    }
}

/// Makes the call again, with a model and settings as written on the command line.
pub(crate) async fn recompute_call(
    engine: &Engine,
    session: &SessionId,
    call: CallId,
    model: Option<&str>,
    set: &[String],
) -> anyhow::Result<RecomputedCallComparison> {
    let (flow, _) = engine.load_session(session).await?;
    let options = RecomputeCallOverrides {
        model: model.map(Into::into),
        settings: setting_values::parse_settings(flow.spec(), set)?,
    };
    Ok(engine.recompute_call(session, call, &options).await?)
}

/// Renders both answers side by side.
pub(crate) fn render_recompute_result(result: &RecomputedCallComparison, screen: CliOutputCapabilities) -> String {
    let RecomputedCallComparison { role, original, rerun, changed_fragments } = result;
    let fragments: Vec<&str> = changed_fragments.iter().map(|name| name.as_str()).collect();
    let changed = match fragments.as_slice() {
        [] => String::new(),
        names => format!(" · changed fragments: {}", names.join(", ")),
    };
    let heading = |run: &ComparedCallRun, label: &str| {
        format!("{label}: {} {role} on {}{}", run.call, run.model, format_answer_usage(run))
    };
    let (left, right) = (heading(original, "original"), heading(rerun, "recomputed"));
    let columns = render_side_by_side((&left, &answer_text(original)), (&right, &answer_text(rerun)), screen.width);
    let footer = format!("the conversation is unchanged{changed} · `segue explain {}` shows the prompt", rerun.call);
    format!("{columns}\n{}\n", screen.paint.dim(to_single_line(&footer)))
}

fn format_answer_usage(run: &ComparedCallRun) -> String {
    let Ok(ComparedCallAnswer { usage, cost_microusd, duration_ms, .. }) = &run.answer else { return String::new() };
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let cost = number_format::format_cost(*cost_microusd);
    format!(
        "\n{} in, {} out · {cost} · {}",
        count(usage.input_tokens),
        count(usage.output_tokens),
        number_format::format_duration(*duration_ms)
    )
}

/// Returns the flow's summary of an answer, or its text if the flow has none.
fn answer_text(run: &ComparedCallRun) -> String {
    match &run.answer {
        Ok(answer) => answer.answer_summary.clone().unwrap_or_else(|| answer.text.clone()),
        Err(reason) => format!("({reason})"),
    }
}

fn recompute_result_json(session: &SessionId, result: &RecomputedCallComparison) -> Value {
    let run_json = |run: &ComparedCallRun| {
        let answer = run.answer.as_ref().ok();
        json!({
            "call": run.call.to_string(),
            "model": run.model,
            "answer": answer.map(|answer| &answer.text),
            "answer_summary": answer.and_then(|answer| answer.answer_summary.as_ref()),
            "failed": run.answer.as_ref().err(),
            "tokens_in": answer.map(|answer| answer.usage.input_tokens),
            "tokens_out": answer.map(|answer| answer.usage.output_tokens),
            "cost_microusd": answer.and_then(|answer| answer.cost_microusd),
            "duration_ms": answer.map(|answer| answer.duration_ms),
        })
    };
    json!({
        "session": session,
        "role": result.role,
        "original": run_json(&result.original),
        "recomputed": run_json(&result.rerun),
        "changed_fragments": result.changed_fragments,
    })
}
