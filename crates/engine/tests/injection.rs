//! Untrusted text stays data in every flow. Whatever users and models say, in every later prompt it appears only as the
//! message of its author, inside a code fence, or as quoted lines; and it never moves a conversation to another phase.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use segue_core::event::Event;
use segue_core::ids::{Seq, SessionId};
use segue_core::prompt::{ChatRole, Prompt};
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelDescription, ModelRegistry, ModelRequest, RehearsalModel, ReplyChunk,
    ReplyChunkStream, ReplyFinish,
};
use segue_store::memory::InMemoryStore;
use segue_testkit::{INJECTION_MARK, injection_corpus, unconfined_injection_lines};

/// The prompts of calls, with the roles that were called.
type SeenPrompts = Vec<(String, Arc<Prompt>)>;

/// Answers like the rehearsal model, except for the roles that others repeat: these answer with a text of the corpus.
#[derive(Debug)]
struct InjectingModel {
    rehearsal: RehearsalModel,
    text: String,
    prompts: Arc<Mutex<SeenPrompts>>,
}

impl LanguageModel for InjectingModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let role = request.metadata.role.to_string();
        let mut prompts = self.prompts.lock().unwrap_or_else(PoisonError::into_inner);
        prompts.push((format!("{role} {}", request.metadata.call), request.prompt.clone()));
        if role == "expert" {
            let text = ReplyChunk::Text(self.text.clone());
            return stream::iter([Ok(text), Ok(ReplyChunk::Finish(ReplyFinish::default()))]).boxed();
        }
        self.rehearsal.stream(request)
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelBackendKind::Rehearsal, label: "injecting".to_owned(), window_tokens: 100_000 }
    }
}

/// The phases that were entered in a conversation, and the prompts that were sent.
struct Conversation {
    phases: Vec<String>,
    prompts: Vec<(String, Arc<Prompt>)>,
}

/// Says `text` in several turns of a flow; models that others repeat say it, too.
async fn hold_conversation(flow: &str, text: &str) -> Conversation {
    let prompts = Arc::new(Mutex::default());
    let model =
        InjectingModel { rehearsal: RehearsalModel::instant(), text: text.to_owned(), prompts: prompts.clone() };
    let models = ModelRegistry::from_single_model(Arc::new(model));
    let store = Arc::new(InMemoryStore::with_own_disk());
    let config = EngineConfig::new(store, segue_flows::built_in_flows(), models, "rehearsal");
    let engine = Engine::start(config).await.expect("it starts");
    let session = engine.open_session(&flow.into(), SessionOptions::default()).await.expect("a session opens");
    for message in ["Should we move to another town?", text, "What do you think about it?", text] {
        engine.send_and_wait(&session, UserMessage::from(message)).await.expect("answered");
    }
    let phases = entered_phases(&engine, &session).await;
    engine.shutdown().await;
    let prompts = prompts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Conversation { phases, prompts }
}

async fn entered_phases(engine: &Engine, session: &SessionId) -> Vec<String> {
    let events = engine.read_events(session, Seq(0), usize::MAX).await.expect("events");
    let phases = events.iter().filter_map(|recorded| match &recorded.event {
        Event::PhaseEntered(entered) => Some(entered.transition.to.to_string()),
        _ => None,
    });
    phases.collect()
}

/// Returns the lines of a prompt in which the injected text is not confined. A message of its author is the text alone.
fn violations(prompt: &Prompt, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for message in prompt.messages.iter() {
        for part in &message.parts {
            let is_authors_message = match message.chat_role {
                ChatRole::User | ChatRole::Tool => part.trim() == text.trim(),
                // A model's own earlier replies.
                ChatRole::Assistant => true,
                ChatRole::System => false,
            };
            if !is_authors_message {
                found.extend(
                    unconfined_injection_lines(part).into_iter().map(|line| format!("{:?}: {line}", message.chat_role)),
                );
            }
        }
    }
    found
}

/// Holds the conversation with each text of the corpus, and checks that the phases are the same as without. Returns the
/// prompts of each text.
async fn check_phases(flow: &str) -> Vec<(&'static str, SeenPrompts)> {
    let baseline = hold_conversation(flow, "We have thought about it, but we are not sure.").await;
    let mut seen = Vec::new();
    for text in injection_corpus() {
        let conversation = hold_conversation(flow, text).await;
        let is_mentioned = |(_, prompt): &(String, Arc<Prompt>)| {
            prompt.messages.iter().any(|message| message.parts.iter().any(|part| part.contains(INJECTION_MARK)))
        };
        assert!(conversation.prompts.iter().any(is_mentioned), "{flow}: the text is in no prompt: {text}");
        assert_eq!(conversation.phases, baseline.phases, "{flow}: the text moved the conversation: {text}");
        seen.push((text, conversation.prompts));
    }
    seen
}

#[tokio::test]
async fn injected_text_stays_data_in_chat() {
    for (text, prompts) in check_phases("chat").await {
        for (call, prompt) in &prompts {
            assert_eq!(violations(prompt, text), Vec::<String>::new(), "{call}: {text}");
        }
    }
}

/// The rehearsal model commits to a plan by the words of a message, so the phases may differ. The prompts may not.
#[tokio::test]
async fn injected_text_stays_data_in_the_prompts_of_the_concierge() {
    for text in injection_corpus() {
        let conversation = hold_conversation("concierge", text).await;
        let fenced = conversation.prompts.iter().filter(|(call, _)| call.starts_with("mapper"));
        assert!(fenced.count() > 0, "the answers of the experts were mapped: {text}");
        // The concierge itself writes what the experts are asked.
        for (call, prompt) in conversation.prompts.iter().filter(|(call, _)| !call.starts_with("expert")) {
            assert_eq!(violations(prompt, text), Vec::<String>::new(), "{call}: {text}");
        }
    }
}
