//! The `chat` flow: one model, one thread. It is the simplest flow and the baseline for the others.
//!
//! The fragments for compacting a thread are shared with the other flows.

use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{CallRequest, Event, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{
    CompactionPolicy, Flow, FlowContext, FlowSettingSpec, FlowSettingType, FlowSpec, FlowStep, FragmentRenderContext,
    MessagesToCompact, NewOrStoredReplyText, RoleSpec, SummarizerRole,
};
use segue_core::ids::FragmentName;
use segue_core::prompt::ChatRole;
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;
use serde::Serialize;
use serde_json::Value;

use crate::limits::{CHAT_SUMMARY_TOKENS_MAX, CHAT_SUMMARY_WORDS_MAX, CHAT_TOOL_ROUNDS_MAX, INSTRUCTION_CHARS_MAX};
use crate::prompt_overrides;
use crate::template::fill_template;

/// The role that answers the user.
pub const ASSISTANT_ROLE: &str = "assistant";
const SUMMARISER_ROLE: &str = "summariser";
/// The setting with the user's own system prompt.
const INSTRUCTION_SETTING: &str = "instruction";

/// A flow in which one role answers every message in one thread.
#[derive(Debug)]
pub struct ChatFlow {
    spec: FlowSpec,
}

impl ChatFlow {
    /// Creates the flow.
    #[must_use]
    pub fn new() -> Self {
        let mut assistant = RoleSpec::new(ASSISTANT_ROLE, Scope::per_session())
            .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
            .with_ask("reply", [FragmentSpec::changing("message", FragmentContentKind::UserWords)])
            .visible_to_user(BlockSet::default());
        assistant.accepts_turn_options = true;
        assistant.limits.tool_rounds_max = CHAT_TOOL_ROUNDS_MAX;
        assistant.compaction = CompactionPolicy {
            summarizer: Some(SummarizerRole { role: SUMMARISER_ROLE.into(), ask: "summarise".into() }),
            summary_tokens_max: CHAT_SUMMARY_TOKENS_MAX,
            ..CompactionPolicy::default()
        };
        let mut summariser = RoleSpec::new(SUMMARISER_ROLE, Scope::Fresh)
            .with_opening_fragment(FragmentSpec::stable("summarise", FragmentContentKind::Instruction))
            .with_ask("summarise", [FragmentSpec::changing("folded", FragmentContentKind::Conversation)]);
        summariser.reply_tokens_max = CHAT_SUMMARY_TOKENS_MAX;
        let instruction = FlowSettingSpec::new(
            INSTRUCTION_SETTING,
            FlowSettingType::LongText(INSTRUCTION_CHARS_MAX),
            "the system prompt; by default a short instruction to answer directly",
        );
        let spec = FlowSpec::new("chat", "one model, one conversation").with_role(assistant).with_role(summariser);
        Self { spec: FlowSpec { settings: vec![instruction, prompt_overrides::prompts_setting_spec()], ..spec } }
    }
}

impl Default for ChatFlow {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Serialize)]
struct MessageToSummarise<'f> {
    speaker: &'static str,
    text: &'f str,
}

impl Flow for ChatFlow {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        prompt_overrides::find_prompt_override_problems(self.spec.name.as_str(), settings)
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![FlowStep::Call(CallRequest::new(ASSISTANT_ROLE, "reply"))],
            (Event::CallAnswered(answered), Some(call)) if call.role == ASSISTANT_ROLE => {
                let reply = FlowStep::Reply {
                    text: NewOrStoredReplyText::Stored(answered.text),
                    role: Some(call.role.clone()),
                    call: Some(call.call),
                };
                match (answered.tool_calls.is_empty(), view.read_text(answered.text).trim().is_empty()) {
                    (true, _) => vec![reply, FlowStep::EndTurn(TurnOutcome::Done)],
                    // The client runs the tools that the model called; the turn continues with their results.
                    (false, false) => vec![reply],
                    (false, true) => Vec::new(),
                }
            }
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call))
                if call.role == ASSISTANT_ROLE =>
            {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) if call.role == ASSISTANT_ROLE => {
                let reason = "the reply was lost when the process died, and the call is not repeated".to_owned();
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        prompt_overrides::render_with_overrides(self.spec.name.as_str(), &view.session.settings, || {
            match name.as_str() {
                "instruction" => match own_instruction(&view.session.settings) {
                    Some(text) => RenderedFragment::New {
                        text,
                        source: FragmentSource::State,
                        why: "the setting `instruction` of the session".to_owned(),
                    },
                    None => {
                        let text = fill_template(include_str!("../prompts/chat/instruction.md"), &());
                        template_fragment("instruction", text, "who answers, and how")
                    }
                },
                "message" => render_user_message(view),
                name => render_compaction_fragment(request, name),
            }
        })
    }
}

/// Returns the user's own system prompt, unless it is empty.
fn own_instruction(settings: &Value) -> Option<String> {
    let text = settings.get(INSTRUCTION_SETTING)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn template_fragment(file: &str, text: String, why: &str) -> RenderedFragment {
    RenderedFragment::New { text, source: FragmentSource::Template(format!("chat/{file}")), why: why.to_owned() }
}

/// Renders the fragments that compaction needs: the summariser's instruction, the messages to summarise, and the text
/// that replaces them. Shared by all flows that let a model summarise their threads.
pub(crate) fn render_compaction_fragment(request: &FragmentRenderContext<'_>, name: &str) -> RenderedFragment {
    match (name, request.compacted) {
        ("summarise", _) => {
            #[derive(Serialize)]
            struct SummaryInstructionTemplateFields {
                words: u32,
            }
            let text = fill_template(
                include_str!("../prompts/chat/summarise.md"),
                &SummaryInstructionTemplateFields { words: CHAT_SUMMARY_WORDS_MAX },
            );
            template_fragment("summarise", text, "how to summarise")
        }
        ("folded", Some(compacted)) => {
            let text = fill_template(include_str!("../prompts/chat/folded.md"), &messages_to_summarise(compacted));
            template_fragment("folded", text, "the messages to summarise")
        }
        (segue_core::context::COMPACTION_FRAGMENT, Some(compacted)) => {
            #[derive(Serialize)]
            struct CompactedThreadTemplateFields<'f> {
                summary: Option<&'f str>,
            }
            let arguments = CompactedThreadTemplateFields { summary: compacted.summary.as_deref() };
            template_fragment(
                "compacted",
                fill_template(include_str!("../prompts/chat/compacted.md"), &arguments),
                "replaces the messages that no longer fit",
            )
        }
        _ => RenderedFragment::Omitted("the flow has no fragment of this name".to_owned()),
    }
}

fn messages_to_summarise(compacted: &MessagesToCompact) -> impl Serialize {
    #[derive(Serialize)]
    struct MessagesToSummariseTemplateFields<'f> {
        entries: Vec<MessageToSummarise<'f>>,
    }
    let speaker_label = |role: &ChatRole| match role {
        ChatRole::User => "User",
        ChatRole::Assistant => "Assistant",
        ChatRole::Tool => "Tool",
        ChatRole::System => "Note",
    };
    let entries = compacted.messages.iter();
    MessagesToSummariseTemplateFields {
        entries: entries.map(|(role, text)| MessageToSummarise { speaker: speaker_label(role), text }).collect(),
    }
}

/// Renders the turn's messages: a single one by reference, several joined into one text.
fn render_user_message(view: &FlowContext<'_, ()>) -> RenderedFragment {
    let Some(turn) = &view.session.current_turn else {
        return RenderedFragment::Omitted("no turn is running".to_owned());
    };
    match turn.messages.as_slice() {
        [] => RenderedFragment::Omitted("the turn has no message".to_owned()),
        [message] => RenderedFragment::Stored {
            text: message.text,
            source: FragmentSource::Message(message.message),
            why: "what the user said".to_owned(),
        },
        several => {
            let texts: Vec<String> = several.iter().map(|message| view.read_text(message.text).to_string()).collect();
            RenderedFragment::New {
                text: texts.join("\n\n"),
                source: FragmentSource::Message(several[several.len() - 1].message),
                why: format!("the {} messages of this turn", several.len()),
            }
        }
    }
}
