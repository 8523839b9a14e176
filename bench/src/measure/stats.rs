//! Statistics over samples: percentiles, medians, Jain's index.

use serde_json::{Value, json};

/// A sample in milliseconds, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Sample {
        values.sort_by(f64::total_cmp);
        Sample(values)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which this share of the sample lies (nearest rank). Zero for an empty sample.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(0.0)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(0.50)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.percentile(0.99)
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "p50": round(self.p50()), "p99": round(self.p99()), "n": self.len() })
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(crate) fn median(values: &[f64]) -> f64 {
    Sample::new(values.to_vec()).p50()
}

/// Jain's fairness index: 1 if all values are equal, 1/n if one of n values is the whole sum.
pub(crate) fn jain_index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Rounds to three decimals, because more would be noise.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_members_of_the_sample() {
        let sample = Sample::new((1..=100).map(f64::from).rev().collect());
        assert_eq!((sample.p50(), sample.p99(), sample.percentile(1.0)), (50.0, 99.0, 100.0));
        assert_eq!(Sample::default().p99(), 0.0);
    }

    #[test]
    fn jains_index_tells_equal_from_one_takes_all() {
        assert_eq!(jain_index(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain_index(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
