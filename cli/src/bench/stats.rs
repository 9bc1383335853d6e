//! Quantiles of small samples.

/// The value below which `share` (0 to 1) of the sorted values lie: the nearest one, never a mean of two.
/// `None` of nothing.
pub(super) fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(last)).copied()
}

/// The values in order, without those that are no numbers.
pub(super) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_came() {
        let hundred: Vec<u32> = (1..=100).collect();
        for (share, expected) in [(0.0, 1), (0.01, 1), (0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)]
        {
            assert_eq!(quantile(&hundred, share), Some(expected), "{share}");
        }
        assert_eq!(quantile(&[7], 0.5), Some(7));
        assert_eq!(quantile(&[1, 2], 0.5), Some(1));
        assert_eq!(quantile(&[1, 2], 0.9), Some(2));
        assert_eq!(quantile::<u32>(&[], 0.5), None);
        assert_eq!(sorted([2.0, f64::NAN, 1.0, f64::INFINITY].into_iter()), [1.0, 2.0]);
    }
}
