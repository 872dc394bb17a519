//! Wrong use: one clear sentence with what to do, the right exit code, and nothing half done.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::claims::{
    HEADER, as_if_killed, claims, contracts, dump, folder, killed_after_commit,
    refuse_commits_after, rejects, row, run, start_of_row, stored,
};
use crate::program::{Folder, Ran, binary};

/// What a refused command must leave as it was: the files of the folder, and what is in the database.
///
/// SQLite's own files beside a database come and go with whoever reads it.
#[derive(Debug, PartialEq, Eq)]
struct State {
    files: Vec<String>,
    database: Option<String>,
}

fn state(folder: &Folder) -> State {
    let entries = std::fs::read_dir(folder.path("")).expect("the folder is read");
    let names =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> =
        names.filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).collect();
    files.sort();
    let path = folder.path("claims.db");
    State { files, database: path.is_file().then(|| dump(&path)) }
}

/// Asserts that the program refused with one sentence on standard error, which says `words`, and said nothing else.
#[track_caller]
fn assert_refused(ran: &Ran, code: i32, words: &str) {
    let Ran { code: found, out, err } = ran;
    assert_eq!(*found, code, "\n--- out\n{out}\n--- err\n{err}");
    assert_eq!(out, "", "nothing on standard output");
    let sentence = err
        .strip_prefix("nightly-import: ")
        .unwrap_or_else(|| panic!("no sentence of the program: {err}"));
    assert_eq!(sentence.find('\n'), Some(sentence.len() - 1), "one line: {sentence}");
    assert!(sentence.contains(words), "no \"{words}\" in {sentence}");
}

/// Runs claims quietly with more arguments, and asserts that it was refused and that nothing was changed.
#[track_caller]
fn check(folder: &Folder, more: &[&str], code: i32, words: &str) {
    let before = state(folder);
    assert_refused(&run(folder, more), code, words);
    assert_eq!(state(folder), before, "nothing was changed");
}

/// The same in a folder where nothing was ever run, and in one where a run is complete.
#[track_caller]
fn check_new_and_used(more: &[&str], code: i32, words: &str) {
    let new = folder(claims(20, |_| None));
    check(&new, more, code, words);
    run(&new, &[]).exits(0);
    new.write("claims.csv", claims(30, |i| Some(format!("new {i}").into_bytes())));
    check(&new, more, code, words);
}

#[test]
fn columns_that_do_not_fit_are_named() {
    let rows = format!("{}x\n", start_of_row(1));
    for (header, words) in [
        (HEADER.replace("cause", "clause"), "column cause is missing: add it to the file"),
        (
            HEADER.replace("cause", "clause"),
            "column clause is unknown: correct its name, or pass --ignore-columns clause",
        ),
        (HEADER.replace("cause", "policy_id"), "column policy_id occurs more than once"),
        (HEADER.replace(',', ";"), "header names none of the columns claim_id, policy_id"),
    ] {
        let folder = folder(format!("{header}\n{rows}"));
        check(&folder, &[], 2, words);
        check(&folder, &[], 2, "claims.csv: ");
    }
    let bare = folder(rows);
    check(&bare, &[], 2, "pass --no-header if there is none");
    assert!(
        !run(&bare, &[]).err.contains("C0000001"),
        "a first line that is no header is not repeated"
    );
}

#[test]
fn an_input_that_is_not_there_is_for_the_scheduler_to_try_later() {
    let folder = Folder::new();
    check(&folder, &[], 9, "claims.csv: there is no such file; check the path");
}

#[test]
fn an_input_that_is_no_file_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("claims.csv")).expect("a directory");
    check(&folder, &[], 2, "claims.csv: is a directory; name the files in it");
    let before = state(&folder);
    assert_refused(
        &folder.run(&["run", "claims", "/dev/null", "--quiet"]),
        2,
        "/dev/null: is no regular file",
    );
    assert_eq!(state(&folder), before);
}

/// A user whom permissions bind: the superuser becomes `nobody`, and the folder's files become that user's.
struct Bound {
    folder: Folder,
    is_root: bool,
}

const NOBODY: u32 = 65_534;

impl Bound {
    fn new(folder: Folder) -> Bound {
        let is_root = std::fs::metadata("/proc/self").expect("this process").uid() == 0;
        // The user may not be allowed to enter the folder that the program was built in.
        std::fs::copy(binary(), folder.path("program")).expect("the program is copied");
        let bound = Bound { folder, is_root };
        bound.hand_over();
        bound
    }

    /// Makes what is in the folder, and the folder, the user's.
    fn hand_over(&self) {
        if self.is_root {
            let entries = std::fs::read_dir(self.folder.path("")).expect("the folder is read");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            for path in paths.chain([self.folder.path("")]) {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("the superuser gives a file away");
            }
        }
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.folder.path(name), PermissionsExt::from_mode(mode))
            .expect("the mode is set");
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(self.folder.path("program"));
        command.args(arguments).current_dir(self.folder.path("")).stdin(Stdio::null());
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().expect("the program starts").into()
    }
}

const RUN: &[&str] = &["run", "claims", "claims.csv", "--quiet"];
const PLAN: &[&str] = &["plan", "claims", "claims.csv"];

#[test]
fn an_input_that_may_not_be_read_is_refused() {
    let bound = Bound::new(folder(claims(20, |_| None)));
    bound.mode("claims.csv", 0o000);
    let before = state(&bound.folder);
    assert_refused(
        &bound.run(RUN),
        2,
        "claims.csv: may not be read; give this user read permission",
    );
    bound.mode("claims.csv", 0o600);
    bound.mode("contracts.csv", 0o000);
    assert_refused(
        &bound.run(RUN),
        2,
        "contracts.csv: may not be read; give this user read permission",
    );
    assert_eq!(state(&bound.folder), before);
    bound.mode("contracts.csv", 0o600);
    bound.run(RUN).exits(0);
}

#[test]
fn a_target_that_may_not_be_written_is_refused() {
    let bound = Bound::new(folder(claims(20, |_| None)));
    bound.mode("", 0o500);
    let before = state(&bound.folder);
    for arguments in [PLAN, RUN] {
        let words = "claims.db.lock: cannot be locked; give this user write permission on it and its folder \
             (Permission denied (os error 13))";
        assert_refused(&bound.run(arguments), 2, words);
    }
    assert_eq!(state(&bound.folder), before);
    bound.mode("", 0o700);
    bound.folder.write("claims.db", "");
    bound.hand_over();
    bound.mode("claims.db", 0o400);
    let before = state(&bound.folder);
    assert_refused(&bound.run(PLAN), 2, "claims.db: may not be written; give this user write");
    assert_eq!(state(&bound.folder), before, "a plan of a database without a ledger");
    assert_refused(&bound.run(RUN), 2, "may not be written; give this user write permission");
    bound.mode("claims.db", 0o600);
    bound.run(RUN).exits(0);
    bound.folder.write("claims.csv", claims(30, |i| Some(format!("new {i}").into_bytes())));
    let before = state(&bound.folder);
    for (name, mode, right) in
        [("claims.db", 0o400, 0o600), ("claims.db.lock", 0o400, 0o600), ("", 0o500, 0o700)]
    {
        bound.hand_over();
        bound.mode(name, mode);
        let (planned, ran) = (bound.run(PLAN), bound.run(RUN));
        bound.mode(name, right);
        assert_refused(&planned, 2, "write permission");
        assert_refused(&ran, 2, "write permission");
        assert_eq!(state(&bound.folder), before, "{name} with mode {mode:o}");
    }
}

#[test]
fn a_target_that_is_none_is_refused() {
    for (to, words) in [
        ("postgres://host/claims", "is no target; give sqlite:PATH"),
        (
            "sqlite:none/claims.db",
            "none: the folder is not there; create it, or name another target",
        ),
        ("sqlite:.", ".: is a directory; name a file in it"),
        ("sqlite:claims.db?cache=shared", "no option of a target is called cache=shared"),
    ] {
        check_new_and_used(&["--to", to], 2, words);
    }
    let folder = folder(claims(20, |_| None));
    check(
        &folder,
        &["--no-create"],
        2,
        "there is no such database, and --no-create forbids to create it",
    );
    folder.write(
        "claims.db",
        "this is no database, and long enough to be told from an empty one".repeat(20),
    );
    let before = std::fs::read(folder.path("claims.db")).expect("the file");
    assert_refused(&run(&folder, &[]), 4, "is no SQLite database, or a damaged one");
    assert_eq!(std::fs::read(folder.path("claims.db")).expect("the file"), before);
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_done() {
    for (more, words) in [
        (&["--workers", "score=0"][..], "score: workers is 0; it must be at least 1"),
        (
            &["--workers", "scoer=2"],
            "no stage is called \"scoer\"; this pipeline has read, validate, score, store",
        ),
        (
            &["--request", "score=5000"],
            "score: request 5000 is more than buffer 2000; lower the one or raise the other",
        ),
        (
            &["--buffer", "score=50"],
            "score: claim 100 is more than buffer 50; lower the one or raise the other",
        ),
        (&["--batch-size", "50000"], "store: batch-size 50000 is more than buffer 20000"),
        (&["--batch-size", "0"], "batch-size is 0"),
        (&["--table", ""], "--table \"\": is no name; name another table"),
        (&["--table", "SQLite_x"], "--table \"SQLite_x\": is kept for tables of SQLite"),
        (&["--batch-size", "many"], "invalid value 'many' for '--batch-size <N>'"),
        (
            &["--max-errors", "many"],
            "--max-errors: found many, expected a number like 250 or a share like 0.5%",
        ),
        (&["--as-of", "2026-02-30"], "--as-of 2026-02-30: is no date"),
        (&["--timezone", "Europe/Bonn"], "--timezone: failed to find time zone `Europe/Bonn`"),
        (&["--decimal", ",", "--thousands", ","], "--decimal, --thousands: decimal mark and thou"),
        (&["--verbose"], "--quiet and --verbose contradict each other; leave one out"),
        (
            &["--quote", "none", "--quotes", "lenient"],
            "--quotes lenient means nothing with --quote none; leave one out",
        ),
        (&["--quote", "none", "--no-multiline"], "--no-multiline means nothing with --quote none"),
        (
            &["--no-header", "--ignore-columns", "amount"],
            "--ignore-columns means nothing with --no-header; leave one out",
        ),
        (
            &["--ignore-columns", "colour,amount"],
            "--ignore-columns amount: claims needs that column; leave it out",
        ),
        (&["--date-format", "DD.MM.YYYY,MM.DD.YYYY"], "can read one text as two different days"),
        (&["--delimiter", "\""], "delimiter and quote are both"),
        (&["--rate", "score=0/s"], "give a rate above zero"),
        (
            &["--workers", "score=100000"],
            "score: workers 100000 is more than buffer 2000; lower the one or raise the other",
        ),
        (
            &["--rate", "validate=5/s"],
            "--rate validate: validate calls nobody, so there is nothing to limit; give it for score",
        ),
        (
            &["--buffer", "read=5"],
            "--buffer read: read has no input; give it for a stage behind it",
        ),
        (&["--request", "read=5"], "--request read: read has no input"),
        (&["--dst", "earlier"], "without --timezone there are none; give the zone"),
        (&["--summary", "."], "--summary .: is a directory; name a file in it"),
        (
            &["--summary", "none/s.json"],
            "--summary none/s.json: the folder is not there; create it, or name another file",
        ),
        (
            &["--bach-size", "7"],
            "unexpected argument '--bach-size' found; a similar argument exists: '--batch-size'; see nightly-import run --help",
        ),
        (&["--decimal"], "a value is required for '--decimal <CHAR>'"),
    ] {
        check_new_and_used(more, 2, words);
    }
}

#[test]
fn a_misspelt_setting_is_refused_wherever_it_stands() {
    let folder = folder(claims(20, |_| None));
    for (text, words) in [
        (
            "bach-size = 7",
            "import.toml: there is no setting \"bach-size\" for run; did you mean \"batch-size\"?",
        ),
        ("batch-size = 7\nworkers = {score = 0}", "score: workers is 0"),
        ("batch-size = ", "import.toml: line 1"),
        ("quiet = \"yes\"", "import.toml: \"quiet\" is a switch: write true or false"),
        ("config = \"other.toml\"", "import.toml: a settings file cannot name another one"),
    ] {
        folder.write("import.toml", text);
        check(&folder, &["--config", "import.toml"], 2, words);
    }
    check(&folder, &["--config", "none.toml"], 2, "none.toml: the settings file cannot be read");
    let before = state(&folder);
    for (name, value, words) in [
        (
            "NIGHTLY_IMPORT_BACH_SIZE",
            "7",
            "there is no setting NIGHTLY_IMPORT_BACH_SIZE (environment); did you mean NIGHTLY_IMPORT_BATCH_SIZE?",
        ),
        ("NIGHTLY_IMPORT_NO_CREATE", "maybe", "invalid value 'maybe' for '--no-create'"),
        ("NIGHTLY_IMPORT_NO_CREATE", "1", "--no-create forbids to create it"),
    ] {
        let ran = folder.command(RUN).env(name, value).output().expect("the program starts");
        assert_refused(&ran.into(), 2, words);
        assert_eq!(state(&folder), before);
    }
    let mut unset = folder.command(RUN);
    unset.env("NIGHTLY_IMPORT_NO_CREATE", "no").env("NIGHTLY_IMPORT_NO_MULTILINE", "");
    Ran::from(unset.output().expect("the program starts")).exits(0);
}

#[test]
fn flag_environment_and_file_are_heard_in_that_order() {
    let folder = folder(claims(20, |_| None));
    folder.write("import.toml", "label = \"file\"\nbatch-size = 9\nretry-for = \"1m\"\n");
    let arguments = [RUN, &["--config", "import.toml", "--label", "flag"]].concat();
    let ran = folder
        .command(&arguments)
        .env("NIGHTLY_IMPORT_LABEL", "env")
        .env("NIGHTLY_IMPORT_BATCH_SIZE", "8")
        .output();
    Ran::from(ran.expect("the program starts")).exits(0);
    let run = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'");
    let ran = folder.run(&["status", run.trim()]).exits(0);
    for line in [
        "label = flag (from flag)",
        "batch-size = 8 (from environment)",
        "retry-for = 1m (from file)",
    ] {
        assert!(ran.out.contains(&format!("setting {line}\n")), "no {line} in {}", ran.out);
    }
}

#[test]
fn a_flag_that_would_do_nothing_is_refused() {
    let folder = folder(claims(20, |_| None));
    for (arguments, words) in [
        (
            &["rejects", "export", "--json"][..],
            "unexpected argument '--json' found; see nightly-import rejects --help",
        ),
        (
            &["rejects", "show", "x"],
            "invalid value 'x' for '<ID>': give a number, as `rejects list` prints it",
        ),
        (
            &["run", "contracts", "contracts.csv", "--trace-calls", "calls"],
            "--trace-calls: no stage of contracts calls anybody; leave it out",
        ),
        (
            &["run", "contracts", "contracts.csv", "--rate", "validate=5"],
            "so there is nothing to limit; no stage of contracts does",
        ),
        (
            &["generate", "contracts", "--rows", "9", "--contracts", "5", "--out", "claims.csv"],
            "--contracts is for claims; leave it out",
        ),
        (
            &["generate", "contracts", "--rows", "9", "--faults", "1%", "--out", "claims.csv"],
            "contracts are generated without faults; leave out --faults and --fault",
        ),
        (
            &["generate", "policies", "--rows", "9", "--out", "claims.csv"],
            "\"policies\" cannot be generated; there are: claims, contracts",
        ),
    ] {
        let before = (state(&folder), std::fs::read(folder.path("claims.csv")).ok());
        assert_refused(&folder.run(arguments), 2, words);
        assert_eq!((state(&folder), std::fs::read(folder.path("claims.csv")).ok()), before);
    }
}

#[test]
fn one_settings_file_serves_all_commands() {
    let folder = folder(claims(20, |_| None));
    folder.write("import.toml", "batch-size = 9\nsummary = \"summary.json\"\ndelimiter = \",\"\n");
    for command in ["validate", "plan", "run"] {
        folder.run(&[command, "claims", "claims.csv", "--config", "import.toml"]).exits(0);
        assert_eq!(folder.path("summary.json").exists(), command == "run", "{command}");
    }
}

#[test]
fn what_a_run_keeps_from_its_first_start_is_named_when_something_else_is_given() {
    let folder = folder(claims(30, |_| None));
    killed_after_commit(&folder, 2, &["--batch-size", "10", "--as-of", "2026-01-01"]);
    let ran = folder.run(&["run", "claims", "claims.csv", "--as-of", "2026-01-02", "--label", "x"]);
    ran.exits(0)
        .says("keeps what it began with, \"2026-01-01\"")
        .says("keeps what it began with, that it has none");
    let kept = folder.query("SELECT as_of, label FROM gegendruck_runs WHERE pipeline = 'claims'");
    assert_eq!(kept, "2026-01-01|NULL\n");
}

#[test]
fn without_the_right_to_create_tables_all_must_be_there_before_the_first_record() {
    let folder = folder(claims(20, |_| None));
    let ddl = folder.run(&["ledger", "ddl"]).exits(0).out;
    folder.write("claims.db", "");
    check(
        &folder,
        &["--no-create"],
        2,
        "there is no table claims, and --no-create forbids to create it",
    );
    folder.query(&ddl);
    let contracts = ["run", "contracts", "contracts.csv", "--no-create", "--quiet"];
    folder.run(&contracts).exits(0);
    folder.query("ALTER TABLE claims_twins RENAME TO away");
    check(
        &folder,
        &["--no-create"],
        2,
        "there is no table claims_twins, and --no-create forbids to create it; nightly-import ledger ddl prints the tables",
    );
    folder.query("CREATE TABLE claims_twins (claim_id TEXT PRIMARY KEY) STRICT");
    check(&folder, &[], 2, "table claims_twins does not fit: policy_id: found no such column");
    folder.query("DROP TABLE claims_twins");
    folder.query("ALTER TABLE away RENAME TO claims_twins");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
    let before = folder.count(tables);
    run(&folder, &["--no-create"]).exits(0);
    assert_eq!((stored(&folder), folder.count(tables)), (20, before));

    folder.query(
        "DROP TABLE gegendruck_tried; DROP TABLE gegendruck_repaired; UPDATE gegendruck_target SET version = 1",
    );
    let older = "its ledger is of an older version, and --no-create forbids to upgrade it; nightly-import ledger ddl prints";
    check(&folder, &["--no-create"], 2, older);
    let plan = folder.run(&["plan", "claims", "claims.csv"]).exits(0).out;
    assert!(plan.contains("\nledger  is of an older version and would be upgraded\n"), "{plan}");
    let files = |folder: &Folder| std::fs::read_dir(folder.path("")).unwrap().count();
    let before_looking = files(&folder);
    for looks in
        [&["status"][..], &["inspect"], &["rejects", "list"], &["plan", "claims", "claims.csv"]]
    {
        folder.run(looks);
        assert_eq!(files(&folder), before_looking, "{looks:?} leaves nothing beside the database");
    }
    let upgrade = ddl.split_once("of version 1 is upgraded by these instead:\n").unwrap().1;
    let upgrade = upgrade.split_inclusive("COMMIT;").next().unwrap();
    folder.query(
        &upgrade.lines().map(|line| line.trim_start_matches("-- ")).collect::<Vec<_>>().join("\n"),
    );
    run(&folder, &["--no-create"]).exits(0).says("already done");
    assert_eq!(folder.count(tables), before);
}

#[test]
fn an_unknown_pipeline_or_command_is_refused() {
    let folder = Folder::new();
    let refused = folder.run(&["run", "clams", "claims.csv"]);
    assert_refused(&refused, 2, "there is no pipeline \"clams\"; there are: claims, contracts");
    assert_refused(
        &folder.run(&["rnu", "claims"]),
        2,
        "unrecognized subcommand 'rnu'; see nightly-import --help",
    );
    assert_refused(
        &folder.run(&["run", "claims"]),
        2,
        "required arguments were not provided: <INPUTS>...",
    );
    for command in [&["status"][..], &["inspect"], &["rejects", "list"], &["rejects", "export"]] {
        assert_refused(
            &folder.run(command),
            2,
            "claims.db: no run was ever started here; check the target",
        );
    }
    assert_eq!(state(&folder).files, [""; 0], "looking creates nothing");
}

#[test]
fn a_table_of_another_layout_is_refused() {
    let folder = folder(claims(20, |_| None));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    folder.query(
        "CREATE TABLE others (claim_id TEXT PRIMARY KEY, amount REAL, more TEXT NOT NULL) STRICT",
    );
    let words = "table others does not fit: ";
    check(&folder, &["--table", "others"], 2, words);
    check(&folder, &["--table", "others"], 2, "change the table, or name another one with --table");
    check(
        &folder,
        &["--table", "missing", "--no-create"],
        2,
        "there is no table missing, and --no-create forbids to create it; nightly-import ledger ddl prints the tables",
    );
}

#[test]
fn claims_without_contracts_are_refused_with_the_command_that_imports_them() {
    let alone = folder(claims(20, |_| None));
    std::fs::remove_file(alone.path("contracts.csv")).expect("the contracts are taken away");
    check(
        &alone,
        &[],
        2,
        "import them first: nightly-import run contracts contracts.csv --to sqlite:",
    );
    alone.write("contracts.csv", "policy_id,lines\n");
    check(&alone, &[], 2, "contracts.csv: columns lines_of_business, valid_from");
    alone.write("contracts.csv", contracts());
    run(&alone, &[]).exits(0);

    // Somebody else's database: nothing is imported into it that was not asked for.
    let foreign = folder(claims(20, |_| None));
    foreign.write("claims.db", "");
    foreign.query("CREATE TABLE theirs (a INTEGER)");
    foreign.query("INSERT INTO theirs VALUES (7)");
    let words = "import them first: nightly-import run contracts contracts.csv --to sqlite:";
    check(&foreign, &[], 2, words);
    check(&foreign, &["--no-create"], 2, "there is no table claims");
    let ran = run(&foreign, &[]);
    let command = ran
        .err
        .trim_end()
        .split_once("import them first: nightly-import ")
        .expect("the command")
        .1
        .to_string();
    let words: Vec<&str> = command.split(' ').collect();
    foreign.run(&words).exits(0);
    run(&foreign, &[]).exits(0);
    assert_eq!((stored(&foreign), foreign.query("SELECT * FROM theirs").as_str()), (20, "7\n"));
}

#[test]
fn the_wrong_file_is_stopped_before_anything_is_written() {
    let wrong = |rows: u64| {
        let rows = (1..=rows).map(|i| row(i, if i % 3 == 0 { "1.00" } else { "1,00,0" }, "x"));
        let rows: Vec<String> = rows.map(|row| row.replace("1,00,0", "none")).collect();
        format!("{HEADER}\n{}\n", rows.join("\n"))
    };
    let folder = folder(wrong(1_500));
    check(&folder, &[], 3, "667 of the first 1000 records would be rejected, the first: ");
    check(
        &folder,
        &[],
        3,
        "this looks like the wrong file, nothing was written; nightly-import validate claims shows all",
    );
    run(&folder, &["--max-errors", "100%"]).exits(1);
    assert_eq!(stored(&folder), 500);
}

#[test]
fn a_passed_reject_limit_stops_the_run_and_a_higher_one_goes_on() {
    let folder = folder(claims(4_000, |i| (i > 2_000 && i % 10 == 0).then(|| b"\x01".to_vec())));
    let ran = run(&folder, &["--batch-size", "500"])
        .exits(3)
        .says("STOPPED AT THE REJECT LIMIT")
        .says("go on with: nightly-import run");
    let (rejected, read) =
        ("SELECT rejected FROM gegendruck_runs WHERE pipeline = 'claims'", "SELECT read_records");
    let rejected = folder.count(rejected);
    let read = folder.count(&format!("{read} FROM gegendruck_runs WHERE pipeline = 'claims'"));
    assert!((101..200).contains(&rejected) && read < 4_000, "{rejected} of {read}");
    assert!(ran.out.contains(&format!("with --max-errors {rejected} or more")), "{}", ran.out);
    assert_eq!(stored(&folder), read - rejected, "the group that passed the limit is committed");
    run(&folder, &["--max-errors", "200"]).exits(1);
    assert_eq!(stored(&folder), 3_800);
}

/// The command that goes on, as a run or `status` prints it.
#[track_caller]
fn command_of(ran: &Ran) -> String {
    let command = ran.out.lines().find_map(|line| line.strip_prefix("go on with: nightly-import "));
    command.unwrap_or_else(|| panic!("no command that goes on: {}", ran.out)).into()
}

#[test]
fn the_command_that_goes_on_behind_a_passed_limit_carries_the_limit_that_is_needed() {
    for (limit, rows, of, share) in [
        (&["--max-errors", "5"][..], 4_000, 20, false),
        (&[], 4_000, 20, false),
        (&["--max-errors=0.5%"], 4_000, 100, true),
        (&["--max-errors=0.5%"], 30, 10, true),
    ] {
        let folder = folder(claims(rows, |i| (i % of == 0).then(|| b"\x01".to_vec())));
        let mut ran = run(&folder, &[&["--batch-size", "500"], limit].concat());
        let mut starts = 1;
        while ran.code == 3 {
            let command = command_of(&ran);
            let name = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'");
            assert_eq!(command_of(&folder.run(&["status", name.trim()]).exits(0)), command);
            let rejected = "SELECT rejected FROM gegendruck_runs WHERE pipeline = 'claims'";
            let words: Vec<_> = command.split(' ').collect();
            let limits: Vec<_> =
                words.iter().filter_map(|word| word.strip_prefix("--max-errors=")).collect();
            let needed = folder.count(rejected).to_string();
            assert_eq!(limits.len(), 1, "{command}");
            assert!(
                if share { limits[0].ends_with('%') } else { limits[0] == needed },
                "{command}"
            );
            ran = folder.run(&words).says("going on with run");
            starts += 1;
            assert!(starts < 20, "each start goes on");
        }
        ran.exits(1);
        assert_eq!(stored(&folder).unsigned_abs(), rows - rows / of);
        // A share that is needed once is enough for an input that goes on like that.
        assert!(if share { starts == 2 } else { starts > 1 }, "{starts} starts");
    }
}

#[test]
fn of_two_runs_at_once_the_second_says_who_has_the_target_and_the_first_is_undisturbed() {
    let folder = folder(claims(4_000, |_| None));
    let slow = ["run", "claims", "claims.csv", "--quiet", "--rate", "score=1000/s"];
    let mut first = folder.start(&slow);
    let lock = folder.path("claims.db.lock");
    let claims_run = || {
        let status =
            std::fs::read_to_string(folder.path("claims.db.status.json")).unwrap_or_default();
        status.contains("\"pipeline\":\"claims\"")
    };
    while !claims_run() {
        assert!(first.try_wait().expect("the process is asked").is_none(), "the first run goes on");
        std::thread::yield_now();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let held = format!("of pid {} on {} writes this target since ", first.id(), host.trim());
    let before = std::fs::read(&lock).expect("the lock");
    for _ in 0..3 {
        assert_refused(&run(&folder, &[]), 6, &held);
        assert_refused(
            &folder.run(&["run", "contracts", "contracts.csv", "--quiet"]),
            6,
            "wait for it, or stop it",
        );
    }
    assert_eq!(std::fs::read(&lock).expect("the lock"), before, "the lock still names its holder");
    folder.run(&["status"]).exits(0).says(" running ");
    assert!(
        first.try_wait().expect("the process is asked").is_none(),
        "all of that while the first run went on"
    );
    assert_eq!(first.wait().expect("the process ends").code(), Some(0));
    assert_eq!(stored(&folder), 4_000);
    assert_eq!(
        folder.count("SELECT count(*) FROM gegendruck_attempts"),
        2,
        "contracts and claims, once each"
    );
}

#[test]
fn a_run_that_has_just_created_the_lock_is_one_that_is_starting() {
    let folder = folder(claims(20, |_| None));
    let lock = std::fs::File::create(folder.path("claims.db.lock")).expect("a file");
    lock.lock().expect("it is locked");
    let words = "another run is just starting to write this target; wait for it";
    assert_refused(&run(&folder, &[]), 6, words);
}

#[test]
fn the_same_content_under_another_name_is_known() {
    let folder = folder(claims(20, |_| None));
    run(&folder, &[]).exits(0);
    std::fs::copy(folder.path("claims.csv"), folder.path("again.csv"))
        .expect("the input is copied");
    let before = state(&folder);
    let again = ["run", "claims", "again.csv", "--quiet"];
    let ran = folder.run(&again);
    assert_refused(&ran, 10, "again.csv: the same content was already imported by run ");
    assert!(ran.err.contains("/claims.csv; --if-done ok takes that for done"), "{}", ran.err);
    folder.run(&[&again[..], &["--if-done", "ok"]].concat()).exits(0).says("already done by run ");
    run(&folder, &[]).exits(0).says("already done by run ");
    assert_eq!(state(&folder), before);
}

#[test]
fn a_table_that_is_gone_or_empty_does_not_balance() {
    for complete in [true, false] {
        for (damage, words) in
            [("DROP TABLE claims", "there is no such table now"), ("DELETE FROM claims", "empty")]
        {
            let folder = folder(claims(30, |_| None));
            if complete {
                run(&folder, &[]).exits(0);
            } else {
                killed_after_commit(&folder, 2, &["--batch-size", "10"]);
            }
            folder.query(damage);
            check(&folder, &[], 8, words);
        }
    }
}

#[test]
fn contracts_that_are_gone_do_not_balance() {
    for (damage, words) in [
        ("DELETE FROM contracts", "stored 10 rows in table contracts, and it is empty now"),
        ("DROP TABLE contracts", "rows in table contracts, and there is no such table now"),
    ] {
        for unfinished in [false, true] {
            let folder = folder(claims(30, |_| None));
            if unfinished {
                killed_after_commit(&folder, 2, &["--batch-size", "10"]);
            } else {
                run(&folder, &[]).exits(0);
                folder.write("claims.csv", claims(30, |i| Some(format!("new {i}").into_bytes())));
            }
            folder.query(damage);
            check(&folder, &[], 8, words);
            assert_refused(&folder.run(&["plan", "claims", "claims.csv"]), 8, words);
        }
    }
    let none = folder(claims(30, |_| None));
    let header = contracts().lines().next().expect("a header").to_string();
    none.write("contracts.csv", format!("{header}\n"));
    run(&none, &[]).exits(0);
    assert_eq!(none.count("SELECT count(*) FROM claims WHERE reasons LIKE '%no_contract%'"), 30);
}

#[test]
fn rows_of_somebody_else_make_the_run_not_balance() {
    let folder = folder(claims(30, |_| None));
    killed_after_commit(&folder, 2, &["--batch-size", "10"]);
    folder.query(
        "CREATE TRIGGER more AFTER INSERT ON claims WHEN NEW.claim_id = 'C0000025' BEGIN \
         INSERT INTO claims SELECT 'X1', policy_id, loss_date, reported_at, line_of_business, cause, postal_code, amount, \
         currency, description, score, decision, reasons, payable FROM claims LIMIT 1; END",
    );
    for _ in 0..2 {
        run(&folder, &[]).exits(8).says("new rows, expected").says("somebody else writes it");
    }
}

#[test]
fn rows_that_are_gone_when_a_run_is_gone_on_with_make_it_not_balance() {
    let folder = folder(claims(30, |_| None));
    killed_after_commit(&folder, 2, &["--batch-size", "10"]);
    folder.query("DELETE FROM claims WHERE claim_id = 'C0000005'");
    for _ in 0..2 {
        run(&folder, &[]).exits(8).says("has 29 new rows, expected 30");
    }
}

#[test]
fn a_file_that_is_named_twice_is_not_imported_twice() {
    let folder = folder(claims(20, |_| None));
    std::os::unix::fs::symlink(folder.path("claims.csv"), folder.path("link.csv")).expect("a link");
    check(&folder, &["./claims.csv"], 2, "are the same file; name it once");
    check(&folder, &["link.csv"], 2, "claims.csv and link.csv are the same file; name it once");
    run(&folder, &["claims.csv"]).exits(0);
    assert_eq!(stored(&folder), 20);
}

#[test]
fn two_files_of_one_content_are_not_both_imported() {
    let folder = folder(claims(20, |_| None));
    std::fs::copy(folder.path("claims.csv"), folder.path("again.csv")).expect("a copy");
    // As long, and another content.
    folder.write("other.csv", claims(20, |i| Some(format!("other {i}").into_bytes())));
    let same = "claims.csv: has the same content as again.csv; give one of them, or take it once with --if-done ok";
    check(&folder, &["again.csv"], 10, same);
    killed_after_commit(&folder, 1, &["again.csv", "--if-done", "ok", "--batch-size", "10"]);
    check(&folder, &["again.csv"], 10, same);
    let both = ["run", "claims", "claims.csv", "again.csv", "--if-done", "ok"];
    folder.run(&both).exits(0).says("claims.csv: has the same content as again.csv: taken once");
    assert_eq!((stored(&folder), rejects(&folder).as_str()), (20, ""));
    folder.run(&both).exits(0).says("again.csv: already done by run ");
}

#[test]
fn an_input_of_an_unfinished_run_that_was_replaced_by_another_one_is_named() {
    const BOTH: [&str; 5] = ["run", "claims", "t1.csv", "t2.csv", "--quiet"];
    let t1 = claims(30, |_| None);
    // Killed before anything of the second file is committed, and before anything is; the second as long as the first, and not.
    for (commits, rows) in [(2, 30), (2, 40), (0, 30)] {
        let folder = Folder::new();
        folder.write("contracts.csv", contracts());
        folder.write("t1.csv", &t1);
        let second =
            String::from_utf8(claims(rows, |_| None)).expect("text").replace("\nC0", "\nC1");
        folder.write("t2.csv", &second);
        refuse_commits_after(&folder, commits);
        folder.run(&[&BOTH[..], &["--batch-size", "10"]].concat()).exits(4);
        as_if_killed(&folder);
        std::fs::copy(folder.path("t1.csv"), folder.path("t2.csv")).expect("a copy");
        let before = state(&folder);
        for more in [&[][..], &["--if-done", "ok"]] {
            let words = "t2.csv: was replaced: it has the content of t1.csv now";
            assert_refused(&folder.run(&[&BOTH[..], more].concat()), 7, words);
        }
        assert_eq!(state(&folder), before);
        folder.write("t2.csv", &second);
        folder.run(&BOTH).exits(0).says(", 2 attempts");
        assert_eq!(stored(&folder), 30 + i64::try_from(rows).expect("a few"));
    }
}

#[test]
fn files_that_are_alike_but_for_their_last_byte_or_have_no_records_are_all_imported() {
    let folder = folder(claims(9, |i| Some(vec![b'a'; if i == 9 { 70_000 } else { 1 }])));
    let mut other = std::fs::read(folder.path("claims.csv")).expect("the input");
    let last = other.len() - 2;
    other[last] = b'b';
    folder.write("other.csv", other);
    for (name, blank) in
        [("none.csv", ""), ("also.csv", ""), ("blank.csv", "\n"), ("blanks.csv", "\n")]
    {
        folder.write(name, format!("{HEADER}\n{blank}"));
    }
    let all = ["other.csv", "none.csv", "also.csv", "blank.csv", "blanks.csv"];
    let ran = run(&folder, &all).exits(1);
    ran.says("claim_id key_exists 9");
    assert_eq!(stored(&folder), 9, "keys are told from content");
}

#[test]
fn records_that_were_dropped_on_purpose_are_shown_by_reason() {
    let folder = folder(claims(20, |_| None));
    run(&folder, &[]).exits(0);
    let name = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'");
    folder.query(&format!(
        "INSERT INTO gegendruck_filtered VALUES ('{0}', 'cancelled', 1200), ('{0}', 'test', 3)",
        name.trim()
    ));
    let ran = folder.run(&["status", name.trim()]).exits(0);
    assert!(ran.out.contains("\nfiltered cancelled 1,200\nfiltered test 3\n"), "{}", ran.out);
    let ran = folder.run(&["status", name.trim(), "--json"]).exits(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let expected = serde_json::json!([
        {"reason": "cancelled", "records": 1200}, {"reason": "test", "records": 3}
    ]);
    assert_eq!(document["runs"][0]["filtered"], expected);
}

#[test]
fn contracts_that_were_rejected_on_the_way_show_in_the_exit_code() {
    let folder = folder(claims(20, |_| None));
    folder.write("contracts.csv", contracts().replacen("P0003,motor", "P0003,moped", 1));
    run(&folder, &[]).exits(1).says("contracts were rejected");
    assert_eq!(stored(&folder), 20);
    run(&folder, &[]).exits(1).says("already done");
    folder.write("next.csv", format!("{HEADER}\n{}\n", start_of_row(21)));
    folder.run(&["run", "claims", "next.csv", "--quiet"]).exits(0);
}

#[test]
fn claims_are_judged_by_contracts_in_the_table_of_contracts_and_by_no_others() {
    let folder = folder(claims(20, |_| None));
    folder.run(&["run", "contracts", "contracts.csv", "--table", "policies", "--quiet"]).exits(0);
    check(
        &folder,
        &[],
        2,
        "claims needs contracts, and none were imported into table contracts of",
    );
    folder.run(&["run", "contracts", "contracts.csv", "--quiet", "--if-done", "ok"]).exits(0);
    let by = folder.query("SELECT run FROM gegendruck_runs WHERE table_name = 'contracts'");
    folder.write("new.csv", contracts().replacen("P0003,motor", "P0003,travel", 1));
    folder.run(&["run", "contracts", "new.csv", "--table", "policies", "--quiet"]).exits(0);
    run(&folder, &[]).exits(0);
    let judged_by = "SELECT contracts_run FROM gegendruck_runs WHERE pipeline = 'claims'";
    assert_eq!(folder.query(judged_by), by);
}

#[test]
fn a_table_whose_name_is_written_in_another_case_is_the_same_table() {
    let folder = folder(claims(20, |_| None));
    run(&folder, &["--table", "claims"]).exits(0);
    run(&folder, &["--table", "CLAIMS"]).exits(0).says("already done");
    assert_eq!(folder.count("SELECT count(*) FROM gegendruck_runs WHERE pipeline = 'claims'"), 1);
}

#[test]
fn contracts_begun_for_claims_are_gone_on_with_by_the_command_of_their_own() {
    let folder = folder(claims(20, |_| None));
    folder.write("contracts.csv", contracts().replacen("P0003,motor", "P0003,moped", 1));
    run(&folder, &["--workers", "score=1", "--max-errors", "0"]).exits(3);
    let name = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'contracts'");
    let status = folder.run(&["status", name.trim()]).exits(0).out;
    let command = status.lines().find_map(|line| line.split_once("nightly-import run "));
    let command = command.expect("the command that goes on").1;
    assert!(!command.contains("score"), "{command}");
    let command = format!("{} run {command}", crate::program::binary().display());
    let mut shell = std::process::Command::new("sh");
    let ran = shell.args(["-c", &command]).current_dir(folder.path("")).output();
    Ran::from(ran.expect("a shell starts")).exits(1).says("going on with run");
}

#[test]
fn claims_are_not_judged_by_half_of_the_contracts() {
    let folder = folder(claims(20, |_| None));
    folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    folder.write("the next.csv", contracts().replace("1000000.00", "5.00"));
    folder.write("one more.csv", contracts().replace("P00", "P10"));
    folder.query(
        "CREATE TRIGGER stops BEFORE UPDATE ON contracts WHEN NEW.policy_id = 'P0007' BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    let next = ["run", "contracts", "the next.csv", "one more.csv", "--batch-size", "2", "--quiet"];
    folder.run(&next).exits(4);
    let refused = run(&folder, &[]).exits(2);
    let words = "are in the table; go on with it first: nightly-import ";
    let command = refused.err.trim_end().split_once(words).expect("the command").1;
    folder.query("DROP TRIGGER stops");
    let command = format!("{} {command}", crate::program::binary().display());
    let mut shell = std::process::Command::new("sh");
    let ran = shell.args(["-c", &command]).current_dir(folder.path("")).output();
    Ran::from(ran.expect("a shell starts")).exits(0).says("going on with run");
    run(&folder, &[]).exits(0);
}

#[test]
fn outputs_that_nobody_reads_do_no_harm() {
    for closed in ["out", "err", "both"] {
        let folder = folder(claims(2_000, |_| None));
        let mut command =
            folder.command(&["run", "claims", "claims.csv", "--report-interval", "1ms"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        if closed != "err" {
            drop(child.stdout.take());
        }
        if closed != "out" {
            drop(child.stderr.take());
        }
        assert_eq!(
            child.wait_with_output().expect("the program ends").status.code(),
            Some(0),
            "closed: {closed}"
        );
        assert_eq!(stored(&folder), 2_000);
        for words in [
            &["status"][..],
            &["inspect"],
            &["rejects", "list"],
            &["rejects", "export"],
            &["pipelines"],
            &["generate", "claims", "--rows", "9"],
        ] {
            let mut child =
                folder.command(words).stdout(Stdio::piped()).spawn().expect("the program starts");
            drop(child.stdout.take());
            let code = child.wait().expect("the program ends").code();
            assert_eq!(code, Some(0), "{words:?}");
        }
    }
}

#[test]
fn created_files_are_their_owners_only() {
    let folder = folder(claims(3_000, |i| (i == 4).then(|| b"\x01".to_vec())));
    for name in ["claims.csv", "contracts.csv"] {
        std::fs::set_permissions(folder.path(name), PermissionsExt::from_mode(0o644))
            .expect("the mode is set");
    }
    let more = ["--summary", "summary.json", "--trace-calls", "trace", "--rate", "score=4000/s"];
    let mut command = folder.command(&[RUN, &more[..]].concat());
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let wal = folder.path("claims.db-wal");
    while !wal.exists() && child.try_wait().expect("the process is asked").is_none() {
        std::thread::yield_now();
    }
    assert_eq!(mode(&wal), 0o600, "while it runs");
    assert_eq!(child.wait().expect("the process ends").code(), Some(1));
    folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0);
    folder.run(&["generate", "claims", "--rows", "9", "--out", "generated.csv"]).exits(0);
    let files = state(&folder).files;
    let created =
        files.iter().filter(|name| !["claims.csv", "contracts.csv"].contains(&name.as_str()));
    let created: Vec<_> = created.collect();
    assert_eq!(created.len(), 7, "{created:?}");
    for name in created {
        assert_eq!(mode(&folder.path(name)), 0o600, "{name}");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0, |found| found.mode() & 0o777)
}

/// A text that is in no field but those of refused records, in the column at `index`.
fn secret(index: usize) -> String {
    format!("Zq{index}Geheim")
}

#[test]
fn no_value_of_a_refused_record_is_printed() {
    let mut input = format!("{HEADER}\n");
    let plain = start_of_row(1) + "x";
    let fields: Vec<&str> = plain.split(',').collect();
    for i in 1..=200 {
        input.push_str(&format!("{}x\n", start_of_row(i)));
    }
    for index in 0..fields.len() {
        let mut row: Vec<String> = fields.iter().map(|field| field.to_string()).collect();
        row[0] = format!("C{:07}", 300 + index);
        row[index] = secret(index) + if index == 9 { "\x01" } else { "" };
        if index == 5 {
            row[index] = secret(index).repeat(20);
        }
        input.push_str(&(row.join(",") + "\n"));
    }
    // A key that exists, text after a quote, a missing field, a quote that is never closed.
    input.push_str(&format!("{}{}\n", start_of_row(1), secret(10)));
    input.push_str(&format!("{}\"{}\"{}\n", start_of_row(320), secret(11), secret(12)));
    input.push_str(&format!("C0000321,{}\n", secret(13)));
    input.push_str(&format!("{}\"{}\n", start_of_row(322), secret(14)));
    let folder = folder(input);
    let arguments = [
        "run",
        "claims",
        "claims.csv",
        "--verbose",
        "--report-interval",
        "1ms",
        "--summary",
        "summary.json",
    ];
    let ran = folder.run(&arguments).exits(1);
    // The postal code is the one column that is refused for its form alone: all fifteen are.
    assert_eq!(folder.count("SELECT count(*) FROM gegendruck_rejects"), 14, "{}", ran.out);
    let mut printed = ran.out + &ran.err;
    printed += &std::fs::read_to_string(folder.path("summary.json")).expect("the summary");
    printed += &std::fs::read_to_string(folder.path("claims.db.status.json")).expect("the status");
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["inspect"],
        &["rejects", "list"],
        &["validate", "claims", "claims.csv"],
        &["validate", "claims", "claims.csv", "--json"],
        &["plan", "claims", "claims.csv"],
        &["run", "claims", "claims.csv", "--log-format", "json"],
    ] {
        let ran = folder.run(command);
        printed += &(ran.out + &ran.err);
    }
    let details = folder.query("SELECT detail FROM gegendruck_rejects");
    for text in [&printed, &details] {
        let leak = text.lines().find(|line| line.contains("Geheim") || line.contains("C0000001"));
        assert_eq!(leak, None);
    }
    let export = folder.run(&["rejects", "export"]).exits(0);
    assert!(
        (0..15).all(|index| export.out.contains(&secret(index))),
        "what was asked for is there"
    );
}

#[test]
fn the_log_names_input_and_target_first_and_then_the_run() {
    let folder = folder(claims(20, |_| None));
    let ran = folder.run(&["run", "claims", "claims.csv"]).exits(0);
    let mut lines = BufReader::new(ran.err.as_bytes()).lines().map(|line| line.expect("text"));
    let (input, to) = (folder.path("claims.csv"), folder.path("claims.db"));
    let first = lines.next().expect("a line");
    let words = format!(
        "{} -> sqlite:{} (new database created), table claims",
        input.display(),
        to.display()
    );
    assert!(first.ends_with(&words), "{first}");
    assert!(lines.next().expect("a line").contains("contracts first: importing contracts.csv"));
    for pipeline in ["contracts", "claims"] {
        let name =
            folder.query(&format!("SELECT run FROM gegendruck_runs WHERE pipeline = '{pipeline}'"));
        let words = "never more than 20,000 records and 24 MiB read and not committed";
        let bound = format!(" {} {words}", name.trim());
        assert!(lines.next().expect("a line").ends_with(&bound), "{}", ran.err);
        if pipeline == "contracts" {
            assert!(lines.next().expect("a line").contains(" contracts: run "), "{}", ran.err);
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn inputs_with_their_columns_in_another_order_are_one_run_and_their_rejects_have_no_header() {
    let folder = folder(claims(20, |i| (i == 4).then(|| b"\x01".to_vec())));
    let other = start_of_row(30).replacen("C0000030,P0000", "P0000,C0000030", 1);
    let header = HEADER.replacen("claim_id,policy_id", "policy_id,claim_id", 1);
    folder.write("more.csv", format!("{header}\n{other}x\n"));
    folder.run(&["run", "claims", "claims.csv", "more.csv", "--quiet"]).exits(1);
    assert_eq!(stored(&folder), 20);
    folder.run(&["rejects", "list"]).exits(0).says(": 1 reject\n");
    folder.run(&["rejects", "show", "1"]).exits(0).says("\ntried 1 time, first ");
    let ran = folder.run(&["rejects", "export"]).exits(0);
    assert!(ran.err.contains("the inputs have different header lines"), "{}", ran.err);
    assert_eq!(ran.out, format!("1,{}\x01\n", start_of_row(4)));
}

#[test]
fn inputs_can_be_more_than_a_process_may_have_files_open() {
    let folder = folder(claims(0, |_| None));
    let names: Vec<String> = (1..=100).map(|i| format!("part{i:03}.csv")).collect();
    for (i, name) in names.iter().enumerate() {
        folder.write(name, format!("{HEADER}\n{}\n", start_of_row(i as u64 + 1)));
    }
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 50; exec \"$0\" \"$@\""]).arg(binary());
    limited.args(["run", "claims", "--quiet"]).args(&names).current_dir(folder.path(""));
    Ran::from(limited.output().expect("the program starts")).exits(0);
    assert_eq!(stored(&folder), 100);
}

#[test]
fn an_input_whose_name_is_not_in_utf8_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = folder(claims(20, |_| None));
    let name = OsStr::from_bytes(b"caf\xE9.csv");
    let path = folder.path("").join(name);
    std::fs::copy(folder.path("claims.csv"), &path).expect("it is copied");
    let before = state(&folder);
    let mut command = folder.command(&["run", "claims", "--quiet"]);
    let ran = command.arg(name).output().expect("the program starts");
    assert_refused(
        &ran.into(),
        2,
        "its path is not in UTF-8, in which the ledger keeps it; rename it",
    );
    assert_eq!(state(&folder), before);
}

#[test]
fn line_ends_that_are_not_the_usual_ones_are_reported() {
    let text = String::from_utf8(claims(5, |_| None)).expect("text");
    let crlf = text.replace('\n', "\r\n");
    for (file, words) in [
        (format!("\u{feff}{crlf}"), "claims.csv: lines end with CRLF, byte order mark"),
        (text.trim_end().into(), "claims.csv: lines end with LF, but for the last one"),
    ] {
        let folder = folder(file);
        folder.run(&["run", "claims", "claims.csv"]).exits(0).says(words);
        assert_eq!(stored(&folder), 5);
    }
    let ran = folder(text).run(&["run", "claims", "claims.csv"]).exits(0);
    assert!(!ran.err.contains("lines end with"), "{}", ran.err);
}
