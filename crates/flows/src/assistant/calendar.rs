//! Calendar dates from journal timestamps. The flow has no clock of its own.

use segue_core::ids::UnixMillis;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Returns the date as `2026-01-31`, in a time zone that is `offset_minutes` ahead of UTC.
#[must_use]
pub fn local_date(at: UnixMillis, offset_minutes: i64) -> String {
    date_from_epoch_days(days_since_epoch(at, offset_minutes))
}

/// Returns the English name of the weekday.
#[must_use]
pub fn local_weekday(at: UnixMillis, offset_minutes: i64) -> &'static str {
    let index = days_since_epoch(at, offset_minutes).rem_euclid(7);
    WEEKDAYS[usize::try_from(index).unwrap_or(0)]
}

/// Returns the number of days since 1970-01-01.
#[must_use]
pub fn days_since_epoch(at: UnixMillis, offset_minutes: i64) -> i64 {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(offset_minutes.saturating_mul(60_000));
    ms.div_euclid(DAY_MS)
}

/// Returns the date that is `days` after 1970-01-01, clamped to the years 1 to 9999.
#[must_use]
pub fn date_from_epoch_days(days: i64) -> String {
    // Years are counted from March, so that the leap day is the last of its year; an era is 400 years, 146,097 days.
    let from_march = days.clamp(-719_162, 2_932_896) + 719_468;
    let era = from_march.div_euclid(146_097);
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::domain::is_date;

    #[test]
    fn timestamps_become_calendar_dates() {
        assert_eq!(local_date(UnixMillis(0), 0), "1970-01-01");
        assert_eq!(
            (local_date(UnixMillis(0), -1), local_weekday(UnixMillis(0), 0)),
            ("1969-12-31".to_owned(), "Thursday")
        );
        assert_eq!(local_date(UnixMillis(951_782_400_000), 0), "2000-02-29");
        assert_eq!(local_date(UnixMillis(1_768_262_400_000), 0), "2026-01-13");
        assert_eq!(local_weekday(UnixMillis(1_768_262_400_000), 0), "Tuesday");
        assert_eq!(local_date(UnixMillis(1_768_262_400_000), -60), "2026-01-12");
    }

    #[test]
    fn every_date_is_valid_and_later_than_the_one_before() {
        let mut before = String::new();
        for number in (-719_162..2_932_896).step_by(97) {
            let day = date_from_epoch_days(number);
            assert!(is_date(&day) && day > before, "{before} {day}");
            before = day;
        }
        assert_eq!(date_from_epoch_days(i64::MAX), "9999-12-31");
        assert_eq!(date_from_epoch_days(i64::MIN), "0001-01-01");
    }
}
