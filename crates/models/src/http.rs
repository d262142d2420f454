//! The one seam between the adapters and the network: a request goes out, a status and a stream of bytes come back. What
//! stands here can be the network, a recorder in front of it, or a cassette in its place. Knows no vendor's format.

mod client;
mod secret;

use std::fmt;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use segue_core::prompt::{CallFailure, FailureKind};

pub use client::{ReqwestTransport, TimeoutProfile};
pub use secret::SecretString;

/// Carries requests to a vendor. Dropping the future or the body breaks the exchange off.
pub trait HttpTransport: Send + Sync + fmt::Debug {
    /// Sends a request; the answer's body may still be on its way.
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, CallFailure>>;
}

/// What a vendor is sent.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// How.
    pub method: HttpMethod,
    /// Where to. Holds no secret.
    pub url: String,
    /// The headers that are no secret; their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The header that is one.
    pub auth: Option<AuthHeader>,
    /// JSON, or nothing.
    pub body: String,
}

impl HttpRequest {
    /// A question without a body.
    #[must_use]
    pub fn get(url: String) -> Self {
        Self { method: HttpMethod::Get, url, headers: Vec::new(), auth: None, body: String::new() }
    }

    /// A question with one.
    #[must_use]
    pub fn post(url: String, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: HttpMethod::Post, url, headers, auth: None, body: body.to_string() }
    }
}

/// The header that carries a key.
#[derive(Debug, Clone)]
pub struct AuthHeader {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What stands before the key.
    pub scheme: &'static str,
    /// The key.
    pub secret: SecretString,
}

/// The verbs we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    /// Ask for something.
    Get,
    /// Send something.
    Post,
}

impl HttpMethod {
    /// As HTTP writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// A body on its way.
pub type HttpBodyStream = BoxStream<'static, Result<Vec<u8>, CallFailure>>;

/// What a vendor answers.
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The headers; their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: HttpBodyStream,
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl HttpResponse {
    /// The header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    /// Whether the vendor did what it was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The header of that name.
pub(crate) fn find_header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The beginning of a body, up to so many bytes; what cannot be read of it is left out.
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

/// A whole body.
///
/// # Errors
/// `Unusable` if it is longer than `bytes_max`, `Malformed` if it is no UTF-8; the stream's own failure.
pub(crate) async fn read_whole_body(mut body: HttpBodyStream, bytes_max: usize) -> Result<String, CallFailure> {
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        read.extend_from_slice(&bytes?);
        if read.len() > bytes_max {
            let message = format!("the answer is longer than {bytes_max} bytes");
            return Err(CallFailure::new(FailureKind::UnusableReply, message));
        }
    }
    String::from_utf8(read).map_err(|_| CallFailure::new(FailureKind::MalformedReply, "the answer is no UTF-8 text"))
}
