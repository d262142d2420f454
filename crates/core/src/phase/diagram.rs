//! A graph as a Mermaid state diagram, drawn from the data alone. The same graph and state give the same text.

use std::fmt::Write;

use super::state::PhaseState;
use super::{Gate, PhaseGraph, PhaseLimit};
use crate::ids::PhaseName;

/// The graph as `stateDiagram-v2`. With a state, its phase is marked and so are its open gates.
#[must_use]
pub fn mermaid(graph: &PhaseGraph, state: Option<&PhaseState>) -> String {
    let mut drawing = Drawing { graph, text: String::from("stateDiagram-v2\n") };
    for (place, phase) in graph.phases.iter().enumerate() {
        drawing.line(&format!("state \"{}\" as p{place}", escaped(phase.name.as_str())));
    }
    if let Some(start) = drawing.node(&graph.start) {
        drawing.line(&format!("[*] --> {start}"));
    }
    for edge in &graph.edges {
        let label = if edge.guard.is_always() { String::new() } else { edge.guard.to_string() };
        drawing.arrow(&edge.from, &edge.to, &label);
    }
    for phase in &graph.phases {
        if let Some(limit) = &phase.limit {
            drawing.arrow(&phase.name, &limit.exit, &format!("┄ {} ┄", after(limit)));
        }
    }
    for (place, _) in graph.phases.iter().enumerate().filter(|(_, phase)| phase.is_terminal()) {
        drawing.line(&format!("p{place} --> [*]"));
    }
    for (place, phase) in graph.phases.iter().enumerate() {
        // A later note on the same phase would replace the earlier one, so all its gates share one.
        let gates = graph.gates.iter().filter(|gate| gate.opened_by == phase.name);
        let notes: Vec<String> = gates.map(|gate| note(graph, gate, state)).collect();
        if !notes.is_empty() {
            drawing.line(&format!("note right of p{place} : {}", notes.join("<br/>")));
        }
    }
    if let Some(current) = state.and_then(|state| drawing.node(&state.current)) {
        drawing.line("classDef current fill:gold,stroke:black,stroke-width:3px");
        drawing.line(&format!("class {current} current"));
    }
    drawing.text
}

struct Drawing<'g> {
    graph: &'g PhaseGraph,
    text: String,
}

impl Drawing<'_> {
    fn line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").expect("writing to a string cannot fail");
    }

    fn arrow(&mut self, from: &PhaseName, to: &PhaseName, label: &str) {
        let (Some(from), Some(to)) = (self.node(from), self.node(to)) else { return };
        let label = if label.is_empty() { String::new() } else { format!(" : {}", escaped(label)) };
        self.line(&format!("{from} --> {to}{label}"));
    }

    fn node(&self, phase: &PhaseName) -> Option<String> {
        self.graph.phases.iter().position(|other| other.name == *phase).map(|place| format!("p{place}"))
    }
}

fn note(graph: &PhaseGraph, gate: &Gate, state: Option<&PhaseState>) -> String {
    let barred: Vec<&str> =
        graph.phases.iter().filter(|phase| gate.bars(phase)).map(|phase| phase.name.as_str()).collect();
    let open = if state.is_some_and(|state| state.open_gates.contains(&gate.name)) { " (open)" } else { "" };
    escaped(&format!("gate {}{open}, {} before {}", gate.name, gate.satisfied_by, barred.join(", ")))
}

fn after(limit: &PhaseLimit) -> String {
    let turns = limit.turns_max.map(|turns| if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") });
    let bounds: Vec<String> = turns.into_iter().chain(limit.ms_max.map(span)).collect();
    format!("after {}", bounds.join(" or "))
}

/// A time in words.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        ms if ms > 0 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms > 0 && ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// Text that Mermaid takes for nothing but text: everything that could be syntax becomes a character code.
fn escaped(text: &str) -> String {
    // Mermaid takes a whole line that says `direction LR` for a setting, wherever in the line it stands.
    let plain = if text.to_lowercase().contains("direction") { "-_.,()┄" } else { " -_.,()┄" };
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let letter = if letter.is_control() { ' ' } else { letter };
        if letter.is_alphanumeric() || plain.contains(letter) {
            out.push(letter);
        } else {
            write!(out, "#{};", u32::from(letter)).expect("writing to a string cannot fail");
        }
    }
    out
}
