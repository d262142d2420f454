//! Attempts to reach files outside of the workspace, and files that are made to do harm.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_flows::workspace_tools::WorkspaceTool::{
    self, DeleteFile, EditFile, ListFiles, MoveFile, ReadFile, SearchFiles, WriteFile,
};
use serde_json::json;

use crate::support::{TestWorkspace, agent};

const SECRET: &str = "top secret";

/// A workspace, and a folder beside it with a secret.
fn workspace_with_neighbour() -> (TestWorkspace, tempfile::TempDir) {
    let outside = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(outside.path().join("secret.txt"), SECRET).expect("the secret is written");
    (TestWorkspace::new(), outside)
}

#[tokio::test]
async fn paths_out_of_the_workspace_are_refused_by_every_tool() {
    let (shop, outside) = workspace_with_neighbour();
    let absolute = outside.path().join("secret.txt");
    let absolute = absolute.to_str().expect("UTF-8");
    let up = format!("../{}/secret.txt", outside.path().file_name().and_then(|name| name.to_str()).expect("a name"));
    shop.put("a.txt", "a");
    let ann = agent("ann");
    for path in [absolute, up.as_str(), "../secret.txt", "a/../../b", "~/b", "/etc/passwd", "a.txt/../../b"] {
        let calls: [(WorkspaceTool, serde_json::Value); 7] = [
            (ReadFile, json!({"path": path})),
            (WriteFile, json!({"path": path, "content": "x"})),
            (EditFile, json!({"path": path, "old_text": "secret", "new_text": "x"})),
            (DeleteFile, json!({"path": path})),
            (MoveFile, json!({"from": "a.txt", "to": path})),
            (MoveFile, json!({"from": path, "to": "b.txt"})),
            (ListFiles, json!({"folder": path})),
        ];
        for (tool, arguments) in calls {
            let text = shop.refused(&ann, tool, arguments).await;
            assert!(!text.contains(SECRET), "{text}");
        }
    }
    assert_eq!(std::fs::read_to_string(absolute).expect("it exists"), SECRET);
}

#[tokio::test]
async fn links_out_of_the_workspace_lead_nowhere() {
    let (shop, outside) = workspace_with_neighbour();
    symlink(outside.path(), shop.path("folder")).expect("a link");
    symlink(outside.path().join("secret.txt"), shop.path("file.txt")).expect("a link");
    symlink("../../../../../../../../etc/passwd", shop.path("passwd")).expect("a link");
    let ann = agent("ann");
    for path in ["folder/secret.txt", "file.txt", "passwd"] {
        let text = shop.refused(&ann, ReadFile, json!({"path": path})).await;
        assert!(!text.contains(SECRET) && !text.contains("root:"), "{text}");
        shop.refused(&ann, WriteFile, json!({"path": path, "content": "x"})).await;
    }
    shop.refused(&ann, WriteFile, json!({"path": "folder/new.txt", "content": "x"})).await;
    let text = shop.ok(&ann, SearchFiles, json!({"pattern": "secret"})).await;
    assert_eq!(text, "no matches\n");
    let entries: Vec<_> =
        std::fs::read_dir(outside.path()).expect("it exists").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(entries, ["secret.txt"]);
    assert_eq!(std::fs::read_to_string(outside.path().join("secret.txt")).expect("it exists"), SECRET);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_swapped_in_during_the_access_lead_nowhere() {
    let (shop, outside) = workspace_with_neighbour();
    let is_over = Arc::new(AtomicBool::new(false));
    // Swaps `swap` between a folder and a link to the folder outside, as fast as it can.
    let (root, target, stop) = (shop.files.path().to_owned(), outside.path().to_owned(), is_over.clone());
    std::fs::create_dir(root.join("real")).expect("created");
    std::fs::write(root.join("real/secret.txt"), "harmless").expect("written");
    symlink(&target, root.join("link")).expect("a link");
    let swaps = std::thread::spawn(move || {
        let mut swaps = 0u64;
        while !stop.load(Ordering::Relaxed) {
            for name in ["real", "link"] {
                let (from, to) = (root.join(name), root.join("swap"));
                // A tool may have created the folder `swap` in between.
                if std::fs::rename(&from, &to).is_ok() {
                    std::thread::yield_now();
                    if std::fs::rename(&to, &from).is_ok() {
                        swaps += 1;
                    }
                } else {
                    let _ = std::fs::remove_dir_all(&to);
                }
            }
        }
        swaps
    });
    let ann = agent("ann");
    let (mut reads, mut refusals) = (0, 0);
    for round in 0..400 {
        let read = shop.run(&ann, ReadFile, json!({"path": "swap/secret.txt"})).await;
        assert!(!read.text.contains(SECRET), "round {round}: {}", read.text);
        if read.failed {
            refusals += 1
        } else {
            reads += 1
        }
        let written = shop.run(&ann, WriteFile, json!({"path": "swap/new.txt", "content": "planted"})).await;
        drop(written);
        let _ = shop.run(&ann, DeleteFile, json!({"path": "swap/secret.txt"})).await;
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(swaps.join().expect("the thread ends") > 0);
    assert!(refusals > 0, "{reads} reads");
    assert_eq!(std::fs::read_to_string(outside.path().join("secret.txt")).expect("it exists"), SECRET);
    assert!(!outside.path().join("new.txt").exists(), "nothing was planted outside");
}

#[tokio::test]
async fn huge_binary_and_special_files_are_recognised() {
    let shop = TestWorkspace::new();
    let ann = agent("ann");
    let huge = std::fs::File::create(shop.path("huge.txt")).expect("created");
    huge.set_len(9 * 1024 * 1024 * 1024).expect("a sparse file");
    let text = shop.refused(&ann, ReadFile, json!({"path": "huge.txt"})).await;
    assert!(text.contains("the limit is 8388608"), "{text}");
    shop.put("image.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let text = shop.ok(&ann, ReadFile, json!({"path": "image.png"})).await;
    assert_eq!(text, "`image.png` is a binary file of 11 bytes; its content is not shown");
    let text = shop.refused(&ann, EditFile, json!({"path": "image.png", "old_text": "PNG", "new_text": "GIF"})).await;
    assert_eq!(text, "`image.png` is a binary file; it cannot be edited");
    // A pipe without a writer would block a careless reader for ever.
    let made = std::process::Command::new("mkfifo").arg(shop.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let text = shop.refused(&ann, ReadFile, json!({"path": "pipe"})).await;
    assert!(text.contains("not a regular file"), "{text}");
    shop.put("long.txt", "x".repeat(100_000));
    let text = shop.ok(&ann, ReadFile, json!({"path": "long.txt"})).await;
    assert!(text.len() < 5_000 && text.ends_with("(line cut)\n"), "{} bytes", text.len());
    let content = "y".repeat(9 * 1024 * 1024);
    let text = shop.refused(&ann, WriteFile, json!({"path": "big.txt", "content": content})).await;
    assert!(text.contains("the limit is 8388608"), "{text}");
}

#[tokio::test]
async fn hooks_of_version_control_cannot_be_planted() {
    let shop = TestWorkspace::new();
    for path in [".git/hooks/pre-commit", ".GIT/config", "sub/.git/hooks/post-checkout"] {
        let text = shop.refused(&agent("ann"), WriteFile, json!({"path": path, "content": "#!/bin/sh\n"})).await;
        assert!(text.contains("cannot be changed by tools"), "{text}");
    }
}

#[tokio::test]
async fn a_link_to_a_file_inside_is_read_but_not_replaced() {
    let shop = TestWorkspace::new();
    shop.put("real.txt", "content\n");
    symlink("real.txt", shop.path("link.txt")).expect("a link");
    let ann = agent("ann");
    assert_eq!(shop.ok(&ann, ReadFile, json!({"path": "link.txt"})).await, "1\tcontent\n");
    let text = shop.refused(&ann, WriteFile, json!({"path": "link.txt", "content": "x"})).await;
    assert!(text.contains("is a link"), "{text}");
    assert!(std::fs::symlink_metadata(shop.path("link.txt")).expect("it exists").is_symlink());
}
