//! When a vendor wants to be asked again. Says it in milliseconds from now; needs no clock, since a server that names a moment
//! also says what time it is.

use serde_json::Value;

use crate::http::find_header;

/// What the headers and the body of a refusal ask for.
pub(crate) fn parse_retry_after_ms(headers: &[(String, String)], body: &Value) -> Option<u64> {
    let by_ms = || find_header(headers, "retry-after-ms").and_then(|value| parse_ms(value, 1.0));
    let by_seconds = || find_header(headers, "retry-after").and_then(|value| parse_ms(value, 1_000.0));
    let by_date = || {
        let wanted = find_header(headers, "retry-after").and_then(parse_http_date_ms)?;
        let now = find_header(headers, "date").and_then(parse_http_date_ms)?;
        u64::try_from(wanted - now).ok()
    };
    by_ms().or_else(by_seconds).or_else(by_date).or_else(|| parse_retry_delay_in_body(body))
}

fn parse_ms(value: &str, ms_per_unit: f64) -> Option<u64> {
    let number: f64 = value.trim().parse().ok()?;
    let ms = (number * ms_per_unit).ceil();
    // A number beyond this asks for a year and more; it is no number of milliseconds any more.
    (0.0..1e15).contains(&ms).then_some(ms as u64)
}

/// Milliseconds since 1970 of a date as HTTP writes it.
fn parse_http_date_ms(value: &str) -> Option<i64> {
    let moment = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
    Some(moment.as_millisecond())
}

/// Gemini's `retryDelay: "34.5s"` among the details of an error.
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

    fn asked(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse_retry_after_ms(&headers, &Value::Null)
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_understood() {
        assert_eq!(asked(&[("retry-after", "7")]), Some(7_000));
        assert_eq!(asked(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(asked(&[("retry-after", "7"), ("retry-after-ms", "120")]), Some(120));
        let now = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(asked(&[now, ("retry-after", "Wed, 21 Oct 2026 07:29:30 GMT")]), Some(90_000));
        assert_eq!(asked(&[now, ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")]), None, "it has passed");
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for value in ["", "soon", "-3", "NaN", "1e99", "inf"] {
            assert_eq!(asked(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn a_delay_in_the_body_counts() {
        let body = json!({ "error": { "details": [{ "@type": "Help" }, { "retryDelay": "34.5s" }] } });
        assert_eq!(parse_retry_after_ms(&[], &body), Some(34_500));
    }
}
