//! The question whether the configuration of a folder is trusted.

use crate::pty::Terminal;
use crate::stage::Stage;

#[test]
fn a_terminal_asks_once_before_a_folder_may_use_other_servers() {
    let stage = Stage::new("");
    let config = "[models]\ndiscover = false\n[models.box]\nprovider = \"openai-compatible\"\n\
                  base_url = \"http://127.0.0.1:9/v1\"\nwindow_tokens = 8192\n";
    stage.write("segue.toml", config);
    let mut terminal = Terminal::of_program(&stage, &["models"], 40);
    terminal
        .shows("It would:\n  send prompts to http://127.0.0.1:9/v1 (model `box`)\nTrust it until it changes? [y/N]");
    terminal.enter("n").shows("is not trusted, so it may not");
    assert!(!terminal.ended().success());
    let mut terminal = Terminal::of_program(&stage, &["models"], 40);
    terminal.shows("Trust it until it changes? [y/N]").enter("y").shows("openai-compatible");
    assert!(terminal.ended().success());
    let mut terminal = Terminal::of_program(&stage, &["models"], 40);
    terminal.shows("openai-compatible");
    assert!(!terminal.text().contains("Trust it"), "{}", terminal.text());
    assert!(terminal.ended().success());
}
