//! The help page of the program: its commands in groups, by purpose. clap prints subcommands as one flat list, so the
//! page is a template of our own, filled from the real commands.

use clap::{Command, CommandFactory};

use super::Cli;

/// The commands by purpose, in the order in which the help page lists them. A test checks that none is missing.
pub(crate) const COMMAND_GROUPS: [(&str, &[&str]); 4] = [
    ("Talk", &["chat", "send", "run"]),
    ("Inspect", &["sessions", "show", "explain", "flows", "phase"]),
    (
        "Operate",
        &[
            "retry",
            "cancel",
            "approve",
            "deny",
            "resolve",
            "undo",
            "run-command",
            "recompute",
            "fork",
            "rename",
            "export",
            "import",
            "delete",
        ],
    ),
    (
        "Administer",
        &["serve", "keys", "models", "eval", "config", "trust", "doctor", "backup", "migrate", "completions"],
    ),
];

const COMMAND_COLUMNS: usize = 12;

/// Returns the command line with the grouped help page.
pub(crate) fn build_command() -> Command {
    let command = Cli::command();
    let groups: String = COMMAND_GROUPS.iter().map(|(heading, names)| render_group(&command, heading, names)).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n\
         `segue COMMAND --help` describes a command and shows an example.\n"
    );
    command.help_template(template)
}

fn render_group(command: &Command, heading: &str, names: &[&str]) -> String {
    let lines = names.iter().filter_map(|name| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {name:<COMMAND_COLUMNS$} {about}\n"))
    });
    format!("{heading}:\n{}\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = build_command();
        let mut real: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        real.sort_unstable();
        assert_eq!(grouped, real);
    }

    #[test]
    fn the_help_page_has_headings_and_fits_a_terminal() {
        let page = build_command().render_help().to_string();
        for (heading, names) in COMMAND_GROUPS {
            assert!(page.contains(&format!("\n{heading}:\n")), "{page}");
            assert!(names.iter().all(|name| page.contains(&format!("\n  {name} "))), "{page}");
        }
        let commands = page.split("Options:").next().unwrap_or_default();
        assert!(commands.lines().all(|line| line.len() <= 80), "{page}");
        assert!(page.contains("--store <FILE|URL>"), "{page}");
    }

    /// Checks that a command and its subcommands have an example, and that the examples are valid command lines.
    fn check_examples(command: &Command) {
        for subcommand in command.get_subcommands() {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, example) = help.split_once("Example:\n").unwrap_or_else(|| {
                panic!("the help of `{}` has no example", subcommand.get_name());
            });
            for line in example.lines() {
                let parsed = build_command().try_get_matches_from(split_arguments(line));
                assert!(parsed.is_ok(), "`{}`: {:?}", line.trim(), parsed.err());
            }
            check_examples(subcommand);
        }
    }

    /// Splits a line as a shell does, up to a redirection; knows double quotes only.
    fn split_arguments(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line).trim();
        let quoted = line.split('"').enumerate();
        let words = quoted.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        check_examples(&build_command());
    }
}
