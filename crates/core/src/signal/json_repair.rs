//! Parses JSON as models write it. Valid JSON is parsed as it is. Otherwise the parser repairs what it can without
//! inventing anything: comments, missing or extra commas, wrong or unescaped quotes, unquoted keys, Python literals,
//! line breaks in strings, and a missing end. It stops as soon as the text cannot be JSON, and looks at each byte only
//! a few times.

use crate::limits::{JSON_DEPTH_MAX, UNQUOTED_KEY_BYTES_MAX};
use serde_json::{Map, Number, Value};

/// A parsed value.
#[derive(Debug)]
pub(super) struct RepairedJson {
    pub(super) value: Value,
    /// The offset of its end in the text.
    pub(super) end: usize,
    /// True if it was not valid JSON.
    pub(super) is_repaired: bool,
    /// True if the text ended before the value did.
    pub(super) is_truncated: bool,
}

/// Parses the object or array at `start`. Otherwise returns the offset at which it became clear that there is none.
pub(super) fn parse_repairable_json_at(text: &str, start: usize) -> Result<RepairedJson, usize> {
    let mut parser = JsonRepairParser { text, at: start, is_repaired: false, is_truncated: false };
    match parser.parse_value(1, JsonContainer::Array) {
        Some(value) => {
            let JsonRepairParser { at, is_repaired, is_truncated, .. } = parser;
            Ok(RepairedJson { value, end: at, is_repaired: is_repaired || is_truncated, is_truncated })
        }
        None => Err(parser.at),
    }
}

struct JsonRepairParser<'a> {
    text: &'a str,
    at: usize,
    is_repaired: bool,
    is_truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonContainer {
    Object,
    Array,
}

/// The next element of a container.
enum NextJsonElement {
    Entry,
    End,
}

impl JsonRepairParser<'_> {
    /// Returns `None` if the text cannot be JSON.
    fn parse_value(&mut self, depth: usize, inside: JsonContainer) -> Option<Value> {
        match self.peek()? {
            '{' | '[' if depth > JSON_DEPTH_MAX => None,
            '{' => self.parse_object(depth),
            '[' => self.parse_array(depth),
            c if is_quote(c) => Some(Value::String(self.parse_string(Some(inside)))),
            _ => self.parse_bare_word(inside),
        }
    }

    fn parse_object(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut members = Map::new();
        let mut comma = CommaState::NotYet;
        while let NextJsonElement::Entry = self.advance_to_entry(&mut comma, JsonContainer::Object) {
            let is_quoted = self.peek().is_some_and(is_quote);
            let key = if is_quoted { self.parse_string(None) } else { self.parse_bare_key()? };
            self.skip_space_and_comments();
            match self.peek() {
                Some(':') => self.at += 1,
                None => {
                    self.is_truncated = true;
                    break;
                }
                Some(c) if is_quoted && (is_quote(c) || matches!(c, '{' | '[' | '0'..='9')) => self.is_repaired = true,
                Some(_) => return None,
            }
            self.skip_space_and_comments();
            let value = match self.peek() {
                None => {
                    self.is_truncated = true;
                    break;
                }
                Some(_) if self.skip_truncated_word() => break,
                Some(',' | '}' | ']') => {
                    self.is_repaired = true;
                    Value::Null
                }
                Some(_) => self.parse_value(depth + 1, JsonContainer::Object)?,
            };
            members.insert(key, value);
        }
        Some(Value::Object(members))
    }

    fn parse_array(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        let mut comma = CommaState::NotYet;
        while let NextJsonElement::Entry = self.advance_to_entry(&mut comma, JsonContainer::Array) {
            if self.skip_truncated_word() {
                break;
            }
            let item = self.parse_value(depth + 1, JsonContainer::Array)?;
            // An item that was cut off at its beginning is dropped.
            if !(self.is_truncated && is_empty_json(&item)) {
                items.push(item);
            }
        }
        Some(Value::Array(items))
    }

    /// Skips commas up to the next entry, or to the end of the container.
    fn advance_to_entry(&mut self, comma: &mut CommaState, inside: JsonContainer) -> NextJsonElement {
        loop {
            self.skip_space_and_comments();
            match self.peek() {
                None => {
                    self.is_truncated = true;
                    return NextJsonElement::End;
                }
                Some(c @ ('}' | ']')) => {
                    self.is_repaired |= *comma == CommaState::Read;
                    if (c == '}') == (inside == JsonContainer::Object) {
                        self.at += 1;
                    } else {
                        // It closes an outer container; this one was not closed.
                        self.is_repaired = true;
                    }
                    return NextJsonElement::End;
                }
                Some(',') => {
                    self.is_repaired |= *comma != CommaState::Due;
                    *comma = CommaState::Read;
                    self.at += 1;
                }
                Some(_) if self.text[self.at..].starts_with("...") => {
                    self.is_repaired = true;
                    self.at += 3;
                }
                Some(_) => {
                    self.is_repaired |= *comma == CommaState::Due;
                    *comma = CommaState::Due;
                    return NextJsonElement::Entry;
                }
            }
        }
    }

    /// Parses letters, digits, `_`, `-` and `$` up to a colon.
    fn parse_bare_key(&mut self) -> Option<String> {
        let end = find_bare_key_end(&self.text[self.at..])?;
        let key = self.text[self.at..self.at + end].to_owned();
        self.at += end;
        self.is_repaired = true;
        Some(key)
    }

    /// Parses a string in `inside`, or a key.
    fn parse_string(&mut self, inside: Option<JsonContainer>) -> String {
        let Some(opening) = self.next_char() else { return String::new() };
        let closing = if opening == '“' { '”' } else { opening };
        self.is_repaired |= opening != '"';
        let mut out = String::new();
        while let Some(c) = self.next_char() {
            match c {
                '\\' => self.parse_escape(&mut out),
                c if c == closing => {
                    if inside.is_none_or(|inside| self.quote_closes_string(inside)) {
                        return out;
                    }
                    self.is_repaired = true;
                    out.push(c);
                }
                c => {
                    self.is_repaired |= c < ' ';
                    out.push(c);
                }
            }
        }
        self.is_truncated = true;
        out
    }

    /// Decides from the following text whether a quote that was just read ends its string.
    fn quote_closes_string(&self, inside: JsonContainer) -> bool {
        let rest = &self.text[self.at..];
        let next = rest.trim_start();
        let Some(c) = next.chars().next() else { return true };
        match c {
            '}' | ']' | '#' => true,
            '/' => next.starts_with("//") || next.starts_with("/*"),
            ',' => {
                let next = next[1..].trim_start();
                next.is_empty()
                    || next.starts_with(['"', '\'', '“', '}', ']', '#', '/', ',', '.'])
                    || match inside {
                        JsonContainer::Object => find_bare_key_end(next).is_some(),
                        JsonContainer::Array => {
                            next.starts_with(['{', '[']) || starts_with_number(next) || starts_with_literal(next)
                        }
                    }
            }
            c => is_quote(c) && rest[..rest.len() - next.len()].contains('\n'),
        }
    }

    /// Parses the rest of an escape sequence.
    fn parse_escape(&mut self, out: &mut String) {
        match self.next_char() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some(c @ ('"' | '\\' | '/')) => out.push(c),
            Some('u') => match self.parse_code_unit() {
                Some(unit) => self.push_unicode(unit, out),
                None => {
                    self.is_repaired = true;
                    out.push_str("\\u");
                }
            },
            Some('\'') => {
                self.is_repaired = true;
                out.push('\'');
            }
            Some(c) => {
                // A path or a formula, in which the backslash is meant.
                self.is_repaired = true;
                out.push('\\');
                out.push(c);
            }
            None => {}
        }
    }

    /// Pushes the character of `unit`, together with the following one if they are a surrogate pair.
    fn push_unicode(&mut self, unit: u16, out: &mut String) {
        let before = self.at;
        let second = if self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            self.parse_code_unit()
        } else {
            None
        };
        let mut decoded = char::decode_utf16([unit].into_iter().chain(second));
        match (decoded.next(), decoded.next()) {
            (Some(Ok(c)), None) if second.is_some() => out.push(c),
            (first, _) => {
                // The second unit, if any, is a character of its own.
                self.at = before;
                let c = first.and_then(Result::ok);
                self.is_repaired |= c.is_none();
                out.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    fn parse_code_unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unit = u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        self.at += 4;
        Some(unit)
    }

    /// Skips a word that the end of the text cuts off, if there is one here.
    fn skip_truncated_word(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let is_half = find_token_end(rest) == rest.len()
            && !rest.starts_with(is_quote)
            && parse_literal(rest).is_none()
            && parse_number(rest).is_none();
        if is_half {
            self.at = self.text.len();
            self.is_truncated = true;
        }
        is_half
    }

    /// Parses a number, a literal or, in an object, unquoted text.
    fn parse_bare_word(&mut self, inside: JsonContainer) -> Option<Value> {
        let rest = &self.text[self.at..];
        let token_end = find_token_end(rest);
        let token = &rest[..token_end];
        if let Some((value, is_valid)) = parse_literal(token).or_else(|| parse_number(token)) {
            self.at += token_end;
            self.is_repaired |= !is_valid;
            return Some(value);
        }
        if inside == JsonContainer::Array {
            return None;
        }
        let end = rest.find([',', '}', ']', '\n', '{', '[', '"']).unwrap_or(rest.len());
        let words = rest[..end].trim();
        if words.is_empty() || rest[end..].starts_with(['{', '[', '"']) {
            return None;
        }
        self.at += end;
        self.is_repaired = true;
        Some(Value::String(words.to_owned()))
    }

    fn skip_space_and_comments(&mut self) {
        loop {
            let rest = self.text[self.at..].trim_start();
            self.at = self.text.len() - rest.len();
            // `[#1]` is not a comment.
            let is_apart = self.text[..self.at].ends_with(char::is_whitespace);
            let comment = if rest.starts_with("//") || (rest.starts_with('#') && is_apart) {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else {
                return;
            };
            self.at += comment;
            self.is_repaired = true;
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }
}

/// The state between two entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommaState {
    /// There was no entry yet.
    NotYet,
    /// An entry was read, and no comma since.
    Due,
    /// A comma was read, and no entry since.
    Read,
}

fn is_empty_json(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '“')
}

/// Returns the end of the number or word at the beginning of `text`.
fn find_token_end(text: &str) -> usize {
    let is_delimiter = |c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']' | '{' | '[' | ':' | '"');
    text.find(is_delimiter).unwrap_or(text.len())
}

/// Returns the end of the unquoted key at the beginning of `text`, if a colon follows.
fn find_bare_key_end(text: &str) -> Option<usize> {
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
    let end = text.bytes().take(UNQUOTED_KEY_BYTES_MAX).take_while(|byte| is_key(*byte)).count();
    let rest = text[end..].trim_start_matches(' ');
    (end > 0 && rest.starts_with(':')).then_some(end)
}

const LITERALS: [(&str, Option<bool>); 9] = [
    ("true", Some(true)),
    ("false", Some(false)),
    ("null", None),
    ("True", Some(true)),
    ("False", Some(false)),
    ("None", None),
    ("undefined", None),
    ("NaN", None),
    ("nil", None),
];
const VALID_LITERALS: usize = 3;

/// Returns the value of a literal, and whether JSON has it.
fn parse_literal(token: &str) -> Option<(Value, bool)> {
    let index = LITERALS.iter().position(|(word, _)| *word == token)?;
    Some((LITERALS[index].1.map_or(Value::Null, Value::Bool), index < VALID_LITERALS))
}

fn starts_with_literal(text: &str) -> bool {
    LITERALS.iter().any(|(word, _)| text.starts_with(word))
}

fn starts_with_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
}

/// Returns the number, and whether it is valid JSON.
fn parse_number(token: &str) -> Option<(Value, bool)> {
    if !starts_with_number(token) {
        return None;
    }
    if let Ok(number) = serde_json::from_str::<Number>(token) {
        return Some((Value::Number(number), true));
    }
    let is_plain = token.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = token.parse().ok().filter(|_| is_plain)?;
    // Integers stay integers: `007` and `+7` are 7.
    let whole = token.trim_start_matches('+').parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(number)).map(|number| (Value::Number(number), false))
}
