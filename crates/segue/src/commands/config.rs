//! What is configured, and where each value came from.

use serde_json::json;

use crate::cast::{Search, find_models};
use crate::cli::Global;
use crate::config::{self, Origin};
use crate::print::table::{Column, Table};
use crate::print::{self, Screen};
use crate::setup;

pub async fn run(global: &Global) -> anyhow::Result<()> {
    let mut loaded = setup::load(global)?;
    find_models(&mut loaded.config, Search::Enough).await;
    let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
    let rows = config::rows(&loaded.config, Some(&loaded.store));
    if global.json {
        let values: Vec<_> = rows
            .iter()
            .map(|(key, value, origin)| json!({ "key": key, "value": value, "from": origin_words(*origin, file.as_deref()) }))
            .collect();
        return print::json(&json!({ "file": file, "values": values }));
    }
    let screen = Screen::here();
    let mut table = Table::new([("key", Column::Left), ("value", Column::Cut), ("from", Column::Cut)]);
    for (key, value, origin) in rows {
        table.row([key, value, origin_words(origin, file.as_deref())]);
    }
    let file = file.unwrap_or_else(|| "there is no configuration file; these are the defaults".to_owned());
    print::out(&format!("{}\n\n{}", screen.paint.dim(file), table.render(screen.width, screen.paint)))
}

fn origin_words(origin: Origin, file: Option<&str>) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { line } => format!("{}:{line}", file.unwrap_or("the file")),
        Origin::Environment(name) | Origin::Argument(name) => name.to_owned(),
        Origin::Found => "found here".to_owned(),
    }
}
