//! Maps a vendor's error to a failure kind and a readable message. Vendors agree on little beyond the status code, so the
//! error code is checked first, then the message, then the status.

use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailure, CallFailureKind};
use serde_json::Value;

use super::retry_after::parse_retry_after_ms;
use crate::http::SecretString;
use crate::limits::FAILURE_MESSAGE_CHARS_MAX;

/// The call that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VendorErrorContext<'r> {
    pub provider: &'r str,
    pub model: &'r str,
    /// The environment variable that holds the API key.
    pub key_env: Option<&'r str>,
    /// The API key, which must not be quoted.
    pub key: Option<&'r SecretString>,
}

/// Words in the code or type of an error and their meaning. The first match counts.
const ERROR_CODE_KINDS: [(&str, CallFailureKind); 27] = [
    ("context_length", CallFailureKind::ContextTooLong),
    ("exceed_context", CallFailureKind::ContextTooLong),
    ("request_too_large", CallFailureKind::ContextTooLong),
    ("insufficient_quota", CallFailureKind::InvalidApiKey),
    ("billing", CallFailureKind::InvalidApiKey),
    ("invalid_api_key", CallFailureKind::InvalidApiKey),
    ("api_key_invalid", CallFailureKind::InvalidApiKey),
    ("authentication", CallFailureKind::InvalidApiKey),
    ("unauthenticated", CallFailureKind::InvalidApiKey),
    ("permission_denied", CallFailureKind::InvalidApiKey),
    ("permission_error", CallFailureKind::InvalidApiKey),
    ("model_not_found", CallFailureKind::ModelNotFound),
    ("invalid_model", CallFailureKind::ModelNotFound),
    ("content_filter", CallFailureKind::Refused),
    ("content_policy", CallFailureKind::Refused),
    ("moderation", CallFailureKind::Refused),
    ("rate_limit", CallFailureKind::RateLimit),
    ("resource_exhausted", CallFailureKind::RateLimit),
    ("too_many_requests", CallFailureKind::RateLimit),
    ("overloaded", CallFailureKind::Overload),
    ("unavailable", CallFailureKind::Overload),
    ("server_error", CallFailureKind::Overload),
    ("api_error", CallFailureKind::Overload),
    ("internal", CallFailureKind::Overload),
    ("deadline_exceeded", CallFailureKind::Timeout),
    ("timeout", CallFailureKind::Timeout),
    ("not_found_error", CallFailureKind::ModelNotFound),
];

/// Words in error messages about bad requests and their meaning.
const ERROR_MESSAGE_KINDS: [(&str, CallFailureKind); 23] = [
    ("maximum prompt length", CallFailureKind::ContextTooLong),
    ("exceeds the context", CallFailureKind::ContextTooLong),
    ("request too large", CallFailureKind::ContextTooLong),
    ("maximum context length", CallFailureKind::ContextTooLong),
    ("context length", CallFailureKind::ContextTooLong),
    ("context window", CallFailureKind::ContextTooLong),
    ("context size", CallFailureKind::ContextTooLong),
    ("context limit", CallFailureKind::ContextTooLong),
    ("prompt is too long", CallFailureKind::ContextTooLong),
    ("input is too long", CallFailureKind::ContextTooLong),
    ("input token count", CallFailureKind::ContextTooLong),
    ("too many tokens", CallFailureKind::ContextTooLong),
    ("api key not valid", CallFailureKind::InvalidApiKey),
    ("invalid api key", CallFailureKind::InvalidApiKey),
    ("model not found", CallFailureKind::ModelNotFound),
    ("no such model", CallFailureKind::ModelNotFound),
    ("not a valid model", CallFailureKind::ModelNotFound),
    ("invalid model", CallFailureKind::ModelNotFound),
    ("model not exist", CallFailureKind::ModelNotFound),
    ("no endpoints found", CallFailureKind::ModelNotFound),
    ("content management policy", CallFailureKind::Refused),
    ("flagged", CallFailureKind::Refused),
    ("credit balance", CallFailureKind::InvalidApiKey),
];

/// Classifies a response with an error status.
pub(crate) fn classify_http_error(
    context: VendorErrorContext<'_>,
    status: u16,
    headers: &[(String, String)],
    body: &str,
) -> CallFailure {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    let mut failure = classify_error_body(context, Some(status), &body);
    failure.retry_after_ms = parse_retry_after_ms(headers, &body);
    if let Some(ms) = failure.retry_after_ms.filter(|ms| *ms > SESSION_LIMITS.retry_after_ms_max) {
        // The engine does not wait that long, so the user is told.
        failure.message.push_str(&format!("; it asks to wait {} minutes", ms.div_ceil(60_000)));
    }
    failure
}

/// Classifies an error in a stream, or in a body with a success status.
pub(crate) fn classify_stream_error(context: VendorErrorContext<'_>, body: &Value) -> CallFailure {
    let mut failure = classify_error_body(context, None, body);
    failure.retry_after_ms = parse_retry_after_ms(&[], body);
    failure
}

fn classify_error_body(context: VendorErrorContext<'_>, status: Option<u16>, body: &Value) -> CallFailure {
    // Gemini wraps the error of a stream in a list.
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
    let code_status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = status.or(code_status.filter(|code| *code >= 400));
    let codes = collect_error_codes(error);
    let message = extract_error_message(error);
    let kind = classify_failure_kind(status, &codes, &message.to_lowercase());
    CallFailure::new(kind, format_failure_message(context, status, kind, &message))
}

/// Joins the machine-readable names of an error, in lower case.
fn collect_error_codes(error: &Value) -> String {
    let own = ["code", "type", "status", "reason"].iter().filter_map(|key| error.get(key)?.as_str());
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let details = details.filter_map(|detail| detail.get("reason")?.as_str());
    own.chain(details).collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Returns the human-readable message of an error, or else the whole error.
fn extract_error_message(error: &Value) -> String {
    let message = ["message", "detail", "error", "msg"].iter().find_map(|key| error.get(key)?.as_str());
    match (message, error) {
        (Some(message), _) => message.to_owned(),
        (None, Value::String(text)) => text.clone(),
        (None, Value::Null) => String::new(),
        (None, other) => other.to_string(),
    }
}

fn classify_failure_kind(status: Option<u16>, codes: &str, message: &str) -> CallFailureKind {
    let by_code = || ERROR_CODE_KINDS.iter().find(|(word, _)| codes.contains(word)).map(|(_, kind)| *kind);
    // Many parameters have an upper bound; only the one for tokens is about the prompt.
    let is_token_bound = message.contains("must be <=") && message.contains("tokens");
    let by_message = || {
        let found = ERROR_MESSAGE_KINDS.iter().find(|(word, _)| message.contains(word)).map(|(_, kind)| *kind);
        found.or(is_token_bound.then_some(CallFailureKind::ContextTooLong))
    };
    let names_model = message.contains("model");
    match status {
        // These two statuses take precedence over the rest of the body.
        Some(429) => {
            // A single request above the per-minute limit will not succeed later either.
            let is_too_long = message.contains("request too large").then_some(CallFailureKind::ContextTooLong);
            by_code()
                .filter(|kind| *kind == CallFailureKind::InvalidApiKey)
                .or(is_too_long)
                .unwrap_or(CallFailureKind::RateLimit)
        }
        // A proxy's limit on bytes is unrelated to tokens, and a shorter history would not help with an image.
        Some(413) => {
            by_code().or_else(by_message).filter(|kind| !kind.is_transient()).unwrap_or(CallFailureKind::BadRequest)
        }
        Some(401 | 402) => CallFailureKind::InvalidApiKey,
        Some(403) => {
            let is_specific =
                |kind: &CallFailureKind| matches!(kind, CallFailureKind::Refused | CallFailureKind::ModelNotFound);
            by_code().filter(is_specific).or_else(by_message).unwrap_or(CallFailureKind::InvalidApiKey)
        }
        Some(404) if names_model => CallFailureKind::ModelNotFound,
        Some(404 | 405) => CallFailureKind::BadRequest,
        Some(408) => CallFailureKind::Timeout,
        Some(400..500) => by_message().or_else(by_code).filter(|kind| !kind.is_transient()).unwrap_or(
            if names_model && message.contains("not found") {
                CallFailureKind::ModelNotFound
            } else {
                CallFailureKind::BadRequest
            },
        ),
        // A server that fails because of a long prompt says so only in the message.
        Some(500..) => {
            by_message().filter(|kind| *kind == CallFailureKind::ContextTooLong).unwrap_or(CallFailureKind::Overload)
        }
        Some(_) => CallFailureKind::BadRequest,
        // In a stream: an invalid request stays invalid; anything else may be temporary.
        None => by_code().or_else(by_message).unwrap_or(if codes.contains("invalid_") {
            CallFailureKind::BadRequest
        } else {
            CallFailureKind::Overload
        }),
    }
}

fn format_failure_message(
    context: VendorErrorContext<'_>,
    status: Option<u16>,
    kind: CallFailureKind,
    message: &str,
) -> String {
    let VendorErrorContext { provider, model, key_env, key } = context;
    // Redact before shortening, which could leave part of the key.
    let message = key.map_or_else(|| message.to_owned(), |key| key.redact(message));
    let text: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().filter(|c| !c.is_control()).take(FAILURE_MESSAGE_CHARS_MAX).collect();
    let code = status.map(|status| format!(" ({status})")).unwrap_or_default();
    let mut full_message = match text.is_empty() {
        true => format!("{provider} refused the request without a message{code}"),
        false => format!("{provider}: {text}{code}"),
    };
    match (kind, status) {
        (CallFailureKind::InvalidApiKey, _) => {
            if let Some(env) = key_env {
                full_message.push_str(&format!("; the key is taken from {env}"));
            }
        }
        (CallFailureKind::ModelNotFound, _) if !full_message.contains(model) => {
            full_message.push_str(&format!("; asked for `{model}`"))
        }
        (CallFailureKind::BadRequest, Some(413)) => full_message.push_str("; the request is too large to send"),
        (CallFailureKind::BadRequest, Some(404 | 405)) => full_message.push_str("; is the `base_url` right?"),
        (CallFailureKind::BadRequest, Some(300..400)) => {
            full_message.push_str("; it redirects elsewhere, so set `base_url` to the new address")
        }
        _ => {}
    }
    full_message
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: VendorErrorContext<'_> =
        VendorErrorContext { provider: "acme", model: "m-1", key_env: Some("ACME_API_KEY"), key: None };

    fn kind_of(status: u16, body: &str) -> CallFailureKind {
        classify_http_error(CONTEXT, status, &[], body).kind
    }

    #[test]
    fn errors_of_every_vendor_are_classified() {
        use CallFailureKind::*;
        let cases = [
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                InvalidApiKey,
            ),
            (
                404,
                r#"{"error":{"message":"The model `m-1` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                ModelNotFound,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextTooLong,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
                RateLimit,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                InvalidApiKey,
            ),
            (
                400,
                r#"{"error":{"message":"flagged as potentially violating our usage policy","code":"content_policy_violation"}}"#,
                Refused,
            ),
            (
                400,
                r#"{"error":{"message":"Invalid value: 'x'.","type":"invalid_request_error","param":"messages"}}"#,
                BadRequest,
            ),
            (500, r#"{"error":{"message":"The server had an error","type":"server_error"}}"#, Overload),
            (503, "upstream connect error", Overload),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overload),
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                InvalidApiKey,
            ),
            (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#, ModelNotFound),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 215000 tokens > 200000 maximum"}}"#,
                ContextTooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                InvalidApiKey,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ContextTooLong,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                InvalidApiKey,
            ),
            (
                404,
                r#"{"error":{"code":404,"message":"models/m-1 is not found for API version v1beta","status":"NOT_FOUND"}}"#,
                ModelNotFound,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum","status":"INVALID_ARGUMENT"}}"#,
                ContextTooLong,
            ),
            (429, r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]"#, RateLimit),
            (503, r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#, Overload),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":2048}}"#,
                ContextTooLong,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}"#,
                ContextTooLong,
            ),
            (503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Overload),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                ContextTooLong,
            ),
            (404, r#"{"error":"model 'm-1' not found"}"#, ModelNotFound),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, InvalidApiKey),
            (403, r#"{"error":{"message":"Your input was flagged","code":403,"metadata":{}}}"#, Refused),
            (
                400,
                r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}"#,
                ContextTooLong,
            ),
            (
                422,
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens","error_type":"validation"}"#,
                ContextTooLong,
            ),
            (
                429,
                r#"{"error":{"message":"Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ContextTooLong,
            ),
            (400, r#"{"error":"the input length exceeds the context length"}"#, ContextTooLong),
            (400, r#"{"error":{"message":"foo/bar is not a valid model ID","code":400}}"#, ModelNotFound),
            (
                400,
                r#"{"object":"error","message":"Invalid model: m","type":"invalid_model","code":"1500"}"#,
                ModelNotFound,
            ),
            (400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#, ModelNotFound),
            (403, r#"{"error":{"message":"Project does not have access","code":"model_not_found"}}"#, ModelNotFound),
            (413, "<html><h1>413 Request Entity Too Large</h1></html>", BadRequest),
            (400, r#"{"error":{"message":"`top_logprobs` must be <= 20","type":"invalid_request_error"}}"#, BadRequest),
            (404, "<html>404</html>", BadRequest),
            (302, "", BadRequest),
            (408, "", Timeout),
        ];
        for (status, body, expected) in cases {
            assert_eq!(kind_of(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn errors_in_a_stream_are_classified_by_their_code() {
        let kind = |body: &str| classify_stream_error(CONTEXT, &serde_json::from_str(body).expect("JSON")).kind;
        assert_eq!(
            kind(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            CallFailureKind::Overload
        );
        assert_eq!(kind(r#"{"error":{"message":"slow down","code":429}}"#), CallFailureKind::RateLimit);
        assert_eq!(
            kind(r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#),
            CallFailureKind::ContextTooLong
        );
        assert_eq!(kind(r#"{"error":{"message":"something"}}"#), CallFailureKind::Overload);
        assert_eq!(
            kind(r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: too odd"}}"#),
            CallFailureKind::BadRequest
        );
    }

    #[test]
    fn the_message_says_what_to_do() {
        let message = |status, body: &str| classify_http_error(CONTEXT, status, &[], body).message;
        assert_eq!(message(401, r#"{"error":"nope"}"#), "acme: nope (401); the key is taken from ACME_API_KEY");
        assert_eq!(
            message(404, r#"{"error":"no model of that name"}"#),
            "acme: no model of that name (404); asked for `m-1`"
        );
        assert_eq!(message(404, ""), "acme refused the request without a message (404); is the `base_url` right?");
        let long = message(500, &"very long\u{1b} ".repeat(10_000));
        assert!(long.chars().count() < FAILURE_MESSAGE_CHARS_MAX + 40 && !long.contains('\u{1b}'), "{long}");
    }

    #[test]
    fn a_key_is_redacted_before_the_message_is_shortened() {
        let key = SecretString::new(&"k".repeat(2 * FAILURE_MESSAGE_CHARS_MAX));
        let context = VendorErrorContext { key: Some(&key), ..CONTEXT };
        let body = format!(r#"{{"error":{{"message":"no such key: {}"}}}}"#, key.expose_secret());
        assert_eq!(
            classify_http_error(context, 401, &[], &body).message,
            "acme: no such key: [key] (401); the key is taken from ACME_API_KEY"
        );
    }

    #[test]
    fn a_retry_delay_is_kept() {
        let headers = [("retry-after".to_owned(), "3".to_owned())];
        assert_eq!(classify_http_error(CONTEXT, 429, &headers, "{}").retry_after_ms, Some(3_000));
        let headers = [("retry-after".to_owned(), "86400".to_owned())];
        let refused = classify_http_error(CONTEXT, 429, &headers, r#"{"error":"quota"}"#);
        assert_eq!(refused.message, "acme: quota (429); it asks to wait 1440 minutes");
    }
}
