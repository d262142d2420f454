//! What a line that begins with a slash means.

use std::path::PathBuf;

use segue_core::ids::{CallId, PhaseName, RoleName, SessionId};

use super::draft::{Form, Written};
use crate::print::paint::Paint;
use crate::print::table::{Column, Table};
use crate::suggest::nearest;

/// What the user wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// To say something.
    Say(String),
    /// Something beside the conversation.
    Do(Slash),
    /// Nothing.
    Nothing,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slash {
    Help,
    Phase,
    Propose(Place),
    Grant(Place),
    RollBack { visit: u32, of: Option<String> },
    Why(Option<CallId>),
    Recompute { call: Option<CallId>, model: Option<String>, set: Vec<String> },
    Fork(Option<SessionId>),
    Cancel,
    Retry(Option<CallId>),
    Fail(Option<CallId>),
    Forget(RoleName),
    Show,
    Do { command: String, arguments: Vec<String> },
    Title(String),
    Cost,
    Sessions,
    Export(PathBuf),
    Image(PathBuf),
    Quit,
}

/// A phase, and whose graph it is in where several have one of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub to: PhaseName,
    pub of: Option<String>,
}

/// Names, what they are followed by, and what they do. The order is that of `/help`.
const COMMANDS: &[(&str, &str, &str)] = &[
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
pub fn read(written: Written) -> Result<Wish, String> {
    let Written { text, form } = written;
    if text.trim().is_empty() {
        return Ok(Wish::Nothing);
    }
    match text.strip_prefix('/') {
        Some(rest) if form == Form::Line => match rest.strip_prefix('/') {
            Some(_) => Ok(Wish::Say(rest.to_owned())),
            None => command(rest).map(Wish::Do),
        },
        _ => Ok(Wish::Say(text)),
    }
}

fn command(line: &str) -> Result<Slash, String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let usage = || {
        let usual = COMMANDS.iter().find(|(known, ..)| *known == name);
        Err(usual.map_or_else(|| unknown(name), |(name, follows, _)| usage_of(name, follows)))
    };
    Ok(match (name, words.as_slice()) {
        ("help" | "?", []) => Slash::Help,
        ("phase", []) => Slash::Phase,
        ("phase", [to]) => Slash::Propose(place(to, None)),
        ("phase", [to, of]) => Slash::Propose(place(to, Some(of))),
        ("grant", [to]) => Slash::Grant(place(to, None)),
        ("grant", [to, of]) => Slash::Grant(place(to, Some(of))),
        ("rollback", [visit, of @ ..]) if of.len() < 2 => {
            let visit = visit.parse().map_err(|_| format!("`{visit}` is no number of a visit; /phase lists them"))?;
            Slash::RollBack { visit, of: of.first().map(ToString::to_string) }
        }
        ("why", []) => Slash::Why(None),
        ("why", [call]) => Slash::Why(Some(call.parse()?)),
        ("recompute", words) => recompute(words)?,
        ("fork", []) => Slash::Fork(None),
        ("fork", [name]) => Slash::Fork(Some(SessionId::from(*name))),
        ("cancel", []) => Slash::Cancel,
        ("retry", []) => Slash::Retry(None),
        ("retry", [call]) => Slash::Retry(Some(call.parse()?)),
        ("fail", []) => Slash::Fail(None),
        ("fail", [call]) => Slash::Fail(Some(call.parse()?)),
        ("forget", [role]) => Slash::Forget(RoleName::from(*role)),
        ("show", []) => Slash::Show,
        ("undo", run) if run.len() < 2 => {
            let arguments = run.iter().map(|run| format!("run={run}")).collect();
            Slash::Do { command: "undo".to_owned(), arguments }
        }
        ("do", [command, arguments @ ..]) => {
            Slash::Do { command: (*command).to_owned(), arguments: arguments.iter().map(ToString::to_string).collect() }
        }
        ("title", [_, ..]) => Slash::Title(rest.to_owned()),
        ("cost", []) => Slash::Cost,
        ("sessions", []) => Slash::Sessions,
        ("export", [_, ..]) => Slash::Export(PathBuf::from(rest)),
        ("image", [_, ..]) => Slash::Image(PathBuf::from(rest)),
        ("quit" | "exit", []) => Slash::Quit,
        _ => return usage(),
    })
}

fn recompute(words: &[&str]) -> Result<Slash, String> {
    let (mut call, mut model, mut set) = (None, None, Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("model", name)) => model = Some(name.to_owned()),
            Some(_) => set.push((*word).to_owned()),
            None if call.is_none() => call = Some(word.parse()?),
            None => return Err(format!("what is `{word}`? write /recompute [CALL] [NAME=VALUE], such as model=fast")),
        }
    }
    Ok(Slash::Recompute { call, model, set })
}

fn place(to: &str, of: Option<&str>) -> Place {
    Place { to: PhaseName::from(to), of: of.map(ToOwned::to_owned) }
}

fn usage_of(name: &str, follows: &str) -> String {
    match follows {
        "" => format!("/{name} is followed by nothing"),
        follows => format!("write /{name} {follows}"),
    }
}

fn unknown(name: &str) -> String {
    let known = COMMANDS.iter().map(|(known, ..)| *known).chain(["exit"]);
    let meant = match nearest(name, known) {
        Some(meant) => format!("did you mean /{meant}?"),
        None => "/help lists those there are".to_owned(),
    };
    format!("there is no command /{name}; {meant} (to say something that begins with a slash, write //{name})")
}

/// The commands that begin with what was written so far, for the tab key.
pub fn completions(written: &str) -> Vec<String> {
    let Some(begun) = written.strip_prefix('/') else { return Vec::new() };
    COMMANDS.iter().filter(|(name, ..)| name.starts_with(begun)).map(|(name, ..)| format!("/{name}")).collect()
}

/// What `/help` says, in lines of at most so many columns.
pub fn help(columns: usize) -> String {
    let mut commands = Table::new([("", Column::Left), ("", Column::Wrap)]);
    for (name, follows, about) in COMMANDS {
        let written = if follows.is_empty() { format!("/{name}") } else { format!("/{name} {follows}") };
        commands.row([written, (*about).to_owned()]);
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
    use super::super::draft::Draft;
    use super::*;

    fn wish(line: &str) -> Result<Wish, String> {
        read(Draft::default().push(line).expect("one line is enough"))
    }

    fn done(line: &str) -> Slash {
        match wish(line) {
            Ok(Wish::Do(slash)) => slash,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        wish(line).expect_err("it is no command")
    }

    #[test]
    fn words_are_said_and_slashes_are_done() {
        assert_eq!(wish("hello /quit"), Ok(Wish::Say("hello /quit".into())));
        assert_eq!(wish("//quit now"), Ok(Wish::Say("/quit now".into())));
        assert_eq!(wish("   "), Ok(Wish::Nothing));
        assert_eq!(wish("\"\"\"/quit\"\"\""), Ok(Wish::Say("/quit".into())));
        assert_eq!(wish("/bin/sh\nis a shell"), Ok(Wish::Say("/bin/sh\nis a shell".into())));
        assert_eq!(done("/exit"), Slash::Quit);
        assert_eq!(done("/why c3"), Slash::Why(Some(CallId(3))));
        assert_eq!(done("/why 3"), Slash::Why(Some(CallId(3))));
        assert_eq!(done("/title  a  fine day "), Slash::Title("a  fine day".into()));
        assert_eq!(done("/phase explore coder-1"), Slash::Propose(place("explore", Some("coder-1"))));
        let again =
            Slash::Recompute { call: Some(CallId(5)), model: Some("owl".into()), set: vec!["stance=decide".into()] };
        assert_eq!(done("/recompute c5 model=owl stance=decide"), again);
        assert_eq!(done("/rollback 2"), Slash::RollBack { visit: 2, of: None });
        assert_eq!(done("/export my notes.jsonl"), Slash::Export("my notes.jsonl".into()));
        assert_eq!(done("/image my cat.png"), Slash::Image("my cat.png".into()));
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
        assert_eq!(refused("/why not"), "`not` is no number of this kind; expected something like c3");
        assert_eq!(refused("/rollback home"), "`home` is no number of a visit; /phase lists them");
    }

    #[test]
    fn every_command_in_the_list_can_be_done() {
        for (name, follows, _) in COMMANDS {
            let follows = follows.replace(['[', ']'], "").replace("CALL", "c1");
            let follows = if *name == "rollback" { follows.replace('N', "1") } else { follows };
            assert!(matches!(wish(&format!("/{name} {follows}")), Ok(Wish::Do(_))), "/{name} {follows}");
            assert!(help(80).contains(&format!("/{name}")));
        }
    }

    #[test]
    fn the_tab_key_knows_the_commands() {
        assert_eq!(completions("/f"), ["/fork", "/fail", "/forget"]);
        assert_eq!(completions("f"), [""; 0]);
    }
}
