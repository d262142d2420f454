//! Reads memory, CPU, file descriptors and file systems from the operating system.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

const PAGE_BYTES: f64 = 4_096.0;
/// Clock ticks per second in `/proc`; always 100 on Linux.
const CLOCK_TICKS_PER_S: f64 = 100.0;

/// Returns the resident memory of this process in MB.
pub(crate) fn rss_mb() -> f64 {
    read_number_field("/proc/self/statm", 1) * PAGE_BYTES / 1e6
}

/// Returns the CPU time of all threads of this process in milliseconds.
pub(crate) fn cpu_ms() -> f64 {
    let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
    cpu_time.tv_sec as f64 * 1e3 + cpu_time.tv_nsec as f64 / 1e6
}

/// Returns the bytes that this process has written to disk; zero if unknown.
pub(crate) fn disk_written_bytes() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

pub(crate) fn open_descriptor_count() -> usize {
    count_dir_entries("/proc/self/fd")
}

pub(crate) fn thread_count() -> usize {
    count_dir_entries("/proc/self/task")
}

/// Returns the CPU time of all processes since the system started, in seconds.
pub(crate) fn system_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|tick| tick.parse().ok())
        .collect();
    // Without idle time and time waiting for I/O.
    [0, 1, 2, 5, 6, 7].iter().filter_map(|index| ticks.get(*index)).sum::<f64>() / CLOCK_TICKS_PER_S
}

/// Returns the CPU time of this process and its ended children in seconds.
pub(crate) fn own_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    (11..15).filter_map(|index| fields.get(index)?.parse::<f64>().ok()).sum::<f64>() / CLOCK_TICKS_PER_S
}

/// Describes processor, cores and file system in one line.
pub(crate) fn describe_machine(dir: &Path) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{cores} cores, {}, {}", name.unwrap_or("unknown processor"), file_system_type(dir))
}

/// Returns the type of the file system that a folder is on.
pub(crate) fn file_system_type(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let best = mounts.filter(|(at, _)| dir.starts_with(at)).max_by_key(|(at, _)| at.len());
    best.map_or("unknown file system", |(_, kind)| kind).to_owned()
}

fn read_number_field(path: &str, index: usize) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().nth(index).and_then(|field| field.parse().ok()).unwrap_or_default()
}

fn count_dir_entries(dir: &str) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_this_process_are_read() {
        assert!(rss_mb() > 0.5 && thread_count() > 0 && open_descriptor_count() > 0);
        let before = cpu_ms();
        let mut sum = 0u64;
        while cpu_ms() - before < 1.0 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(system_cpu_s() > 0.0 && own_cpu_s() >= 0.0);
    }
}
