//! What a line that begins with a slash means.

use std::path::PathBuf;

use segue_core::ids::{CallId, PhaseName, RoleName, SessionId};

use super::message_draft::{InputForm, WrittenMessage};
use crate::print::paint::Paint;
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::suggest::closest_name;

/// What the user wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserInput {
    /// To say something.
    Message(String),
    /// Something beside the conversation.
    Command(SlashCommand),
    /// Nothing.
    Empty,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlashCommand {
    Help,
    Phase,
    Propose(PhaseTarget),
    Grant(PhaseTarget),
    RollBack { visit: u32, owner: Option<String> },
    ExplainCall(Option<CallId>),
    Recompute { call: Option<CallId>, model: Option<String>, set: Vec<String> },
    Fork(Option<SessionId>),
    Cancel,
    Retry(Option<CallId>),
    Fail(Option<CallId>),
    ForgetRole(RoleName),
    ShowArtifacts,
    RunFlowCommand { command: String, arguments: Vec<String> },
    Title(String),
    Cost,
    Sessions,
    Export(PathBuf),
    AttachImage(PathBuf),
    Quit,
}

/// A phase, and whose graph it is in where several have one of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseTarget {
    pub to: PhaseName,
    pub owner: Option<String>,
}

/// Names, what they are followed by, and what they do. The order is that of `/help`.
const SLASH_COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "this list"),
    ("phase", "[TO [OF]]", "where the phases stand and what is allowed; with TO, propose that phase"),
    ("grant", "TO [OF]", "allow a phase to be entered once, whatever stands in the way"),
    ("rollback", "N [OF]", "go back to visit N of a phase; nothing is deleted"),
    ("why", "[CALL]", "what the model was shown for its last answer, and why"),
    ("recompute", "[CALL] [NAME=VALUE]", "make a past call once more, with another model=… or setting, and compare"),
    ("fork", "[NAME]", "go on in a copy of this session"),
    ("cancel", "", "stop the turn that runs or waits"),
    ("retry", "[CALL]", "try the last turn again, which failed; or make a call again that was cut off"),
    ("fail", "[CALL]", "give a call up that was cut off"),
    ("forget", "ROLE", "have a role forget, from its next call on"),
    ("show", "", "what the flow puts on show: plans, maps, what it knows of"),
    ("undo", "[RUN]", "take back what was written last"),
    ("do", "COMMAND [NAME=VALUE…]", "what else the flow offers; `segue flows` lists it"),
    ("title", "TEXT", "give the session a title"),
    ("cost", "", "tokens and cost, by role and by model"),
    ("sessions", "", "the newest sessions"),
    ("export", "FILE", "write the session to a file"),
    ("image", "FILE", "show an image with the next message"),
    ("quit", "", "leave; also /exit and Ctrl-D"),
];

/// Reads what was written.
///
/// # Errors
/// It begins with a slash and is no command; says what to write instead.
pub fn parse_input(message: WrittenMessage) -> Result<UserInput, String> {
    let WrittenMessage { text, form } = message;
    if text.trim().is_empty() {
        return Ok(UserInput::Empty);
    }
    match text.strip_prefix('/') {
        Some(rest) if form == InputForm::Line => match rest.strip_prefix('/') {
            Some(_) => Ok(UserInput::Message(rest.to_owned())),
            None => parse_slash_command(rest).map(UserInput::Command),
        },
        _ => Ok(UserInput::Message(text)),
    }
}

fn parse_slash_command(line: &str) -> Result<SlashCommand, String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let usage = || {
        let usual = SLASH_COMMANDS.iter().find(|(known, ..)| *known == name);
        Err(usual.map_or_else(|| unknown_command_message(name), |(name, follows, _)| usage_message(name, follows)))
    };
    Ok(match (name, words.as_slice()) {
        ("help" | "?", []) => SlashCommand::Help,
        ("phase", []) => SlashCommand::Phase,
        ("phase", [to]) => SlashCommand::Propose(phase_target(to, None)),
        ("phase", [to, of]) => SlashCommand::Propose(phase_target(to, Some(of))),
        ("grant", [to]) => SlashCommand::Grant(phase_target(to, None)),
        ("grant", [to, of]) => SlashCommand::Grant(phase_target(to, Some(of))),
        ("rollback", [visit, of @ ..]) if of.len() < 2 => {
            let visit = visit.parse().map_err(|_| format!("`{visit}` is no number of a visit; /phase lists them"))?;
            SlashCommand::RollBack { visit, owner: of.first().map(ToString::to_string) }
        }
        ("why", []) => SlashCommand::ExplainCall(None),
        ("why", [call]) => SlashCommand::ExplainCall(Some(call.parse()?)),
        ("recompute", words) => parse_recompute(words)?,
        ("fork", []) => SlashCommand::Fork(None),
        ("fork", [name]) => SlashCommand::Fork(Some(SessionId::from(*name))),
        ("cancel", []) => SlashCommand::Cancel,
        ("retry", []) => SlashCommand::Retry(None),
        ("retry", [call]) => SlashCommand::Retry(Some(call.parse()?)),
        ("fail", []) => SlashCommand::Fail(None),
        ("fail", [call]) => SlashCommand::Fail(Some(call.parse()?)),
        ("forget", [role]) => SlashCommand::ForgetRole(RoleName::from(*role)),
        ("show", []) => SlashCommand::ShowArtifacts,
        ("undo", run) if run.len() < 2 => {
            let arguments = run.iter().map(|run| format!("run={run}")).collect();
            SlashCommand::RunFlowCommand { command: "undo".to_owned(), arguments }
        }
        ("do", [command, arguments @ ..]) => SlashCommand::RunFlowCommand {
            command: (*command).to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        },
        ("title", [_, ..]) => SlashCommand::Title(rest.to_owned()),
        ("cost", []) => SlashCommand::Cost,
        ("sessions", []) => SlashCommand::Sessions,
        ("export", [_, ..]) => SlashCommand::Export(PathBuf::from(rest)),
        ("image", [_, ..]) => SlashCommand::AttachImage(PathBuf::from(rest)),
        ("quit" | "exit", []) => SlashCommand::Quit,
        _ => return usage(),
    })
}

fn parse_recompute(words: &[&str]) -> Result<SlashCommand, String> {
    let (mut call, mut model, mut set) = (None, None, Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("model", name)) => model = Some(name.to_owned()),
            Some(_) => set.push((*word).to_owned()),
            None if call.is_none() => call = Some(word.parse()?),
            None => return Err(format!("what is `{word}`? write /recompute [CALL] [NAME=VALUE], such as model=fast")),
        }
    }
    Ok(SlashCommand::Recompute { call, model, set })
}

fn phase_target(to: &str, owner: Option<&str>) -> PhaseTarget {
    PhaseTarget { to: PhaseName::from(to), owner: owner.map(ToOwned::to_owned) }
}

fn usage_message(name: &str, follows: &str) -> String {
    match follows {
        "" => format!("/{name} is followed by nothing"),
        follows => format!("write /{name} {follows}"),
    }
}

fn unknown_command_message(name: &str) -> String {
    let known = SLASH_COMMANDS.iter().map(|(known, ..)| *known).chain(["exit"]);
    let meant = match closest_name(name, known) {
        Some(meant) => format!("did you mean /{meant}?"),
        None => "/help lists those there are".to_owned(),
    };
    format!("there is no command /{name}; {meant} (to say something that begins with a slash, write //{name})")
}

/// The commands that begin with what was written so far, for the tab key.
pub fn complete_command(typed: &str) -> Vec<String> {
    let Some(begun) = typed.strip_prefix('/') else { return Vec::new() };
    SLASH_COMMANDS.iter().filter(|(name, ..)| name.starts_with(begun)).map(|(name, ..)| format!("/{name}")).collect()
}

/// What `/help` says, in lines of at most so many columns.
pub fn help_text(columns: usize) -> String {
    let mut commands = TextTable::new([("", ColumnLayout::Left), ("", ColumnLayout::Wrap)]);
    for (name, follows, about) in SLASH_COMMANDS {
        let written = if follows.is_empty() { format!("/{name}") } else { format!("/{name} {follows}") };
        commands.add_row([written, (*about).to_owned()]);
    }
    let commands = commands.render(columns, Paint::new(false));
    format!(
        "{commands}\n\
         A line that ends in \\ goes on in the next one. ``` or \"\"\" opens a block, which ends where it is closed.\n\
         //text says something that begins with a slash. Ctrl-C stops the turn that runs."
    )
}

#[cfg(test)]
mod tests {
    use super::super::message_draft::MessageDraft;
    use super::*;

    fn wish(line: &str) -> Result<UserInput, String> {
        parse_input(MessageDraft::default().push_input(line).expect("one line is enough"))
    }

    fn done(line: &str) -> SlashCommand {
        match wish(line) {
            Ok(UserInput::Command(slash)) => slash,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        wish(line).expect_err("it is no command")
    }

    #[test]
    fn words_are_said_and_slashes_are_done() {
        assert_eq!(wish("hello /quit"), Ok(UserInput::Message("hello /quit".into())));
        assert_eq!(wish("//quit now"), Ok(UserInput::Message("/quit now".into())));
        assert_eq!(wish("   "), Ok(UserInput::Empty));
        assert_eq!(wish("\"\"\"/quit\"\"\""), Ok(UserInput::Message("/quit".into())));
        assert_eq!(wish("/bin/sh\nis a shell"), Ok(UserInput::Message("/bin/sh\nis a shell".into())));
        assert_eq!(done("/exit"), SlashCommand::Quit);
        assert_eq!(done("/why c3"), SlashCommand::ExplainCall(Some(CallId(3))));
        assert_eq!(done("/why 3"), SlashCommand::ExplainCall(Some(CallId(3))));
        assert_eq!(done("/title  a  fine day "), SlashCommand::Title("a  fine day".into()));
        assert_eq!(done("/phase explore coder-1"), SlashCommand::Propose(phase_target("explore", Some("coder-1"))));
        let again = SlashCommand::Recompute {
            call: Some(CallId(5)),
            model: Some("owl".into()),
            set: vec!["stance=decide".into()],
        };
        assert_eq!(done("/recompute c5 model=owl stance=decide"), again);
        assert_eq!(done("/rollback 2"), SlashCommand::RollBack { visit: 2, owner: None });
        assert_eq!(done("/export my notes.jsonl"), SlashCommand::Export("my notes.jsonl".into()));
        assert_eq!(done("/image my cat.png"), SlashCommand::AttachImage("my cat.png".into()));
    }

    #[test]
    fn a_slip_is_told_what_was_probably_meant() {
        assert_eq!(
            refused("/phsae"),
            "there is no command /phsae; did you mean /phase? (to say something that begins with a slash, write //phsae)"
        );
        assert!(refused("/xyzzy").contains("/help lists those there are"));
        assert!(refused("/").contains("//"));
    }

    #[test]
    fn a_command_with_the_wrong_words_is_told_the_right_ones() {
        assert_eq!(refused("/forget"), "write /forget ROLE");
        assert_eq!(refused("/cost everything"), "/cost is followed by nothing");
        assert_eq!(refused("/why not"), "`not` is not a valid id (like c3)");
        assert_eq!(refused("/rollback home"), "`home` is no number of a visit; /phase lists them");
    }

    #[test]
    fn every_command_in_the_list_can_be_done() {
        for (name, follows, _) in SLASH_COMMANDS {
            let follows = follows.replace(['[', ']'], "").replace("CALL", "c1");
            let follows = if *name == "rollback" { follows.replace('N', "1") } else { follows };
            assert!(matches!(wish(&format!("/{name} {follows}")), Ok(UserInput::Command(_))), "/{name} {follows}");
            assert!(help_text(80).contains(&format!("/{name}")));
        }
    }

    #[test]
    fn the_tab_key_knows_the_commands() {
        assert_eq!(complete_command("/f"), ["/fork", "/fail", "/forget"]);
        assert_eq!(complete_command("f"), [""; 0]);
    }
}
