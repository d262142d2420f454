//! Rust source as the rules see it: code with comments and texts blanked out, the texts by themselves, and which part of
//! it all is only compiled for tests. It knows enough of the language for that and no more; it never fails.

mod lexer;
mod test_code;

/// One source file, taken apart.
pub struct RustSource {
    /// The code, of the same length as the file; comments and the insides of literals are spaces.
    pub code: String,
    /// The code without what is compiled for tests only.
    pub production: String,
    /// How many lines are not for tests only.
    pub production_lines: usize,
    /// The string literals of production code.
    pub literals: Vec<StringLiteral>,
    /// The modules in files of their own that are declared for tests only.
    pub test_modules: Vec<String>,
    /// Whether the whole file is for tests only, by an attribute at its top.
    pub is_test_only: bool,
}

/// A string literal.
pub struct StringLiteral {
    /// The line it begins on; the first is 1.
    pub line: usize,
    /// What it says, escapes resolved.
    pub text: String,
}

/// A name or keyword in code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodeWord<'a> {
    /// The word.
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// The line it stands on; the first is 1.
    pub line: usize,
}

impl RustSource {
    /// Takes a file's text apart.
    pub fn parse(text: &str) -> Self {
        let lexed = lexer::lex_rust(text);
        let spans = test_code::find_test_items(&lexed.code);
        let mut production = lexed.code.clone().into_bytes();
        let mut test_lines = 0;
        for span in &spans {
            test_lines += lexed.code[span.range.clone()].lines().count();
            for byte in &mut production[span.range.clone()] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        let breaks: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
        let line_of = |offset: usize| breaks.partition_point(|line_break| *line_break < offset) + 1;
        let in_tests = |offset: usize| spans.iter().any(|span| span.range.contains(&offset));
        Self {
            production_lines: text.lines().count().saturating_sub(test_lines),
            literals: lexed
                .literals
                .into_iter()
                .filter(|literal| !in_tests(literal.offset))
                .map(|literal| StringLiteral { line: line_of(literal.offset), text: literal.text })
                .collect(),
            production: String::from_utf8_lossy(&production).into_owned(),
            is_test_only: lexed.code.contains("#![cfg(test)]"),
            test_modules: spans.into_iter().filter_map(|span| span.module).collect(),
            code: lexed.code,
        }
    }
}

/// All words of some code, in order.
pub fn split_words(code: &str) -> Vec<CodeWord<'_>> {
    let mut words = Vec::new();
    let mut line = 1;
    let mut start = None;
    for (offset, character) in code.char_indices().chain([(code.len(), ' ')]) {
        let inside = character == '_' || character.is_alphanumeric();
        match (start, inside) {
            (None, true) => start = Some(offset),
            (Some(from), false) => {
                words.push(CodeWord { text: &code[from..offset], offset: from, line });
                start = None;
            }
            (None, false) | (Some(_), true) => {}
        }
        if character == '\n' {
            line += 1;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_in_neither_production_nor_its_literals() {
        let source = RustSource::parse(
            "fn a() { say(\"one\"); }\n\n#[cfg(test)]\nmod tests {\n    fn b() { say(\"two\"); }\n}\n\nfn c() { say(\"three\"); }\n",
        );
        let texts: Vec<&str> = source.literals.iter().map(|literal| literal.text.as_str()).collect();
        assert_eq!(texts, ["one", "three"]);
        assert_eq!(source.literals[1].line, 8);
        assert!(source.code.contains("fn b") && !source.production.contains("fn b"));
        assert_eq!(source.production.len(), source.code.len());
        assert_eq!(source.production_lines, 4);
    }

    #[test]
    fn words_know_their_lines() {
        let found = split_words("let a_1 =\n  b::c;");
        let told: Vec<(&str, usize)> = found.iter().map(|word| (word.text, word.line)).collect();
        assert_eq!(told, [("let", 1), ("a_1", 1), ("b", 2), ("c", 2)]);
        assert_eq!(found[3].offset, 15);
    }

    #[test]
    fn a_file_may_be_for_tests_as_a_whole() {
        assert!(RustSource::parse("//! Helpers.\n#![cfg(test)]\nfn a() {}\n").is_test_only);
        assert!(!RustSource::parse("//! Says `#![cfg(test)]`.\nfn a() {}\n").is_test_only);
    }
}
