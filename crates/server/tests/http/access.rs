//! Access checks and static files: hosts, origins, methods, caching and the studio.

use reqwest::Method;

use crate::test_server::{DEFAULT_SCENARIO, TestServer, send};

#[tokio::test]
async fn foreign_host_and_origin_are_refused() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| {
        options.allowed_origins = vec!["https://app.example".into()]
    })
    .await;
    let ask = |name: &str, value: &str| send(server.request(Method::GET, "/v1/flows").header(name, value));
    assert_eq!(ask("host", "evil.example").await.problem_code(403), "host-not-allowed");
    assert_eq!(ask("origin", "https://evil.example").await.problem_code(403), "origin-not-allowed");
    assert!(ask("accept", "*/*").await.headers.get("access-control-allow-origin").is_none());
    let known = ask("origin", "https://app.example").await;
    assert_eq!(known.headers["access-control-allow-origin"], "https://app.example");
    let own = ask("origin", &server.url).await;
    assert_eq!((own.status.as_u16(), own.headers.get("access-control-allow-origin")), (200, None));
    let preflight = server
        .request(Method::OPTIONS, "/v1/sessions")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST");
    let preflight = send(preflight).await;
    assert_eq!(preflight.status, 204);
    assert!(preflight.headers["access-control-allow-headers"].to_str().expect("text").contains("authorization"));
    let foreign = server
        .request(Method::OPTIONS, "/v1/sessions")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST");
    assert_eq!(send(foreign).await.status, 403);
}

#[tokio::test]
async fn studio_allows_only_its_own_scripts() {
    let server = TestServer::new().await;
    for path in ["/", "/s/fox", "/s/fox/c/c3"] {
        let page = server.get(path).await;
        assert_eq!(
            (page.status.as_u16(), &page.headers["cache-control"]),
            (200, &"no-cache".parse().expect("a value")),
            "{path}"
        );
        let policy = page.headers["content-security-policy"].to_str().expect("text");
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    }
    let tag = server.get("/").await.headers["etag"].clone();
    assert_eq!(send(server.request(Method::GET, "/").header("if-none-match", tag)).await.status, 304);
    for path in ["/v1/nothing", "/v1", "/assets/nothing.js", "/../Cargo.toml", "/%2e%2e/Cargo.toml"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    assert_eq!(send(server.request(Method::POST, "/s/fox")).await.status, 404);
}

#[tokio::test]
async fn wrong_method_lists_the_allowed_ones() {
    let server = TestServer::new().await;
    let wrong = send(server.request(Method::PUT, "/v1/sessions")).await;
    let allow = wrong.headers["allow"].to_str().expect("text").to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    assert_eq!(wrong.problem_code(405), "method-not-allowed");
}

#[tokio::test]
async fn responses_are_not_cached() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    for path in ["/v1/sessions", "/v1/sessions/fox", "/v1/flows", "/v1/sessions/none"] {
        assert_eq!(server.get(path).await.headers["cache-control"], "no-store", "{path}");
    }
}
