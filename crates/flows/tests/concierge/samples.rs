//! Parses every sample in the prompts, so that prompts and parsers stay consistent.

use segue_core::handover::{HandoverAcceptanceDecision, HandoverFieldType, decide_handover};
use segue_core::signal::parse_reply;
use segue_flows::concierge::plan::parse_steps_block;
use segue_flows::concierge::spec::{
    EXECUTION_FIELDS, EXECUTION_HANDOVER, INTENT_FIELDS, INTENT_HANDOVER, concierge_flow_spec, signal_block_names,
};

const HANDOVER_DUE: &str = include_str!("../../prompts/concierge/handover_due.md");
const EXPLORER: &str = include_str!("../../prompts/concierge/explorer.md");
const EXECUTOR: &str = include_str!("../../prompts/concierge/executor.md");
const EXECUTING: &str = include_str!("../../prompts/concierge/executing.md");

#[test]
fn handover_sample_in_the_request_for_a_handover_is_parsed() {
    let parsed = parse_reply(HANDOVER_DUE, &signal_block_names(), &[""; 0]);
    assert_eq!(parsed.complaints, []);
    let [block] = parsed.blocks.as_slice() else { panic!("one sample") };
    // The flow knows the shape of the map.
    for (name, form) in INTENT_FIELDS.into_iter().filter(|(name, _)| *name != "shape") {
        let is_given = match form {
            HandoverFieldType::Text => block.fields.text(name).is_some(),
            HandoverFieldType::List => !block.fields.list(name).is_empty(),
        };
        assert!(is_given, "{name}");
    }
    let document = INTENT_FIELDS.iter().filter_map(|(name, _)| {
        block
            .fields
            .text(name)
            .map(|text| ((*name).to_owned(), segue_core::handover::HandoverFieldValue::Text(text.to_owned())))
    });
    let schema = &concierge_flow_spec().handovers[INTENT_HANDOVER];
    assert!(matches!(decide_handover(schema, Some(document.collect()), 0), HandoverAcceptanceDecision::Accept(..)));
}

#[test]
fn batch_samples_in_the_prompts_are_parsed() {
    for (prompt, kinds) in [(EXPLORER, vec!["WORKFLOW"]), (EXECUTING, vec!["STEP_HELP", "WORKFLOW"])] {
        let parsed = parse_reply(prompt, &signal_block_names(), &[""; 0]);
        assert_eq!(parsed.complaints, []);
        let batches: Vec<_> = parsed.blocks.iter().filter(|block| block.name == "BATCH").collect();
        let read: Vec<_> = batches.iter().filter_map(|block| block.fields.text("type")).collect();
        assert_eq!(read, kinds);
        for block in batches {
            assert!(block.fields.text("prompt").is_some_and(|prompt| prompt.contains("the prompt for the experts")));
            match block.fields.section("handover") {
                Some(handover) => assert!(
                    EXECUTION_FIELDS.iter().all(|(name, _)| !handover.list(name).is_empty()),
                    "every field has a value"
                ),
                None => assert!(block.fields.text("blocker").is_some() && block.fields.text("context").is_some()),
            }
        }
    }
    assert_eq!(concierge_flow_spec().handovers[EXECUTION_HANDOVER].fields.len(), EXECUTION_FIELDS.len());
}

#[test]
fn steps_sample_in_the_executor_prompt_is_parsed() {
    let parsed = parse_reply(EXECUTOR, &signal_block_names(), &[""; 0]);
    let [block] = parsed.blocks.as_slice() else { panic!("one sample") };
    let steps = parse_steps_block(&block.raw).expect("it can be read");
    assert_eq!(steps.len(), 1);
    assert!(!steps[0].title.is_empty() && !steps[0].description.is_empty() && !steps[0].done_when.is_empty());
    let done = parse_reply(EXECUTING, &signal_block_names(), &[""; 0])
        .blocks
        .into_iter()
        .find(|block| block.name == "STEP_DONE");
    assert!(done.is_some_and(|block| block.fields.text("step").is_some()));
}
