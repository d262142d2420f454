//! A graph as a Mermaid state diagram, drawn from the data alone. The same graph and state give the same text.

use std::fmt::Write;

use super::state::PhaseState;
use super::{PhaseGate, PhaseGraph, PhaseLimit};
use crate::ids::PhaseName;

/// The graph as `stateDiagram-v2`. With a state, its phase is marked and so are its open gates.
#[must_use]
pub fn render_mermaid(graph: &PhaseGraph, state: Option<&PhaseState>) -> String {
    let mut drawing = MermaidWriter { graph, text: String::from("stateDiagram-v2\n") };
    for (place, phase) in graph.phases.iter().enumerate() {
        drawing.push_line(&format!("state \"{}\" as p{place}", escape_mermaid(phase.name.as_str())));
    }
    if let Some(start) = drawing.node_id(&graph.start) {
        drawing.push_line(&format!("[*] --> {start}"));
    }
    for edge in &graph.edges {
        let label = if edge.guard.is_always() { String::new() } else { edge.guard.to_string() };
        drawing.push_arrow(&edge.from, &edge.to, &label);
    }
    for phase in &graph.phases {
        if let Some(limit) = &phase.limit {
            drawing.push_arrow(&phase.name, &limit.exit, &format!("┄ {} ┄", format_limit(limit)));
        }
    }
    for (place, _) in graph.phases.iter().enumerate().filter(|(_, phase)| phase.is_terminal()) {
        drawing.push_line(&format!("p{place} --> [*]"));
    }
    for (place, phase) in graph.phases.iter().enumerate() {
        // A later note on the same phase would replace the earlier one, so all its gates share one.
        let gates = graph.gates.iter().filter(|gate| gate.opened_by == phase.name);
        let notes: Vec<String> = gates.map(|gate| format_gate_note(graph, gate, state)).collect();
        if !notes.is_empty() {
            drawing.push_line(&format!("note right of p{place} : {}", notes.join("<br/>")));
        }
    }
    if let Some(current) = state.and_then(|state| drawing.node_id(&state.current)) {
        drawing.push_line("classDef current fill:gold,stroke:black,stroke-width:3px");
        drawing.push_line(&format!("class {current} current"));
    }
    drawing.text
}

struct MermaidWriter<'g> {
    graph: &'g PhaseGraph,
    text: String,
}

impl MermaidWriter<'_> {
    fn push_line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").expect("writing to a string cannot fail");
    }

    fn push_arrow(&mut self, from: &PhaseName, to: &PhaseName, label: &str) {
        let (Some(from), Some(to)) = (self.node_id(from), self.node_id(to)) else { return };
        let label = if label.is_empty() { String::new() } else { format!(" : {}", escape_mermaid(label)) };
        self.push_line(&format!("{from} --> {to}{label}"));
    }

    fn node_id(&self, phase: &PhaseName) -> Option<String> {
        self.graph.phases.iter().position(|other| other.name == *phase).map(|place| format!("p{place}"))
    }
}

fn format_gate_note(graph: &PhaseGraph, gate: &PhaseGate, state: Option<&PhaseState>) -> String {
    let barred: Vec<&str> =
        graph.phases.iter().filter(|phase| gate.blocks_phase(phase)).map(|phase| phase.name.as_str()).collect();
    let open = if state.is_some_and(|state| state.open_gates.contains(&gate.name)) { " (open)" } else { "" };
    escape_mermaid(&format!("gate {}{open}, {} before {}", gate.name, gate.satisfied_by, barred.join(", ")))
}

fn format_limit(limit: &PhaseLimit) -> String {
    let turns = limit.turns_max.map(|turns| if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") });
    let bounds: Vec<String> = turns.into_iter().chain(limit.ms_max.map(format_duration_ms)).collect();
    format!("after {}", bounds.join(" or "))
}

/// A time in words.
pub(crate) fn format_duration_ms(ms: u64) -> String {
    match ms {
        ms if ms > 0 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms > 0 && ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// Text that Mermaid takes for nothing but text: everything that could be syntax becomes a character code.
fn escape_mermaid(text: &str) -> String {
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
