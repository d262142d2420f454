//! Finds what is compiled for tests only: items under `#[cfg(test)]`, wherever they stand. Works on code whose comments
//! and literals are blank already.

use std::ops::Range;

/// An item for tests only.
#[derive(Debug, PartialEq)]
pub struct TestItem {
    /// From its attribute to its end, in bytes.
    pub range: Range<usize>,
    /// Its name, if it is a module in a file of its own.
    pub module: Option<String>,
}

const TEST_ATTRIBUTES: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];

/// Attributes stand before items, but also before fields, arms and expressions; those end at a comma.
const ITEM_KEYWORDS: [&str; 15] = [
    "pub", "mod", "fn", "use", "const", "static", "struct", "enum", "impl", "trait", "type", "async", "unsafe",
    "extern", "let",
];

/// All items for tests only, in order, none inside another.
pub fn find_test_items(code: &str) -> Vec<TestItem> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(start) = TEST_ATTRIBUTES.iter().filter_map(|mark| Some(at + code[at..].find(mark)?)).min() {
        let item = skip_attributes(code, start);
        let end = item_end(code, item);
        spans.push(TestItem { range: start..end, module: test_module_file(&code[item..end]) });
        at = end.max(start + 1);
    }
    spans
}

/// Where the item begins whose attributes begin here.
fn skip_attributes(code: &str, start: usize) -> usize {
    let mut at = start;
    while code[at..].starts_with("#[") {
        let end = balanced_end(code, at + 1);
        at = end + (code[end..].len() - code[end..].trim_start().len());
    }
    at
}

/// Behind the closing brace, semicolon or (for what is no item) comma that ends what begins here.
fn item_end(code: &str, start: usize) -> usize {
    let first = code[start..].split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
    let is_item = ITEM_KEYWORDS.contains(&first) || code[start..].starts_with("macro_rules!");
    let mut at = start;
    while let Some(byte) = code.as_bytes().get(at) {
        match byte {
            b'(' | b'[' => at = balanced_end(code, at),
            b'{' => return balanced_end(code, at),
            b';' => return at + 1,
            b',' if !is_item => return at + 1,
            b')' | b']' | b'}' => return at,
            _ => at += 1,
        }
    }
    code.len()
}

/// Behind the bracket that closes the one here.
fn balanced_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// `pub(crate) mod name;` → `name`.
fn test_module_file(item: &str) -> Option<String> {
    let declaration = item.trim_end().strip_suffix(';')?;
    let mut words = declaration.split_whitespace().rev();
    let name = words.next()?;
    (words.next()? == "mod").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &[&str]) {
        let found: Vec<&str> = find_test_items(code).into_iter().map(|span| &code[span.range]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_test_module_ends_at_its_brace() {
        check(
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { {} } }\nfn c() {}",
            &["#[cfg(test)]\nmod tests { fn b() { {} } }"],
        );
    }

    #[test]
    fn further_attributes_belong_to_the_item() {
        check(
            "#[cfg(test)]\n#[derive(Debug)]\nstruct A { b: u8 }\nstruct B;",
            &["#[cfg(test)]\n#[derive(Debug)]\nstruct A { b: u8 }"],
        );
        check(
            "#[cfg(all(test, unix))]\nfn a() -> [u8; 2] { [1, 2] } fn b() {}",
            &["#[cfg(all(test, unix))]\nfn a() -> [u8; 2] { [1, 2] }"],
        );
    }

    #[test]
    fn a_field_ends_at_its_comma() {
        check("struct A { #[cfg(test)] b: u8, c: u8 }", &["#[cfg(test)] b: u8,"]);
        check("struct A { #[cfg(test)] b: u8 } fn x() {}", &["#[cfg(test)] b: u8 "]);
    }

    #[test]
    fn production_items_are_left_alone() {
        check("#[cfg(unix)] mod a; #[cfg(not(test))] mod b; #[test] fn c() {}", &[]);
    }

    #[test]
    fn a_module_in_its_own_file_is_named() {
        let found = find_test_items("#[cfg(test)]\npub(crate) mod fixtures;\nmod real;\n#[cfg(test)]\nmod tests {}\n");
        let names: Vec<Option<&str>> = found.iter().map(|span| span.module.as_deref()).collect();
        assert_eq!(names, [Some("fixtures"), None]);
    }

    #[test]
    fn nothing_unfinished_breaks_it() {
        for code in ["#[cfg(test)]", "#[cfg(test)] mod", "#[cfg(test)] mod a {", "#[cfg(all(test,", "#[cfg(test)] #["] {
            assert_eq!(find_test_items(code).len(), 1, "{code}");
        }
    }
}
