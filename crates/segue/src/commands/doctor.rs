//! Whether everything is in order: configuration, store, models, roles, and what is left to be done.

use std::path::Path;
use std::sync::Arc;

use segue_models::Kind;
use segue_store::sqlite::SqliteStore;
use segue_store::{Owes, Store};
use serde_json::json;

use crate::Quiet;
use crate::cli::Global;
use crate::limits::NAMES_SHOWN_MAX;
use crate::print::text::one_line;
use crate::print::{self, Screen, amount, paint::Paint};
use crate::setup::{self, Loaded};

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Good,
    Notable,
    Broken,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Notable => "note",
            Self::Broken => "broken",
        }
    }

    fn painted(self, paint: Paint) -> String {
        let word = format!("{:<6}", self.word());
        match self {
            Self::Good => paint.good(word),
            Self::Notable => paint.warn(word),
            Self::Broken => paint.bad(word),
        }
    }
}

#[derive(Debug)]
struct Finding {
    about: &'static str,
    status: Status,
    detail: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, status: Status, detail: impl Into<String>) {
        self.0.push(Finding { about, status, detail: detail.into() });
    }

    fn is_broken(&self) -> bool {
        self.0.iter().any(|finding| finding.status == Status::Broken)
    }
}

pub async fn run(global: &Global) -> anyhow::Result<()> {
    let mut findings = Findings::default();
    match setup::load(global) {
        Ok(loaded) => {
            let file = loaded.config.file.as_ref().map(|file| file.display().to_string());
            findings.add("config", Status::Good, file.unwrap_or_else(|| "no file; defaults hold".to_owned()));
            look_at_store(&loaded.store.value, &mut findings).await;
            look_at_models(&loaded, &mut findings);
        }
        Err(error) => findings.add("config", Status::Broken, chain(&error)),
    }
    if global.json {
        let checks: Vec<_> = findings
            .0
            .iter()
            .map(|found| json!({ "about": found.about, "status": found.status.word(), "detail": found.detail }))
            .collect();
        print::json(&json!({ "ok": !findings.is_broken(), "checks": checks }))?;
    } else {
        let screen = Screen::here();
        for Finding { about, status, detail } in &findings.0 {
            let about = screen.paint.dim(format!("{about:<9}"));
            print::out(&format!("{} {about} {}\n", status.painted(screen.paint), one_line(detail)))?;
        }
    }
    if findings.is_broken() { Err(Quiet(1).into()) } else { Ok(()) }
}

fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn look_at_store(path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let bytes = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.add("store", Status::Good, format!("{shown}, which is made at first use"));
            return;
        }
        Err(error) => {
            findings.add("store", Status::Broken, format!("{shown}: {error}"));
            return;
        }
    };
    let store = match SqliteStore::open(path) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            findings.add("store", Status::Broken, error.to_string());
            return;
        }
    };
    match store.check().await {
        Ok(report) => {
            let status = if report.is_clean() { Status::Good } else { Status::Broken };
            let sessions = amount::several(report.sessions as u64, "session");
            findings.add("store", status, format!("{shown}: {}, {sessions} read", amount::bytes(bytes)));
            for (session, detail) in report.damaged {
                findings.add("session", Status::Broken, format!("{session}: {detail}"));
            }
            for complaint in report.complaints {
                findings.add("store", Status::Broken, complaint);
            }
        }
        Err(error) => findings.add("store", Status::Broken, error.to_string()),
    }
    match store.owing().await {
        Ok(owing) => {
            let now: Vec<String> =
                owing.iter().filter(|(_, owes)| *owes == Owes::Now).map(|(session, _)| session.to_string()).collect();
            if !now.is_empty() {
                let mut names = now.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
                if now.len() > NAMES_SHOWN_MAX {
                    names.push_str(", …");
                }
                let sessions = amount::several(now.len() as u64, "session");
                let detail = format!("{sessions} with an unfinished turn, taken up when used next: {names}");
                findings.add("owed", Status::Notable, detail);
            }
        }
        Err(error) => findings.add("owed", Status::Broken, error.to_string()),
    }
    // Nothing is queued there.
    let _ = store.close().await;
}

fn look_at_models(loaded: &Loaded, findings: &mut Findings) {
    let cast = match setup::cast(&loaded.config) {
        Ok(cast) => cast,
        Err(error) => return findings.add("models", Status::Broken, chain(&error)),
    };
    for (name, model, card) in cast.models.iter() {
        let described = model.describe();
        let price = if card.price.is_some() { "" } else { ", price unknown" };
        let window = amount::count(u64::from(card.window_tokens));
        findings.add("model", Status::Good, format!("{name}: {}, {window} tokens{price}", described.label));
    }
    let mut rehearsed = Vec::new();
    for rules in segue_flows::all() {
        let spec = rules.spec();
        for (role, phase, model) in cast.parts(spec) {
            let place = phase.map(|phase| format!(" in {phase}")).unwrap_or_default();
            findings.add("role", Status::Good, format!("{}/{role}{place}: {model}", spec.name));
            let kind = cast.models.get(&model).map(|model| model.describe().kind);
            match kind {
                Ok(Kind::Rehearsal) => rehearsed.push(format!("{}/{role}", spec.name)),
                Ok(Kind::Vendor | Kind::Scripted) => {}
                Err(failure) => findings.add("role", Status::Broken, failure.to_string()),
            }
        }
    }
    if !rehearsed.is_empty() {
        let detail = format!("a rehearsal model, which only pretends, plays {}", rehearsed.join(", "));
        findings.add("rehearsal", Status::Notable, detail);
    }
}
