//! How a server is reached: a program over its standard input and output, or an address over HTTP; in whichever of the protocol's
//! two styles it knows (with `initialize`, or with `server/discover`).

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, Tool};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientCacheConfig, ClientHandler, ClientLifecycleMode, ClientServiceExt};
use segue_flows::assistant::domain::{McpServerConfig, McpTransport};
use tokio::process::Command;

use crate::limits::{MCP_CONNECT_MS_MAX, MCP_MESSAGE_BYTES_MAX, MCP_START_MS_MAX};

/// A server that is talked to.
pub(super) struct McpConnection {
    pub client: RunningService<RoleClient, McpClientHandler>,
}

impl McpConnection {
    /// The tools it has, unless it said since that they changed.
    pub fn cached_tools(&self) -> Option<Arc<Vec<Tool>>> {
        self.client.service().cached_tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes down what tools it has; nothing if that is to be asked again.
    pub fn set_cached_tools(&self, tools: Option<Arc<Vec<Tool>>>) {
        *self.client.service().cached_tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }
}

/// What is heard of a server beside its answers: that its tools changed. Nothing it asks for is granted.
#[derive(Debug, Default)]
pub(super) struct McpClientHandler {
    cached_tools: Mutex<Option<Arc<Vec<Tool>>>>,
}

impl ClientHandler for McpClientHandler {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        *self.cached_tools.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("segue", env!("CARGO_PKG_VERSION")))
    }
}

/// Reaches a server and agrees with it on a style.
pub(super) async fn connect_server(server: &McpServerConfig) -> Result<McpConnection, String> {
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None };
    let listener = McpClientHandler::default();
    let (named, agreed) = match server.transport() {
        McpTransport::ChildProcess(command) => {
            let named = format!("the server `{}` cannot be started", command.first().map_or("", String::as_str));
            let transport = spawn_server(command, server).map_err(|why| format!("{named}: {why}"))?;
            (named, with_start_timeout(listener.serve_with_lifecycle(transport, lifecycle)).await)
        }
        McpTransport::Http(url) => {
            let named = format!("the server {url} cannot be reached");
            let transport = build_http_transport(url, server).map_err(|why| format!("{named}: {why}"))?;
            (named, with_start_timeout(listener.serve_with_lifecycle(transport, lifecycle)).await)
        }
    };
    let client = agreed
        .map_err(|why| format!("{named}: {why}"))?
        .map_err(|error| format!("{named}: {}", error.to_string().trim_end_matches('.')))?;
    // Its tools are asked for when they are needed; a list that is past its time is of no use.
    client.set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(McpConnection { client })
}

async fn with_start_timeout<T>(agreeing: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("it did not answer within {} s", MCP_START_MS_MAX / 1_000);
    tokio::time::timeout(Duration::from_millis(MCP_START_MS_MAX), agreeing).await.map_err(late)
}

fn spawn_server(command: &[String], server: &McpServerConfig) -> Result<TokioChildProcess, String> {
    let [program, arguments @ ..] = command else { return Err("it has no command".to_owned()) };
    let mut command = Command::new(program);
    // It gets what it is named and no more: secrets of others are not its business.
    command.args(arguments).env_clear().kill_on_drop(true);
    let named = server.environment.iter().map(String::as_str).chain(["PATH", "HOME"]);
    for (name, value) in named.filter_map(|name| Some((name, std::env::var_os(name)?))) {
        command.env(name, value);
    }
    let spawned = TokioChildProcess::builder(command).stderr(Stdio::null()).spawn();
    spawned.map(|(transport, _)| transport).map_err(|error| error.to_string())
}

fn build_http_transport(
    url: &str,
    server: &McpServerConfig,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).max_sse_event_size(MCP_MESSAGE_BYTES_MAX);
    if let Some(name) = &server.key_env {
        let key = std::env::var(name).map_err(|_| format!("the variable `{name}` that holds its key is not set"))?;
        config = config.auth_header(key);
    }
    // A key goes to the server it is meant for, and not to where that one points.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_millis(MCP_CONNECT_MS_MAX))
        .build();
    let client = client.map_err(|error| error.to_string())?;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
