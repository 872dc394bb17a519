//! Dead letters, as the program gives them back: whole or named, and in a form that can be imported again.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use futures::TryStreamExt;
use gegendruck_checkpoints::{Ledger, Target};

use crate::claims::{HEADER, claims, folder, run, start_of_row, stored};
use crate::program::{Folder, Ran};

/// The run that imported the claims.
fn name_of_run(folder: &Folder) -> String {
    folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'").trim().to_string()
}

/// The number of the reject that a record has become.
fn number(folder: &Folder, record: u64) -> i64 {
    folder.count(&format!("SELECT reject FROM gegendruck_rejects WHERE record = {record}"))
}

/// Rows 1 to 30; row 4 has a control character, and the rows of `long` have a description of so many bytes.
fn with_long(long: &[u64], bytes: usize) -> Vec<u8> {
    claims(30, |i| match i {
        4 => Some(b"\x01".to_vec()),
        _ => long.contains(&i).then(|| vec![b'x'; bytes]),
    })
}

const LIMIT: [&str; 2] = ["--max-record-bytes", "6000"];

#[test]
fn a_record_that_the_ledger_has_only_a_part_of_is_not_exported_and_named() {
    let input = with_long(&[7], 8_000);
    let folder = folder(&input);
    run(&folder, &LIMIT).exits(1);
    let line = String::from_utf8_lossy(&input).lines().nth(7).expect("row 7").to_string();
    let at = crate::claims::start_of_line(&input, 8);
    let named = format!(
        "reject {}, record 7 (line 8, byte {at}) of {}, is left out: 4,096 of its {} bytes are kept\n",
        number(&folder, 7),
        folder.path("claims.csv").canonicalize().expect("the input").display(),
        gegendruck::thousands(line.len() as u64)
    );
    let end =
        "1 left out (1 cut off, 0 purged): take each of them from the input file, at its byte\n";
    let whole = format!("reject_id,{HEADER}\n{},{}\x01\n", number(&folder, 4), start_of_row(4));

    let ran = folder.run(&["rejects", "export"]).exits(1);
    assert_eq!(ran.out, whole);
    let name = name_of_run(&folder);
    let words = format!("1 reject of run {name} written, {end}");
    assert_eq!(ran.err, format!("nightly-import: {named}nightly-import: {words}"));

    let ran = folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(1);
    assert_eq!(ran.err, format!("nightly-import: {named}"));
    assert_eq!(ran.out, format!("1 reject of run {name} written to rejects.csv, {end}"));
    let exported = std::fs::read_to_string(folder.path("rejects.csv")).expect("the export");
    assert_eq!(exported, whole, "it is written all the same");
}

#[test]
fn a_record_that_is_as_long_as_its_kept_bytes_is_exported() {
    // As long as what is kept of one that is over the limit, longer than that, and over a limit that is below it.
    let plain = start_of_row(7).len();
    for (bytes, limit, kept) in [
        (4_096, "6000", true),
        (5_999, "6000", true),
        (4_096, "4095", true),
        (4_097, "4095", false),
    ] {
        let text = [vec![b'x'; bytes - plain - 1], vec![1]].concat();
        let folder = folder(claims(30, |i| (i == 7).then(|| text.clone())));
        run(&folder, &["--max-record-bytes", limit]).exits(1);
        let ran = folder.run(&["rejects", "export"]).exits(if kept { 0 } else { 1 });
        let row = start_of_row(7) + std::str::from_utf8(&text).expect("ASCII");
        let row = if kept { format!("1,{row}\n") } else { String::new() };
        assert_eq!(ran.out, format!("reject_id,{HEADER}\n{row}"), "{bytes} bytes, limit {limit}");
        assert_eq!(ran.err.is_empty(), kept, "{}", ran.err);
    }
}

#[test]
fn of_many_records_that_are_not_exported_the_first_20_are_named_and_the_others_counted() {
    let long: Vec<u64> = (6..=29).collect();
    let folder = folder(with_long(&long, 8_000));
    run(&folder, &[&LIMIT[..], &["--max-errors", "100%"]].concat()).exits(1);
    folder.query("UPDATE gegendruck_rejects SET bytes = NULL WHERE record = 6");
    let ran = folder.run(&["rejects", "export"]).exits(1);
    let lines: Vec<_> = ran.err.lines().collect();
    assert_eq!(lines.len(), 22, "{}", ran.err);
    assert!(lines[0].contains(" is left out: its bytes were purged ("), "{}", lines[0]);
    let last = format!("reject {}, record 25 (line 26, ", number(&folder, 25));
    assert!(lines[19].contains(&last), "{}", lines[19]);
    assert!(lines[20].starts_with("nightly-import: … and 4 more; "), "{}", lines[20]);
    assert!(lines[21].contains(" written, 24 left out (23 cut off, 1 purged): "), "{}", lines[21]);
}

/// The document that `rejects list --json` is to be: put together from all that the ledger has.
fn document(folder: &Folder, run: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all = runtime.expect("a runtime").block_on(async {
        let target = Target::parse(&folder.path("claims.db").display().to_string());
        let mut ledger = Ledger::read(&target.expect("a target")).await.expect("a ledger");
        let rejects = ledger.rejects(Some(run)).await.expect("the rejects");
        rejects.try_collect::<Vec<_>>().await.expect("the rejects")
    });
    let document = serde_json::json!({"schema": 1, "run": run, "rejects": all});
    format!("{document:#}\n")
}

#[test]
fn rejects_as_json_are_one_document_however_many_there_are() {
    for count in [0, 1, 3] {
        let folder = folder(claims(20, |i| (i <= count).then(|| b"\x01".to_vec())));
        run(&folder, &[]).exits(i32::from(count > 0));
        // What must be escaped.
        folder.query("UPDATE gegendruck_rejects SET detail = char(10) || '\"\\' || char(10)");
        let ran = folder.run(&["rejects", "list", "--json"]).exits(0);
        assert_eq!(ran.out, document(&folder, &name_of_run(&folder)), "{count} rejects");
        let parsed: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(parsed["rejects"].as_array().map(Vec::len), Some(count as usize));
    }
}

#[test]
fn rejects_as_json_are_not_held_in_memory_and_nobody_needs_to_read_all_of_them() {
    const ALL: usize = 100_000;
    let folder = folder(claims(20, |i| (i == 4).then(|| b"\x01".to_vec())));
    run(&folder, &[]).exits(1);
    folder.query(&format!(
        "WITH RECURSIVE more(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM more WHERE i < {ALL} + 98) \
         INSERT INTO gegendruck_rejects SELECT i, run, input, i, i, i, length, bytes, stage, kind, column_name, detail, \
         fault_byte, attempts, first_tried, last_tried, state, closed, closed_by, closed_why FROM more, gegendruck_rejects"
    ));
    assert_eq!(folder.count("SELECT count(*) FROM gegendruck_rejects"), ALL as i64);
    let mut command = folder.command(&["rejects", "list", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut numbers =
        lines.filter(|line| line.as_ref().expect("text").trim_start().starts_with("\"reject\": "));
    // It waits for the rest to be read.
    assert!(numbers.nth(ALL * 9 / 10).is_some());
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a figure");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    drop(numbers);
    assert_eq!(child.wait().expect("the program ends").code(), Some(0));
    assert!(peak < 48 * 1_024, "{peak} KiB");
}

#[test]
fn lines_that_a_run_has_skipped_are_not_in_its_export_and_that_is_said() {
    let rows = claims(30, |i| (i == 4).then(|| b"\x01".to_vec()));
    let rows = String::from_utf8(rows).expect("text").replace('\n', ",x\n");
    let folder = folder(format!("a title\n{}", rows.replacen(",x\n", ",more\n", 1)));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    run(&folder, &["--skip-lines", "1", "--ignore-columns", "more"]).exits(1);
    let words = "leave out --skip-lines, and give --ignore-columns more,reject_id\n";
    folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0).says(words);
    let ignore = ["--ignore-columns", "more,reject_id"];
    import_repaired(&folder, "rejects.csv", "\x01", &ignore).exits(0);
    assert_eq!(stored(&folder), 30);
}

/// Imports an export of rejects again, after what `faulty` is in them was replaced.
#[track_caller]
fn import_repaired(folder: &Folder, name: &str, faulty: &str, more: &[&str]) -> Ran {
    let text = std::fs::read_to_string(folder.path(name)).expect("the export");
    assert!(text.contains(faulty), "{text}");
    folder.write(name, text.replace(faulty, "repaired"));
    folder.run(&[&["run", "claims", name, "--quiet"][..], more].concat())
}

#[test]
fn rejects_of_inputs_without_a_header_line_are_exported_with_one_and_can_be_imported_again() {
    for (delimiter, flags, without) in [
        (",", &[][..], "--no-header"),
        (";", &["--skip-lines", "1", "--trailing-delimiter"], "--no-header and --skip-lines"),
    ] {
        let text = String::from_utf8(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
        let (header, rows) = text.as_ref().expect("text").split_once('\n').expect("a header");
        let [header, rows] = [header, rows].map(|text| text.replace(',', delimiter));
        let (rows, end) = if flags.is_empty() {
            (rows, "")
        } else {
            (format!("a title\n{}", rows.replace('\n', ";\n")), ";")
        };
        let folder = folder(rows);
        // Else it would be taken for the contracts' too.
        folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
        let dialect = ["--delimiter", delimiter];
        run(&folder, &[&dialect[..], &["--no-header"], flags].concat()).exits(1);
        let ran = folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0);
        let words = format!("leave out {without}, and give --ignore-columns reject_id\n");
        assert_eq!(ran.err, format!("nightly-import: to import the export, {words}"));
        let exported = std::fs::read_to_string(folder.path("rejects.csv")).expect("the export");
        let row = start_of_row(4).replace(',', delimiter);
        let first = format!("reject_id{delimiter}{header}{end}\n");
        assert_eq!(exported, format!("{first}1{delimiter}{row}\x01{end}\n"));
        let more: Vec<_> = flags.iter().copied().filter(|flag| flag.starts_with("--t")).collect();
        let ignore = ["--ignore-columns", "reject_id"];
        import_repaired(&folder, "rejects.csv", "\x01", &[&dialect[..], &ignore, &more].concat())
            .exits(0);
        assert_eq!(stored(&folder), 30);
        let repaired = "SELECT description FROM claims WHERE claim_id = 'C0000004'";
        assert_eq!(folder.query(repaired), "repaired\n");
    }
}
