//! Requests to a server, and its problems in its own words.

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;

/// The key for a server comes from here, and from nowhere else.
const API_KEY_ENV: &str = "SEGUE_KEY";

/// A server that is asked.
#[derive(Debug)]
pub struct ServerClient {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

/// What a server refused.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct ServerProblem {
    /// The error's code.
    pub code: String,
    /// In the server's words.
    pub detail: String,
}

impl ServerProblem {
    /// Whether an error is a problem of that code.
    pub fn has_code(error: &anyhow::Error, code: &str) -> bool {
        error.downcast_ref::<Self>().is_some_and(|problem| problem.code == code)
    }
}

impl ServerClient {
    /// A server at an address such as `http://127.0.0.1:7348`.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if parsed.is_none() {
            bail!("`{url}` is no address of a server; write it as http://127.0.0.1:7348");
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // If another was faster, that one will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let http = reqwest::Client::builder().no_proxy().build().context("cannot make requests")?;
        let key = std::env::var(API_KEY_ENV).ok().filter(|key| !key.is_empty());
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), key })
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        read_response(self.build_request(Method::GET, path).send().await.with_context(|| self.unreachable_message())?)
            .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let asked = self.build_request(Method::POST, path).json(body).send().await;
        read_response(asked.with_context(|| self.unreachable_message())?).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let asked = self.build_request(Method::PATCH, path).json(body).send().await;
        read_response(asked.with_context(|| self.unreachable_message())?).await
    }

    /// A stream of events.
    pub async fn open_stream(&self, path: &str) -> anyhow::Result<Response> {
        let asked = self.build_request(Method::GET, path).header("accept", "text/event-stream").send().await;
        let response = asked.with_context(|| self.unreachable_message())?;
        if response.status().is_success() {
            return Ok(response);
        }
        read_response(response).await?;
        bail!("the server gives no stream")
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

async fn read_response(response: Response) -> anyhow::Result<Value> {
    let status = response.status();
    let text = response.text().await.context("the server's answer broke off")?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    match (value["code"].as_str(), value["detail"].as_str()) {
        (Some("key-missing"), _) => {
            bail!("the server asks for a key; give it in the environment variable {API_KEY_ENV}")
        }
        (Some(code), Some(detail)) => Err(ServerProblem { code: code.to_owned(), detail: detail.to_owned() }.into()),
        _ => bail!("the server answered {status}, which is no answer of segue's"),
    }
}
