//! Isolated copies and merging them.

use segue_flows::workspace_tools::WorkspaceTool::{DeleteFile, ReadFile, RemoveCopy, RestoreCheckpoint, WriteFile};
use segue_flows::workspace_tools::{
    CreateWorkspaceCopyArguments, CreateWorkspaceCopyResult, MergeWorkspaceCopyArguments, MergeWorkspaceCopyResult,
    WorkspaceToolRequest,
};
use serde_json::json;

use crate::support::{Caller, TestWorkspace, agent, flow};

async fn create_copy(shop: &TestWorkspace, name: &str) -> Caller {
    let request = WorkspaceToolRequest::CreateCopy(CreateWorkspaceCopyArguments { name: name.into() });
    let created: CreateWorkspaceCopyResult = shop.run_for_flow(request).await;
    Caller { session: format!("project~{name}"), copy: Some(created.copy), ..agent("executor") }
}

async fn merge(shop: &TestWorkspace, copy: &Caller) -> MergeWorkspaceCopyResult {
    let copy = copy.copy.clone().expect("a copy");
    shop.run_for_flow(WorkspaceToolRequest::MergeCopy(MergeWorkspaceCopyArguments { copy })).await
}

async fn write(shop: &TestWorkspace, caller: &Caller, path: &str, content: &str) {
    // The read may fail because the file is new.
    let _ = shop.run(caller, ReadFile, json!({"path": path})).await;
    shop.ok(caller, WriteFile, json!({"path": path, "content": content})).await;
}

#[tokio::test]
async fn parallel_writers_do_not_see_each_other_until_they_are_merged() {
    let shop = TestWorkspace::new();
    shop.put("shared.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    shop.put("old.txt", "old\n");
    let (one, two) = (create_copy(&shop, "one").await, create_copy(&shop, "two").await);
    assert_ne!(one.copy, two.copy);
    write(&shop, &one, "shared.txt", "first\n2\n3\n4\n5\n6\n7\n8\n9\n").await;
    write(&shop, &one, "one.txt", "1").await;
    write(&shop, &two, "shared.txt", "1\n2\n3\n4\n5\n6\n7\n8\nlast\n").await;
    write(&shop, &two, "sub/two.txt", "2").await;
    assert_eq!(shop.get("shared.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "the workspace is untouched");

    assert_eq!(merge(&shop, &one).await.conflicts, []);
    let merged = merge(&shop, &two).await;
    assert_eq!(merged.conflicts, []);
    assert_eq!(shop.get("shared.txt"), "first\n2\n3\n4\n5\n6\n7\n8\nlast\n");
    assert_eq!((shop.get("one.txt"), shop.get("sub/two.txt")), ("1".to_owned(), "2".to_owned()));
    let paths: Vec<&str> = merged.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["shared.txt", "sub/two.txt"]);
    // A merge that is repeated after a crash changes nothing.
    assert_eq!(merge(&shop, &two).await.changes, []);
}

#[tokio::test]
async fn a_file_that_the_copy_ignores_now_is_not_deleted_by_the_merge() {
    let shop = TestWorkspace::new();
    shop.put("local.env", "KEY=1\n");
    let copy = create_copy(&shop, "one").await;
    write(&shop, &copy, ".gitignore", "*.env\n").await;
    assert_eq!(merge(&shop, &copy).await.conflicts, []);
    assert_eq!((shop.get(".gitignore"), shop.get("local.env")), ("*.env\n".to_owned(), "KEY=1\n".to_owned()));
}

#[tokio::test]
async fn a_folder_that_became_a_file_is_merged() {
    let shop = TestWorkspace::new();
    shop.put("notes/a.txt", "a\n");
    let copy = create_copy(&shop, "one").await;
    shop.ok(&copy, ReadFile, json!({"path": "notes/a.txt"})).await;
    shop.ok(&copy, DeleteFile, json!({"path": "notes/a.txt"})).await;
    write(&shop, &copy, "notes", "all notes\n").await;
    assert_eq!(merge(&shop, &copy).await.conflicts, []);
    assert_eq!(shop.get("notes"), "all notes\n");
}

#[tokio::test]
async fn conflicts_are_reported_and_leave_the_workspace_alone() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "one\n");
    shop.put("gone.txt", "gone\n");
    shop.put("image.bin", b"\0one");
    let copy = create_copy(&shop, "one").await;
    write(&shop, &copy, "a.txt", "theirs\n").await;
    write(&shop, &copy, "gone.txt", "changed\n").await;
    write(&shop, &copy, "image.bin", "\0theirs").await;
    write(&shop, &copy, "fine.txt", "fine\n").await;
    shop.put("a.txt", "ours\n");
    shop.put("image.bin", b"\0ours");
    std::fs::remove_file(shop.path("gone.txt")).expect("removed");
    let merged = merge(&shop, &copy).await;
    let conflicts: Vec<(&str, &str)> =
        merged.conflicts.iter().map(|conflict| (conflict.path.as_str(), conflict.reason.as_str())).collect();
    assert_eq!(
        conflicts,
        [
            ("a.txt", "both sides changed the same lines"),
            ("gone.txt", "it was deleted in the workspace and changed in the copy"),
            ("image.bin", "both sides changed this binary file"),
        ]
    );
    let marked = merged.conflicts[0].marked_text.as_deref().expect("text");
    assert!(marked.contains("<<<<<<<") && marked.contains("ours\n") && marked.contains("theirs\n"), "{marked}");
    assert_eq!((shop.get("a.txt"), shop.get("fine.txt")), ("ours\n".to_owned(), "fine\n".to_owned()));
    assert!(!shop.path("gone.txt").exists());
}

#[tokio::test]
async fn a_repeated_request_returns_the_same_copy_and_other_owners_do_not_see_it() {
    let shop = TestWorkspace::with_config(segue_tools::WorkspaceConfig {
        owners: vec!["*".into()],
        ..segue_tools::WorkspaceConfig::default()
    });
    shop.put("a.txt", "a");
    let copy = create_copy(&shop, "one").await;
    write(&shop, &copy, "a.txt", "changed").await;
    let again = create_copy(&shop, "one").await;
    assert_eq!(again.copy, copy.copy);
    assert_eq!(shop.ok(&copy, ReadFile, json!({"path": "a.txt"})).await, "1\tchanged\n", "it was not copied again");
    let stranger = Caller { session: "acme.s".into(), ..copy.clone() };
    let text = shop.refused(&stranger, ReadFile, json!({"path": "a.txt"})).await;
    assert!(text.contains("has no copy"), "{text}");
    shop.ok(&flow(), RemoveCopy, json!({"copy": copy.copy})).await;
    let text = shop.refused(&copy, ReadFile, json!({"path": "a.txt"})).await;
    assert!(text.contains("has no copy"), "{text}");
}

#[tokio::test]
async fn agent_with_a_copy_of_its_name_works_there_until_the_copy_is_removed() {
    let shop = TestWorkspace::new();
    shop.put("a.txt", "one\n");
    let request = |name: &str| WorkspaceToolRequest::CreateCopy(CreateWorkspaceCopyArguments { name: name.into() });
    let created: CreateWorkspaceCopyResult = shop.run_for_flow(request("executor")).await;
    let (executor, helper) = (agent("executor"), agent("helper"));
    write(&shop, &executor, "a.txt", "theirs\n").await;
    assert_eq!(shop.get("a.txt"), "one\n", "it works in its copy");
    write(&shop, &helper, "a.txt", "ours\n").await;
    assert_eq!(shop.get("a.txt"), "ours\n", "an agent without a copy works in the workspace");
    let other = Caller { session: "another".into(), ..agent("executor") };
    assert_eq!(
        shop.ok(&other, ReadFile, json!({"path": "a.txt"})).await,
        "1\tours\n",
        "the copy belongs to one session"
    );
    let copy = created.copy;
    let merged: MergeWorkspaceCopyResult =
        shop.run_for_flow(WorkspaceToolRequest::MergeCopy(MergeWorkspaceCopyArguments { copy: copy.clone() })).await;
    assert_eq!(merged.conflicts.len(), 1);
    shop.ok(&flow(), RemoveCopy, json!({"copy": copy})).await;
    assert_eq!(shop.ok(&executor, ReadFile, json!({"path": "a.txt"})).await, "1\tours\n");
    // What was not merged is not lost.
    let checkpoint = merged.copy_checkpoint.expect("the copy was saved");
    shop.ok(&flow(), RestoreCheckpoint, json!({"checkpoint": checkpoint})).await;
    assert_eq!(shop.get("a.txt"), "theirs\n");
}
