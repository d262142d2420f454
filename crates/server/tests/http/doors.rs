//! Who may come in, and what is at the door: hosts, origins, the studio's files.

use reqwest::Method;

use crate::lab::{Lab, TOUR, answer};

#[tokio::test]
async fn a_page_of_another_site_reaches_nothing() {
    let lab = Lab::with(TOUR, |options| options.allowed_origins = vec!["https://app.example".into()]).await;
    let ask = |name: &str, value: &str| answer(lab.ask(Method::GET, "/v1/flows").header(name, value));
    assert_eq!(ask("host", "evil.example").await.problem(403), "foreign-host");
    assert_eq!(ask("origin", "https://evil.example").await.problem(403), "foreign-origin");
    assert!(ask("accept", "*/*").await.headers.get("access-control-allow-origin").is_none());
    let known = ask("origin", "https://app.example").await;
    assert_eq!(known.headers["access-control-allow-origin"], "https://app.example");
    let own = ask("origin", &lab.url).await;
    assert_eq!((own.status.as_u16(), own.headers.get("access-control-allow-origin")), (200, None));
    let preflight = lab
        .ask(Method::OPTIONS, "/v1/sessions")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST");
    let preflight = answer(preflight).await;
    assert_eq!(preflight.status, 204);
    assert!(preflight.headers["access-control-allow-headers"].to_str().expect("text").contains("authorization"));
    let foreign = lab
        .ask(Method::OPTIONS, "/v1/sessions")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST");
    assert_eq!(answer(foreign).await.status, 403);
}

#[tokio::test]
async fn the_studio_may_run_its_own_script_and_no_other() {
    let lab = Lab::new().await;
    for path in ["/", "/s/fox", "/s/fox/c/c3"] {
        let page = lab.get(path).await;
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
    let tag = lab.get("/").await.headers["etag"].clone();
    assert_eq!(answer(lab.ask(Method::GET, "/").header("if-none-match", tag)).await.status, 304);
    for path in ["/v1/nothing", "/v1", "/assets/nothing.js", "/../Cargo.toml", "/%2e%2e/Cargo.toml"] {
        assert_eq!(lab.get(path).await.status, 404, "{path}");
    }
    assert_eq!(answer(lab.ask(Method::POST, "/s/fox")).await.status, 404);
}

#[tokio::test]
async fn a_wrong_method_says_which_are_right() {
    let lab = Lab::new().await;
    let wrong = answer(lab.ask(Method::PUT, "/v1/sessions")).await;
    let allow = wrong.headers["allow"].to_str().expect("text").to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    assert_eq!(wrong.problem(405), "method-not-allowed");
}

#[tokio::test]
async fn answers_are_not_kept_by_anybody_on_the_way() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    for path in ["/v1/sessions", "/v1/sessions/fox", "/v1/flows", "/v1/sessions/none"] {
        assert_eq!(lab.get(path).await.headers["cache-control"], "no-store", "{path}");
    }
}
