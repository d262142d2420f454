//! `segue keys`: lists, creates, limits and revokes the API keys of the server. None of this is possible over HTTP.

use anyhow::bail;
use segue_core::ids::UnixMillis;
use segue_engine::clock::{Clock, SystemClock};
use segue_server::{ApiKeyDailyUsage, ApiKeyLimits, ApiKeyStore, ApiKeyToCreate, ApiKeyUsageStore, StoredApiKey};
use serde_json::{Value, json};

use crate::cli::{AddApiKeyArgs, ApiKeyLimitArgs, ApiKeySubcommand, ApiKeysArgs, GlobalArgs};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities, number_format};
use crate::setup::{self, ConfigWithStorePath, load_config};
use crate::store_location::StoreLocation;
use crate::suggest::suggestion_hint;

pub(crate) async fn run_keys(global: &GlobalArgs, arguments: ApiKeysArgs) -> anyhow::Result<()> {
    let ConfigWithStorePath { store_path, data_folder, .. } = load_config(global)?;
    let shared = StoreLocation::parse(&store_path.value).open_shared_state(&data_folder)?;
    let keys = shared.keys();
    match arguments.action {
        None => print_keys(global, &keys, shared.key_usage().as_ref()).await,
        Some(ApiKeySubcommand::Limit { id, limits }) => {
            let all = keys.list_keys().await?;
            let mut changed = all.into_iter().find(|key| key.id == id).map(|key| key.limits).unwrap_or_default();
            apply_limit_args(&mut changed, limits)?;
            let key = keys.set_limits(&id, changed).await?;
            if global.json {
                return print::print_json(&key_json(&key));
            }
            print::write_stdout(&format!("{} ({}): {}\n", key.id, key.name, format_limits(&key.limits)))
        }
        Some(ApiKeySubcommand::Add(new)) => add_key(global, &keys, new).await,
        Some(ApiKeySubcommand::Revoke { id }) => {
            let key = keys.revoke_key(&id).await?;
            if global.json {
                return print::print_json(&key_json(&key));
            }
            print::write_stdout(&format!("revoked {} ({})\n", key.id, key.name))
        }
    }
}

async fn print_keys(global: &GlobalArgs, keys: &ApiKeyStore, usage: &dyn ApiKeyUsageStore) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for key in keys.list_keys().await? {
        let used = usage.read_usage(&key.id, SystemClock.now()).await?;
        rows.push((key, used));
    }
    if global.json {
        let to_json = |(key, used): &(StoredApiKey, ApiKeyDailyUsage)| {
            let mut row = key_json(key);
            row["used_today"] = json!({ "cost_microusd": used.cost_microusd, "tokens": used.total_tokens() });
            row
        };
        return print::print_json(&rows.iter().map(to_json).collect::<Vec<_>>());
    }
    if rows.is_empty() {
        return print::write_stdout("no keys; `segue keys add NAME` creates one\n");
    }
    let mut table = TextTable::new([
        ("key", ColumnLayout::Left),
        ("name", ColumnLayout::Left),
        ("owner", ColumnLayout::Left),
        ("flows", ColumnLayout::Left),
        ("limits", ColumnLayout::Left),
        ("used today", ColumnLayout::Left),
        ("created", ColumnLayout::Left),
    ]);
    for (key, used) in &rows {
        table.add_row([
            key.id.clone(),
            key.name.clone(),
            key.owner.clone().unwrap_or_else(|| "(all sessions)".to_owned()),
            format_key_flows(key).unwrap_or_else(|| "(all flows)".to_owned()),
            format_limits(&key.limits),
            format!("${}, {} tokens", format_usd(used.cost_microusd), used.total_tokens()),
            number_format::format_date_time(UnixMillis(key.created)),
        ]);
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}

async fn add_key(global: &GlobalArgs, keys: &ApiKeyStore, new: AddApiKeyArgs) -> anyhow::Result<()> {
    let known = setup::available_flows(global)?;
    for flow in &new.flow {
        if !known.iter().any(|known| known.spec().name == flow.as_str()) {
            let names = known.iter().map(|known| known.spec().name.as_str());
            bail!("there is no flow `{flow}`{}", suggestion_hint(flow, names));
        }
    }
    let flows = (!new.flow.is_empty()).then(|| new.flow.into_iter().map(Into::into).collect());
    let mut limits = ApiKeyLimits::default();
    apply_limit_args(&mut limits, new.limits)?;
    let spec = ApiKeyToCreate { name: new.name, owner: new.owner, flows, limits };
    let (key, secret) = keys.create_key(spec, SystemClock.now().0).await?;
    if global.json {
        let mut row = key_json(&key);
        row["secret"] = Value::String(secret);
        return print::print_json(&row);
    }
    print::write_stdout(&format!("{secret}\n"))?;
    print::write_stderr_line("this key is shown only once; store it like a password");
    Ok(())
}

fn format_key_flows(key: &StoredApiKey) -> Option<String> {
    let flows = key.flows.as_ref()?;
    Some(flows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn key_json(key: &StoredApiKey) -> Value {
    json!({
        "key": key.id, "name": key.name, "owner": key.owner, "flows": key.flows, "limits": key.limits, "created": key.created
    })
}

/// Changes the limits that were given on the command line.
fn apply_limit_args(limits: &mut ApiKeyLimits, given: ApiKeyLimitArgs) -> anyhow::Result<()> {
    let ApiKeyLimitArgs { usd_per_day, tokens_per_day, models, turns, requests_per_minute } = given;
    if let Some(text) = usd_per_day {
        limits.cost_microusd_per_day = parse_limit("--usd-per-day", &text, parse_usd)?;
    }
    if let Some(text) = tokens_per_day {
        limits.tokens_per_day = parse_limit("--tokens-per-day", &text, |text| text.parse().ok())?;
    }
    if let Some(text) = models {
        let parse = |text: &str| Some(text.split(',').map(|model| model.trim().into()).collect());
        limits.models = parse_limit("--models", &text, parse)?;
    }
    if let Some(text) = turns {
        limits.turns_at_once = parse_limit("--turns", &text, parse_positive)?;
    }
    if let Some(text) = requests_per_minute {
        limits.requests_per_minute = parse_limit("--requests-per-minute", &text, parse_positive)?;
    }
    Ok(())
}

/// Parses the value of a limit; `none` removes the limit.
fn parse_limit<T>(option: &str, text: &str, parse: impl Fn(&str) -> Option<T>) -> anyhow::Result<Option<T>> {
    if text == "none" {
        return Ok(None);
    }
    match parse(text) {
        Some(value) => Ok(Some(value)),
        None => bail!("`{option} {text}` is not valid; give a positive number, or `none` to remove the limit"),
    }
}

fn parse_positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Parses an amount in dollars, like `2.50`, into millionths of a dollar.
fn parse_usd(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim_start_matches('$').split_once('.').unwrap_or((text.trim_start_matches('$'), ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let micros: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

fn format_usd(microusd: u64) -> String {
    let (whole, micros) = (microusd / 1_000_000, format!("{:06}", microusd % 1_000_000));
    let micros = micros.trim_end_matches('0');
    format!("{whole}.{micros:0<2}")
}

fn format_limits(limits: &ApiKeyLimits) -> String {
    let mut parts = Vec::new();
    parts.extend(limits.cost_microusd_per_day.map(|max| format!("${} a day", format_usd(max))));
    parts.extend(limits.tokens_per_day.map(|max| format!("{max} tokens a day")));
    if let Some(models) = &limits.models {
        parts.push(format!("models {}", models.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
    }
    parts.extend(limits.turns_at_once.map(|max| format!("{max} turns at once")));
    parts.extend(limits.requests_per_minute.map(|max| format!("{max} requests a minute")));
    if parts.is_empty() { "(none)".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_parsed_exactly() {
        for (text, microusd) in [("5", 5_000_000), ("2.50", 2_500_000), ("$0.000001", 1), ("0", 0)] {
            assert_eq!(parse_usd(text), Some(microusd), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "1.0000001", "1.2.3", "five", "99999999999999999999"] {
            assert_eq!(parse_usd(text), None, "{text}");
        }
        assert_eq!([5_000_000, 2_500_000, 1].map(format_usd), ["5.00", "2.50", "0.000001"]);
    }

    #[test]
    fn only_given_limits_change() {
        let given = |usd: &str, turns: &str| ApiKeyLimitArgs {
            usd_per_day: Some(usd.into()),
            turns: Some(turns.into()),
            ..ApiKeyLimitArgs::default()
        };
        let mut limits = ApiKeyLimits { tokens_per_day: Some(7), ..ApiKeyLimits::default() };
        apply_limit_args(&mut limits, given("1.50", "3")).expect("valid");
        assert_eq!(format_limits(&limits), "$1.50 a day; 7 tokens a day; 3 turns at once");
        apply_limit_args(&mut limits, given("none", "3")).expect("valid");
        assert_eq!(limits.cost_microusd_per_day, None);
        let refused = apply_limit_args(&mut limits, given("1.50", "0")).expect_err("no turn is allowed");
        assert!(refused.to_string().contains("--turns 0"), "{refused}");
    }
}
