//! Who may ask a server: keys are made, listed and revoked here, and nowhere over HTTP.

use anyhow::bail;
use segue_core::ids::Millis;
use segue_engine::clock::{Clock, SystemClock};
use segue_server::keys::{Key, Keys, NewKey};
use serde_json::{Value, json};

use super::serve::folder;
use crate::cli::{Global, KeyAdd, KeyChange, Keys as Arguments};
use crate::print::table::{Column, Table};
use crate::print::{self, Screen, amount};
use crate::setup;
use crate::suggest::hint;

pub fn run(global: &Global, arguments: Arguments) -> anyhow::Result<()> {
    let keys = Keys::in_folder(&folder(global)?);
    match arguments.change {
        None => list(global, &keys),
        Some(KeyChange::Add(new)) => add(global, &keys, new),
        Some(KeyChange::Revoke { id }) => {
            let key = keys.revoke(&id)?;
            if global.json {
                return print::json(&row(&key));
            }
            print::out(&format!("{} ({}) is revoked\n", key.id, key.name))
        }
    }
}

fn list(global: &Global, keys: &Keys) -> anyhow::Result<()> {
    let keys = keys.list()?;
    if global.json {
        return print::json(&keys.iter().map(row).collect::<Vec<_>>());
    }
    if keys.is_empty() {
        return print::out("there are no keys; `segue keys add NAME` makes one\n");
    }
    let mut table = Table::new([
        ("key", Column::Left),
        ("name", Column::Left),
        ("owner", Column::Left),
        ("flows", Column::Left),
        ("made", Column::Left),
    ]);
    for key in &keys {
        table.row([
            key.id.clone(),
            key.name.clone(),
            key.owner.clone().unwrap_or_else(|| "(all sessions)".to_owned()),
            flows(key).unwrap_or_else(|| "(all flows)".to_owned()),
            amount::moment(Millis(key.created)),
        ]);
    }
    let screen = Screen::here();
    print::out(&table.render(screen.width, screen.paint))
}

fn add(global: &Global, keys: &Keys, new: KeyAdd) -> anyhow::Result<()> {
    let known = setup::flows(global);
    for flow in &new.flow {
        if !known.iter().any(|rules| rules.spec().name == flow.as_str()) {
            bail!("there is no flow `{flow}`{}", hint(flow, known.iter().map(|rules| rules.spec().name.as_str())));
        }
    }
    let flows = (!new.flow.is_empty()).then(|| new.flow.into_iter().map(Into::into).collect());
    let (key, secret) = keys.add(NewKey { name: new.name, owner: new.owner, flows }, SystemClock.now().0)?;
    if global.json {
        let mut row = row(&key);
        row["secret"] = Value::String(secret);
        return print::json(&row);
    }
    print::out(&format!("{secret}\n"))?;
    print::note("this key is shown only now; keep it where secrets belong");
    Ok(())
}

fn flows(key: &Key) -> Option<String> {
    let flows = key.flows.as_ref()?;
    Some(flows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn row(key: &Key) -> Value {
    json!({ "key": key.id, "name": key.name, "owner": key.owner, "flows": key.flows, "created": key.created })
}
