//! The flow's data: who speaks, through which phases, what each is shown, which documents cross from one phase to the
//! next and which blocks carry signals.

use segue_core::context::{FragmentSpec, Layer, Over};
use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::{Compaction, FlowSpec, RoleSpec, Summariser};
use segue_core::handover::{FieldSpec, Form, Need, Schema};
use segue_core::phase::guard::Guard;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph};
use segue_core::scope::{Scope, Until};
use segue_core::signal::BlockNames;
use segue_core::signal::fields::Shape;

use super::settings;
use crate::limits::{FRAME_TOKENS_MAX, HANDOVER_TOKENS_MAX, KNOWN_TOKENS_MAX, SOURCES_TOKENS_MAX};

/// One of those who answer.
pub const EXPERT: &str = "expert";
/// Who makes the map.
pub const MAPPER: &str = "mapper";
/// Who speaks to the user.
pub const CONCIERGE: &str = "concierge";
/// Who shortens threads.
pub const SUMMARISER: &str = "summariser";

/// The phases of the concierge.
pub const GRAPH: &str = "conversation";
/// Answers the first question and reads the reply.
pub const STARTER: &str = "starter";
/// Explores until there is commitment.
pub const EXPLORER: &str = "explorer";
/// Carries a plan out.
pub const EXECUTOR: &str = "executor";

/// From starter to explorer.
pub const INTENT: &str = "intent";
/// From explorer, or from one plan, to the executor of the next.
pub const EXECUTION: &str = "execution";
/// From executor to explorer.
pub const OUTCOME: &str = "outcome";

pub(super) const ASK_QUESTION: &str = "question";
pub(super) const ASK_TASK: &str = "task";
pub(super) const ASK_MAP: &str = "map";
pub(super) const ASK_REPAIR: &str = "repair";
pub(super) const ASK_REPLY: &str = "reply";
pub(super) const ASK_PRESENT: &str = "present";
pub(super) const ASK_INTENT: &str = "repair_intent";
pub(super) const ASK_BATCH: &str = "repair_batch";
pub(super) const ASK_STEPS: &str = "repair_steps";

pub(super) const MESSAGE: &str = "message";
pub(super) const WORKFLOW: &str = "workflow";
pub(super) const FINDINGS: &str = "findings";
pub(super) const NOTICES: &str = "notices";
/// The plan as a thread opens with it, while it is under way.
pub(super) const PLAN: &str = "plan";

pub(super) const HANDOVER_BLOCK: &str = "HANDOVER";
pub(super) const BATCH_BLOCK: &str = "BATCH";
pub(super) const STEPS_BLOCK: &str = "STEPS";
pub(super) const STEP_START_BLOCK: &str = "STEP_START";
pub(super) const STEP_DONE_BLOCK: &str = "STEP_DONE";

/// Longest summary of a folded thread.
const SUMMARY_TOKENS: u32 = 800;
/// Longest map: a claim takes some eighty tokens, an edge thirty.
const MAP_TOKENS: u32 = 16_384;
/// Longest answer of the concierge: a plan, with its steps for the record.
const SPEECH_TOKENS: u32 = 8_192;

/// What the starter leaves to the explorer, in the order it is shown.
pub const INTENT_FIELDS: [(&str, Form); 14] = [
    ("shape", Form::Text),
    ("key_findings", Form::List),
    ("tensions", Form::List),
    ("gaps", Form::List),
    ("user_query", Form::Text),
    ("starter_response", Form::Text),
    ("user_reply", Form::Text),
    ("goal", Form::Text),
    ("constraints", Form::List),
    ("accepted_framing", Form::Text),
    ("resisted_framing", Form::Text),
    ("unprompted_reveals", Form::List),
    ("still_unclear", Form::List),
    ("effective_stance", Form::Text),
];

/// What the explorer leaves to the executor, in the order it is shown.
pub const EXECUTION_FIELDS: [(&str, Form); 8] = [
    ("goal", Form::Text),
    ("problem_summary", Form::Text),
    ("situation", Form::Text),
    ("constraints", Form::List),
    ("priorities", Form::List),
    ("decisions_made", Form::List),
    ("open_questions", Form::List),
    ("exploration_highlights", Form::List),
];

/// What the executor leaves to the next explorer, in the order it is shown.
pub const OUTCOME_FIELDS: [(&str, Form); 5] = [
    ("goal", Form::Text),
    ("outcome", Form::Text),
    ("steps", Form::List),
    ("decisions", Form::List),
    ("open_questions", Form::List),
];

/// The key of the concierge's phases.
#[must_use]
pub fn phase_key() -> PhaseKey {
    PhaseKey { graph: GRAPH.into(), owner: Owner::Role(CONCIERGE.into()) }
}

/// The blocks that the concierge speaks in, hidden from the user.
#[must_use]
pub fn blocks() -> BlockNames {
    let shape = |fields: &[(&str, Form)]| {
        fields.iter().fold(Shape::new(), |shape, (name, form)| match form {
            Form::Text => shape.text(name),
            Form::List => shape.list(name),
        })
    };
    let batch = Shape::new()
        .text("type")
        .text("step")
        .text("blocker")
        .text("context")
        .section("handover", shape(&EXECUTION_FIELDS))
        .raw("prompt");
    BlockNames::new()
        .block(HANDOVER_BLOCK, shape(&INTENT_FIELDS))
        .block(BATCH_BLOCK, batch)
        .block(STEPS_BLOCK, Shape::new().entry("title").entry("description").entry("done_when"))
        .block(STEP_START_BLOCK, Shape::new().text("step"))
        .block(STEP_DONE_BLOCK, Shape::new().text("step"))
}

/// The whole of it.
#[must_use]
pub fn spec() -> FlowSpec {
    let spec = FlowSpec::new("concierge", "many models answer, one voice speaks");
    let spec = spec.graph(graph()).role(expert()).role(mapper()).role(concierge()).role(summariser());
    let spec = spec
        .handover(schema(INTENT, &INTENT_FIELDS))
        .handover(schema(EXECUTION, &EXECUTION_FIELDS))
        .handover(schema(OUTCOME, &OUTCOME_FIELDS));
    settings::specs().into_iter().fold(spec, FlowSpec::setting)
}

fn schema(kind: &str, fields: &[(&str, Form)]) -> Schema {
    // Without a goal nobody knows what to go on with; anything else may be missing.
    let need = |name: &str| if name == "goal" { Need::Required } else { Need::Optional };
    let field = |(name, form): &(&str, Form)| FieldSpec { name: (*name).to_owned(), form: *form, need: need(name) };
    Schema { kind: kind.into(), fields: fields.iter().map(field).collect(), repairs_max: 1 }
}

fn graph() -> PhaseGraph {
    let phase = |name: &str, purpose: &str| Phase { purpose: purpose.to_owned(), ..Phase::named(name) };
    let edge = |from: &str, to: &str, kind: &str| Edge {
        from: from.into(),
        to: to.into(),
        guard: Guard::Handover(kind.into()),
    };
    PhaseGraph {
        name: GRAPH.into(),
        attached: Attached::Role,
        start: STARTER.into(),
        phases: vec![
            phase(STARTER, "answers the first question and reads the reply"),
            phase(EXPLORER, "explores until there is commitment"),
            phase(EXECUTOR, "makes a plan and carries it out"),
        ],
        edges: vec![
            edge(STARTER, EXPLORER, INTENT),
            edge(EXPLORER, EXECUTOR, EXECUTION),
            edge(EXECUTOR, EXECUTOR, EXECUTION),
            edge(EXECUTOR, EXPLORER, OUTCOME),
        ],
        gates: Vec::new(),
    }
}

fn shortened() -> Compaction {
    let by = Some(Summariser { role: SUMMARISER.into(), ask: "summarise".into() });
    Compaction { by, tokens_max: SUMMARY_TOKENS, ..Compaction::default() }
}

fn expert() -> RoleSpec {
    let mut expert = RoleSpec::new(EXPERT, Scope::model())
        .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
        .ask(ASK_QUESTION, [message()])
        .ask(ASK_TASK, [FragmentSpec::changing("task", Layer::Task)]);
    expert.compaction = shortened();
    expert
}

fn mapper() -> RoleSpec {
    let sources = || {
        FragmentSpec::changing("sources", Layer::Conversation)
            .within(SOURCES_TOKENS_MAX + FRAME_TOKENS_MAX, Over::KeepStart)
    };
    let mut mapper = RoleSpec::new(MAPPER, Scope::Fresh)
        .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
        .ask(ASK_MAP, [sources()])
        .ask(ASK_REPAIR, [sources(), FragmentSpec::changing("repair", Layer::Task)]);
    mapper.reply_tokens_max = MAP_TOKENS;
    mapper
}

fn concierge() -> RoleSpec {
    let known = |name: &str| {
        FragmentSpec::changing(name, Layer::Knowledge).within(KNOWN_TOKENS_MAX + FRAME_TOKENS_MAX, Over::KeepStart)
    };
    let handover = FragmentSpec::changing("handover", Layer::Handover).within(HANDOVER_TOKENS_MAX, Over::KeepStart);
    let workflow = |name: &str| FragmentSpec::changing(name, Layer::Reasoning);
    let notices = || FragmentSpec::changing(NOTICES, Layer::Task);
    let repair = || [FragmentSpec::changing("repair", Layer::Task)];
    let mut concierge = RoleSpec::new(CONCIERGE, Scope::phase().until(Until::Model))
        .lives_by(GRAPH)
        .opens_with(FragmentSpec::stable("identity", Layer::Instruction))
        .opens_with(FragmentSpec::stable("never", Layer::Instruction))
        .opens_with(FragmentSpec::changing("part", Layer::Instruction))
        .opens_with(FragmentSpec::changing("capabilities", Layer::Instruction))
        .opens_with(handover)
        .opens_with(known("brief"))
        .opens_with(FragmentSpec::changing("guidance", Layer::Instruction))
        .opens_with(workflow(PLAN))
        .ask(ASK_REPLY, [workflow(WORKFLOW), known(FINDINGS), notices(), message()])
        .ask(ASK_PRESENT, [known(FINDINGS), notices(), message()])
        .ask_privately(ASK_INTENT, repair())
        .ask_privately(ASK_BATCH, repair())
        .ask_privately(ASK_STEPS, repair())
        .heard_by_user(blocks());
    concierge.compaction = shortened();
    concierge.reply_tokens_max = SPEECH_TOKENS;
    concierge
}

fn summariser() -> RoleSpec {
    let mut summariser = RoleSpec::new(SUMMARISER, Scope::Fresh)
        .opens_with(FragmentSpec::stable("summarise", Layer::Instruction))
        .ask("summarise", [FragmentSpec::changing("folded", Layer::Conversation)]);
    summariser.reply_tokens_max = SUMMARY_TOKENS;
    summariser
}

fn message() -> FragmentSpec {
    FragmentSpec::changing(MESSAGE, Layer::Words)
}
