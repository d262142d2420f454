//! `segue config`: the effective configuration and the origin of each value.

use serde_json::json;

use crate::cli::GlobalArgs;
use crate::config::{self, ConfigValueOrigin};
use crate::model_setup::{ModelDiscoveryExtent, discover_models};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities};
use crate::setup;

pub(crate) async fn run_show_config(global: &GlobalArgs) -> anyhow::Result<()> {
    let mut loaded = setup::load_config(global)?;
    if loaded.is_trusted() {
        discover_models(&mut loaded.config, ModelDiscoveryExtent::UntilFound).await;
    }
    let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
    let rows = config::config_rows(&loaded.config, Some((&loaded.store_path, &loaded.data_folder)));
    if global.json {
        let values: Vec<_> = rows
            .iter()
            .map(|(key, value, origin)| json!({ "key": key, "value": value, "from": describe_origin(*origin, file.as_deref()) }))
            .collect();
        return print::print_json(&json!({ "file": file, "values": values }));
    }
    let screen = CliOutputCapabilities::for_stdout();
    let mut table = TextTable::new([
        ("key", ColumnLayout::Left),
        ("value", ColumnLayout::Truncate),
        ("from", ColumnLayout::Truncate),
    ]);
    for (key, value, origin) in rows {
        table.add_row([key, value, describe_origin(origin, file.as_deref())]);
    }
    let file = file.unwrap_or_else(|| "no configuration file; these are the defaults".to_owned());
    print::write_stdout(&format!("{}\n\n{}", screen.paint.dim(file), table.render(screen.width, screen.paint)))
}

fn describe_origin(origin: ConfigValueOrigin, file: Option<&str>) -> String {
    match origin {
        ConfigValueOrigin::Default => "default".to_owned(),
        ConfigValueOrigin::File { line } => format!("{}:{line}", file.unwrap_or("the file")),
        ConfigValueOrigin::Environment(name) | ConfigValueOrigin::Argument(name) => name.to_owned(),
        ConfigValueOrigin::Discovered => "discovered".to_owned(),
    }
}
