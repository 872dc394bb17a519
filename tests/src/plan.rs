//! What a plan says: what a run would, and what it would do; and nothing is written.

use crate::claims::{
    HEADER, claims, contracts, dump, folder, killed_after_commit, row, run, start_of_row,
};
use crate::program::Folder;

/// Plans claims, and asserts that nothing was written.
#[track_caller]
fn plan(folder: &Folder, more: &[&str]) -> crate::program::Ran {
    let files = || {
        let entries = std::fs::read_dir(folder.path("")).expect("the folder is read");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        names.sort();
        let path = folder.path("claims.db");
        (names, path.is_file().then(|| dump(&path)))
    };
    let before = files();
    let ran = folder.run(&[&["plan", "claims", "claims.csv"][..], more].concat());
    assert_eq!(files(), before, "a plan writes nothing");
    ran
}

/// Asserts that plan and run are refused with the same code and the same words.
#[track_caller]
fn check(folder: &Folder, more: &[&str], code: i32) {
    let planned = plan(folder, more).exits(code);
    let ran = run(folder, more).exits(code);
    assert_eq!((planned.out.as_str(), planned.err), ("", ran.err), "{more:?}");
}

#[test]
fn plan_and_run_refuse_the_same_with_the_same_words() {
    let new = Folder::new();
    check(&new, &[], 9);
    new.write("claims.csv", format!("{HEADER}\n{}x\n", start_of_row(1)).replace("cause", "clause"));
    check(&new, &[], 2);
    new.write("claims.csv", "");
    check(&new, &[], 8);
    new.write("claims.csv", claims(30, |_| None));
    check(&new, &[], 2);
    new.write("contracts.csv", "policy_id,lines\n");
    check(&new, &[], 2);
    new.write("contracts.csv", contracts());
    for more in [
        &["--no-create"][..],
        &["--workers", "score=0"],
        &["--max-errors", "many"],
        &["--as-of", "2026-02-30"],
        &["--rate", "validate=5"],
        &["--to", "postgres://host/claims"],
        &["--to", "sqlite:none/claims.db"],
        &["--summary", "none/summary.json"],
    ] {
        check(&new, more, 2);
    }
    new.write("again.csv", claims(30, |_| None));
    check(&new, &["again.csv"], 10);
    let wrong: Vec<String> = (1..=20).map(|i| row(i, "none", "x")).collect();
    new.write("claims.csv", format!("{HEADER}\n{}\n", wrong.join("\n")));
    check(&new, &[], 3);
}

#[test]
fn plan_and_run_refuse_the_same_where_a_run_was() {
    let used = folder(claims(30, |_| None));
    used.write("first.csv", claims(30, |_| None));
    used.run(&["run", "claims", "first.csv", "--quiet"]).exits(0);
    used.query("CREATE TABLE others (claim_id TEXT PRIMARY KEY) STRICT");
    check(&used, &["--table", "others"], 2);
    check(&used, &["--table", "missing", "--no-create"], 2);
    check(&used, &[], 10);
    used.query("DELETE FROM claims");
    check(&used, &["--if-done", "ok"], 8);
    used.write("claims.csv", claims(40, |_| None));
    check(&used, &[], 7);

    let unfinished = folder(claims(30, |_| None));
    killed_after_commit(&unfinished, 2, &["--batch-size", "10"]);
    check(&unfinished, &["--on-conflict", "skip"], 7);
    unfinished.write("more.csv", contracts().replace("1000000.00", "5.00"));
    unfinished.run(&["run", "contracts", "more.csv", "--quiet"]).exits(0);
    check(&unfinished, &[], 7);
    unfinished.query(
        "UPDATE gegendruck_runs SET state = 'failed' WHERE pipeline = 'contracts' AND number > 1",
    );
    unfinished.write("claims.csv", claims(30, |i| Some(format!("new {i}").into_bytes())));
    check(&unfinished, &["--table", "others"], 2);
    unfinished.query("UPDATE gegendruck_target SET version = 99");
    check(&unfinished, &[], 2);
    unfinished.query("DELETE FROM gegendruck_target");
    check(&unfinished, &[], 4);
}

#[test]
fn a_plan_says_what_a_run_would_do() {
    let folder = folder(claims(30, |_| None));
    plan(&folder, &["--batch-size", "10", "--label", "tonight"])
        .exits(0)
        .says("claims.db, table claims: a new database would be created\n")
        .says("tables  would be created: claims, claims_twins\n")
        .says("before  contracts.csv would be imported first\n")
        .says("commit  every 10 records or 8 MiB, at the latest after 1.0 s\n")
        .says("bound   never more than 20,000 records and 24 MiB read and not committed\n")
        .says("setting label = tonight (from flag)\n");
    plan(&folder, &["--batch-size", "1", "--commit-interval", "0s"])
        .exits(0)
        .says("commit  every 1 record or 8 MiB, or as soon as nothing more has come\n");
    killed_after_commit(&folder, 2, &["--batch-size", "10"]);
    let name = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'");
    let ran = plan(&folder, &[])
        .exits(0)
        .says(&format!("run {} would go on\n", name.trim()))
        .says("tables  would be created: claims_twins\n");
    assert!(!ran.out.contains("imported first"), "the contracts are there: {}", ran.out);
    run(&folder, &[]).exits(0);
    plan(&folder, &[]).exits(0).says(&format!("already done by run {}\n", name.trim()));
    folder.write("again.csv", claims(30, |_| None));
    plan(&folder, &["again.csv", "--if-done", "ok"])
        .exits(0)
        .says("claims.csv: has the same content as again.csv: taken once\n");
}
