//! Dead letters, as the program gives them back.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use futures::TryStreamExt;
use gegendruck_checkpoints::{Ledger, Target};

use crate::claims::{claims, folder, run};
use crate::program::Folder;

/// The run that imported the claims.
fn name_of_run(folder: &Folder) -> String {
    folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'").trim().to_string()
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
