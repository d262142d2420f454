//! Pages with commands on them are true: their files are written, their commands run in order, and what they print is what
//! stands there. `UPDATE_EXPECT=1` writes down what they print now.

use std::process::Command;

use crate::support::{Place, Run};
use crate::vendor::Vendor;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[test]
fn every_example_on_the_page_about_commands_runs() {
    assert!(Played::new(&[]).page("cli.md") > 15, "the examples were found");
}

#[test]
fn every_example_on_the_page_about_models_runs() {
    let vendor = Vendor::new("sk-of-the-page");
    let mut played = Played::new(&[("ECHO_KEY", "sk-of-the-page")]);
    played.server = Some(vendor.url());
    assert!(played.page("models.md") > 5, "the examples were found");
}

#[test]
fn a_domain_of_ones_own_is_made_as_its_page_says() {
    assert!(Played::new(&[]).page("domains.md") > 4, "the examples were found");
}

/// Where a page says its server is.
const SERVER: &str = "http://localhost:8080/v1";

/// A home in which the examples of a page are played.
struct Played {
    place: Place,
    env: &'static [(&'static str, &'static str)],
    server: Option<String>,
}

impl Played {
    fn new(env: &'static [(&'static str, &'static str)]) -> Self {
        Self { place: Place::new(), env, server: None }
    }

    /// Plays a page, and says how many commands stood on it.
    fn page(&self, name: &str) -> usize {
        let path = format!("{FOLDER}/{name}");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let mut out = String::new();
        let mut commands = 0;
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            out.push_str(&format!("{line}\n"));
            if let Some(name) = line.strip_prefix("```toml file=") {
                let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                self.place.write(name, &self.there(&format!("{}\n", text.join("\n"))));
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
            assert!(out == page, "the page says something else; UPDATE_EXPECT=1 corrects it:\n{out}");
        }
        commands
    }

    /// The text with the server where it really is.
    fn there(&self, text: &str) -> String {
        self.server.as_ref().map_or_else(|| text.to_owned(), |url| text.replace(SERVER, url))
    }

    /// What the page should show: what stands there, if the command printed the same but for times.
    fn run(&self, example: &Example) -> String {
        let place = &self.place;
        let mut command = Command::new("sh");
        place.settle(&mut command);
        let programs = std::path::Path::new(env!("CARGO_BIN_EXE_segue")).parent().expect("a folder");
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).envs(self.env.iter().copied());
        let line = self.there(&format!("{{ {}; }} 2>&1", example.command));
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
