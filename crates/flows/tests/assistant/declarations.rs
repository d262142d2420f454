//! Valid and invalid declarations of domains.

use segue_flows::assistant::domain::DomainSchema;

const SOUND: &str = r#"
name = "bees"
about = "hives and what was done to them"

[[type]]
name = "hive"
label = "name"
fields = [
  { name = "name", kind = "text", required = true },
  { name = "queen", kind = "integer", min = 2020 },
]

[[type]]
name = "visit"
label = "on"
fields = [
  { name = "on", kind = "date", required = true },
  { name = "hive", kind = "link", to = "hive", required = true },
]

[[samples.hive]]
key = "old"
name = "Old oak"

[[samples.visit]]
on = "today-3"
hive = "old"
"#;

#[test]
fn valid_declaration_is_parsed() {
    let domain = DomainSchema::parse(SOUND).expect("a valid declaration");
    assert_eq!(domain.type_names().collect::<Vec<_>>(), ["hive", "visit"]);
    assert_eq!(
        domain
            .fields_linking_to("hive")
            .map(|(kind, field)| (kind.name.as_str(), field.name.as_str()))
            .collect::<Vec<_>>(),
        [("visit", "hive")]
    );
    assert_eq!(DomainSchema::built_in().len(), 2);
}

#[test]
fn invalid_declaration_is_refused_with_the_reason() {
    for (from, to, complaint) in [
        ("name = \"bees\"", "name = \"Bees!\"", "`Bees!` is not a valid name"),
        ("label = \"on\"", "label = \"day\"", "the label `day` is not one of its fields"),
        ("to = \"hive\"", "to = \"nest\"", "it links to `nest`, but there is no such type"),
        ("hive = \"old\"", "hive = \"new\"", "no sample of `hive` has the key `new`; the keys are `old`"),
        ("on = \"today-3\"", "on = \"soon\"", "sample 1 of `visit`: `on` must be a date"),
        ("name = \"visit\"", "name = \"hive\"", "the type `hive` is declared twice"),
        ("name = \"visit\"", "name = \"gen_visit\"", "names that begin with `gen_` are reserved for drafts"),
        (
            "name = \"queen\", kind = \"integer\", min = 2020",
            "name = \"queen\", kind = \"text\", min = 2020",
            "`min` and `max` are only for numbers",
        ),
        ("name = \"queen\"", "name = \"id\"", "`id` and `key` are reserved"),
        ("kind = \"date\"", "kind = \"moment\"", "unknown variant `moment`"),
        ("about = ", "abuot = ", "unknown field `abuot`"),
        ("[[samples.hive]]", "[[samples.nest]]", "there is no type `nest`; the types are `hive`, `visit`"),
    ] {
        let text = SOUND.replacen(from, to, 1);
        assert_ne!(text, SOUND, "{from}");
        let why = DomainSchema::parse(&text).expect_err("it is not sound");
        assert!(why.contains(complaint), "{complaint}: {why}");
    }
    assert!(DomainSchema::parse("name = \"empty\"").expect_err("nothing in it").contains("the domain has no types"));
    assert!(DomainSchema::parse("name = ").expect_err("no TOML").contains("line 1"));
}

#[test]
fn server_declaration_has_one_transport_and_no_secrets() {
    let faults = |server: &str| {
        let why = DomainSchema::parse(&format!("name = \"notes\"\n[server]\n{server}")).err();
        why.unwrap_or_default()
    };
    for sound in [
        "command = [\"notes\"]\nenvironment = [\"NOTES_TOKEN\"]\ntimeout_s = 30",
        "url = \"https://notes.example/mcp\"\nkey_env = \"NOTES_KEY\"",
        "url = \"http://127.0.0.1:9000/mcp\"\nkey_env = \"NOTES_KEY\"",
        "url = \"http://[::1]:9000/mcp\"\nkey_env = \"NOTES_KEY\"",
        "url = \"http://notes.example/mcp\"",
        "command = [\"notes\"]\ntools = [{ name = \"list\" }]",
    ] {
        assert_eq!(faults(sound), "", "{sound}");
    }
    for (server, complaint) in [
        ("", "needs a `command` that starts it, or a `url`"),
        ("command = [\"x\"]\nurl = \"https://x\"", "both a `command` and a `url`; give only one"),
        ("url = \"ftp://x\"", "must begin with `https://` or `http://`"),
        ("url = \"https:///mcp\"", "has no host"),
        ("url = \"https://me:secret@x/mcp\"", "use `key_env` to name the variable that contains a key"),
        ("url = \"http://notes.example/mcp\"\nkey_env = \"K\"", "the key would be sent unencrypted over `http://`"),
        ("command = [\"x\"]\nkey_env = \"K\"", "use `environment` for a program"),
        ("url = \"https://x\"\nenvironment = [\"K\"]", "`environment` is only for a server with a `command`"),
        ("command = [\"x\"]\ntimeout_s = 0", "`timeout_s` must be 1 to 590"),
        ("command = [\"x\"]\ntools = []", "leave it out to allow all tools of the server"),
        ("command = [\"x\"]\ntools = [{ name = \"a\" }, { name = \"a\" }]", "`a` is declared twice"),
        ("command = [\"x\"]\ntools = [{ name = \"a\", returns = \"note\" }]", "there is no type `note`"),
        (
            "command = [\"x\"]\ntools = [{ name = \"a\", at = \"notes\" }]",
            "`at` must be a JSON pointer such as `/notes`",
        ),
        ("command = [\"x\"]\ntoken = \"y\"", "unknown field `token`"),
    ] {
        assert!(faults(server).contains(complaint), "{server}: {}", faults(server));
    }
}

#[test]
fn declarations_in_the_docs_are_valid() {
    let page = include_str!("../../../../docs/domains.md");
    let fences = page.split("```toml").skip(1).filter_map(|part| part.split_once('\n')?.1.split("```").next());
    let declared: Vec<&str> = fences.filter(|text| text.starts_with("name =")).collect();
    let sound: Vec<String> =
        declared.iter().filter_map(|text| DomainSchema::parse(text).ok()).map(|domain| domain.name).collect();
    assert_eq!(sound, ["clients", "workshop", "tracker", "notes"], "all but the one that is broken on purpose");
    assert_eq!(declared.len(), 5);
}
