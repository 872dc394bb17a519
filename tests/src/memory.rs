//! The memory of a run is bounded, and does not grow with the input.

use std::process::Stdio;
use std::time::Duration;

use crate::program::{Folder, long};

const MIB: u64 = 1024;

/// Imports so many generated claims at default settings; gives the most memory the process held, in KiB, and its summary.
fn import(records: u64) -> (u64, serde_json::Value) {
    let folder = Folder::new();
    folder.generate(records, &[]);
    let arguments = ["run", "claims", "claims.csv", "--quiet", "--summary", "summary.json"];
    let mut command = folder.command(&arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let held =
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        peak = peak.max(held);
        if let Some(ended) = child.try_wait().expect("it can be waited for") {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended.code(), Some(0), "{records} records");
    assert_eq!(folder.count("SELECT count(*) FROM claims"), records as i64);
    let text = std::fs::read_to_string(folder.path("summary.json")).expect("the summary is there");
    (peak, serde_json::from_str(&text).expect("the summary is JSON"))
}

#[test]
fn long_memory_is_bounded_and_does_not_grow_with_the_input() {
    let (few, many) = if long() { (2_000_000, 20_000_000) } else { (200_000, 400_000) };
    let (small, _) = import(few);
    let (large, summary) = import(many);
    println!("{few} records: {small} KiB at most; {many} records: {large} KiB at most");
    assert!(small > MIB, "the figure of the process was read");
    assert!(large <= 64 * MIB, "{large} KiB for {many} records");
    assert!(
        large as f64 <= 1.2 * small as f64,
        "{large} KiB for {many} records, {small} KiB for {few}"
    );
    let stages = summary["report"]["stages"].as_array().expect("stages");
    for stage in stages {
        for unit in ["records", "bytes"] {
            let (most, bound) = (stage["most"][unit].as_u64(), stage["buffer"][unit].as_u64());
            assert!(
                most <= bound,
                "{}: {most:?} {unit} on their way, {bound:?} allowed",
                stage["name"]
            );
        }
    }
}
