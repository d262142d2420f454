//! Medians, percentiles and rounding.

use serde_json::{Map, Value, json};

/// Returns the median; zero without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sort_values(values);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (count, half) if count % 2 == 1 => sorted[half],
        (_, half) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Returns the percentile by nearest rank; zero without values.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let sorted = sort_values(values);
    let rank = (percent * sorted.len()).div_ceil(100).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Rounds to four significant digits.
pub(crate) fn round_significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Returns minimum and maximum.
pub(crate) fn min_and_max(values: &[f64]) -> Value {
    json!([round_significant(percentile(values, 0)), round_significant(percentile(values, 100))])
}

/// Summarizes a list of samples.
pub(crate) fn summarize_samples(values: &[f64]) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("n".to_owned(), json!(values.len()));
    for (name, value) in [
        ("median", median(values)),
        ("p95", percentile(values, 95)),
        ("p99", percentile(values, 99)),
        ("min", percentile(values, 0)),
        ("max", percentile(values, 100)),
    ] {
        map.insert(name.to_owned(), json!(round_significant(value)));
    }
    map
}

fn sort_values(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((percentile(&values, 0), percentile(&values, 50), percentile(&values, 99)), (1.0, 100.0, 198.0));
        assert_eq!((median(&values), median(&[3.0, 1.0, 2.0]), median(&[])), (100.5, 2.0, 0.0));
        assert_eq!(percentile(&[], 99), 0.0);
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!(
            (round_significant(12_345.6), round_significant(0.001_234_56), round_significant(0.0)),
            (12_350.0, 0.001_235, 0.0)
        );
    }
}
