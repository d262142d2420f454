//! `segue flows`: lists the flows, describes the roles, phases, tools, settings and commands of one, or works on a flow file.

mod flow_file;
mod listed_tools;

use anyhow::bail;
use segue_core::flow::{
    FlowCommandSpec, FlowSettingSpec, FlowSpec, RoleAnswerVisibility, RoleSpec, ToolRunnerKind, UnknownOutcomePolicy,
};
use segue_core::handover::{HandoverFieldPresence, HandoverFieldType};
use segue_core::phase::render_mermaid;
use serde_json::{Value, json};

use crate::cli::{FlowsArgs, GlobalArgs};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities};
use crate::setup;
use crate::suggest::suggestion_hint;

pub(crate) use listed_tools::{McpServerAccess, check_listed_tools};

pub(crate) async fn run_flows(global: &GlobalArgs, arguments: FlowsArgs) -> anyhow::Result<()> {
    if let Some(action) = arguments.action {
        return flow_file::run_flows_action(global, action).await;
    }
    let flows = setup::available_flows(global)?;
    let Some(name) = &arguments.name else {
        let specs: Vec<&FlowSpec> = flows.iter().map(|flow| flow.spec()).collect();
        return print_flow_list(global, &specs);
    };
    let Some(flow) = flows.iter().find(|flow| flow.spec().name == name.as_str()) else {
        bail!("there is no flow `{name}`{}", suggestion_hint(name, flows.iter().map(|flow| flow.spec().name.as_str())));
    };
    let spec = flow.spec();
    if arguments.mermaid {
        return print::write_stdout(&draw_phase_graphs(spec)?);
    }
    if global.json {
        return print::print_json(&flow_json(spec));
    }
    print::write_stdout(&describe_flow(spec, CliOutputCapabilities::for_stdout()))
}

fn print_flow_list(global: &GlobalArgs, specs: &[&FlowSpec]) -> anyhow::Result<()> {
    if global.json {
        return print::print_json(&specs.iter().map(|spec| flow_json(spec)).collect::<Vec<_>>());
    }
    let screen = CliOutputCapabilities::for_stdout();
    let mut table = TextTable::new([
        ("flow", ColumnLayout::Left),
        ("roles", ColumnLayout::Truncate),
        ("description", ColumnLayout::Wrap),
    ]);
    for spec in specs {
        let roles: Vec<&str> = spec.roles.keys().map(|role| role.as_str()).collect();
        table.add_row([spec.name.to_string(), roles.join(", "), spec.description.clone()]);
    }
    print::write_stdout(&table.render(screen.width, screen.paint))
}

/// Renders every phase graph of a flow as a Mermaid diagram.
fn draw_phase_graphs(spec: &FlowSpec) -> anyhow::Result<String> {
    if spec.graphs.is_empty() {
        bail!("flow `{}` has no phase graph", spec.name);
    }
    let drawn: Vec<String> =
        spec.graphs.values().map(|graph| format!("%% {}\n{}", graph.name, render_mermaid(graph, None))).collect();
    Ok(drawn.join("\n"))
}

fn describe_flow(spec: &FlowSpec, screen: CliOutputCapabilities) -> String {
    let paint = screen.paint;
    let mut out = format!("{}  {}\n", paint.bold(&spec.name), spec.description);
    let mut section = |heading: &str, table: TextTable| {
        out.push_str(&format!("\n{}\n{}", paint.bold(heading), table.render(screen.width, paint)));
    };
    let mut roles = TextTable::new([
        ("role", ColumnLayout::Left),
        ("memory", ColumnLayout::Wrap),
        ("recipe", ColumnLayout::Wrap),
        ("visible to", ColumnLayout::Left),
        ("on unknown outcome", ColumnLayout::Wrap),
    ]);
    for role in spec.roles.values() {
        roles.add_row([
            role.name.to_string(),
            role.scope.to_string(),
            describe_recipe(role),
            describe_visibility(role),
            describe_unknown_policy(role.unknown_outcome),
        ]);
    }
    section("Roles", roles);
    if !spec.graphs.is_empty() {
        let mut graphs = TextTable::new([
            ("graph", ColumnLayout::Left),
            ("owner", ColumnLayout::Left),
            ("phase", ColumnLayout::Left),
            ("transitions to", ColumnLayout::Wrap),
        ]);
        for graph in spec.graphs.values() {
            for phase in &graph.phases {
                let edges = graph.edges.iter().filter(|edge| edge.from == phase.name).map(|edge| {
                    match edge.guard.to_string().as_str() {
                        "always" => edge.to.to_string(),
                        guard => format!("{} ({guard})", edge.to),
                    }
                });
                let edges: Vec<String> = edges.collect();
                let owner = format!("{:?}", graph.owner_kind).to_lowercase();
                graphs.add_row([graph.name.to_string(), owner, phase.name.to_string(), edges.join(", ")]);
            }
        }
        section("Phases", graphs);
    }
    if !spec.handovers.is_empty() {
        let mut handovers = TextTable::new([("handover", ColumnLayout::Left), ("fields", ColumnLayout::Wrap)]);
        for schema in spec.handovers.values() {
            let fields = schema.fields.iter().map(|field| {
                let list = if field.field_type == HandoverFieldType::List { " (list)" } else { "" };
                let required = if field.presence == HandoverFieldPresence::Required { " (required)" } else { "" };
                format!("{}{list}{required}", field.name)
            });
            handovers.add_row([schema.kind.to_string(), fields.collect::<Vec<_>>().join(", ")]);
        }
        section("Handovers", handovers);
    }
    if !spec.tools.is_empty() {
        let mut tools = TextTable::new([
            ("tool", ColumnLayout::Left),
            ("run by", ColumnLayout::Left),
            ("description", ColumnLayout::Wrap),
        ]);
        for tool in spec.tools.values() {
            let runner = match tool.runner {
                ToolRunnerKind::Flow => "flow",
                ToolRunnerKind::Host => "host",
            };
            tools.add_row([tool.spec.name.to_string(), runner.to_owned(), tool.spec.description.clone()]);
        }
        section("Tools", tools);
    }
    if !spec.settings.is_empty() {
        let columns =
            [("setting", ColumnLayout::Left), ("default", ColumnLayout::Left), ("description", ColumnLayout::Wrap)];
        let mut settings = TextTable::new(columns);
        for setting in &spec.settings {
            let default = if setting.default.is_null() { String::new() } else { setting.default.to_string() };
            settings.add_row([
                setting.name.clone(),
                default,
                format!("{}: {}", setting.description, setting.value_type),
            ]);
        }
        section("Settings", settings);
    }
    if !spec.commands.is_empty() {
        let columns =
            [("command", ColumnLayout::Left), ("description", ColumnLayout::Wrap), ("arguments", ColumnLayout::Wrap)];
        let mut commands = TextTable::new(columns);
        for (name, command) in &spec.commands {
            let arguments = command.arguments.iter().map(|(name, description)| format!("{name}: {description}"));
            let arguments = arguments.collect::<Vec<_>>().join("; ");
            commands.add_row([name.clone(), command.description.clone(), arguments]);
        }
        section("Commands", commands);
    }
    out
}

fn describe_recipe(role: &RoleSpec) -> String {
    let names = |specs: &[segue_core::context::FragmentSpec]| {
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let asks = role.asks.iter().map(|(ask, specs)| format!("{ask}: {}", names(specs)));
    let opening = format!("opening: {}", names(&role.opening));
    std::iter::once(opening).filter(|_| !role.opening.is_empty()).chain(asks).collect::<Vec<_>>().join("; ")
}

fn describe_visibility(role: &RoleSpec) -> String {
    match role.visibility {
        RoleAnswerVisibility::User { .. } => "user".to_owned(),
        RoleAnswerVisibility::Private => "flow only".to_owned(),
    }
}

fn describe_unknown_policy(policy: UnknownOutcomePolicy) -> String {
    match policy {
        UnknownOutcomePolicy::Retry => "retry",
        UnknownOutcomePolicy::AskOperator => "ask operator",
        UnknownOutcomePolicy::Fail => "fail",
    }
    .to_owned()
}

fn flow_json(spec: &FlowSpec) -> Value {
    let roles = spec.roles.values().map(|role| {
        json!({
            "name": role.name,
            "scope": role.scope,
            "memory": role.scope.to_string(),
            "graph": role.graph,
            "recipe": { "opening": role.opening, "asks": role.asks },
            "tools": role.tools,
            "visible_to_user": matches!(role.visibility, RoleAnswerVisibility::User { .. }),
            "reply_tokens_max": role.reply_tokens_max,
        })
    });
    json!({
        "name": spec.name,
        "about": spec.description,
        "roles": roles.collect::<Vec<_>>(),
        "graphs": spec.graphs.values().collect::<Vec<_>>(),
        "handovers": spec.handovers.values().collect::<Vec<_>>(),
        "tools": spec.tools.values().map(|tool| &tool.spec).collect::<Vec<_>>(),
        "settings": spec.settings.iter().map(setting_json).collect::<Vec<_>>(),
        "commands": spec.commands.iter().map(command_json).collect::<Vec<_>>(),
    })
}

fn command_json((name, command): (&String, &FlowCommandSpec)) -> Value {
    json!({ "name": name, "about": command.description, "arguments": command.arguments })
}

fn setting_json(setting: &FlowSettingSpec) -> Value {
    let FlowSettingSpec { name, value_type, default, description } = setting;
    json!({ "name": name, "takes": value_type.to_string(), "default": default, "about": description })
}
