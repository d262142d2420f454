//! What a configuration wants that needs trust.

use segue_flows::assistant::domain::{McpServerConfig, McpTransport};
use segue_models::catalog::RequestedVendorModel;
use segue_models::vendor::VendorCredentials;
use segue_tools::WorkspaceConfig;

use crate::config::{Config, ConfigValueOrigin, ModelConfigKind};
use crate::print::text::to_single_line;

/// Something a configuration wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionRequiringTrust {
    pub kind: ActionRequiringTrustKind,
    /// What it would do, to follow "it would"; safe to print.
    pub description: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionRequiringTrustKind {
    /// To call a model.
    Model,
    /// To start or call the MCP server of a domain.
    DomainServer,
    /// To start or call an MCP server for agents.
    McpServer,
    /// To let agents change files and run commands.
    Workspace,
    /// To run tools without asking, although their flow wants them to be approved.
    ToolApproval,
}

/// Returns everything in a configuration file that needs trust. Models that were discovered do not: they have the keys
/// and addresses of the built-in catalog.
pub(super) fn collect_trust_requests(config: &Config) -> Vec<ActionRequiringTrust> {
    let request = |kind, description: String| ActionRequiringTrust { kind, description: to_single_line(&description) };
    let mut requests = Vec::new();
    if let Some(file) = &config.catalog_file {
        let description = format!("change the addresses of providers with {}", file.value.display());
        requests.push(request(ActionRequiringTrustKind::Model, description));
    }
    for (name, model) in &config.models {
        let ModelConfigKind::Vendor(spec) = &model.value.kind else { continue };
        let is_in_file = matches!(model.origin, ConfigValueOrigin::File { .. });
        if let Some(wanted) = describe_model_access(config, spec).filter(|_| is_in_file) {
            requests.push(request(ActionRequiringTrustKind::Model, format!("{wanted} (model `{name}`)")));
        }
    }
    for setting in config.flow_settings.iter().filter(|setting| !setting.overridden_prompts().is_empty()) {
        let description =
            format!("replace prompts of flow `{}`: {}", setting.flow, setting.overridden_prompts().join(", "));
        requests.push(request(ActionRequiringTrustKind::Model, description));
    }
    for domain in &config.domains {
        let domain = &domain.value.domain;
        let Some(server) = &domain.server else { continue };
        let description = format!("{} (domain `{}`)", describe_server_access(server), domain.name);
        requests.push(request(ActionRequiringTrustKind::DomainServer, description));
    }
    for (name, server) in &config.mcp_servers {
        let description = format!("{} (MCP server `{name}`)", describe_server_access(&server.value.connection));
        requests.push(request(ActionRequiringTrustKind::McpServer, description));
    }
    for (name, workspace) in &config.workspaces {
        let description = describe_workspace_access(&workspace.value);
        requests.push(request(ActionRequiringTrustKind::Workspace, format!("{description} (workspace `{name}`)")));
    }
    for own in &config.flow_files {
        for check in &own.value.definition.checks {
            let description = format!("run the command `{}` as a check (flow `{}`)", check.command, own.value.name);
            requests.push(request(ActionRequiringTrustKind::ToolApproval, description));
        }
    }
    for pattern in &config.approval.allow {
        let description = format!("run tools without asking you (`approval.allow` has `{}`)", pattern.value);
        requests.push(request(ActionRequiringTrustKind::ToolApproval, description));
    }
    requests
}

/// Describes the key and the address that a model uses; `None` for a model that has the usual address and no key.
fn describe_model_access(config: &Config, spec: &RequestedVendorModel) -> Option<String> {
    // The parser refused models that cannot be resolved. The environment does not matter for what is wanted.
    let endpoint = config.catalog.resolve_model(spec, &|_| None).ok()?.endpoint;
    match endpoint.credentials {
        VendorCredentials::ApiKey { env, .. } | VendorCredentials::Basic { env, .. } => {
            Some(format!("send the key in {env} to {}", endpoint.base_url))
        }
        VendorCredentials::None => spec.base_url.as_ref().map(|_| format!("send prompts to {}", endpoint.base_url)),
    }
}

fn describe_workspace_access(workspace: &WorkspaceConfig) -> String {
    let commands = workspace.commands.iter().chain(&workspace.checks);
    let commands: Vec<String> = commands.map(|command| format!("`{command}`")).collect();
    let mut description = format!("let agents change files in {}", workspace.folder.display());
    if !commands.is_empty() {
        description.push_str(&format!(" and run {}", commands.join(", ")));
    }
    if !workspace.environment.is_empty() {
        description.push_str(&format!(" with {}", workspace.environment.join(", ")));
    }
    description
}

fn describe_server_access(server: &McpServerConfig) -> String {
    match (server.transport(), &server.key_env) {
        (McpTransport::ChildProcess(command), _) if server.environment.is_empty() => {
            format!("start the program `{}`", command.join(" "))
        }
        (McpTransport::ChildProcess(command), _) => {
            format!("start the program `{}` and pass it {}", command.join(" "), server.environment.join(", "))
        }
        (McpTransport::Http(url), Some(env)) => format!("send the key in {env} to {url}"),
        (McpTransport::Http(url), None) => format!("send records and messages to {url}"),
    }
}
