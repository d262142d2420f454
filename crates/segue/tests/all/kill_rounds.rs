//! Kills the program with SIGKILL at random times during all kinds of operations. What it has acknowledged is there
//! afterwards, once; what it has not acknowledged is there completely or not at all. `cargo xtask crash N` runs more rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{ECHO, Place};

const ROUNDS_VARIABLE: &str = "SEGUE_CRASH_ROUNDS";
const SEED_VARIABLE: &str = "SEGUE_CRASH_SEED";
const ROUNDS_DEFAULT: u64 = 50;
/// The store is checked after this many rounds, and at the end.
const ROUNDS_PER_CHECK: u64 = 10;
const SESSIONS_MAX: usize = 6;

/// What is known about a session.
#[derive(Debug, Default)]
struct KnownSession {
    /// The messages whose replies were printed, in order.
    acknowledged: Vec<String>,
    /// Messages whose fate is unknown.
    unknown: Vec<String>,
}

struct Rounds {
    place: Place,
    random: u64,
    sessions: BTreeMap<String, KnownSession>,
    /// Sessions that may exist or not, because the operation on them was killed.
    doubtful: BTreeMap<String, KnownSession>,
    names_used: u32,
    /// How long an operation takes.
    usual: Duration,
    killed: u32,
}

impl Rounds {
    fn new(seed: u64) -> Self {
        let place = Place::new();
        place.write("echo.toml", ECHO);
        let mut rounds = Self {
            place,
            random: seed.wrapping_mul(2).wrapping_add(1),
            sessions: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            names_used: 0,
            usual: Duration::ZERO,
            killed: 0,
        };
        let started = Instant::now();
        rounds.place.ok(&["send", "--session", "base", "--script", "echo.toml", "hello"]);
        rounds.usual = started.elapsed();
        rounds.place.ok(&["export", "base", "--output", "base.jsonl"]);
        rounds.sessions.insert("base".into(), KnownSession { acknowledged: vec!["hello".into()], unknown: Vec::new() });
        rounds
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) % limit
    }

    fn new_name(&mut self) -> String {
        self.names_used += 1;
        format!("n{}", self.names_used)
    }

    fn any_session(&mut self) -> String {
        let index = self.below(self.sessions.len() as u64);
        self.sessions.keys().nth(usize::try_from(index).expect("small")).expect("there is a session").clone()
    }

    /// Runs the program and kills it at a random time. Returns whether it succeeded before.
    fn run_and_kill(&mut self, arguments: &[&str]) -> bool {
        // Some runs end by themselves.
        let limit = u64::try_from(self.usual.as_micros()).unwrap_or(u64::MAX).max(2) * 5 / 4;
        let until = Instant::now() + Duration::from_micros(self.below(limit));
        let mut child = self.place.start(arguments);
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                let errors = child.stderr.take().map(std::io::read_to_string).expect("piped").expect("text");
                assert!(status.success(), "{arguments:?}: {errors}");
                return true;
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        let status = child.wait().expect("gone");
        self.killed += u32::from(!status.success());
        status.success()
    }

    fn send(&mut self, round: u64) {
        let (session, text) = (self.any_session(), format!("message {round}"));
        let arguments = ["send", "--session", &session, "--script", "echo.toml", &text];
        let is_acknowledged = self.run_and_kill(&arguments);
        let known = self.sessions.get_mut(&session).expect("known");
        if is_acknowledged { known.acknowledged.push(text) } else { known.unknown.push(text) }
    }

    /// Makes a session from another one, by a fork or an import.
    fn copy(&mut self, is_import: bool) {
        let (from, name) = (if is_import { "base".to_owned() } else { self.any_session() }, self.new_name());
        let source = &self.sessions[&from];
        let copy = KnownSession {
            // The imported file has only this message.
            acknowledged: if is_import { vec!["hello".into()] } else { source.acknowledged.clone() },
            unknown: if is_import { Vec::new() } else { source.unknown.clone() },
        };
        let arguments =
            if is_import { ["import", "base.jsonl", "--name", &name] } else { ["fork", &from, "--name", &name] };
        let is_acknowledged = self.run_and_kill(&arguments);
        if is_acknowledged { &mut self.sessions } else { &mut self.doubtful }.insert(name, copy);
    }

    fn delete(&mut self) {
        let session = self.any_session();
        if session == "base" {
            return;
        }
        let is_acknowledged = self.run_and_kill(&["delete", &session, "--yes"]);
        let known = self.sessions.remove(&session).expect("known");
        if !is_acknowledged {
            self.doubtful.insert(session, known);
        }
    }

    /// Makes a backup. After a kill there is a whole backup, or something that is not taken for one.
    fn back_up(&mut self, round: u64) {
        let file = format!("backup-{round}.db");
        if self.run_and_kill(&["backup", &file]) || self.place.path().join(&file).exists() {
            let sessions = self.place.json(&["sessions", "--json", "--limit", "200", "--store", &file]);
            let copied = session_names(&sessions);
            for name in self.sessions.keys() {
                assert!(copied.contains(name), "round {round}: {name} is missing in the backup");
            }
        }
        self.remove_store(&file);
    }

    /// Creates a store, which runs all migrations. After a kill it can be used: it has all tables or none.
    fn create_store(&mut self, round: u64) {
        let file = format!("new-{round}.db");
        self.run_and_kill(&["send", "--store", &file, "--session", "first", "--script", "echo.toml", "hello"]);
        self.place.ok(&["send", "--store", &file, "--session", "second", "--script", "echo.toml", "hello"]);
        let doctor = self.place.run(&["doctor", "--store", &file]);
        assert_eq!(doctor.code, 0, "round {round}: {}{}", doctor.out, doctor.err);
        self.remove_store(&file);
    }

    /// Removes a store and the files next to it.
    fn remove_store(&self, file: &str) {
        let stem = file.trim_end_matches(".db");
        for entry in std::fs::read_dir(self.place.path()).expect("a folder").flatten() {
            if entry.file_name().to_string_lossy().starts_with(stem) && entry.path().is_file() {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
    }

    /// Checks the whole store, and every session.
    fn check(&mut self, round: u64) {
        let doctor = self.place.run(&["doctor"]);
        assert_eq!(doctor.code, 0, "round {round}: {}{}", doctor.out, doctor.err);
        let listed = self.place.json(&["sessions", "--json", "--limit", "200"]);
        let names = session_names(&listed);
        for (name, known) in std::mem::take(&mut self.doubtful) {
            // It exists completely, or not at all.
            if names.contains(&name) {
                self.sessions.insert(name, known);
            }
        }
        for name in &names {
            assert!(self.sessions.contains_key(name), "round {round}: {name} was deleted, and exists");
        }
        for (name, known) in &self.sessions {
            assert!(names.contains(name), "round {round}: {name} is lost");
            let shown = self.place.json(&["show", name, "--json"]);
            check_session(round, name, known, &shown);
        }
    }
}

/// Returns the names in a list of sessions.
fn session_names(listed: &Value) -> Vec<String> {
    let rows = listed.as_array().or(listed["sessions"].as_array()).expect("sessions");
    rows.iter().filter_map(|row| row["session"].as_str().map(str::to_owned)).collect()
}

/// Returns the replies of a session, in order.
fn recorded_replies(shown: &Value) -> Vec<&str> {
    let events = shown["events"].as_array().expect("a session has events");
    let summaries = events.iter().filter_map(|event| event["summary"].as_str());
    summaries.filter_map(|summary| summary.strip_prefix("reply by assistant: ")).collect()
}

/// Checks that all acknowledged messages are in a session, once and in order, and that no reply is there twice.
fn check_session(round: u64, name: &str, known: &KnownSession, shown: &Value) {
    // Events and texts repeat each other, so only the recorded replies are counted.
    let text: String = recorded_replies(shown).iter().map(|reply| format!("{reply}\n")).collect();
    let mut last = 0;
    for message in &known.acknowledged {
        let reply = format!("You said: {message}\n");
        let at = text.find(&reply).unwrap_or_else(|| panic!("round {round}: `{message}` is lost in {name}: {text}"));
        assert!(at >= last, "round {round}: `{message}` is out of order in {name}");
        last = at;
    }
    for message in known.acknowledged.iter().chain(&known.unknown) {
        let replies = text.matches(&format!("You said: {message}\n")).count();
        assert!(replies <= 1, "round {round}: `{message}` was answered {replies} times in {name}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_program_is_killed() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds_max = variable(ROUNDS_VARIABLE).unwrap_or(ROUNDS_DEFAULT);
    let mut rounds = Rounds::new(variable(SEED_VARIABLE).unwrap_or(20));
    for round in 1..=rounds_max {
        match rounds.below(10) {
            0 if rounds.sessions.len() < SESSIONS_MAX => rounds.copy(true),
            1 if rounds.sessions.len() < SESSIONS_MAX => rounds.copy(false),
            2 => rounds.delete(),
            3 => rounds.back_up(round),
            4 => rounds.create_store(round),
            _ => rounds.send(round),
        }
        if round % ROUNDS_PER_CHECK == 0 || round == rounds_max {
            rounds.check(round);
        }
    }
    assert!(u64::from(rounds.killed) * 4 >= rounds_max, "only {} of {rounds_max} runs were killed", rounds.killed);
}
