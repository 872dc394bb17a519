//! The program, killed at random moments, again and again; in the end the tables are those of an uninterrupted run.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gegendruck::Clock;

use crate::program::{Folder, Random, long};

/// What of a run must not depend on how often it was killed: rows, twins, rejects.
pub fn tables(folder: &Folder) -> [String; 3] {
    [
        folder.query("SELECT * FROM claims ORDER BY claim_id"),
        folder.query("SELECT * FROM claims_twins ORDER BY claim_id"),
        folder.query(
            "SELECT input, record, line, byte, length, bytes, stage, kind, column_name, detail, fault_byte FROM gegendruck_rejects \
             ORDER BY input, record",
        ),
    ]
}

/// Counts and progress of the claims run.
fn totals(folder: &Folder) -> String {
    let runs = "SELECT read_records, stored, updated, rejected, filtered, duplicate FROM gegendruck_runs WHERE pipeline = 'claims'";
    let inputs = "SELECT byte, record, line, fingerprint, header_lines, blank_lines FROM gegendruck_inputs \
                  WHERE run IN (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')";
    folder.query(runs) + &folder.query(inputs)
}

/// Records up to the committed position, as the ledger says; 0 if the claims run has not begun.
fn committed(folder: &Folder) -> u64 {
    if !folder.path("claims.db").exists() {
        return 0;
    }
    let tables =
        folder.query("SELECT count(*) FROM sqlite_schema WHERE name = 'gegendruck_inputs'");
    if tables.trim() != "1" {
        return 0;
    }
    let record = "SELECT coalesce(max(record), 1) - 1 FROM gegendruck_inputs JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'";
    folder.count(record) as u64
}

/// The records that were scored since the trace was last taken.
fn take_trace(folder: &Folder) -> Vec<u64> {
    let path = folder.path("trace");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, "").expect("the trace is emptied");
    text.lines()
        .map(|line| {
            line.strip_prefix("score ").expect("a line of the trace").parse().expect("a record")
        })
        .collect()
}

const MAX_ERRORS: &str = "50%";

/// Starts the import with other workers, buffers and batch sizes each time.
fn arguments(random: &mut Random) -> Vec<String> {
    let batch = *random.one_of(&[1u64, 7, 100, 1_000, 5_000]);
    let workers = *random.one_of(&[1u64, 2, 3, 8]);
    let buffer = *random.one_of(&[100u64, 500, 2_000, 10_000]);
    let store = *random.one_of(&[5_000u64, 20_000]);
    let interval = *random.one_of(&["10ms", "50ms", "1s"]);
    let text = format!(
        "run claims claims.csv --max-errors {MAX_ERRORS} --trace-calls trace --quiet --batch-size {batch} --commit-interval {interval} \
         --workers score={workers} --buffer score={buffer},store={store},validate={buffer}"
    );
    text.split_whitespace().map(str::to_string).collect()
}

/// Kills runs until `kills` have hit a living process; each time a run completes, compares it and begins anew.
fn kill_again_and_again(records: u64, kills: u32, seed: u64) {
    let clean = Folder::new();
    clean.generate(records, &["--faults", "1%"]);
    let clock = Clock::start();
    clean.run(&["run", "claims", "claims.csv", "--max-errors", MAX_ERRORS, "--quiet"]).exits(1);
    // Where the machine is slow, a run needs longer for its first commit: too many that come to none look like a bad record.
    let whole = clock.elapsed();
    let latest = (whole / 4).max(Duration::from_millis(200)).as_micros() as u64;
    let (expected, expected_totals) = (tables(&clean), totals(&clean));
    let valid: i64 = clean.count("SELECT count(*) FROM claims");
    assert!(
        valid > 0 && expected[2].lines().count() as u64 >= records / 200,
        "there is something to compare"
    );

    let mut random = Random(seed);
    let (mut killed, mut completed) = (0, 0);
    let mut folder = None;
    let mut scored: BTreeSet<u64> = BTreeSet::new();
    while killed < kills || folder.is_some() {
        let here = folder.get_or_insert_with(|| {
            scored.clear();
            let here = Folder::new();
            for name in ["claims.csv", "contracts.csv"] {
                std::fs::copy(clean.path(name), here.path(name)).expect("the input is copied");
            }
            here
        });
        let before = committed(here);
        let arguments = arguments(&mut random);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut child = here.start(&arguments);
        let ended = if killed < kills {
            std::thread::sleep(Duration::from_micros(random.below(latest)));
            child.kill().expect("the signal is sent");
            child.wait().expect("the process ends")
        } else {
            child.wait().expect("the process ends")
        };
        let traced = take_trace(here);
        let context = format!(
            "seed {seed}, kill {killed}, committed before {before}, arguments {arguments:?}"
        );
        for record in &traced {
            assert!(
                *record > before,
                "record {record} was scored again although it was committed: {context}"
            );
        }
        let once: BTreeSet<u64> = traced.iter().copied().collect();
        assert_eq!(once.len(), traced.len(), "one attempt scores a record once: {context}");
        let now = committed(here);
        let again = |record: &&u64| (before + 1..=now).contains(*record) && !once.contains(*record);
        let lost: Vec<_> = scored.iter().filter(again).take(3).collect();
        assert!(
            lost.is_empty(),
            "records {lost:?} were scored, not committed, and not scored again: {context}"
        );
        scored.extend(once);
        if ended.signal() == Some(9) {
            killed += 1;
            continue;
        }
        assert_eq!(ended.code(), Some(1), "{context}");
        completed += 1;
        let found = tables(here);
        for (found, expected) in found.iter().zip(&expected) {
            let differs =
                found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
            assert!(
                found == expected,
                "after {killed} kills the tables differ, first {differs:?}: {context}"
            );
        }
        assert_eq!(totals(here), expected_totals, "{context}");
        folder = None;
    }
    println!("{killed} kills, {completed} runs completed in between, {records} records");
}

#[test]
fn long_a_run_that_is_killed_at_random_ends_with_the_tables_of_an_uninterrupted_one() {
    let kills = if long() { 500 } else { 50 };
    kill_again_and_again(50_000, kills, 1);
}
