//! Renders a phase graph as a Mermaid state diagram. The same graph and state give the same text.

use std::fmt::Write;

use super::state::PhaseGraphState;
use super::{PhaseEntryGate, PhaseGraph, PhaseLimit};
use crate::ids::PhaseName;

/// Renders the graph as `stateDiagram-v2`. With a state, the current phase and open gates are marked.
#[must_use]
pub fn render_mermaid(graph: &PhaseGraph, state: Option<&PhaseGraphState>) -> String {
    let mut writer = PhaseGraphMermaidWriter { graph, text: String::from("stateDiagram-v2\n") };
    for (index, phase) in graph.phases.iter().enumerate() {
        writer.push_line(&format!("state \"{}\" as p{index}", escape_mermaid(phase.name.as_str())));
    }
    if let Some(start) = writer.node_id(&graph.start) {
        writer.push_line(&format!("[*] --> {start}"));
    }
    for edge in &graph.edges {
        let label = if edge.guard.is_always_met() { String::new() } else { edge.guard.to_string() };
        writer.push_arrow(&edge.from, &edge.to, &label);
    }
    for phase in &graph.phases {
        if let Some(limit) = &phase.limit {
            writer.push_arrow(&phase.name, &limit.exit, &format!("┄ {} ┄", format_limit(limit)));
        }
    }
    for (index, _) in graph.phases.iter().enumerate().filter(|(_, phase)| phase.is_terminal()) {
        writer.push_line(&format!("p{index} --> [*]"));
    }
    for (index, phase) in graph.phases.iter().enumerate() {
        // Mermaid replaces an earlier note on the same phase, so all gates share one note.
        let gates = graph.gates.iter().filter(|gate| gate.opened_by == phase.name);
        let notes: Vec<String> = gates.map(|gate| format_gate_note(graph, gate, state)).collect();
        if !notes.is_empty() {
            writer.push_line(&format!("note right of p{index} : {}", notes.join("<br/>")));
        }
    }
    if let Some(current) = state.and_then(|state| writer.node_id(&state.current)) {
        writer.push_line("classDef current fill:gold,stroke:black,stroke-width:3px");
        writer.push_line(&format!("class {current} current"));
    }
    writer.text
}

struct PhaseGraphMermaidWriter<'g> {
    graph: &'g PhaseGraph,
    text: String,
}

impl PhaseGraphMermaidWriter<'_> {
    fn push_line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").expect("writing to a string cannot fail");
    }

    fn push_arrow(&mut self, from: &PhaseName, to: &PhaseName, label: &str) {
        let (Some(from), Some(to)) = (self.node_id(from), self.node_id(to)) else { return };
        let label = if label.is_empty() { String::new() } else { format!(" : {}", escape_mermaid(label)) };
        self.push_line(&format!("{from} --> {to}{label}"));
    }

    fn node_id(&self, phase: &PhaseName) -> Option<String> {
        self.graph.phases.iter().position(|other| other.name == *phase).map(|index| format!("p{index}"))
    }
}

fn format_gate_note(graph: &PhaseGraph, gate: &PhaseEntryGate, state: Option<&PhaseGraphState>) -> String {
    let blocked: Vec<&str> =
        graph.phases.iter().filter(|phase| gate.blocks_phase(phase)).map(|phase| phase.name.as_str()).collect();
    let open = if state.is_some_and(|state| state.open_gates.contains(&gate.name)) { " (open)" } else { "" };
    let evidence = gate.condition.as_ref().map_or_else(String::new, |condition| format!(" with {condition}"));
    let needed = format!("{}{evidence} before {}", gate.satisfied_by, blocked.join(", "));
    escape_mermaid(&format!("gate {}{open}, {needed}", gate.name))
}

fn format_limit(limit: &PhaseLimit) -> String {
    let count = |number: u32, unit: &str| format!("{number} {unit}{}", if number == 1 { "" } else { "s" });
    let turns = limit.turns_max.map(|turns| count(turns, "turn"));
    let rounds = limit.rounds_max.map(|rounds| count(rounds, "round"));
    let bounds: Vec<String> = turns.into_iter().chain(rounds).chain(limit.ms_max.map(format_duration_ms)).collect();
    format!("after {}", bounds.join(" or "))
}

/// Formats a duration in words.
pub(crate) fn format_duration_ms(ms: u64) -> String {
    match ms {
        ms if ms > 0 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms > 0 && ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// Escapes everything that Mermaid could take for syntax.
fn escape_mermaid(text: &str) -> String {
    // Mermaid takes a line that contains `direction LR` for a setting.
    let plain = if text.to_lowercase().contains("direction") { "-_.,()┄" } else { " -_.,()┄" };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if c.is_alphanumeric() || plain.contains(c) {
            out.push(c);
        } else {
            write!(out, "#{};", u32::from(c)).expect("writing to a string cannot fail");
        }
    }
    out
}
