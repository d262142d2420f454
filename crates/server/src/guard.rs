//! Middleware that admits or rejects every request, and identifies its caller. It checks the host and the origin first, so
//! that a page of another site cannot reach a server on this machine through the user's browser.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::AppState;
use crate::caller::Caller;
use crate::keys::KEY_PREFIX;
use crate::options::ServerOptions;
use crate::problem::HttpProblem;

/// Passes a request on with its caller, or answers it with a problem.
pub(crate) async fn guard_request(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let origin = request.headers().get(header::ORIGIN).cloned();
    let is_openai = crate::openai::is_openai_path(request.uri().path());
    // The body of a request cannot be shared between threads, so nothing borrows the request while the keys are read.
    let authorized = match check_request(&app, &request) {
        Ok(RequestApiKeyRequirement::Open) => Ok(Caller::default()),
        Ok(RequestApiKeyRequirement::Authorization(given)) => authorize_caller(&app, given.as_ref()).await,
        Err(problem) => Err(problem),
    };
    let response = match authorized {
        Ok(_) if is_cors_preflight(&request) => StatusCode::NO_CONTENT.into_response(),
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) if is_openai => {
            log_refused_request(&problem, &method, &route);
            crate::openai::openai_error_response(problem)
        }
        Err(problem) => {
            log_refused_request(&problem, &method, &route);
            problem.into_response()
        }
    };
    let status = response.status().as_u16();
    tracing::debug!(%method, route, status, duration_ms = started.elapsed().as_millis(), "request answered");
    let response = add_response_headers(&app, response, origin.as_ref());
    app.metrics.record_request(&method, &route, response.status(), started.elapsed());
    response
}

/// Logs a request that the guard refused. The given key is never logged, and neither is the path, which may contain names.
fn log_refused_request(problem: &HttpProblem, method: &Method, route: &str) {
    match problem.code {
        // An attack, or a client with an old key.
        "key-invalid" | "host-not-allowed" | "origin-not-allowed" => {
            tracing::warn!(%method, route, code = problem.code, "request refused");
        }
        code => tracing::debug!(%method, route, code, "request refused"),
    }
}

/// What a request needs to be accepted.
enum RequestApiKeyRequirement {
    /// It needs no key.
    Open,
    /// Its `Authorization` header has to be checked.
    Authorization(Option<HeaderValue>),
}

/// Checks where a request comes from and what it asks for.
fn check_request(app: &AppState, request: &Request) -> Result<RequestApiKeyRequirement, HttpProblem> {
    check_host(&app.options, request)?;
    check_origin(&app.options, request)?;
    let path = request.uri().path();
    // The files of the studio, the pages and the health checks need no key.
    let is_open = !path.starts_with("/v1/") && path != "/metrics";
    if is_open || is_cors_preflight(request) {
        return Ok(RequestApiKeyRequirement::Open);
    }
    Ok(RequestApiKeyRequirement::Authorization(request.headers().get(header::AUTHORIZATION).cloned()))
}

async fn authorize_caller(app: &AppState, given: Option<&HeaderValue>) -> Result<Caller, HttpProblem> {
    let caller = authenticate_caller(app, given).await?;
    if app.is_shutting_down() {
        return Err(HttpProblem::from_engine_error(&segue_engine::Error::ShuttingDown, &caller));
    }
    app.rate_limiter.take_request(&caller).await?;
    Ok(caller)
}

async fn authenticate_caller(app: &AppState, given: Option<&HeaderValue>) -> Result<Caller, HttpProblem> {
    let given = given.and_then(|value| value.to_str().ok());
    let key = given.and_then(|given| given.strip_prefix("Bearer ").or_else(|| given.strip_prefix("bearer ")));
    let invalid_key = || HttpProblem::new("key-invalid", "unknown key; it may have been revoked");
    match key.map(str::trim) {
        Some(key) if key.starts_with(KEY_PREFIX) => app.keys.authenticate_key(key).await.ok_or_else(invalid_key),
        // Clients of other APIs always send some key. It is ignored where no key is required.
        _ if !app.options.is_key_required() => Ok(Caller::default()),
        Some(_) => Err(invalid_key()),
        None => Err(HttpProblem::new("key-missing", "this server requires a key; send `Authorization: Bearer sg_…`")),
    }
}

/// Returns the requested host, without the port.
fn request_host(request: &Request) -> Option<&str> {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let named = named.or_else(|| request.uri().authority().map(|authority| authority.as_str()))?;
    Some(strip_port(named))
}

fn strip_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

fn check_host(options: &ServerOptions, request: &Request) -> Result<(), HttpProblem> {
    if options.is_reachable_remotely() && options.allowed_hosts.is_empty() {
        return Ok(());
    }
    let host = request_host(request).unwrap_or_default();
    let is_own = ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| host.eq_ignore_ascii_case(own));
    if is_own || options.allowed_hosts.iter().any(|known| host.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    Err(HttpProblem::new(
        "host-not-allowed",
        "this host name is not allowed; start the server with `--host NAME` to allow it",
    ))
}

/// Checks the `Origin` header of a browser. Only the server's own pages and the configured origins are allowed.
fn check_origin(options: &ServerOptions, request: &Request) -> Result<(), HttpProblem> {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let own = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let own = own.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let is_own = origin.split_once("://").is_some_and(|(_, site)| Some(site) == own);
    if is_own || is_allowed_origin(options, origin) {
        return Ok(());
    }
    Err(HttpProblem::new(
        "origin-not-allowed",
        "requests from this origin are not allowed; start the server with `--origin URL` to allow it",
    ))
}

fn is_allowed_origin(options: &ServerOptions, origin: &str) -> bool {
    options.allowed_origins.iter().any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(origin))
}

fn is_cors_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Adds the security, cache and CORS headers of every response.
fn add_response_headers(app: &AppState, mut response: Response, origin: Option<&HeaderValue>) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    if let Some(origin) =
        origin.filter(|origin| origin.to_str().is_ok_and(|origin| is_allowed_origin(&app.options, origin)))
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH, DELETE"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id, segue-session"),
        );
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location, segue-session"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn request(host: &str, origin: Option<&str>) -> Request {
        let mut request = Request::builder().uri("/v1/flows").header(header::HOST, host);
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        request.body(axum::body::Body::empty()).expect("a request")
    }

    fn options() -> ServerOptions {
        ServerOptions::new(crate::shared_state::CrossServerSharedState::from_folder(Path::new("")))
    }

    #[test]
    fn unknown_host_is_refused() {
        for own in ["localhost", "LOCALHOST:7348", "127.0.0.1:80", "[::1]:7348", "[::1]"] {
            assert!(check_host(&options(), &request(own, None)).is_ok(), "{own}");
        }
        for foreign in ["evil.example", "evil.example:7348", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(check_host(&options(), &request(foreign, None)).is_err(), "{foreign}");
        }
        let named = ServerOptions { allowed_hosts: vec!["box.lan".into()], ..options() };
        assert!(check_host(&named, &request("box.lan:7348", None)).is_ok());
    }

    #[test]
    fn foreign_origin_is_refused() {
        let ask = |options: &ServerOptions, origin| check_origin(options, &request("localhost:7348", Some(origin)));
        assert!(ask(&options(), "http://localhost:7348").is_ok());
        for foreign in
            ["http://localhost:3000", "https://evil.example", "null", "http://localhost:7348.evil.example", ""]
        {
            assert!(ask(&options(), foreign).is_err(), "{foreign}");
        }
        let known = ServerOptions { allowed_origins: vec!["https://app.example/".into()], ..options() };
        assert!(ask(&known, "https://app.example").is_ok());
        assert!(check_origin(&options(), &request("localhost", None)).is_ok(), "only browsers send an origin");
    }
}
