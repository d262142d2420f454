//! A number condition: one number, or an inclusive range whose ends are optional.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScenarioConditionRange(RangeInclusive<u32>);

impl ScenarioConditionRange {
    pub(super) fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }
}

impl From<u32> for ScenarioConditionRange {
    fn from(number: u32) -> Self {
        Self(number..=number)
    }
}

impl From<RangeInclusive<u32>> for ScenarioConditionRange {
    fn from(range: RangeInclusive<u32>) -> Self {
        Self(range)
    }
}

impl FromStr for ScenarioConditionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            || format!("`{text}` is not a number or a range; write 2, \"2..4\" (both included), \"2..\" or \"..4\"");
        let parse_end = |side: &str, open: u32| match side.trim() {
            "" => Ok(open),
            digits => digits.parse().map_err(|_| invalid()),
        };
        let (from, to) = match text.split_once("..") {
            Some((from, to)) if !(from.trim().is_empty() && to.trim().is_empty()) => {
                (parse_end(from, u32::MIN)?, parse_end(to, u32::MAX)?)
            }
            Some(_) => return Err(invalid()),
            None => {
                let number = text.trim().parse().map_err(|_| invalid())?;
                (number, number)
            }
        };
        if from > to {
            return Err(format!("the range `{text}` is empty"));
        }
        Ok(Self(from..=to))
    }
}

impl fmt::Display for ScenarioConditionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self.0.start(), *self.0.end()) {
            (from, to) if from == to => write!(f, "{from}"),
            (u32::MIN, to) => write!(f, "..{to}"),
            (from, u32::MAX) => write!(f, "{from}.."),
            (from, to) => write!(f, "{from}..{to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_included_and_either_may_be_open() {
        for (written, inside, outside) in [
            ("3", vec![3], vec![2, 4]),
            ("2..4", vec![2, 3, 4], vec![1, 5]),
            ("3..", vec![3, 9], vec![2]),
            ("..2", vec![0, 2], vec![3]),
        ] {
            let range: ScenarioConditionRange = written.parse().expect("a range");
            assert!(inside.into_iter().all(|number| range.contains(number)), "{written}");
            assert!(!outside.into_iter().any(|number| range.contains(number)), "{written}");
            assert_eq!(range.to_string(), written);
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in ["", "..", "a", "1..b", "4..2", "-1", "2..=4"] {
            assert!(text.parse::<ScenarioConditionRange>().is_err(), "{text}");
        }
    }
}
