//! What a flow shows of itself: panels, as data. The flow picks them by what the session holds; whoever draws them (a
//! terminal, a page) goes by their form and knows neither the flow nor what the panel is about.

use serde::{Deserialize, Serialize};

use super::{About, Lookup, Rules, Sight, Texts};
use crate::body::BodyId;
use crate::session::State;

/// One thing to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panel {
    /// Its name, for programs: `entities`.
    pub name: String,
    /// Its heading, for people.
    pub title: String,
    /// What it shows.
    #[serde(flatten)]
    pub content: Content,
}

/// The forms a panel can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum Content {
    /// Rows under columns; every row has as many cells as there are columns.
    Table {
        /// What the columns are called.
        columns: Vec<String>,
        /// The cells, row by row.
        rows: Vec<Vec<String>>,
    },
    /// Names with values, in order.
    Pairs {
        /// A name and its value.
        pairs: Vec<(String, String)>,
    },
    /// Words.
    Text {
        /// What they say.
        text: String,
    },
}

impl Panel {
    /// A table.
    #[must_use]
    pub fn table(name: &str, title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self::of(name, title, Content::Table { columns, rows })
    }

    /// Names with values.
    #[must_use]
    pub fn pairs(name: &str, title: &str, pairs: Vec<(String, String)>) -> Self {
        Self::of(name, title, Content::Pairs { pairs })
    }

    /// Words.
    #[must_use]
    pub fn text(name: &str, title: &str, text: impl Into<String>) -> Self {
        Self::of(name, title, Content::Text { text: text.into() })
    }

    fn of(name: &str, title: &str, content: Content) -> Self {
        Self { name: name.to_owned(), title: title.to_owned(), content }
    }
}

/// The panels of a session, in the flow's order.
///
/// # Errors
/// These texts must be at hand first; then ask again.
pub fn panels(rules: &dyn Rules, state: &State, texts: &dyn Lookup) -> Result<Vec<Panel>, Vec<BodyId>> {
    let texts = Texts::new(texts);
    let about = About::default();
    let sight = Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about };
    let panels = rules.panels(sight);
    match texts.missing() {
        missing if missing.is_empty() => Ok(panels),
        missing => Err(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_is_written_flat_with_its_form() {
        let panel = Panel::table("t", "Things", &["a", "b"], vec![vec!["1".into(), "2".into()]]);
        let written = serde_json::to_string(&panel).expect("it is data");
        assert_eq!(written, r#"{"name":"t","title":"Things","form":"table","columns":["a","b"],"rows":[["1","2"]]}"#);
        for panel in [panel, Panel::text("x", "X", "words"), Panel::pairs("p", "P", vec![("k".into(), "v".into())])] {
            let written = serde_json::to_value(&panel).expect("it is data");
            assert_eq!(serde_json::from_value::<Panel>(written).expect("it is read"), panel);
        }
    }
}
