//! A digest of what a diff changes, whatever the lines' numbers are. A rebase that changes nothing else keeps it.

/// Returns the digest of a diff.
pub(super) fn diff_digest(diff: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for line in diff.lines().filter(|line| !line.starts_with("index ") && !line.starts_with("@@ ")) {
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Returns the digest of a failure: its output without numbers, which differ from run to run.
pub(super) fn failure_digest(output: &str) -> String {
    let letters: String = output.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    blake3::hash(letters.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_lines_keep_the_digest_and_changed_lines_do_not() {
        let diff =
            |line: u32, text: &str| format!("diff --git a/x b/x\nindex 1..{line}\n@@ -{line} +{line} @@\n+{text}\n");
        assert_eq!(diff_digest(&diff(1, "a")), diff_digest(&diff(9, "a")));
        assert_ne!(diff_digest(&diff(1, "a")), diff_digest(&diff(1, "b")));
    }

    #[test]
    fn durations_do_not_change_a_failure() {
        assert_eq!(failure_digest("failed after 1.5 s"), failure_digest("failed after 22.7 s"));
        assert_ne!(failure_digest("a failed"), failure_digest("b failed"));
    }
}
