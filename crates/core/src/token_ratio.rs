//! How a model's vendor counts beside how we count. We count every text once, with one vocabulary for all models; vendors say with each
//! answer what the prompt came to in their own. This module says what one of our tokens weighs with a model, from what it reported
//! so far: whole numbers, so that the same answers always come to the same weight.

use serde::{Deserialize, Serialize};

use crate::limits::{
    TOKEN_RATIO_HISTORY_TOKENS_MAX, TOKEN_RATIO_PERMILLE_MAX, TOKEN_RATIO_PERMILLE_MIN, TOKEN_RATIO_PRIOR_TOKENS,
    TOKEN_RATIO_PROMPT_TOKENS_MIN,
};

/// The weight of a token where nothing else is known, in thousandths.
const UNITY_PERMILLE: u32 = 1_000;

/// What one of our tokens weighs with a model. Without a report, just as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VendorTokenRatio {
    /// Tokens of the prompts we learnt from, by our count. Older ones count ever less.
    our_tokens: u64,
    /// Tokens of the same prompts, as reported.
    vendor_tokens: u64,
}

impl VendorTokenRatio {
    /// Learns from an answer: a prompt that we counted so, and its vendor so.
    pub fn add_observation(&mut self, our_tokens: u32, vendor_tokens: u32) {
        if our_tokens < TOKEN_RATIO_PROMPT_TOKENS_MIN || vendor_tokens == 0 {
            return;
        }
        let counted = u64::from(our_tokens);
        let bound = |permille: u32| counted * u64::from(permille) / u64::from(UNITY_PERMILLE);
        // One figure that cannot be right must not spoil the others.
        let reported = u64::from(vendor_tokens).clamp(bound(TOKEN_RATIO_PERMILLE_MIN), bound(TOKEN_RATIO_PERMILLE_MAX));
        self.our_tokens += counted;
        self.vendor_tokens += reported;
        while self.our_tokens > TOKEN_RATIO_HISTORY_TOKENS_MAX {
            self.our_tokens /= 2;
            self.vendor_tokens /= 2;
        }
    }

    /// The weight, in thousandths.
    #[must_use]
    pub fn permille(self) -> u32 {
        let (counted, reported) =
            (self.our_tokens + TOKEN_RATIO_PRIOR_TOKENS, self.vendor_tokens + TOKEN_RATIO_PRIOR_TOKENS);
        let permille = (reported * u64::from(UNITY_PERMILLE) + counted / 2) / counted;
        u32::try_from(permille).unwrap_or(u32::MAX).clamp(TOKEN_RATIO_PERMILLE_MIN, TOKEN_RATIO_PERMILLE_MAX)
    }

    /// Whether a token weighs as much with the model as with us.
    #[must_use]
    pub fn is_unity(self) -> bool {
        self.permille() == UNITY_PERMILLE
    }

    /// So many of our tokens as the model's vendor would count them, rather too many than too few.
    #[must_use]
    pub fn to_vendor_tokens(self, our_tokens: u32) -> u32 {
        let theirs = (u64::from(our_tokens) * u64::from(self.permille())).div_ceil(u64::from(UNITY_PERMILLE));
        u32::try_from(theirs).unwrap_or(u32::MAX)
    }

    /// How many of our tokens there is room for in so many of the vendor's, rather too few than too many.
    #[must_use]
    pub fn to_our_tokens(self, vendor_tokens: u32) -> u32 {
        let ours = u64::from(vendor_tokens) * u64::from(UNITY_PERMILLE) / u64::from(self.permille());
        u32::try_from(ours).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learnt(reports: impl IntoIterator<Item = (u32, u32)>) -> VendorTokenRatio {
        let mut weight = VendorTokenRatio::default();
        reports.into_iter().for_each(|(counted, reported)| weight.add_observation(counted, reported));
        weight
    }

    #[test]
    fn without_a_report_a_token_is_a_token() {
        let weight = VendorTokenRatio::default();
        assert!(weight.is_unity());
        assert_eq!(
            (weight.to_vendor_tokens(7), weight.to_our_tokens(7), weight.to_vendor_tokens(u32::MAX)),
            (7, 7, u32::MAX)
        );
        assert!(
            learnt([(TOKEN_RATIO_PROMPT_TOKENS_MIN - 1, 9_999), (0, 5), (5_000, 0)]).is_unity(),
            "these say nothing"
        );
    }

    #[test]
    fn what_is_reported_again_and_again_is_believed_and_one_odd_figure_is_not() {
        let heavy = learnt([(2_000, 3_000); 20]);
        assert!((1_480..=1_500).contains(&heavy.permille()), "{heavy:?}");
        assert_eq!(heavy.to_vendor_tokens(1_000), heavy.permille());
        let first = learnt([(2_000, 3_000)]);
        assert!((1_300..1_400).contains(&first.permille()), "half believed: {first:?}");
        let odd = learnt([(2_000, 3_000); 20].into_iter().chain([(2_000, 2_000_000)]));
        assert!(odd.permille() < 1_600, "{odd:?}");
        let changed = learnt([(2_000, 3_000); 500].into_iter().chain([(2_000, 2_000); 200]));
        assert!(changed.permille() < 1_100, "what is long past is forgotten: {changed:?}");
    }

    #[test]
    fn a_small_prompt_with_much_around_it_does_not_weigh_much() {
        assert!(learnt([(300, 700)]).permille() < 1_350);
        assert!(learnt([(300, 700), (40_000, 42_000)]).permille() < 1_070);
    }

    proptest! {
        #[test]
        fn whatever_is_reported_the_weight_is_bounded_and_no_figure_breaks_it(
            reports in prop::collection::vec((any::<u32>(), any::<u32>()), 0..40), tokens in any::<u32>(),
        ) {
            let weight = learnt(reports);
            prop_assert!((TOKEN_RATIO_PERMILLE_MIN..=TOKEN_RATIO_PERMILLE_MAX).contains(&weight.permille()));
            prop_assert!(weight.our_tokens <= TOKEN_RATIO_HISTORY_TOKENS_MAX && weight.vendor_tokens <= 3 * TOKEN_RATIO_HISTORY_TOKENS_MAX);
            prop_assert!(weight.to_vendor_tokens(weight.to_our_tokens(tokens)) <= tokens, "what there is room for fits");
            prop_assert!(weight.to_vendor_tokens(tokens) >= tokens / 2);
        }

        #[test]
        fn a_steady_weight_is_approached_and_never_overshot(counted in 300u32..20_000, permille in 500u32..3_000, times in 1usize..60) {
            let reported = u32::try_from(u64::from(counted) * u64::from(permille) / 1_000).expect("small");
            let before = learnt(vec![(counted, reported); times - 1]).permille();
            let after = learnt(vec![(counted, reported); times]).permille();
            // When the older reports are halved, what stands against them has a little more weight again.
            prop_assert!(after.abs_diff(permille) <= before.abs_diff(permille) + 25, "{before} {after} {permille}");
            let (low, high) = (permille.min(UNITY_PERMILLE), permille.max(UNITY_PERMILLE));
            prop_assert!((low.saturating_sub(4)..=high + 1).contains(&after), "{after} {permille}");
        }
    }
}
