//! Small files of claims with their contracts, and what the program made of them.

use std::path::Path;

use crate::program::{Folder, Ran, query};

pub const HEADER: &str = "claim_id,policy_id,loss_date,reported_at,line_of_business,cause,postal_code,amount,currency,description";

/// Row `i` up to its description.
pub fn start_of_row(i: u64) -> String {
    row(i, &format!("{i}.00"), "")
}

/// Row `i` with an amount and a description, as they are to be in the file.
pub fn row(i: u64, amount: &str, description: &str) -> String {
    let (policy, day) = (i % 10, i % 28 + 1);
    format!(
        "C{i:07},P{policy:04},2026-01-{day:02},2026-02-01T08:00:00Z,motor,hail,10115,{amount},EUR,{description}"
    )
}

/// Rows 1 to `rows`; `description` gives the text of those that are not plain, as it is to be in the file.
pub fn claims(rows: u64, description: impl Fn(u64) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut file = format!("{HEADER}\n").into_bytes();
    for i in 1..=rows {
        file.extend_from_slice(start_of_row(i).as_bytes());
        file.extend(description(i).unwrap_or_else(|| format!("text {i}").into_bytes()));
        file.push(b'\n');
    }
    file
}

/// The byte at which the line begins that is the `number`th, from 1.
pub fn start_of_line(file: &[u8], number: usize) -> usize {
    let line_ends =
        file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(line_ends).nth(number - 1).expect("the file has that line")
}

/// The ten contracts that the claims refer to.
pub fn contracts() -> String {
    let mut file = String::from(
        "policy_id,lines_of_business,valid_from,valid_to,sum_insured,deductible,currency\n",
    );
    for i in 0..10 {
        file.push_str(&format!("P{i:04},motor|building,2025-01-01,,1000000.00,100.00,EUR\n"));
    }
    file
}

/// A folder with claims and their contracts.
pub fn folder(claims: impl AsRef<[u8]>) -> Folder {
    let folder = Folder::new();
    folder.write("claims.csv", claims);
    folder.write("contracts.csv", contracts());
    folder
}

/// `run claims claims.csv` and more arguments.
pub fn run(folder: &Folder, more: &[&str]) -> Ran {
    let mut arguments = vec!["run", "claims", "claims.csv", "--quiet"];
    arguments.extend_from_slice(more);
    folder.run(&arguments)
}

pub fn stored(folder: &Folder) -> i64 {
    folder.count("SELECT count(*) FROM claims")
}

/// The rejects of the claims in the order of the file: line, byte, length, column, kind, faulty byte of the record.
pub fn rejects(folder: &Folder) -> String {
    folder.query(
        "SELECT line, byte, length, column_name, kind, fault_byte FROM gegendruck_rejects JOIN gegendruck_runs USING (run) \
         WHERE pipeline = 'claims' ORDER BY input, record",
    )
}

/// What must not depend on workers, batches, buffers, stops and restarts: rows, twins, rejects, counts, progress.
pub fn outcome(folder: &Folder) -> [String; 5] {
    let of = |text: &str| folder.query(text);
    [
        of("SELECT * FROM claims ORDER BY claim_id"),
        of("SELECT * FROM claims_twins ORDER BY claim_id"),
        of(
            "SELECT input, record, line, byte, length, bytes, stage, kind, column_name, detail, fault_byte, attempts, state \
            FROM gegendruck_rejects ORDER BY input, record",
        ),
        of(
            "SELECT state, exit_code, read_records, stored, updated, rejected, filtered, duplicate FROM gegendruck_runs \
            WHERE pipeline = 'claims'",
        ),
        of(
            "SELECT input, byte, record, line, fingerprint, header_lines, blank_lines, trailer_lines, complete \
            FROM gegendruck_inputs JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims' ORDER BY input",
        ),
    ]
}

#[track_caller]
pub fn assert_same_outcome(found: &[String; 5], expected: &[String; 5], context: &str) {
    for (found, expected) in found.iter().zip(expected) {
        let differs =
            found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        assert!(found == expected, "{context}: the first that differs: {differs:?}");
    }
}

/// Imports a file with 1 and 8 workers in transactions of 1, 7 and 5,000 records, each in a folder of its own. Asserts the exit
/// code and that everything comes to the same; gives the last folder.
#[track_caller]
pub fn import_every_way(claims: impl AsRef<[u8]>, more: &[&str], code: i32) -> Folder {
    let mut last: Option<(Folder, [String; 5])> = None;
    for (workers, batch) in [(1, 1), (8, 1), (1, 7), (8, 7), (1, 5_000), (8, 5_000)] {
        let folder = folder(&claims);
        let (workers, batch) = (format!("score={workers}"), batch.to_string());
        let mut arguments = vec!["--workers", &workers, "--batch-size", &batch];
        arguments.extend_from_slice(more);
        run(&folder, &arguments).exits(code);
        let found = outcome(&folder);
        if let Some((_, expected)) = &last {
            assert_same_outcome(&found, expected, &format!("workers {workers}, batch {batch}"));
        }
        last = Some((folder, found));
    }
    last.expect("there was an import").0
}

/// Makes the database refuse the commits of the claims after the first `k`, so that a run of them ends there with exit 4.
pub fn refuse_commits_after(folder: &Folder, k: u64) {
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    folder.query(&format!(
        "CREATE TRIGGER refused BEFORE UPDATE OF commits ON gegendruck_runs WHEN NEW.pipeline = 'claims' AND NEW.commits > {k} \
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    ));
}

/// Lets commits through again, and makes it look as if the process had been killed after the last one.
pub fn as_if_killed(folder: &Folder) {
    folder.query("DROP TRIGGER refused");
    folder.query(
        "UPDATE gegendruck_runs SET state = 'running', exit_code = NULL WHERE pipeline = 'claims'",
    );
    folder.query(
        "UPDATE gegendruck_attempts SET ended = NULL, exit_code = NULL \
         WHERE run IN (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')",
    );
}

/// A run that ended right after commit `k`.
#[track_caller]
pub fn killed_after_commit(folder: &Folder, k: u64, more: &[&str]) {
    refuse_commits_after(folder, k);
    run(folder, more).exits(4);
    as_if_killed(folder);
}

/// Everything in a database: the definitions and the rows of all tables.
pub fn dump(database: &Path) -> String {
    let mut text =
        query(database, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name");
    for table in
        query(database, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").lines()
    {
        text.push_str(&format!("-- {table}\n"));
        text.push_str(&query(database, &format!("SELECT * FROM \"{table}\"")));
    }
    text
}
