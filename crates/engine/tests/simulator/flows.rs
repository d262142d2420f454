//! The flows that are played: two of those that are shipped and the four miniatures, with rules that the seed makes stricter or laxer.

use std::sync::Arc;

use segue_core::context::Rendered;
use segue_core::event::{CallOpened, PhaseKey, Recorded};
use segue_core::flow::exhibit::Exhibit;
use segue_core::flow::{Asking, FlowSpec, FlowState, Retries, Rules, Sight, Step, Telling, UnknownPolicy};
use segue_core::ids::FragmentName;
use segue_core::phase::guard::Verdict;
use segue_core::prompt::Prompt;
use segue_testkit::miniatures::{Concierge, Nodes, Project, Team};
use serde_json::Value;

use crate::dice::Dice;

/// The names of the flows.
pub const FLOWS: [&str; 6] = ["chat", "concierge", "mini-concierge", "mini-nodes", "mini-project", "mini-team"];

/// A flow whose roles have other limits and policies than it was written with.
pub struct Tuned {
    inner: Arc<dyn Rules>,
    spec: FlowSpec,
}

/// The flow of that name, tuned.
pub fn tuned(name: &str, mut dice: Dice) -> Arc<dyn Rules> {
    let inner: Arc<dyn Rules> = match name {
        "chat" => Arc::new(segue_flows::chat::Chat::new()),
        "concierge" => Arc::new(segue_flows::concierge::Concierge::new()),
        "mini-concierge" => Arc::new(Concierge::new()),
        "mini-nodes" => Arc::new(Nodes::new()),
        "mini-project" => Arc::new(Project::new()),
        _ => Arc::new(Team::new()),
    };
    let mut spec = inner.spec().clone();
    for role in spec.roles.values_mut() {
        role.timeout_ms = dice.between(500, 8_000);
        role.unknown = *dice.pick(&[
            UnknownPolicy::Retry,
            UnknownPolicy::Retry,
            UnknownPolicy::Retry,
            UnknownPolicy::Ask,
            UnknownPolicy::Fail,
        ]);
        let attempts_max = u32::try_from(dice.between(1, 4)).expect("small");
        role.retries = Retries { attempts_max, backoff_ms: dice.between(10, 600), backoff_ms_max: 2_000 };
    }
    for tool in spec.tools.values_mut() {
        tool.unknown = *dice.pick(&[UnknownPolicy::Retry, UnknownPolicy::Fail]);
    }
    Arc::new(Tuned { inner, spec })
}

impl Rules for Tuned {
    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn unfit(&self, settings: &Value) -> Vec<String> {
        self.inner.unfit(settings)
    }

    fn fresh(&self) -> FlowState {
        self.inner.fresh()
    }

    fn apply(&self, state: &mut FlowState, event: &Recorded) {
        self.inner.apply(state, event);
    }

    fn react(&self, sight: Sight<'_>, event: &Recorded) -> Vec<Step> {
        self.inner.react(sight, event)
    }

    fn fragment(&self, sight: Sight<'_>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        self.inner.fragment(sight, asking, name)
    }

    fn holds(&self, sight: Sight<'_>, phase: &PhaseKey, condition: &str) -> Verdict {
        self.inner.holds(sight, phase, condition)
    }

    fn tell(&self, state: &FlowState, kind: &str, value: &Value) -> Telling {
        self.inner.tell(state, kind, value)
    }

    fn gist(&self, sight: Sight<'_>, call: &CallOpened, answer: &str) -> Option<String> {
        self.inner.gist(sight, call, answer)
    }

    fn exhibits(&self, sight: Sight<'_>) -> Vec<Exhibit> {
        self.inner.exhibits(sight)
    }

    fn rehearse(&self, sight: Sight<'_>, opened: &CallOpened, prompt: &Prompt) -> Option<String> {
        self.inner.rehearse(sight, opened, prompt)
    }

    fn permits(&self, sight: Sight<'_>, command: &str, arguments: &Value) -> Result<(), String> {
        self.inner.permits(sight, command, arguments)
    }

    fn save(&self, state: &FlowState) -> Option<Value> {
        self.inner.save(state)
    }

    fn load(&self, value: Value) -> Option<FlowState> {
        self.inner.load(value)
    }
}
