//! What each role is shown: every fragment of every recipe, from the state, with where it comes from and why it is in.

use segue_core::body::Text;
use segue_core::context::{COMPACTION, Rendered, Source};
use segue_core::flow::settings::SettingSpec;
use segue_core::flow::{Asking, View};
use segue_core::ids::MessageId;
use segue_core::signal::fence;
use serde::Serialize;
use serde_json::json;

use super::analysis::analyse;
use super::facts::{Known, Purpose, Task};
use super::settings::Settings;
use super::spec::{
    ASK_BATCH, ASK_INTENT, ASK_PRESENT, CONCIERGE, EXECUTOR, EXPERT, EXPLORER, FINDINGS, MAPPER, MESSAGE, NOTICES,
    PLAN, STARTER, WORKFLOW,
};
use super::state::Memory;
use super::turn::{phase, shape};
use super::{brief, documents, map, stance, words_of};
use crate::chat;
use crate::limits::{KNOWN_TOKENS_MAX, QUESTION_CHARS_MAX, SOURCES_TOKENS_MAX};
use crate::template::fill;

type Sight<'a> = View<'a, Memory>;

/// The text of a fragment.
pub(super) fn rendered(view: &Sight<'_>, asking: &Asking<'_>, name: &str, specs: &[SettingSpec]) -> Rendered {
    let role = asking.wish.role.as_str();
    match (name, role) {
        (COMPACTION, CONCIERGE) => standing(view, asking),
        ("summarise" | "folded" | COMPACTION, _) => chat::shortening(asking, name),
        ("instruction", EXPERT) => {
            template("expert", include_str!("../../prompts/concierge/expert.md"), &(), "who answers, and how")
        }
        ("instruction", MAPPER) => mapper(),
        ("sources", _) => sources(view),
        ("repair", MAPPER) => mapper_repair(view, asking),
        ("repair", _) => repair(asking),
        ("task", _) => task(view),
        (MESSAGE, _) => message(view, asking),
        (WORKFLOW, _) => workflow(view, asking),
        (FINDINGS, _) => findings(view),
        (NOTICES, _) => notices(view),
        ("guidance", _) => guidance(view, specs),
        _ => opening(view, name),
    }
}

/// What the concierge's thread opens with, by phase.
fn opening(view: &Sight<'_>, name: &str) -> Rendered {
    let phase = phase(view);
    let under_way = view.state.workflow.is_some();
    match (name, phase.as_str()) {
        ("identity", _) => template("identity", include_str!("../../prompts/concierge/identity.md"), &(), "who speaks"),
        ("never", _) => template("never", include_str!("../../prompts/concierge/never.md"), &(), "what is never said"),
        ("part", STARTER) => {
            template("starter", include_str!("../../prompts/concierge/starter.md"), &(), "the starter's part")
        }
        ("part", EXPLORER) => {
            template("explorer", include_str!("../../prompts/concierge/explorer.md"), &(), "the explorer's part")
        }
        ("part", _) if under_way => template(
            "continued",
            include_str!("../../prompts/concierge/continued.md"),
            &(),
            "a plan is under way already",
        ),
        ("part", _) => {
            template("executor", include_str!("../../prompts/concierge/executor.md"), &(), "the executor's part")
        }
        ("capabilities", EXECUTOR) => {
            let text = include_str!("../../prompts/concierge/carrying_out.md");
            template("carrying_out", text, &(), "what can be asked for while a plan is carried out")
        }
        ("capabilities", EXPLORER) => out("how to ask for a plan stands in the explorer's part"),
        ("capabilities", _) => out("the starter can ask for nothing"),
        ("handover", _) => handover(view, &phase),
        ("brief", STARTER) => known_section(view, view.state.opening.as_ref()),
        ("brief", EXECUTOR) if !under_way => known_section(view, view.state.plan.as_ref().map(|plan| &plan.known)),
        ("brief", EXECUTOR) => out("the plan is made"),
        ("brief", _) => out("the handover says what was learnt"),
        (PLAN, _) => match &view.state.workflow {
            Some(workflow) => {
                let text = include_str!("../../prompts/concierge/workflow_section.md");
                from_state(fill(text, &json!({"workflow": workflow.rendered()})), "a plan is under way")
            }
            None => out("no plan is under way"),
        },
        _ => out("there is nothing of that name"),
    }
}

fn out(why: &str) -> Rendered {
    Rendered::Out(why.to_owned())
}

fn template(name: &str, text: &'static str, arguments: &impl Serialize, why: &str) -> Rendered {
    let source = Source::Template(format!("concierge/{name}"));
    Rendered::New { text: fill(text, arguments), source, why: why.to_owned() }
}

fn from_state(text: String, why: &str) -> Rendered {
    Rendered::New { text, source: Source::State, why: why.to_owned() }
}

fn mapper() -> Rendered {
    let arguments = json!({"format": map::FORMAT});
    template("mapper", include_str!("../../prompts/concierge/mapper.md"), &arguments, "how to map")
}

fn sources(view: &Sight<'_>) -> Rendered {
    let Some(batch) = &view.state.batch else { return out("nobody was asked") };
    let question = match &batch.begun.task {
        Some(task) => task_text(task, batch.begun.purpose),
        None => joined(view, &words_of::to_answer(view, &batch.begun.asked)),
    };
    let texts = batch.texts();
    let each = fair_share(&texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), SOURCES_TOKENS_MAX);
    let source = |text: &Text| fence(&shortened(&view.text(*text), text.tokens, each));
    let sources: Vec<String> = texts.iter().map(source).collect();
    let cut = texts.iter().filter(|text| text.tokens > each).count();
    let why = match cut {
        0 => format!("the {} answers that came, in a fixed order", sources.len()),
        _ => format!("the {} answers that came, in a fixed order, of which {cut} were cut to fit", sources.len()),
    };
    let question: String = question.chars().take(QUESTION_CHARS_MAX).collect();
    let arguments = json!({"question": fence(&question), "sources": sources});
    let text = fill(include_str!("../../prompts/concierge/sources.md"), &arguments);
    Rendered::New { text, source: Source::State, why }
}

/// The most tokens that each of several texts may have so that all fit: what short ones leave goes to the long ones.
fn fair_share(tokens: &[u32], most: u32) -> u32 {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    let mut left = most;
    for (place, tokens) in sorted.iter().enumerate() {
        let share = left / u32::try_from(sorted.len() - place).unwrap_or(u32::MAX);
        if *tokens > share {
            return share;
        }
        left -= tokens;
    }
    most
}

/// The beginning of a text of so many tokens that has about `most` of them.
fn shortened(text: &str, tokens: u32, most: u32) -> String {
    if tokens <= most {
        return text.to_owned();
    }
    let keep = text.chars().count() as u64 * u64::from(most) / u64::from(tokens.max(1));
    let kept: String = text.chars().take(usize::try_from(keep).unwrap_or(usize::MAX)).collect();
    format!("{kept}…")
}

fn mapper_repair(view: &Sight<'_>, asking: &Asking<'_>) -> Rendered {
    let note = &asking.wish.note;
    let why = note.get("why").and_then(serde_json::Value::as_str).unwrap_or_default();
    let reply = note.get("reply").and_then(|reply| serde_json::from_value::<Text>(reply.clone()).ok());
    let reply = reply.map(|text| fence(&view.text(text))).unwrap_or_default();
    let arguments = json!({"why": why, "reply": reply});
    template(
        "mapper_repair",
        include_str!("../../prompts/concierge/mapper_repair.md"),
        &arguments,
        "what could not be read",
    )
}

fn repair(asking: &Asking<'_>) -> Rendered {
    let note = &asking.wish.note;
    let arguments = json!({"missing": note.get("missing"), "why": note.get("why"), "wanted": note.get("wanted")});
    let why = "asked for again, privately";
    match asking.wish.ask.as_str() {
        ASK_INTENT => {
            template("repair_intent", include_str!("../../prompts/concierge/repair_intent.md"), &arguments, why)
        }
        ASK_BATCH => template("repair_batch", include_str!("../../prompts/concierge/repair_batch.md"), &arguments, why),
        _ => template("repair_steps", include_str!("../../prompts/concierge/repair_steps.md"), &arguments, why),
    }
}

fn task(view: &Sight<'_>) -> Rendered {
    let batch = view.state.batch.as_ref();
    let Some((task, purpose)) = batch.and_then(|batch| Some((batch.begun.task.as_ref()?, batch.begun.purpose))) else {
        return out("nothing was asked on anybody's behalf");
    };
    let source = task.call.map_or(Source::State, Source::Call);
    Rendered::New { text: task_text(task, purpose), source, why: "what is wanted of the experts".to_owned() }
}

fn task_text(task: &Task, purpose: Purpose) -> String {
    let arguments = json!({
        "help": purpose == Purpose::StepHelp,
        "step": task.step, "blocker": task.blocker, "context": task.context, "prompt": task.prompt,
    });
    fill(include_str!("../../prompts/concierge/task.md"), &arguments)
}

/// What the user said and is to be answered: one message as it stands, several as one text.
fn message(view: &Sight<'_>, asking: &Asking<'_>) -> Rendered {
    let state = view.state;
    let mut said: Vec<(MessageId, Text)> = Vec::new();
    if asking.wish.ask == *ASK_PRESENT {
        said.extend(state.plan.iter().flat_map(|plan| plan.asked.iter().copied()));
    }
    if asking.wish.role == *EXPERT {
        said.extend(state.batch.iter().flat_map(|batch| batch.begun.asked.iter().copied()));
    }
    for open in &state.open {
        if !said.contains(open) {
            said.push(*open);
        }
    }
    match words_of::to_answer(view, &said).as_slice() {
        [] => out("nothing was said"),
        [(message, text)] => {
            Rendered::Stored { text: *text, source: Source::Message(*message), why: "what the user said".to_owned() }
        }
        several => Rendered::New {
            text: joined(view, several),
            source: Source::Message(several[several.len() - 1].0),
            why: format!("the {} messages that are not answered yet", several.len()),
        },
    }
}

fn joined(view: &Sight<'_>, said: &[(MessageId, Text)]) -> String {
    said.iter().map(|(_, text)| view.text(*text).to_string()).collect::<Vec<_>>().join("\n\n")
}

fn handover(view: &Sight<'_>, phase: &str) -> Rendered {
    if phase == STARTER {
        return out("the first phase takes over from nobody");
    }
    let Some(handover) = words_of::handed(view) else { return out("nothing was handed over") };
    Rendered::New {
        text: documents::told(handover),
        source: Source::Handover(handover.id),
        why: "what the phase before left".to_owned(),
    }
}

/// What is known, as a section of a prompt, and whose answer it comes from.
fn known_section(view: &Sight<'_>, known: Option<&Known>) -> Rendered {
    let why = match known {
        Some(Known::Mapped { answers, .. }) => format!("what {answers} answers come to"),
        Some(Known::Alone { .. }) => "the one answer that came".to_owned(),
        Some(Known::Unmapped { texts }) => format!("the {} answers, which could not be mapped", texts.len()),
        None => return out("nobody was asked"),
    };
    let source = match known {
        Some(Known::Mapped { call, .. } | Known::Alone { call, .. }) => Source::Call(*call),
        _ => Source::State,
    };
    Rendered::New { text: known_text(view, known), source, why }
}

fn known_text(view: &Sight<'_>, known: Option<&Known>) -> String {
    let each = match known {
        Some(Known::Unmapped { texts }) => {
            fair_share(&texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), KNOWN_TOKENS_MAX)
        }
        _ => KNOWN_TOKENS_MAX,
    };
    let fenced = |text: &Text| fence(&shortened(&view.text(*text), text.tokens, each));
    let arguments = match known {
        Some(Known::Mapped { text, answers, .. }) => match map::parse(&view.text(*text), *answers) {
            Ok(reading) => {
                let analysis = analyse(&reading.map, *answers);
                json!({"kind": "mapped", "brief": brief::text(&reading.map, &analysis), "answers": []})
            }
            Err(_) => json!({"kind": "nothing", "brief": "", "answers": []}),
        },
        Some(Known::Alone { text, .. }) => json!({"kind": "alone", "brief": "", "answers": [fenced(text)]}),
        Some(Known::Unmapped { texts }) => {
            json!({"kind": "unmapped", "brief": "", "answers": texts.iter().map(fenced).collect::<Vec<_>>()})
        }
        None => json!({"kind": "nothing", "brief": "", "answers": []}),
    };
    fill(include_str!("../../prompts/concierge/brief_section.md"), &arguments)
}

fn guidance(view: &Sight<'_>, specs: &[SettingSpec]) -> Rendered {
    if phase(view) != STARTER {
        return out("only the starter is told a stance");
    }
    // What is set goes first, also where a past call is made once more with another setting.
    let (settings, _) = Settings::read(specs, &view.session.settings);
    let stance = settings.stance.or(view.state.stance).unwrap_or_default();
    let guidance = stance::guidance(stance);
    let shape = view.state.opening.as_ref().and_then(|known| shape(view, known));
    let arguments = json!({
        "framing": guidance.framing,
        "shape_guidance": shape.map(brief::shape_guidance),
        "behaviour": guidance.behaviour,
        "voice": guidance.voice,
    });
    let why = match shape {
        Some(shape) => format!("the stance is {stance}, the shape {shape}"),
        None => format!("the stance is {stance}"),
    };
    template("guidance", include_str!("../../prompts/concierge/guidance.md"), &arguments, &why)
}

/// What stands in the place of what was folded: the plan first, since it may have been shown there.
fn standing(view: &Sight<'_>, asking: &Asking<'_>) -> Rendered {
    let folded = chat::shortening(asking, COMPACTION);
    match (&view.state.workflow, folded) {
        (Some(workflow), Rendered::New { text, source, why }) => {
            let section = include_str!("../../prompts/concierge/workflow_section.md");
            let plan = fill(section, &json!({"workflow": workflow.rendered()}));
            Rendered::New { text: format!("{plan}\n\n{text}"), source, why }
        }
        (_, folded) => folded,
    }
}

/// The plan, if it changed since the concierge last saw it.
fn workflow(view: &Sight<'_>, asking: &Asking<'_>) -> Rendered {
    let Some(workflow) = &view.state.workflow else { return out("no plan is under way") };
    if asking.opens {
        return out("the thread opens with the plan");
    }
    if view.state.shown == Some(workflow.version) {
        return out("the plan has not changed since it was last shown");
    }
    let text = include_str!("../../prompts/concierge/workflow_changed.md");
    from_state(fill(text, &json!({"workflow": workflow.rendered()})), "the plan has changed")
}

fn findings(view: &Sight<'_>) -> Rendered {
    let Some(findings) = &view.state.findings else { return out("nothing new was found") };
    let arguments = json!({
        "help": findings.purpose == Purpose::StepHelp,
        "step": findings.task.as_ref().and_then(|task| task.step.clone()),
        "known": known_text(view, Some(&findings.known)),
    });
    let source = match &findings.known {
        Known::Mapped { call, .. } | Known::Alone { call, .. } => Source::Call(*call),
        Known::Unmapped { .. } => Source::State,
    };
    let text = fill(include_str!("../../prompts/concierge/findings.md"), &arguments);
    Rendered::New { text, source, why: "what the experts said, told once".to_owned() }
}

fn notices(view: &Sight<'_>) -> Rendered {
    if view.state.notices.is_empty() {
        return out("nothing was refused");
    }
    let arguments = json!({"notices": view.state.notices});
    template("notices", include_str!("../../prompts/concierge/notices.md"), &arguments, "what was not acted on")
}
