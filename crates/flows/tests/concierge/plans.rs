//! A plan under way: which step is current, and that whoever carries it out knows it.

use segue_core::event::Event;

use super::play::*;

fn says(block: &str, step: &str) -> String {
    format!("Good.\n<<<{block}>>>\nstep: {step}\n<<<END>>>")
}

#[test]
fn the_step_that_the_user_chooses_becomes_the_current_one() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("with the flats").answer_call("concierge", &says("STEP_START", "View flats"));
    assert_eq!(facts(&stage, "step_started")[0]["step"], 1);
    stage.send_message("found one");
    let last = concierge_prompt(&stage).1;
    assert!(last.contains("[ ] 1. See the bank") && last.contains("[>] 2. View flats (current)"), "{last}");
    stage.answer_call("concierge", &says("STEP_DONE", "View flats")).send_message("and now?");
    let last = concierge_prompt(&stage).1;
    assert!(last.contains("Progress: 1 of 2") && last.contains("[>] 1. See the bank (current)"), "{last}");
    stage.answer_call("concierge", &says("STEP_DONE", "See the bank"));
    assert_eq!(phase(&stage).current, *"explorer");
    let outcome = stage.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.list_field("steps"), ["See the bank", "View flats"]);
}

#[test]
fn a_step_can_be_begun_and_done_in_one_answer() {
    let mut stage = open();
    planned(&mut stage);
    let both = format!("{}\n{}", says("STEP_START", "2"), says("STEP_DONE", "2"));
    stage.send_message("I have found a flat already").answer_call("concierge", &both);
    assert_eq!((facts(&stage, "step_started").len(), facts(&stage, "step_done").len()), (1, 1));
    assert!(facts(&stage, "refused").is_empty());
}

#[test]
fn a_step_that_cannot_be_begun_is_refused_and_told() {
    let mut stage = open();
    planned(&mut stage);
    stage
        .send_message("sell the cat")
        .answer_call("concierge", &says("STEP_START", "Sell the cat"))
        .send_message("well?");
    assert!(concierge_prompt(&stage).1.contains("“Sell the cat” was not begun: the plan has no such step"));
    stage
        .answer_call("concierge", &says("STEP_DONE", "1"))
        .send_message("once more?")
        .answer_call("concierge", &says("STEP_START", "1"));
    stage.send_message("well?");
    assert!(concierge_prompt(&stage).1.contains("“1” was not begun: it is complete already"));
    stage.answer_call("concierge", &says("STEP_START", "2")).send_message("go");
    assert_eq!(concierge_prompt(&stage).1, "go", "to begin what has begun changes nothing");
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("start").answer_call("concierge", &says("STEP_START", "1"));
    assert_eq!((stage.last_reply().as_str(), facts(&stage, "refused").len()), ("Good.", 1));
}

#[test]
fn a_plan_is_known_after_the_thread_was_shortened() {
    let mut stage = open();
    planned(&mut stage);
    stage.set_window(3_600);
    stage.send_message("tell me more");
    for turn in 0..12 {
        stage
            .answer_call("concierge", &format!("Part {turn}. {}", "many words here ".repeat(60)))
            .send_message("and then?");
        if stage.open_call_roles() == ["summariser"] {
            stage.answer_call("summariser", "They talked about flats.");
            break;
        }
    }
    let mut compacted = stage.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ThreadCompacted(compacted) => Some(compacted.clone()),
        _ => None,
    });
    let compacted = compacted.next_back().expect("it was shortened");
    assert!(stage.text_on_one_line(compacted.summary[0]).contains("[>] 1. See the bank (current)"));
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("[>] 1. See the bank (current)") && last.ends_with("and then?"), "{last}");
    stage.answer_call("concierge", "Go to the bank.").send_message("fine");
    assert_eq!(concierge_prompt(&stage).1, "fine", "and is told once");
}
