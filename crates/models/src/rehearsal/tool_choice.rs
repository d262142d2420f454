//! Calls a tool, once, if the last message plainly asks for what it does or the instructions insist on it.

use segue_core::prompt::{Prompt, ToolCall, ToolSpec};

use super::json_generator;
use super::parsed_prompt::{ParsedPrompt, content_words, have_same_stem};
use super::rng::SeededRng;

/// How far behind `must call` a tool's name may stand.
const REQUIRED_TOOL_SEARCH_BYTES: usize = 60;

/// The call to make, if one is wanted and none was made since the user spoke.
pub(super) fn choose_tool_call(prompt: &Prompt, parsed: &ParsedPrompt, rng: &mut SeededRng) -> Option<ToolCall> {
    if parsed.has_called_tool || !parsed.tool_results.is_empty() {
        return None;
    }
    let asked: Vec<_> = content_words(parsed.last_user_text()).collect();
    let best = prompt
        .tools
        .iter()
        .rev()
        .map(|tool| (score_tool_match(tool, parsed.last_user_text(), &asked), tool))
        .max_by_key(|(fit, _)| *fit);
    let tool = match best {
        Some((fit, tool)) if fit > 0 => tool,
        _ => prompt.tools.iter().find(|tool| is_tool_required(tool, &parsed.instructions))?,
    };
    let id = format!("call_{:012x}", rng.next_u64() >> 16);
    Some(ToolCall {
        id,
        name: tool.name.clone(),
        arguments: json_generator::generate_tool_arguments(&tool.parameters, parsed, rng),
    })
}

/// How plainly the message asks for this tool; zero if it does not.
fn score_tool_match(tool: &ToolSpec, message: &str, asked: &[String]) -> usize {
    let name = tool.name.as_str();
    let is_identifier = name.contains(|letter: char| !letter.is_alphanumeric());
    if is_identifier && message.contains(name) || message.contains(&format!("`{name}`")) {
        return usize::MAX;
    }
    let is_asked = |word: &String| asked.iter().any(|asked| have_same_stem(asked, word));
    // Short verbs count in a name (`get`, `add`), so stop words are not left out here.
    let in_name: Vec<_> = name.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase).collect();
    let named = in_name.iter().filter(|word| is_asked(word)).count();
    let described = content_words(&tool.description).filter(is_asked).count();
    let is_plain = named > 0 && (named == in_name.len() || described >= 2);
    if is_plain { named * 8 + described.min(7) } else { 0 }
}

fn is_tool_required(tool: &ToolSpec, instructions: &str) -> bool {
    ["must call", "always call", "finish by calling"].iter().any(|phrase| {
        instructions.match_indices(phrase).any(|(at, _)| {
            let after = &instructions[at + phrase.len()..];
            let near = &after[..after.floor_char_boundary(REQUIRED_TOOL_SEARCH_BYTES)];
            near.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| tool.name == *word)
        })
    })
}
