//! Runs the transcripts of `docs/chat.md` and `docs/concierge.md` in a terminal and compares the screen.

use crate::pty::{ENTER, Terminal};
use crate::stage::Stage;

const PAGE: &str = include_str!("../../../../docs/chat.md");
const CONCIERGE: &str = include_str!("../../../../docs/concierge.md");

/// The code blocks of a page of one kind.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == format!("```{kind}") {
            blocks.push(lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect());
        }
    }
    blocks
}

/// Replaces figures that depend on the prompts, the machine or the date.
fn without_figures(text: &str) -> String {
    let figures = |line: &str| line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect::<String>();
    let plain = |line: &str| match line.split_once(' ').map(|(start, _)| start) {
        Some("answer") => "answer    …".to_owned(),
        Some("digest") => "digest    …".to_owned(),
        Some(_) | None => figures(line),
    };
    text.lines().map(|line| plain(line) + "\n").collect()
}

fn run_transcript(stage: &Stage, transcript: &str) {
    let (command, expected) = transcript.split_once('\n').expect("a transcript begins with a command");
    let arguments: Vec<&str> = command.strip_prefix("$ segue ").expect("it is ours").split_whitespace().collect();
    let mut terminal = Terminal::of_program(stage, &arguments, 60);
    terminal.prompts();
    for line in expected.lines() {
        let typed = line.strip_prefix("> ").or_else(|| line.strip_prefix("… "));
        let is_recap = terminal.text().lines().any(|shown| shown == line);
        let Some(typed) = typed.filter(|_| !is_recap) else { continue };
        terminal.press(typed).ends_with(line).press(ENTER);
        if typed == "/quit" {
            terminal.ended();
        } else {
            terminal.asks_for_more();
        }
    }
    assert_eq!(without_figures(&terminal.text()), without_figures(expected.trim_end()));
}

#[test]
fn transcripts_of_the_chat_page_are_right() {
    let stage = Stage::new("");
    let scenario = blocks(PAGE, "toml").into_iter().next().expect("the guide has a scenario");
    stage.write("tea.toml", &scenario);
    let transcripts = blocks(PAGE, "terminal");
    assert_eq!(transcripts.len(), 2);
    transcripts.iter().for_each(|transcript| run_transcript(&stage, transcript));
}

#[test]
fn the_transcript_of_the_concierge_page_is_right() {
    let stage = Stage::new("");
    stage.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
    let transcripts = blocks(CONCIERGE, "terminal");
    assert_eq!(transcripts.len(), 1);
    // The reader has configured no model; the test has, because it cannot wait for a rehearsal that types slowly.
    let unconfigured =
        "no model is configured, so the built-in rehearsal model gives canned replies (see `segue doctor`)";
    assert!(transcripts[0].contains(unconfigured));
    let transcript = transcripts[0].replace(unconfigured, "the built-in rehearsal model gives canned replies");
    run_transcript(&stage, &transcript);
}

#[test]
fn every_slash_command_is_documented() {
    let help = Stage::new("").pipe(&[], b"/help\n").out();
    let commands =
        help.lines().filter_map(|line| line.strip_prefix('/')).filter_map(|line| line.split_whitespace().next());
    let missing: Vec<&str> = commands.filter(|name| !PAGE.contains(&format!("`/{name}"))).collect();
    assert_eq!(missing, [""; 0]);
}
