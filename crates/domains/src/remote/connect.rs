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
use segue_flows::assistant::domain::{Reached, Server};
use tokio::process::Command;

use crate::limits::{REMOTE_CONNECT_MS_MAX, REMOTE_MESSAGE_BYTES_MAX, REMOTE_START_MS_MAX};

/// A server that is talked to.
pub(super) struct Connection {
    pub client: RunningService<RoleClient, Listener>,
}

impl Connection {
    /// The tools it has, unless it said since that they changed.
    pub fn known(&self) -> Option<Arc<Vec<Tool>>> {
        self.client.service().tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes down what tools it has; nothing if that is to be asked again.
    pub fn know(&self, tools: Option<Arc<Vec<Tool>>>) {
        *self.client.service().tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }
}

/// What is heard of a server beside its answers: that its tools changed. Nothing it asks for is granted.
#[derive(Debug, Default)]
pub(super) struct Listener {
    tools: Mutex<Option<Arc<Vec<Tool>>>>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("segue", env!("CARGO_PKG_VERSION")))
    }
}

/// Reaches a server and agrees with it on a style.
pub(super) async fn connect(server: &Server) -> Result<Connection, String> {
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None };
    let listener = Listener::default();
    let (named, agreed) = match server.reached() {
        Reached::Started(command) => {
            let named = format!("the server `{}` cannot be started", command.first().map_or("", String::as_str));
            let transport = start(command, server).map_err(|why| format!("{named}: {why}"))?;
            (named, timely(listener.serve_with_lifecycle(transport, lifecycle)).await)
        }
        Reached::Called(url) => {
            let named = format!("the server {url} cannot be reached");
            let transport = call(url, server).map_err(|why| format!("{named}: {why}"))?;
            (named, timely(listener.serve_with_lifecycle(transport, lifecycle)).await)
        }
    };
    let client = agreed
        .map_err(|why| format!("{named}: {why}"))?
        .map_err(|error| format!("{named}: {}", error.to_string().trim_end_matches('.')))?;
    // Its tools are asked for when they are needed; a list that is past its time is of no use.
    client.set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(Connection { client })
}

async fn timely<T>(agreeing: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("it did not answer within {} s", REMOTE_START_MS_MAX / 1_000);
    tokio::time::timeout(Duration::from_millis(REMOTE_START_MS_MAX), agreeing).await.map_err(late)
}

fn start(command: &[String], server: &Server) -> Result<TokioChildProcess, String> {
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

fn call(url: &str, server: &Server) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).max_sse_event_size(REMOTE_MESSAGE_BYTES_MAX);
    if let Some(name) = &server.key_env {
        let key = std::env::var(name).map_err(|_| format!("the variable `{name}` that holds its key is not set"))?;
        config = config.auth_header(key);
    }
    // A key goes to the server it is meant for, and not to where that one points.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_millis(REMOTE_CONNECT_MS_MAX))
        .build();
    let client = client.map_err(|error| error.to_string())?;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
