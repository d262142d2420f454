//! `segue keys`: lists, creates and revokes the API keys of the server. None of this is possible over HTTP.

use anyhow::bail;
use segue_core::ids::UnixMillis;
use segue_engine::clock::{Clock, SystemClock};
use segue_server::{ApiKeyStore, ServerApiKey, ServerApiKeySpec};
use serde_json::{Value, json};

use super::serve::data_folder;
use crate::cli::{AddKeyArgs, ApiKeyAction, GlobalArgs, KeysArgs};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, RenderOptions, number_format};
use crate::setup;
use crate::suggest::suggestion_hint;

pub(crate) fn run_keys(global: &GlobalArgs, arguments: KeysArgs) -> anyhow::Result<()> {
    let keys = ApiKeyStore::from_folder(&data_folder(global)?);
    match arguments.action {
        None => print_keys(global, &keys),
        Some(ApiKeyAction::Add(new)) => add_key(global, &keys, new),
        Some(ApiKeyAction::Revoke { id }) => {
            let key = keys.revoke_key(&id)?;
            if global.json {
                return print::print_json(&key_json(&key));
            }
            print::write_stdout(&format!("revoked {} ({})\n", key.id, key.name))
        }
    }
}

fn print_keys(global: &GlobalArgs, keys: &ApiKeyStore) -> anyhow::Result<()> {
    let keys = keys.list_keys()?;
    if global.json {
        return print::print_json(&keys.iter().map(key_json).collect::<Vec<_>>());
    }
    if keys.is_empty() {
        return print::write_stdout("no keys; `segue keys add NAME` creates one\n");
    }
    let mut table = TextTable::new([
        ("key", ColumnLayout::Left),
        ("name", ColumnLayout::Left),
        ("owner", ColumnLayout::Left),
        ("flows", ColumnLayout::Left),
        ("created", ColumnLayout::Left),
    ]);
    for key in &keys {
        table.add_row([
            key.id.clone(),
            key.name.clone(),
            key.owner.clone().unwrap_or_else(|| "(all sessions)".to_owned()),
            format_key_flows(key).unwrap_or_else(|| "(all flows)".to_owned()),
            number_format::format_date_time(UnixMillis(key.created)),
        ]);
    }
    let screen = RenderOptions::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}

fn add_key(global: &GlobalArgs, keys: &ApiKeyStore, new: AddKeyArgs) -> anyhow::Result<()> {
    let known = setup::available_flows(global);
    for flow in &new.flow {
        if !known.iter().any(|known| known.spec().name == flow.as_str()) {
            let names = known.iter().map(|known| known.spec().name.as_str());
            bail!("there is no flow `{flow}`{}", suggestion_hint(flow, names));
        }
    }
    let flows = (!new.flow.is_empty()).then(|| new.flow.into_iter().map(Into::into).collect());
    let (key, secret) =
        keys.create_key(ServerApiKeySpec { name: new.name, owner: new.owner, flows }, SystemClock.now().0)?;
    if global.json {
        let mut row = key_json(&key);
        row["secret"] = Value::String(secret);
        return print::print_json(&row);
    }
    print::write_stdout(&format!("{secret}\n"))?;
    print::write_stderr_line("this key is shown only once; store it like a password");
    Ok(())
}

fn format_key_flows(key: &ServerApiKey) -> Option<String> {
    let flows = key.flows.as_ref()?;
    Some(flows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn key_json(key: &ServerApiKey) -> Value {
    json!({ "key": key.id, "name": key.name, "owner": key.owner, "flows": key.flows, "created": key.created })
}
