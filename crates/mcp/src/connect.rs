//! Connects to an MCP server: a program over its standard input and output, or an address over HTTP. Both versions of the protocol
//! are supported (`initialize` and `server/discover`).

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

/// An open connection to a server.
#[derive(Debug)]
pub(crate) struct McpConnection {
    pub(crate) client: RunningService<RoleClient, McpServerNotificationHandler>,
}

impl McpConnection {
    /// Returns the server's tools, unless it announced that they changed.
    pub(crate) fn cached_tools(&self) -> Option<Arc<Vec<Tool>>> {
        self.client.service().cached_tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the server's tools, or clears them so that they are listed again.
    pub(crate) fn set_cached_tools(&self, tools: Option<Arc<Vec<Tool>>>) {
        *self.client.service().cached_tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }
}

/// Handles notifications of a server: only the change of its tools. All requests of a server are refused.
#[derive(Debug, Default)]
pub(crate) struct McpServerNotificationHandler {
    cached_tools: Mutex<Option<Arc<Vec<Tool>>>>,
}

impl ClientHandler for McpServerNotificationHandler {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        *self.cached_tools.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("segue", env!("CARGO_PKG_VERSION")))
    }
}

/// The environment variable in which a program finds the owner that it works for.
const OWNER_ENV: &str = "SEGUE_OWNER";
/// The HTTP header that names the owner of a request.
const OWNER_HEADER: &str = "segue-owner";

/// Connects to a server on behalf of an owner, and negotiates the protocol.
pub(crate) async fn connect_server(server: &McpServerConfig, owner: Option<&str>) -> Result<McpConnection, String> {
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None };
    let handler = McpServerNotificationHandler::default();
    let (context, connected) = match server.transport() {
        McpTransport::ChildProcess(command) => {
            let context = format!("the server `{}` cannot be started", command.first().map_or("", String::as_str));
            let transport = spawn_server(command, server, owner).map_err(|why| format!("{context}: {why}"))?;
            (context, with_start_timeout(handler.serve_with_lifecycle(transport, lifecycle)).await)
        }
        McpTransport::Http(url) => {
            let context = format!("the server {url} cannot be reached");
            let transport = build_http_transport(url, server, owner).map_err(|why| format!("{context}: {why}"))?;
            (context, with_start_timeout(handler.serve_with_lifecycle(transport, lifecycle)).await)
        }
    };
    let client = connected
        .map_err(|why| format!("{context}: {why}"))?
        .map_err(|error| format!("{context}: {}", error.to_string().trim_end_matches('.')))?;
    // The tool list is cached here, so the library's own cache is not needed.
    client.set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(McpConnection { client })
}

async fn with_start_timeout<T>(connecting: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("it did not answer within {} s", MCP_START_MS_MAX / 1_000);
    tokio::time::timeout(Duration::from_millis(MCP_START_MS_MAX), connecting).await.map_err(late)
}

fn spawn_server(
    command: &[String],
    server: &McpServerConfig,
    owner: Option<&str>,
) -> Result<TokioChildProcess, String> {
    let [program, arguments @ ..] = command else { return Err("it has no command".to_owned()) };
    let mut command = Command::new(program);
    // The program receives only the declared variables, so that it cannot read unrelated secrets.
    command.args(arguments).env_clear().kill_on_drop(true);
    let named = server.environment.iter().map(String::as_str).chain(["PATH", "HOME"]);
    for (name, value) in named.filter_map(|name| Some((name, std::env::var_os(name)?))) {
        command.env(name, value);
    }
    if let Some(owner) = owner {
        command.env(OWNER_ENV, owner);
    }
    let spawned = TokioChildProcess::builder(command).stderr(Stdio::null()).spawn();
    spawned.map(|(transport, _)| transport).map_err(|error| error.to_string())
}

fn build_http_transport(
    url: &str,
    server: &McpServerConfig,
    owner: Option<&str>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // This fails if another thread was faster, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).max_sse_event_size(MCP_MESSAGE_BYTES_MAX);
    if let Some(name) = &server.key_env {
        let key =
            std::env::var(name).map_err(|_| format!("the environment variable `{name}` for its key is not set"))?;
        config = config.auth_header(key);
    }
    let mut headers = reqwest::header::HeaderMap::new();
    if let Some(owner) = owner {
        let owner = reqwest::header::HeaderValue::from_str(owner).map_err(|error| error.to_string())?;
        headers.insert(OWNER_HEADER, owner);
    }
    // Redirects are not followed, so that the key is sent only to this server.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .default_headers(headers)
        .connect_timeout(Duration::from_millis(MCP_CONNECT_MS_MAX))
        .build();
    let client = client.map_err(|error| error.to_string())?;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
