use std::path::Path;

use segue_core::flow::DynFlow;

use super::approval::APPROVAL_KEYS;
use super::mcp_servers::MCP_SERVER_KEYS;
use super::parser::{
    CATALOG_KEYS, MODEL_KEYS, MODEL_LIMIT_KEYS, PRICE_KEYS, REHEARSAL_KEYS, RESERVED_MODEL_KEYS, ROLE_KEYS, ROLES_KEY,
    SCRIPTED_KEYS, SESSION_KEYS, STORE_KEYS, TOP_KEYS,
};
use super::records::RECORDS_KEYS;
use super::server_limits::SERVER_KEYS;
use super::vendor_model::VENDOR_KEYS;
use super::workspaces::WORKSPACE_KEYS;
use super::*;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

fn domain(name: &str) -> String {
    let fields = "fields = [{ name = \"name\", kind = \"text\" }]";
    format!("name = \"{name}\"\n[[type]]\nname = \"thing\"\nlabel = \"name\"\n{fields}")
}

fn read(text: &str) -> Result<Config, String> {
    let read_file = |path: &std::path::Path| match path.to_str() {
        Some("folder/prices.toml") => Ok("[providers.mine]\nwire = \"chat\"\nbase_url = \"http://box/v1\"".to_owned()),
        Some("folder/clients.toml") => Ok(domain("clients")),
        Some("folder/garden.toml") => Ok(domain("garden")),
        Some("folder/broken.toml") => Ok("[providers.mine]".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    parse_config("folder/segue.toml".as_ref(), text, &read_file).map_err(|error| error.to_string())
}

fn wrong(text: &str) -> String {
    let error = read(text).expect_err("the file has a mistake");
    error.strip_prefix("folder/segue.toml:").expect("the error names the file").to_owned()
}

fn example(name: &str) -> String {
    let start = format!("```toml {name}\n");
    let text = PAGE.split(&start).nth(1).and_then(|rest| rest.split("```").next());
    text.expect("the page has the example").to_owned()
}

/// The keys and values, without their origins.
fn values(config: &Config) -> Vec<(String, String)> {
    config_rows(config, None).into_iter().map(|(key, value, _)| (key, value)).collect()
}

#[test]
fn documented_defaults_are_the_real_defaults() {
    let written = read(&example("defaults")).expect("it parses");
    let mut built_in = Config::built_in();
    // A model without limits has the engine's default.
    let calls_max = ConfigValue::from_default(segue_engine::limits::MODEL_CONCURRENT_CALLS_MAX);
    built_in.model_limits.insert(
        REHEARSAL_MODEL_NAME.into(),
        ModelCallLimitsConfig { calls_max, calls_per_minute_max: None, idle_ms_max: None },
    );
    assert_eq!(values(&written), values(&built_in));
    assert_eq!(
        segue_engine::rate_limit::ModelCallLimits::default().concurrent_calls_max,
        segue_engine::limits::MODEL_CONCURRENT_CALLS_MAX
    );
}

#[test]
fn documented_example_is_valid() {
    let config = read(&example("example")).expect("it parses");
    validate_config(&config, &config.flows()).expect("every name in it exists");
    let shown = values(&config);
    for wanted in [
        ("session.mid_turn_policy", "interrupt"),
        ("models.rehearsal.speed", "instant"),
        ("models.rehearsal.window_tokens", "32000"),
        ("models.replayed.file", "folder/scenario.toml"),
        ("models.replayed.price", "input $3, output $15, cache_read $0.3"),
        ("models.strong.provider", "anthropic"),
        ("server.streams_max", "20"),
        ("approval.ask", "assistant:records"),
        ("workspaces.shop.checks", "cargo test"),
        ("workspaces.shop.set_up", "cargo fetch"),
        ("workspaces.shop.commands_at_once_max", "2"),
        ("workspaces.shop.commands", "cargo, ls"),
        ("workspaces.shop.network", "true"),
        ("approval.allow", "assistant:mcp"),
        ("models.strong.effort", "high"),
        ("models.local.key_env", "MY_SERVER_KEY"),
        ("models.openai/gpt-6.1-terra.model", "gpt-6.1-terra"),
        ("catalog.file", "folder/prices.toml"),
        ("roles.assistant", "replayed"),
        ("roles.assistant.fallback", "openai/gpt-6.1-terra"),
        ("limits.replayed.idle_s_max", "300"),
        ("flows.chat.roles.summariser", "rehearsal"),
        ("limits.replayed.calls_per_minute_max", "60"),
    ] {
        assert!(shown.iter().any(|(key, value)| (key.as_str(), value.as_str()) == wanted), "{wanted:?} in {shown:?}");
    }
    assert_eq!(config.store.map(|store| store.value), Some("folder/sessions.db".into()));
}

#[test]
fn every_key_is_documented() {
    let tables = TOP_KEYS.iter().map(|key| format!("### `[{key}]`")).filter(|heading| heading != "### `[flows]`");
    for heading in tables {
        assert!(PAGE.contains(&heading), "{heading}");
    }
    let keys = [
        &STORE_KEYS[..],
        &SESSION_KEYS,
        &RESERVED_MODEL_KEYS,
        &MODEL_KEYS,
        &REHEARSAL_KEYS,
        &SCRIPTED_KEYS,
        &VENDOR_KEYS,
        &CATALOG_KEYS,
        &ROLE_KEYS,
        &RECORDS_KEYS,
        &MODEL_LIMIT_KEYS,
        &SERVER_KEYS,
        &APPROVAL_KEYS,
        &WORKSPACE_KEYS,
        &MCP_SERVER_KEYS,
    ];
    for key in keys.concat().iter().chain(&[ROLES_KEY]) {
        assert!(PAGE.contains(&format!("\n| `{key}` | ")), "`{key}` has no row");
    }
    assert!(PAGE.contains(&format!("`{{ {} }}`", PRICE_KEYS.join(", "))));
}

#[test]
fn mistakes_name_their_line_and_the_expected_value() {
    assert_eq!(
        wrong("a = 1"),
        "1: unknown key `a`; there are `store`, `session`, `models`, `catalog`, `roles`, `flows`, `records`, `workspaces` and 4 more"
    );
    assert_eq!(wrong("\n[store]\npaht = \"x\""), "3: unknown key `store.paht`; did you mean `path`?");
    assert_eq!(wrong("[store]\npath = 3"), "2: `store.path`: expected a string, found the number 3");
    assert_eq!(wrong("store = true"), "1: `store`: expected a table, found true");
    assert_eq!(
        wrong("[session]\nmid_turn_policy = \"que\""),
        "2: `session.mid_turn_policy`: unknown value `que`; did you mean `queue`?"
    );
    assert_eq!(
        wrong("[models.x]\n"),
        "1: `models.x` needs a `provider`, such as \"anthropic\", or a `kind`, one of `rehearsal`, `scripted`, `vendor`"
    );
    assert_eq!(
        wrong("[models.x]\nkind = \"scriptd\""),
        "2: `models.x.kind`: unknown kind `scriptd`; did you mean `scripted`?"
    );
    assert_eq!(
        wrong("[models.x]\nkind = \"scripted\""),
        "1: `models.x.file` is missing: the scenario with its replies"
    );
    assert!(wrong("[models.x]\nkind = \"rehearsal\"\nfile = \"f\"").starts_with("3: unknown key `models.x.file`"));
    assert_eq!(wrong("[models]\ndefault = \"rehersal\""), "2: there is no model `rehersal`; did you mean `rehearsal`?");
    assert_eq!(
        wrong("[models.default]\nkind = \"rehearsal\""),
        "1: `models.default`: expected a string, found a table"
    );
    assert!(
        wrong("[models.a]\nkind = \"rehearsal\"\n[models.b]\nkind = \"rehearsal\"")
            .contains("`models.default` is missing")
    );
    assert_eq!(
        wrong("[roles]\nassistant = 7"),
        "2: `roles.assistant`: expected the name of a model as a string, found the number 7"
    );
    assert_eq!(wrong("[roles]\nx = { fases = {} }"), "2: unknown key `roles.x.fases`; did you mean `phases`?");
    assert_eq!(wrong("[roles]\nassistant = \"fast\""), "2: there is no model `fast`; there are `rehearsal`");
    assert_eq!(wrong("[limits.fast]\ncalls_max = 1"), "1: there is no model `fast`; there are `rehearsal`");
    assert_eq!(
        wrong("[limits.rehearsal]\ncalls_max = 0"),
        "2: `limits.rehearsal.calls_max`: expected a whole number of at least 1, found the number 0"
    );
    assert!(wrong("[models.x]\nkind = \"rehearsal\"\nprice = { input = 1 }").contains("a price needs `output`"));
    assert!(
        wrong("[models.x]\nkind = \"rehearsal\"\nprice = { input = -1, output = 1 }").contains("an amount of dollars")
    );
    assert!(wrong("[store\n").starts_with("1: "), "{}", wrong("[store\n"));
}

#[test]
fn settings_of_a_flow_are_read_and_an_invalid_one_names_its_line() {
    let text =
        "[models.ant]\nkind = \"rehearsal\"\n[flows.concierge]\nquorum = 2\nexperts = [\"ant\", { samples = 2 }]\n";
    let config = read(text).expect("it parses");
    validate_config(&config, &segue_flows::built_in_flows()).expect("it is valid");
    let settings = config.settings_by_flow();
    assert_eq!(settings["concierge"], serde_json::json!({"quorum": 2, "experts": ["ant", {"samples": 2}]}));
    assert!(values(&config).contains(&("flows.concierge.quorum".into(), "2".into())));
    let wrong = |line: &str| {
        let config = read(&format!("[flows.concierge]\n{line}")).expect("it parses");
        let error = validate_config(&config, &segue_flows::built_in_flows()).expect_err("it is invalid").to_string();
        error.strip_prefix("folder/segue.toml:").expect("the error names the file").to_owned()
    };
    assert_eq!(wrong("qorum = 2"), "2: `flows.concierge.qorum` is unknown; did you mean `quorum`?");
    assert_eq!(
        wrong("stance = \"explore\"\nquorum = 0"),
        "3: `flows.concierge.quorum`: expected a whole number from 1 to 32, found the number 0"
    );
    assert_eq!(
        wrong("experts = [\"rehearsal\", \"rehersal\"]"),
        "2: `flows.concierge.experts[2]`: there is no model `rehersal`; did you mean `rehearsal`?"
    );
    assert_eq!(
        wrong("experts = [{ model = \"rehearsal\", sample = 2 }]"),
        "2: `flows.concierge.experts[1].sample` is unknown; did you mean `samples`?"
    );
    let other = |text: &str| {
        validate_config(&read(text).expect("it parses"), &segue_flows::built_in_flows())
            .expect_err("it is invalid")
            .to_string()
    };
    assert!(
        other("[flows.concirge]\nquorum = 2").ends_with("2: there is no flow `concirge`; did you mean `concierge`?")
    );
    let unknown = other("[flows.chat]\nquorum = 2");
    assert!(unknown.contains("2: `flows.chat.quorum` is unknown"), "{unknown}");
}

#[test]
fn keys_that_look_like_secrets_are_refused() {
    for key in ["api_key", "API_KEY", "apikey", "token", "auth-token", "openai_api_key", "client_secret", "password"] {
        let error = wrong(&format!("[models.x]\nkind = \"rehearsal\"\n{key} = \"v\""));
        assert!(error.starts_with("3: ") && error.contains("set it in the environment instead"), "{key}: {error}");
    }
    assert!(read("[models.x]\nkind = \"rehearsal\"\nwindow_tokens = 5000").is_ok());
}

#[test]
fn the_only_configured_model_is_the_default() {
    let config = read("[models.fast]\nkind = \"rehearsal\"").expect("it parses");
    assert_eq!(config.default_model.value, ModelName::from("fast"));
    assert!(config.models.contains_key(REHEARSAL_MODEL_NAME), "the rehearsal model always exists");
    assert_eq!(read("").expect("it parses").default_model.value, ModelName::from(REHEARSAL_MODEL_NAME));
}

#[test]
fn unknown_flows_roles_and_phases_are_refused() {
    let flows: Vec<std::sync::Arc<dyn DynFlow>> = segue_flows::built_in_flows();
    let check =
        |text: &str| validate_config(&read(text).expect("it parses"), &flows).map_err(|error| error.to_string());
    let error = |text: &str| check(text).expect_err("it is invalid").replace("folder/segue.toml:", "");
    assert_eq!(check("[roles]\nassistant = \"rehearsal\""), Ok(()));
    assert_eq!(
        error("[session]\nflow = \"chatt\""),
        "2: `session.flow`: there is no flow `chatt`; did you mean `chat`?"
    );
    assert_eq!(error("[roles]\nasistant = \"rehearsal\""), "2: there is no role `asistant`; did you mean `assistant`?");
    assert!(error("[flows.xyz.roles]\nx = \"rehearsal\"").starts_with("2: there is no flow `xyz`; there are `"));
    assert_eq!(error("[flows.concerge]"), "1: there is no flow `concerge`; did you mean `concierge`?");
    assert_eq!(
        error("[flows.chat.roles]\nassistant = { phases = { starter = \"rehearsal\" } }"),
        "2: there is no phase `starter`; there are none"
    );
}

#[test]
fn fuzz_config() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = PAGE.split("```toml").skip(1).filter_map(|rest| rest.split_once('\n')?.1.split("```").next());
    let seeds: Vec<Vec<u8>> = examples.map(|example| example.as_bytes().to_vec()).collect();
    segue_testkit::run_fuzz_target("config", &manifest.join("tests/fuzz/config"), &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Err(error) = parse_config("x".as_ref(), &text, &|_| Ok(text.to_string())) {
            assert!(error.line >= 1 && !error.to_string().trim().is_empty(), "{error}: {text:?}");
        }
    });
}

#[test]
fn no_text_makes_the_parser_panic() {
    let pieces =
        ["[models", ".x]", "\n", "kind", " = ", "\"rehearsal\"", "price", "{", "}", "[[roles]]", "1", "default", "ü"];
    let mut seed = 7_usize;
    for _ in 0..5_000 {
        let mut text = String::new();
        for _ in 0..seed % 12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) % pieces.len()]);
        }
        seed = seed.wrapping_add(1);
        // The result does not matter, but an error must name a line of the text.
        if let Err(error) = parse_config("x".as_ref(), &text, &|_| Err("no".to_owned())) {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}: {text:?}");
        }
    }
}

#[test]
fn a_vendor_model_needs_only_a_provider() {
    let config = read("[models.gpt-5]\nprovider = \"openai\"").expect("it parses");
    let shown = values(&config);
    assert!(shown.contains(&("models.gpt-5.model".into(), "gpt-5".into())), "the table's name is the model: {shown:?}");
    for (text, expected) in [
        ("[models.x]\nprovider = \"opnai\"", "2: `models.x`: unknown provider `opnai`; did you mean `openai`?"),
        ("[models.x]\nkind = \"vendor\"", "1: `models.x.provider` is missing: the provider of the model"),
        ("[models.x]\nprovider = \"openai-compatible\"", "2: `models.x`: `openai-compatible` has no default address"),
        ("[models.x]\nprovider = \"ollama\"\nbase_url = \"box\"", "2: `models.x`: `box` is not an address"),
        (
            "[models.x]\nprovider = \"ollama\"\napi_format = \"char\"",
            "3: `models.x.api_format`: unknown value `char`; did you mean `chat`?",
        ),
        (
            "[models.x]\nprovider = \"ollama\"\ntemperature = 3",
            "3: `models.x.temperature`: expected a number from 0 to 2",
        ),
        (
            "[models.x]\nprovider = \"ollama\"\nimages = \"no\"",
            "3: `models.x.images`: expected true or false, found a string",
        ),
        (
            "[models.x]\nprovider = \"ollama\"\nefort = \"low\"",
            "3: unknown key `models.x.efort`; did you mean `effort`?",
        ),
        ("[models]\ndiscover = 1", "2: `models.discover`: expected true or false"),
        ("[models]\nfallback = \"nobody\"", "2: there is no model `nobody`"),
        ("[catalog]\nfile = \"gone.toml\"", "2: `catalog.file`: folder/gone.toml: no such file"),
        ("[catalog]\nfile = \"broken.toml\"", "2: `catalog.file`: folder/broken.toml: "),
    ] {
        let error = wrong(text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn an_api_key_instead_of_its_variable_is_refused_and_not_repeated() {
    for (key, value) in [
        ("key_env", "sk-secret-1234567890"),
        ("key_env", "lower_case"),
        ("base_url", "https://me:sk-secret@box/v1"),
        ("base_url", "https://box/v1?api_key=sk-secret"),
    ] {
        let error = wrong(&format!("[models.x]\nprovider = \"ollama\"\n{key} = \"{value}\""));
        assert!(error.starts_with("3: ") && error.contains("environment") && !error.contains("secret-"), "{error}");
        assert!(!error.contains(value), "{error}");
    }
    assert!(read("[models.x]\nprovider = \"ollama\"\nkey_env = \"MY_KEY_2\"").is_ok());
}

#[test]
fn a_model_named_as_provider_slash_model_needs_no_table() {
    let config = read(
        "[models]\ndefault = \"ollama/qwen3:8b\"\n[roles]\nassistant = \"mine/any\"\n[catalog]\nfile = \"prices.toml\"",
    );
    let config = config.expect("it parses");
    let named: Vec<&str> = config.models.keys().map(ModelName::as_str).collect();
    assert_eq!(named, ["mine/any", "ollama/qwen3:8b", "rehearsal"]);
    assert_eq!(wrong("[models]\ndefault = \"nobody/x\""), "2: there is no model `nobody/x`; there are `rehearsal`");
    assert!(wrong("[models]\ndefault = \"ollama/\"").contains("there is no model"));
}

#[test]
fn domains_are_read_from_records_and_from_flow_settings() {
    let config =
        read("[flows.assistant]\ndomain = \"clients.toml\"\n[records]\npath = \"r.db\"\ndomains = [\"garden.toml\"]");
    let config = config.expect("it parses");
    let names: Vec<String> = config.all_domains().iter().map(|domain| domain.name.clone()).collect();
    assert_eq!(names, ["kitchen", "reading", "garden", "clients"]);
    assert_eq!(config.settings_by_flow()[&FlowName::from("assistant")], serde_json::json!({"domain": "clients"}));
    let store = ConfigValue::from_default(PathBuf::from("data/segue.db"));
    assert_eq!(config.records_path(&store, Path::new("")).value, PathBuf::from("folder/r.db"));
    assert_eq!(Config::built_in().records_path(&store, Path::new("")).value, PathBuf::from("data/segue-records.db"));
    assert_eq!(wrong("[records]\ndomains = \"x\""), "2: `records.domains`: expected a list of strings, found a string");
    assert_eq!(wrong("[records]\ndomains = [\"no.toml\"]"), "2: `records.domains`: folder/no.toml: no such file");
    let broken = wrong("[flows.assistant]\ndomain = \"broken.toml\"");
    assert!(broken.starts_with("2: `flows.assistant.domain`: folder/broken.toml: TOML parse error"), "{broken}");
    let unknown = read("[flows.assistant]\ndomain = \"garage\"").expect("it parses");
    let error = validate_config(&unknown, &unknown.flows()).expect_err("the domain is unknown").to_string();
    assert!(error.contains("expected `kitchen` or `reading`"), "{error}");
}

#[test]
fn mistakes_in_a_workspace_name_their_line() {
    assert_eq!(wrong("[workspaces.shop]\nchecks = []"), "1: `workspaces.shop` needs a `folder`");
    assert_eq!(
        wrong("[workspaces.\"../x\"]\nfolder = \".\""),
        "1: `workspaces.../x`: a name has 1 to 64 lower-case letters, digits, `-` and `_`"
    );
    assert_eq!(
        wrong("[workspaces.shop]\nfolder = \".\"\nsandbox = \"on\""),
        "3: `workspaces.shop.sandbox`: unknown value `on`; there are `auto`, `required`, `off`"
    );
    assert_eq!(
        wrong("[workspaces.shop]\nfolder = \".\"\ncommand = [\"ls\"]"),
        "3: unknown key `workspaces.shop.command`; did you mean `commands`?"
    );
}

#[test]
fn paths_of_a_workspace_are_relative_to_the_configuration() {
    let config = read("[workspaces.shop]\nfolder = \"code\"\nwritable = [\"cache\"]").expect("it parses");
    let shop = &config.workspaces["shop"].value;
    assert!(shop.folder.is_absolute() && shop.folder.ends_with("folder/code"), "{shop:?}");
    assert!(shop.writable[0].is_absolute() && shop.writable[0].ends_with("folder/cache"), "{shop:?}");
}
