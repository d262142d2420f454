//! Serves the specs of the flows.

use axum::Json;
use axum::extract::{Path, State};
use segue_core::context::FragmentSpec;
use segue_core::decide::RoleModelResolver;
use segue_core::flow::{FlowSpec, RoleAnswerVisibility, RoleSpec, ToolRunnerKind};
use segue_core::phase::{PhaseGraph, render_mermaid};
use segue_engine::Error;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::serialized_name;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// The flows that the caller may use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowList {
    pub flows: Vec<FlowView>,
}

/// The spec of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowView {
    pub flow: String,
    pub about: String,
    pub roles: Vec<RoleView>,
    pub graphs: Vec<PhaseGraphView>,
    /// The kinds of handover documents.
    pub handovers: Vec<HandoverSchemaView>,
    /// The tools that models may call.
    pub tools: Vec<ToolSpecView>,
    /// The commands that the flow declares.
    pub commands: Vec<FlowCommandView>,
    /// The JSON schema of a session's `settings`; `null` if the flow has no settings.
    pub settings: Value,
}

/// A command that the flow declares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowCommandView {
    pub command: String,
    pub about: String,
    /// A description of each argument.
    pub arguments: std::collections::BTreeMap<String, String>,
}

/// A role of the flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RoleView {
    pub role: String,
    /// A description of the role's scope.
    pub memory: String,
    /// The scope as data.
    pub scope: Value,
    /// The phase graph of the role.
    pub graph: Option<String>,
    pub visible_to_user: bool,
    /// The tools that the role may use.
    pub tools: Vec<String>,
    /// The fragments that open a thread of the role.
    pub opening: Vec<FragmentSpecView>,
    /// What the role can be asked.
    pub asks: Vec<RecipeAskView>,
    /// The maximum length of an answer.
    pub reply_tokens_max: u32,
    /// The models that play the role.
    pub models: Vec<RoleModelView>,
}

/// A fragment in a recipe.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FragmentSpecView {
    pub name: String,
    /// The context layer.
    pub layer: String,
    /// `stable` or `changing`.
    pub stability: String,
    pub tokens_max: Option<u32>,
    /// What happens to a longer fragment: `keep_start`, `keep_end` or `leave_out`.
    pub overflow: String,
    /// Whether compaction keeps the fragment.
    pub pinned: bool,
}

/// Something that a role can be asked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecipeAskView {
    pub ask: String,
    /// Whether the answer is hidden from the user.
    pub private: bool,
    /// The fragments of the request.
    pub fragments: Vec<FragmentSpecView>,
}

/// The model that plays a role.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RoleModelView {
    /// The phase for which this applies; `null` for all other phases.
    pub phase: Option<String>,
    pub model: String,
}

/// A phase graph.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseGraphView {
    pub graph: String,
    /// What has its own phase in this graph: `session`, `role` or `agent`.
    pub attached_to: String,
    /// The start phase.
    pub start: String,
    pub phases: Vec<PhaseView>,
    /// The allowed transitions.
    pub edges: Vec<PhaseEdgeView>,
    pub gates: Vec<GateView>,
    /// The graph as a Mermaid diagram.
    pub mermaid: String,
}

/// A phase of a graph.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PhaseView {
    pub phase: String,
    pub purpose: String,
    /// `work`, `end` or `failure`.
    pub kind: String,
    /// When to enter the phase.
    pub entry: Vec<String>,
    /// What is done in the phase.
    pub activities: Vec<String>,
    /// When the phase is finished.
    pub criteria: Vec<String>,
    /// What must not be done in the phase.
    pub constraints: Vec<String>,
    /// The agents that work in the phase.
    pub agents: Vec<String>,
    /// The only tools allowed in the phase; `null` allows all tools of the role.
    pub tools: Option<Vec<String>>,
    pub limit: Option<PhaseLimitView>,
}

/// The limits of a visit to a phase.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PhaseLimitView {
    pub turns_max: Option<u32>,
    /// The maximum number of rounds that the flow counts.
    pub rounds_max: Option<u32>,
    pub ms_max: Option<u64>,
    /// True if `ms_max` includes the time in which the session waits for a person or another session.
    pub includes_waiting: bool,
    /// The phase that is entered when a limit is reached.
    pub exit_phase: String,
}

/// A transition from one phase to another.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseEdgeView {
    pub from: String,
    pub to: String,
    /// The condition of the transition, in words.
    pub guard: String,
}

/// An obligation that must be satisfied before certain phases may be entered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GateView {
    pub gate: String,
    /// The phase that opens the gate.
    pub opened_by: String,
    /// The phase that satisfies the gate.
    pub satisfied_by: String,
    /// The condition that must hold when that phase is left, if there is one.
    pub condition: Option<String>,
    /// The phases that an open gate blocks, besides all end phases.
    pub blocks: Vec<String>,
}

/// The fields of a kind of handover.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandoverSchemaView {
    pub kind: String,
    /// How often the model is asked to repair an invalid handover.
    pub repairs_max: u32,
    pub fields: Vec<HandoverFieldSpecView>,
}

/// A field of a handover.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandoverFieldSpecView {
    pub field: String,
    /// `text` or `list`.
    pub form: String,
    /// `required` or `optional`.
    pub need: String,
}

/// A tool that the flow declares.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolSpecView {
    pub tool: String,
    pub description: String,
    /// Who runs the tool: `flow` or `host`.
    pub run_by: String,
    /// The JSON schema of the arguments.
    pub parameters: Value,
}

/// List the flows
#[utoipa::path(get, path = "/v1/flows", tag = "server", responses((status = 200, body = FlowList)))]
pub(crate) async fn list_flows(State(app): State<AppState>, caller: Caller) -> Json<FlowList> {
    let specs = app.engine.flows().map(|flow| flow.spec());
    // Nobody starts a session that opens on demand, such as a workspace.
    let allowed = specs.filter(|spec| caller.can_use_flow(&spec.name) && !spec.opens_on_demand);
    Json(FlowList { flows: allowed.map(|spec| flow_view(spec, app.engine.model_assignment())).collect() })
}

/// Get one flow
#[utoipa::path(get, path = "/v1/flows/{flow}", tag = "server", params(("flow" = String, Path, description = "The name of the flow.")),
    responses((status = 200, body = FlowView)))]
pub(crate) async fn get_flow(
    State(app): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<FlowView>, HttpProblem> {
    let none = || {
        HttpProblem::from_engine_error(&Error::NoSuchFlow { name: name.as_str().into(), known: String::new() }, &caller)
    };
    let mut flows = app.engine.flows().map(|flow| flow.spec());
    let spec = flows.find(|spec| spec.name == name.as_str() && caller.can_use_flow(&spec.name)).ok_or_else(none)?;
    Ok(Json(flow_view(spec, app.engine.model_assignment())))
}

fn flow_view(spec: &FlowSpec, selector: &dyn RoleModelResolver) -> FlowView {
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
        roles: spec.roles.values().map(|role| role_view(spec, role, selector)).collect(),
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
                    ToolRunnerKind::Flow => "flow".to_owned(),
                    ToolRunnerKind::Host => "host".to_owned(),
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

fn role_view(spec: &FlowSpec, role: &RoleSpec, selector: &dyn RoleModelResolver) -> RoleView {
    let fragments = |specs: &[FragmentSpec]| specs.iter().map(fragment_spec_view).collect();
    let default_model = selector.model_for_role(&spec.name, &role.name, None);
    let mut models = vec![RoleModelView { phase: None, model: default_model.to_string() }];
    let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
    for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
        let assigned = selector.model_for_role(&spec.name, &role.name, Some(&phase.name));
        let model = phase.models.get(&role.name).or(phase.model.as_ref()).cloned().unwrap_or(assigned);
        if model != default_model {
            models.push(RoleModelView { phase: Some(phase.name.to_string()), model: model.to_string() });
        }
    }
    RoleView {
        role: role.name.to_string(),
        memory: role.scope.to_string(),
        // Our own types can always be serialized.
        scope: serde_json::to_value(&role.scope).unwrap_or_default(),
        graph: role.graph.as_ref().map(ToString::to_string),
        visible_to_user: matches!(role.visibility, RoleAnswerVisibility::User { .. }),
        tools: role.tools.iter().map(ToString::to_string).collect(),
        opening: fragments(&role.opening),
        asks: role
            .asks
            .iter()
            .map(|(ask, specs)| RecipeAskView {
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
        pinned: spec.retention == segue_core::context::FragmentRetention::Pinned,
    }
}

/// Builds the view of a phase graph.
pub(crate) fn phase_graph_view(graph: &PhaseGraph) -> PhaseGraphView {
    let edge = |edge: &segue_core::phase::PhaseEdge| PhaseEdgeView {
        from: edge.from.to_string(),
        to: edge.to.to_string(),
        guard: edge.guard.to_string(),
    };
    let gate = |gate: &segue_core::phase::PhaseEntryGate| GateView {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.to_string(),
        satisfied_by: gate.satisfied_by.to_string(),
        condition: gate.condition.clone(),
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

/// Builds the view of a phase.
pub(crate) fn phase_view(phase: &segue_core::phase::PhaseSpec) -> PhaseView {
    use segue_core::phase::PhaseAllowedTools;
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
            PhaseAllowedTools::All => None,
            PhaseAllowedTools::Only(tools) => Some(tools.iter().map(ToString::to_string).collect()),
        },
        limit: phase.limit.as_ref().map(|limit| PhaseLimitView {
            turns_max: limit.turns_max,
            rounds_max: limit.rounds_max,
            ms_max: limit.ms_max,
            includes_waiting: limit.includes_waiting,
            exit_phase: limit.exit.to_string(),
        }),
    }
}
