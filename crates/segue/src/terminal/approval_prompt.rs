//! Asks the user about tool runs that wait for a person.

use segue_core::decide::OperatorCommand;
use segue_core::event::{ToolRunHoldReason, UnknownToolRunOutcomeResolution};
use segue_core::ids::ToolRunId;
use segue_core::session::{HeldToolRun, Session};

use super::chat_loop::{ChatLoop, LoopControl};
use super::input_reader::InputReaderResponse;
use super::screen::TerminalOrPipedOutput;

const APPROVAL_PROMPT: &str = "run it? [y]es, [n]o, [a]lways in this session > ";
const RESOLUTION_PROMPT: &str = "[r]un it again, it [f]ailed, or it is [d]one with a result > ";

/// A tool run that waits for the user.
struct ToolRunQuestion {
    run: ToolRunId,
    reason: ToolRunHoldReason,
    /// What exactly will run or has run.
    description: String,
}

impl ToolRunQuestion {
    /// Returns the oldest tool run of a session that waits for a person.
    fn next(session: &Session) -> Option<Self> {
        // The others wait for the program that offered the tool.
        let is_for_person = |held: &HeldToolRun| held.reason != ToolRunHoldReason::ClientResult;
        let (run, held) = session.held_tool_runs.iter().find(|(_, held)| is_for_person(held))?;
        let opened = session.open_tool_runs.get(run)?;
        let requester = held.role.as_ref().map_or("the flow", |role| role.as_str());
        let arguments = serde_json::to_string_pretty(&opened.arguments).unwrap_or_default();
        let tool = &opened.tool;
        let description = match held.reason {
            ToolRunHoldReason::Approval => format!("{requester} wants to run `{tool}` ({run}) with {arguments}"),
            ToolRunHoldReason::UnknownOutcome => format!(
                "`{tool}` ({run}) was in progress when the process died, and may have taken effect, with {arguments}"
            ),
            ToolRunHoldReason::ClientResult => return None,
        };
        Some(Self { run: *run, reason: held.reason, description })
    }

    fn prompt(&self) -> &'static str {
        match self.reason {
            ToolRunHoldReason::Approval => APPROVAL_PROMPT,
            ToolRunHoldReason::UnknownOutcome | ToolRunHoldReason::ClientResult => RESOLUTION_PROMPT,
        }
    }

    /// Returns the command of an answer; `None` if the answer is not clear.
    fn parse_answer(&self, line: &str) -> Option<OperatorCommand> {
        let run = self.run;
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let rest = rest.trim().to_owned();
        let text = Some(rest.clone()).filter(|text| !text.is_empty());
        let approve = |remember| OperatorCommand::Approve { run, arguments: None, remember, by: None };
        let resolve = |resolution, text| OperatorCommand::ResolveToolRun { run, resolution, text };
        match (self.reason, word.to_lowercase().as_str()) {
            (ToolRunHoldReason::Approval, "y" | "yes") if rest.is_empty() => Some(approve(false)),
            (ToolRunHoldReason::Approval, "a" | "always") if rest.is_empty() => Some(approve(true)),
            (ToolRunHoldReason::Approval, "n" | "no") => Some(OperatorCommand::Deny { run, reason: rest }),
            (ToolRunHoldReason::UnknownOutcome, "r" | "run") if rest.is_empty() => {
                Some(resolve(UnknownToolRunOutcomeResolution::RunAgain, None))
            }
            (ToolRunHoldReason::UnknownOutcome, "f" | "failed") => {
                Some(resolve(UnknownToolRunOutcomeResolution::Fail, text))
            }
            (ToolRunHoldReason::UnknownOutcome, "d" | "done") if text.is_some() => {
                Some(resolve(UnknownToolRunOutcomeResolution::Done, text))
            }
            _ => None,
        }
    }
}

impl ChatLoop<'_> {
    /// Asks about each tool run that waits for a person, until none is left or the user gives no clear answer.
    pub(super) async fn ask_about_held_runs(&mut self) -> anyhow::Result<LoopControl> {
        while let Some(question) = ToolRunQuestion::next(&self.state.session) {
            self.screen.print_warning(&question.description)?;
            let (session, run) = (&self.session, question.run);
            if self.screen.output_mode() == TerminalOrPipedOutput::Piped {
                let hint = match question.reason {
                    ToolRunHoldReason::Approval => {
                        format!("`segue approve {session} {run}` or `segue deny {session} {run}`")
                    }
                    ToolRunHoldReason::UnknownOutcome | ToolRunHoldReason::ClientResult => {
                        format!("`segue resolve {session} {run}`")
                    }
                };
                self.screen.print_note(&format!("(decide with {hint})"))?;
                return Ok(LoopControl::Continue);
            }
            let answer = match self.next_input_event(question.prompt()).await? {
                InputReaderResponse::Text(line) => question.parse_answer(&line),
                InputReaderResponse::EndOfInput => return Ok(LoopControl::Exit),
                InputReaderResponse::Interrupted(_)
                | InputReaderResponse::Unreadable(_)
                | InputReaderResponse::ReadFailed(_) => None,
            };
            let Some(command) = answer else {
                self.screen
                    .print_note(&format!("({run} keeps waiting; you are asked again after your next message)"))?;
                return Ok(LoopControl::Continue);
            };
            if let Err(error) = self.backend.send_command(&self.session, command).await {
                // Another client may have decided meanwhile.
                self.report_error(&format!("{error:#}"))?;
            }
            if self.follow_to_head().await? == LoopControl::Exit {
                return Ok(LoopControl::Exit);
            }
        }
        Ok(LoopControl::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_decides() {
        let answer = |reason, line: &str| {
            let question = ToolRunQuestion { run: ToolRunId(1), reason, description: String::new() };
            question.parse_answer(line).map(|command| format!("{command:?}"))
        };
        let approval = |line| answer(ToolRunHoldReason::Approval, line);
        assert_eq!(approval("y"), approval(" YES \n"));
        assert!(approval("y").is_some_and(|command| command.contains("remember: false")));
        assert!(approval("always").is_some_and(|command| command.contains("remember: true")));
        assert!(approval("no it is too late").is_some_and(|command| command.contains("\"it is too late\"")));
        let unknown = |line| answer(ToolRunHoldReason::UnknownOutcome, line);
        assert!(unknown("r").is_some_and(|command| command.contains("RunAgain")));
        assert!(unknown("d it was sent").is_some_and(|command| command.contains("it was sent")));
        for unclear in ["", "maybe", "yes but later", "no, never", "done"] {
            assert_eq!(approval(unclear), None, "{unclear}");
        }
        for unclear in ["", "y", "d", "run it tomorrow"] {
            assert_eq!(unknown(unclear), None, "{unclear}");
        }
    }
}
