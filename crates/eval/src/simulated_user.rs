//! The user of an evaluation, who answers by the rules of the conversation.

use crate::conversation::{EvalConversationSpec, ScriptedUserRule};

/// A user in the middle of a conversation.
#[derive(Debug)]
pub(crate) struct ScriptedUser<'c> {
    conversation: &'c EvalConversationSpec,
    used_rules: Vec<bool>,
    next_line: usize,
    sent: usize,
}

impl<'c> ScriptedUser<'c> {
    pub(crate) fn new(conversation: &'c EvalConversationSpec) -> Self {
        Self { conversation, used_rules: vec![false; conversation.user.rules.len()], next_line: 0, sent: 0 }
    }

    /// Returns the next message, or `None` if the user has nothing more to say. `reply` is the text of the last turn.
    pub(crate) fn next_message(&mut self, reply: &str, phase: &str) -> Option<&'c str> {
        if self.sent >= self.conversation.turns {
            return None;
        }
        self.sent += 1;
        let script = &self.conversation.user;
        if self.sent == 1 {
            return Some(&script.opening);
        }
        let reply = reply.to_lowercase();
        let turn = self.sent;
        let applies = |rule: &ScriptedUserRule| {
            let is_asked =
                rule.reply_has.is_empty() || rule.reply_has.iter().any(|text| reply.contains(&text.to_lowercase()));
            is_asked && turn >= rule.from_turn && rule.phase.as_ref().is_none_or(|wanted| phase.contains(wanted))
        };
        let rules = script.rules.iter().enumerate();
        if let Some((index, rule)) = rules.into_iter().find(|(index, rule)| !self.used_rules[*index] && applies(rule)) {
            self.used_rules[index] = true;
            return Some(&rule.say);
        }
        let line = script.lines.get(self.next_line);
        self.next_line += 1;
        line.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_go_before_lines_and_are_used_once() {
        let text = "name = \"a\"\nflow = \"chat\"\nabout = \"x\"\nlanguage = \"en\"\nturns = 5\n\
                    [user]\nopening = \"Hello\"\nlines = [\"one\", \"two\"]\n\
                    [[user.rules]]\nreply_has = [\"BUDGET\"]\nsay = \"40,000\"\n\
                    [[user.rules]]\nphase = \"explorer\"\nfrom_turn = 4\nsay = \"a plan, please\"\n";
        let conversation = EvalConversationSpec::parse(text).expect("valid");
        let mut user = ScriptedUser::new(&conversation);
        assert_eq!(user.next_message("", ""), Some("Hello"));
        assert_eq!(user.next_message("What is your budget?", "explorer"), Some("40,000"));
        assert_eq!(user.next_message("And the budget?", "explorer"), Some("one"));
        assert_eq!(user.next_message("Fine.", "explorer"), Some("a plan, please"));
        assert_eq!(user.next_message("Fine.", "explorer"), Some("two"));
        assert_eq!(user.next_message("Fine.", "explorer"), None, "the conversation has five turns");
    }
}
