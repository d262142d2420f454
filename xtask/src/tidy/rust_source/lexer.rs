//! Separates code from comments and literals. An unterminated literal or comment extends to the end of the file; the
//! compiler reports it.

/// The code and the literals of a file.
pub(crate) struct LexedRustSource {
    /// The file with comments and contents of literals replaced by spaces; lines and offsets stay the same.
    pub code: String,
    /// The string literals, in order.
    pub literals: Vec<LexedStringLiteral>,
}

/// A string literal and its offset in bytes.
pub(crate) struct LexedStringLiteral {
    pub offset: usize,
    pub text: String,
}

/// Lexes a file.
pub(crate) fn lex_rust(text: &str) -> LexedRustSource {
    let mut lexer = RustLexer { text, position: 0, code: Vec::with_capacity(text.len()), literals: Vec::new() };
    while lexer.position < text.len() {
        lexer.consume_token();
    }
    LexedRustSource { code: String::from_utf8_lossy(&lexer.code).into_owned(), literals: lexer.literals }
}

struct RustLexer<'a> {
    text: &'a str,
    position: usize,
    code: Vec<u8>,
    literals: Vec<LexedStringLiteral>,
}

impl RustLexer<'_> {
    /// Consumes one comment, literal, word or other character.
    fn consume_token(&mut self) {
        let rest = &self.text[self.position..];
        let Some(first) = rest.chars().next() else { return };
        if rest.starts_with("//") {
            self.blank_out(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank_out(block_comment_len(rest));
        } else if let Some((open, hashes)) = raw_string_opening(rest) {
            self.consume_raw_string(open, hashes);
        } else if first == '"' {
            self.consume_string();
        } else if first == '\'' {
            let len = char_literal_len(rest);
            if len > 0 { self.blank_out(len) } else { self.copy_code(1) }
        } else if first == '_' || first.is_alphanumeric() {
            // The prefix of a byte or C string is lexed as a word; its quote comes next.
            let len = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            self.copy_code(len);
        } else {
            self.copy_code(first.len_utf8());
        }
    }

    fn copy_code(&mut self, len: usize) {
        self.code.extend_from_slice(&self.text.as_bytes()[self.position..self.position + len]);
        self.position += len;
    }

    fn blank_out(&mut self, len: usize) {
        let bytes = &self.text.as_bytes()[self.position..self.position + len];
        self.code.extend(bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        self.position += len;
    }

    fn consume_string(&mut self) {
        let offset = self.position;
        let inner = &self.text[self.position + 1..];
        let len = closing_quote(inner).unwrap_or(inner.len());
        self.literals.push(LexedStringLiteral { offset, text: unescape(&inner[..len]) });
        self.copy_code(1);
        self.blank_out(len);
        self.copy_code(usize::from(self.position < self.text.len()));
    }

    fn consume_raw_string(&mut self, open: usize, hashes: usize) {
        let offset = self.position;
        let inner = &self.text[self.position + open..];
        let close = format!("\"{}", "#".repeat(hashes));
        let len = inner.find(&close).unwrap_or(inner.len());
        self.literals.push(LexedStringLiteral { offset, text: inner[..len].to_owned() });
        self.copy_code(open);
        self.blank_out(len);
        self.copy_code(close.len().min(self.text.len() - self.position));
    }
}

/// Returns the length of a block comment, which may contain others.
fn block_comment_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut offset) = (0usize, 0);
    while offset < bytes.len() {
        if bytes[offset..].starts_with(b"/*") {
            depth += 1;
            offset += 2;
        } else if bytes[offset..].starts_with(b"*/") {
            depth -= 1;
            offset += 2;
            if depth == 0 {
                return offset;
            }
        } else {
            offset += 1;
        }
    }
    bytes.len()
}

/// Returns the length of an opening such as `r##"`, and its number of hashes. A raw identifier (`r#type`) is not one.
fn raw_string_opening(rest: &str) -> Option<(usize, usize)> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| {
        rest.strip_prefix(prefix).filter(|after| after.starts_with('"') || after.starts_with('#'))
    })?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then(|| (rest.len() - after.len() + hashes + 1, hashes))
}

/// Returns the length of a character literal, or 0 for a lifetime or label.
fn char_literal_len(rest: &str) -> usize {
    let mut inner = rest.char_indices().skip(1);
    match inner.next() {
        Some((_, '\\')) => {
            let escaped = inner.next().map_or(rest.len(), |(offset, c)| offset + c.len_utf8());
            rest[escaped..].find('\'').map_or(rest.len(), |close| escaped + close + 1)
        }
        Some(_) => match inner.next() {
            Some((close, '\'')) => close + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// Returns the offset of the closing quote in the text after the opening quote.
fn closing_quote(inner: &str) -> Option<usize> {
    let mut escaped = false;
    inner.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// Returns the value of an ordinary string. An unknown escape keeps its character.
fn unescape(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(offset) = rest.find('\\') {
        text.push_str(&rest[..offset]);
        let escape = &rest[offset + 1..];
        let Some(kind) = escape.chars().next() else { break };
        rest = &escape[kind.len_utf8()..];
        match kind {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '\n' => rest = rest.trim_start(),
            'x' | 'u' => rest = unescape_number(&mut text, kind, rest),
            other => text.push(other),
        }
    }
    text.push_str(rest);
    text
}

/// Resolves the escape `\x` or `\u` and returns the text after it.
fn unescape_number<'a>(text: &mut String, kind: char, rest: &'a str) -> &'a str {
    let (digits, after) = if kind == 'x' {
        rest.split_at_checked(2).unwrap_or((rest, ""))
    } else {
        rest.strip_prefix('{').and_then(|inner| inner.split_once('}')).unwrap_or(("", rest))
    };
    let digits = digits.replace('_', "");
    text.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &str, literals: &[&str]) {
        let lexed = lex_rust(source);
        assert_eq!(lexed.code, code);
        assert_eq!(lexed.code.len(), source.len(), "offsets must stay");
        let texts: Vec<&str> = lexed.literals.iter().map(|literal| literal.text.as_str()).collect();
        assert_eq!(texts, literals);
    }

    #[test]
    fn comments_are_blank() {
        check("a // b \"c\"\nd", "a         \nd", &[]);
        check("a /* b /* \"c */ d */ e", "a                    e", &[]);
        check("/// it's \"open\nfn", "              \nfn", &[]);
    }

    #[test]
    fn strings_are_blank_and_collected() {
        check(r#"a("b // c", "")"#, r#"a("      ", "")"#, &["b // c", ""]);
        check(r#"("say \"you\"");x"#, r#"("           ");x"#, &["say \"you\""]);
        check("b\"ab\" c\"cd\"", "b\"  \" c\"  \"", &["ab", "cd"]);
        check("\"ż\"", "\"  \"", &["ż"]);
    }

    #[test]
    fn escapes_are_resolved() {
        check(r#""\\""#, r#""  ""#, &["\\"]);
        check(r#""\x41\u{1_7c}\n\t\q""#, r#""                  ""#, &["A\u{17c}\n\tq"]);
        check("\"one \\\n     two\"", "\"     \n        \"", &["one two"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        check(r##"r#"a "b" \"#;c"##, r##"r#"       "#;c"##, &["a \"b\" \\"]);
        check("r\"a\\\" br\"b\" cr\"c\"", "r\"  \" br\" \" cr\" \"", &["a\\", "b", "c"]);
        check("r#type our\"x\"", "r#type our\" \"", &["x"]);
    }

    #[test]
    fn a_quote_character_opens_no_string() {
        check("'\"' + '\\'' + '\\\\' + 'a", "    +      +      + 'a", &[]);
        check("fn f<'a>(x: &'a str, c: '\u{17c}')", "fn f<'a>(x: &'a str, c:     )", &[]);
    }

    #[test]
    fn unterminated_source_does_not_panic() {
        for source in ["\"abc", "r#\"abc\"", "/* /* */", "'\\", "'", "b'", "r##", "\"\\", "\"\\x4", "\"\\u{", "\"\\u"] {
            assert_eq!(lex_rust(source).code.len(), source.len(), "{source}");
        }
    }
}
