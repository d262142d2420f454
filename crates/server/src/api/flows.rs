//! Which kinds of conversation there are, and by what rules each goes.

use axum::Json;
use axum::extract::{Path, State};
use segue_core::context::FragmentSpec;
use segue_core::decide::ModelSelector;
use segue_core::flow::{FlowSpec, RoleSpec, ToolRunner, Visibility};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::render_mermaid;
use segue_engine::Error;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::serialized_name;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// All flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowList {
    /// By name.
    pub flows: Vec<FlowView>,
}

/// A flow's data.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowView {
    /// Its name.
    pub flow: String,
    /// What it is for.
    pub about: String,
    /// Who speaks.
    pub roles: Vec<RoleView>,
    /// Its phase graphs.
    pub graphs: Vec<PhaseGraphView>,
    /// Documents that cross from one memory to another.
    pub handovers: Vec<HandoverSchemaView>,
    /// What models may call.
    pub tools: Vec<ToolSpecView>,
    /// What the flow itself offers to be told.
    pub commands: Vec<FlowCommandView>,
    /// A JSON schema of what `settings` of a new session may hold; `null` if there is nothing to set.
    pub settings: Value,
}

/// A command of the flow's own.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowCommandView {
    /// Its name.
    pub command: String,
    /// What it does.
    pub about: String,
    /// What it takes, with what each means.
    pub arguments: std::collections::BTreeMap<String, String>,
}

/// A role.
#[derive(Debug, Serialize, ToSchema)]
pub struct RoleView {
    /// Its name.
    pub role: String,
    /// How far its memory reaches, in words.
    pub memory: String,
    /// The same as data.
    pub scope: Value,
    /// The graph it lives by.
    pub graph: Option<String>,
    /// Whether the user hears it.
    pub visible_to_user: bool,
    /// The tools it may use.
    pub tools: Vec<String>,
    /// What its threads open with.
    pub opening: Vec<FragmentSpecView>,
    /// What it can be asked.
    pub asks: Vec<RoleAskView>,
    /// Its longest answer.
    pub reply_tokens_max: u32,
    /// Who plays it.
    pub models: Vec<RoleModelView>,
}

/// A fragment of a recipe.
#[derive(Debug, Serialize, ToSchema)]
pub struct FragmentSpecView {
    /// Its name.
    pub name: String,
    /// What kind of context it is.
    pub layer: String,
    /// `stable` or `changing`.
    pub stability: String,
    /// Most tokens it may take.
    pub tokens_max: Option<u32>,
    /// What happens to a longer one: `keep_start`, `keep_end` or `leave_out`.
    pub overflow: String,
    /// Whether compaction must keep it.
    pub pinned: bool,
}

/// Something a role can be asked.
#[derive(Debug, Serialize, ToSchema)]
pub struct RoleAskView {
    /// Its name.
    pub ask: String,
    /// Whether nobody hears the answer.
    pub private: bool,
    /// What the role is shown then.
    pub fragments: Vec<FragmentSpecView>,
}

/// Who plays a role.
#[derive(Debug, Serialize, ToSchema)]
pub struct RoleModelView {
    /// In which phase; in all others if absent.
    pub phase: Option<String>,
    /// Which model.
    pub model: String,
}

/// A phase graph.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseGraphView {
    /// Its name.
    pub graph: String,
    /// `session`, `role` or `agent`: what has a phase of its own in it.
    pub attached_to: String,
    /// Where it begins.
    pub start: String,
    /// Its phases.
    pub phases: Vec<PhaseView>,
    /// The ways from phase to phase.
    pub edges: Vec<PhaseEdgeView>,
    /// What may not be left out.
    pub gates: Vec<GateView>,
    /// The graph as a Mermaid diagram.
    pub mermaid: String,
}

/// A phase.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PhaseView {
    /// Its name.
    pub phase: String,
    /// What it is for.
    pub purpose: String,
    /// `work`, `end` or `failure`.
    pub kind: String,
    /// When to enter it.
    pub entry: Vec<String>,
    /// What is done in it.
    pub activities: Vec<String>,
    /// When it is finished.
    pub criteria: Vec<String>,
    /// What must not be done in it.
    pub constraints: Vec<String>,
    /// Who works in it.
    pub agents: Vec<String>,
    /// The only tools at hand; all of the role's if absent.
    pub tools: Option<Vec<String>>,
    /// How long it may last.
    pub limit: Option<PhaseLimitView>,
}

/// How long a phase may last.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PhaseLimitView {
    /// Turns.
    pub turns_max: Option<u32>,
    /// Milliseconds.
    pub ms_max: Option<u64>,
    /// The phase entered then.
    pub exit_phase: String,
}

/// A way from one phase to another.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseEdgeView {
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// What must hold, in words.
    pub guard: String,
}

/// What may not be left out.
#[derive(Debug, Serialize, ToSchema)]
pub struct GateView {
    /// Its name.
    pub gate: String,
    /// Entering this phase opens it.
    pub opened_by: String,
    /// Entering this phase satisfies it.
    pub satisfied_by: String,
    /// What it bars meanwhile, beside every end.
    pub blocks: Vec<String>,
}

/// What a kind of handover holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct HandoverSchemaView {
    /// Its kind.
    pub kind: String,
    /// How often a broken one is asked for again.
    pub repairs_max: u32,
    /// Its fields.
    pub fields: Vec<HandoverFieldSpecView>,
}

/// A field of a handover.
#[derive(Debug, Serialize, ToSchema)]
pub struct HandoverFieldSpecView {
    /// Its name.
    pub field: String,
    /// `text` or `list`.
    pub form: String,
    /// `required` or `optional`.
    pub need: String,
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolSpecView {
    /// Its name.
    pub tool: String,
    /// What it does.
    pub description: String,
    /// `flow` or `host`: who runs it.
    pub run_by: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// Which kinds of conversation there are
#[utoipa::path(get, path = "/v1/flows", tag = "server", responses((status = 200, body = FlowList)))]
pub async fn list_flows(State(app): State<AppState>, caller: Caller) -> Json<FlowList> {
    let allowed = app.engine.flows().map(|rules| rules.spec()).filter(|spec| caller.can_use_flow(&spec.name));
    Json(FlowList { flows: allowed.map(|spec| flow_view(spec, app.engine.model_assignment())).collect() })
}

/// One kind of conversation
#[utoipa::path(get, path = "/v1/flows/{flow}", tag = "server", params(("flow" = String, Path, description = "Its name.")),
    responses((status = 200, body = FlowView)))]
pub async fn get_flow(
    State(app): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<FlowView>, HttpProblem> {
    let none = || {
        HttpProblem::from_engine_error(&Error::NoSuchFlow { name: name.as_str().into(), known: String::new() }, &caller)
    };
    let mut flows = app.engine.flows().map(|rules| rules.spec());
    let spec = flows.find(|spec| spec.name == name.as_str() && caller.can_use_flow(&spec.name)).ok_or_else(none)?;
    Ok(Json(flow_view(spec, app.engine.model_assignment())))
}

fn flow_view(spec: &FlowSpec, catalog: &dyn ModelSelector) -> FlowView {
    let fields = |schema: &segue_core::handover::HandoverSpec| {
        let field = |field: &segue_core::handover::HandoverFieldSpec| HandoverFieldSpecView {
            field: field.name.clone(),
            form: serialized_name(&field.field_type),
            need: serialized_name(&field.presence),
        };
        schema.fields.iter().map(field).collect()
    };
    FlowView {
        flow: spec.name.to_string(),
        about: spec.description.clone(),
        roles: spec.roles.values().map(|role| role_view(spec, role, catalog)).collect(),
        graphs: spec.graphs.values().map(phase_graph_view).collect(),
        handovers: spec
            .handovers
            .values()
            .map(|schema| HandoverSchemaView {
                kind: schema.kind.to_string(),
                repairs_max: schema.repairs_max,
                fields: fields(schema),
            })
            .collect(),
        tools: spec
            .tools
            .values()
            .map(|tool| ToolSpecView {
                tool: tool.spec.name.to_string(),
                description: tool.spec.description.clone(),
                run_by: match tool.runner {
                    ToolRunner::Flow => "flow".to_owned(),
                    ToolRunner::Host => "host".to_owned(),
                },
                parameters: tool.spec.parameters.clone(),
            })
            .collect(),
        commands: spec
            .commands
            .iter()
            .map(|(name, command)| FlowCommandView {
                command: name.clone(),
                about: command.description.clone(),
                arguments: command.arguments.iter().map(|(name, about)| (name.clone(), about.clone())).collect(),
            })
            .collect(),
        settings: spec.settings_schema(),
    }
}

fn role_view(spec: &FlowSpec, role: &RoleSpec, catalog: &dyn ModelSelector) -> RoleView {
    let fragments = |specs: &[FragmentSpec]| specs.iter().map(fragment_spec_view).collect();
    let usual = catalog.model_for_role(&spec.name, &role.name, None);
    let mut models = vec![RoleModelView { phase: None, model: usual.to_string() }];
    let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
    for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
        let cast = catalog.model_for_role(&spec.name, &role.name, Some(&phase.name));
        let model = phase.model_for_role(&role.name).cloned().unwrap_or(cast);
        if model != usual {
            models.push(RoleModelView { phase: Some(phase.name.to_string()), model: model.to_string() });
        }
    }
    RoleView {
        role: role.name.to_string(),
        memory: role.scope.describe(),
        scope: serde_json::to_value(&role.scope).unwrap_or_default(),
        graph: role.graph.as_ref().map(ToString::to_string),
        visible_to_user: matches!(role.visibility, Visibility::User { .. }),
        tools: role.tools.iter().map(ToString::to_string).collect(),
        opening: fragments(&role.recipe.opening),
        asks: role
            .recipe
            .asks
            .iter()
            .map(|(ask, specs)| RoleAskView {
                ask: ask.to_string(),
                private: role.hidden_blocks(ask).is_none(),
                fragments: fragments(specs),
            })
            .collect(),
        reply_tokens_max: role.reply_tokens_max,
        models,
    }
}

fn fragment_spec_view(spec: &FragmentSpec) -> FragmentSpecView {
    FragmentSpecView {
        name: spec.name.to_string(),
        layer: spec.layer.to_string(),
        stability: serialized_name(&spec.stability),
        tokens_max: spec.tokens_max,
        overflow: serialized_name(&spec.overflow),
        pinned: spec.retention == segue_core::context::Retention::Pinned,
    }
}

/// A graph as its flow declares it.
pub fn phase_graph_view(graph: &PhaseGraph) -> PhaseGraphView {
    let edge = |edge: &segue_core::phase::PhaseEdge| PhaseEdgeView {
        from: edge.from.to_string(),
        to: edge.to.to_string(),
        guard: edge.guard.to_string(),
    };
    let gate = |gate: &segue_core::phase::PhaseGate| GateView {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.to_string(),
        satisfied_by: gate.satisfied_by.to_string(),
        blocks: gate.blocks.iter().map(ToString::to_string).collect(),
    };
    PhaseGraphView {
        graph: graph.name.to_string(),
        attached_to: serialized_name(&graph.owner_kind),
        start: graph.start.to_string(),
        phases: graph.phases.iter().map(phase_view).collect(),
        edges: graph.edges.iter().map(edge).collect(),
        gates: graph.gates.iter().map(gate).collect(),
        mermaid: render_mermaid(graph, None),
    }
}

/// A phase as its graph declares it.
pub fn phase_view(phase: &segue_core::phase::PhaseSpec) -> PhaseView {
    use segue_core::phase::AllowedTools;
    PhaseView {
        phase: phase.name.to_string(),
        purpose: phase.purpose.clone(),
        kind: serialized_name(&phase.kind),
        entry: phase.entry.clone(),
        activities: phase.activities.clone(),
        criteria: phase.criteria.clone(),
        constraints: phase.constraints.clone(),
        agents: phase.agents.iter().map(ToString::to_string).collect(),
        tools: match &phase.tools {
            AllowedTools::All => None,
            AllowedTools::Only(tools) => Some(tools.iter().map(ToString::to_string).collect()),
        },
        limit: phase.limit.as_ref().map(|limit| PhaseLimitView {
            turns_max: limit.turns_max,
            ms_max: limit.ms_max,
            exit_phase: limit.exit.to_string(),
        }),
    }
}
