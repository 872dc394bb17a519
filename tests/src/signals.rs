//! SIGTERM at random moments: what is in flight is committed, and the printed command goes on.

use std::process::{Command, Stdio};
use std::time::Duration;

use gegendruck::Clock;

use crate::kill::tables;
use crate::program::{Folder, Ran, Random};

const RECORDS: u64 = 20_000;

fn prepared() -> (Folder, [String; 3]) {
    let clean = Folder::new();
    clean.generate(RECORDS, &["--faults", "1%"]);
    clean.run(&["run", "claims", "claims.csv", "--max-errors", "50%", "--quiet"]).exits(1);
    let expected = tables(&clean);
    (clean, expected)
}

fn copy(from: &Folder) -> Folder {
    let folder = Folder::new();
    for name in ["claims.csv", "contracts.csv"] {
        std::fs::copy(from.path(name), folder.path(name)).expect("the input is copied");
    }
    folder
}

fn signal(pid: u32, name: &str) {
    drop(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status());
}

/// Runs slowly enough to be hit, sends `signals` after random waits, and gives what the run came to.
fn interrupted(folder: &Folder, random: &mut Random, signals: &[&str]) -> Ran {
    let slow = [
        "run",
        "claims",
        "claims.csv",
        "--max-errors",
        "50%",
        "--rate",
        "score=20000/s",
        "--batch-size",
        "500",
    ];
    let child = folder
        .command(&slow)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    for name in signals {
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        signal(child.id(), name);
    }
    child.wait_with_output().expect("the program ends").into()
}

/// Nothing in flight is left: the counts balance, and progress is where the rows are.
fn assert_consistent(folder: &Folder) {
    if !folder.path("claims.db").exists() {
        return;
    }
    let open = "SELECT count(*) FROM gegendruck_runs WHERE read_records <> stored + rejected + filtered + duplicate";
    assert_eq!(folder.count(open), 0);
    let has_claims = folder.count("SELECT count(*) FROM sqlite_schema WHERE name = 'claims'");
    if has_claims == 1 {
        let stored =
            "SELECT coalesce(sum(stored), 0) FROM gegendruck_runs WHERE pipeline = 'claims'";
        assert_eq!(folder.count("SELECT count(*) FROM claims"), folder.count(stored));
    }
}

#[test]
fn c34_a_b_a_run_told_to_stop_settles_what_is_in_flight_and_the_printed_command_goes_on() {
    let (clean, expected) = prepared();
    let mut random = Random(11);
    let mut stopped = 0;
    for _ in 0..8 {
        let folder = copy(&clean);
        loop {
            let ran = interrupted(&folder, &mut random, &["TERM"]);
            assert_consistent(&folder);
            if ran.code == 1 {
                break;
            }
            if ran.code == -1 {
                // The signal came before the program could catch it: nothing had begun.
                continue;
            }
            let ran = ran.exits(5);
            const GO_ON: &str = "go on with: nightly-import ";
            if ran.out.is_empty() {
                // It came while the ledger was asked: this attempt has not begun.
                assert!(ran.err.contains(GO_ON), "no command that goes on in\n{}", ran.err);
                continue;
            }
            let Some(command) = ran.out.lines().find_map(|line| line.strip_prefix(GO_ON)) else {
                panic!("no command that goes on in\n{}", ran.out);
            };
            stopped += 1;
            if random.below(3) == 0 {
                let words: Vec<_> = command.split_whitespace().collect();
                folder.run(&words).exits(1).says("going on with run");
                break;
            }
        }
        assert_eq!(tables(&folder), expected);
    }
    assert!(stopped >= 8, "only {stopped} runs were hit");
}

#[test]
fn c34_d_a_second_signal_stops_at_once_and_leaves_whole_groups() {
    let (clean, expected) = prepared();
    let mut random = Random(12);
    for _ in 0..8 {
        let folder = copy(&clean);
        let ran = interrupted(&folder, &mut random, &["TERM", "TERM"]);
        assert!([1, 5, -1].contains(&ran.code), "exit {}\n{}", ran.code, ran.err);
        assert_consistent(&folder);
        folder.run(&["run", "claims", "claims.csv", "--max-errors", "50%", "--quiet"]).exits(1);
        assert_eq!(tables(&folder), expected);
    }
}

#[test]
fn a_hangup_stops_like_a_term_and_usr1_prints_the_report() {
    let (clean, _) = prepared();
    let folder = copy(&clean);
    let slow = ["run", "claims", "claims.csv", "--max-errors", "50%", "--rate", "score=4000/s"];
    let child = folder
        .command(&slow)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The status file appears when the run has begun and signals are caught.
    let status = folder.path("claims.db.status.json");
    let claims = |text: String| text.contains("\"claims\"");
    while !std::fs::read_to_string(&status).is_ok_and(claims) {
        std::thread::yield_now();
    }
    signal(child.id(), "USR1");
    std::thread::sleep(Duration::from_millis(300));
    signal(child.id(), "HUP");
    let ran = Ran::from(child.wait_with_output().expect("the program ends")).exits(5);
    assert!(ran.err.contains("bottleneck"), "USR1 prints the report:\n{}", ran.err);
    assert_consistent(&folder);
}

#[test]
fn c34_f_a_run_that_waits_for_its_database_ends_when_it_is_told_to_stop() {
    let folder = Folder::new();
    folder.generate(RECORDS, &[]);
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    let slow = ["run", "claims", "claims.csv", "--quiet", "--rate", "score=5000/s"];
    let mut command = folder.command(&slow);
    command.args(["--batch-size", "100", "--retry-for", "15m"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    folder.wait_for_claims();
    let held = loop {
        if let Some(held) = folder.try_hold() {
            break held;
        }
    };
    let clock = Clock::start();
    signal(child.id(), "TERM");
    let ran: Ran = child.wait_with_output().expect("the program ends").into();
    assert!(clock.elapsed() < Duration::from_secs(30), "it ended after {:?}", clock.elapsed());
    drop(held);
    ran.exits(5).says("go on with: nightly-import run claims");
    folder.run(&["run", "claims", "claims.csv", "--quiet"]).exits(0);
    assert_eq!(folder.count("SELECT count(*) FROM claims"), RECORDS as i64);
}
