//! Decides what happens next in a conversation, and what a model is sent.
//!
//! This crate is the pure core of Segue: it performs no I/O, reads no clock, uses no randomness and contains no texts
//! for models. Time, ids, token counts and stored texts are arguments; events and prompts are results.
//!
//! - [`flow::Flow`] defines the rules of one kind of conversation: its roles, and how it reacts to events.
//! - [`decide::decide`] computes the [events](event::Event) that follow from an [input](decide::SessionInput).
//! - [`session::SessionState`] is the state that results from applying events in order.
//! - [`session::UnloadedPrompt`] rebuilds the exact prompt of any call.
//! - [`scope`] chooses the thread of a call, [`context`] builds its prompt, [`phase`] rules on phase transitions,
//!   [`handover`] checks documents between scopes, and [`signal`] parses the blocks in a model's reply.
//!
//! # Example
//!
//! A flow with one role. The example opens a session, decides on a message, and rebuilds the state from the events.
//!
//! ```
//! use std::sync::Arc;
//!
//! use segue_core::body::BodyId;
//! use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment, TokenCounter};
//! use segue_core::decide::{
//!     ChildSessionValidator, DecisionEnv, EffectDispatchMode, RoleModelResolver, SessionInput, decide,
//! };
//! use segue_core::event::{CallRequest, Event, RecordedEvent, SessionOpened, TurnOutcome};
//! use segue_core::flow::{
//!     BodyTextLookup, Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, NewOrStoredReplyText, RoleSpec,
//! };
//! use segue_core::ids::{FlowName, FragmentName, ModelName, PhaseName, RoleName, UnixMillis};
//! use segue_core::scope::Scope;
//! use segue_core::session::{Effect, SessionState};
//!
//! struct Chat(FlowSpec);
//!
//! impl Flow for Chat {
//!     type State = ();
//!
//!     fn spec(&self) -> &FlowSpec {
//!         &self.0
//!     }
//!
//!     // Each turn calls the assistant; its answer is sent to the user and ends the turn.
//!     fn react(&self, _: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
//!         match &event.event {
//!             Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("assistant", "reply"))],
//!             Event::CallAnswered(answered) => {
//!                 let text = NewOrStoredReplyText::Stored(answered.text);
//!                 vec![
//!                     FlowStep::Reply { text, role: None, call: Some(answered.call) },
//!                     FlowStep::EndTurn(TurnOutcome::Done),
//!                 ]
//!             }
//!             _ => Vec::new(),
//!         }
//!     }
//!
//!     fn render_fragment(
//!         &self,
//!         context: &FlowContext<'_, ()>,
//!         _: &FragmentRenderContext<'_>,
//!         _: &FragmentName,
//!     ) -> RenderedFragment {
//!         let turn = context.session.current_turn.as_ref().expect("calls are only made in turns");
//!         let message = &turn.messages[0];
//!         let source = FragmentSource::Message(message.message);
//!         RenderedFragment::Stored { text: message.text, source, why: "the user's message".into() }
//!     }
//! }
//!
//! // The caller provides everything that is not pure: a token counter, stored texts, and the configured models.
//! struct Outside;
//!
//! impl TokenCounter for Outside {
//!     fn count_tokens(&self, text: &str) -> u32 {
//!         text.split_whitespace().count() as u32
//!     }
//! }
//! impl BodyTextLookup for Outside {
//!     fn find_text(&self, _: BodyId) -> Option<Arc<str>> {
//!         None
//!     }
//! }
//! impl RoleModelResolver for Outside {
//!     fn model_for_role(&self, _: &FlowName, _: &RoleName, _: Option<&PhaseName>) -> ModelName {
//!         "small".into()
//!     }
//!     fn context_window_tokens(&self, _: &ModelName) -> u32 {
//!         8_000
//!     }
//! }
//!
//! impl ChildSessionValidator for Outside {
//!     fn check_child(&self, flow: &FlowName, _: &serde_json::Value) -> Result<(), String> {
//!         Err(format!("there is no flow `{flow}`"))
//!     }
//! }
//!
//! let message = FragmentSpec::changing("message", FragmentContentKind::UserWords);
//! let assistant = RoleSpec::new("assistant", Scope::per_session()).with_ask("reply", [message]);
//! let flow = Chat(FlowSpec::new("chat", "one role answers").with_role(assistant));
//! let env = DecisionEnv {
//!     now: UnixMillis(0),
//!     random: 0,
//!     token_counter: &Outside,
//!     texts: &Outside,
//!     model_selector: &Outside,
//!     child_checker: &Outside,
//!     approval_rules: &Default::default(),
//!     dispatch: EffectDispatchMode::Immediate,
//!     flow_error: None,
//! };
//!
//! // Open a session, then decide on a message.
//! let opened = SessionOpened {
//!     format: segue_core::codec::EVENT_FORMAT,
//!     session: "example".into(),
//!     flow: "chat".into(),
//!     flow_definition: None,
//!     title: Some("Example".into()),
//!     mid_turn_policy: Default::default(),
//!     settings: serde_json::Value::Null,
//!     model_overrides: Default::default(),
//!     child_origin: None,
//! };
//! let first = decide(&flow, &SessionState::new(&flow), SessionInput::Open(opened), env).expect("it is not open yet");
//! let hello = SessionInput::Message {
//!     text: "hello".into(),
//!     idempotency_key: None,
//!     mid_turn_policy: None,
//!     images: Vec::new(),
//! };
//! let second = decide(&flow, &first.state, hello, env).expect("the session is open");
//! assert!(matches!(
//!     second.events.iter().map(|recorded| &recorded.event).collect::<Vec<_>>()[..],
//!     [Event::UserMessageReceived(_), Event::TurnStarted { .. }, Event::CallOpened(_)]
//! ));
//!
//! // Applying the events gives the same state again, with one pending effect: the model call.
//! let state = SessionState::fold(&flow, first.events.iter().chain(&second.events));
//! assert_eq!(state.session, second.state.session);
//! assert!(matches!(state.session.pending_effects(Flow::spec(&flow))[..], [Effect::CallModel { .. }]));
//! ```

pub mod body;
pub mod codec;
pub mod context;
pub mod decide;
pub mod event;
pub mod flow;
pub mod handover;
pub mod ids;
pub mod limits;
pub mod phase;
pub mod prompt;
pub mod scope;
pub mod session;
pub mod signal;
mod token_ratio;
pub mod tool;
