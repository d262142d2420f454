//! The names and texts of all prompt templates that can be overridden, by flow.

/// A template and its name in its flow.
type NamedTemplate = (&'static str, &'static str);

macro_rules! templates {
    ($flow:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../prompts/", $flow, "/", $name, ".md")))),+]
    };
}

const ASSISTANT_TEMPLATES: &[NamedTemplate] = templates!["assistant":
    "act/analyze",
    "act/entities",
    "act/generate",
    "act/instruction",
    "act/read",
    "act/records",
    "act/result",
    "act/results",
    "act/step",
    "act/tools",
    "act/write",
    "reply/account",
    "reply/entities",
    "reply/flow",
    "reply/happened",
    "reply/instruction",
    "reply/repair",
    "shared/conversation",
    "shared/domain",
    "shared/domain_brief",
    "shared/message",
    "shared/no_domain",
    "shared/pending",
    "shared/repair",
    "shared/snapshot",
    "shared/today",
    "shared/undone",
    "summarize/conversation",
    "summarize/older_conversation",
    "summarize/older_reasoning",
    "summarize/reasoning",
    "think/curation",
    "think/entities",
    "think/instruction",
    "think/loaded",
    "think/reasoning",
    "understand/decisions",
    "understand/entities",
    "understand/instruction",
];

const CHAT_TEMPLATES: &[NamedTemplate] = templates!["chat":
    "compacted",
    "folded",
    "instruction",
    "summarise",
];

const CONCIERGE_TEMPLATES: &[NamedTemplate] = templates!["concierge":
    "brief",
    "brief_section",
    "confirm",
    "confirm_again",
    "continued",
    "declined",
    "earlier",
    "executing",
    "execution",
    "executor",
    "expert",
    "expert_prompt_guide",
    "explorer",
    "findings",
    "guidance",
    "handover",
    "handover_due",
    "identity",
    "intent",
    "map_format",
    "mapper",
    "mapper_repair",
    "never",
    "no_words",
    "notice",
    "notices",
    "outcome",
    "progress",
    "questions/consent",
    "questions/execution",
    "questions/frame",
    "questions/intent",
    "questions/plan",
    "questions/progress",
    "questions/said",
    "questions/stance",
    "questions/standalone",
    "questions/steps",
    "repair_batch",
    "repair_intent",
    "repair_steps",
    "shape_guidance",
    "sources",
    "stance/behaviour",
    "stance/framing",
    "stance/voice",
    "starter",
    "task",
    "task_built",
    "task_situation",
    "workflow",
    "workflow_changed",
    "workflow_section",
];

/// Returns the templates of a flow.
pub(super) fn flow_templates(flow: &str) -> &'static [NamedTemplate] {
    match flow {
        "assistant" => ASSISTANT_TEMPLATES,
        "chat" => CHAT_TEMPLATES,
        "concierge" => CONCIERGE_TEMPLATES,
        _ => &[],
    }
}
