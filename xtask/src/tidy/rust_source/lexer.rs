//! Tells code from comments and literals. Anything unfinished (an open quote, an open comment) reaches to the end of the
//! file: the compiler will complain about it, we need not.

/// What a file falls into.
pub struct LexedSource {
    /// The file with comments and the insides of literals turned into spaces; lines and offsets stay.
    pub code: String,
    /// Its string literals, in order.
    pub literals: Vec<LexedLiteral>,
}

/// A string literal and where it begins, in bytes.
pub struct LexedLiteral {
    pub offset: usize,
    pub text: String,
}

/// Takes a file apart.
pub fn lex_rust(text: &str) -> LexedSource {
    let mut lexer = RustLexer { text, position: 0, code: Vec::with_capacity(text.len()), literals: Vec::new() };
    while lexer.position < text.len() {
        lexer.consume_token();
    }
    LexedSource { code: String::from_utf8_lossy(&lexer.code).into_owned(), literals: lexer.literals }
}

struct RustLexer<'a> {
    text: &'a str,
    position: usize,
    code: Vec<u8>,
    literals: Vec<LexedLiteral>,
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
            // The prefix of a byte or C string is a word of its own; its quote comes next.
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
        self.literals.push(LexedLiteral { offset, text: unescape(&inner[..len]) });
        self.copy_code(1);
        self.blank_out(len);
        self.copy_code(usize::from(self.position < self.text.len()));
    }

    fn consume_raw_string(&mut self, open: usize, hashes: usize) {
        let offset = self.position;
        let inner = &self.text[self.position + open..];
        let close = format!("\"{}", "#".repeat(hashes));
        let len = inner.find(&close).unwrap_or(inner.len());
        self.literals.push(LexedLiteral { offset, text: inner[..len].to_owned() });
        self.copy_code(open);
        self.blank_out(len);
        self.copy_code(close.len().min(self.text.len() - self.position));
    }
}

/// Block comments nest.
fn block_comment_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0usize, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The length of `r##"` and its like, and the number of hashes in it. A raw identifier (`r#type`) is none.
fn raw_string_opening(rest: &str) -> Option<(usize, usize)> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| {
        rest.strip_prefix(prefix).filter(|after| after.starts_with('"') || after.starts_with('#'))
    })?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then(|| (rest.len() - after.len() + hashes + 1, hashes))
}

/// The length of a character literal, or 0 for a lifetime or label.
fn char_literal_len(rest: &str) -> usize {
    let mut inner = rest.char_indices().skip(1);
    match inner.next() {
        Some((_, '\\')) => {
            let escaped = inner.next().map_or(rest.len(), |(at, c)| at + c.len_utf8());
            rest[escaped..].find('\'').map_or(rest.len(), |close| escaped + close + 1)
        }
        Some(_) => match inner.next() {
            Some((close, '\'')) => close + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// Where a string ends, given what follows its opening quote.
fn closing_quote(inner: &str) -> Option<usize> {
    let mut escaped = false;
    inner.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// What an ordinary string says. An unknown escape stands for itself.
fn unescape(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
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

/// Resolves what follows `\x` or `\u` and returns the text behind it.
fn unescape_number<'a>(text: &mut String, kind: char, rest: &'a str) -> &'a str {
    let (digits, behind) = if kind == 'x' {
        rest.split_at_checked(2).unwrap_or((rest, ""))
    } else {
        rest.strip_prefix('{').and_then(|inner| inner.split_once('}')).unwrap_or(("", rest))
    };
    let digits = digits.replace('_', "");
    text.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
    behind
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
    fn nothing_unfinished_breaks_it() {
        for source in ["\"abc", "r#\"abc\"", "/* /* */", "'\\", "'", "b'", "r##", "\"\\", "\"\\x4", "\"\\u{", "\"\\u"] {
            assert_eq!(lex_rust(source).code.len(), source.len(), "{source}");
        }
    }
}
