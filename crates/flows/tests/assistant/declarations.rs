//! Declarations of domains: what is sound, and what is complained of.

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
fn a_sound_declaration_is_read() {
    let domain = DomainSchema::parse(SOUND).expect("sound");
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
fn what_contradicts_itself_is_named() {
    for (from, to, complaint) in [
        ("name = \"bees\"", "name = \"Bees!\"", "`Bees!` cannot be its name"),
        ("label = \"on\"", "label = \"day\"", "its label `day` is none of its fields"),
        ("to = \"hive\"", "to = \"nest\"", "it leads to `nest`, and there is no such type"),
        ("hive = \"old\"", "hive = \"new\"", "no sample of `hive` has the key `new`; there are `old`"),
        ("on = \"today-3\"", "on = \"soon\"", "sample 1 of `visit`: `on` must be a day"),
        ("name = \"visit\"", "name = \"hive\"", "the type `hive` is there twice"),
        ("name = \"visit\"", "name = \"gen_visit\"", "names that begin with `gen_` are those of drafts"),
        (
            "name = \"queen\", kind = \"integer\", min = 2020",
            "name = \"queen\", kind = \"text\", min = 2020",
            "`min` and `max` are for numbers",
        ),
        ("name = \"queen\"", "name = \"id\"", "`id` and `key` are taken"),
        ("kind = \"date\"", "kind = \"moment\"", "unknown variant `moment`"),
        ("about = ", "abuot = ", "unknown field `abuot`"),
        ("[[samples.hive]]", "[[samples.nest]]", "there is no type `nest`; there are `hive`, `visit`"),
    ] {
        let text = SOUND.replacen(from, to, 1);
        assert_ne!(text, SOUND, "{from}");
        let why = DomainSchema::parse(&text).expect_err("it is not sound");
        assert!(why.contains(complaint), "{complaint}: {why}");
    }
    assert!(DomainSchema::parse("name = \"empty\"").expect_err("nothing in it").contains("it has no types"));
    assert!(DomainSchema::parse("name = ").expect_err("no TOML").contains("line 1"));
}

#[test]
fn a_server_is_declared_in_one_way_and_without_secrets() {
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
        ("", "needs a `command` that starts it, or the `url`"),
        ("command = [\"x\"]\nurl = \"https://x\"", "it is either started or called"),
        ("url = \"ftp://x\"", "must begin with `https://` or `http://`"),
        ("url = \"https:///mcp\"", "names no host"),
        ("url = \"https://me:secret@x/mcp\"", "name the variable that holds a key in `key_env`"),
        ("url = \"http://notes.example/mcp\"\nkey_env = \"K\"", "a key is not sent over plain `http://`"),
        ("command = [\"x\"]\nkey_env = \"K\"", "a program gets what `environment` names"),
        ("url = \"https://x\"\nenvironment = [\"K\"]", "`environment` is for a server with a `command`"),
        ("command = [\"x\"]\ntimeout_s = 0", "`timeout_s` must be 1 to 590"),
        ("command = [\"x\"]\ntools = []", "leave it out to allow all that the server has"),
        ("command = [\"x\"]\ntools = [{ name = \"a\" }, { name = \"a\" }]", "`a` is there twice"),
        ("command = [\"x\"]\ntools = [{ name = \"a\", returns = \"note\" }]", "there is no type `note`"),
        ("command = [\"x\"]\ntools = [{ name = \"a\", at = \"notes\" }]", "`at` must be such as `/notes`"),
        ("command = [\"x\"]\ntoken = \"y\"", "unknown field `token`"),
    ] {
        assert!(faults(server).contains(complaint), "{server}: {}", faults(server));
    }
}

#[test]
fn every_declaration_on_the_page_is_sound() {
    let page = include_str!("../../../../docs/domains.md");
    let fences = page.split("```toml").skip(1).filter_map(|part| part.split_once('\n')?.1.split("```").next());
    let declared: Vec<&str> = fences.filter(|text| text.starts_with("name =")).collect();
    let sound: Vec<String> =
        declared.iter().filter_map(|text| DomainSchema::parse(text).ok()).map(|domain| domain.name).collect();
    assert_eq!(sound, ["clients", "tracker", "notes"], "all but the one that is broken on purpose");
    assert_eq!(declared.len(), 4);
}
