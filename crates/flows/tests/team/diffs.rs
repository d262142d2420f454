//! What code checks before a model reviews a change, and which findings of a review count.

use segue_flows::team::diff::{diff_problems, parse_diff};
use segue_flows::team::review::{ReviewVerdict, combine_reviews, parse_review};

use crate::stories::story;

const DIFF: &str = "diff --git a/src/add.rs b/src/add.rs
index 1..2 100644
--- a/src/add.rs
+++ b/src/add.rs
@@ -1,3 +1,4 @@
 fn add(a: i32, b: i32) -> i32 {
-    a - b
+    // Adds.
+    a + b
 }
diff --git a/tests/add.rs b/tests/add.rs
new file mode 100644
--- /dev/null
+++ b/tests/add.rs
@@ -0,0 +1,2 @@
+#[test]
+fn adds() { assert_eq!(add(1, 2), 3); }
";

#[test]
fn diff_is_read_by_file_and_line() {
    let diff = parse_diff(DIFF);
    assert_eq!(diff.files.len(), 2);
    assert_eq!(diff.files[0].added, ["    // Adds.", "    a + b"]);
    assert_eq!(diff.files[0].removed, ["    a - b"]);
    for (path, line, shown) in
        [("src/add.rs", 3, true), ("src/add.rs", 5, false), ("tests/add.rs", 2, true), ("src/no.rs", 1, false)]
    {
        assert_eq!(diff.shows_line(path, line), shown, "{path}:{line}");
    }
    // Each file's part can be shown on its own.
    assert!(diff.files[1].text.starts_with("diff --git a/tests/add.rs") && !diff.files[1].text.contains("src/add.rs"));
}

#[test]
fn lines_that_look_like_headers_are_content() {
    let diff = parse_diff(
        "diff --git a/x.sql b/x.sql\n--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- old comment\n+++ new\n keep\n",
    );
    assert_eq!((diff.files.len(), diff.files[0].path.as_str()), (1, "x.sql"));
    assert_eq!((diff.files[0].removed.len(), diff.files[0].added.len()), (1, 1));
}

#[test]
fn unusual_paths_are_read() {
    let diff = parse_diff(
        "diff --git \"a/\\303\\244.txt\" \"b/\\303\\244.txt\"\n--- /dev/null\n+++ \"b/\\303\\244.txt\"\n@@ -0,0 +1 @@\n+x\n",
    );
    assert_eq!(diff.files[0].path, "ä.txt");
    let renamed =
        parse_diff("diff --git a/a b.txt b/c d.txt\nsimilarity index 100%\nrename from a b.txt\nrename to c d.txt\n");
    assert_eq!((renamed.files[0].path.as_str(), renamed.files[0].old_path.as_deref()), ("c d.txt", Some("a b.txt")));
}

#[test]
fn only_allowed_files_may_change() {
    let diff = parse_diff(DIFF);
    assert!(diff_problems(&diff, &story("s", &["src", "tests"], &[]), "knowledge.dot", "").is_empty());
    let problems = diff_problems(&diff, &story("s", &["src"], &[]), "knowledge.dot", "");
    assert_eq!(problems, ["`tests/add.rs` may not be changed by this story; it may touch src"]);
    let knowledge = parse_diff("diff --git a/k.dot b/k.dot\n--- a/k.dot\n+++ b/k.dot\n@@ -1 +1 @@\n-a\n+b\n");
    assert!(diff_problems(&knowledge, &story("s", &["**"], &[]), "k.dot", "")[0].contains("use `knowledge_add`"));
    // A rename out of the allowed files is a change of both.
    let renamed = parse_diff("diff --git a/src/a b/lib/a\nrename from src/a\nrename to lib/a\n");
    assert_eq!(diff_problems(&renamed, &story("s", &["src"], &[]), "k.dot", "").len(), 1);
}

#[test]
fn tests_are_not_weakened_without_a_word() {
    let all = story("s", &["**"], &[]);
    let problems = |diff: &str, account: &str| diff_problems(&parse_diff(diff), &all, "k.dot", account);
    let deleted = "diff --git a/tests/a.rs b/tests/a.rs\ndeleted file mode 100644\n--- a/tests/a.rs\n+++ /dev/null\n@@ -1 +0,0 @@\n-assert!(x);\n";
    assert!(problems(deleted, "done")[0].contains("is deleted"));
    assert!(problems(deleted, "The test is wrong since the rule changed.").is_empty());
    let weakened = "diff --git a/tests/a.rs b/tests/a.rs\n--- a/tests/a.rs\n+++ b/tests/a.rs\n@@ -1,2 +1,1 @@\n-    assert!(x);\n keep\n";
    assert!(problems(weakened, "done")[0].contains("an assertion is removed"));
    let removed =
        "diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,1 @@\n-    #[test]\n keep\n";
    assert!(problems(removed, "latest work")[0].contains("a test is removed"), "`latest` is not a word about tests");
    let skipped =
        "diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,1 +1,2 @@\n+    #[ignore]\n keep\n";
    assert!(problems(skipped, "done")[0].contains("a test is skipped"));
    let moved = "diff --git a/tests/a.rs b/tests/a.rs\n--- a/tests/a.rs\n+++ b/tests/a.rs\n@@ -1,1 +1,1 @@\n-assert!(a);\n+assert!(b);\n";
    assert!(problems(moved, "done").is_empty());
}

#[test]
fn findings_count_only_if_they_name_a_line_of_the_diff() {
    let diff = parse_diff(DIFF);
    let answer = r#"{"verdict": "NEEDS_CHANGES", "feedback": "Almost.", "findings": [
        {"file": "src/add.rs", "line": 3, "text": "overflow"},
        {"file": "src/add.rs", "line": 99, "text": "elsewhere"},
        {"file": "README.md", "line": 1, "text": "style"}]}"#;
    let review = parse_review(answer, Some(&diff)).expect("one finding is valid");
    assert_eq!((review.findings.len(), review.dropped.len()), (1, 2));
    let vague = r#"{"verdict": "needs changes", "feedback": "I do not like it."}"#;
    assert!(parse_review(vague, Some(&diff)).expect_err("nothing is named").contains("no finding names a line"));
    // A plan has no lines.
    assert_eq!(parse_review(vague, None).expect("it is fine").verdict, ReviewVerdict::NeedsChanges);
    assert!(parse_review("Looks good to me!", None).is_err());
    assert!(parse_review(r#"{"verdict": "maybe"}"#, None).expect_err("no verdict").contains("APPROVED"));
    assert!(parse_review(r#"{"verdict": "REJECTED"}"#, None).expect_err("no reason").contains("does not say why"));
    assert_eq!(
        parse_review("```json\n{\"verdict\": \"APPROVED\"}\n```", Some(&diff)).expect("ok").verdict,
        ReviewVerdict::Approved
    );
}

#[test]
fn the_strictest_part_decides_a_review_by_file() {
    let part = |verdict: &str| {
        parse_review(&format!(r#"{{"verdict": "{verdict}", "feedback": "{verdict}!"}}"#), None).expect("ok")
    };
    let combined =
        combine_reviews(&[part("APPROVED"), part("NEEDS_CHANGES"), part("APPROVED")]).expect("there are parts");
    assert_eq!((combined.verdict, combined.feedback.as_str()), (ReviewVerdict::NeedsChanges, "NEEDS_CHANGES!"));
}
