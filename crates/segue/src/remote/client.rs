//! HTTP requests to a server.

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;

/// The environment variable with the API key of the server.
const API_KEY_ENV: &str = "SEGUE_KEY";

/// An HTTP client for one server.
#[derive(Debug)]
pub(crate) struct ServerClient {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

/// A problem response of a server.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct RemoteServerProblem {
    /// The stable code of the problem.
    pub code: String,
    /// The server's description of the problem.
    pub detail: String,
}

impl RemoteServerProblem {
    /// Whether an error is a problem with this code.
    pub(crate) fn has_code(error: &anyhow::Error, code: &str) -> bool {
        error.downcast_ref::<Self>().is_some_and(|problem| problem.code == code)
    }
}

impl ServerClient {
    /// Returns a client for the server at an address such as `http://127.0.0.1:7348`.
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if parsed.is_none() {
            bail!("`{url}` is not the address of a server (like http://127.0.0.1:7348)");
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // The error may be dropped: another thread has installed a provider.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let http = reqwest::Client::builder().no_proxy().build().context("cannot create an HTTP client")?;
        let key = std::env::var(API_KEY_ENV).ok().filter(|key| !key.is_empty());
        if key.is_some() && parsed.as_ref().is_some_and(is_unencrypted_remote) {
            bail!(
                "`{url}` is not encrypted, so {API_KEY_ENV} is not sent there; use an https:// address, or a tunnel to this machine"
            );
        }
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), key })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        read_response(self.build_request(Method::GET, path).send().await.with_context(|| self.unreachable_message())?)
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.build_request(Method::POST, path).json(body).send().await;
        read_response(response.with_context(|| self.unreachable_message())?).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.build_request(Method::PATCH, path).json(body).send().await;
        read_response(response.with_context(|| self.unreachable_message())?).await
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn open_stream(&self, path: &str) -> anyhow::Result<Response> {
        let response = self.build_request(Method::GET, path).header("accept", "text/event-stream").send().await;
        let response = response.with_context(|| self.unreachable_message())?;
        if response.status().is_success() {
            return Ok(response);
        }
        read_response(response).await?;
        bail!("the server did not open a stream")
    }

    fn build_request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    fn unreachable_message(&self) -> String {
        format!("cannot reach the server at {}; is it running? `segue serve` starts one", self.base)
    }
}

/// Returns whether requests to an address leave this machine unencrypted.
fn is_unencrypted_remote(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    url.scheme() == "http" && !is_loopback
}

async fn read_response(response: Response) -> anyhow::Result<Value> {
    let status = response.status();
    let text = response.text().await.context("the server's response ended early")?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    match (value["code"].as_str(), value["detail"].as_str()) {
        (Some("key-missing"), _) => {
            bail!("the server requires an API key; set it in the environment variable {API_KEY_ENV}")
        }
        (Some(code), Some(detail)) => {
            Err(RemoteServerProblem { code: code.to_owned(), detail: detail.to_owned() }.into())
        }
        _ => bail!("the server answered {status} without a problem document; is it a Segue server?"),
    }
}
