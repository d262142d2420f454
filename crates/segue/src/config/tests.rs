use segue_core::flow::DynFlow;

use super::parser::{
    CATALOG_KEYS, MODEL_KEYS, MODEL_LIMIT_KEYS, PRICE_KEYS, REHEARSAL_KEYS, RESERVED_MODEL_KEYS, ROLE_KEYS, ROLES_KEY,
    SCRIPTED_KEYS, SESSION_KEYS, STORE_KEYS, TOP_KEYS,
};
use super::records::RECORDS_KEYS;
use super::server_limits::SERVER_KEYS;
use super::vendor_model::VENDOR_KEYS;
use super::*;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

fn domain(name: &str) -> String {
    let fields = "fields = [{ name = \"name\", kind = \"text\" }]";
    format!("name = \"{name}\"\n[[type]]\nname = \"thing\"\nlabel = \"name\"\n{fields}")
}

fn read(text: &str) -> Result<Config, String> {
    let look = |path: &std::path::Path| match path.to_str() {
        Some("folder/prices.toml") => Ok("[providers.mine]\nwire = \"chat\"\nbase_url = \"http://box/v1\"".to_owned()),
        Some("folder/clients.toml") => Ok(domain("clients")),
        Some("folder/garden.toml") => Ok(domain("garden")),
        Some("folder/broken.toml") => Ok("[providers.mine]".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    parse_config("folder/segue.toml".as_ref(), text, &look).map_err(|error| error.to_string())
}

fn wrong(text: &str) -> String {
    let error = read(text).expect_err("it is wrong");
    error.strip_prefix("folder/segue.toml:").expect("it names the file").to_owned()
}

fn example(name: &str) -> String {
    let start = format!("```toml {name}\n");
    let text = PAGE.split(&start).nth(1).and_then(|rest| rest.split("```").next());
    text.expect("the page has the example").to_owned()
}

/// The values, whatever they came from.
fn values(config: &Config) -> Vec<(String, String)> {
    config_rows(config, None).into_iter().map(|(key, value, _)| (key, value)).collect()
}

#[test]
fn the_defaults_on_the_page_are_the_defaults() {
    let written = read(&example("defaults")).expect("it parses");
    let mut built_in = Config::built_in();
    // What is not limited has the engine's own limit.
    let calls_max = ConfigValue::from_default(segue_engine::limits::MODEL_CONCURRENT_CALLS_MAX);
    built_in.model_limits.insert(
        REHEARSAL_MODEL_NAME.into(),
        ModelLimitsConfig { calls_max, calls_per_minute_max: None, silence_ms_max: None },
    );
    assert_eq!(values(&written), values(&built_in));
    assert_eq!(
        segue_engine::rate_limit::ModelCallLimits::default().concurrent_calls_max,
        segue_engine::limits::MODEL_CONCURRENT_CALLS_MAX
    );
}

#[test]
fn the_whole_example_on_the_page_parses_and_fits_the_flows() {
    let config = read(&example("example")).expect("it parses");
    validate_config(&config, &config.flows()).expect("what it names is there");
    let shown = values(&config);
    for wanted in [
        ("session.busy", "interrupt"),
        ("models.rehearsal.pace", "instant"),
        ("models.rehearsal.window_tokens", "32000"),
        ("models.replayed.file", "folder/scenario.toml"),
        ("models.replayed.price", "input $3, output $15, cached $0.3"),
        ("models.strong.provider", "anthropic"),
        ("server.streams_max", "20"),
        ("models.strong.effort", "high"),
        ("models.local.key_env", "MY_SERVER_KEY"),
        ("models.openai/gpt-6.1-terra.model", "gpt-6.1-terra"),
        ("catalog.file", "folder/prices.toml"),
        ("roles.assistant", "replayed"),
        ("roles.assistant.fallback", "openai/gpt-6.1-terra"),
        ("limits.replayed.silence_s_max", "300"),
        ("flows.chat.roles.summariser", "rehearsal"),
        ("limits.replayed.calls_per_minute_max", "60"),
    ] {
        assert!(shown.iter().any(|(key, value)| (key.as_str(), value.as_str()) == wanted), "{wanted:?} in {shown:?}");
    }
    assert_eq!(config.store.map(|store| store.value), Some("folder/sessions.db".into()));
}

#[test]
fn every_key_is_on_the_page() {
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
    ];
    for key in keys.concat().iter().chain(&[ROLES_KEY]) {
        assert!(PAGE.contains(&format!("\n| `{key}` | ")), "`{key}` has no row");
    }
    assert!(PAGE.contains(&format!("`{{ {} }}`", PRICE_KEYS.join(", "))));
}

#[test]
fn mistakes_name_their_line_and_what_would_be_right() {
    assert_eq!(
        wrong("a = 1"),
        "1: unknown key `a`; there are `store`, `session`, `models`, `catalog`, `roles`, `flows`, `records`, `limits`, `server`"
    );
    assert_eq!(wrong("\n[store]\npaht = \"x\""), "3: unknown key `store.paht`; did you mean `path`?");
    assert_eq!(wrong("[store]\npath = 3"), "2: `store.path`: expected a text in quotes, found the number 3");
    assert_eq!(wrong("store = true"), "1: `store`: expected a table, found true");
    assert_eq!(wrong("[session]\nbusy = \"que\""), "2: `session.busy`: no such word `que`; did you mean `queue`?");
    assert_eq!(
        wrong("[models.x]\n"),
        "1: `models.x` needs a `provider`, such as \"anthropic\", or a `kind`, which is one of `rehearsal`, `scripted`, `vendor`"
    );
    assert_eq!(
        wrong("[models.x]\nkind = \"scriptd\""),
        "2: `models.x.kind`: no such kind `scriptd`; did you mean `scripted`?"
    );
    assert_eq!(wrong("[models.x]\nkind = \"scripted\""), "1: `models.x.file` is missing: the scenario it answers from");
    assert!(wrong("[models.x]\nkind = \"rehearsal\"\nfile = \"f\"").starts_with("3: unknown key `models.x.file`"));
    assert_eq!(wrong("[models]\ndefault = \"rehersal\""), "2: there is no model `rehersal`; did you mean `rehearsal`?");
    assert_eq!(
        wrong("[models.default]\nkind = \"rehearsal\""),
        "1: `models.default`: expected a text in quotes, found a table"
    );
    assert!(
        wrong("[models.a]\nkind = \"rehearsal\"\n[models.b]\nkind = \"rehearsal\"")
            .contains("`models.default` is missing")
    );
    assert_eq!(
        wrong("[roles]\nassistant = 7"),
        "2: `roles.assistant`: expected a model's name in quotes, found the number 7"
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
fn a_flow_is_set_by_its_own_keys_and_what_does_not_fit_names_its_line() {
    let text =
        "[models.ant]\nkind = \"rehearsal\"\n[flows.concierge]\nquorum = 2\nexperts = [\"ant\", { samples = 2 }]\n";
    let config = read(text).expect("it parses");
    validate_config(&config, &segue_flows::built_in_flows()).expect("it fits");
    let settings = config.settings_by_flow();
    assert_eq!(settings["concierge"], serde_json::json!({"quorum": 2, "experts": ["ant", {"samples": 2}]}));
    assert!(values(&config).contains(&("flows.concierge.quorum".into(), "2".into())));
    let wrong = |line: &str| {
        let config = read(&format!("[flows.concierge]\n{line}")).expect("it parses");
        let error = validate_config(&config, &segue_flows::built_in_flows()).expect_err("it does not fit").to_string();
        error.strip_prefix("folder/segue.toml:").expect("it names the file").to_owned()
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
            .expect_err("it is wrong")
            .to_string()
    };
    assert!(
        other("[flows.concirge]\nquorum = 2").ends_with("2: there is no flow `concirge`; did you mean `concierge`?")
    );
    assert!(
        other("[flows.chat]\nquorum = 2")
            .ends_with("2: `flows.chat.quorum` is unknown; the flow `chat` has no settings")
    );
}

#[test]
fn secrets_are_refused_by_their_name() {
    for key in ["api_key", "API_KEY", "apikey", "token", "auth-token", "openai_api_key", "client_secret", "password"] {
        let error = wrong(&format!("[models.x]\nkind = \"rehearsal\"\n{key} = \"v\""));
        assert!(error.starts_with("3: ") && error.contains("from the environment only"), "{key}: {error}");
    }
    assert!(read("[models.x]\nkind = \"rehearsal\"\nwindow_tokens = 5000").is_ok());
}

#[test]
fn the_only_model_is_for_everybody() {
    let config = read("[models.fast]\nkind = \"rehearsal\"").expect("it parses");
    assert_eq!(config.default_model.value, ModelName::from("fast"));
    assert!(config.models.contains_key(REHEARSAL_MODEL_NAME), "the rehearsal model is always there");
    assert_eq!(read("").expect("it parses").default_model.value, ModelName::from(REHEARSAL_MODEL_NAME));
}

#[test]
fn flows_roles_and_phases_must_be_there() {
    let flows: Vec<std::sync::Arc<dyn DynFlow>> = segue_flows::built_in_flows();
    let check =
        |text: &str| validate_config(&read(text).expect("it parses"), &flows).map_err(|error| error.to_string());
    let error = |text: &str| check(text).expect_err("it is wrong").replace("folder/segue.toml:", "");
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
fn any_text_is_read_or_refused() {
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
        // Whatever comes of it, it comes without a panic, and an error has a line of the text.
        if let Err(error) = parse_config("x".as_ref(), &text, &|_| Err("no".to_owned())) {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}: {text:?}");
        }
    }
}

#[test]
fn a_real_model_needs_a_provider_and_little_else() {
    let config = read("[models.gpt-5]\nprovider = \"openai\"").expect("it parses");
    let shown = values(&config);
    assert!(shown.contains(&("models.gpt-5.model".into(), "gpt-5".into())), "its name is its model: {shown:?}");
    for (text, complaint) in [
        ("[models.x]\nprovider = \"opnai\"", "2: `models.x`: unknown provider `opnai`; did you mean `openai`?"),
        ("[models.x]\nkind = \"vendor\"", "1: `models.x.provider` is missing: who serves it"),
        ("[models.x]\nprovider = \"openai-compatible\"", "2: `models.x`: `openai-compatible` has no default address"),
        ("[models.x]\nprovider = \"ollama\"\nbase_url = \"box\"", "2: `models.x`: `box` is not an address"),
        (
            "[models.x]\nprovider = \"ollama\"\nwire = \"char\"",
            "3: `models.x.wire`: no such word `char`; did you mean `chat`?",
        ),
        (
            "[models.x]\nprovider = \"ollama\"\ntemperature = 3",
            "3: `models.x.temperature`: expected a number from 0 to 2",
        ),
        (
            "[models.x]\nprovider = \"ollama\"\nimages = \"no\"",
            "3: `models.x.images`: expected true or false, found a text",
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
        assert!(error.starts_with(complaint), "{text}: {error}");
    }
}

#[test]
fn a_key_in_the_place_of_its_variable_is_refused_and_not_repeated() {
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
fn a_provider_and_a_model_do_without_a_table() {
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
fn a_domain_is_read_from_its_file_wherever_it_is_named() {
    let config =
        read("[flows.assistant]\ndomain = \"clients.toml\"\n[records]\npath = \"r.db\"\ndomains = [\"garden.toml\"]");
    let config = config.expect("it parses");
    let names: Vec<String> = config.all_domains().iter().map(|domain| domain.name.clone()).collect();
    assert_eq!(names, ["kitchen", "reading", "garden", "clients"]);
    assert_eq!(config.settings_by_flow()[&FlowName::from("assistant")], serde_json::json!({"domain": "clients"}));
    let store = ConfigValue::from_default(PathBuf::from("data/segue.db"));
    assert_eq!(config.records_path(&store).value, PathBuf::from("folder/r.db"));
    assert_eq!(Config::built_in().records_path(&store).value, PathBuf::from("data/segue-records.db"));
    assert_eq!(
        wrong("[records]\ndomains = \"x\""),
        "2: `records.domains`: expected a list of texts in quotes, found a text"
    );
    assert_eq!(wrong("[records]\ndomains = [\"no.toml\"]"), "2: `records.domains`: folder/no.toml: no such file");
    let broken = wrong("[flows.assistant]\ndomain = \"broken.toml\"");
    assert!(broken.starts_with("2: `flows.assistant.domain`: folder/broken.toml: TOML parse error"), "{broken}");
    let unknown = read("[flows.assistant]\ndomain = \"garage\"").expect("it parses");
    let error = validate_config(&unknown, &unknown.flows()).expect_err("there is none").to_string();
    assert!(error.contains("expected `kitchen` or `reading`"), "{error}");
}
