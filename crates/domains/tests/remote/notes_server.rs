//! A real MCP server for notes, as a separate process or over HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::net::unix::pipe;

/// The environment variable that makes a test process the server, and names its folder.
const FOLDER: &str = "NOTES_FOLDER";
/// The test that runs as the server's process.
const CHILD: &str = "notes_server::the_server_lists_its_tools_and_ends_with_its_input";

pub(crate) const OAK: &str = "5f0e8a12-0001-4000-8000-000000000001";
pub(crate) const NOOR: &str = "5f0e8a12-0002-4000-8000-000000000002";
pub(crate) const STRANGE: &str = "5f0e8a12-0009-4000-8000-000000000009";

/// A server that logs its actions in a file.
#[derive(Clone)]
pub(crate) struct Notes {
    folder: PathBuf,
}

impl Notes {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns how often an action was logged.
    pub(crate) fn done(&self, what: &str) -> usize {
        let deeds = std::fs::read_to_string(self.folder.join("deeds")).unwrap_or_default();
        deeds.lines().filter(|line| line.starts_with(what)).count()
    }

    fn does(&self, what: &str) {
        let before = std::fs::read_to_string(self.folder.join("deeds")).unwrap_or_default();
        std::fs::write(self.folder.join("deeds"), format!("{before}{what}\n")).expect("the folder is there");
    }

    fn tools(&self) -> Vec<Tool> {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let takes = |names: &[(&str, &str)]| -> JsonObject {
            let properties: JsonObject =
                names.iter().map(|(name, kind)| ((*name).to_owned(), json!({"type": kind}))).collect();
            object(json!({"type": "object", "properties": properties}))
        };
        let tool = |name: &'static str, about: &'static str, takes: JsonObject, reads: Option<bool>| {
            let tool = Tool::new(name, about, takes);
            match reads {
                Some(reads) => tool.with_annotations(ToolAnnotations::default().read_only(reads)),
                None => tool,
            }
        };
        let mut tools = vec![
            tool("list_notes", "lists notes", takes(&[]), Some(true)),
            tool("finish_note", "finishes a note", takes(&[("note", "string")]), Some(false)),
            tool("wipe", "does what it does", takes(&[]), None),
            tool("peek", "looks, and the first time falls over", takes(&[]), Some(true)),
            tool("stamp", "stamps, and falls over", takes(&[]), Some(false)),
            tool("ponder", "never answers", takes(&[]), Some(true)),
            tool("recite", "says very much", takes(&[]), Some(true)),
            tool("pick", "takes a number", takes(&[("note", "integer")]), Some(true)),
            tool("swap", "changes the tools", takes(&[]), Some(true)),
        ];
        if self.done("swap") > 0 {
            tools.retain(|tool| tool.name != "wipe");
            tools.push(tool("tidy", "is new", takes(&[]), Some(true)));
        }
        tools
    }
}

fn notes() -> Value {
    json!({"notes": [
        {"uid": OAK, "title": "Buy oak", "done": false, "by": STRANGE},
        {"uid": NOOR, "title": "Call Noor", "done": true, "by": STRANGE},
    ]})
}

fn said(text: String) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("notes", "1"))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.does("tools asked");
        // Two pages, so that a client that reads only one misses tools.
        let mut tools = self.tools();
        let rest = tools.split_off(4);
        let mut page = ListToolsResult::default();
        match request.and_then(|request| request.cursor) {
            None => (page.tools, page.next_cursor) = (tools, Some("rest".to_owned())),
            Some(_) => page.tools = rest,
        }
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        self.does(&format!("{} {arguments}", request.name));
        match request.name.as_ref() {
            "list_notes" => Ok(CallToolResult::structured(notes()).into()),
            "finish_note" if arguments["note"] == NOOR => {
                Ok(CallToolResult::error(vec![ContentBlock::text("that one is done already")]).into())
            }
            "finish_note" => said(format!("finished {OAK} and not {STRANGE}")),
            "peek" if self.done("peek") > 1 => said("there it is".to_owned()),
            "peek" | "stamp" => std::process::exit(1),
            "ponder" => std::future::pending().await,
            "recite" => said("la ".repeat(1_000_000)),
            "pick" => said(format!("picked {}", arguments["note"])),
            "swap" => {
                context
                    .peer
                    .notify_tool_list_changed()
                    .await
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                said("swapped".to_owned())
            }
            "wipe" if self.done("swap") == 0 => said("wiped".to_owned()),
            other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        }
    }
}

/// Returns the command that starts the server as a process.
pub(crate) fn command(folder: &Path) -> Vec<String> {
    let this = std::env::current_exe().expect("a test has a program");
    let folder = format!("{FOLDER}={}", folder.display());
    ["env".to_owned(), folder, this.display().to_string(), CHILD.to_owned()]
        .into_iter()
        .chain(["--exact", "--nocapture"].map(str::to_owned))
        .collect()
}

/// Starts the server over HTTP, protected by a key, and returns its address.
pub(crate) async fn serve_http(folder: &Path, key: &'static str) -> String {
    let notes = Notes::new(folder);
    let manager = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(notes.clone()), manager, StreamableHttpServerConfig::default());
    let guard = move |request: Request, next: Next| async move { check_key(key, request, next).await };
    let router = axum::Router::new().nest_service("/mcp", service).layer(middleware::from_fn(guard));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

async fn check_key(key: &str, request: Request, next: Next) -> Response {
    let prompt_texts = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if prompt_texts == Some(&format!("Bearer {key}")) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], "no key").into_response()
    }
}

/// Without the variable this tests the server; with it, the process is the server.
#[tokio::test]
async fn the_server_lists_its_tools_and_ends_with_its_input() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let pipes = pipe::OpenOptions::new();
        let input = pipes.open_receiver("/dev/stdin").expect("somebody started it");
        let output = pipes.open_sender("/dev/stdout").expect("somebody listens");
        let served = Notes::new(Path::new(&folder)).serve((input, output)).await;
        let _ = served.expect("somebody speaks to it").waiting().await;
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (here, there) = tokio::io::duplex(4_096);
    let notes = Notes::new(folder.path());
    let server = tokio::spawn(async move { notes.serve(there).await.expect("spoken to").waiting().await });
    let client = ().serve(here).await.expect("it answers");
    assert_eq!(client.list_all_tools().await.expect("listed").len(), 9);
    client.cancel().await.expect("it ends");
    server.await.expect("no panic").expect("it ended by itself");
}
