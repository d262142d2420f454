//! Reading, writing, editing, deleting, moving, listing and searching files.

use segue_core::tool::ToolArtifactKind;
use segue_flows::workspace_tools::WorkspaceTool::{
    DeleteFile, EditFile, ListFiles, MoveFile, ReadFile, SearchFiles, Status, WriteFile,
};
use segue_flows::workspace_tools::{
    FileChange, FileChangeKind, FileChangesResult, WorkspaceStatusArguments, WorkspaceStatusResult,
    WorkspaceToolRequest,
};
use segue_tools::WorkspaceConfig;
use serde_json::json;

use crate::support::{TestWorkspace, agent, flow};

#[tokio::test]
async fn a_file_is_written_read_edited_moved_and_deleted() {
    let shop = TestWorkspace::new();
    let ann = agent("ann");
    let written = shop.run(&ann, WriteFile, json!({"path": "src/a.txt", "content": "one\ntwo\n"})).await;
    assert!(!written.failed, "{}", written.text);
    assert_eq!(written.text, "A src/a.txt (+2 -0)");
    assert_eq!(written.artifacts.len(), 1);
    assert_eq!(written.artifacts[0].kind, ToolArtifactKind::Diff);
    assert!(written.artifacts[0].text.contains("+one\n+two\n"), "{}", written.artifacts[0].text);
    let changes: FileChangesResult = serde_json::from_value(written.value.expect("a value")).expect("typed");
    let expected =
        FileChange { path: "src/a.txt".into(), kind: FileChangeKind::Created, lines_added: 2, lines_removed: 0 };
    assert_eq!(changes.changes, [expected]);

    assert_eq!(shop.ok(&ann, ReadFile, json!({"path": "src/a.txt"})).await, "1\tone\n2\ttwo\n");
    let text = shop.ok(&ann, EditFile, json!({"path": "src/a.txt", "old_text": "two", "new_text": "2"})).await;
    assert_eq!(text, "M src/a.txt (+1 -1)");
    shop.ok(&ann, MoveFile, json!({"from": "src/a.txt", "to": "lib/b.txt"})).await;
    assert_eq!(shop.get("lib/b.txt"), "one\n2\n");
    assert!(!shop.path("src").exists(), "empty folders are removed");
    shop.ok(&ann, DeleteFile, json!({"path": "lib/b.txt"})).await;
    assert!(!shop.path("lib/b.txt").exists());
}

#[tokio::test]
async fn parts_of_a_file_are_read_by_line_numbers() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", (1..=100).map(|n| format!("line {n}\n")).collect::<String>());
    let text = shop.ok(&agent("ann"), ReadFile, json!({"path": "a.txt", "first_line": 50, "lines_max": 2})).await;
    assert_eq!(text, "`a.txt`, lines 50 to 51 of 100; continue with `first_line`\n50\tline 50\n51\tline 51\n");
    let text = shop.refused(&agent("ann"), ReadFile, json!({"path": "a.txt", "first_line": 101})).await;
    assert_eq!(text, "`a.txt` has only 100 lines");
}

#[tokio::test]
async fn a_file_that_was_not_read_is_not_overwritten_or_deleted() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "precious\n");
    let ann = agent("ann");
    let text = shop.refused(&ann, WriteFile, json!({"path": "a.txt", "content": "new"})).await;
    assert!(text.contains("you have not read it"), "{text}");
    let text = shop.refused(&ann, DeleteFile, json!({"path": "a.txt"})).await;
    assert!(text.contains("you have not read it"), "{text}");
    assert_eq!(shop.get("a.txt"), "precious\n");
    shop.ok(&ann, ReadFile, json!({"path": "a.txt"})).await;
    shop.ok(&ann, WriteFile, json!({"path": "a.txt", "content": "new"})).await;
    assert_eq!(shop.get("a.txt"), "new");
}

#[tokio::test]
async fn a_file_that_another_agent_changed_since_it_was_read_is_not_overwritten() {
    let mut shop = TestWorkspace::new();
    shop.put("a.txt", "one\ntwo\n");
    let (ann, bob) = (agent("ann"), agent("bob"));
    shop.ok(&ann, ReadFile, json!({"path": "a.txt"})).await;
    shop.ok(&bob, ReadFile, json!({"path": "a.txt"})).await;
    shop.ok(&bob, EditFile, json!({"path": "a.txt", "old_text": "two", "new_text": "2"})).await;
    // What was read is remembered across restarts.
    shop.restart();
    let text = shop.refused(&ann, WriteFile, json!({"path": "a.txt", "content": "mine"})).await;
    assert!(text.contains("has changed since you read it"), "{text}");
    // An exact edit elsewhere is not blind, but it does not make the rest known.
    shop.ok(&ann, EditFile, json!({"path": "a.txt", "old_text": "one", "new_text": "1"})).await;
    let text = shop.refused(&ann, WriteFile, json!({"path": "a.txt", "content": "mine"})).await;
    assert!(text.contains("has changed since you read it"), "{text}");
    assert_eq!(shop.get("a.txt"), "1\n2\n");
    shop.ok(&ann, ReadFile, json!({"path": "a.txt"})).await;
    shop.ok(&ann, WriteFile, json!({"path": "a.txt", "content": "mine"})).await;
    // The writer knows what it wrote.
    shop.ok(&ann, WriteFile, json!({"path": "a.txt", "content": "mine too"})).await;
}

#[tokio::test]
async fn excluded_files_are_neither_listed_nor_searched() {
    let shop = TestWorkspace::new();
    shop.put(".gitignore", "*.log\n/build/\n!keep.log\n");
    for path in [
        "a.rs",
        "x.log",
        "keep.log",
        "build/out.rs",
        "sub/build/in.rs",
        "node_modules/m.js",
        ".git/config",
        "target/t.rs",
    ] {
        shop.put(path, "needle\n");
    }
    shop.put("target/CACHEDIR.TAG", "");
    shop.put("sub/.gitignore", "secret.rs\n");
    shop.put("sub/secret.rs", "needle\n");
    let text = shop.ok(&agent("ann"), ListFiles, json!({})).await;
    let paths: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(paths, [".gitignore", "a.rs", "keep.log", "sub/.gitignore", "sub/build/in.rs"]);
    let text = shop.ok(&agent("ann"), SearchFiles, json!({"pattern": "need.e"})).await;
    assert_eq!(text, "a.rs:1: needle\nkeep.log:1: needle\nsub/build/in.rs:1: needle\n");
    let text = shop
        .ok(
            &agent("ann"),
            SearchFiles,
            json!({"pattern": "NEED", "ignore_case": true, "glob": "*.rs", "folder": "sub"}),
        )
        .await;
    assert_eq!(text, "sub/build/in.rs:1: needle\n");
    assert_eq!(
        shop.ok(&agent("ann"), SearchFiles, json!({"pattern": "need.e", "literal": true})).await,
        "no matches\n"
    );
    let text = shop.refused(&agent("ann"), SearchFiles, json!({"pattern": "("})).await;
    assert!(text.contains("not a valid regular expression"), "{text}");
}

#[tokio::test]
async fn the_status_shows_files_changes_checks_and_instructions() {
    let shop =
        TestWorkspace::with_config(WorkspaceConfig { checks: vec!["true".into()], ..WorkspaceConfig::default() });
    shop.put("AGENTS.md", "Use tabs.\n");
    let request = || WorkspaceToolRequest::Status(WorkspaceStatusArguments::default());
    let status: WorkspaceStatusResult = shop.run_for_flow(request()).await;
    assert_eq!(status.workspace, "shop");
    assert_eq!(status.agents_md.as_deref(), Some("Use tabs.\n"));
    assert_eq!(status.checks, ["true"]);
    assert_eq!(status.files_total, 1);
    shop.put("b.txt", "b");
    let later: WorkspaceStatusResult = shop.run_for_flow(request()).await;
    assert_ne!(later.content_digest, status.content_digest);
    std::fs::remove_file(shop.path("b.txt")).expect("removed");
    let again: WorkspaceStatusResult = shop.run_for_flow(request()).await;
    assert_eq!(again.content_digest, status.content_digest, "equal contents have equal digests");
}

#[tokio::test]
async fn tools_of_flows_are_refused_to_models() {
    let shop = TestWorkspace::new();
    let text = shop.refused(&agent("ann"), Status, json!({})).await;
    assert_eq!(text, "`workspace_status` is not available to models");
}

#[tokio::test]
async fn a_workspace_belongs_to_its_owners() {
    let shop =
        TestWorkspace::with_config(WorkspaceConfig { owners: vec!["acme".into()], ..WorkspaceConfig::default() });
    shop.put("a.txt", "a");
    for (session, is_allowed) in [("acme.s", true), ("other.s", false), ("s", true)] {
        let mut caller = agent("ann");
        caller.session = session.into();
        let result = shop.run(&caller, ReadFile, json!({"path": "a.txt"})).await;
        assert_eq!(!result.failed, is_allowed, "{session}: {}", result.text);
        if !is_allowed {
            assert_eq!(result.text, "there is no workspace `shop`; there is none (see `[workspaces]` in segue.toml)");
        }
    }
}

#[tokio::test]
async fn r12_the_host_refuses_runs_of_a_process_that_lost_the_session() {
    let shop = TestWorkspace::new();
    let (mut old, mut new) = (agent("ann"), agent("ann"));
    (old.epoch, new.epoch) = (4, 5);
    shop.ok(&old, WriteFile, json!({"path": "a", "content": "1"})).await;
    shop.ok(&new, WriteFile, json!({"path": "a", "content": "2"})).await;
    let text = shop.refused(&old, WriteFile, json!({"path": "a", "content": "3"})).await;
    assert!(text.contains("another process owns the session since lease epoch 5"), "{text}");
    assert_eq!(shop.get("a"), "2");
}

#[tokio::test]
async fn permissions_and_line_ends_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let shop = TestWorkspace::new();
    shop.put("run.sh", "#!/bin/sh\r\necho 1\r\n");
    std::fs::set_permissions(shop.path("run.sh"), std::fs::Permissions::from_mode(0o750)).expect("permissions are set");
    let arguments = json!({"path": "run.sh", "old_text": "#!/bin/sh\necho 1", "new_text": "#!/bin/sh\necho 2"});
    shop.ok(&agent("ann"), EditFile, arguments).await;
    assert_eq!(shop.get("run.sh"), "#!/bin/sh\r\necho 2\r\n");
    assert_eq!(std::fs::metadata(shop.path("run.sh")).expect("it exists").permissions().mode() & 0o777, 0o750);
}

#[tokio::test]
async fn the_git_file_of_a_worktree_is_not_a_file_of_the_workspace() {
    let shop = TestWorkspace::new();
    shop.put(".git", "gitdir: /elsewhere/.git/worktrees/a\n");
    shop.put("vendor/lib/.git", "gitdir: ../../.git/modules/lib\n");
    shop.put("a.txt", "a\n");
    assert_eq!(shop.ok(&agent("ann"), ListFiles, json!({})).await, "a.txt\t2 bytes\n");
    assert_eq!(shop.ok(&agent("ann"), SearchFiles, json!({"pattern": "gitdir"})).await, "no matches\n");
}

#[tokio::test]
async fn a_session_without_a_workspace_gets_a_clear_error() {
    let shop = TestWorkspace::new();
    let mut request = crate::support::invocation(&flow(), "list_files", json!({}));
    request.settings = json!({});
    let result =
        segue_engine::tools::Tool::run(&shop.host, request, segue_engine::tools::ToolRunContext::for_tests()).await;
    assert_eq!(result.text, "the session has no workspace; start it with the setting `workspace`");
}
