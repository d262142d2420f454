//! The search for internal terms in replies.

use proptest::prelude::*;
use segue_flows::concierge::leaks::{HARMLESS_PHRASES, INTERNAL_TERMS, find_leaked_terms};

fn found(reply: &str) -> Vec<&str> {
    find_leaked_terms(reply).into_iter().map(|leak| &reply[leak.range]).collect()
}

#[test]
fn s33_internal_terms_are_found_with_their_positions() {
    let reply = "The Models agree; my structural analysis of the claims (from the last batch) says so.";
    assert_eq!(found(reply), ["Models", "structural", "analysis", "claims", "batch"]);
    let leaks = find_leaked_terms(reply);
    assert_eq!((leaks[0].term, leaks[0].range.clone()), ("model", 4..10));
    assert_eq!(leaks[1].term, "structure");
}

#[test]
fn every_form_of_every_term_is_found() {
    for (term, forms) in INTERNAL_TERMS {
        for form in forms {
            let reply = format!("It was _{}_.", form.to_uppercase());
            assert_eq!(find_leaked_terms(&reply).first().map(|leak| leak.term), Some(term), "{form}");
        }
    }
    assert_eq!(found("I fanned-out; see claim_3"), ["fanned-out", "claim"]);
}

#[test]
fn every_term_of_the_never_prompt_is_searched_for() {
    let never = include_str!("../../prompts/concierge/never.md");
    let line = never.lines().find_map(|line| line.strip_prefix("- Speak of ")).expect("it says so");
    let (things, _) = line.split_once('.').expect("a sentence");
    for thing in things.split([',', ' ']).filter(|word| !matches!(*word, "" | "a" | "or" | "and")) {
        assert_eq!(found(&format!("There is {thing} in it.")), [thing]);
    }
    assert_eq!(found("Several experts were asked; I have analysed it."), ["experts", "analysed"]);
    assert_eq!(found("in the first batch"), ["batch"]);
}

#[test]
fn parts_of_words_do_not_count() {
    assert_eq!(found("Remodel the kitchen, reclaim the yard, restructure nothing, ask a modeller."), [""; 0]);
}

#[test]
fn code_and_urls_do_not_count() {
    assert_eq!(
        found("Call `model.fit()` once, see https://example.org/models/a and\n```\nclass Claim: batch\n```\n"),
        [""; 0]
    );
    assert_eq!(found("~~~\nthe model\n```\nthe model"), [""; 0], "a fence that is never closed");
    assert_eq!(found("a stray ` and a model"), ["model"]);
    assert_eq!(found("`code` and a model, `more` and a claim"), ["model", "claim"]);
}

#[test]
fn harmless_phrases_do_not_count() {
    for (before, term) in HARMLESS_PHRASES {
        assert_eq!(found(&format!("a {before} {term}")), [""; 0]);
    }
    assert_eq!(found("your Business models and insurance claims"), [""; 0]);
    // These cannot be distinguished from internal terms, so they are reported.
    assert_eq!(found("Mind your role. Models differ, and so do financial models."), ["Models", "models"]);
}

#[test]
fn number_of_reported_terms_is_limited() {
    assert_eq!(find_leaked_terms(&"model ".repeat(10_000)).len(), 64);
}

proptest! {
    #[test]
    fn any_reply_can_be_scanned(reply in "(model|claim|`|```|\n|~~~|://|_| |’|é){0,40}") {
        for leak in find_leaked_terms(&reply) {
            prop_assert!(reply.get(leak.range).is_some());
        }
    }
}
