//! Estimates how many tokens a vendor counts for a text. Segue counts every text once, with one vocabulary for all
//! models. Vendors report their own count with each answer. This module computes the ratio from the reports so far. It
//! uses integers, so that the same reports always give the same ratio.

use serde::{Deserialize, Serialize};

use crate::limits::{
    TOKEN_RATIO_HISTORY_TOKENS_MAX, TOKEN_RATIO_PERMILLE_MAX, TOKEN_RATIO_PERMILLE_MIN, TOKEN_RATIO_PRIOR_TOKENS,
    TOKEN_RATIO_PROMPT_TOKENS_MIN,
};

/// The ratio without any report, in thousandths.
const UNITY_PERMILLE: u32 = 1_000;

/// The ratio of a vendor's token count to ours. Without reports it is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct VendorTokenRatio {
    /// The size of the reported prompts by our count. Older prompts count less.
    our_tokens: u64,
    /// The size of the same prompts as reported.
    vendor_tokens: u64,
}

impl VendorTokenRatio {
    /// Adds a vendor's report about one prompt.
    pub(crate) fn add_observation(&mut self, our_tokens: u32, vendor_tokens: u32) {
        if our_tokens < TOKEN_RATIO_PROMPT_TOKENS_MIN || vendor_tokens == 0 {
            return;
        }
        let counted = u64::from(our_tokens);
        let bound = |permille: u32| counted * u64::from(permille) / u64::from(UNITY_PERMILLE);
        // Clamped, so that one wrong figure does not spoil the others.
        let reported = u64::from(vendor_tokens).clamp(bound(TOKEN_RATIO_PERMILLE_MIN), bound(TOKEN_RATIO_PERMILLE_MAX));
        self.our_tokens += counted;
        self.vendor_tokens += reported;
        while self.our_tokens > TOKEN_RATIO_HISTORY_TOKENS_MAX {
            self.our_tokens /= 2;
            self.vendor_tokens /= 2;
        }
    }

    /// Returns the ratio in thousandths.
    #[must_use]
    pub(crate) fn permille(self) -> u32 {
        let (counted, reported) =
            (self.our_tokens + TOKEN_RATIO_PRIOR_TOKENS, self.vendor_tokens + TOKEN_RATIO_PRIOR_TOKENS);
        let permille = (reported * u64::from(UNITY_PERMILLE) + counted / 2) / counted;
        u32::try_from(permille).unwrap_or(u32::MAX).clamp(TOKEN_RATIO_PERMILLE_MIN, TOKEN_RATIO_PERMILLE_MAX)
    }

    /// Returns true if the ratio is 1.
    #[must_use]
    pub(crate) fn is_unity(self) -> bool {
        self.permille() == UNITY_PERMILLE
    }

    /// Converts our count to the vendor's, rounded up.
    #[must_use]
    pub(crate) fn to_vendor_tokens(self, our_tokens: u32) -> u32 {
        let vendor_tokens = (u64::from(our_tokens) * u64::from(self.permille())).div_ceil(u64::from(UNITY_PERMILLE));
        u32::try_from(vendor_tokens).unwrap_or(u32::MAX)
    }

    /// Converts the vendor's count to ours, rounded down.
    #[must_use]
    pub(crate) fn to_our_tokens(self, vendor_tokens: u32) -> u32 {
        let our_tokens = u64::from(vendor_tokens) * u64::from(UNITY_PERMILLE) / u64::from(self.permille());
        u32::try_from(our_tokens).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio_after(reports: impl IntoIterator<Item = (u32, u32)>) -> VendorTokenRatio {
        let mut ratio = VendorTokenRatio::default();
        reports.into_iter().for_each(|(counted, reported)| ratio.add_observation(counted, reported));
        ratio
    }

    #[test]
    fn ratio_without_reports_is_one() {
        let ratio = VendorTokenRatio::default();
        assert!(ratio.is_unity());
        assert_eq!(
            (ratio.to_vendor_tokens(7), ratio.to_our_tokens(7), ratio.to_vendor_tokens(u32::MAX)),
            (7, 7, u32::MAX)
        );
        assert!(
            ratio_after([(TOKEN_RATIO_PROMPT_TOKENS_MIN - 1, 9_999), (0, 5), (5_000, 0)]).is_unity(),
            "these reports are ignored"
        );
    }

    #[test]
    fn repeated_reports_are_believed_and_a_single_outlier_is_not() {
        let heavy = ratio_after([(2_000, 3_000); 20]);
        assert!((1_480..=1_500).contains(&heavy.permille()), "{heavy:?}");
        assert_eq!(heavy.to_vendor_tokens(1_000), heavy.permille());
        let first = ratio_after([(2_000, 3_000)]);
        assert!((1_300..1_400).contains(&first.permille()), "half believed: {first:?}");
        let odd = ratio_after([(2_000, 3_000); 20].into_iter().chain([(2_000, 2_000_000)]));
        assert!(odd.permille() < 1_600, "{odd:?}");
        let changed = ratio_after([(2_000, 3_000); 500].into_iter().chain([(2_000, 2_000); 200]));
        assert!(changed.permille() < 1_100, "old reports are forgotten: {changed:?}");
    }

    #[test]
    fn small_prompt_with_much_overhead_counts_little() {
        assert!(ratio_after([(300, 700)]).permille() < 1_350);
        assert!(ratio_after([(300, 700), (40_000, 42_000)]).permille() < 1_070);
    }

    proptest! {
        #[test]
        fn ratio_is_bounded_for_any_reports(
            reports in prop::collection::vec((any::<u32>(), any::<u32>()), 0..40), tokens in any::<u32>(),
        ) {
            let ratio = ratio_after(reports);
            prop_assert!((TOKEN_RATIO_PERMILLE_MIN..=TOKEN_RATIO_PERMILLE_MAX).contains(&ratio.permille()));
            prop_assert!(ratio.our_tokens <= TOKEN_RATIO_HISTORY_TOKENS_MAX && ratio.vendor_tokens <= 3 * TOKEN_RATIO_HISTORY_TOKENS_MAX);
            prop_assert!(ratio.to_vendor_tokens(ratio.to_our_tokens(tokens)) <= tokens, "converted tokens fit");
            prop_assert!(ratio.to_vendor_tokens(tokens) >= tokens / 2);
        }

        #[test]
        fn constant_ratio_is_approached_and_not_overshot(counted in 300u32..20_000, permille in 500u32..3_000, times in 1usize..60) {
            let reported = u32::try_from(u64::from(counted) * u64::from(permille) / 1_000).expect("small");
            let before = ratio_after(vec![(counted, reported); times - 1]).permille();
            let after = ratio_after(vec![(counted, reported); times]).permille();
            // When older reports are halved, the initial ratio counts a little more again.
            prop_assert!(after.abs_diff(permille) <= before.abs_diff(permille) + 25, "{before} {after} {permille}");
            let (low, high) = (permille.min(UNITY_PERMILLE), permille.max(UNITY_PERMILLE));
            prop_assert!((low.saturating_sub(4)..=high + 1).contains(&after), "{after} {permille}");
        }
    }
}
