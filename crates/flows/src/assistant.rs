//! A helper that works with a person's records over many turns. Each turn goes through five nodes: Understand takes the
//! message against what is known, Think decides, Act does the steps, Reply speaks, Summarize remembers. What is remembered
//! has three layers (what exists, what was said, what was decided), and every node is shown its own slice of them.
//!
//! What the records are is a [`domain`], which is data. This module wires the parts: which of them an event is for. How a turn
//! goes on is decided in `turn`, how a step does in `step`, what each node is shown in `context` and `fragments`.

mod answer;
pub mod calendar;
pub mod context;
pub mod conversation;
mod desk;
pub mod domain;
mod exhibits;
pub mod facts;
mod fragments;
pub mod reasoning;
pub mod registry;
mod rehearsal;
mod runs;
pub mod settings;
pub mod spec;
pub mod state;
mod step;
mod telling;
pub mod tools;
mod turn;
mod undo;

use segue_core::context::Rendered;
use segue_core::event::{CallOpened, Event, Next, Recorded};
use segue_core::flow::exhibit::Exhibit;
use segue_core::flow::{Asking, Flow, FlowSpec, Step, Telling, View};
use segue_core::ids::FragmentName;
use segue_core::prompt::Prompt;
use serde_json::Value;

use desk::Desk;
use domain::Domain;
use facts::Fact;
use settings::{Domains, Settings};
use state::Memory;

/// The flow.
#[derive(Debug)]
pub struct Assistant {
    spec: FlowSpec,
    domains: Domains,
}

impl Assistant {
    /// The flow with the domains that come with it.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Domains::new(Domain::shipped()))
    }

    /// The flow with these domains.
    #[must_use]
    pub fn with(domains: Domains) -> Self {
        Self { spec: spec::spec(&domains), domains }
    }

    fn settings(&self, view: &View<'_, Memory>) -> (Settings, Vec<String>) {
        Settings::read(&view.session.settings, &self.domains)
    }

    fn learnt(&self, desk: &Desk<'_>, fact: &Fact) -> Vec<Step> {
        match fact {
            Fact::Planned(_) | Fact::NotPlanned { .. } | Fact::StepEnded(_) => turn::go_on(desk),
            Fact::Summarized(summarized) => turn::fold(desk, summarized),
            _ => Vec::new(),
        }
    }
}

impl Default for Assistant {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for Assistant {
    type State = Memory;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn unfit(&self, settings: &Value) -> Vec<String> {
        Settings::read(settings, &self.domains).1
    }

    fn apply(&self, state: &mut Memory, event: &Recorded) {
        state.fold(event);
    }

    fn react(&self, view: &View<'_, Memory>, event: &Recorded) -> Vec<Step> {
        let (settings, complaints) = self.settings(view);
        if let Event::SessionOpened(_) = &event.event {
            let is_sound = complaints.is_empty();
            return if is_sound { Vec::new() } else { vec![Fact::Settings { complaints }.note()] };
        }
        let Some(domain) = settings.domain.clone() else {
            let why = complaints.first().map_or("there is no domain", String::as_str);
            return if matches!(event.event, Event::TurnStarted { .. }) { turn::no_domain(why) } else { Vec::new() };
        };
        let desk = &Desk { view, settings: &settings, domain: &domain };
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => turn::began(desk),
            (Event::CallAnswered(answered), Some(call)) => turn::answered(desk, call, answered),
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, Some(call)) => {
                turn::missed(desk, call, &failure.to_string())
            }
            (
                Event::CallUnknown { next: Next::GiveUp, .. } | Event::CallResolved { next: Next::GiveUp, .. },
                Some(call),
            ) => turn::missed(desk, call, "the answer was lost when the process died"),
            (Event::ToolAnswered { outcome, text, .. }, _) => {
                let opened = view.about.tool.as_ref();
                opened.map(|opened| runs::tool_ended(desk, opened, *outcome, *text)).unwrap_or_default()
            }
            (Event::Said(said), _) => turn::said(desk, said),
            (Event::TurnEnded { outcome, .. }, _) => turn::ended(desk, outcome),
            (Event::Commanded { command, arguments }, _) if command == spec::UNDO => undo::asked(desk, arguments),
            (event, _) => Fact::of(event).map(|fact| self.learnt(desk, &fact)).unwrap_or_default(),
        }
    }

    fn fragment(&self, view: &View<'_, Memory>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        let (settings, _) = self.settings(view);
        let Some(domain) = settings.domain.clone() else { return Rendered::Out("there is no domain".to_owned()) };
        let desk = &Desk { view, settings: &settings, domain: &domain };
        fragments::rendered(desk, asking, name.as_str())
    }

    fn rehearse(&self, view: &View<'_, Memory>, call: &CallOpened, _prompt: &Prompt) -> Option<String> {
        let (settings, _) = self.settings(view);
        let domain = settings.domain.clone()?;
        rehearsal::hint(&Desk { view, settings: &settings, domain: &domain }, call)
    }

    fn tell(&self, state: &Memory, kind: &str, value: &Value) -> Telling {
        telling::told(state, kind, value)
    }

    fn exhibits(&self, view: &View<'_, Memory>) -> Vec<Exhibit> {
        let (settings, _) = self.settings(view);
        let Some(domain) = settings.domain.clone() else { return Vec::new() };
        exhibits::on_show(&Desk { view, settings: &settings, domain: &domain })
    }

    fn permits(&self, view: &View<'_, Memory>, command: &str, arguments: &Value) -> Result<(), String> {
        if command != spec::UNDO {
            return Err(format!("`{command}` cannot be followed"));
        }
        if view.session.turn.is_some() {
            return Err("a turn is running; wait for its end, or stop it first".to_owned());
        }
        undo::meant(view.state, arguments).map(|_| ())
    }
}
