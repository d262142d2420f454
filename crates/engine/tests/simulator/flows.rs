//! The flows that are simulated: three of the built-in flows and the four sample flows, with limits and policies drawn
//! from the seed.

use std::borrow::Cow;
use std::sync::Arc;

use segue_core::context::RenderedFragment;
use segue_core::event::{CallOpened, PhaseGraphKey, RecordedEvent};
use segue_core::flow::{
    DynFlow, DynFlowState, FactDisplay, FlowArtifact, FlowContext, FlowRehearsalReply, FlowSpec, FlowStep,
    FragmentRenderContext, RetryPolicy, UnknownOutcomePolicy,
};
use segue_core::ids::FragmentName;
use segue_core::phase::PhaseConditionVerdict;
use segue_core::prompt::{ModelToolSpec, Prompt};
use segue_testkit::sample_flows::{MiniConciergeFlow, MiniFiveNodeFlow, MiniProjectFlow, MiniTeamFlow};
use serde_json::Value;

use crate::assistant::{ASSISTANT_FLOW, assistant_flow};
use crate::seeded_random::SeededRandom;

/// The names of the flows of the first simulation. The assistant has one of its own.
pub(crate) const FLOWS: [&str; 6] = ["chat", "concierge", "mini-concierge", "mini-nodes", "mini-project", "mini-team"];

/// A flow with changed limits and policies of its roles and tools.
pub(crate) struct TunedFlow {
    inner: Arc<dyn DynFlow>,
    spec: FlowSpec,
}

/// Returns the flow of that name with limits and policies drawn from `random`.
pub(crate) fn tuned_flow(name: &str, mut random: SeededRandom) -> Arc<dyn DynFlow> {
    let inner: Arc<dyn DynFlow> = match name {
        "chat" => Arc::new(segue_flows::chat::ChatFlow::new()),
        "concierge" => Arc::new(segue_flows::concierge::ConciergeFlow::new()),
        "mini-concierge" => Arc::new(MiniConciergeFlow::new()),
        "mini-nodes" => Arc::new(MiniFiveNodeFlow::new()),
        "mini-project" => Arc::new(MiniProjectFlow::new()),
        ASSISTANT_FLOW => assistant_flow(),
        _ => Arc::new(MiniTeamFlow::new()),
    };
    let mut spec = inner.spec().clone();
    for role in spec.roles.values_mut() {
        role.timeout_ms = random.between(500, 8_000);
        role.unknown_outcome = *random.pick(&[
            UnknownOutcomePolicy::Retry,
            UnknownOutcomePolicy::Retry,
            UnknownOutcomePolicy::Retry,
            UnknownOutcomePolicy::AskOperator,
            UnknownOutcomePolicy::Fail,
        ]);
        let attempts_max = u32::try_from(random.between(1, 4)).expect("small");
        role.retry_policy = RetryPolicy { attempts_max, backoff_ms: random.between(10, 600), backoff_ms_max: 2_000 };
    }
    for tool in spec.tools.values_mut() {
        tool.unknown_outcome = *random.pick(&[UnknownOutcomePolicy::Retry, UnknownOutcomePolicy::Fail]);
    }
    Arc::new(TunedFlow { inner, spec })
}

impl DynFlow for TunedFlow {
    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn definition(&self) -> Option<&str> {
        self.inner.definition()
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        self.inner.validate_settings(settings)
    }

    fn initial_state(&self) -> DynFlowState {
        self.inner.initial_state()
    }

    fn apply(&self, state: &mut DynFlowState, event: &RecordedEvent) {
        self.inner.apply(state, event);
    }

    fn react(&self, context: FlowContext<'_, DynFlowState>, event: &RecordedEvent) -> Vec<FlowStep> {
        self.inner.react(context, event)
    }

    fn render_fragment(
        &self,
        context: FlowContext<'_, DynFlowState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        self.inner.render_fragment(context, request, name)
    }

    fn describe_tool<'t>(
        &self,
        context: FlowContext<'_, DynFlowState>,
        declared: &'t ModelToolSpec,
    ) -> Option<Cow<'t, ModelToolSpec>> {
        self.inner.describe_tool(context, declared)
    }

    fn evaluate_condition(
        &self,
        context: FlowContext<'_, DynFlowState>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        self.inner.evaluate_condition(context, phase, condition)
    }

    fn describe_fact(&self, state: &DynFlowState, kind: &str, value: &Value) -> FactDisplay {
        self.inner.describe_fact(state, kind, value)
    }

    fn summarize_answer(
        &self,
        context: FlowContext<'_, DynFlowState>,
        call: &CallOpened,
        answer: &str,
    ) -> Option<String> {
        self.inner.summarize_answer(context, call, answer)
    }

    fn artifacts(&self, context: FlowContext<'_, DynFlowState>) -> Vec<FlowArtifact> {
        self.inner.artifacts(context)
    }

    fn rehearsal_reply(
        &self,
        context: FlowContext<'_, DynFlowState>,
        opened: &CallOpened,
        prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        self.inner.rehearsal_reply(context, opened, prompt)
    }

    fn check_command(
        &self,
        context: FlowContext<'_, DynFlowState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        self.inner.check_command(context, command, arguments)
    }

    fn serialize_state(&self, state: &DynFlowState) -> Option<Value> {
        self.inner.serialize_state(state)
    }

    fn deserialize_state(&self, value: Value) -> Option<DynFlowState> {
        self.inner.deserialize_state(value)
    }
}
