//! Parses the content of a block as fields. Only keys in the caller's schema count, so that a line of prose with a
//! colon stays prose.
//!
//! - A key consists of letters, digits, `_`, `-` and spaces (at most [`FIELD_KEY_CHARS_MAX`]), then a colon, at the
//!   beginning of a line, optionally in `**bold**`. Case does not matter, and spaces, `-` and `_` are equal: `Key
//!   findings` is `key_findings`.
//! - A value continues until the next known key that is not indented more than its own (with one column of tolerance).
//! - An **unknown key** ends the value before it, with a complaint, and its own value is ignored. It must look like a key:
//!   one word of lower-case ASCII letters, digits and `_`, then a colon and a space, in a line that is not indented more
//!   than the key before it.
//! - A section has its own fields. They should be indented, and the text after the section should not. Otherwise a key
//!   belongs to the section that knows it.
//! - A raw value extends to the end of the block, whatever it contains.
//! - `null`, `none`, `[]` and an empty value are absent.
//! - If a key is repeated, the first value is used.

use super::{BlockComplaint, list_value, push_complaint, shorten_excerpt};
use crate::limits::FIELD_KEY_CHARS_MAX;

/// The number of columns by which a key may be indented more than the previous one.
const INDENT_SLACK: usize = 1;

/// An empty list also means an absent value where no list is expected.
const EMPTY_LIST: &str = "[]";

/// The known keys of a block or section; by default none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockFieldSchema {
    keys: Vec<(String, BlockFieldKind)>,
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockFieldKind {
    /// Text, possibly over several lines.
    Text,
    /// Several texts: `[a, "b, c"]`, or one per bullet or number.
    List,
    /// Nested fields.
    Section(BlockFieldSchema),
    /// Everything to the end of the block, verbatim.
    Raw,
    /// No field, but the key of an entry that the caller parses. It only shows that a block was intended.
    Entry,
}

impl BlockFieldSchema {
    /// Returns the schema with a field added, or replaced if the key is known.
    #[must_use]
    pub fn with_key(mut self, key: &str, kind: BlockFieldKind) -> Self {
        let key = normalize_key(key);
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = kind,
            None => self.keys.push((key, kind)),
        }
        self
    }

    /// Returns true if the key is known at any depth.
    fn knows_key(&self, key: &str) -> bool {
        self.any_key(&|known| known == key)
    }

    /// Returns true if `test` holds for a key at any depth.
    fn any_key(&self, test: &dyn Fn(&str) -> bool) -> bool {
        let within = |kind: &BlockFieldKind| matches!(kind, BlockFieldKind::Section(schema) if schema.any_key(test));
        self.keys.iter().any(|(known, kind)| test(known) || within(kind))
    }

    fn field_kind(&self, key: &str) -> Option<&BlockFieldKind> {
        self.fields().find(|(known, _)| known == key).map(|(_, kind)| kind)
    }

    fn fields(&self) -> impl Iterator<Item = &(String, BlockFieldKind)> {
        self.keys.iter().filter(|(_, kind)| *kind != BlockFieldKind::Entry)
    }
}

/// The fields of a block, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockFields {
    pub(super) entries: Vec<(String, BlockFieldValue)>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockFieldValue {
    /// The key is present without a value.
    Absent,
    Text(String),
    /// At least one item.
    List(Vec<String>),
    /// At least one field.
    Section(BlockFields),
}

impl BlockFields {
    /// Returns the text of `key`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(BlockFieldValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the items of `key`; a text counts as one item.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(BlockFieldValue::List(items)) => items.clone(),
            Some(BlockFieldValue::Text(text)) => vec![text.clone()],
            _ => Vec::new(),
        }
    }

    /// Returns the fields of the section `key`.
    #[must_use]
    pub fn section(&self, key: &str) -> Option<&BlockFields> {
        match self.get(key) {
            Some(BlockFieldValue::Section(fields)) => Some(fields),
            _ => None,
        }
    }

    /// Returns the value of `key`, if it is present.
    #[must_use]
    pub(crate) fn get(&self, key: &str) -> Option<&BlockFieldValue> {
        let key = normalize_key(key);
        self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Returns true if there are no fields.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Parses the content of the block `name`.
pub(super) fn parse_block_fields(
    name: &str,
    raw: &str,
    schema: &BlockFieldSchema,
    complaints: &mut Vec<BlockComplaint>,
) -> BlockFields {
    if schema.fields().next().is_none() {
        return BlockFields::default();
    }
    let mut reader = BlockFieldParser { frames: vec![OpenBlockSection::new(name.to_owned(), schema)], complaints };
    let mut offset = 0;
    for line in raw.split_inclusive('\n') {
        let end = offset + line.len();
        if let Some(mut key) = BlockFieldKeyLine::parse(line) {
            if offset > 0 && reader.end_value_at_unknown_key(&key, line) {
                offset = end;
                continue;
            }
            if offset == 0 {
                // The key is on the line of the start marker, so its indentation means nothing.
                key.indent = usize::MAX - 1;
            }
            if let Some(kind) = reader.close_fields_and_resolve_key(&key) {
                let value_at = end - key.rest.len();
                if *kind == BlockFieldKind::Raw {
                    reader.store_raw_value(&key, &raw[value_at..]);
                    break;
                }
                reader.open_field(key, kind);
                offset = end;
                continue;
            }
        }
        reader.push_continuation_line(line);
        offset = end;
    }
    reader.finish()
}

/// Returns true if any line begins with a known key, possibly as a list item.
pub(super) fn has_known_key(raw: &str, schema: &BlockFieldSchema) -> bool {
    raw.lines().any(|line| {
        let line = line.trim_start().trim_start_matches(['-', '+']);
        BlockFieldKeyLine::parse(line).is_some_and(|key| schema.knows_key(&key.name))
    })
}

/// Returns true if a line without a colon is the beginning of a known key, possibly as a list item.
pub(super) fn may_become_known_key(line: &str, schema: &BlockFieldSchema) -> bool {
    let part = normalize_key(line.trim_start().trim_start_matches(['-', '+', '*', ' ']).trim_end_matches('*'));
    schema.any_key(&|known| known.starts_with(&part))
}

/// A line that looks like the beginning of a field.
struct BlockFieldKeyLine<'a> {
    name: String,
    indent: usize,
    rest: &'a str,
}

impl<'a> BlockFieldKeyLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        const BOLD: &str = "**";
        let trimmed = line.trim_start_matches([' ', '\t']);
        let indent = count_indent_columns(&line[..line.len() - trimmed.len()]);
        let (bold, trimmed) = match trimmed.strip_prefix(BOLD) {
            Some(inner) => (true, inner),
            None => (false, trimmed),
        };
        // Two more for the asterisks that may close the bold text.
        let (colon, _) = trimmed.char_indices().take(FIELD_KEY_CHARS_MAX + 3).find(|(_, c)| *c == ':')?;
        let (mut name, mut rest) = (trimmed[..colon].trim_end(), &trimmed[colon + 1..]);
        if bold {
            match name.strip_suffix(BOLD) {
                Some(inner) => name = inner,
                None => rest = rest.strip_prefix(BOLD)?,
            }
        }
        let is_word = name.chars().any(char::is_alphanumeric)
            && name.chars().count() <= FIELD_KEY_CHARS_MAX
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
        is_word.then(|| Self { name: normalize_key(name), indent, rest })
    }
}

/// A block or section in progress.
struct OpenBlockSection<'a> {
    /// The path for complaints.
    path: String,
    schema: &'a BlockFieldSchema,
    fields: BlockFields,
    open: Option<OpenBlockField<'a>>,
    stray: Option<&'a str>,
    /// The indentation of the unknown key that the lines belong to.
    unknown_key_indent: Option<usize>,
}

/// A field in progress.
struct OpenBlockField<'a> {
    name: String,
    indent: usize,
    kind: &'a BlockFieldKind,
    first: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> OpenBlockSection<'a> {
    fn new(path: String, schema: &'a BlockFieldSchema) -> Self {
        Self { path, schema, fields: BlockFields::default(), open: None, stray: None, unknown_key_indent: None }
    }
}

struct BlockFieldParser<'a, 'c> {
    /// The block, the open section, the open section in it, and so on.
    frames: Vec<OpenBlockSection<'a>>,
    complaints: &'c mut Vec<BlockComplaint>,
}

impl<'a> BlockFieldParser<'a, '_> {
    /// Closes the fields that `key` ends and returns its type, if the key is known here.
    fn close_fields_and_resolve_key(&mut self, key: &BlockFieldKeyLine<'a>) -> Option<&'a BlockFieldKind> {
        let value_before = self
            .frames
            .last()
            .and_then(|frame| frame.open.as_ref().map(|field| field.indent).or(frame.unknown_key_indent));
        if value_before.is_some_and(|indent| key.indent > indent.saturating_add(INDENT_SLACK)) {
            return None;
        }
        let mut resolved = None;
        for (depth, frame) in self.frames.iter().enumerate().rev() {
            if let Some(kind) = frame.schema.field_kind(&key.name) {
                resolved = Some((depth, kind));
            }
            let section = depth.checked_sub(1).and_then(|outer| self.frames[outer].open.as_ref());
            let is_indented = section.is_none_or(|section| key.indent > section.indent);
            if resolved.is_some() && is_indented {
                break;
            }
        }
        let (depth, kind) = resolved?;
        while self.frames.len() > depth + 1 {
            self.close_section();
        }
        self.close_field();
        Some(kind)
    }

    /// Ends the open value at a line that looks like a key but is not known. Returns false if the line is not such a key.
    fn end_value_at_unknown_key(&mut self, key: &BlockFieldKeyLine<'a>, line: &str) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        let Some(field) = &frame.open else { return false };
        let is_key_shaped = line.trim_start().split(':').next().is_some_and(|name| {
            let is_key_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_key_char)
        });
        // An address such as `https://…` has no space after its colon.
        let is_key_shaped = is_key_shaped && key.rest.chars().next().is_none_or(char::is_whitespace);
        let is_known = self.frames.iter().any(|frame| frame.schema.knows_key(&key.name));
        if !is_key_shaped || is_known || key.indent > field.indent || matches!(field.kind, BlockFieldKind::Section(_)) {
            return false;
        }
        let at = format!("{}.{}", frame.path, key.name);
        self.close_field();
        push_complaint(self.complaints, BlockComplaint::UnknownKey { at });
        if let Some(frame) = self.frames.last_mut() {
            frame.unknown_key_indent = Some(key.indent);
        }
        true
    }

    fn open_field(&mut self, key: BlockFieldKeyLine<'a>, kind: &'a BlockFieldKind) {
        let Some(frame) = self.frames.last_mut() else { return };
        let path = format!("{}.{}", frame.path, key.name);
        frame.unknown_key_indent = None;
        frame.open =
            Some(OpenBlockField { name: key.name, indent: key.indent, kind, first: key.rest, lines: Vec::new() });
        if let BlockFieldKind::Section(schema) = kind {
            self.frames.push(OpenBlockSection::new(path, schema));
        }
    }

    fn store_raw_value(&mut self, key: &BlockFieldKeyLine<'a>, text: &'a str) {
        let blank_lines = text.split_inclusive('\n').take_while(|line| line.trim().is_empty()).map(str::len).sum();
        let text = if blank_lines == 0 { text.trim_start() } else { &text[blank_lines..] };
        let text = text.trim_end();
        let value =
            if is_absent_value(text) { BlockFieldValue::Absent } else { BlockFieldValue::Text(text.to_owned()) };
        self.store_value(key.name.clone(), value);
    }

    /// Adds a line without a key.
    fn push_continuation_line(&mut self, line: &'a str) {
        let Some(frame) = self.frames.last_mut() else { return };
        match &mut frame.open {
            Some(field) => field.lines.push(line.trim_end_matches(['\n', '\r'])),
            None if frame.unknown_key_indent.is_some() => {}
            None if frame.stray.is_none() && !line.trim().is_empty() => frame.stray = Some(line),
            None => {}
        }
    }

    fn finish(mut self) -> BlockFields {
        while self.frames.len() > 1 {
            self.close_section();
        }
        self.close_field();
        self.report_text_outside_fields();
        self.frames.pop().map(|frame| frame.fields).unwrap_or_default()
    }

    fn report_text_outside_fields(&mut self) {
        if let Some(frame) = self.frames.last_mut()
            && let Some(text) = frame.stray.take()
        {
            let complaint = BlockComplaint::StrayText { at: frame.path.clone(), text: shorten_excerpt(text) };
            push_complaint(self.complaints, complaint);
        }
    }

    /// Closes the innermost section and stores its fields as a value of the outer one.
    fn close_section(&mut self) {
        self.close_field();
        let Some(inner) = self.frames.pop() else { return };
        let Some(field) = self.frames.last_mut().and_then(|frame| frame.open.take()) else { return };
        let text = if is_absent_value(field.first) { inner.stray.unwrap_or("") } else { field.first };
        if !is_absent_value(text) && text.trim() != EMPTY_LIST {
            let text = shorten_excerpt(text);
            let at = inner.path;
            let complaint = if inner.fields.is_empty() {
                BlockComplaint::ExpectedSection { at, text }
            } else {
                BlockComplaint::StrayText { at, text }
            };
            push_complaint(self.complaints, complaint);
        }
        let value =
            if inner.fields.is_empty() { BlockFieldValue::Absent } else { BlockFieldValue::Section(inner.fields) };
        self.store_value(field.name, value);
    }

    /// Closes the open field of the innermost frame, which is not a section.
    fn close_field(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(field) = frame.open.take() else { return };
        let at = format!("{}.{}", frame.path, field.name);
        let value = match field.kind {
            BlockFieldKind::List => list_value::parse_list_value(field.first, &field.lines, &at, self.complaints),
            BlockFieldKind::Text | BlockFieldKind::Raw | BlockFieldKind::Section(_) | BlockFieldKind::Entry => {
                parse_text_value(field.first, &field.lines)
            }
        };
        self.store_value(field.name, value);
    }

    fn store_value(&mut self, name: String, value: BlockFieldValue) {
        let Some(frame) = self.frames.last_mut() else { return };
        if frame.fields.entries.iter().any(|(known, _)| *known == name) {
            push_complaint(self.complaints, BlockComplaint::RepeatedKey { at: format!("{}.{name}", frame.path) });
        } else {
            frame.fields.entries.push((name, value));
        }
    }
}

/// Returns the text after the key and the following lines, without their common indentation.
fn parse_text_value(first: &str, lines: &[&str]) -> BlockFieldValue {
    const BLOCK_SCALARS: [&str; 6] = ["|", ">", "|-", ">-", "|+", ">+"];
    let first = first.trim();
    let first = if BLOCK_SCALARS.contains(&first) && !lines.is_empty() { "" } else { first };
    let indent_of = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let shared = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| indent_of(line)).min().unwrap_or(0);
    let mut text = first.to_owned();
    for line in lines {
        text.push('\n');
        text.push_str(line.get(shared.min(indent_of(line))..).unwrap_or("").trim_end());
    }
    let text = strip_double_quotes(text.trim());
    if is_absent_value(text) || text == EMPTY_LIST {
        BlockFieldValue::Absent
    } else {
        BlockFieldValue::Text(text.to_owned())
    }
}

/// Removes a pair of double quotes around the whole text.
pub(super) fn strip_double_quotes(text: &str) -> &str {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) if !inner.contains('"') => inner,
        _ => text,
    }
}

/// Returns true if the text means an absent value.
pub(super) fn is_absent_value(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.eq_ignore_ascii_case("null") || text.eq_ignore_ascii_case("none")
}

/// Normalizes a key: lower case, words joined by `_`.
fn normalize_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for word in key.split(['_', '-', ' ']).filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push('_');
        }
        out.extend(word.chars().flat_map(char::to_lowercase));
    }
    out
}

fn count_indent_columns(indentation: &str) -> usize {
    indentation.chars().fold(0, |column, c| if c == '\t' { column + 4 - column % 4 } else { column + 1 })
}
