//! The built-in conversations. To add one, write a file in `conversations/<flow>/` and add it to the list.

use crate::conversation::EvalConversationSpec;

const BUILT_IN: [&str; 40] = [
    include_str!("../conversations/concierge/rent-or-buy.toml"),
    include_str!("../conversations/concierge/register-company.toml"),
    include_str!("../conversations/concierge/learn-piano.toml"),
    include_str!("../conversations/concierge/terse-answers.toml"),
    include_str!("../conversations/concierge/changes-mind.toml"),
    include_str!("../conversations/concierge/german-heating.toml"),
    include_str!("../conversations/concierge/french-move.toml"),
    include_str!("../conversations/concierge/code-in-messages.toml"),
    include_str!("../conversations/concierge/off-topic.toml"),
    include_str!("../conversations/concierge/hostile.toml"),
    include_str!("../conversations/concierge/asks-at-once.toml"),
    include_str!("../conversations/concierge/never-answers.toml"),
    include_str!("../conversations/assistant/find-chicken.toml"),
    include_str!("../conversations/assistant/expiring-soon.toml"),
    include_str!("../conversations/assistant/quick-vegetarian.toml"),
    include_str!("../conversations/assistant/count-recipes.toml"),
    include_str!("../conversations/assistant/add-inventory.toml"),
    include_str!("../conversations/assistant/plan-dinner.toml"),
    include_str!("../conversations/assistant/allergy-check.toml"),
    include_str!("../conversations/assistant/follow-up-second.toml"),
    include_str!("../conversations/assistant/use-up-fridge.toml"),
    include_str!("../conversations/assistant/german-recipe.toml"),
    include_str!("../conversations/assistant/change-amount.toml"),
    include_str!("../conversations/assistant/no-such-recipe.toml"),
    include_str!("../conversations/project/greet.toml"),
    include_str!("../conversations/project/larger-number.toml"),
    include_str!("../conversations/project/even-or-odd.toml"),
    include_str!("../conversations/project/count-words.toml"),
    include_str!("../conversations/project/upper-case.toml"),
    include_str!("../conversations/project/sum-numbers.toml"),
    include_str!("../conversations/project/fahrenheit.toml"),
    include_str!("../conversations/project/file-extension.toml"),
    include_str!("../conversations/project/repeat-text.toml"),
    include_str!("../conversations/project/fix-discount.toml"),
    include_str!("../conversations/team/story-greet.toml"),
    include_str!("../conversations/team/story-larger.toml"),
    include_str!("../conversations/team/story-parity.toml"),
    include_str!("../conversations/team/story-upper.toml"),
    include_str!("../conversations/team/story-sum.toml"),
    include_str!("../conversations/team/story-extension.toml"),
];

/// Returns the built-in conversations of all flows.
///
/// # Panics
/// Panics if a built-in conversation is invalid, which the tests exclude.
#[must_use]
pub fn built_in_conversations() -> Vec<EvalConversationSpec> {
    let parse = |text: &&str| EvalConversationSpec::parse(text).expect("built-in conversations are valid");
    BUILT_IN.iter().map(parse).collect()
}
