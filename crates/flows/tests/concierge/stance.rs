//! The choice of the stance and its guidance.

use segue_flows::concierge::analysis::ClaimMapShape;
use segue_flows::concierge::leaks::find_leaked_terms;
use segue_flows::concierge::stance::{ReplyStance, STANCE_CUES, StanceReason, choose_stance, render_stance_guidance};

fn by_cue(message: &str) -> ReplyStance {
    choose_stance(None, message, None).stance
}

#[test]
fn setting_has_priority_over_cues_and_cues_over_the_shape() {
    let set = choose_stance(Some(ReplyStance::Challenge), "please decide", Some(ClaimMapShape::Exploratory));
    assert_eq!((set.stance, set.reason), (ReplyStance::Challenge, StanceReason::UserSetting));
    let cued = choose_stance(None, "please decide", Some(ClaimMapShape::Exploratory));
    assert_eq!((cued.stance, cued.reason), (ReplyStance::Decide, StanceReason::MessageCue("decide")));
    let shaped = choose_stance(None, "which coat is warmer", Some(ClaimMapShape::Exploratory));
    assert_eq!(
        (shaped.stance, shaped.reason),
        (ReplyStance::Explore, StanceReason::ClaimMapShape(ClaimMapShape::Exploratory))
    );
    let plain = choose_stance(None, "which coat is warmer", None);
    assert_eq!((plain.stance, plain.reason), (ReplyStance::Default, StanceReason::Fallback));
}

#[test]
fn four_shapes_choose_the_explore_stance() {
    let explored = |shape: &ClaimMapShape| choose_stance(None, "", Some(*shape)).stance == ReplyStance::Explore;
    let explored: Vec<ClaimMapShape> = ClaimMapShape::ALL.into_iter().filter(explored).collect();
    assert_eq!(
        explored,
        [ClaimMapShape::Tradeoff, ClaimMapShape::Dimensional, ClaimMapShape::Exploratory, ClaimMapShape::Contextual]
    );
    assert_eq!(choose_stance(None, "", Some(ClaimMapShape::Contested)).stance, ReplyStance::Default);
}

#[test]
fn every_cue_of_the_table_is_found() {
    for (stance, cues) in STANCE_CUES {
        for cue in cues {
            assert_eq!(by_cue(&format!("Well, {}!", cue.to_uppercase())), stance, "{cue}");
        }
    }
}

#[test]
fn cues_are_whole_phrases() {
    assert_eq!(by_cue("It is undecided; the deciders were decidedly absent."), ReplyStance::Default);
    assert_eq!(by_cue("My biggest challenge is time."), ReplyStance::Default);
    assert_eq!(by_cue("What. If only."), ReplyStance::Default);
    assert_eq!(by_cue("Play devil’s advocate"), ReplyStance::Challenge);
    assert_eq!(by_cue("please stress-test the plan"), ReplyStance::Challenge);
    assert_eq!(by_cue("WHAT  IF we wait?"), ReplyStance::Explore);
}

#[test]
fn the_first_cue_counts() {
    assert_eq!(by_cue("Let us explore this, and decide in the end"), ReplyStance::Explore);
    assert_eq!(by_cue("Decide for me, then we can explore the rest"), ReplyStance::Decide);
    let longest = choose_stance(None, "please challenge this", None);
    assert_eq!(longest.reason, StanceReason::MessageCue("please challenge"));
}

#[test]
fn negated_cue_does_not_count() {
    assert_eq!(by_cue("Don't decide for me."), ReplyStance::Default);
    assert_eq!(by_cue("Please do not try to decide"), ReplyStance::Default);
    assert_eq!(by_cue("Explore it with me before I decide"), ReplyStance::Explore);
    assert_eq!(by_cue("don’t decide, just help me think"), ReplyStance::Explore);
    // Another clause, an invitation, and a negation that is too far away do not negate a cue.
    assert_eq!(by_cue("No, decide now."), ReplyStance::Decide);
    assert_eq!(by_cue("Why not explore it?"), ReplyStance::Explore);
    assert_eq!(by_cue("I cannot make it out and have to decide"), ReplyStance::Decide);
    assert_eq!(by_cue("I can't decide"), ReplyStance::Decide, "a user who cannot decide wants help with the decision");
}

#[test]
fn s24_every_stance_has_behaviour_and_voice_and_all_but_the_default_framing() {
    let mut told = std::collections::BTreeSet::new();
    for stance in ReplyStance::ALL {
        let guidance = render_stance_guidance(stance);
        assert_eq!(guidance.framing.is_none(), stance == ReplyStance::Default);
        told.extend(guidance.framing);
        told.insert(guidance.behaviour);
        told.insert(guidance.voice);
    }
    assert_eq!(told.len(), 11);
    assert!(told.iter().all(|text| !text.is_empty() && find_leaked_terms(text).is_empty()));
}
