//! Reads the content of a file from a reply: everything in one code fence.

use crate::limits::FENCE_LENGTH_MIN;

/// A line of a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FenceLine {
    mark: char,
    length: usize,
    /// Whether something follows on the line, such as a language. Such a line cannot end a block.
    has_label: bool,
}

fn parse_fence_line(line: &str) -> Option<FenceLine> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
    let label = line.trim_start_matches(mark);
    let length = line.len() - label.len();
    let is_fence = length >= FENCE_LENGTH_MIN && !label.contains('`');
    is_fence.then_some(FenceLine { mark, length, has_label: !label.is_empty() })
}

/// Returns the content of the first block. Blocks inside of it belong to it. `is_complete` says that the reply was not cut
/// off, so that its end can stand for a missing end of the block.
///
/// # Errors
/// Returns what is wrong, in words for the agent.
pub(super) fn read_fenced_content(text: &str, path: &str, is_complete: bool) -> Result<String, &'static str> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let opening = lines.iter().enumerate().find_map(|(index, line)| Some((index, parse_fence_line(line)?)));
    let Some((start, opening)) = opening else {
        return Err("the reply contains no code fence; write the whole content of the file in one code fence");
    };
    let inside = &lines[start + 1..];
    let end = match find_closing_fence(inside, opening, is_markdown(path)) {
        Some(end) => end,
        None if is_complete => inside.len(),
        None => return Err("the reply was cut off before the file was complete; write a shorter file"),
    };
    let mut content = inside[..end].concat();
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    Ok(content)
}

/// Returns the line that ends the block. In Markdown this is the last possible one, because the file may contain blocks
/// without a label, whose beginning looks like an end.
fn find_closing_fence(inside: &[&str], opening: FenceLine, is_markdown: bool) -> Option<usize> {
    let ends = |line: &&str| {
        parse_fence_line(line)
            .is_some_and(|fence| fence.mark == opening.mark && fence.length >= opening.length && !fence.has_label)
    };
    if is_markdown {
        return inside.iter().rposition(ends);
    }
    let mut nested = 0_usize;
    for (index, line) in inside.iter().enumerate() {
        let Some(fence) = parse_fence_line(line).filter(|fence| fence.mark == opening.mark) else { continue };
        match (fence.has_label, nested) {
            (true, _) if fence.length >= opening.length => nested += 1,
            (false, 0) if ends(line) => return Some(index),
            (false, 1..) => nested -= 1,
            _ => {}
        }
    }
    None
}

fn is_markdown(path: &str) -> bool {
    let name = path.to_ascii_lowercase();
    [".md", ".markdown", ".mdx"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Result<String, &'static str> {
        read_fenced_content(text, path, true)
    }

    #[test]
    fn words_around_the_block_are_not_part_of_the_file() {
        let text = "Here it is:\n```sh\necho hi\n```\nRun it like this:\n```\nsh a.sh\n```\n";
        assert_eq!(read("a.sh", text), Ok("echo hi\n".to_owned()));
    }

    #[test]
    fn blocks_inside_the_file_belong_to_it() {
        let text = "```python\n\"\"\"\n```sh\nrun\n```\n\"\"\"\nprint(1)\n```\n";
        assert_eq!(read("a.py", text), Ok("\"\"\"\n```sh\nrun\n```\n\"\"\"\nprint(1)\n".to_owned()));
        let text = "```\n# Title\n```\nrun\n```\nend\n```";
        assert_eq!(read("README.md", text), Ok("# Title\n```\nrun\n```\nend\n".to_owned()));
        let text = "````\na\n```\nb\n```\n````\n";
        assert_eq!(read("a.txt", text), Ok("a\n```\nb\n```\n".to_owned()));
    }

    #[test]
    fn missing_end_is_accepted_only_if_the_reply_was_complete() {
        assert_eq!(read("a.sh", "```sh\necho hi"), Ok("echo hi\n".to_owned()));
        assert!(read_fenced_content("```sh\necho hi", "a.sh", false).is_err());
        assert!(read("a.sh", "echo hi").is_err());
    }

    #[test]
    fn empty_file_is_possible() {
        assert_eq!(read("__init__.py", "```\n```\n"), Ok(String::new()));
    }
}
