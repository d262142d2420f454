//! The assistant flow in the simulation: its domain, and the answers of its nodes, most of which can be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::flow::DynFlow;
use segue_core::prompt::Prompt;
use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_models::ModelCallOrigin;
use serde_json::{Value, json};

use crate::seeded_random::SeededRandom;

/// The name of the flow.
pub(crate) const ASSISTANT_FLOW: &str = "assistant";

/// The name of its domain, and the only type of records in it.
pub(crate) const SHOP_DOMAIN: &str = "shop";
pub(crate) const ITEM_TYPE: &str = "item";

const SHOP_DECLARATION: &str = r#"
name = "shop"
about = "what a shop sells"

[[type]]
name = "item"
about = "something to sell"
label = "name"
summary = ["name"]
standing = true
fields = [{ name = "name", kind = "text", required = true }, { name = "amount", kind = "integer" }]
"#;

/// Returns the flow with the domain of the simulation.
pub(crate) fn assistant_flow() -> Arc<dyn DynFlow> {
    let domain = DomainSchema::parse(SHOP_DECLARATION).expect("the domain is valid");
    Arc::new(AssistantFlow::with_domains(ConfiguredDomains::new([domain])))
}

/// Returns the answer of a node. `marker` names the call; each record that the call writes has it in its name.
pub(crate) fn assistant_answer(
    random: &mut SeededRandom,
    call: &ModelCallOrigin,
    prompt: &Prompt,
    marker: &str,
) -> String {
    let prompt = prompt.to_string();
    let references = references_in(&prompt);
    let answer = match call.role.as_str() {
        "understand" => understand_answer(random, &references),
        "think" => think_answer(random, &references),
        "act" if call.ask == "result" && random.chance_percent(75) => complete_step(random, marker, ""),
        "act" => act_answer(random, &prompt, &references, marker),
        _ => return format!("{marker} It is so."),
    };
    format!("{marker} {answer}")
}

/// Returns the references of records and drafts in a text.
fn references_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_reference = |word: &&str| {
        let number = word.strip_prefix("gen_").unwrap_or(word).strip_prefix("item_");
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty())
    };
    words.filter(is_reference).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

fn pick_some(random: &mut SeededRandom, from: &[String], percent: u64) -> Vec<String> {
    from.iter().filter(|_| random.chance_percent(percent)).cloned().collect()
}

fn understand_answer(random: &mut SeededRandom, references: &[String]) -> Value {
    let reasoned = |references: Vec<String>| -> Vec<Value> {
        references.into_iter().map(|reference| json!({"ref": reference, "reason": "so it is"})).collect()
    };
    let pending = random.pick(&[json!(null), json!("accepted"), json!("answered"), json!("ignored")]).clone();
    json!({
        "expressed": "wants something",
        "references": pick_some(random, references, 30),
        "retain": reasoned(pick_some(random, references, 10)),
        "demote": reasoned(pick_some(random, references, 5)),
        "drop": pick_some(random, references, 3),
        "clear": random.chance_percent(2),
        "pending": pending,
    })
}

fn think_answer(random: &mut SeededRandom, references: &[String]) -> Value {
    if random.chance_percent(8) {
        let decision = *random.pick(&["propose", "clarify"]);
        return json!({"decision": decision, "goal": "to know", "say": "Shall it be so?", "steps": []});
    }
    let count = random.between(1, 3);
    let steps: Vec<Value> = (0..count).map(|_| planned_step(random, references)).collect();
    let asks_for = if random.chance_percent(8) { "information" } else { "change" };
    json!({"decision": "plan_direct", "goal": "to do it", "say": null, "asks_for": asks_for, "steps": steps})
}

fn planned_step(random: &mut SeededRandom, references: &[String]) -> Value {
    let (step_type, operation) = match random.below(100) {
        0..=19 => ("read", None),
        20..=54 => ("write", Some("create")),
        55..=74 => ("write", Some("update")),
        75..=84 => ("write", Some("delete")),
        85..=92 => ("generate", None),
        _ => ("analyze", None),
    };
    let refs = match references {
        [] => Vec::new(),
        _ if operation == Some("create") => pick_some(random, references, 15),
        _ => vec![random.pick(references).clone()],
    };
    let group = random.between(1, 2);
    json!({"description": "do it", "type": step_type, "operation": operation, "subdomain": ITEM_TYPE, "group": group,
        "refs": refs})
}

/// Answers what the step asks for, or something else that a step may answer.
fn act_answer(random: &mut SeededRandom, prompt: &str, references: &[String], marker: &str) -> Value {
    match random.below(100) {
        0..=2 => return json!({"action": "ask_user", "question": "Which one?", "partial": {"found": 1}}),
        3..=4 => return json!({"action": "blocked", "reason": "it is locked"}),
        5 => return json!({"action": "fail", "reason": "it is broken"}),
        6..=8 => return json!({"action": "retrieve_step", "step": 1}),
        _ => {}
    }
    let step_type = text_between(prompt, "Its type is ", ".");
    let operation = text_between(prompt, "The only change that it may make: ", "\n");
    let named = references_in(text_between(prompt, "It works with these records: ", "\n"));
    let targets = if named.is_empty() { references } else { named.as_slice() };
    let target = if targets.is_empty() { "item_1".to_owned() } else { random.pick(targets).clone() };
    let item = |amount: u64| json!({"name": format!("{marker} {amount}"), "amount": amount});
    let call_tool = |tool: &str, arguments: Value| json!({"action": "tool_call", "tool": tool, "arguments": arguments});
    match (step_type, operation) {
        ("write", "create") => {
            let drafts: Vec<&String> = targets.iter().filter(|reference| reference.starts_with("gen_")).collect();
            if !drafts.is_empty() && random.chance_percent(40) {
                return call_tool("create", json!({"type": ITEM_TYPE, "drafts": [random.pick(&drafts)]}));
            }
            let records: Vec<Value> = (0..random.between(1, 2)).map(item).collect();
            call_tool("create", json!({"type": ITEM_TYPE, "records": records}))
        }
        ("write", "update") => {
            let set = json!({"name": format!("{marker} renamed")});
            call_tool("update", json!({"updates": [{"ref": target, "set": set}]}))
        }
        ("write", "delete") => call_tool("delete", json!({"refs": [target]})),
        ("read", _) => call_tool("read", json!({"type": ITEM_TYPE, "refresh": random.chance_percent(50)})),
        _ => complete_step(random, marker, step_type),
    }
}

fn complete_step(random: &mut SeededRandom, marker: &str, step_type: &str) -> Value {
    let mut answer = json!({"action": "step_complete", "outcome": "it is done", "refs": []});
    if step_type == "generate" {
        let content = json!({"name": format!("draft of {}", marker.trim_matches(['⟦', '⟧'])), "amount": 1});
        answer["drafts"] = json!([{"type": ITEM_TYPE, "content": content}]);
    }
    if random.chance_percent(20) {
        answer["note_for_next_step"] = json!("mind the gap");
    }
    answer
}

/// Returns the text between the first `start` and the next `end`; empty if there is none.
fn text_between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let after = text.split_once(start).map_or("", |(_, after)| after);
    after.split_once(end).map_or(after, |(between, _)| between)
}
