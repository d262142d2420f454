//! One model, one thread: the plainest flow there is, and the baseline to compare the others with.

use segue_core::context::{ContextLayer, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{CallRequest, Event, RecordedEvent, RetryDecision, TurnResult};
use segue_core::flow::{
    CompactedMessages, CompactionPolicy, Flow, FlowContext, FlowSpec, FlowStep, FragmentRequest, ReplyText, RoleSpec,
    Summarizer,
};
use segue_core::ids::FragmentName;
use segue_core::prompt::ChatRole;
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;
use serde::Serialize;

use crate::template::fill_template;

/// The role that answers.
pub const ASSISTANT_ROLE: &str = "assistant";
const SUMMARISER_ROLE: &str = "summariser";
const SUMMARY_TOKENS_MAX: u32 = 800;
const SUMMARY_WORDS_MAX: u32 = 400;

/// The flow.
#[derive(Debug)]
pub struct ChatFlow {
    spec: FlowSpec,
}

impl ChatFlow {
    /// The flow as it is shipped.
    #[must_use]
    pub fn new() -> Self {
        let mut assistant = RoleSpec::new(ASSISTANT_ROLE, Scope::per_session())
            .with_opening_fragment(FragmentSpec::stable("instruction", ContextLayer::Instruction))
            .with_ask("reply", [FragmentSpec::changing("message", ContextLayer::UserWords)])
            .visible_to_user(BlockSet::new());
        assistant.compaction = CompactionPolicy {
            summarizer: Some(Summarizer { role: SUMMARISER_ROLE.into(), ask: "summarise".into() }),
            summary_tokens_max: SUMMARY_TOKENS_MAX,
            ..CompactionPolicy::default()
        };
        let mut summariser = RoleSpec::new(SUMMARISER_ROLE, Scope::Fresh)
            .with_opening_fragment(FragmentSpec::stable("summarise", ContextLayer::Instruction))
            .with_ask("summarise", [FragmentSpec::changing("folded", ContextLayer::Conversation)]);
        summariser.reply_tokens_max = SUMMARY_TOKENS_MAX;
        let spec = FlowSpec::new("chat", "one model, one conversation").with_role(assistant).with_role(summariser);
        Self { spec }
    }
}

impl Default for ChatFlow {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Serialize)]
struct FoldedMessage<'f> {
    speaker: &'static str,
    text: &'f str,
}

impl Flow for ChatFlow {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![FlowStep::Call(CallRequest::new(ASSISTANT_ROLE, "reply"))],
            (Event::CallAnswered(answered), Some(call)) if call.role == ASSISTANT_ROLE => vec![
                FlowStep::Reply {
                    text: ReplyText::Stored(answered.text),
                    role: Some(call.role.clone()),
                    call: Some(call.call),
                },
                FlowStep::EndTurn(TurnResult::Done),
            ],
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call))
                if call.role == ASSISTANT_ROLE =>
            {
                vec![FlowStep::EndTurn(TurnResult::Failed { reason: failure.to_string() })]
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) if call.role == ASSISTANT_ROLE => {
                let reason = "the answer was lost when the process died, and is not asked for again".to_owned();
                vec![FlowStep::EndTurn(TurnResult::Failed { reason })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        asking: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        match name.as_str() {
            "instruction" => {
                let text = fill_template(include_str!("../prompts/chat/instruction.md"), &());
                template_fragment("instruction", text, "who answers, and how")
            }
            "message" => render_user_message(view),
            name => render_compaction_fragment(asking, name),
        }
    }
}

fn template_fragment(file: &str, text: String, why: &str) -> RenderedFragment {
    RenderedFragment::New { text, source: FragmentSource::Template(format!("chat/{file}")), why: why.to_owned() }
}

/// What a summariser is told and shown, and what stands in the place of what was folded; the same for every flow that
/// has its threads shortened by a model.
pub(crate) fn render_compaction_fragment(asking: &FragmentRequest<'_>, name: &str) -> RenderedFragment {
    match (name, asking.compacted) {
        ("summarise", _) => {
            #[derive(Serialize)]
            struct SummariseArguments {
                words: u32,
            }
            let text = fill_template(
                include_str!("../prompts/chat/summarise.md"),
                &SummariseArguments { words: SUMMARY_WORDS_MAX },
            );
            template_fragment("summarise", text, "how to shorten")
        }
        ("folded", Some(folding)) => {
            let text = fill_template(include_str!("../prompts/chat/folded.md"), &folded_thread_arguments(folding));
            template_fragment("folded", text, "what is shortened")
        }
        (segue_core::context::COMPACTION_FRAGMENT, Some(folding)) => {
            #[derive(Serialize)]
            struct CompactionArguments<'f> {
                summary: Option<&'f str>,
            }
            let arguments = CompactionArguments { summary: folding.summary.as_deref() };
            template_fragment(
                "standing",
                fill_template(include_str!("../prompts/chat/standing.md"), &arguments),
                "what was folded",
            )
        }
        _ => RenderedFragment::Omitted("there is nothing of that name".to_owned()),
    }
}

fn folded_thread_arguments(folding: &CompactedMessages) -> impl Serialize {
    #[derive(Serialize)]
    struct FoldedThreadArguments<'f> {
        entries: Vec<FoldedMessage<'f>>,
    }
    let speaker = |speaker: &ChatRole| match speaker {
        ChatRole::User => "User",
        ChatRole::Assistant => "Assistant",
        ChatRole::Tool => "Tool",
        ChatRole::System => "Note",
    };
    let entries = folding.messages.iter();
    FoldedThreadArguments {
        entries: entries.map(|(who, text)| FoldedMessage { speaker: speaker(who), text }).collect(),
    }
}

/// The words of the turn: one message as it stands, several as one text.
fn render_user_message(view: &FlowContext<'_, ()>) -> RenderedFragment {
    let Some(turn) = &view.session.current_turn else { return RenderedFragment::Omitted("no turn runs".to_owned()) };
    match turn.messages.as_slice() {
        [] => RenderedFragment::Omitted("the turn has no message".to_owned()),
        [only] => RenderedFragment::Stored {
            text: only.text,
            source: FragmentSource::Message(only.message),
            why: "what the user said".to_owned(),
        },
        several => {
            let texts: Vec<String> = several.iter().map(|waiting| view.read_text(waiting.text).to_string()).collect();
            RenderedFragment::New {
                text: texts.join("\n\n"),
                source: FragmentSource::Message(several[several.len() - 1].message),
                why: format!("the {} messages that came together", several.len()),
            }
        }
    }
}
