//! A simple parser for Rust source: separates code from comments and literals, and production code from test code. It
//! accepts any input.

mod lexer;
mod test_code;

/// One parsed source file.
pub(crate) struct ParsedRustSource {
    /// The code with comments and contents of literals replaced by spaces. It has the length of the file.
    pub code: String,
    /// The same without test code.
    pub production: String,
    /// The number of lines without test code.
    pub production_lines: usize,
    /// The string literals of production code.
    pub literals: Vec<RustStringLiteral>,
    /// The modules in other files that are compiled for tests only.
    pub test_modules: Vec<String>,
    /// Whether an attribute makes the whole file test code.
    pub is_test_only: bool,
}

/// A string literal.
pub(crate) struct RustStringLiteral {
    /// The line of its opening quote, starting at 1.
    pub line: usize,
    /// Its value.
    pub text: String,
}

/// A name or keyword in code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RustIdentifierOrKeyword<'a> {
    pub text: &'a str,
    /// The offset in bytes.
    pub offset: usize,
    /// The line, starting at 1.
    pub line: usize,
}

impl ParsedRustSource {
    /// Parses the text of a file.
    pub(crate) fn parse(text: &str) -> Self {
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
                .map(|literal| RustStringLiteral { line: line_of(literal.offset), text: literal.text })
                .collect(),
            production: String::from_utf8_lossy(&production).into_owned(),
            is_test_only: lexed.code.contains("#![cfg(test)]"),
            test_modules: spans.into_iter().filter_map(|span| span.module).collect(),
            code: lexed.code,
        }
    }
}

/// Returns all words of some code, in order.
pub(crate) fn split_words(code: &str) -> Vec<RustIdentifierOrKeyword<'_>> {
    let mut words = Vec::new();
    let mut line = 1;
    let mut start = None;
    for (offset, character) in code.char_indices().chain([(code.len(), ' ')]) {
        let inside = character == '_' || character.is_alphanumeric();
        match (start, inside) {
            (None, true) => start = Some(offset),
            (Some(from), false) => {
                words.push(RustIdentifierOrKeyword { text: &code[from..offset], offset: from, line });
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
    fn test_code_is_not_production_code() {
        let source = ParsedRustSource::parse(
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
    fn words_have_their_lines() {
        let words = split_words("let a_1 =\n  b::c;");
        let lines: Vec<(&str, usize)> = words.iter().map(|word| (word.text, word.line)).collect();
        assert_eq!(lines, [("let", 1), ("a_1", 1), ("b", 2), ("c", 2)]);
        assert_eq!(words[3].offset, 15);
    }

    #[test]
    fn an_attribute_makes_a_whole_file_test_code() {
        assert!(ParsedRustSource::parse("//! Helpers.\n#![cfg(test)]\nfn a() {}\n").is_test_only);
        assert!(!ParsedRustSource::parse("//! Says `#![cfg(test)]`.\nfn a() {}\n").is_test_only);
    }
}
