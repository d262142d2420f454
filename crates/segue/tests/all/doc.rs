//! Runs the examples of the documentation: writes their files, runs their commands in order, and compares the output.
//! `UPDATE_EXPECT=1` writes the current output to the pages.

use std::process::Command;

use crate::support::{Place, Run};
use crate::vendor::Vendor;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[test]
fn examples_of_the_page_about_commands_are_right() {
    assert!(PageExamples::new(&[]).run_page("cli.md") > 15, "the examples were found");
}

#[test]
fn examples_of_the_page_about_models_are_right() {
    let vendor = Vendor::new("sk-of-the-page");
    let mut examples = PageExamples::new(&[("ECHO_KEY", "sk-of-the-page")]);
    examples.server = Some(vendor.url());
    assert!(examples.run_page("models.md") > 5, "the examples were found");
}

#[test]
fn examples_of_the_page_about_domains_are_right() {
    assert!(PageExamples::new(&[]).run_page("domains.md") > 4, "the examples were found");
}

/// The address of the server on the pages.
const SERVER: &str = "http://localhost:8080/v1";

/// A home in which the examples of a page run.
struct PageExamples {
    place: Place,
    env: &'static [(&'static str, &'static str)],
    server: Option<String>,
}

impl PageExamples {
    fn new(env: &'static [(&'static str, &'static str)]) -> Self {
        Self { place: Place::new(), env, server: None }
    }

    /// Runs the examples of a page, and returns the number of commands.
    fn run_page(&self, name: &str) -> usize {
        let path = format!("{FOLDER}/{name}");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let mut out = String::new();
        let mut commands = 0;
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            out.push_str(&format!("{line}\n"));
            if let Some(name) = line.strip_prefix("```toml file=") {
                let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                self.place.write(name, &self.with_real_server(&format!("{}\n", text.join("\n"))));
                out.push_str(&format!("{}\n```\n", text.join("\n")));
            } else if line == "```console" {
                let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                for example in examples(&block) {
                    commands += 1;
                    out.push_str(&format!("$ {}\n{}", example.command, self.run(&example)));
                }
                out.push_str("```\n");
            }
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, out).expect("written");
        } else {
            assert!(out == page, "the page differs; UPDATE_EXPECT=1 corrects it:\n{out}");
        }
        commands
    }

    /// Replaces the address of the server by the real one.
    fn with_real_server(&self, text: &str) -> String {
        self.server.as_ref().map_or_else(|| text.to_owned(), |url| text.replace(SERVER, url))
    }

    /// Returns the output for the page: the expected one, if the real output differs only in times.
    fn run(&self, example: &Example) -> String {
        let place = &self.place;
        let mut command = Command::new("sh");
        place.set_environment(&mut command);
        let programs = std::path::Path::new(env!("CARGO_BIN_EXE_segue")).parent().expect("a folder");
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).envs(self.env.iter().copied());
        let line = self.with_real_server(&format!("{{ {}; }} 2>&1", example.command));
        let run = Run::of(&command.args(["-c", &line]).output().expect("it runs"));
        let printed = run.out.replace(&place.path().display().to_string(), "/home/you");
        if place.redacted(&printed) == place.redacted(&example.expected) { example.expected.clone() } else { printed }
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
