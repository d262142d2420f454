//! The page about the commands is true: its files are written, its commands run in order, and what they print is what
//! stands there. `UPDATE_EXPECT=1` writes down what they print now.

use std::process::Command;

use crate::support::{Place, Run};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

#[test]
fn every_example_on_the_page_runs() {
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let place = Place::new();
    let mut out = String::new();
    let mut commands = 0;
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(&format!("{line}\n"));
        if let Some(name) = line.strip_prefix("```toml file=") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            place.write(name, &format!("{}\n", text.join("\n")));
            out.push_str(&format!("{}\n```\n", text.join("\n")));
        } else if line == "```console" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            for example in examples(&block) {
                commands += 1;
                out.push_str(&format!("$ {}\n{}", example.command, run(&place, &example)));
            }
            out.push_str("```\n");
        }
    }
    assert!(commands > 15, "the examples were found");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(PAGE, out).expect("written");
    } else {
        assert!(out == page, "the page says something else; UPDATE_EXPECT=1 corrects it:\n{out}");
    }
}

struct Example {
    command: String,
    expected: String,
}

fn examples(block: &[&str]) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(Example { command: command.to_owned(), expected: String::new() }),
            (None, Some(example)) => example.expected.push_str(&format!("{line}\n")),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    found
}

/// What the page should show: what stands there, if the command printed the same but for times.
fn run(place: &Place, example: &Example) -> String {
    let mut command = Command::new("sh");
    place.settle(&mut command);
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_segue")).parent().expect("a folder");
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    let run = Run::of(&command.args(["-c", &format!("{{ {}; }} 2>&1", example.command)]).output().expect("it runs"));
    let printed = run.out.replace(&place.path().display().to_string(), "/home/you");
    if place.redacted(&printed) == place.redacted(&example.expected) { example.expected.clone() } else { printed }
}
