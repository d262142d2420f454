//! `segue flows new`, `check`, `show` and `schema`: flows in files.

use std::path::Path;

use anyhow::{Context, bail};
use segue_core::flow::{DynFlow, FlowSpec};
use segue_core::phase::{PhaseGraph, PhaseKind, PhaseSpec};
use segue_flows::limits::DEFINITION_BYTES_MAX;
use segue_flows::project::definition::{FLOW_FILE_SCHEMA, FlowDefinition, FlowDefinitionErrors, starter_definition};
use segue_flows::project::{PROJECT_DEFINITION, ProjectFlow};
use serde_json::json;

use super::listed_tools::{McpServerAccess, check_listed_tools};
use crate::cli::{FlowsSubcommand, GlobalArgs};
use crate::config::REPLACEABLE_FLOW;
use crate::print;
use crate::setup::{self, ConfigWithStorePath};
use crate::suggest::suggestion_hint;

/// The ending by which a flow file is recognised.
const FLOW_FILE_EXTENSION: &str = ".toml";

pub(super) async fn run_flows_action(global: &GlobalArgs, action: FlowsSubcommand) -> anyhow::Result<()> {
    match action {
        FlowsSubcommand::New { name, file } => {
            let file = file.unwrap_or_else(|| format!("{name}{FLOW_FILE_EXTENSION}").into());
            write_starter(&name, &file)
        }
        FlowsSubcommand::Check { file } => check_file(global, &file).await,
        FlowsSubcommand::Show { flow, mermaid } => show_flow(global, &flow, mermaid),
        FlowsSubcommand::Schema => print::write_stdout(FLOW_FILE_SCHEMA),
    }
}

fn write_starter(name: &str, file: &Path) -> anyhow::Result<()> {
    // The built-in flow is what users change to give its agents other tools, phases or checks.
    let text = if name == REPLACEABLE_FLOW { PROJECT_DEFINITION.to_owned() } else { starter_definition(name) };
    if let Err(errors) = FlowDefinition::parse(&text) {
        let first = errors.errors.first().map(|error| error.message.clone()).unwrap_or_default();
        bail!("cannot use this name: {first}");
    }
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).open(file);
    let mut opened = opened.with_context(|| format!("cannot create {}", file.display()))?;
    std::io::Write::write_all(&mut opened, text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    let shown = file.display();
    print::write_stdout(&format!(
        "wrote {shown}\n\nadd it to segue.toml:\n\n  [flows.{name}]\n  file = \"{shown}\"\n\nthen try `segue flows show {shown}` and `segue chat --flow {name}`\n"
    ))
}

fn read_flow_file(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    if bytes > DEFINITION_BYTES_MAX as u64 {
        bail!("{} has {bytes} bytes; at most {DEFINITION_BYTES_MAX} are allowed", file.display());
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn load_flow_file(file: &Path) -> anyhow::Result<ProjectFlow> {
    let source = read_flow_file(file)?;
    ProjectFlow::from_source(&source).map_err(|errors| flow_file_error(file, &errors))
}

fn flow_file_error(file: &Path, errors: &FlowDefinitionErrors) -> anyhow::Error {
    let count = errors.errors.len();
    let mistakes = if count == 1 { "1 mistake".to_owned() } else { format!("{count} mistakes") };
    anyhow::anyhow!("{mistakes} in the flow file\n{}", errors.render_with_file_name(&file.display().to_string()))
}

/// Checks a flow file, and the tools of MCP servers that it lists.
async fn check_file(global: &GlobalArgs, file: &Path) -> anyhow::Result<()> {
    let source = read_flow_file(file)?;
    let definition = FlowDefinition::parse(&source);
    let (errors, unchecked) = match &definition {
        Ok(_) if FlowDefinition::locate_mcp_tools(&source).is_empty() => Default::default(),
        Ok(_) => {
            let ConfigWithStorePath { config, folder_trust, .. } = setup::load_config(global)?;
            let access = match folder_trust.is_none_or(|trust| trust.status.allows_use()) {
                true => McpServerAccess::Allowed,
                false => McpServerAccess::Untrusted,
            };
            let checked = check_listed_tools(&config, &source, access).await;
            (checked.errors, checked.unchecked)
        }
        Err(errors) => (errors.clone(), Vec::new()),
    };
    if global.json {
        let found = errors
            .errors
            .iter()
            .map(|error| json!({"line": error.line, "column": error.column, "message": error.message}));
        let (found, is_valid): (Vec<serde_json::Value>, bool) = (found.collect(), errors.errors.is_empty());
        print::print_json(&json!({"file": file, "valid": is_valid, "errors": found, "unchecked": unchecked}))?;
        return if is_valid { Ok(()) } else { Err(crate::SilentExit(1).into()) };
    }
    let definition = match definition {
        Ok(definition) if errors.errors.is_empty() => definition,
        _ => return Err(flow_file_error(file, &errors)),
    };
    for reason in &unchecked {
        print::write_stderr_line(&format!("not checked: {}", print::text::to_single_line(reason)));
    }
    print::write_stdout(&format!(
        "{}: flow `{}` is valid: {} phases, {} agents, {} gates\n",
        file.display(),
        definition.name,
        definition.phases.len(),
        definition.agents.len(),
        definition.gates.len()
    ))
}

fn show_flow(global: &GlobalArgs, flow: &str, mermaid: bool) -> anyhow::Result<()> {
    if flow.ends_with(FLOW_FILE_EXTENSION) {
        let loaded = load_flow_file(Path::new(flow))?;
        return print_graphs(DynFlow::spec(&loaded), mermaid);
    }
    let flows = setup::available_flows(global)?;
    match flows.iter().find(|known| known.spec().name == flow) {
        Some(found) => print_graphs(found.spec(), mermaid),
        None => {
            let known = flows.iter().map(|flow| flow.spec().name.as_str());
            bail!("there is no flow `{flow}`{}; or name a file that ends in .toml", suggestion_hint(flow, known))
        }
    }
}

fn print_graphs(spec: &FlowSpec, mermaid: bool) -> anyhow::Result<()> {
    if mermaid {
        return print::write_stdout(&super::draw_phase_graphs(spec)?);
    }
    if spec.graphs.is_empty() {
        bail!("flow `{}` has no phase graph", spec.name);
    }
    let graphs: Vec<String> = spec.graphs.values().map(draw_graph).collect();
    print::write_stdout(&format!("{}  {}\n\n{}", spec.name, spec.description, graphs.join("\n")))
}

/// Draws a phase graph as text: each phase with its agents, the phases that may follow, and its limit; then the gates.
fn draw_graph(graph: &PhaseGraph) -> String {
    let mut out = String::new();
    for phase in &graph.phases {
        out.push_str(&draw_phase(graph, phase));
    }
    for gate in &graph.gates {
        let blocked: Vec<&str> = gate.blocks.iter().map(|phase| phase.as_str()).chain(["every end"]).collect();
        let evidence = gate.condition.as_ref().map(|condition| format!(" with {condition}")).unwrap_or_default();
        out.push_str(&format!(
            "gate {}: after {}, {} must wait until {} was left{evidence}\n",
            gate.name,
            gate.opened_by,
            blocked.join(" and "),
            gate.satisfied_by
        ));
    }
    out
}

fn draw_phase(graph: &PhaseGraph, phase: &PhaseSpec) -> String {
    let mark = match phase.kind {
        PhaseKind::Work if phase.name == graph.start => "▶",
        PhaseKind::Work => "○",
        PhaseKind::End | PhaseKind::Failure => "■",
    };
    let agents: Vec<&str> = phase.agents.iter().map(|agent| agent.as_str()).collect();
    let agents = if agents.is_empty() { String::new() } else { format!("  ({})", agents.join(", ")) };
    let mut out = format!("{mark} {}{agents}\n", phase.name);
    if !phase.purpose.is_empty() {
        out.push_str(&format!("    {}\n", phase.purpose));
    }
    for edge in graph.edges.iter().filter(|edge| edge.from == phase.name) {
        let guard = match edge.guard.to_string().as_str() {
            "always" => String::new(),
            guard => format!("  when {guard}"),
        };
        out.push_str(&format!("    ├─▶ {}{guard}\n", edge.to));
    }
    if let Some(limit) = &phase.limit {
        let rounds = limit.rounds_max.map(|rounds| format!("{rounds} rounds"));
        let minutes = limit.ms_max.map(|ms| format!("{} minutes", ms / 60_000));
        let most: Vec<String> = rounds.into_iter().chain(minutes).collect();
        out.push_str(&format!("    └┄▶ {}  after {}\n", limit.exit, most.join(" or ")));
    }
    out.push('\n');
    out
}
