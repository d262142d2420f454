//! Parses when a vendor allows the next attempt, in milliseconds from now. Needs no clock, because a server that names a date
//! also sends the current one.

use serde_json::Value;

use crate::http::find_header;

/// Returns the delay requested by the headers or the body of an error.
pub(crate) fn parse_retry_after_ms(headers: &[(String, String)], body: &Value) -> Option<u64> {
    let by_ms = || find_header(headers, "retry-after-ms").and_then(|value| parse_ms(value, 1.0));
    let by_seconds = || find_header(headers, "retry-after").and_then(|value| parse_ms(value, 1_000.0));
    let by_date = || {
        let retry_at = find_header(headers, "retry-after").and_then(parse_http_date_ms)?;
        let now = find_header(headers, "date").and_then(parse_http_date_ms)?;
        u64::try_from(retry_at - now).ok()
    };
    by_ms().or_else(by_seconds).or_else(by_date).or_else(|| parse_retry_delay_in_body(body))
}

fn parse_ms(value: &str, ms_per_unit: f64) -> Option<u64> {
    let number: f64 = value.trim().parse().ok()?;
    let ms = (number * ms_per_unit).ceil();
    // A larger number would be thousands of years, and not exact.
    (0.0..1e15).contains(&ms).then_some(ms as u64)
}

/// Parses an HTTP date, in milliseconds since 1970.
fn parse_http_date_ms(value: &str) -> Option<i64> {
    let timestamp = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
    Some(timestamp.as_millisecond())
}

/// Parses Gemini's `retryDelay: "34.5s"` in the error details.
fn parse_retry_delay_in_body(body: &Value) -> Option<u64> {
    let body = body.get(0).unwrap_or(body);
    let details = body.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    parse_ms(delay.strip_suffix('s')?, 1_000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn retry_delay(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse_retry_after_ms(&headers, &Value::Null)
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_parsed() {
        assert_eq!(retry_delay(&[("retry-after", "7")]), Some(7_000));
        assert_eq!(retry_delay(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(retry_delay(&[("retry-after", "7"), ("retry-after-ms", "120")]), Some(120));
        let now = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(retry_delay(&[now, ("retry-after", "Wed, 21 Oct 2026 07:29:30 GMT")]), Some(90_000));
        assert_eq!(retry_delay(&[now, ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")]), None, "it has passed");
    }

    #[test]
    fn nonsense_means_no_delay() {
        for value in ["", "soon", "-3", "NaN", "1e99", "inf"] {
            assert_eq!(retry_delay(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(retry_delay(&[]), None);
    }

    #[test]
    fn a_delay_in_the_body_is_used() {
        let body = json!({ "error": { "details": [{ "@type": "Help" }, { "retryDelay": "34.5s" }] } });
        assert_eq!(parse_retry_after_ms(&[], &body), Some(34_500));
    }
}
