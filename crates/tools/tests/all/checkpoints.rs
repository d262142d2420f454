//! Checkpoints of the files.

use std::os::unix::fs::{PermissionsExt, symlink};

use segue_core::tool::ToolResult;
use segue_flows::workspace_tools::WorkspaceTool::{DiffCheckpoint, RestoreCheckpoint};
use segue_flows::workspace_tools::{
    CreateCheckpointArguments, CreateCheckpointResult, RestoreCheckpointArguments, RestoreCheckpointResult,
    WorkspaceStatusArguments, WorkspaceStatusResult, WorkspaceToolRequest,
};
use serde_json::json;

use crate::support::{TestWorkspace, flow};

async fn checkpoint(shop: &TestWorkspace) -> String {
    let request = WorkspaceToolRequest::CreateCheckpoint(CreateCheckpointArguments { label: "test".into() });
    shop.run_for_flow::<CreateCheckpointResult>(request).await.checkpoint
}

async fn restore(shop: &TestWorkspace, checkpoint: &str) -> RestoreCheckpointResult {
    let request = WorkspaceToolRequest::RestoreCheckpoint(RestoreCheckpointArguments { checkpoint: checkpoint.into() });
    shop.run_for_flow(request).await
}

#[tokio::test]
async fn a_checkpoint_restores_contents_modes_links_and_deletions() {
    let mut shop = TestWorkspace::new();
    shop.put(".gitignore", "ignored\n");
    shop.put("a.txt", "one\n");
    shop.put("bin/run", "#!/bin/sh\n");
    std::fs::set_permissions(shop.path("bin/run"), std::fs::Permissions::from_mode(0o755)).expect("set");
    symlink("a.txt", shop.path("link")).expect("a link");
    shop.put("ignored", "before");
    let saved = checkpoint(&shop).await;

    shop.put("a.txt", "two\n");
    std::fs::remove_file(shop.path("bin/run")).expect("removed");
    std::fs::remove_dir(shop.path("bin")).expect("removed");
    shop.put("bin", "a file where a folder was");
    std::fs::remove_file(shop.path("link")).expect("removed");
    shop.put("new/deep/file.txt", "new");
    shop.put("ignored", "after");
    shop.restart();
    let restored = restore(&shop, &saved).await;
    assert_eq!(shop.get("a.txt"), "one\n");
    assert_eq!(std::fs::metadata(shop.path("bin/run")).expect("it exists").permissions().mode() & 0o111, 0o111);
    assert_eq!(std::fs::read_link(shop.path("link")).expect("a link").to_str(), Some("a.txt"));
    assert!(!shop.path("new").exists());
    assert_eq!(shop.get("ignored"), "after", "excluded files are left alone");
    let paths: Vec<&str> = restored.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "bin", "bin/run", "link", "new/deep/file.txt"]);
    assert_eq!(checkpoint(&shop).await, saved, "equal contents are the same checkpoint");

    // Restoring can be undone.
    restore(&shop, &restored.previous).await;
    assert_eq!(shop.get("a.txt"), "two\n");
    assert_eq!(shop.get("new/deep/file.txt"), "new");
    assert_eq!(shop.get("bin"), "a file where a folder was");
}

#[tokio::test]
async fn a_checkpoint_is_compared_with_the_content_and_with_another_one() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "one\ntwo\n");
    let first = checkpoint(&shop).await;
    shop.put("a.txt", "one\n2\n");
    shop.put("b.bin", b"\0\x01");
    let now: ToolResult = shop.run(&flow(), DiffCheckpoint, json!({"from": first})).await;
    assert!(now.text.starts_with("M a.txt (+1 -1)\nA b.bin (+0 -0)\n--- a.txt\n+++ a.txt\n"), "{}", now.text);
    assert!(now.text.contains("-two\n+2\n"), "{}", now.text);
    assert_eq!(now.artifacts.len(), 2);
    let second = checkpoint(&shop).await;
    let between = shop.run(&flow(), DiffCheckpoint, json!({"from": first, "to": second})).await;
    assert_eq!(between.text, now.text);
    let request = WorkspaceToolRequest::Status(WorkspaceStatusArguments { since: Some(first) });
    let status: WorkspaceStatusResult = shop.run_for_flow(request).await;
    assert_eq!((status.changes_total, status.content_digest), (2, second));
}

#[tokio::test]
async fn an_unknown_checkpoint_is_refused() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "a");
    let text = shop.refused(&flow(), RestoreCheckpoint, json!({"checkpoint": "nope"})).await;
    assert_eq!(text, "the workspace has no checkpoint `nope`; old ones are dropped");
    assert_eq!(shop.get("a.txt"), "a");
}
