use segue_core::prompt::TokenUsage;

use super::*;

fn spec(provider: &str, model: &str) -> RequestedVendorModel {
    RequestedVendorModel { provider: provider.into(), model: model.into(), ..RequestedVendorModel::default() }
}

fn find(spec: &RequestedVendorModel) -> Result<ResolvedVendorModel, ModelResolveError> {
    let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-123456".to_owned());
    ModelCatalog::built_in().resolve_model(spec, &env)
}

#[test]
fn the_built_in_catalog_is_consistent() {
    let catalog = ModelCatalog::built_in();
    for (name, provider) in catalog.providers_by_rank() {
        assert!(provider.model_defaults.window_tokens.is_some(), "{name}: a window must be assumed");
        let default = provider.default_model.as_deref().unwrap_or("some-model");
        let base_url = provider.base_url.is_none().then(|| "http://localhost/v1".to_owned());
        let found = find(&RequestedVendorModel { base_url, ..spec(name, default) }).expect(name);
        assert!(found.card.window_tokens >= 4_096);
    }
    for known in &catalog.models {
        let CatalogModel { provider, name, .. } = known;
        assert!(catalog.providers.contains_key(provider), "{name}: unknown provider");
        let same_name = catalog.models.iter().filter(|other| other.provider == *provider && other.name == *name);
        assert_eq!(same_name.count(), 1, "{name} is listed twice");
        let (window, most) = (known.window_tokens.expect(name), known.output_tokens_max.expect(name));
        assert!(most < window, "{name}: a reply must fit");
        if let Some(price) = known.price {
            assert!(price.cached < price.input && price.input < price.output, "{name}: check its price");
            assert!(price.written.is_none_or(|written| written >= price.input), "{name}: check its price");
            assert!(price.long.is_none_or(|long| long.input > price.input && long.output > price.output), "{name}");
        }
    }
}

#[test]
fn dated_versions_are_known_and_other_models_are_not() {
    let catalog = ModelCatalog::built_in();
    let known = |model: &str| catalog.find_profile("openai", model).map(|known| known.name);
    assert_eq!(known("gpt-5").as_deref(), Some("gpt-5"));
    assert_eq!(known("gpt-5-2025-08-07").as_deref(), Some("gpt-5"));
    assert_eq!(known("gpt-5-mini-2025-08-07").as_deref(), Some("gpt-5-mini"));
    for unknown in ["gpt-5-pro", "gpt-5-", "gpt-5x", "gpt", "claude-opus-5"] {
        assert_eq!(known(unknown), None, "{unknown}");
    }
    assert!(catalog.find_profile("anthropic", "claude-haiku-4-5-20251001").is_some());
    assert!(catalog.find_profile("anthropic", "claude-3-5-haiku-latest").is_some());
}

#[test]
fn a_known_model_has_its_window_and_price() {
    let found = find(&spec("anthropic", "claude-haiku-4-5")).expect("it is known");
    assert_eq!((found.card.window_tokens, found.window_source), (200_000, ContextWindowSource::Known));
    assert_eq!(found.card.cost(TokenUsage { input_tokens: 10, output_tokens: 1, ..TokenUsage::default() }), Some(15));
    assert_eq!(found.endpoint.base_url, "https://api.anthropic.com/v1");
    assert!(
        matches!(&found.endpoint.credentials, VendorCredentials::ApiKey { env, key: None } if env == "ANTHROPIC_API_KEY")
    );
    assert_eq!(found.endpoint.capabilities.images, FeatureSupport::Yes);
}

#[test]
fn an_unknown_model_has_a_safe_window_and_no_price() {
    let found = find(&spec("anthropic", "claude-next")).expect("resolved");
    assert_eq!(
        (found.card.window_tokens, found.window_source, found.card.price),
        (200_000, ContextWindowSource::Assumed, None)
    );
    let overrides = CatalogModel { window_tokens: Some(5_000), ..CatalogModel::default() };
    let found = find(&RequestedVendorModel { overrides, ..spec("anthropic", "claude-next") }).expect("resolved");
    assert_eq!((found.card.window_tokens, found.window_source), (5_000, ContextWindowSource::Known));
}

#[test]
fn a_local_model_costs_nothing_and_needs_no_key() {
    let found = find(&spec("ollama", "qwen-max")).expect("resolved");
    assert_eq!(found.card.cost(TokenUsage { input_tokens: 10, output_tokens: 1, ..TokenUsage::default() }), Some(0));
    assert!(matches!(found.endpoint.credentials, VendorCredentials::None));
    assert_eq!(found.endpoint.model, "qwen-max", "the name is not changed");
}

#[test]
fn keys_are_found_where_the_provider_or_the_user_says() {
    let key = |found: ResolvedVendorModel| {
        matches!(found.endpoint.credentials, VendorCredentials::ApiKey { key: Some(_), .. })
    };
    assert!(key(find(&spec("openai", "gpt-5")).expect("known")));
    assert!(!key(find(&spec("gemini", "gemini-2.5-pro")).expect("known")));
    let borrowed = RequestedVendorModel { key_env: Some("OPENAI_API_KEY".into()), ..spec("gemini", "gemini-2.5-pro") };
    assert!(key(find(&borrowed).expect("known")));
}

#[test]
fn what_is_missing_is_reported() {
    let error = |spec: &RequestedVendorModel| find(spec).expect_err("it is error").to_string();
    assert_eq!(error(&spec("antropic", "x")), "unknown provider `antropic`; did you mean `anthropic`?");
    assert!(error(&spec("zzz", "x")).starts_with("unknown provider `zzz`; known providers: `anthropic`, "));
    assert!(error(&spec("openai-compatible", "x")).contains("`base_url`"));
    assert!(error(&spec("ollama", "")).contains("`model`"));
    let with_base_url = |url: &str| RequestedVendorModel { base_url: Some(url.into()), ..spec("ollama", "x") };
    assert!(error(&with_base_url("localhost:8080")).contains("not an address"));
    assert!(error(&with_base_url("http://")).contains("not an address"));
    assert_eq!(
        find(&with_base_url("http://box:8080/v1/ ")).expect("an address").endpoint.base_url,
        "http://box:8080/v1"
    );
}

#[test]
fn a_users_file_takes_precedence_and_is_read_strictly() {
    let users = "[providers.mine]\nwire = \"chat\"\nbase_url = \"http://box/v1\"\n\
        [[models]]\nprovider = \"openai\"\nname = \"gpt-5\"\nwindow_tokens = 9000\nprice = { input = 1, output = 2.5 }";
    let catalog = ModelCatalog::built_in().extended_with(ModelCatalog::parse(users).expect("it parses"));
    let known = catalog.find_profile("openai", "gpt-5").expect("known");
    assert_eq!(
        (known.window_tokens, known.price),
        (Some(9000), Some(TokenPrice::flat(1_000_000, 2_500_000, 1_000_000)))
    );
    let built_in = ModelCatalog::built_in().find_profile("openai", "gpt-5").expect("known");
    assert_eq!(
        (known.thinking, known.output_tokens_max),
        (built_in.thinking, built_in.output_tokens_max),
        "the rest stays"
    );
    let dated = catalog.find_profile("openai", "gpt-5-2025-08-07").expect("known by its name without a date");
    assert_eq!((dated.window_tokens, dated.thinking), (Some(9000), built_in.thinking));
    assert!(catalog.resolve_model(&spec("mine", "any"), &|_| None).is_ok());
    assert!(catalog.find_profile("openai", "gpt-4o").is_some());
    for (text, expected) in [
        ("[providers.mine]", "missing field `wire`"),
        ("[providers.mine]\nwire = \"char\"", "unknown variant `char`"),
        ("[[models]]\nprovider = \"p\"\nname = \"m\"\nprize = 3", "unknown field `prize`"),
        (
            "[[models]]\nprovider = \"p\"\nname = \"m\"\nprice = { input = -1, output = 1 }",
            "-1 is not a price in dollars",
        ),
        ("[[models]]\nprovider = \"p\"\nname = \"m\"\nwindow_tokens = 0", "at least 1"),
        (
            "[[models]]\nprovider = \"p\"\nname = \"m\"\nprice = { input = 1, output = 1 }\nprice_checked = \"soon\"",
            "must be a day such as 2026-11-18",
        ),
        ("[[models]]\nprovider = \"p\"\nname = \"m\"\nprice_checked = \"2026-11-18\"", "needs a `price`"),
        (
            "[[models]]\nprovider = \"p\"\nname = \"m\"\nprice = { input = 1, output = 1 }\nprice_checked = \"2026-11-18\"\nprice_sources = [\"one\"]",
            "at least 2 sources",
        ),
        ("[[models]]\nprovider = \"p\"\nname = \"m\"\nprice_sources = [\"one\", \"two\"]", "go together"),
        ("x", "expected"),
    ] {
        let error = ModelCatalog::parse(text).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
