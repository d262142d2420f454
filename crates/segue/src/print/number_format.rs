//! Costs, tokens, bytes, durations and moments in words.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use segue_core::ids::UnixMillis;
use segue_core::ledger::UsageTotals;

/// Millionths of a dollar; `?` where the price is not known.
pub fn format_cost(microusd: Option<u64>) -> String {
    let Some(micro) = microusd else { return "?".to_owned() };
    match micro {
        0 => "$0".to_owned(),
        // Less than the last digit shows is not nothing.
        1..50 => "<$0.0001".to_owned(),
        50..1_000_000 => format!("${:.4}", micro as f64 / 1e6),
        _ => format!("${}.{:02}", format_count(micro / 1_000_000), micro % 1_000_000 / 10_000),
    }
}

/// A whole number with its thousands apart.
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 call`, `2 calls`.
pub fn format_plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", format_count(number)) }
}

/// What some calls came to, in one line.
pub fn format_tally(tally: &UsageTotals) -> String {
    let mut parts = vec![format_plural(u64::from(tally.answered_calls), "call")];
    if tally.failed_attempts > 0 {
        parts.push(format!("{} failed", tally.failed_attempts));
    }
    if tally.unknown_attempts > 0 {
        parts.push(format!("{} of unknown end, maybe billed", tally.unknown_attempts));
    }
    parts.push(format!("{} in, {} out", format_count(tally.input_tokens), format_count(tally.output_tokens)));
    if tally.cached_tokens > 0 {
        parts.push(format!("{} cached ({} %)", format_count(tally.cached_tokens), tally.cached_percent().unwrap_or(0)));
    }
    parts.push(match (tally.unpriced_answers, tally.cost_microusd) {
        (0, known) => format_cost(Some(known)),
        (_, 0) => format_cost(None),
        (_, known) => format!("{} and more", format_cost(Some(known))),
    });
    parts.join(" · ")
}

/// How long something took.
pub fn format_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Bytes of a file.
pub fn format_bytes(bytes: u64) -> String {
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

/// A day and a time of day, as clocks show them here.
pub fn format_date_time(at: UnixMillis) -> String {
    format_local_time(at, "%Y-%m-%d %H:%M")
}

/// A time of day, to the second.
pub fn format_time_of_day(at: UnixMillis) -> String {
    format_local_time(at, "%H:%M:%S")
}

/// A line with the moments in it, which journals hold as numbers, told as clocks show them.
pub fn format_timestamps_in_line(line: &str) -> String {
    const DIGITS: usize = 13;
    let mut told = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(place) = rest.find(" at ") {
        let (before, after) = rest.split_at(place + " at ".len());
        told.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        rest = match after[..digits].parse() {
            Ok(ms) if digits == DIGITS => {
                told.push_str(&format_time_of_day(UnixMillis(ms)));
                &after[digits..]
            }
            _ => after,
        };
    }
    told + rest
}

fn format_local_time(at: UnixMillis, form: &str) -> String {
    let stamp = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match stamp {
        Some(stamp) => stamp.to_zoned(TimeZone::system()).strftime(form).to_string(),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_dollars_and_unknown_ones_say_so() {
        let shown: Vec<String> =
            [0, 1, 1_234, 250_000, 3_456_789, 12_345_000_000].map(|micro| format_cost(Some(micro))).into();
        assert_eq!(shown, ["$0", "<$0.0001", "$0.0012", "$0.2500", "$3.45", "$12,345.00"]);
        assert_eq!(format_cost(None), "?");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(format_count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([5, 1_250, 65_000, 3_725_000].map(format_duration), ["5 ms", "1.2 s", "1 min 5 s", "1 h 2 min"]);
        assert_eq!(
            [1, 999, 1_000, 999_999, 12_345_678].map(format_bytes),
            ["1 byte", "999 bytes", "1.0 KB", "1.0 MB", "12.3 MB"]
        );
    }

    #[test]
    fn a_sum_with_unknown_prices_does_not_pretend() {
        let mut sum =
            UsageTotals { answered_calls: 2, input_tokens: 1_500, output_tokens: 3, ..UsageTotals::default() };
        assert_eq!(format_tally(&sum), "2 calls · 1,500 in, 3 out · $0");
        sum.unpriced_answers = 2;
        assert_eq!(format_tally(&sum), "2 calls · 1,500 in, 3 out · ?");
        (sum.cost_microusd, sum.unknown_attempts) = (1_200, 1);
        assert_eq!(format_tally(&sum), "2 calls · 1 of unknown end, maybe billed · 1,500 in, 3 out · $0.0012 and more");
    }

    #[test]
    fn moments_in_a_line_are_told_as_clocks_show_them() {
        let told = format_timestamps_in_line(
            "c1 attempt 1 failed at once; retry at 1794770795382; look at 12 and at 17947707953821",
        );
        assert!(told.starts_with("c1 attempt 1 failed at once; retry at ") && !told.contains("1794770795382;"), "{told}");
        assert!(told.ends_with("; look at 12 and at 17947707953821"), "{told}");
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_no_panic() {
        assert_eq!(format_date_time(UnixMillis(u64::MAX)), "?");
    }
}
