//! Chooses a tool call: if the last message clearly asks for a tool or the instructions require one, and only once per user
//! message.

use segue_core::prompt::{ModelToolSpec, Prompt, ToolCall, ToolChoice};

use super::json_generator;
use super::parsed_prompt::{RehearsalPromptParts, content_words, have_same_stem};
use super::rng::SeededRng;

/// Bytes after `must call` that are searched for a tool's name.
const REQUIRED_TOOL_SEARCH_BYTES: usize = 60;

/// Returns the call to make, unless a tool was already called since the last user message.
pub(super) fn choose_tool_call(
    prompt: &Prompt,
    parsed: &RehearsalPromptParts,
    rng: &mut SeededRng,
) -> Option<ToolCall> {
    let is_forbidden = prompt.tool_use.choice == ToolChoice::None;
    if is_forbidden || parsed.has_called_tool || !parsed.tool_results.is_empty() {
        return None;
    }
    let message_words: Vec<_> = content_words(parsed.last_user_text()).collect();
    let best = prompt
        .tools
        .iter()
        .rev()
        .map(|tool| (score_tool_match(tool, parsed.last_user_text(), &message_words), tool))
        .max_by_key(|(score, _)| *score);
    let tool = match (best, &prompt.tool_use.choice) {
        (_, ToolChoice::Tool(required)) => prompt.tools.iter().find(|tool| tool.name == *required)?,
        (Some((score, tool)), choice) if score > 0 || *choice == ToolChoice::Required => tool,
        _ => prompt.tools.iter().find(|tool| is_tool_required(tool, &parsed.instructions))?,
    };
    let id = format!("call_{:012x}", rng.next_u64() >> 16);
    Some(ToolCall {
        id,
        name: tool.name.clone(),
        arguments: json_generator::generate_tool_arguments(&tool.parameters, parsed, rng),
    })
}

/// Scores how clearly the message asks for a tool; zero if it does not.
fn score_tool_match(tool: &ModelToolSpec, message: &str, message_words: &[String]) -> usize {
    let name = tool.name.as_str();
    let is_identifier = name.contains(|letter: char| !letter.is_alphanumeric());
    if is_identifier && message.contains(name) || message.contains(&format!("`{name}`")) {
        return usize::MAX;
    }
    let is_mentioned = |word: &String| message_words.iter().any(|message_word| have_same_stem(message_word, word));
    // Short verbs such as `get` and `add` matter in a name, so stop words are kept here.
    let name_words: Vec<_> = name.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase).collect();
    let name_matches = name_words.iter().filter(|word| is_mentioned(word)).count();
    let description_matches = content_words(&tool.description).filter(is_mentioned).count();
    let is_clear = name_matches > 0 && (name_matches == name_words.len() || description_matches >= 2);
    if is_clear { name_matches * 8 + description_matches.min(7) } else { 0 }
}

fn is_tool_required(tool: &ModelToolSpec, instructions: &str) -> bool {
    ["must call", "always call", "finish by calling"].iter().any(|phrase| {
        instructions.match_indices(phrase).any(|(at, _)| {
            let after = &instructions[at + phrase.len()..];
            let near = &after[..after.floor_char_boundary(REQUIRED_TOOL_SEARCH_BYTES)];
            near.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| tool.name == *word)
        })
    })
}
