//! Fuzz targets of the flows; see `segue_testkit::run_fuzz_target`.

use std::path::Path;

use segue_flows::assistant::domain::DomainSchema;
use segue_testkit::run_fuzz_target;

#[test]
fn fuzz_domain_files() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = ["kitchen", "reading"]
        .map(|name| std::fs::read(manifest.join(format!("prompts/assistant/domains/{name}.toml"))).expect("a domain"));
    run_fuzz_target("domain files", &manifest.join("tests/fuzz/domains"), &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Err(message) = DomainSchema::parse(&text) {
            assert!(!message.trim().is_empty(), "an invalid file gets a message");
        }
    });
}
