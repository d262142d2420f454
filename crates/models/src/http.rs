//! The interface between vendor adapters and the network: send a request, receive a status and a byte stream. Implemented by
//! the real network, a recorder around it, or a cassette player. Knows no vendor's format.

mod client;
mod secret;

use std::fmt;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind};

pub(crate) use client::is_unencrypted_remote_url;
pub use client::{CompletionOrProbeTimeouts, ReqwestTransport};
pub use secret::SecretString;

/// Sends requests to a vendor. Dropping the future or the body cancels the exchange.
pub trait HttpTransport: Send + Sync + fmt::Debug {
    /// Sends a request and returns once the response headers have arrived.
    fn send(&self, request: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>>;
}

/// A request to a vendor.
#[derive(Debug, Clone)]
pub struct VendorHttpRequest {
    pub method: HttpMethod,
    /// Contains no secret.
    pub url: String,
    /// Non-secret headers, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The header with the API key or password.
    pub auth: Option<AuthHeader>,
    /// JSON, or empty.
    pub body: String,
    /// The model call that the request belongs to. It is not sent; a replay tells equal requests apart by it.
    pub call: Option<CallId>,
}

impl VendorHttpRequest {
    #[must_use]
    pub fn get(url: String) -> Self {
        Self { method: HttpMethod::Get, url, headers: Vec::new(), auth: None, body: String::new(), call: None }
    }

    /// Creates a request with a JSON body.
    #[must_use]
    pub fn post(url: String, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: HttpMethod::Post, url, headers, auth: None, body: body.to_string(), call: None }
    }
}

/// A header that carries a secret.
#[derive(Debug, Clone)]
pub struct AuthHeader {
    /// In lowercase.
    pub name: &'static str,
    /// The prefix of the value, such as `Bearer `.
    pub scheme: &'static str,
    pub secret: SecretString,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Post,
}

impl HttpMethod {
    /// Returns the method as it appears in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// A response body as it arrives.
pub type HttpBodyStream = BoxStream<'static, Result<Vec<u8>, CallFailure>>;

/// A vendor's response.
pub struct VendorHttpResponse {
    pub status: u16,
    /// With lowercase names.
    pub headers: Vec<(String, String)>,
    pub body: HttpBodyStream,
}

impl fmt::Debug for VendorHttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl VendorHttpResponse {
    /// Returns the value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    /// Returns whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Returns the value of the first header with this name.
pub(crate) fn find_header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Reads at most `bytes_max` bytes of a body; a failure ends it early.
pub(crate) async fn read_body_prefix(mut body: HttpBodyStream, bytes_max: usize) -> String {
    let mut read = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        read.extend_from_slice(&bytes);
        if read.len() >= bytes_max {
            read.truncate(bytes_max);
            break;
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Reads a whole body.
///
/// # Errors
/// `UnusableReply` if it is longer than `bytes_max`, `MalformedReply` if it is not UTF-8; the stream's own failure.
pub(crate) async fn read_whole_body(mut body: HttpBodyStream, bytes_max: usize) -> Result<String, CallFailure> {
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        read.extend_from_slice(&bytes?);
        if read.len() > bytes_max {
            let message = format!("the response is longer than {bytes_max} bytes");
            return Err(CallFailure::new(CallFailureKind::UnusableReply, message));
        }
    }
    String::from_utf8(read)
        .map_err(|_| CallFailure::new(CallFailureKind::MalformedReply, "the response is not UTF-8 text"))
}
