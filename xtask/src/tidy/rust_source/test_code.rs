//! Finds items that are compiled for tests only, by `#[cfg(test)]`, in code without comments and literals.

use std::ops::Range;

/// An item that is compiled for tests only.
#[derive(Debug, PartialEq)]
pub(crate) struct TestOnlyItem {
    /// The range in bytes, from the attribute to the end of the item.
    pub range: Range<usize>,
    /// The name of a module in another file.
    pub module: Option<String>,
}

const TEST_ATTRIBUTES: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];

/// The first words of items. Fields, match arms and expressions can have attributes too, but end at a comma.
const ITEM_KEYWORDS: [&str; 15] = [
    "pub", "mod", "fn", "use", "const", "static", "struct", "enum", "impl", "trait", "type", "async", "unsafe",
    "extern", "let",
];

/// Returns all outermost items that are compiled for tests only, in order.
pub(crate) fn find_test_items(code: &str) -> Vec<TestOnlyItem> {
    let mut items = Vec::new();
    let mut offset = 0;
    let next_attribute = |offset: usize| {
        TEST_ATTRIBUTES.iter().filter_map(|attribute| Some(offset + code[offset..].find(attribute)?)).min()
    };
    while let Some(start) = next_attribute(offset) {
        let item = skip_attributes(code, start);
        let end = item_end(code, item);
        items.push(TestOnlyItem { range: start..end, module: test_module_file(&code[item..end]) });
        offset = end.max(start + 1);
    }
    items
}

/// Returns the offset of the item after the attributes at `start`.
fn skip_attributes(code: &str, start: usize) -> usize {
    let mut offset = start;
    while code[offset..].starts_with("#[") {
        let end = balanced_end(code, offset + 1);
        offset = end + (code[end..].len() - code[end..].trim_start().len());
    }
    offset
}

/// Returns the offset after the item at `start`: after its closing brace or semicolon, or the comma of a field or arm.
fn item_end(code: &str, start: usize) -> usize {
    let first = code[start..].split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
    let is_item = ITEM_KEYWORDS.contains(&first) || code[start..].starts_with("macro_rules!");
    let mut offset = start;
    while let Some(byte) = code.as_bytes().get(offset) {
        match byte {
            b'(' | b'[' => offset = balanced_end(code, offset),
            b'{' => return balanced_end(code, offset),
            b';' => return offset + 1,
            b',' if !is_item => return offset + 1,
            b')' | b']' | b'}' => return offset,
            _ => offset += 1,
        }
    }
    code.len()
}

/// Returns the offset after the bracket that closes the one at `open`.
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

/// Returns `name` for `pub(crate) mod name;`.
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
    fn production_items_are_not_found() {
        check("#[cfg(unix)] mod a; #[cfg(not(test))] mod b; #[test] fn c() {}", &[]);
    }

    #[test]
    fn a_module_in_another_file_has_its_name() {
        let found = find_test_items("#[cfg(test)]\npub(crate) mod fixtures;\nmod real;\n#[cfg(test)]\nmod tests {}\n");
        let names: Vec<Option<&str>> = found.iter().map(|span| span.module.as_deref()).collect();
        assert_eq!(names, [Some("fixtures"), None]);
    }

    #[test]
    fn unterminated_source_does_not_panic() {
        for code in ["#[cfg(test)]", "#[cfg(test)] mod", "#[cfg(test)] mod a {", "#[cfg(all(test,", "#[cfg(test)] #["] {
            assert_eq!(find_test_items(code).len(), 1, "{code}");
        }
    }
}
