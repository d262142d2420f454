//! Reads and writes a knowledge graph as a Graphviz file.
//!
//! The reader accepts the whole DOT language except for undirected graphs and HTML labels, and reports the line of an
//! error. The writer produces a file that Graphviz accepts and that the reader reads back unchanged. Attributes without
//! a meaning here are kept; comments and the order of statements are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::iter::Peekable;

use super::entry::read_name;
use super::{
    KnowledgeGraph, KnowledgeKind, KnowledgeLevel, KnowledgeNode, KnowledgePriority, KnowledgeRelation,
    KnowledgeRelationKind, KnowledgeStatus,
};
use crate::limits::{KNOWLEDGE_FILE_BYTES_MAX, KNOWLEDGE_FILE_DEPTH_MAX};

/// Why a file is not a knowledge graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DotError {
    #[error("line {line}: {message}")]
    Syntax { line: u32, message: String },
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Writes a graph as a Graphviz file. Equal graphs give equal files.
#[must_use]
pub fn write_knowledge_dot(graph: &KnowledgeGraph) -> String {
    let mut out = String::from("digraph knowledge {\n  node [shape=box];\n");
    for node in graph.nodes.values() {
        let mut attributes = vec![
            ("type", node.kind.as_str()),
            ("level", node.level.as_str()),
            ("status", node.status.as_str()),
            ("description", node.description.as_str()),
        ];
        attributes.extend(node.priority.map(|priority| ("priority", priority.as_str())));
        attributes.extend(node.other_attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let attributes: Vec<String> = attributes
            .into_iter()
            .map(|(name, value)| format!("{}={}", quote_dot_text(name), quote_dot_text(value)))
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {} [{}];", quote_dot_text(&node.id), attributes.join(", "));
    }
    for node in graph.nodes.values() {
        for relation in &node.relations {
            let name = relation.relation.as_str();
            let _ = writeln!(
                out,
                "  {} -> {} [label={}];",
                quote_dot_text(&node.id),
                quote_dot_text(&relation.to),
                quote_dot_text(name)
            );
        }
    }
    out.push_str("}\n");
    out
}

/// Reads a graph from a Graphviz file and validates it.
///
/// # Errors
/// Fails if the file is not DOT, or if the graph is invalid, with all reasons.
pub fn parse_knowledge_dot(text: &str) -> Result<KnowledgeGraph, DotError> {
    if text.len() > KNOWLEDGE_FILE_BYTES_MAX {
        let bytes = text.len();
        let why = format!("the file has {bytes} bytes, but at most {KNOWLEDGE_FILE_BYTES_MAX} are read");
        return Err(DotError::Invalid(vec![why]));
    }
    let tokens = tokenize(text)?;
    let mut parser = DotParser { tokens: &tokens, at: 0, nodes: BTreeMap::new(), edges: Vec::new(), depth: 0 };
    parser.parse_graph()?;
    build_graph(parser.nodes, parser.edges)
}

/// Quotes a name or a value. Graphviz itself replaces only `\"`, so everything else stays readable for it.
fn quote_dot_text(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let starts_like_name = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let is_keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(text));
    if starts_like_name && text.chars().all(is_plain) && !is_keyword {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

const KEYWORDS: &[&str] = &["node", "edge", "graph", "digraph", "subgraph", "strict"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum DotToken {
    /// A name, a number or a quoted text. Only an unquoted name can be a keyword.
    Name {
        text: String,
        is_quoted: bool,
    },
    Symbol(char),
    Arrow,
}

struct DotTokenAtLine {
    token: DotToken,
    line: u32,
}

fn syntax_error(line: u32, message: impl Into<String>) -> DotError {
    DotError::Syntax { line, message: message.into() }
}

fn tokenize(text: &str) -> Result<Vec<DotTokenAtLine>, DotError> {
    let mut tokens = Vec::new();
    let mut letters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    let mut line = 1;
    let mut at_line_start = true;
    while let Some(letter) = letters.next() {
        let starts_line = std::mem::replace(&mut at_line_start, false);
        let token = match letter {
            '\n' => {
                line += 1;
                at_line_start = true;
                continue;
            }
            '#' if starts_line => {
                while letters.next_if(|next| *next != '\n').is_some() {}
                continue;
            }
            '/' if letters.next_if_eq(&'/').is_some() => {
                while letters.next_if(|next| *next != '\n').is_some() {}
                continue;
            }
            '/' if letters.next_if_eq(&'*').is_some() => {
                line += skip_block_comment(&mut letters, line)?;
                continue;
            }
            letter if letter.is_whitespace() => {
                at_line_start = starts_line && letter == '\r';
                continue;
            }
            '{' | '}' | '[' | ']' | ';' | ',' | '=' | ':' | '+' => DotToken::Symbol(letter),
            '-' if letters.next_if_eq(&'>').is_some() => DotToken::Arrow,
            '-' if letters.peek() == Some(&'-') => {
                return Err(syntax_error(line, "`--` is an undirected edge; write `->`"));
            }
            '"' => {
                let (text, lines) = read_quoted(&mut letters, line)?;
                tokens.push(DotTokenAtLine { token: DotToken::Name { text, is_quoted: true }, line });
                line += lines;
                continue;
            }
            '<' => return Err(syntax_error(line, "HTML labels are not supported; use a quoted text")),
            letter if letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.') || !letter.is_ascii() => {
                DotToken::Name { text: read_plain_name(letter, &mut letters, line)?, is_quoted: false }
            }
            other => return Err(syntax_error(line, format!("unexpected `{other}`"))),
        };
        tokens.push(DotTokenAtLine { token, line });
    }
    Ok(tokens)
}

/// Skips the rest of a comment. Returns the number of lines in it.
fn skip_block_comment(letters: &mut Peekable<std::str::Chars<'_>>, line: u32) -> Result<u32, DotError> {
    let mut lines = 0;
    while let Some(letter) = letters.next() {
        match letter {
            '*' if letters.next_if_eq(&'/').is_some() => return Ok(lines),
            '\n' => lines += 1,
            _ => {}
        }
    }
    Err(syntax_error(line, "the comment does not end"))
}

/// Reads the rest of a quoted text. Returns the number of lines in it, too.
fn read_quoted(letters: &mut Peekable<std::str::Chars<'_>>, line: u32) -> Result<(String, u32), DotError> {
    let (mut text, mut lines) = (String::new(), 0);
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Ok((text, lines)),
            '\n' => {
                lines += 1;
                text.push('\n');
            }
            '\\' => match letters.next() {
                Some('"') => text.push('"'),
                Some('\\') => text.push('\\'),
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                // The text continues on the next line.
                Some('\n') => lines += 1,
                Some(other) => text.extend(['\\', other]),
                None => break,
            },
            other => text.push(other),
        }
    }
    Err(syntax_error(line, "the quoted text does not end"))
}

fn read_plain_name(first: char, letters: &mut Peekable<std::str::Chars<'_>>, line: u32) -> Result<String, DotError> {
    let mut name = String::from(first);
    if first.is_ascii_digit() || matches!(first, '-' | '.') {
        while let Some(letter) = letters.next_if(|next| next.is_ascii_digit() || *next == '.') {
            name.push(letter);
        }
        let digits = name.strip_prefix('-').unwrap_or(&name);
        let is_number = digits.chars().any(|letter| letter.is_ascii_digit()) && digits.matches('.').count() <= 1;
        return if is_number { Ok(name) } else { Err(syntax_error(line, format!("unexpected `{name}`"))) };
    }
    let continues = |next: &char| next.is_alphanumeric() || *next == '_' || (!next.is_ascii() && !next.is_whitespace());
    while let Some(letter) = letters.next_if(continues) {
        name.push(letter);
    }
    Ok(name)
}

type DotAttributes = BTreeMap<String, String>;

struct DotEdge {
    from: String,
    to: String,
    attributes: DotAttributes,
    line: u32,
}

struct DotParser<'t> {
    tokens: &'t [DotTokenAtLine],
    at: usize,
    nodes: BTreeMap<String, DotAttributes>,
    edges: Vec<DotEdge>,
    depth: u32,
}

impl DotParser<'_> {
    fn peek(&self) -> Option<&DotToken> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    fn line(&self) -> u32 {
        let index = self.at.min(self.tokens.len().saturating_sub(1));
        self.tokens.get(index).map_or(1, |token| token.line)
    }

    fn take_symbol(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&DotToken::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Some(DotToken::Name { text, is_quoted: false }) if text.eq_ignore_ascii_case(keyword));
        self.at += usize::from(found);
        found
    }

    fn expect_symbol(&mut self, symbol: char) -> Result<(), DotError> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(syntax_error(self.line(), format!("`{symbol}` is missing"))) }
    }

    /// Reads a name, or several quoted texts joined by `+`.
    fn read_name(&mut self) -> Result<String, DotError> {
        let Some(DotToken::Name { text, is_quoted }) = self.peek().cloned() else {
            return Err(syntax_error(self.line(), "a name is missing"));
        };
        if !is_quoted && KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(&text)) {
            return Err(syntax_error(self.line(), format!("`{text}` is a keyword; quote it to use it as a name")));
        }
        self.at += 1;
        let mut name = text;
        while is_quoted && self.peek() == Some(&DotToken::Symbol('+')) {
            self.at += 1;
            match self.peek().cloned() {
                Some(DotToken::Name { text, is_quoted: true }) => name.push_str(&text),
                _ => return Err(syntax_error(self.line(), "`+` must be followed by a quoted text")),
            }
            self.at += 1;
        }
        Ok(name)
    }

    fn parse_graph(&mut self) -> Result<(), DotError> {
        self.take_keyword("strict");
        if self.take_keyword("graph") {
            return Err(syntax_error(self.line(), "the graph is undirected; write `digraph`"));
        }
        if !self.take_keyword("digraph") {
            return Err(syntax_error(self.line(), "the file must begin with `digraph`"));
        }
        if self.peek() != Some(&DotToken::Symbol('{')) {
            self.read_name()?;
        }
        self.parse_block(&mut DotAttributes::new(), &mut DotAttributes::new())?;
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(syntax_error(self.line(), "there is text after the end of the graph")),
        }
    }

    /// Parses the statements between braces. Returns the nodes that they mention.
    fn parse_block(
        &mut self,
        node_defaults: &mut DotAttributes,
        edge_defaults: &mut DotAttributes,
    ) -> Result<BTreeSet<String>, DotError> {
        self.expect_symbol('{')?;
        self.depth += 1;
        if self.depth > KNOWLEDGE_FILE_DEPTH_MAX {
            return Err(syntax_error(self.line(), format!("more than {KNOWLEDGE_FILE_DEPTH_MAX} nested subgraphs")));
        }
        let mut mentioned = BTreeSet::new();
        while !self.take_symbol('}') {
            if self.peek().is_none() {
                return Err(syntax_error(self.line(), "`}` is missing"));
            }
            if !self.take_symbol(';') {
                mentioned.extend(self.parse_statement(node_defaults, edge_defaults)?);
            }
        }
        self.depth -= 1;
        Ok(mentioned)
    }

    fn parse_statement(
        &mut self,
        node_defaults: &mut DotAttributes,
        edge_defaults: &mut DotAttributes,
    ) -> Result<BTreeSet<String>, DotError> {
        for (keyword, defaults) in
            [("node", Some(&mut *node_defaults)), ("edge", Some(&mut *edge_defaults)), ("graph", None)]
        {
            if self.take_keyword(keyword) {
                if self.peek() != Some(&DotToken::Symbol('[')) {
                    return Err(syntax_error(self.line(), format!("`{keyword}` must be followed by `[`")));
                }
                let attributes = self.parse_attributes()?;
                defaults.into_iter().for_each(|defaults| defaults.extend(attributes.clone()));
                return Ok(BTreeSet::new());
            }
        }
        let line = self.line();
        let is_subgraph = |parser: &Self| {
            parser.peek() == Some(&DotToken::Symbol('{'))
                || matches!(parser.peek(), Some(DotToken::Name { text, is_quoted: false }) if text.eq_ignore_ascii_case("subgraph"))
        };
        let starts_with_subgraph = is_subgraph(self);
        let mut ends = vec![self.parse_operand(node_defaults, edge_defaults)?];
        if !starts_with_subgraph && self.take_symbol('=') {
            self.read_name()?;
            return Ok(BTreeSet::new());
        }
        while self.peek() == Some(&DotToken::Arrow) {
            self.at += 1;
            ends.push(self.parse_operand(node_defaults, edge_defaults)?);
        }
        let attributes = self.parse_attributes()?;
        let mentioned: BTreeSet<String> = ends.iter().flatten().cloned().collect();
        for node in &mentioned {
            self.nodes.entry(node.clone()).or_insert_with(|| node_defaults.clone());
        }
        match ends.as_slice() {
            [only] if !starts_with_subgraph => {
                for node in only {
                    self.nodes.entry(node.clone()).or_default().extend(attributes.clone());
                }
            }
            _ => {
                let mut all = edge_defaults.clone();
                all.extend(attributes);
                for pair in ends.windows(2) {
                    for (from, to) in pair[0].iter().flat_map(|from| pair[1].iter().map(move |to| (from, to))) {
                        let (from, to, attributes) = (from.clone(), to.clone(), all.clone());
                        self.edges.push(DotEdge { from, to, attributes, line });
                    }
                }
            }
        }
        Ok(mentioned)
    }

    /// Parses one end of an edge: a node with an optional port, or a subgraph.
    fn parse_operand(
        &mut self,
        node_defaults: &DotAttributes,
        edge_defaults: &DotAttributes,
    ) -> Result<BTreeSet<String>, DotError> {
        let is_subgraph = self.take_keyword("subgraph");
        if is_subgraph && self.peek() != Some(&DotToken::Symbol('{')) {
            self.read_name()?;
        }
        if self.peek() == Some(&DotToken::Symbol('{')) {
            return self.parse_block(&mut node_defaults.clone(), &mut edge_defaults.clone());
        }
        let name = self.read_name()?;
        for _ in 0..2 {
            if self.take_symbol(':') {
                self.read_name()?;
            }
        }
        Ok(BTreeSet::from([name]))
    }

    /// Parses any number of attribute lists.
    fn parse_attributes(&mut self) -> Result<DotAttributes, DotError> {
        let mut attributes = DotAttributes::new();
        while self.take_symbol('[') {
            while !self.take_symbol(']') {
                if self.take_symbol(',') || self.take_symbol(';') {
                    continue;
                }
                let name = self.read_name()?;
                let value = if self.take_symbol('=') { self.read_name()? } else { "true".to_owned() };
                attributes.insert(name, value);
            }
        }
        Ok(attributes)
    }
}

/// Attributes that the writer adds by itself.
const WRITER_DEFAULTS: &[(&str, &str)] = &[("shape", "box")];

fn build_graph(nodes: BTreeMap<String, DotAttributes>, edges: Vec<DotEdge>) -> Result<KnowledgeGraph, DotError> {
    let mut graph = KnowledgeGraph::default();
    let mut problems = Vec::new();
    for (id, attributes) in nodes {
        match build_node(&id, attributes) {
            Ok(node) => {
                graph.nodes.insert(id, node);
            }
            Err(found) => problems.extend(found.into_iter().map(|problem| format!("`{id}`: {problem}"))),
        }
    }
    for DotEdge { from, to, attributes, line } in edges {
        let name = attributes.get("relation").or_else(|| attributes.get("label")).map_or("", String::as_str);
        let mut found = Vec::new();
        let names = KnowledgeRelationKind::NAMES;
        match read_name(name, "label", KnowledgeRelationKind::from_name, names, &mut found) {
            Some(relation) => {
                if let Some(node) = graph.nodes.get_mut(&from) {
                    node.relations.insert(KnowledgeRelation { relation, to });
                }
            }
            None => problems.extend(found.iter().map(|problem| format!("line {line}: `{from}` -> `{to}`: {problem}"))),
        }
    }
    if problems.is_empty() {
        problems = graph.validation_problems();
    }
    if problems.is_empty() { Ok(graph) } else { Err(DotError::Invalid(problems)) }
}

fn build_node(id: &str, mut attributes: DotAttributes) -> Result<KnowledgeNode, Vec<String>> {
    let mut problems = Vec::new();
    let mut take = |name: &str| attributes.remove(name).unwrap_or_default();
    let (kind, level, status, priority) = (take("type"), take("level"), take("status"), take("priority"));
    let description = take("description");
    let kind = read_name(&kind, "type", KnowledgeKind::from_name, KnowledgeKind::NAMES, &mut problems);
    let level = read_name(&level, "level", KnowledgeLevel::from_name, KnowledgeLevel::NAMES, &mut problems);
    let status = if status.is_empty() { KnowledgeStatus::default().as_str() } else { &status };
    let status = read_name(status, "status", KnowledgeStatus::from_name, KnowledgeStatus::NAMES, &mut problems);
    let priority = match priority.as_str() {
        "" => None,
        name => read_name(name, "priority", KnowledgePriority::from_name, KnowledgePriority::NAMES, &mut problems),
    };
    attributes.retain(|name, value| !WRITER_DEFAULTS.contains(&(name.as_str(), value.as_str())));
    match (kind, level, status) {
        (Some(kind), Some(level), Some(status)) if problems.is_empty() => Ok(KnowledgeNode {
            id: id.to_owned(),
            kind,
            level,
            status,
            description,
            priority,
            relations: BTreeSet::new(),
            other_attributes: attributes,
        }),
        _ => Err(problems),
    }
}
