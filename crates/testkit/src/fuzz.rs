//! A small fuzzer for tests: replays a kept corpus, then tries inputs that are changed at random. It needs no special
//! compiler, and does not measure coverage.
//!
//! The ordinary tests replay the corpus and try a few thousand inputs, the same ones every time. `cargo xtask fuzz` sets
//! `SEGUE_FUZZ_SECONDS`, and each target then runs that long with new inputs. An input that fails is added to the corpus, so that
//! it is replayed from then on.

#![allow(clippy::print_stdout, reason = "tests print what they found")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

const SECONDS_VARIABLE: &str = "SEGUE_FUZZ_SECONDS";
const EXECUTIONS_DEFAULT: u64 = 3_000;
const LONGEST_INPUT_BYTES: usize = 16 << 10;
/// Bytes and texts that parsers treat in a special way.
const DICTIONARY: &[&[u8]] = &[
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\",
    b"\n",
    b"\r\n",
    b"\0",
    b"```",
    b"~~~",
    b">",
    b"<<<",
    b">>>",
    b"<<<END>>>",
    b"<<<NOTE>>>",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\xff",
    b"\xc3\xa9",
    b"\xf0\x9f\xa6\x8a",
    b"=",
    b"[[",
    b"]]",
    b"\xe2\x80\xa8",
    b"\\u0000",
    b"\\ud800",
];

/// Runs a target: `check` must not panic for any input. The files in `corpus` and the `seeds` are the inputs to start from.
///
/// # Panics
/// `check` panics for an input.
pub fn run_fuzz_target(name: &str, corpus: &Path, seeds: &[Vec<u8>], check: impl Fn(&[u8])) {
    let mut inputs: Vec<Vec<u8>> = seeds.to_vec();
    let mut files: Vec<_> =
        std::fs::read_dir(corpus).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    inputs
        .extend(files.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).expect("a readable corpus")));
    assert!(!inputs.is_empty(), "{name} has neither seeds nor a corpus in {}", corpus.display());
    inputs.iter().for_each(|input| check_input(name, corpus, input, &check));
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut random = until.map_or(1, |_| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64 | 1)
    });
    let mut executions = 0;
    while until.map_or(executions < EXECUTIONS_DEFAULT, |until| Instant::now() < until) {
        let input = mutate_input(&inputs, &mut random);
        check_input(name, corpus, &input, &check);
        executions += 1;
    }
    if until.is_some() {
        println!("fuzz target {name}: {executions} executions, no finding");
    }
}

/// Checks an input. One that fails is added to the corpus.
fn check_input(name: &str, corpus: &Path, input: &[u8], check: &impl Fn(&[u8])) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) else { return };
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let path = corpus.join(format!("finding-{hash:016x}"));
    // If it cannot be kept, the message below still has the input.
    let kept = std::fs::create_dir_all(corpus).and_then(|()| std::fs::write(&path, input));
    println!("fuzz target {name} fails for {:?}; kept: {kept:?} in {}", String::from_utf8_lossy(input), path.display());
    resume_unwind(panic);
}

/// Returns an input with some random changes.
fn mutate_input(inputs: &[Vec<u8>], random: &mut u64) -> Vec<u8> {
    let mut input = inputs[below(random, inputs.len())].clone();
    for _ in 0..=below(random, 6) {
        let at = below(random, input.len() + 1);
        let end = (at + 1 + below(random, 24)).min(input.len());
        match below(random, 7) {
            0 if at < input.len() => input[at] ^= 1 << below(random, 8),
            1 if at < input.len() => drop(input.drain(at..end)),
            2 => drop(input.splice(at..at, DICTIONARY[below(random, DICTIONARY.len())].iter().copied())),
            3 if at < input.len() => {
                let copied = input[at..end].to_vec();
                let to = below(random, input.len() + 1);
                input.splice(to..to, copied);
            }
            4 => input.truncate(at),
            5 => {
                let other = &inputs[below(random, inputs.len())];
                let from = below(random, other.len() + 1);
                let until = (from + below(random, 200)).min(other.len());
                input.splice(at..at, other[from..until].iter().copied());
            }
            _ if at < input.len() => input[at] = below(random, 256) as u8,
            _ => {}
        }
    }
    input.truncate(LONGEST_INPUT_BYTES);
    input
}

fn below(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 33) as usize % limit.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_input_is_found_and_replayed() {
        let folder = std::env::temp_dir().join(format!("segue-fuzz-{}", std::process::id()));
        let fails = |input: &[u8]| assert!(!input.contains(&b'"'), "found");
        let found = catch_unwind(|| run_fuzz_target("sample", &folder, &[b"a plain text".to_vec()], fails));
        assert!(found.is_err());
        let kept: Vec<_> = std::fs::read_dir(&folder).expect("a folder").flatten().collect();
        assert_eq!(kept.len(), 1);
        assert!(std::fs::read(kept[0].path()).expect("kept").contains(&b'"'));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
