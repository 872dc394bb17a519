//! Restart: where a run goes on, and what it refuses to go on with.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::process::Stdio;

use gegendruck_checkpoints::prefix;
use gegendruck_pipelines::progress::Progress;

use crate::claims::{
    HEADER, as_if_killed, assert_same_outcome, claims, dump, folder, killed_after_commit, outcome,
    refuse_commits_after, row, run, start_of_line, start_of_row, stored,
};
use crate::program::{Folder, Ran};

/// A number of the claims' input in the ledger.
fn progress(folder: &Folder, column: &str) -> u64 {
    let text = format!(
        "SELECT {column} FROM gegendruck_inputs JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'"
    );
    folder.count(&text) as u64
}

fn database(folder: &Folder) -> String {
    dump(&folder.path("claims.db"))
}

#[test]
fn c03_d_a_resumed_file_has_its_byte_order_mark_in_its_fingerprint() {
    let input = [
        b"\xEF\xBB\xBF".to_vec(),
        claims(40, |i| (i % 9 == 0).then(|| b"\"two\nlines\"".to_vec())),
    ]
    .concat();
    let clean = folder(&input);
    run(&clean, &[]).exits(0);
    let killed = folder(&input);
    killed_after_commit(&killed, 2, &["--batch-size", "10"]);
    assert_eq!(progress(&killed, "record"), 21);
    run(&killed, &[]).exits(0);
    assert_same_outcome(&outcome(&killed), &outcome(&clean), "resumed");
    // Without its mark it is another file.
    let other = folder(&input);
    killed_after_commit(&other, 2, &["--batch-size", "10"]);
    other.write("claims.csv", &input[3..]);
    run(&other, &[]).exits(7).says("was replaced");
}

/// 10,000 rows of which about 6,000 are committed, and the first byte that is not.
fn six_thousand_committed() -> (Folder, Vec<u8>, usize) {
    let input = claims(10_000, |_| None);
    let folder = folder(&input);
    killed_after_commit(&folder, 6, &["--batch-size", "1000"]);
    let (record, byte) = (progress(&folder, "record") as usize, progress(&folder, "byte") as usize);
    assert!((5_000..8_000).contains(&record), "committed up to record {record}");
    assert_eq!(byte, start_of_line(&input, record + 1));
    (folder, input, byte)
}

#[test]
fn c20_an_input_that_was_cut_or_replaced_after_a_crash_is_refused() {
    let (folder, input, byte) = six_thousand_committed();
    let before = database(&folder);
    let replaced = claims(3_000, |i| Some(format!("other {i}").into_bytes()));
    for (claims, words) in [
        (&input[..byte / 2], "was truncated"),
        (&replaced, "was truncated"),
        (&input[..byte], "and up to there it is identical"),
    ] {
        folder.write("claims.csv", claims);
        run(&folder, &[]).exits(7).says(words);
        assert_eq!(database(&folder), before, "{words}: nothing was written");
    }
    folder.write("claims.csv", &input);
    run(&folder, &[]).exits(0).says("1 attempt".replace('1', "2").as_str());
    assert_eq!(stored(&folder), 10_000);
}

#[test]
fn c20_an_input_that_was_replaced_by_a_longer_one_is_refused_and_one_that_was_moved_is_not() {
    let (folder, input, byte) = six_thousand_committed();
    let before = database(&folder);
    folder.write("claims.csv", claims(12_000, |i| Some(format!("other {i}").into_bytes())));
    run(&folder, &[]).exits(7).says("was replaced").says(&format!("its first {byte} bytes"));
    assert_eq!(database(&folder), before);
    folder.write("moved.csv", &input);
    folder.run(&["run", "claims", "moved.csv", "--quiet"]).exits(0);
    assert_eq!(stored(&folder), 10_000);
}

/// 30 records with a byte order mark and CRLF; every third has three lines, two are refused, and two lines are blank.
fn thirty_records() -> (Vec<u8>, Vec<u64>) {
    let mut text = format!("\u{feff}{HEADER}\r\n");
    let mut starts = Vec::new();
    for i in 1..=30 {
        starts.push(text.len() as u64);
        let description = if i % 3 == 0 { "\"one\r\ntwo\r\nthree\"" } else { "text" };
        let amount = if i == 5 || i == 20 { "1.239" } else { "10.00" };
        text.push_str(&row(i, amount, description));
        text.push_str("\r\n");
        if i == 7 || i == 8 {
            text.push_str("\r\n");
        }
    }
    starts.push(text.len() as u64);
    (text.into_bytes(), starts)
}

#[test]
fn c23_a_run_that_was_killed_after_any_commit_goes_on_at_the_next_record() {
    let (input, starts) = thirty_records();
    let clean = folder(&input);
    run(&clean, &["--batch-size", "1"]).exits(1);
    let expected = outcome(&clean);
    assert_eq!(stored(&clean), 28);
    let mut stops = Vec::new();
    for k in 1..=30 {
        let folder = folder(&input);
        refuse_commits_after(&folder, k);
        // A refused record shares the transaction of the one behind it; the last commit completes the run.
        if run(&folder, &["--batch-size", "1"]).code == 1 {
            break;
        }
        as_if_killed(&folder);
        let (record, byte) = (progress(&folder, "record"), progress(&folder, "byte"));
        assert_eq!(
            byte,
            starts[record as usize - 1],
            "after commit {k}: the first byte of record {record}"
        );
        stops.push(record);
        run(&folder, &["--batch-size", "1"]).exits(1);
        assert_same_outcome(&outcome(&folder), &expected, &format!("killed after commit {k}"));
    }
    assert!(stops.is_sorted_by(|one, other| one < other), "{stops:?}");
    assert!(
        stops.len() >= 28 && stops.contains(&31),
        "after every commit, the last one too: {stops:?}"
    );
}

/// What was done to the files, and words of what the program must say.
type Damage = (&'static str, fn(&Folder), &'static str);

/// What was done to files that nothing is decided by.
type Harmless = (&'static str, fn(&Folder));

fn cut(folder: &Folder, name: &str) {
    let bytes = std::fs::read(folder.path(name)).expect("the file");
    folder.write(name, &bytes[..bytes.len() / 2]);
}

fn flip(folder: &Folder, name: &str) {
    let mut bytes = std::fs::read(folder.path(name)).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write(name, bytes);
}

fn nul(folder: &Folder, name: &str) {
    let len = std::fs::read(folder.path(name)).expect("the file").len();
    folder.write(name, vec![0; len]);
}

/// A run of 10 of 30 records that was killed.
fn killed() -> Folder {
    let folder = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    killed_after_commit(&folder, 10, &["--batch-size", "1"]);
    folder
}

#[test]
fn c25_a_database_that_is_damaged_is_refused_and_left_as_it_is() {
    const DB: &str = "claims.db";
    let damages: [Damage; 3] = [
        ("emptied", |folder| drop(folder.write(DB, "")), "although a run has written"),
        (
            "overwritten with NULs",
            |folder| nul(folder, DB),
            "is no SQLite database, or a damaged one",
        ),
        ("cut", |folder| cut(folder, DB), "is no SQLite database, or a damaged one"),
    ];
    for (name, damage, words) in damages {
        let folder = killed();
        for beside in ["claims.db-wal", "claims.db-shm"] {
            assert!(!folder.path(beside).exists(), "all is in the database");
        }
        damage(&folder);
        let before = std::fs::read(folder.path(DB)).expect("the database");
        let ran = run(&folder, &[]).exits(4).says(words);
        assert!(
            ran.err.contains("left as it is") || ran.err.contains("remove both"),
            "{name}: what to do: {}",
            ran.err
        );
        assert!(
            before == std::fs::read(folder.path(DB)).expect("the database"),
            "{name}: it was left as it is"
        );
    }
}

#[test]
fn c25_a_ledger_that_cannot_be_true_is_refused_and_left_as_it_is() {
    let damages = [
        ("DELETE FROM gegendruck_runs WHERE pipeline = 'claims'", "runs are missing"),
        ("DELETE FROM gegendruck_target", "the row of gegendruck_target is missing"),
        ("DELETE FROM gegendruck_inputs", "the progress of a run is missing"),
        ("DELETE FROM gegendruck_attempts", "an attempt is missing"),
        ("DELETE FROM gegendruck_rejects", "rejects are missing"),
        ("DROP TABLE gegendruck_inputs", "table gegendruck_inputs is missing"),
        (
            "UPDATE gegendruck_inputs SET byte = size + 1, complete = 0",
            "more is committed of an input than it has bytes",
        ),
        ("UPDATE gegendruck_inputs SET byte = -1", "a number is negative"),
        (
            "UPDATE gegendruck_runs SET read_records = -1, stored = -1, rejected = 0 WHERE pipeline = 'claims'",
            "negative",
        ),
        ("UPDATE gegendruck_runs SET stored = stored + 1", "the counts of a run do not add up"),
        (
            "UPDATE gegendruck_runs SET stored = stored + 1, read_records = read_records + 1",
            "are not those of its inputs",
        ),
        ("UPDATE gegendruck_inputs SET fingerprint = 'none'", "the fingerprint of input 0"),
        ("UPDATE gegendruck_inputs SET fingerprint = ''", "the fingerprint of input 0"),
    ];
    for (damage, words) in damages {
        let folder = killed();
        folder.query(damage);
        let before = database(&folder);
        for command in ["plan", "run"] {
            let ran = folder.run(&[command, "claims", "claims.csv"]);
            let ran = ran.exits(4).says("the ledger is damaged").says(words);
            assert!(
                ran.err.contains("restore the database from a backup"),
                "{command} after {damage}: what to do: {}",
                ran.err
            );
            assert_eq!(database(&folder), before, "{command} after {damage}: it was left as it is");
        }
    }
}

#[test]
fn c25_a_ledger_that_is_gone_is_no_first_run() {
    let folder = killed();
    for table in folder
        .query("SELECT name FROM sqlite_schema WHERE name LIKE 'gegendruck%' AND type = 'table'")
        .lines()
    {
        folder.query(&format!("DROP TABLE {table}"));
    }
    let before = database(&folder);
    run(&folder, &[]).exits(4).says("all its tables are missing");
    folder.run(&["run", "contracts", "contracts.csv"]).exits(4).says("all its tables are missing");
    folder.run(&["status"]).exits(4).says("all its tables are missing");
    assert_eq!(database(&folder), before);
}

#[test]
fn c25_another_fingerprint_is_another_content() {
    let folder = killed();
    folder.query(
        "UPDATE gegendruck_inputs SET fingerprint = '0123456789abcdef0123456789abcdef' \
         WHERE run = (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')",
    );
    let before = database(&folder);
    run(&folder, &[]).exits(7).says("was replaced");
    assert_eq!(database(&folder), before);
}

#[test]
fn c25_two_unfinished_runs_of_one_input_are_refused() {
    let folder = killed();
    for table in ["runs", "inputs", "attempts", "rejects"] {
        let columns = folder.query(&format!(
            "SELECT group_concat(name) FROM pragma_table_info('gegendruck_{table}')"
        ));
        let values = columns
            .trim()
            .replacen("run", "'twin'", 1)
            .replacen("number", "number + 1", 1)
            .replacen("reject,", "NULL,", 1);
        folder.query(&format!(
            "INSERT INTO gegendruck_{table} ({}) SELECT {values} FROM gegendruck_{table} \
             WHERE run = (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')",
            columns.trim()
        ));
    }
    folder.query("UPDATE gegendruck_target SET runs = runs + 1");
    let before = database(&folder);
    run(&folder, &[]).exits(4).says("two unfinished runs overlap");
    assert_eq!(database(&folder), before);
}

#[test]
fn c25_damaged_files_beside_the_database_change_nothing_of_what_is_committed() {
    const STATUS: &str = "claims.db.status.json";
    const LOCK: &str = "claims.db.lock";
    let clean = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    run(&clean, &[]).exits(1);
    let expected = outcome(&clean);
    let damages: [Harmless; 8] = [
        ("an empty status", |folder| drop(folder.write(STATUS, ""))),
        ("a status of NULs", |folder| nul(folder, STATUS)),
        ("half a status", |folder| cut(folder, STATUS)),
        ("a status with a wrong sum", |folder| flip(folder, STATUS)),
        ("a newer half status", |folder| {
            drop(folder.write("claims.db.status.json.tmp", "{\"run\":\""))
        }),
        ("an empty lock", |folder| drop(folder.write(LOCK, ""))),
        ("a lock of NULs", |folder| nul(folder, LOCK)),
        ("no lock and no status", |folder| {
            for name in [LOCK, STATUS] {
                std::fs::remove_file(folder.path(name)).expect("the file is removed");
            }
        }),
    ];
    for (name, damage) in damages {
        let folder = killed();
        damage(&folder);
        run(&folder, &[]).exits(1);
        assert_same_outcome(&outcome(&folder), &expected, name);
        let goes_on = "SELECT count(*) FROM gegendruck_attempts JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'";
        assert_eq!(folder.count(goes_on), 2, "{name}: the same run");
    }
    let folder = killed();
    flip(&folder, STATUS);
    let before = std::fs::read(folder.path(STATUS)).expect("the status");
    folder.run(&["status"]).exits(0).says("died");
    assert_eq!(std::fs::read(folder.path(STATUS)).expect("the status"), before);
}

#[test]
fn c16_a_counts_grow_over_two_to_the_31() {
    const COUNT: u64 = (1 << 31) - 5;
    let input = claims(30, |_| None);
    let folder = folder(&input);
    killed_after_commit(&folder, 10, &["--batch-size", "1"]);
    let add = COUNT - 10;
    folder.query(&format!(
        "UPDATE gegendruck_runs SET read_records = read_records + {add}, stored = stored + {add}, commits = commits + {add} \
         WHERE pipeline = 'claims'"
    ));
    let of = "WHERE run = (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')";
    folder.query(&format!(
        "UPDATE gegendruck_inputs SET record = record + {add}, line = line + {add} {of}"
    ));
    folder.query(&format!("UPDATE gegendruck_attempts SET commits = commits + {add} {of}"));
    let end = COUNT + 20;
    let shown = gegendruck::thousands(end);
    run(&folder, &["--batch-size", "1"])
        .exits(0)
        .says(&format!("read  {shown} = stored {shown} (updated 0)"));
    let counts =
        "SELECT read_records, stored, commits FROM gegendruck_runs WHERE pipeline = 'claims'";
    // One commit for each record, and the one that completes the run.
    assert_eq!(folder.query(counts), format!("{end}|{end}|{}\n", end + 1));
    assert_eq!((progress(&folder, "record"), progress(&folder, "line")), (end + 1, end + 2));
    folder.run(&["status"]).exits(0).says(&shown);
}

#[test]
fn c16_b_a_run_goes_on_behind_four_gibibytes() {
    const FROM: u64 = 4_294_967_290;
    let folder = folder(claims(20, |_| None));
    killed_after_commit(&folder, 1, &["--batch-size", "10"]);
    let path = folder.path("claims.csv");
    let mut file = File::create(&path).expect("the file is created");
    // What is looked at first is text; the hole lies behind it.
    file.write_all(&claims(1_000, |_| None)).expect("the first rows are written");
    file.seek(SeekFrom::Start(FROM)).expect("a hole");
    let rows: String = (1_001..=2_000).map(|i| start_of_row(i) + "far\n").collect();
    file.write_all(rows.as_bytes()).expect("the rows are written");
    drop(file);
    let fingerprint = prefix(&path, FROM).expect("the hole is read").value();
    let size = FROM + rows.len() as u64;
    folder.query(&format!(
        "UPDATE gegendruck_inputs SET byte = {FROM}, size = {size}, fingerprint = '{fingerprint:032x}' \
         WHERE run = (SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')"
    ));
    run(&folder, &[]).exits(0);
    assert_eq!(stored(&folder), 1_010);
    assert_eq!((progress(&folder, "byte"), progress(&folder, "record")), (size, 1_011));
}

#[test]
fn c16_c_percent_and_time_left_are_right_for_two_to_the_33_bytes() {
    let progress = Progress {
        bytes: (1 << 32) + (1 << 31),
        of: 1 << 33,
        before: 1 << 32,
        records: 3_000_000_000,
        records_now: 1_000_000_000,
        wall: std::time::Duration::from_secs(100),
    };
    assert_eq!(progress.percent(), 75.0);
    assert_eq!(progress.left(), Some(std::time::Duration::from_secs(100)));
    assert!(
        progress.words().starts_with("75 %, 3,000,000,000 records committed, "),
        "{}",
        progress.words()
    );
    // Figures of two moments may not fit together: no time is negative.
    let late = Progress { bytes: 1 << 33, of: 1, before: 1 << 34, ..progress };
    assert_eq!(late.left(), None);
}

#[test]
fn an_input_that_has_grown_is_taken_from_where_it_ended_if_that_is_accepted() {
    let input = claims(30, |_| None);
    let folder = folder(&input);
    run(&folder, &[]).exits(0);
    let mut file =
        OpenOptions::new().append(true).open(folder.path("claims.csv")).expect("the file opens");
    for i in 31..=40 {
        writeln!(file, "{}more", start_of_row(i)).expect("a row is written");
    }
    let before = database(&folder);
    run(&folder, &[]).exits(7).says("has grown").says("--accept-grown");
    assert_eq!(database(&folder), before);
    run(&folder, &["--accept-grown"]).exits(0).says("read  10 = stored 10");
    assert_eq!(stored(&folder), 40);
    run(&folder, &[]).exits(0).says("already done");
}

#[test]
fn other_rules_or_settings_are_refused_with_the_difference_until_they_are_accepted() {
    let input = claims(30, |_| None);
    let (rules, now) = (7, "rules 1, expected 7");
    let folder = folder(&input);
    killed_after_commit(&folder, 2, &["--batch-size", "10"]);
    let before = database(&folder);
    run(&folder, &["--date-format", "DD.MM.YYYY"])
        .exits(7)
        .says("dates DD.MM.YYYY")
        .says("dates YYYY-MM-DD");
    run(&folder, &["--max-record-lines", "7"]).exits(7).says("dialect");
    run(&folder, &["--on-conflict", "skip"]).exits(7).says("on-conflict skip, expected error");
    run(&folder, &["--table", "others"]).exits(7).says("table others, expected claims");
    assert_eq!(database(&folder), before);
    folder.query(&format!("UPDATE gegendruck_runs SET rules = {rules} WHERE pipeline = 'claims'"));
    let before = database(&folder);
    run(&folder, &[]).exits(7).says(now).says("--accept-changed");
    assert_eq!(database(&folder), before);
    run(&folder, &["--accept-changed"]).exits(0);
    assert_eq!(stored(&folder), 30);
    let noted = folder.query("SELECT what FROM gegendruck_audit");
    assert!(noted.contains(now), "the audit trail says what was accepted: {noted}");
}

#[test]
fn workers_buffers_batches_and_rates_are_no_part_of_what_a_run_is() {
    let input = claims(3_000, |_| None);
    let folder = folder(&input);
    killed_after_commit(&folder, 1, &["--batch-size", "1000", "--workers", "score=8"]);
    let other = [
        "--batch-size",
        "7",
        "--workers",
        "score=1",
        "--buffer",
        "score=100",
        "--request",
        "score=10",
        "--memory",
        "8M",
    ];
    run(&folder, &other).exits(0);
    assert_eq!(stored(&folder), 3_000);
}

#[test]
fn a_refused_commit_leaves_the_groups_before_it_and_says_where_the_run_goes_on() {
    let input = claims(30, |_| None);
    let folder = folder(&input);
    refuse_commits_after(&folder, 2);
    run(&folder, &["--batch-size", "10"]).exits(4).says("the run goes on at").says("record 21");
    assert_eq!(stored(&folder), 20);
    as_if_killed(&folder);
    run(&folder, &[]).exits(0);
    assert_eq!(stored(&folder), 30);
}

/// A run that waits for the database, after it has looked at its input, when that is replaced by `other`: how it ended.
fn replaced_under_a_run(folder: &Folder, until: &str, other: &[u8]) -> Ran {
    let held = folder.hold();
    let mut command = folder.command(&["run", "claims", "claims.csv"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let mut err = String::new();
    while !err.contains(until) {
        err += &lines.next().unwrap_or_else(|| panic!("no \"{until}\" in {err}")).expect("text");
    }
    folder.write("other.csv", other);
    std::fs::rename(folder.path("other.csv"), folder.path("claims.csv")).expect("it is replaced");
    drop(held);
    lines.for_each(|line| err += &line.expect("text"));
    Ran { err, ..child.wait_with_output().expect("it ends").into() }
}

#[test]
fn c20_an_input_that_is_replaced_after_it_was_looked_at_is_not_read() {
    let plain = |from: u64, to: u64| {
        let rows = (from..=to).map(|i| format!("{}text {i}\n", start_of_row(i)));
        rows.fold(format!("{HEADER}\n"), |file, row| file + &row).into_bytes()
    };
    let file = plain(1, 30);
    let same_size = String::from_utf8(file.clone()).expect("text").replace("text", "TEXT");
    let grown = [&file[..], &plain(31, 40)[HEADER.len() + 1..]].concat();
    let words =
        "was replaced or written to after it was looked at; start again when it is complete";
    for other in [same_size.as_bytes(), &plain(50, 55), &plain(50, 99), &grown] {
        let folder = folder(&file);
        killed_after_commit(&folder, 10, &["--batch-size", "1"]);
        let rows = folder.query("SELECT * FROM claims");
        replaced_under_a_run(&folder, "going on with run", other).exits(4).says(words);
        assert_eq!(folder.query("SELECT * FROM claims"), rows, "nothing was read");
        run(&folder, &[]).exits(7);
        folder.write("claims.csv", &file);
        run(&folder, &[]).exits(0);
        assert_eq!(stored(&folder), 30);
    }
}
