//! Many models answer, one voice speaks. On the first turn everyone is asked; a fresh mapper writes down which positions
//! the answers take, an exact [`analysis`] says what they amount to, and the concierge, who has read the [`brief`] and
//! nothing else, answers the user. It then goes through three phases (answer, explore, carry out), each with a memory of
//! its own, and only a handover crosses from one to the next.
//!
//! This module wires the parts: it decides which of them an event is for. What a batch comes to is decided in `batch`, what
//! an answer of the concierge means in `reply`, how a turn goes on in `turn`, what each role is shown in `fragments`.

pub mod analysis;
mod batch;
pub mod brief;
mod consent;
mod documents;
mod exhibits;
pub mod facts;
mod fragments;
pub mod leaks;
pub mod map;
mod rehearsal;
mod reply;
pub mod settings;
pub mod spec;
pub mod stance;
pub mod state;
mod telling;
mod turn;
mod wish;
mod words;
mod words_of;
pub mod workflow;

use segue_core::context::Rendered;
use segue_core::event::{CallOpened, Event, Next, Outcome, Recorded};
use segue_core::flow::exhibit::Exhibit;
use segue_core::flow::{Asking, Flow, FlowSpec, Step, Telling, View};
use segue_core::ids::FragmentName;
use segue_core::prompt::Prompt;
use segue_core::signal::BlockNames;
use serde_json::Value;

use facts::Fact;
use settings::Settings;
use spec::{CONCIERGE, EXECUTOR, EXPERT, MAPPER};
use state::Memory;

/// The flow.
#[derive(Debug)]
pub struct Concierge {
    spec: FlowSpec,
    blocks: BlockNames,
}

impl Concierge {
    /// The flow as it is shipped.
    #[must_use]
    pub fn new() -> Self {
        Self { spec: spec::spec(), blocks: spec::blocks() }
    }

    /// A call brought no answer and will not be made again.
    fn missed(&self, view: &View<'_, Memory>, settings: &Settings, call: &CallOpened, why: String) -> Vec<Step> {
        match call.role.as_str() {
            EXPERT => batch::came(view, settings, call, false),
            _ if view.session.turn.is_none() => Vec::new(),
            MAPPER => batch::not_mapped(view, call, why),
            CONCIERGE => reply::missed(self, view, settings, call, why),
            _ => Vec::new(),
        }
    }

    fn learnt(&self, view: &View<'_, Memory>, settings: &Settings, fact: Fact) -> Vec<Step> {
        match fact {
            Fact::BatchSent { .. } | Fact::Overdue { .. } => batch::settled(view, settings),
            Fact::BatchClosed { .. } => batch::closed(view, settings),
            Fact::Silent { .. } => turn::silent(view, settings),
            Fact::Learnt { purpose, known, .. } => turn::learnt(view, settings, purpose, &known),
            _ => Vec::new(),
        }
    }
}

impl Default for Concierge {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for Concierge {
    type State = Memory;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Memory, event: &Recorded) {
        state.fold(event);
    }

    fn react(&self, view: &View<'_, Memory>, event: &Recorded) -> Vec<Step> {
        let (settings, complaints) = Settings::read(&self.spec.settings, &view.session.settings);
        let settings = &settings;
        match (&event.event, view.about.call.as_deref()) {
            (Event::SessionOpened(_), _) if !complaints.is_empty() => vec![Fact::Settings { complaints }.note()],
            (Event::TurnStarted { again, .. }, _) => turn::began(view, settings, again.is_some()),
            (Event::CallOpened(opened), _) if opened.role == *EXPERT => batch::opened(view, settings, opened),
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                EXPERT => batch::came(view, settings, call, true),
                MAPPER => batch::mapped(view, settings, call, answered),
                CONCIERGE => reply::answered(self, view, settings, call, answered),
                _ => Vec::new(),
            },
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, Some(call)) => {
                self.missed(view, settings, call, failure.to_string())
            }
            (
                Event::CallUnknown { next: Next::GiveUp, .. } | Event::CallResolved { next: Next::GiveUp, .. },
                Some(call),
            ) => self.missed(view, settings, call, "the answer was lost when the process died".to_owned()),
            (Event::CallCancelled { .. }, Some(call)) if call.role == *EXPERT => {
                batch::came(view, settings, call, false)
            }
            (Event::TimerFired { name, .. }, _) => batch::timer_fired(view, name),
            (Event::PhaseEntered(entered), _) => turn::entered(view, settings, entered),
            (Event::PhaseRefused(refused), _)
                if refused.phase == spec::phase_key()
                    && refused.refusal.to == *EXECUTOR
                    && view.about.turn.is_some()
                    && view.session.turn.is_some() =>
            {
                vec![Step::EndTurn(Outcome::Failed { reason: refused.refusal.to_string() })]
            }
            (event, _) => Fact::of(event).map(|fact| self.learnt(view, settings, fact)).unwrap_or_default(),
        }
    }

    fn fragment(&self, view: &View<'_, Memory>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        fragments::rendered(view, asking, name.as_str(), &self.spec.settings)
    }

    fn tell(&self, state: &Memory, kind: &str, value: &Value) -> Telling {
        telling::told(state, kind, value)
    }

    fn gist(&self, view: &View<'_, Memory>, call: &CallOpened, answer: &str) -> Option<String> {
        match call.role.as_str() {
            MAPPER => Some(telling::map_in_words(view.state, answer)),
            CONCIERGE => telling::reply_in_words(answer, &self.blocks),
            _ => None,
        }
    }

    fn exhibits(&self, view: &View<'_, Memory>) -> Vec<Exhibit> {
        exhibits::on_show(view)
    }

    fn rehearse(&self, view: &View<'_, Memory>, call: &CallOpened, prompt: &Prompt) -> Option<String> {
        rehearsal::hint(view, call, prompt)
    }
}
