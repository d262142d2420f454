//! The network, over reqwest. Follows no redirects, for a key must not travel to where a server points, and uses no proxy for
//! this machine itself. Decides when a connection is given up, not when an answer takes too long.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use segue_core::prompt::{CallFailure, FailureKind};

use super::{AuthHeader, HttpMethod, HttpRequest, HttpResponse, HttpTransport};
use crate::limits::{CONNECT_MS_MAX, PROBE_MS_MAX};

/// Talks HTTP. Clones share their connections.
#[derive(Debug, Clone)]
pub struct ReqwestTransport {
    clients: Arc<[OnceLock<reqwest::Client>; 4]>,
    timeouts: TimeoutProfile,
}

/// How long somebody is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeoutProfile {
    /// Answers may take long.
    #[default]
    Completion,
    /// It is only asked whether somebody is there.
    Probe,
}

impl ReqwestTransport {
    /// A client of this patience. Nothing is read or opened before it is used.
    #[must_use]
    pub fn new(timeouts: TimeoutProfile) -> Self {
        Self { clients: Arc::default(), timeouts }
    }

    /// The client for an address. Reading the machine's certificates takes longer than many a command, so whoever needs none of
    /// them does without.
    fn client_for_url(&self, url: &Url) -> Result<reqwest::Client, CallFailure> {
        let (is_here, is_plain) = (is_loopback_url(url), url.scheme() == "http");
        let slot = &self.clients[usize::from(is_here) * 2 + usize::from(is_plain)];
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        // Somebody may have chosen another provider for the process; theirs then serves us too.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")));
        if self.timeouts == TimeoutProfile::Probe {
            let most = Duration::from_millis(PROBE_MS_MAX);
            builder = builder.timeout(most).connect_timeout(most);
        }
        if is_here {
            builder = builder.no_proxy();
        }
        // A plain address may still be reached through a proxy over TLS.
        if is_here && is_plain {
            builder = builder.tls_certs_only([]);
        }
        let built = builder.build();
        let built = built
            .map_err(|error| failure_with_root_cause(FailureKind::Network, "the network cannot be used", &error))?;
        Ok(slot.get_or_init(|| built).clone())
    }

    fn build_request(&self, request: &HttpRequest) -> Result<reqwest::RequestBuilder, CallFailure> {
        let bad = |what: &str| CallFailure::new(FailureKind::BadRequest, what.to_owned());
        let url = Url::parse(&request.url).map_err(|_| bad(&format!("`{}` is no address", request.url)))?;
        let client = self.client_for_url(&url)?;
        let mut prepared = match request.method {
            HttpMethod::Get => client.get(url),
            HttpMethod::Post => client.post(url).body(request.body.clone()),
        };
        for (name, value) in &request.headers {
            prepared = prepared.header(name, value);
        }
        if let Some(AuthHeader { name, scheme, secret: key }) = &request.auth {
            let value = HeaderValue::from_str(&format!("{scheme}{}", key.expose_secret()));
            let mut value = value.map_err(|_| bad("the key holds characters that no key has; was it copied whole?"))?;
            value.set_sensitive(true);
            prepared = prepared.header(HeaderName::from_static(name), value);
        }
        Ok(prepared)
    }
}

impl HttpTransport for ReqwestTransport {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, CallFailure>> {
        let prepared = self.build_request(&request);
        let place = host_and_port(&request.url);
        async move {
            let response = prepared?.send().await.map_err(|error| unreachable_failure(&place, &error))?;
            let headers = response.headers().iter();
            let headers = headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
            Ok(HttpResponse {
                status: response.status().as_u16(),
                headers: headers.collect(),
                body: response
                    .bytes_stream()
                    .map(move |bytes| {
                        bytes.map(|bytes| bytes.to_vec()).map_err(|error| broken_connection_failure(&place, &error))
                    })
                    .boxed(),
            })
        }
        .boxed()
    }
}

fn is_loopback_url(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Host and port, for people.
fn host_and_port(url: &str) -> String {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port()?)));
    match (host, &url) {
        (Some((host, port)), _) => format!("{host}:{port}"),
        (None, Some(url)) => url.host_str().unwrap_or_default().to_owned(),
        (None, None) => String::new(),
    }
}

fn unreachable_failure(host: &str, error: &reqwest::Error) -> CallFailure {
    if error.is_timeout() {
        return failure_with_root_cause(FailureKind::Network, &format!("{host} does not answer"), error);
    }
    failure_with_root_cause(FailureKind::Network, &format!("{host} cannot be reached"), error)
}

fn broken_connection_failure(host: &str, error: &reqwest::Error) -> CallFailure {
    failure_with_root_cause(
        FailureKind::Network,
        &format!("the connection to {host} broke in the middle of an answer"),
        error,
    )
}

/// The words and, behind them, what lies at the bottom of the error; the layers between only repeat the address.
fn failure_with_root_cause(kind: FailureKind, context: &str, error: &reqwest::Error) -> CallFailure {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    CallFailure::new(kind, format!("{context}: {deepest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_from_others() {
        for (url, expected) in [
            ("http://localhost:11434/v1", true),
            ("http://127.0.0.1/", true),
            ("http://[::1]:8080/", true),
            ("http://192.168.1.4:8080/", false),
            ("https://api.openai.com/v1", false),
        ] {
            assert_eq!(is_loopback_url(&Url::parse(url).expect("an address")), expected, "{url}");
        }
    }

    #[test]
    fn a_place_is_named_without_path_and_query() {
        assert_eq!(host_and_port("https://api.example.com/v1/x?key=1"), "api.example.com");
        assert_eq!(host_and_port("http://localhost:8080/v1"), "localhost:8080");
        assert_eq!(host_and_port("nonsense"), "");
    }
}
