//! Parses the input of a conversation: messages and slash commands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use segue_core::flow::FlowCommandSpec;
use segue_core::ids::{CallId, PhaseName, RoleName, SessionId};

use super::message_draft::{LineOrBlockInput, TypedUserMessage};
use crate::name_lookup::parse_call_id;
use crate::print::paint::Paint;
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::suggest::closest_name;

/// A parsed input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MessageOrSlashCommand {
    Message(String),
    Command(SlashCommand),
    Empty,
}

/// A slash command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlashCommand {
    Help,
    Phase,
    Propose(PhaseAndGraphOwner),
    Grant(PhaseAndGraphOwner),
    RollBack { visit: u32, owner: Option<String> },
    ExplainCall(Option<CallId>),
    Recompute { call: Option<CallId>, model: Option<String>, set: Vec<String> },
    Fork(Option<SessionId>),
    Cancel,
    Retry(Option<CallId>),
    Fail(Option<CallId>),
    ResetRole(RoleName),
    ShowArtifacts,
    RunFlowCommand { command: String, arguments: Vec<String> },
    Rename(String),
    Cost,
    Sessions,
    Export(PathBuf),
    AttachImage(PathBuf),
    Quit,
}

/// A phase, and the owner of its graph if several graphs have a phase of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhaseAndGraphOwner {
    pub to: PhaseName,
    pub owner: Option<String>,
}

/// Name, arguments and description of each command, in the order of `/help`.
const SLASH_COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "show this list"),
    ("phase", "[PHASE [OWNER]]", "show the phases and the allowed transitions, or propose to enter PHASE"),
    ("grant", "PHASE [OWNER]", "allow a phase to be entered once, despite guards and gates"),
    ("rollback", "VISIT [OWNER]", "return to the state of an earlier visit; no event is deleted"),
    ("explain", "[CALL]", "show the prompt of the last answer or of CALL, and why it was sent (also /why)"),
    ("recompute", "[CALL] [NAME=VALUE]", "run a past call again, with another model=… or setting, and compare"),
    ("fork", "[NAME]", "continue in a copy of this session"),
    ("cancel", "", "cancel the running turn"),
    ("retry", "[CALL]", "retry the last turn if it failed, or a call with an unknown outcome"),
    ("fail", "[CALL]", "treat a call with an unknown outcome as failed"),
    ("reset", "ROLE", "start a new thread for a role at its next call (also /forget)"),
    ("artifacts", "", "show the artifacts of the flow, such as plans, maps and tables"),
    ("undo", "[RUN]", "undo the last write"),
    ("run", "COMMAND [NAME=VALUE…]", "run a command of the flow, also /COMMAND; `segue flows` lists them"),
    ("rename", "TITLE", "change the title of the session"),
    ("cost", "", "show tokens and costs by role, model and phase"),
    ("sessions", "", "list the newest sessions"),
    ("export", "FILE", "write the session to a file"),
    ("image", "FILE", "attach an image to the next message"),
    ("quit", "", "leave (also /exit and Ctrl-D)"),
];

/// Other names of commands, with the name in the list.
const SLASH_COMMAND_ALIASES: [(&str, &str); 4] =
    [("?", "help"), ("why", "explain"), ("forget", "reset"), ("exit", "quit")];

/// Parses an input. A command of the flow can be written like any other command, unless it has the name of one.
///
/// # Errors
/// Returns a message for the user if the input begins with a slash and is not a valid command.
pub(crate) fn parse_input(
    message: TypedUserMessage,
    flow_commands: &BTreeMap<String, FlowCommandSpec>,
) -> Result<MessageOrSlashCommand, String> {
    let TypedUserMessage { text, form } = message;
    if text.trim().is_empty() {
        return Ok(MessageOrSlashCommand::Empty);
    }
    match text.strip_prefix('/') {
        Some(rest) if form == LineOrBlockInput::Line => match rest.strip_prefix('/') {
            Some(_) => Ok(MessageOrSlashCommand::Message(rest.to_owned())),
            None => match parse_flow_slash_command(rest, flow_commands) {
                Some(command) => Ok(MessageOrSlashCommand::Command(command)),
                None => parse_slash_command(rest).map(MessageOrSlashCommand::Command),
            },
        },
        _ => Ok(MessageOrSlashCommand::Message(text)),
    }
}

/// Parses a command of the flow. If it has one argument, that argument needs no name. A value may contain spaces: it ends at
/// the next `name=`.
fn parse_flow_slash_command(line: &str, flow_commands: &BTreeMap<String, FlowCommandSpec>) -> Option<SlashCommand> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_general = SLASH_COMMANDS.iter().any(|(known, ..)| *known == name)
        || SLASH_COMMAND_ALIASES.iter().any(|(alias, _)| *alias == name);
    let spec = flow_commands.get(name).filter(|_| !is_general)?;
    let mut names = spec.arguments.keys();
    let only_argument = names.next().filter(|_| names.next().is_none());
    let arguments = match (only_argument, rest.trim()) {
        (_, "") => Vec::new(),
        (Some(argument), value) if !value.starts_with(&format!("{argument}=")) => vec![format!("{argument}={value}")],
        (Some(_), named) => vec![named.to_owned()],
        (None, words) => split_named_values(words),
    };
    Some(SlashCommand::RunFlowCommand { command: name.to_owned(), arguments })
}

/// Splits arguments of the form `name=value` where the next name begins. A first word without a name stays alone.
fn split_named_values(words: &str) -> Vec<String> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let begins_argument = |word: &str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let mut arguments: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match arguments.last_mut().filter(|last| !begins_argument(word) && begins_argument(last)) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => arguments.push(word.to_owned()),
        }
    }
    arguments
}

fn parse_slash_command(line: &str) -> Result<SlashCommand, String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let name = SLASH_COMMAND_ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    let usage = || {
        let known = SLASH_COMMANDS.iter().find(|(known, ..)| *known == name);
        Err(known.map_or_else(|| unknown_command_message(name), |(name, arguments, _)| usage_message(name, arguments)))
    };
    Ok(match (name, words.as_slice()) {
        ("help", []) => SlashCommand::Help,
        ("phase", []) => SlashCommand::Phase,
        ("phase", [to]) => SlashCommand::Propose(phase_target(to, None)),
        ("phase", [to, owner]) => SlashCommand::Propose(phase_target(to, Some(owner))),
        ("grant", [to]) => SlashCommand::Grant(phase_target(to, None)),
        ("grant", [to, owner]) => SlashCommand::Grant(phase_target(to, Some(owner))),
        ("rollback", [visit, owner @ ..]) if owner.len() < 2 => {
            let visit = visit
                .parse()
                .map_err(|_| format!("`{visit}` is not the number of a visit (like 2); /phase lists the visits"))?;
            SlashCommand::RollBack { visit, owner: owner.first().map(ToString::to_string) }
        }
        ("explain", []) => SlashCommand::ExplainCall(None),
        ("explain", [call]) => SlashCommand::ExplainCall(Some(parse_call(call)?)),
        ("recompute", words) => parse_recompute(words)?,
        ("fork", []) => SlashCommand::Fork(None),
        ("fork", [name]) => SlashCommand::Fork(Some(SessionId::from(*name))),
        ("cancel", []) => SlashCommand::Cancel,
        ("retry", []) => SlashCommand::Retry(None),
        ("retry", [call]) => SlashCommand::Retry(Some(parse_call(call)?)),
        ("fail", []) => SlashCommand::Fail(None),
        ("fail", [call]) => SlashCommand::Fail(Some(parse_call(call)?)),
        ("reset", [role]) => SlashCommand::ResetRole(RoleName::from(*role)),
        ("artifacts", []) => SlashCommand::ShowArtifacts,
        ("undo", run) if run.len() < 2 => {
            let arguments = run.iter().map(|run| format!("run={run}")).collect();
            SlashCommand::RunFlowCommand { command: "undo".to_owned(), arguments }
        }
        ("run", [command, arguments @ ..]) => SlashCommand::RunFlowCommand {
            command: (*command).to_owned(),
            arguments: split_named_values(&arguments.join(" ")),
        },
        ("rename", [_, ..]) => SlashCommand::Rename(rest.to_owned()),
        ("cost", []) => SlashCommand::Cost,
        ("sessions", []) => SlashCommand::Sessions,
        ("export", [_, ..]) => SlashCommand::Export(PathBuf::from(rest)),
        ("image", [_, ..]) => SlashCommand::AttachImage(PathBuf::from(rest)),
        ("quit", []) => SlashCommand::Quit,
        _ => return usage(),
    })
}

fn parse_recompute(words: &[&str]) -> Result<SlashCommand, String> {
    let (mut call, mut model, mut set) = (None, None, Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("model", name)) => model = Some(name.to_owned()),
            Some(_) => set.push((*word).to_owned()),
            None if call.is_none() => call = Some(parse_call(word)?),
            None => return Err(format!("`{word}` is not of the form NAME=VALUE (like model=fast)")),
        }
    }
    Ok(SlashCommand::Recompute { call, model, set })
}

fn parse_call(word: &str) -> Result<CallId, String> {
    parse_call_id(word).map_err(|error| error.to_string())
}

fn phase_target(to: &str, owner: Option<&str>) -> PhaseAndGraphOwner {
    PhaseAndGraphOwner { to: PhaseName::from(to), owner: owner.map(ToOwned::to_owned) }
}

fn usage_message(name: &str, arguments: &str) -> String {
    match arguments {
        "" => format!("/{name} takes no arguments"),
        arguments => format!("usage: /{name} {arguments}"),
    }
}

fn unknown_command_message(name: &str) -> String {
    let aliases = SLASH_COMMAND_ALIASES.iter().map(|(alias, _)| *alias);
    let hint = match closest_name(name, SLASH_COMMANDS.iter().map(|(known, ..)| *known).chain(aliases)) {
        Some(known) => format!("did you mean /{known}?"),
        None => "/help lists the commands".to_owned(),
    };
    format!("there is no command /{name}; {hint} (a message that begins with a slash is written as //{name})")
}

/// Returns the commands that begin with `typed`, for completion with the tab key.
pub(crate) fn complete_command(typed: &str) -> Vec<String> {
    let Some(prefix) = typed.strip_prefix('/') else { return Vec::new() };
    SLASH_COMMANDS.iter().filter(|(name, ..)| name.starts_with(prefix)).map(|(name, ..)| format!("/{name}")).collect()
}

/// Returns the text of `/help`, in lines of at most `columns` columns.
pub(crate) fn help_text(columns: usize) -> String {
    let mut commands = TextTable::new([("", ColumnLayout::Left), ("", ColumnLayout::Wrap)]);
    for (name, arguments, description) in SLASH_COMMANDS {
        let usage = if arguments.is_empty() { format!("/{name}") } else { format!("/{name} {arguments}") };
        commands.add_row([usage, (*description).to_owned()]);
    }
    let commands = commands.render(columns, Paint::new(false));
    format!(
        "{commands}\n\
         A line that ends with \\ continues on the next line. ``` or \"\"\" opens a block of lines and closes it.\n\
         //text sends a message that begins with a slash. Ctrl-C cancels the running turn."
    )
}

#[cfg(test)]
mod tests {
    use super::super::message_draft::MessageDraft;
    use super::*;

    fn parse(line: &str) -> Result<MessageOrSlashCommand, String> {
        parse_input(MessageDraft::default().push_input(line).expect("the line is complete"), &flow_commands())
    }

    /// The commands of a flow, one of which has the name of a general command.
    fn flow_commands() -> BTreeMap<String, FlowCommandSpec> {
        let command = |name: &str, description: &str, arguments: &[(&str, &str)]| {
            let arguments = arguments.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())).collect();
            (name.to_owned(), FlowCommandSpec { description: description.to_owned(), arguments })
        };
        [
            command("yes", "says yes", &[]),
            command("done", "marks a step", &[("step", "the step")]),
            command("move", "moves", &[("from", "a place"), ("to", "a place")]),
            command("quit", "is hidden by the general command", &[]),
        ]
        .into()
    }

    #[test]
    fn command_of_the_flow_is_written_like_a_general_one() {
        let run = |command: &str, arguments: &[&str]| SlashCommand::RunFlowCommand {
            command: command.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(command("/yes"), run("yes", &[]));
        assert_eq!(command("/done View flats"), run("done", &["step=View flats"]));
        assert_eq!(command("/done step=2"), run("done", &["step=2"]));
        assert_eq!(command("/done step=View flats"), run("done", &["step=View flats"]));
        assert_eq!(command("/done LC_ALL=C sort"), run("done", &["step=LC_ALL=C sort"]));
        assert_eq!(command("/move from=a to=b"), run("move", &["from=a", "to=b"]));
        assert_eq!(command("/move from=the old house to=a | b"), run("move", &["from=the old house", "to=a | b"]));
        assert_eq!(command("/move home"), run("move", &["home"]));
        assert_eq!(command("/run move from=the old house tp=b"), run("move", &["from=the old house", "tp=b"]));
        assert_eq!(command("/quit"), SlashCommand::Quit);
        assert!(refused("/no").contains("there is no command /no"));
    }

    fn command(line: &str) -> SlashCommand {
        match parse(line) {
            Ok(MessageOrSlashCommand::Command(command)) => command,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        parse(line).expect_err("it is not a valid command")
    }

    #[test]
    fn messages_and_commands_are_told_apart() {
        assert_eq!(parse("hello /quit"), Ok(MessageOrSlashCommand::Message("hello /quit".into())));
        assert_eq!(parse("//quit now"), Ok(MessageOrSlashCommand::Message("/quit now".into())));
        assert_eq!(parse("   "), Ok(MessageOrSlashCommand::Empty));
        assert_eq!(parse("\"\"\"/quit\"\"\""), Ok(MessageOrSlashCommand::Message("/quit".into())));
        assert_eq!(parse("/bin/sh\nis a shell"), Ok(MessageOrSlashCommand::Message("/bin/sh\nis a shell".into())));
        assert_eq!(command("/exit"), SlashCommand::Quit);
        assert_eq!(command("/explain c3"), SlashCommand::ExplainCall(Some(CallId(3))));
        assert_eq!(command("/why 3"), SlashCommand::ExplainCall(Some(CallId(3))));
        assert_eq!(command("/forget guide"), command("/reset guide"));
        assert_eq!(command("/rename  a  fine day "), SlashCommand::Rename("a  fine day".into()));
        assert_eq!(command("/phase explore coder-1"), SlashCommand::Propose(phase_target("explore", Some("coder-1"))));
        let recompute = SlashCommand::Recompute {
            call: Some(CallId(5)),
            model: Some("owl".into()),
            set: vec!["stance=decide".into()],
        };
        assert_eq!(command("/recompute c5 model=owl stance=decide"), recompute);
        assert_eq!(command("/rollback 2"), SlashCommand::RollBack { visit: 2, owner: None });
        assert_eq!(command("/export my notes.jsonl"), SlashCommand::Export("my notes.jsonl".into()));
        assert_eq!(command("/image my cat.png"), SlashCommand::AttachImage("my cat.png".into()));
    }

    #[test]
    fn a_misspelled_command_is_refused_with_a_suggestion() {
        assert_eq!(
            refused("/phsae"),
            "there is no command /phsae; did you mean /phase? (a message that begins with a slash is written as //phsae)"
        );
        assert!(refused("/xyzzy").contains("/help lists the commands"));
        assert!(refused("/").contains("//"));
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_usage() {
        assert_eq!(refused("/reset"), "usage: /reset ROLE");
        assert_eq!(refused("/cost everything"), "/cost takes no arguments");
        assert_eq!(refused("/why not"), "`not` is not a call id (like c3)");
        assert_eq!(refused("/rollback home"), "`home` is not the number of a visit (like 2); /phase lists the visits");
    }

    #[test]
    fn every_command_in_the_list_can_be_parsed() {
        for (name, arguments, _) in SLASH_COMMANDS {
            let arguments = arguments.replace(['[', ']'], "").replace("CALL", "c1").replace("VISIT", "1");
            assert!(
                matches!(parse(&format!("/{name} {arguments}")), Ok(MessageOrSlashCommand::Command(_))),
                "/{name} {arguments}"
            );
            assert!(help_text(80).contains(&format!("/{name}")));
        }
        let is_known = |name: &str| SLASH_COMMANDS.iter().any(|(known, ..)| *known == name);
        assert!(SLASH_COMMAND_ALIASES.iter().all(|(alias, name)| is_known(name) && !is_known(alias)));
    }

    #[test]
    fn commands_are_completed() {
        assert_eq!(complete_command("/re"), ["/recompute", "/retry", "/reset", "/rename"]);
        assert_eq!(complete_command("f"), [""; 0]);
    }
}
