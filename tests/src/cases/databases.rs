//! Databases: full, left open, taken away, held by others.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::claims::{assert_same_outcome, claims, folder, outcome, run, stored};
use crate::program::{Folder, Ran};

/// Rows of 10,000, one in 500 of which is refused.
fn ten_thousand() -> Vec<u8> {
    claims(10_000, |i| (i % 500 == 0).then(|| b"\x01".to_vec()))
}

/// Runs into a database that has room for so many more pages than the contracts take.
fn run_into_full(folder: &Folder, pages: i64, batch: &str) {
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    let most = folder.count("PRAGMA page_count") + pages;
    let to = format!("sqlite:claims.db?max_page_count={most}");
    run(folder, &["--to", &to, "--batch-size", batch])
        .exits(4)
        .says("disk full")
        .says("the run goes on at");
}

#[test]
fn c27_a_full_database_stops_the_run_in_whole_groups_and_with_room_it_goes_on() {
    let input = ten_thousand();
    let clean = folder(&input);
    run(&clean, &[]).exits(1);
    let expected = outcome(&clean);
    for (batch, pages) in [("1", 30), ("7", 150), ("1000", 150)] {
        let folder = folder(&input);
        run_into_full(&folder, pages, batch);
        let counts = "SELECT read_records, stored, rejected, record - 1 FROM gegendruck_runs JOIN gegendruck_inputs USING (run) \
                      WHERE pipeline = 'claims'";
        let counts = folder.query(counts);
        let counts: Vec<i64> =
            counts.trim().split('|').map(|count| count.parse().expect("a number")).collect();
        let [read, kept, rejected, passed] = counts[..] else { panic!("{counts:?}") };
        assert!((1..10_000).contains(&read), "it was full in the middle, at {read}");
        assert_eq!((read, kept), (passed, stored(&folder)), "no row is outside of a transaction");
        assert_eq!(rejected, folder.count("SELECT count(*) FROM gegendruck_rejects"));
        assert_eq!(folder.query("PRAGMA integrity_check"), "ok\n");
        run(&folder, &[]).exits(1);
        assert_same_outcome(
            &outcome(&folder),
            &expected,
            &format!("batch {batch}, full after {read} records"),
        );
    }
}

#[test]
fn c27_a_database_that_is_full_of_rejects_stops_the_run_too() {
    let folder = folder(claims(2_000, |i| (i % 2 == 0).then(|| vec![b'\x01'; 400])));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    let most = folder.count("PRAGMA page_count") + 100;
    let to = format!("sqlite:claims.db?max_page_count={most}");
    let arguments = ["--to", &to, "--batch-size", "10", "--max-errors", "100%"];
    run(&folder, &arguments).exits(4).says("disk full");
    let kept = folder.count("SELECT count(*) FROM gegendruck_rejects");
    assert_eq!(
        kept,
        folder.count("SELECT rejected FROM gegendruck_runs WHERE pipeline = 'claims'")
    );
    assert!((1..1_000).contains(&kept), "it was full in the middle, at {kept}");
    run(&folder, &["--max-errors", "100%"]).exits(1);
    assert_eq!(folder.count("SELECT count(*) FROM gegendruck_rejects"), 1_000);
}

#[test]
fn c27_a_database_without_room_for_the_ledger_is_left_without_a_run() {
    let folder = folder(ten_thousand());
    run(&folder, &["--to", "sqlite:claims.db?max_page_count=3"]).exits(4).says("disk full");
    run(&folder, &[]).exits(1);
    assert_eq!(stored(&folder), 9_980);
}

#[test]
fn c27_what_is_written_for_others_fails_loudly_on_a_full_disk() {
    let folder = folder(ten_thousand());
    run(&folder, &["--summary", "/dev/full"])
        .exits(4)
        .says("the summary cannot be written")
        .says("COMPLETE WITH REJECTS");
    assert_eq!(stored(&folder), 9_980);
    run(&folder, &[]).exits(1).says("already done");
    for out in [
        &["rejects", "export", "--out", "/dev/full"][..],
        &["generate", "claims", "--rows", "9", "--out", "/dev/full"],
    ] {
        folder.run(out).exits(4).says("/dev/full").says("cannot be written");
    }
}

#[test]
fn c25_a_transaction_that_a_process_died_in_is_rolled_back_by_the_next_run_and_read_by_nobody_before()
 {
    let folder = folder(claims(20, |_| None));
    folder.left_open();
    for command in [&["plan", "claims", "claims.csv"][..], &["status"], &["rejects", "list"]] {
        folder.run(command).exits(4).says("the next run does that");
    }
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    assert_eq!(folder.query("SELECT * FROM other"), "1\n", "what had not been committed is gone");
    run(&folder, &[]).exits(0);
    assert_eq!(stored(&folder), 20);
}

#[test]
fn a_database_that_is_taken_away_from_a_run_ends_it() {
    let folder = folder(claims(4_000, |_| None));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    let mut command = folder.command(&["run", "claims", "claims.csv", "--quiet"]);
    command.args(["--batch-size", "100", "--rate", "score=1000/s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    folder.wait_for_claims();
    std::fs::rename(folder.path("claims.db"), folder.path("away.db")).expect("it is moved");
    let ran: Ran = child.wait_with_output().expect("it ends").into();
    ran.exits(4).says("moved, deleted or replaced while the run wrote it");
}

#[test]
fn a_database_that_others_hold_is_waited_for_as_long_as_was_said() {
    let folder = folder(claims(20, |_| None));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    let held = folder.hold();
    run(&folder, &["--retry-for", "1ms"]).exits(4).says("somebody else holds the database");
    let mut command = folder.command(&["run", "claims", "claims.csv"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let mut told = || lines.next().expect("it says that it waits").expect("text");
    while !told().contains("waiting for the database") {}
    drop(held);
    assert!(child.wait().expect("it ends").success());
    assert_eq!(stored(&folder), 20);
}
