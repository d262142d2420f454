//! The declaration of the flow: its roles with their recipes, its phase graph, its handovers, and the blocks that carry
//! signals.

use segue_core::context::{FragmentContentKind, FragmentOverflowPolicy, FragmentRetention, FragmentSpec};
use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::{
    CompactionPolicy, FlowSpec, PrivateAskKind, RoleSpec, SummarizerRole, ThreadCompactionThreshold,
};
use segue_core::handover::{HandoverFieldPresence, HandoverFieldSpec, HandoverFieldType, HandoverSpec};
use segue_core::phase::{Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseSpec};
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::signal::{BlockFieldKind, BlockFieldSchema, BlockSet};

use super::{commands, settings};
use crate::limits::{
    BATCH_RESULT_TOKENS_MAX, CONCIERGE_REPLY_TOKENS_MAX, CONCIERGE_SUMMARY_TOKENS_MAX, EXPERT_THREAD_TOKENS_KEPT,
    EXPERT_THREAD_TOKENS_MAX, HANDOVER_TOKENS_MAX, MAP_REPLY_TOKENS_MAX, MAPPER_SOURCES_TOKENS_MAX,
    SECTION_FRAME_TOKENS_MAX, VISIT_EXCHANGES_TOKENS_MAX,
};

/// Answers the question, independently of the other experts.
pub const EXPERT_ROLE: &str = "expert";
/// Compares the experts' answers and writes the claim map.
pub const MAPPER_ROLE: &str = "mapper";
/// Speaks to the user.
pub const CONCIERGE_ROLE: &str = "concierge";
/// Summarises threads that no longer fit.
pub const SUMMARISER_ROLE: &str = "summariser";

/// The phase graph of the concierge.
pub const PHASE_GRAPH: &str = "conversation";
/// The phase that answers the first question and the first reply.
pub const STARTER_PHASE: &str = "starter";
/// The phase that explores the problem until the user commits.
pub const EXPLORER_PHASE: &str = "explorer";
/// The phase that presents a plan and guides the user through it.
pub const EXECUTOR_PHASE: &str = "executor";

/// The handover from starter to explorer.
pub const INTENT_HANDOVER: &str = "intent";
/// The handover to an executor, from the explorer or from the executor of an earlier plan.
pub const EXECUTION_HANDOVER: &str = "execution";
/// The handover from executor to explorer.
pub const OUTCOME_HANDOVER: &str = "outcome";

pub(super) const ASK_QUESTION: &str = "question";
pub(super) const ASK_TASK: &str = "task";
pub(super) const ASK_MAP: &str = "map";
pub(super) const ASK_REPAIR_MAP: &str = "repair";
pub(super) const ASK_REPLY: &str = "reply";
pub(super) const ASK_PRESENT: &str = "present";
pub(super) const ASK_REPAIR_INTENT: &str = "repair_intent";
pub(super) const ASK_REPAIR_BATCH: &str = "repair_batch";
pub(super) const ASK_REPAIR_STEPS: &str = "repair_steps";

/// Private questions for the signals, if the model is not asked for them in its replies.
pub(super) const ASK_INTENT_QUESTION: &str = "intent_question";
pub(super) const ASK_PLAN_QUESTION: &str = "plan_question";
pub(super) const ASK_EXECUTION_QUESTION: &str = "execution_question";
pub(super) const ASK_STEPS_QUESTION: &str = "steps_question";
pub(super) const ASK_PROGRESS_QUESTION: &str = "progress_question";
pub(super) const ASK_STANCE_QUESTION: &str = "stance_question";
pub(super) const ASK_CONSENT_QUESTION: &str = "consent_question";

pub(super) const MESSAGE_FRAGMENT: &str = "message";
pub(super) const PLAN_UPDATE_FRAGMENT: &str = "workflow";
pub(super) const FINDINGS_FRAGMENT: &str = "findings";
/// What the experts found about the message of this turn. It does not stay in the thread.
pub(super) const TURN_FINDINGS_FRAGMENT: &str = "turn_findings";
pub(super) const NOTICES_FRAGMENT: &str = "notices";
pub(super) const QUESTION_FRAGMENT: &str = "question";
/// What a private question without a thread is about: the user's message and what it refers to.
pub(super) const SAID_FRAGMENT: &str = "said";
/// How to answer the first question: the guidance for the stance and for the shape of the map.
pub(super) const GUIDANCE_FRAGMENT: &str = "guidance";
/// The request for a handover, in the turns in which the starter should write one.
pub(super) const HANDOVER_DUE_FRAGMENT: &str = "handover_due";
/// The active plan, in the opening prompt of a thread.
pub(super) const PLAN_FRAGMENT: &str = "plan";

/// The earlier messages of the visit, in the opening prompt of a thread that was opened again.
pub(super) const EARLIER_FRAGMENT: &str = "earlier";

pub(super) const HANDOVER_BLOCK: &str = "HANDOVER";
pub(super) const BATCH_BLOCK: &str = "BATCH";
pub(super) const STEPS_BLOCK: &str = "STEPS";
pub(super) const STEP_START_BLOCK: &str = "STEP_START";
pub(super) const STEP_DONE_BLOCK: &str = "STEP_DONE";

/// The fields of [`INTENT_HANDOVER`], in the order of the prompt.
pub const INTENT_FIELDS: [(&str, HandoverFieldType); 14] = [
    ("shape", HandoverFieldType::Text),
    ("key_findings", HandoverFieldType::List),
    ("tensions", HandoverFieldType::List),
    ("gaps", HandoverFieldType::List),
    ("user_query", HandoverFieldType::Text),
    ("starter_response", HandoverFieldType::Text),
    ("user_reply", HandoverFieldType::Text),
    ("goal", HandoverFieldType::Text),
    ("constraints", HandoverFieldType::List),
    ("accepted_framing", HandoverFieldType::Text),
    ("resisted_framing", HandoverFieldType::Text),
    ("unprompted_reveals", HandoverFieldType::List),
    ("still_unclear", HandoverFieldType::List),
    ("effective_stance", HandoverFieldType::Text),
];

/// The fields of [`EXECUTION_HANDOVER`], in the order of the prompt.
pub const EXECUTION_FIELDS: [(&str, HandoverFieldType); 8] = [
    ("goal", HandoverFieldType::Text),
    ("problem_summary", HandoverFieldType::Text),
    ("situation", HandoverFieldType::Text),
    ("constraints", HandoverFieldType::List),
    ("priorities", HandoverFieldType::List),
    ("decisions_made", HandoverFieldType::List),
    ("open_questions", HandoverFieldType::List),
    ("exploration_highlights", HandoverFieldType::List),
];

/// The fields of [`OUTCOME_HANDOVER`], in the order of the prompt.
pub const OUTCOME_FIELDS: [(&str, HandoverFieldType); 5] = [
    ("goal", HandoverFieldType::Text),
    ("outcome", HandoverFieldType::Text),
    ("steps", HandoverFieldType::List),
    ("decisions", HandoverFieldType::List),
    ("open_questions", HandoverFieldType::List),
];

/// Returns the key of the concierge's phase graph in a session.
#[must_use]
pub fn concierge_phase_key() -> PhaseGraphKey {
    PhaseGraphKey { graph: PHASE_GRAPH.into(), owner: PhaseStateOwner::Role(CONCIERGE_ROLE.into()) }
}

/// Returns the signal blocks of the concierge. The user never sees them.
#[must_use]
pub fn signal_block_names() -> BlockSet {
    let block_schema = |fields: &[(&str, HandoverFieldType)]| {
        fields.iter().fold(BlockFieldSchema::default(), |schema, (name, field_type)| match field_type {
            HandoverFieldType::Text => schema.with_key(name, BlockFieldKind::Text),
            HandoverFieldType::List => schema.with_key(name, BlockFieldKind::List),
        })
    };
    let batch = BlockFieldSchema::default()
        .with_key("type", BlockFieldKind::Text)
        .with_key("step", BlockFieldKind::Text)
        .with_key("blocker", BlockFieldKind::Text)
        .with_key("context", BlockFieldKind::Text)
        .with_key("handover", BlockFieldKind::Section(block_schema(&EXECUTION_FIELDS)))
        .with_key("prompt", BlockFieldKind::Raw);
    BlockSet::default()
        .with_block(HANDOVER_BLOCK, block_schema(&INTENT_FIELDS))
        .with_block(BATCH_BLOCK, batch)
        .with_block(
            STEPS_BLOCK,
            BlockFieldSchema::default()
                .with_key("title", BlockFieldKind::Entry)
                .with_key("description", BlockFieldKind::Entry)
                .with_key("done_when", BlockFieldKind::Entry),
        )
        .with_block(STEP_START_BLOCK, BlockFieldSchema::default().with_key("step", BlockFieldKind::Text))
        .with_block(STEP_DONE_BLOCK, BlockFieldSchema::default().with_key("step", BlockFieldKind::Text))
}

/// Returns the complete declaration of the flow.
#[must_use]
pub fn concierge_flow_spec() -> FlowSpec {
    let spec = FlowSpec::new("concierge", "many models answer, one voice speaks");
    let spec = spec
        .with_graph(concierge_phase_graph())
        .with_role(expert_role_spec())
        .with_role(mapper_role_spec())
        .with_role(concierge_role_spec())
        .with_role(summariser_role_spec());
    let spec = spec
        .with_handover(handover_schema(INTENT_HANDOVER, &INTENT_FIELDS))
        .with_handover(handover_schema(EXECUTION_HANDOVER, &EXECUTION_FIELDS))
        .with_handover(handover_schema(OUTCOME_HANDOVER, &OUTCOME_FIELDS));
    FlowSpec { settings: settings::concierge_setting_specs(), commands: commands::command_specs(), ..spec }
}

fn handover_schema(kind: &str, fields: &[(&str, HandoverFieldType)]) -> HandoverSpec {
    // The next phase cannot work without a goal; all other fields may be missing.
    let presence =
        |name: &str| if name == "goal" { HandoverFieldPresence::Required } else { HandoverFieldPresence::Optional };
    let field = |(name, field_type): &(&str, HandoverFieldType)| HandoverFieldSpec {
        name: (*name).to_owned(),
        field_type: *field_type,
        presence: presence(name),
    };
    HandoverSpec { kind: kind.into(), fields: fields.iter().map(field).collect(), repairs_max: 1 }
}

fn concierge_phase_graph() -> PhaseGraph {
    let phase = |name: &str, purpose: &str| PhaseSpec { purpose: purpose.to_owned(), ..PhaseSpec::new(name) };
    let edge = |from: &str, to: &str, kind: &str| PhaseEdge {
        from: from.into(),
        to: to.into(),
        guard: Guard::Handover(kind.into()),
    };
    PhaseGraph {
        name: PHASE_GRAPH.into(),
        owner_kind: PhaseGraphOwnerKind::Role,
        start: STARTER_PHASE.into(),
        phases: vec![
            phase(STARTER_PHASE, "answers the first question and reads the reply"),
            phase(EXPLORER_PHASE, "explores the problem until the user commits"),
            phase(EXECUTOR_PHASE, "presents a plan and guides the user through it"),
        ],
        edges: vec![
            edge(STARTER_PHASE, EXPLORER_PHASE, INTENT_HANDOVER),
            edge(EXPLORER_PHASE, EXECUTOR_PHASE, EXECUTION_HANDOVER),
            edge(EXECUTOR_PHASE, EXECUTOR_PHASE, EXECUTION_HANDOVER),
            edge(EXECUTOR_PHASE, EXPLORER_PHASE, OUTCOME_HANDOVER),
        ],
        gates: Vec::new(),
    }
}

fn thread_compaction() -> CompactionPolicy {
    let summarizer = Some(SummarizerRole { role: SUMMARISER_ROLE.into(), ask: "summarise".into() });
    CompactionPolicy { summarizer, summary_tokens_max: CONCIERGE_SUMMARY_TOKENS_MAX, ..CompactionPolicy::default() }
}

fn expert_role_spec() -> RoleSpec {
    let mut expert = RoleSpec::new(EXPERT_ROLE, Scope::per_model())
        .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
        .with_ask(ASK_QUESTION, [message_fragment_spec()])
        .with_ask(ASK_TASK, [FragmentSpec::changing("task", FragmentContentKind::Task)]);
    // An expert's thread lasts for the whole session, so it would cost more with every batch.
    let thread_limit =
        ThreadCompactionThreshold { tokens_max: EXPERT_THREAD_TOKENS_MAX, tokens_kept: EXPERT_THREAD_TOKENS_KEPT };
    expert.compaction = CompactionPolicy { thread_limit: Some(thread_limit), ..thread_compaction() };
    expert
}

fn mapper_role_spec() -> RoleSpec {
    let sources = || {
        FragmentSpec::changing("sources", FragmentContentKind::Conversation)
            .with_budget(MAPPER_SOURCES_TOKENS_MAX + SECTION_FRAME_TOKENS_MAX, FragmentOverflowPolicy::KeepStart)
    };
    let mut mapper = RoleSpec::new(MAPPER_ROLE, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
        .with_ask(ASK_MAP, [sources()])
        .with_ask(ASK_REPAIR_MAP, [sources(), FragmentSpec::changing("repair", FragmentContentKind::Task)]);
    mapper.reply_tokens_max = MAP_REPLY_TOKENS_MAX;
    mapper
}

fn concierge_role_spec() -> RoleSpec {
    let knowledge = |name: &str| {
        FragmentSpec::changing(name, FragmentContentKind::Knowledge)
            .with_budget(BATCH_RESULT_TOKENS_MAX + SECTION_FRAME_TOKENS_MAX, FragmentOverflowPolicy::KeepStart)
    };
    let handover = FragmentSpec::changing("handover", FragmentContentKind::Handover)
        .with_budget(HANDOVER_TOKENS_MAX, FragmentOverflowPolicy::KeepStart);
    let earlier = FragmentSpec::changing(EARLIER_FRAGMENT, FragmentContentKind::Conversation)
        .with_budget(VISIT_EXCHANGES_TOKENS_MAX, FragmentOverflowPolicy::KeepStart);
    let plan = |name: &str| FragmentSpec::changing(name, FragmentContentKind::Reasoning);
    let notices = || FragmentSpec::changing(NOTICES_FRAGMENT, FragmentContentKind::Task);
    let repair = || [FragmentSpec::changing("repair", FragmentContentKind::Task)];
    let question = || [FragmentSpec::changing(QUESTION_FRAGMENT, FragmentContentKind::Task)];
    let standalone = || FragmentSpec::stable(QUESTION_FRAGMENT, FragmentContentKind::Task);
    let said = || FragmentSpec::changing(SAID_FRAGMENT, FragmentContentKind::Conversation);
    let mut concierge = RoleSpec::new(CONCIERGE_ROLE, Scope::per_phase().ended_by(ThreadEndTrigger::Model))
        .with_phase_graph(PHASE_GRAPH)
        .with_opening_fragment(FragmentSpec::stable("identity", FragmentContentKind::Instruction))
        .with_opening_fragment(FragmentSpec::stable("never", FragmentContentKind::Instruction))
        .with_opening_fragment(FragmentSpec::changing("part", FragmentContentKind::Instruction))
        .with_opening_fragment(FragmentSpec::changing(GUIDANCE_FRAGMENT, FragmentContentKind::Instruction))
        .with_opening_fragment(FragmentSpec::changing("capabilities", FragmentContentKind::Instruction))
        .with_opening_fragment(handover)
        .with_opening_fragment(knowledge("brief"))
        .with_opening_fragment(plan(PLAN_FRAGMENT))
        .with_opening_fragment(earlier)
        .with_ask(
            ASK_REPLY,
            [
                plan(PLAN_UPDATE_FRAGMENT),
                knowledge(FINDINGS_FRAGMENT),
                knowledge(TURN_FINDINGS_FRAGMENT).with_retention(FragmentRetention::CallOnly),
                FragmentSpec::changing(HANDOVER_DUE_FRAGMENT, FragmentContentKind::Task),
                notices(),
                message_fragment_spec(),
            ],
        )
        .with_ask(ASK_PRESENT, [knowledge(FINDINGS_FRAGMENT), notices(), message_fragment_spec()])
        .with_private_ask(ASK_REPAIR_INTENT, PrivateAskKind::InThread, repair())
        .with_private_ask(ASK_REPAIR_BATCH, PrivateAskKind::InThread, repair())
        .with_private_ask(ASK_REPAIR_STEPS, PrivateAskKind::InThread, repair())
        .with_private_ask(ASK_INTENT_QUESTION, PrivateAskKind::Detached, question())
        .with_private_ask(ASK_EXECUTION_QUESTION, PrivateAskKind::Detached, question())
        .with_private_ask(ASK_STEPS_QUESTION, PrivateAskKind::Detached, question())
        .with_private_ask(ASK_STANCE_QUESTION, PrivateAskKind::Standalone, [standalone(), said()])
        .with_private_ask(ASK_PLAN_QUESTION, PrivateAskKind::Standalone, [standalone(), said()])
        .with_private_ask(
            ASK_PROGRESS_QUESTION,
            PrivateAskKind::Standalone,
            [standalone(), plan(PLAN_FRAGMENT), said()],
        )
        .with_private_ask(ASK_CONSENT_QUESTION, PrivateAskKind::Standalone, [standalone(), said()])
        .visible_to_user(signal_block_names());
    concierge.compaction = thread_compaction();
    concierge.reply_tokens_max = CONCIERGE_REPLY_TOKENS_MAX;
    concierge
}

fn summariser_role_spec() -> RoleSpec {
    let mut summariser = RoleSpec::new(SUMMARISER_ROLE, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::stable("summarise", FragmentContentKind::Instruction))
        .with_ask("summarise", [FragmentSpec::changing("folded", FragmentContentKind::Conversation)]);
    summariser.reply_tokens_max = CONCIERGE_SUMMARY_TOKENS_MAX;
    summariser
}

fn message_fragment_spec() -> FragmentSpec {
    FragmentSpec::changing(MESSAGE_FRAGMENT, FragmentContentKind::UserWords)
}
