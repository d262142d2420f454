//! A client that keeps its connections.

use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::Value;

/// Attempts of a request that the server refuses for the moment.
const ATTEMPTS_MAX: usize = 1_000;
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(crate) struct LoadClient {
    client: Client,
    url: String,
}

#[derive(Debug)]
pub(crate) struct LoadResponse {
    pub what: String,
    pub status: u16,
    pub text: String,
    /// How often the server refused the request before.
    pub refusals: usize,
}

impl LoadResponse {
    /// Checks the status, and returns the body if it is JSON.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.what, self.text);
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl LoadClient {
    pub(crate) fn new(port: u16) -> Self {
        // Another test may have installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { client, url: format!("http://127.0.0.1:{port}") }
    }

    pub(crate) async fn get(&self, path: &str) -> LoadResponse {
        self.request(Method::GET, path, String::new()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> LoadResponse {
        self.request(Method::DELETE, path, String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> LoadResponse {
        self.request(Method::POST, path, body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: String) -> LoadResponse {
        self.request(Method::POST, path, body).await
    }

    /// Sends a request, again as long as the server refuses it for the moment.
    async fn request(&self, method: Method, path: &str, body: String) -> LoadResponse {
        let what = format!("{method} {path}");
        for refusals in 0..ATTEMPTS_MAX {
            let mut request = self.client.request(method.clone(), format!("{}{path}", self.url));
            if !body.is_empty() {
                request = request.header("content-type", "application/json").body(body.clone());
            }
            let response = request.send().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let status = response.status().as_u16();
            let text = response.text().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            if status != 429 {
                return LoadResponse { what, status, text, refusals };
            }
            tokio::time::sleep(REFUSAL_PAUSE).await;
        }
        panic!("{what} was refused {ATTEMPTS_MAX} times");
    }
}
