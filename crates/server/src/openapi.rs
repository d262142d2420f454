//! The API's description, made from the code. What every route can answer beside its own answers is added here.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, HttpMethod, InfoBuilder, OpenApi, Ref, RefOr, ResponseBuilder, Schema, path::PathItem,
    tag::TagBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{PROBLEM_JSON, ProblemDetails};

const OPENAPI_TAGS: [(&str, &str); 13] = [
    ("server", "The server itself, its flows and models."),
    ("sessions", "Conversations: begin, list, look, change, fork, erase."),
    ("messages", "Say something, and get the reply at once, as it is said, or later."),
    ("events", "The journal, as pages and as live streams."),
    ("turns", "What was said, with everything that happened on the way."),
    ("calls", "What each model was shown, and why; the exact prompt; once more."),
    ("threads", "Which role remembers what, from when to when."),
    ("phases", "Where the phase graphs stand, and how to move them."),
    ("handovers", "Documents that crossed from one memory to another."),
    ("flow", "What a flow knows, in a form that needs no knowledge of the flow."),
    ("ledger", "What it cost."),
    ("state", "The whole state, and texts."),
    ("webhooks", "Be told of events elsewhere."),
];

const OPENAI_TAG: (&str, &str) = ("openai", "The door that every OpenAI client knows.");

/// What every route can answer.
const COMMON_RESPONSES: [(&str, &str); 14] = [
    ("400", "What was sent cannot be understood, or not be accepted as it is."),
    ("401", "A key is needed, or the one given is not known."),
    ("403", "Not with this key, or not from there."),
    ("404", "What was named is not there, or not yours."),
    ("405", "Not with this method."),
    ("406", "Not in this form."),
    ("408", "The body took too long to arrive."),
    ("409", "Not as things stand now."),
    ("413", "The body is too large."),
    ("415", "The body is not JSON."),
    ("429", "Too much at once."),
    ("500", "Something failed here."),
    ("503", "Not now."),
    ("507", "There is no room left on the disk."),
];

/// Completes what was gathered from the routes.
#[must_use]
pub fn complete_openapi_document(mut api: OpenApi) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("Segue")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A conversation engine in which memory has rules. See docs/http.md for every route with examples.",
        ))
        .license(Some(utoipa::openapi::License::new("MIT OR Apache-2.0")))
        .build();
    let tags = OPENAPI_TAGS.iter().chain([&OPENAI_TAG]);
    api.tags =
        Some(tags.map(|(name, about)| TagBuilder::new().name(*name).description(Some(*about)).build()).collect());
    api.servers = None;
    for (path, item) in &mut api.paths.paths {
        let is_door = crate::openai::is_openai_path(path);
        for operation in operations_mut(item) {
            for (status, about) in COMMON_RESPONSES {
                let (kind, schema) = match is_door {
                    true => ("application/json", <crate::openai::OpenAiError as ToSchema>::name()),
                    false => (PROBLEM_JSON, ProblemDetails::name()),
                };
                let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
                let response = ResponseBuilder::new().description(about).content(kind, content).build();
                operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
            }
            // Streams do not end, and some answers have no body; none of that is a problem of its own.
            if path.starts_with("/v1/") || path == "/metrics" {
                operation.security = Some(vec![
                    SecurityRequirement::default(),
                    SecurityRequirement::new::<_, [&str; 0], &str>("key", []),
                ]);
            }
        }
    }
    let components = api.components.get_or_insert_with(Default::default);
    let mut add = |name: String, schema: RefOr<Schema>| drop(components.schemas.insert(name, schema));
    add(ProblemDetails::name().into_owned(), ProblemDetails::schema());
    add(<crate::openai::OpenAiError as ToSchema>::name().into_owned(), crate::openai::OpenAiError::schema());
    components
        .security_schemes
        .insert("key".to_owned(), RefOr::T(SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer))));
    api
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}

/// The methods of a path, for the test that nothing was forgotten.
#[must_use]
pub fn list_http_methods(item: &PathItem) -> Vec<HttpMethod> {
    let has = [
        (item.get.is_some(), HttpMethod::Get),
        (item.post.is_some(), HttpMethod::Post),
        (item.patch.is_some(), HttpMethod::Patch),
        (item.delete.is_some(), HttpMethod::Delete),
    ];
    has.into_iter().filter(|(has, _)| *has).map(|(_, method)| method).collect()
}
