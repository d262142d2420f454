//! Which kinds of conversation there are, and by what rules each goes.

use anyhow::bail;
use segue_core::flow::settings::SettingSpec;
use segue_core::flow::{Audience, CommandSpec, FlowSpec, RoleSpec, Runs, UnknownPolicy};
use segue_core::handover::{Form, Need};
use segue_core::phase::diagram::mermaid;
use serde_json::{Value, json};

use crate::cli::{Flows, Global};
use crate::print::table::{Column, Table};
use crate::print::{self, Screen};
use crate::setup;
use crate::suggest::hint;

pub fn run(global: &Global, arguments: Flows) -> anyhow::Result<()> {
    let flows = setup::flows(global);
    let Some(name) = &arguments.name else {
        let specs: Vec<&FlowSpec> = flows.iter().map(|rules| rules.spec()).collect();
        return list(global, &specs);
    };
    let Some(rules) = flows.iter().find(|rules| rules.spec().name == name.as_str()) else {
        bail!("there is no flow `{name}`{}", hint(name, flows.iter().map(|rules| rules.spec().name.as_str())));
    };
    let spec = rules.spec();
    if arguments.mermaid {
        return print::out(&diagrams(spec)?);
    }
    if global.json {
        return print::json(&flow_json(spec));
    }
    print::out(&describe(spec, Screen::here()))
}

fn list(global: &Global, specs: &[&FlowSpec]) -> anyhow::Result<()> {
    if global.json {
        return print::json(&specs.iter().map(|spec| flow_json(spec)).collect::<Vec<_>>());
    }
    let screen = Screen::here();
    let mut table = Table::new([("flow", Column::Left), ("roles", Column::Cut), ("what it is", Column::Wrap)]);
    for spec in specs {
        let roles: Vec<&str> = spec.roles.keys().map(|role| role.as_str()).collect();
        table.row([spec.name.to_string(), roles.join(", "), spec.about.clone()]);
    }
    print::out(&table.render(screen.width, screen.paint))
}

/// Every graph of a flow as a diagram.
fn diagrams(spec: &FlowSpec) -> anyhow::Result<String> {
    if spec.graphs.is_empty() {
        bail!("the flow `{}` has no phase graph to draw", spec.name);
    }
    let drawn: Vec<String> =
        spec.graphs.values().map(|graph| format!("%% {}\n{}", graph.name, mermaid(graph, None))).collect();
    Ok(drawn.join("\n"))
}

fn describe(spec: &FlowSpec, screen: Screen) -> String {
    let paint = screen.paint;
    let mut out = format!("{}  {}\n", paint.bold(&spec.name), spec.about);
    let mut section = |heading: &str, table: Table| {
        out.push_str(&format!("\n{}\n{}", paint.bold(heading), table.render(screen.width, paint)));
    };
    let mut roles = Table::new([
        ("role", Column::Left),
        ("memory", Column::Wrap),
        ("shown", Column::Wrap),
        ("heard by", Column::Left),
        ("if in doubt", Column::Left),
    ]);
    for role in spec.roles.values() {
        roles.row([role.name.to_string(), role.scope.words(), shown(role), heard_by(role), doubt(role.unknown)]);
    }
    section("Roles", roles);
    if !spec.graphs.is_empty() {
        let mut graphs = Table::new([
            ("graph", Column::Left),
            ("of", Column::Left),
            ("phase", Column::Left),
            ("leads to", Column::Wrap),
        ]);
        for graph in spec.graphs.values() {
            for phase in &graph.phases {
                let edges = graph.edges_from(&phase.name).map(|edge| match edge.guard.to_string().as_str() {
                    "always" => edge.to.to_string(),
                    guard => format!("{} ({guard})", edge.to),
                });
                let leads: Vec<String> = edges.collect();
                let attached = format!("{:?}", graph.attached).to_lowercase();
                graphs.row([graph.name.to_string(), attached, phase.name.to_string(), leads.join(", ")]);
            }
        }
        section("Phases", graphs);
    }
    if !spec.handovers.is_empty() {
        let mut handovers = Table::new([("handover", Column::Left), ("fields", Column::Wrap)]);
        for schema in spec.handovers.values() {
            let fields = schema.fields.iter().map(|field| {
                let list = if field.form == Form::List { " (list)" } else { "" };
                let need = if field.need == Need::Required { " (needed)" } else { "" };
                format!("{}{list}{need}", field.name)
            });
            handovers.row([schema.kind.to_string(), fields.collect::<Vec<_>>().join(", ")]);
        }
        section("Handovers", handovers);
    }
    if !spec.tools.is_empty() {
        let mut tools = Table::new([("tool", Column::Left), ("run by", Column::Left), ("what it does", Column::Wrap)]);
        for tool in spec.tools.values() {
            let runs = match tool.runs {
                Runs::Flow => "the flow",
                Runs::Host => "the host",
            };
            tools.row([tool.spec.name.to_string(), runs.to_owned(), tool.spec.description.clone()]);
        }
        section("Tools", tools);
    }
    if !spec.settings.is_empty() {
        let columns = [("setting", Column::Left), ("default", Column::Left), ("what it does", Column::Wrap)];
        let mut settings = Table::new(columns);
        for setting in &spec.settings {
            let default = if setting.default.is_null() { String::new() } else { setting.default.to_string() };
            settings.row([setting.name.clone(), default, format!("{}: {}", setting.about, setting.takes)]);
        }
        section("Settings", settings);
    }
    if !spec.commands.is_empty() {
        let columns = [("command", Column::Left), ("what it does", Column::Wrap), ("takes", Column::Wrap)];
        let mut commands = Table::new(columns);
        for (name, command) in &spec.commands {
            let takes: Vec<String> = command.arguments.iter().map(|(name, about)| format!("{name}: {about}")).collect();
            commands.row([name.clone(), command.about.clone(), takes.join("; ")]);
        }
        section("Commands", commands);
    }
    out
}

fn shown(role: &RoleSpec) -> String {
    let names = |specs: &[segue_core::context::FragmentSpec]| {
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let asks = role.recipe.asks.iter().map(|(ask, specs)| format!("{ask}: {}", names(specs)));
    let opening = format!("opening: {}", names(&role.recipe.opening));
    std::iter::once(opening).filter(|_| !role.recipe.opening.is_empty()).chain(asks).collect::<Vec<_>>().join("; ")
}

fn heard_by(role: &RoleSpec) -> String {
    match role.audience {
        Audience::User { .. } => "the user".to_owned(),
        Audience::Private => "the flow".to_owned(),
    }
}

fn doubt(policy: UnknownPolicy) -> String {
    match policy {
        UnknownPolicy::Retry => "call again",
        UnknownPolicy::Ask => "ask you",
        UnknownPolicy::Fail => "fail",
    }
    .to_owned()
}

fn flow_json(spec: &FlowSpec) -> Value {
    let roles = spec.roles.values().map(|role| {
        json!({
            "name": role.name,
            "scope": role.scope,
            "memory": role.scope.words(),
            "graph": role.graph,
            "recipe": role.recipe,
            "tools": role.tools,
            "heard_by_user": matches!(role.audience, Audience::User { .. }),
            "reply_tokens_max": role.reply_tokens_max,
        })
    });
    json!({
        "name": spec.name,
        "about": spec.about,
        "roles": roles.collect::<Vec<_>>(),
        "graphs": spec.graphs.values().collect::<Vec<_>>(),
        "handovers": spec.handovers.values().collect::<Vec<_>>(),
        "tools": spec.tools.values().map(|tool| &tool.spec).collect::<Vec<_>>(),
        "settings": spec.settings.iter().map(setting_json).collect::<Vec<_>>(),
        "commands": spec.commands.iter().map(command_json).collect::<Vec<_>>(),
    })
}

fn command_json((name, command): (&String, &CommandSpec)) -> Value {
    json!({ "name": name, "about": command.about, "arguments": command.arguments })
}

fn setting_json(setting: &SettingSpec) -> Value {
    let SettingSpec { name, takes, default, about } = setting;
    json!({ "name": name, "takes": takes.to_string(), "default": default, "about": about })
}
