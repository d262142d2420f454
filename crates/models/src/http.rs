//! The one seam between the adapters and the network: a request goes out, a status and a stream of bytes come back. What
//! stands here can be the network, a recorder in front of it, or a cassette in its place. Knows no vendor's format.

mod client;
mod secret;

use std::fmt;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use segue_core::prompt::{Failure, FailureKind};

pub use client::{Client, Patience};
pub use secret::Secret;

/// Carries requests to a vendor. Dropping the future or the body breaks the exchange off.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends a request; the answer's body may still be on its way.
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Failure>>;
}

/// What a vendor is sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// How.
    pub method: Method,
    /// Where to. Holds no secret.
    pub url: String,
    /// The headers that are no secret; their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The header that is one.
    pub key: Option<KeyHeader>,
    /// JSON, or nothing.
    pub body: String,
}

impl Request {
    /// A question without a body.
    #[must_use]
    pub fn get(url: String) -> Self {
        Self { method: Method::Get, url, headers: Vec::new(), key: None, body: String::new() }
    }

    /// A question with one.
    #[must_use]
    pub fn post(url: String, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: Method::Post, url, headers, key: None, body: body.to_string() }
    }
}

/// The header that carries a key.
#[derive(Debug, Clone)]
pub struct KeyHeader {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What stands before the key.
    pub scheme: &'static str,
    /// The key.
    pub key: Secret,
}

/// The verbs we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Ask for something.
    Get,
    /// Send something.
    Post,
}

impl Method {
    /// As HTTP writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// A body on its way.
pub type Body = BoxStream<'static, Result<Vec<u8>, Failure>>;

/// What a vendor answers.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers; their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl Response {
    /// The header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Whether the vendor did what it was asked.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The header of that name.
pub(crate) fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The beginning of a body, up to so many bytes; what cannot be read of it is left out.
pub(crate) async fn beginning(mut body: Body, bytes_max: usize) -> String {
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
pub(crate) async fn whole(mut body: Body, bytes_max: usize) -> Result<String, Failure> {
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        read.extend_from_slice(&bytes?);
        if read.len() > bytes_max {
            let message = format!("the answer is longer than {bytes_max} bytes");
            return Err(Failure::new(FailureKind::Unusable, message));
        }
    }
    String::from_utf8(read).map_err(|_| Failure::new(FailureKind::Malformed, "the answer is no UTF-8 text"))
}
