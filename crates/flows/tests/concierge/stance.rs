//! Which stance is taken, and what the concierge is told about it.

use segue_flows::concierge::analysis::Shape;
use segue_flows::concierge::leaks::scan;
use segue_flows::concierge::stance::{Because, CUES, Stance, choose, guidance};

fn by_cue(message: &str) -> Stance {
    choose(None, message, None).stance
}

#[test]
fn what_the_user_set_goes_before_cues_and_cues_before_the_shape() {
    let set = choose(Some(Stance::Challenge), "please decide", Some(Shape::Exploratory));
    assert_eq!((set.stance, set.because), (Stance::Challenge, Because::Set));
    let cued = choose(None, "please decide", Some(Shape::Exploratory));
    assert_eq!((cued.stance, cued.because), (Stance::Decide, Because::Cue("decide")));
    let shaped = choose(None, "which coat is warmer", Some(Shape::Exploratory));
    assert_eq!((shaped.stance, shaped.because), (Stance::Explore, Because::Shape(Shape::Exploratory)));
    let plain = choose(None, "which coat is warmer", None);
    assert_eq!((plain.stance, plain.because), (Stance::Default, Because::Nothing));
}

#[test]
fn half_of_the_shapes_ask_for_exploring() {
    let explored = |shape: &Shape| choose(None, "", Some(*shape)).stance == Stance::Explore;
    let explored: Vec<Shape> = Shape::ALL.into_iter().filter(explored).collect();
    assert_eq!(explored, [Shape::Tradeoff, Shape::Dimensional, Shape::Exploratory, Shape::Contextual]);
    assert_eq!(choose(None, "", Some(Shape::Contested)).stance, Stance::Default);
}

#[test]
fn every_cue_of_the_table_is_heard() {
    for (stance, cues) in CUES {
        for cue in cues {
            assert_eq!(by_cue(&format!("Well, {}!", cue.to_uppercase())), stance, "{cue}");
        }
    }
}

#[test]
fn cues_are_whole_words_close_together() {
    assert_eq!(by_cue("It is undecided; the deciders were decidedly absent."), Stance::Default);
    assert_eq!(by_cue("My biggest challenge is time."), Stance::Default);
    assert_eq!(by_cue("What. If only."), Stance::Default);
    assert_eq!(by_cue("Play devil’s advocate"), Stance::Challenge);
    assert_eq!(by_cue("please stress-test the plan"), Stance::Challenge);
    assert_eq!(by_cue("WHAT  IF we wait?"), Stance::Explore);
}

#[test]
fn the_first_cue_counts() {
    assert_eq!(by_cue("Let us explore this, and decide in the end"), Stance::Explore);
    assert_eq!(by_cue("Decide for me, then we can explore the rest"), Stance::Decide);
    let longest = choose(None, "please challenge this", None);
    assert_eq!(longest.because, Because::Cue("please challenge"));
}

#[test]
fn a_refused_cue_does_not_count() {
    assert_eq!(by_cue("Don't decide for me."), Stance::Default);
    assert_eq!(by_cue("Please do not try to decide"), Stance::Default);
    assert_eq!(by_cue("Explore it with me before I decide"), Stance::Explore);
    assert_eq!(by_cue("don’t decide, just help me think"), Stance::Explore);
    // Another clause, an invitation, and what is out of reach refuse nothing.
    assert_eq!(by_cue("No, decide now."), Stance::Decide);
    assert_eq!(by_cue("Why not explore it?"), Stance::Explore);
    assert_eq!(by_cue("I cannot make it out and have to decide"), Stance::Decide);
    assert_eq!(by_cue("I can't decide"), Stance::Decide, "who cannot decide wants help in deciding");
}

#[test]
fn s24_every_stance_has_behaviour_and_voice_and_all_but_the_default_framing() {
    let mut told = std::collections::BTreeSet::new();
    for stance in Stance::ALL {
        let guidance = guidance(stance);
        assert_eq!(guidance.framing.is_none(), stance == Stance::Default);
        told.extend(guidance.framing);
        told.insert(guidance.behaviour);
        told.insert(guidance.voice);
    }
    assert_eq!(told.len(), 11);
    assert!(told.iter().all(|text| !text.is_empty() && scan(text).is_empty()));
}
