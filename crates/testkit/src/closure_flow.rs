//! A flow for tests, with roles from the test, reactions from a closure, and simple texts for every fragment.

use segue_core::context::{FragmentContentKind, FragmentRetention, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{CallRequest, Event, PhaseGraphKey, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{
    Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, NewOrStoredReplyText, RoleSpec, SummarizerRole,
};
use segue_core::ids::FragmentName;
use segue_core::phase::PhaseConditionVerdict;
use segue_core::scope::Scope;

type ReactFn = Box<dyn Fn(&FlowContext<'_, ()>, &RecordedEvent) -> Vec<FlowStep> + Send + Sync>;

type ConditionFn = Box<dyn Fn(&FlowContext<'_, ()>, &PhaseGraphKey, &str) -> PhaseConditionVerdict + Send + Sync>;

/// A flow whose reactions are a closure of the test.
pub struct ClosureFlow {
    spec: FlowSpec,
    react: ReactFn,
    conditions: Option<ConditionFn>,
}

impl std::fmt::Debug for ClosureFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClosureFlow").field("spec", &self.spec.name).finish_non_exhaustive()
    }
}

impl ClosureFlow {
    /// Creates a flow with this data and these reactions.
    #[must_use]
    pub fn new(
        spec: FlowSpec,
        react: impl Fn(&FlowContext<'_, ()>, &RecordedEvent) -> Vec<FlowStep> + Send + Sync + 'static,
    ) -> Self {
        Self { spec, react: Box::new(react), conditions: None }
    }

    /// Evaluates the conditions of guards and gates with a closure. Without one, no condition holds.
    #[must_use]
    pub fn with_conditions(
        mut self,
        evaluate: impl Fn(&FlowContext<'_, ()>, &PhaseGraphKey, &str) -> PhaseConditionVerdict + Send + Sync + 'static,
    ) -> Self {
        self.conditions = Some(Box::new(evaluate));
        self
    }

    /// Creates a flow in which one role, `speaker`, answers each turn.
    #[must_use]
    pub fn single_speaker(speaker: RoleSpec) -> Self {
        Self::new(Self::spec_with_role(speaker), Self::react_as_chat)
    }

    /// Returns flow data with one role.
    #[must_use]
    pub fn spec_with_role(role: RoleSpec) -> FlowSpec {
        FlowSpec::new("puppet", "reacts as a test specifies").with_role(role)
    }

    /// Returns a role with an instruction and three asks: `reply` contains the user's message, `note` and `pin` the
    /// metadata of the request.
    #[must_use]
    pub fn test_role(name: &str, scope: Scope) -> RoleSpec {
        RoleSpec::new(name, scope)
            .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
            .with_ask("reply", [FragmentSpec::changing("message", FragmentContentKind::UserWords)])
            .with_ask("note", [FragmentSpec::changing("note", FragmentContentKind::Task)])
            .with_ask(
                "pin",
                [FragmentSpec::changing("note", FragmentContentKind::Task).with_retention(FragmentRetention::Pinned)],
            )
    }

    /// Returns the role `speaker` with one thread for the session.
    #[must_use]
    pub fn speaker_role() -> RoleSpec {
        Self::test_role("speaker", Scope::per_session())
    }

    /// Returns a role that writes summaries, and the summarizer that uses it.
    #[must_use]
    pub fn summarizer_role() -> (RoleSpec, SummarizerRole) {
        let scribe = RoleSpec::new("scribe", Scope::Fresh)
            .with_ask("fold", [FragmentSpec::changing("folded", FragmentContentKind::Task)]);
        (scribe, SummarizerRole { role: "scribe".into(), ask: "fold".into() })
    }

    /// Reacts like a chat: each turn calls the speaker; its answer is sent and ends the turn, and so does its failure.
    #[must_use]
    pub fn react_as_chat(view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        let failed = |reason: String| vec![FlowStep::EndTurn(TurnOutcome::Failed { reason })];
        match &event.event {
            Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
            Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
                let call = view.subject.call.as_ref().map(|call| call.call);
                let text = NewOrStoredReplyText::Stored(answered.text);
                vec![FlowStep::Reply { text, role: Some("speaker".into()), call }, FlowStep::EndTurn(TurnOutcome::Done)]
            }
            Event::CallFailed { next: RetryDecision::GiveUp, failure, .. } => failed(failure.to_string()),
            Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { next: RetryDecision::GiveUp, .. } => failed("its outcome is unknown".to_owned()),
            _ => Vec::new(),
        }
    }
}

impl Flow for ClosureFlow {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        (self.react)(view, event)
    }

    fn evaluate_condition(
        &self,
        view: &FlowContext<'_, ()>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        match &self.conditions {
            Some(evaluate) => evaluate(view, phase, condition),
            None => PhaseConditionVerdict::Fails("the test evaluates no conditions".to_owned()),
        }
    }

    fn check_command(
        &self,
        _view: &FlowContext<'_, ()>,
        _command: &str,
        _arguments: &serde_json::Value,
    ) -> Result<(), String> {
        Ok(())
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let new = |text: String| RenderedFragment::New {
            text,
            source: FragmentSource::State,
            why: "as the test wants".into(),
        };
        match name.as_str() {
            "instruction" => new(format!("be {}", request.call_request.role)),
            "message" => {
                let Some(turn) = &view.session.current_turn else {
                    return RenderedFragment::Omitted("no turn is running".into());
                };
                match turn.messages.as_slice() {
                    [one] => {
                        let source = FragmentSource::Message(one.message);
                        RenderedFragment::Stored { text: one.text, source, why: "the user's message".into() }
                    }
                    several => {
                        let texts: Vec<_> =
                            several.iter().map(|queued| view.read_text(queued.text).to_string()).collect();
                        new(texts.join(" + "))
                    }
                }
            }
            "note" => match &request.call_request.metadata {
                serde_json::Value::String(text) => new(text.clone()),
                other => new(other.to_string()),
            },
            "folded" => {
                let folded = request.compacted.map(|compacted| compacted.messages.as_slice()).unwrap_or_default();
                new(folded.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" | "))
            }
            _ => match request.compacted {
                Some(compacted) => match &compacted.summary {
                    Some(summary) => new(format!("so far: {summary}")),
                    None => new(format!("{} messages were left out", compacted.messages.len())),
                },
                None => RenderedFragment::Omitted("nothing is compacted".into()),
            },
        }
    }
}
