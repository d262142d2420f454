//! Serves pages for people: the explanation of each error, and the API reference. They are generated from the repository's
//! documents and contain no script.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use utoipa::openapi::OpenApi;

use crate::problem::HttpProblem;

/// The contents of `docs/errors.md`.
pub const ERRORS_MARKDOWN: &str = include_str!("../../../docs/errors.md");

const PAGE_STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;\
background:#fff}code,pre{font:14px ui-monospace,monospace;background:#f2f2f2;padding:.1em .3em}pre{padding:.6em;overflow:auto}\
h2{margin-top:2em;border-bottom:1px solid #ddd}summary{cursor:pointer}.m{display:inline-block;min-width:4.5em;font-weight:600}\
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}code,pre{background:#262626}h2{border-color:#333}\
a{color:#8ab4f8}}";

/// Serves the page of one error.
pub(crate) async fn error_page(Path(code): Path<String>) -> Result<Response, HttpProblem> {
    let sections = ERRORS_MARKDOWN.split("\n## ").skip(1);
    let mut named = sections.filter_map(|section| section.split_once('\n'));
    let not_found = || HttpProblem::not_found("there is no error with that code; see `/errors`");
    let (name, text) = named.find(|(name, _)| *name == code).ok_or_else(not_found)?;
    Ok(html_page_response(
        name,
        &format!("<h1>{}</h1>{}<p><a href=\"/errors\">All errors</a></p>", escape_html(name), markdown_to_html(text)),
    ))
}

/// Serves the page of all errors.
pub(crate) async fn errors_page() -> Response {
    let mut body = "<h1>Errors</h1>".to_owned();
    for (name, text) in ERRORS_MARKDOWN.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')) {
        let name = escape_html(name);
        push_fmt(
            &mut body,
            format_args!("<h2 id=\"{name}\"><a href=\"/errors/{name}\">{name}</a></h2>{}", markdown_to_html(text)),
        );
    }
    html_page_response("Errors", &body)
}

/// Renders the OpenAPI document as a page.
#[must_use]
pub(crate) fn render_api_reference(api: &OpenApi) -> String {
    // Our own types can always be serialized.
    let document = serde_json::to_value(api).unwrap_or_default();
    let mut body = format!(
        "<h1>{}</h1><p>The <a href=\"/openapi.json\">OpenAPI document</a>. Examples of every route are in \
         <code>docs/http.md</code>. <a href=\"/errors\">All errors</a>.</p>",
        escape_html(document["info"]["title"].as_str().unwrap_or_default())
    );
    let mut tag = String::new();
    let mut operations: Vec<(String, String, String, serde_json::Value)> = Vec::new();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let tag = operation["tags"][0].as_str().unwrap_or_default().to_owned();
            operations.push((tag, path.clone(), method.clone(), operation.clone()));
        }
    }
    let order: Vec<&str> =
        document["tags"].as_array().into_iter().flatten().filter_map(|tag| tag["name"].as_str()).collect();
    operations.sort_by_key(|(tag, ..)| order.iter().position(|known| known == tag));
    for (operation_tag, path, method, operation) in operations {
        if operation_tag != tag {
            push_fmt(&mut body, format_args!("<h2>{}</h2>", escape_html(&operation_tag)));
            tag = operation_tag;
        }
        push_operation_html(&mut body, &path, &method, &operation);
    }
    body.push_str("<h2>Schemas</h2>");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let name = escape_html(name);
        let text = escape_html(&format!("{schema:#}"));
        push_fmt(
            &mut body,
            format_args!("<details id=\"{name}\"><summary>{name}</summary><pre>{text}</pre></details>"),
        );
    }
    wrap_html_document("API reference", &body)
}

fn push_operation_html(body: &mut String, path: &str, method: &str, operation: &serde_json::Value) {
    let text = |value: &serde_json::Value| escape_html(value.as_str().unwrap_or_default());
    push_fmt(
        body,
        format_args!(
            "<details><summary><span class=\"m\">{}</span><code>{}</code> {}</summary><p>{}</p><ul>",
            method.to_uppercase(),
            escape_html(path),
            text(&operation["summary"]),
            text(&operation["description"])
        ),
    );
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (name, location, description) = (&parameter["name"], &parameter["in"], &parameter["description"]);
        push_fmt(body, format_args!("<li><code>{}</code> ({}) {}</li>", text(name), text(location), text(description)));
    }
    body.push_str("</ul><p>Responses: ");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let kinds = response["content"].as_object().into_iter().flatten();
        let schema = kinds.filter_map(|(_, content)| content["schema"]["$ref"].as_str()).next();
        match schema.and_then(|schema| schema.rsplit('/').next()) {
            Some(name) => {
                push_fmt(body, format_args!("<a href=\"#{0}\">{1} {0}</a>; ", escape_html(name), escape_html(status)))
            }
            None => push_fmt(body, format_args!("{}; ", escape_html(status))),
        }
    }
    body.push_str("</p></details>");
}

fn html_page_response(title: &str, body: &str) -> Response {
    html_response(wrap_html_document(title, body))
}

/// Builds the response of a page.
pub(crate) fn html_response(html: String) -> Response {
    let mut response = Html(html).into_response();
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

fn wrap_html_document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{} · Segue</title><style>{PAGE_STYLE}</style></head><body>{body}</body></html>",
        escape_html(title)
    )
}

/// Renders the subset of Markdown that `docs/errors.md` uses: paragraphs and code.
fn markdown_to_html(text: &str) -> String {
    let paragraphs = text.trim().split("\n\n").map(|paragraph| {
        let pieces = paragraph.split('`').enumerate().map(|(index, piece)| match index % 2 {
            0 => escape_html(piece),
            _ => format!("<code>{}</code>", escape_html(piece)),
        });
        format!("<p>{}</p>", pieces.collect::<String>())
    });
    paragraphs.collect()
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn push_fmt(body: &mut String, text: std::fmt::Arguments<'_>) {
    body.write_fmt(text).expect("writing to a string cannot fail");
}
