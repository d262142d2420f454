//! Completes the OpenAPI document that is generated from the routes.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, Ref, RefOr, ResponseBuilder, Schema, path::PathItem, tag::TagBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{PROBLEM_JSON, ProblemDetails};

const OPENAPI_TAGS: [(&str, &str); 13] = [
    ("server", "The server, its flows and its models."),
    ("sessions", "Create, list, change, fork, export and delete sessions."),
    ("messages", "Send a message, and receive the reply at once, as a stream, or later."),
    ("events", "Read the journal as pages or live streams."),
    ("turns", "The turns of a session, with everything that happened in them."),
    ("calls", "Model calls with their receipts and exact prompts, and recomputations."),
    ("threads", "The threads of a session: which role remembered what, and for how long."),
    ("phases", "The status of phase graphs, and commands that move them."),
    ("handovers", "Typed documents that carry information from one scope to another."),
    ("flow", "The facts, artifacts and commands of the session's flow."),
    ("ledger", "The usage and cost of a session."),
    ("state", "The complete state of a session, and its texts."),
    ("webhooks", "Deliver events to other services."),
];

const OPENAI_TAG: (&str, &str) = ("openai", "Endpoints for clients of OpenAI's API.");

/// Responses that every route may return.
const COMMON_RESPONSES: [(&str, &str); 14] = [
    ("400", "The request is malformed or contains an invalid value."),
    ("401", "The key is missing or unknown."),
    ("403", "The key, host or origin is not allowed."),
    ("404", "The resource does not exist, or the caller may not see it."),
    ("405", "The path does not support this method."),
    ("406", "The accepted media types are not supported."),
    ("408", "The body took too long to arrive."),
    ("409", "The current state does not allow the request."),
    ("413", "The body is too large."),
    ("415", "The body is not JSON."),
    ("429", "A limit of the key, the session or the server is reached."),
    ("500", "The server failed."),
    ("503", "The server is not ready or is shutting down, or its database cannot be reached."),
    ("507", "The disk is full."),
];

/// Adds the metadata, tags, common responses and security schemes.
#[must_use]
pub(crate) fn complete_openapi_document(mut api: OpenApi) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("Segue")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A conversation engine with explicit memory rules. See docs/http.md for every route with examples.",
        ))
        .license(Some(utoipa::openapi::License::new("MIT OR Apache-2.0")))
        .build();
    let tags = OPENAPI_TAGS.iter().chain([&OPENAI_TAG]);
    api.tags = Some(
        tags.map(|(name, description)| TagBuilder::new().name(*name).description(Some(*description)).build()).collect(),
    );
    api.servers = None;
    for (path, item) in &mut api.paths.paths {
        let is_openai = crate::openai::is_openai_path(path);
        for operation in operations_mut(item) {
            for (status, description) in COMMON_RESPONSES {
                let (content_type, schema) = match is_openai {
                    true => ("application/json", <crate::openai::OpenAiCompatError as ToSchema>::name()),
                    false => (PROBLEM_JSON, ProblemDetails::name()),
                };
                let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
                let response = ResponseBuilder::new().description(description).content(content_type, content).build();
                operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
            }
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
    add(
        <crate::openai::OpenAiCompatError as ToSchema>::name().into_owned(),
        crate::openai::OpenAiCompatError::schema(),
    );
    components
        .security_schemes
        .insert("key".to_owned(), RefOr::T(SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer))));
    api
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}
