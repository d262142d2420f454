//! Formats costs, counts, sizes, durations and times.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use segue_core::ids::UnixMillis;
use segue_core::session::UsageTotals;

/// Formats a cost in dollars; `?` for an unknown cost.
pub(crate) fn format_cost(microusd: Option<u64>) -> String {
    let Some(micro) = microusd else { return "?".to_owned() };
    match micro {
        0 => "$0".to_owned(),
        // A cost below the last digit must not look like zero.
        1..50 => "<$0.0001".to_owned(),
        50..1_000_000 => format!("${:.4}", micro as f64 / 1e6),
        _ => format!("${}.{:02}", format_count(micro / 1_000_000), micro % 1_000_000 / 10_000),
    }
}

/// Formats a number with thousands separators.
pub(crate) fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with its noun: `1 call`, `2 calls`.
pub(crate) fn format_plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", format_count(number)) }
}

/// Formats the total usage of several calls on one line.
pub(crate) fn format_usage(totals: &UsageTotals) -> String {
    let mut parts = vec![format_plural(u64::from(totals.answered_calls), "call")];
    if totals.failed_attempts > 0 {
        parts.push(format!("{} failed", totals.failed_attempts));
    }
    if totals.unknown_attempts > 0 {
        parts.push(format!("{} with unknown outcome, possibly billed", totals.unknown_attempts));
    }
    parts.push(format!("{} in, {} out", format_count(totals.input_tokens), format_count(totals.output_tokens)));
    if totals.cached_tokens > 0 {
        let percent = cached_percent(totals).unwrap_or(0);
        parts.push(format!("{} cached ({percent} %)", format_count(totals.cached_tokens)));
    }
    parts.push(match (totals.unpriced_answers, totals.cost_microusd) {
        (0, known) => format_cost(Some(known)),
        (_, 0) => format_cost(None),
        (_, known) => format!("at least {}", format_cost(Some(known))),
    });
    parts.join(" · ")
}

/// Returns the cached input tokens in percent of all input tokens; `None` if there are none.
pub(crate) fn cached_percent(totals: &UsageTotals) -> Option<u64> {
    (totals.input_tokens > 0).then(|| totals.cached_tokens.min(totals.input_tokens) * 100 / totals.input_tokens)
}

pub(crate) fn format_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Formats a size in decimal units.
pub(crate) fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format_plural(bytes, "byte");
    }
    let mut amount = bytes as f64 / 1e3;
    let mut unit = 0;
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        amount /= 1e3;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Formats a date and time in the local time zone.
pub(crate) fn format_date_time(at: UnixMillis) -> String {
    format_local_time(at, "%Y-%m-%d %H:%M")
}

/// Formats a time of day in the local time zone, to the second.
pub(crate) fn format_time_of_day(at: UnixMillis) -> String {
    format_local_time(at, "%H:%M:%S")
}

/// Replaces timestamps in milliseconds that follow " at " by times of day.
pub(crate) fn format_timestamps_in_line(line: &str) -> String {
    const DIGITS: usize = 13;
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(offset) = rest.find(" at ") {
        let (before, after) = rest.split_at(offset + " at ".len());
        out.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        rest = match after[..digits].parse() {
            Ok(ms) if digits == DIGITS => {
                out.push_str(&format_time_of_day(UnixMillis(ms)));
                &after[digits..]
            }
            _ => after,
        };
    }
    out + rest
}

fn format_local_time(at: UnixMillis, format: &str) -> String {
    let timestamp = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match timestamp {
        Some(timestamp) => timestamp.to_zoned(TimeZone::system()).strftime(format).to_string(),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_in_dollars_and_an_unknown_cost_is_a_question_mark() {
        let shown: Vec<String> =
            [0, 1, 1_234, 250_000, 3_456_789, 12_345_000_000].map(|micro| format_cost(Some(micro))).into();
        assert_eq!(shown, ["$0", "<$0.0001", "$0.0012", "$0.2500", "$3.45", "$12,345.00"]);
        assert_eq!(format_cost(None), "?");
    }

    #[test]
    fn counts_durations_and_sizes_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(format_count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([5, 1_250, 65_000, 3_725_000].map(format_duration), ["5 ms", "1.2 s", "1 min 5 s", "1 h 2 min"]);
        assert_eq!(
            [1, 999, 1_000, 999_999, 12_345_678].map(format_bytes),
            ["1 byte", "999 bytes", "1.0 KB", "1.0 MB", "12.3 MB"]
        );
    }

    #[test]
    fn usage_with_unknown_prices_shows_them_as_unknown() {
        let mut totals =
            UsageTotals { answered_calls: 2, input_tokens: 1_500, output_tokens: 3, ..UsageTotals::default() };
        assert_eq!(format_usage(&totals), "2 calls · 1,500 in, 3 out · $0");
        totals.unpriced_answers = 2;
        assert_eq!(format_usage(&totals), "2 calls · 1,500 in, 3 out · ?");
        (totals.cost_microusd, totals.unknown_attempts) = (1_200, 1);
        let expected = "2 calls · 1 with unknown outcome, possibly billed · 1,500 in, 3 out · at least $0.0012";
        assert_eq!(format_usage(&totals), expected);
    }

    #[test]
    fn timestamps_in_a_line_become_times_of_day() {
        let line = format_timestamps_in_line(
            "c1 attempt 1 failed at once; retry at 1794770795382; look at 12 and at 17947707953821",
        );
        assert!(
            line.starts_with("c1 attempt 1 failed at once; retry at ") && !line.contains("1794770795382;"),
            "{line}"
        );
        assert!(line.ends_with("; look at 12 and at 17947707953821"), "{line}");
    }

    #[test]
    fn a_time_beyond_the_calendar_does_not_panic() {
        assert_eq!(format_date_time(UnixMillis(u64::MAX)), "?");
    }
}
