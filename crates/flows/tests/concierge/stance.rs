//! The choice of the stance and its guidance.

use segue_flows::concierge::analysis::ClaimMapShape;
use segue_flows::concierge::leaks::find_leaked_terms;
use segue_flows::concierge::stance::{
    ReplyStance, ReplyStanceReason, STANCE_CUES, choose_stance, render_stance_guidance,
};

fn by_cue(message: &str) -> ReplyStance {
    choose_stance(None, message, None, None).stance
}

#[test]
fn setting_goes_before_cue_and_cue_before_the_concierge_and_the_shape() {
    let shape = Some(ClaimMapShape::Exploratory);
    let asked = Some(ReplyStance::Explore);
    let chosen = |setting, message, by_concierge, shape| {
        let choice = choose_stance(setting, message, by_concierge, shape);
        (choice.stance, choice.reason)
    };
    assert_eq!(
        chosen(Some(ReplyStance::Challenge), "please decide", asked, shape),
        (ReplyStance::Challenge, ReplyStanceReason::UserSetting)
    );
    assert_eq!(
        chosen(None, "please decide", asked, shape),
        (ReplyStance::Decide, ReplyStanceReason::MessageCue("please decide"))
    );
    let question = "which coat is warmer";
    assert_eq!(
        chosen(None, question, Some(ReplyStance::Challenge), shape),
        (ReplyStance::Challenge, ReplyStanceReason::ConciergeAnswer)
    );
    for by_concierge in [None, Some(ReplyStance::Default)] {
        assert_eq!(
            chosen(None, question, by_concierge, shape),
            (ReplyStance::Explore, ReplyStanceReason::ClaimMapShape(ClaimMapShape::Exploratory))
        );
        assert_eq!(chosen(None, question, by_concierge, None), (ReplyStance::Default, ReplyStanceReason::Fallback));
    }
}

#[test]
fn four_shapes_choose_the_explore_stance() {
    let explored = |shape: &ClaimMapShape| choose_stance(None, "", None, Some(*shape)).stance == ReplyStance::Explore;
    let explored: Vec<ClaimMapShape> = ClaimMapShape::ALL.into_iter().filter(explored).collect();
    assert_eq!(
        explored,
        [ClaimMapShape::Tradeoff, ClaimMapShape::Dimensional, ClaimMapShape::Exploratory, ClaimMapShape::Contextual]
    );
    assert_eq!(choose_stance(None, "", None, Some(ClaimMapShape::Contested)).stance, ReplyStance::Default);
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
fn cues_are_whole_phrases_that_can_hardly_mean_anything_else() {
    for message in [
        "It is undecided; the deciders were decidedly absent.",
        "My biggest challenge is time.",
        "We have to decide by Friday where to live.",
        "My doctor and two friends recommend it.",
        "We want to explore the coast by bike.",
        "What if the landlord says no?",
        "Which one should I water more, the fern or the palm?",
    ] {
        assert_eq!(by_cue(message), ReplyStance::Default, "{message}");
    }
    assert_eq!(by_cue("Play devil’s advocate"), ReplyStance::Challenge);
    assert_eq!(by_cue("please stress-test the plan"), ReplyStance::Challenge);
    assert_eq!(by_cue("HELP  ME think"), ReplyStance::Explore);
}

#[test]
fn the_first_cue_counts() {
    assert_eq!(by_cue("Explore this with me, and pick one in the end"), ReplyStance::Explore);
    assert_eq!(by_cue("Decide for me, then explore it with me"), ReplyStance::Decide);
    let longest = choose_stance(None, "give me a straight answer", None, None);
    assert_eq!(longest.reason, ReplyStanceReason::MessageCue("give me a straight answer"));
}

#[test]
fn negated_cue_does_not_count() {
    assert_eq!(by_cue("Don't decide for me."), ReplyStance::Default);
    assert_eq!(by_cue("Please do not try to argue against it"), ReplyStance::Default);
    assert_eq!(by_cue("don’t pick one, just help me think"), ReplyStance::Explore);
    // Another clause, an invitation, and a negation that is too far away do not negate a cue.
    assert_eq!(by_cue("No, decide for me."), ReplyStance::Decide);
    assert_eq!(by_cue("Why not brainstorm with me?"), ReplyStance::Explore);
    assert_eq!(by_cue("I cannot make it out so please you decide"), ReplyStance::Decide);
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
