//! The tools of a domain's server as they may be used: as they are declared, and where nothing is declared, as the server
//! describes them. What the server does not have any more is not offered.

use super::super::domain::{Server, ServerTool};
use super::super::facts::DescribedTool;

/// A tool that may be used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer<'o> {
    /// Its name.
    pub name: &'o str,
    /// What it does.
    pub about: &'o str,
    /// What it takes, as a JSON schema; nothing as long as the server has not said.
    pub arguments: Option<&'o str>,
    /// Whether it changes something.
    pub writes: bool,
    /// What is declared of it.
    pub declared: Option<&'o ServerTool>,
}

/// The tools of a server, where it has described these; in the order in which they are declared.
#[must_use]
pub fn offers<'o>(server: &'o Server, described: &'o [DescribedTool]) -> Vec<Offer<'o>> {
    let described_as = |name: &str| described.iter().find(|tool| tool.name == name);
    let names: Vec<&str> = match &server.tools {
        Some(tools) => tools.iter().map(|tool| tool.name.as_str()).collect(),
        None => described.iter().map(|tool| tool.name.as_str()).collect(),
    };
    let offer = |name: &'o str| {
        let (declared, says) = (server.tool(name), described_as(name));
        if says.is_none() && !described.is_empty() {
            return None;
        }
        let own_words = declared.map(|tool| tool.about.as_str()).filter(|about| !about.is_empty());
        Some(Offer {
            name,
            about: own_words.or(says.map(|says| says.about.as_str())).unwrap_or_default(),
            arguments: says.map(|says| says.arguments.as_str()),
            writes: server.writes(name, says.and_then(|says| says.writes))?,
            declared,
        })
    };
    names.into_iter().filter_map(offer).collect()
}
