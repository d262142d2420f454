//! HTTP over reqwest. Follows no redirects, because that would send the API key to another server, and uses no proxy for
//! loopback addresses. Applies connect timeouts only; how long a reply may take is decided elsewhere.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use segue_core::prompt::{CallFailure, CallFailureKind};

use super::{AuthHeader, HttpMethod, HttpTransport, VendorHttpRequest, VendorHttpResponse};
use crate::limits::{CONNECT_MS_MAX, PROBE_MS_MAX};

/// Sends requests over the network. Clones share their connections.
#[derive(Debug, Clone)]
pub struct ReqwestTransport {
    clients: Arc<[OnceLock<reqwest::Client>; 4]>,
    timeouts: CompletionOrProbeTimeouts,
}

/// Which timeouts apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionOrProbeTimeouts {
    /// A connect timeout only, because replies may take long.
    #[default]
    Completion,
    /// A short timeout for the whole request, to find out whether a server exists.
    Probe,
}

impl ReqwestTransport {
    /// Creates a transport. Connections are opened and certificates read only when it is used.
    #[must_use]
    pub fn new(timeouts: CompletionOrProbeTimeouts) -> Self {
        Self { clients: Arc::default(), timeouts }
    }

    /// Returns the client for a URL. Clients that do not need the system's certificates do not load them, because that takes
    /// long.
    fn client_for_url(&self, url: &Url) -> Result<reqwest::Client, CallFailure> {
        let (is_loopback, is_plain) = (is_loopback_url(url), url.scheme() == "http");
        let slot = &self.clients[usize::from(is_loopback) * 2 + usize::from(is_plain)];
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        // The process may already have another crypto provider, which is used then.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")));
        if self.timeouts == CompletionOrProbeTimeouts::Probe {
            let timeout = Duration::from_millis(PROBE_MS_MAX);
            builder = builder.timeout(timeout).connect_timeout(timeout);
        }
        if is_loopback {
            builder = builder.no_proxy();
        }
        // Other http:// addresses may be reached through a proxy that uses TLS.
        if is_loopback && is_plain {
            builder = builder.tls_certs_only([]);
        }
        let built = builder.build();
        let built = built.map_err(|error| {
            failure_with_root_cause(CallFailureKind::Network, "cannot set up the HTTP client", &error)
        })?;
        Ok(slot.get_or_init(|| built).clone())
    }

    fn build_request(&self, request: &VendorHttpRequest) -> Result<reqwest::RequestBuilder, CallFailure> {
        let bad_request = |what: &str| CallFailure::new(CallFailureKind::BadRequest, what.to_owned());
        let url = Url::parse(&request.url).map_err(|_| bad_request(&format!("`{}` is not a URL", request.url)))?;
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
            let mut value = value.map_err(|_| {
                bad_request(
                    "the API key contains characters that are not allowed in a header; was it copied correctly?",
                )
            })?;
            value.set_sensitive(true);
            prepared = prepared.header(HeaderName::from_static(name), value);
        }
        Ok(prepared)
    }
}

impl HttpTransport for ReqwestTransport {
    fn send(&self, request: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        let prepared = self.build_request(&request);
        let host = host_and_port(&request.url);
        async move {
            let response = prepared?.send().await.map_err(|error| unreachable_failure(&host, &error))?;
            let headers = response.headers().iter();
            // Headers that are not text are not used.
            let headers = headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
            Ok(VendorHttpResponse {
                status: response.status().as_u16(),
                headers: headers.collect(),
                body: response
                    .bytes_stream()
                    .map(move |bytes| {
                        bytes.map(|bytes| bytes.to_vec()).map_err(|error| broken_connection_failure(&host, &error))
                    })
                    .boxed(),
            })
        }
        .boxed()
    }
}

/// Returns whether requests to an address leave this machine unencrypted.
pub(crate) fn is_unencrypted_remote_url(url: &str) -> bool {
    !url.starts_with("https://") && !Url::parse(url).is_ok_and(|url| is_loopback_url(&url))
}

fn is_loopback_url(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Returns host and port, for display.
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
        return failure_with_root_cause(CallFailureKind::Network, &format!("{host} did not answer in time"), error);
    }
    failure_with_root_cause(CallFailureKind::Network, &format!("{host} cannot be reached"), error)
}

fn broken_connection_failure(host: &str, error: &reqwest::Error) -> CallFailure {
    failure_with_root_cause(
        CallFailureKind::Network,
        &format!("the connection to {host} was lost in the middle of a reply"),
        error,
    )
}

/// Appends the root cause of the error; the layers between only repeat the URL.
fn failure_with_root_cause(kind: CallFailureKind, context: &str, error: &reqwest::Error) -> CallFailure {
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
    fn loopback_addresses_are_recognised() {
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
    fn a_host_is_shown_without_path_and_query() {
        assert_eq!(host_and_port("https://api.example.com/v1/x?key=1"), "api.example.com");
        assert_eq!(host_and_port("http://localhost:8080/v1"), "localhost:8080");
        assert_eq!(host_and_port("nonsense"), "");
    }
}
