//! What schedulers read: the file that `--summary` names, after every exit.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use serde_json::Value;

use crate::claims::{as_if_killed, claims, folder, refuse_commits_after};
use crate::program::{Folder, Ran};

const FILE: &str = "summary.json";

/// Asserts that the program ended with `code`, and that it left a summary which is whole, private, and agrees with that.
#[track_caller]
fn assert_summary(folder: &Folder, ran: Ran, code: i32) -> Value {
    let Ran { out, err, .. } = &ran.exits(code);
    let path = folder.path(FILE);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}: {err}"));
    let summary: Value = serde_json::from_slice(&bytes).expect("the summary is JSON");
    assert_eq!((&summary["schema"], &summary["exit"]), (&1.into(), &code.into()), "{err}");
    assert_eq!(std::fs::metadata(&path).expect("the summary").mode() & 0o777, 0o600);
    let files = std::fs::read_dir(folder.path("")).expect("the folder is read");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let left: Vec<_> = names.filter(|name| name.ends_with(".tmp") && name.contains(FILE)).collect();
    assert_eq!(left, [""; 0]);
    if code > 1 {
        let message = summary["message"].as_str().expect("why");
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
        assert!(
            out.contains(message) || err.contains(message),
            "the summary says what was printed: {message}\n--- out\n{out}\n--- err\n{err}"
        );
    }
    summary
}

/// Runs claims with `--summary`.
#[track_caller]
fn check(folder: &Folder, more: &[&str], code: i32) -> Value {
    drop(std::fs::remove_file(folder.path(FILE)));
    let ran = folder.run(&[&["run", "claims"][..], more, &["--quiet", "--summary", FILE]].concat());
    assert_summary(folder, ran, code)
}

#[test]
fn a_summary_is_written_whatever_happens() {
    let folder = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    check(&folder, &["none.csv"], 9);
    check(&folder, &["claims.csv", "--bach-size", "7"], 2);
    check(&folder, &["claims.csv", "--workers", "score=0"], 2);
    check(&folder, &["claims.csv", "--config", "none.toml"], 2);
    let summary = check(&folder, &["contracts.csv"], 2);
    let input = folder.path("contracts.csv").display().to_string();
    assert_eq!((&summary["pipeline"], &summary["inputs"][0][0]), (&"claims".into(), &input.into()));
    let summary = check(&folder, &["claims.csv", "--max-errors", "0"], 3);
    assert_eq!(summary["total"]["rejected"], 1);
    let summary = check(&folder, &["claims.csv"], 1);
    assert_eq!((&summary["total"]["read"], &summary["total"]["stored"]), (&30.into(), &29.into()));
    assert_eq!(
        (&summary["attempts"], &summary["rejects"][0]["kind"]),
        (&2.into(), &"control_character".into())
    );
    folder.write("copy.csv", std::fs::read(folder.path("claims.csv")).expect("the input"));
    check(&folder, &["copy.csv"], 10);
    check(&folder, &["claims.csv", "copy.csv"], 10);
    folder.query("DELETE FROM claims");
    check(&folder, &["claims.csv"], 8);
    folder.query("DELETE FROM gegendruck_target");
    check(&folder, &["claims.csv"], 4);
    let clean = crate::claims::folder(claims(30, |_| None));
    let summary = check(&clean, &["claims.csv"], 0);
    assert_eq!(summary["message"], Value::Null);
}

#[test]
fn a_summary_is_written_when_a_run_cannot_go_on() {
    let folder = folder(claims(30, |_| None));
    refuse_commits_after(&folder, 2);
    let summary = check(&folder, &["claims.csv", "--batch-size", "10"], 4);
    assert_eq!((&summary["total"]["stored"], &summary["attempts"]), (&20.into(), &1.into()));
    let command = summary["go_on"].as_str().expect("the command that goes on");
    let input = folder.path("claims.csv").canonicalize().expect("the input");
    let start = format!("nightly-import run claims {} ", input.display());
    assert!(command.starts_with(&start), "{command}");
    as_if_killed(&folder);
    check(&folder, &["claims.csv", "--on-conflict", "skip"], 7);
    // Twice the process has died on the record that is marked.
    let run = "(SELECT run FROM gegendruck_runs WHERE pipeline = 'claims')";
    folder.query(&format!(
        "INSERT INTO gegendruck_marks SELECT run, input, byte, record, line, 2, 1, '2026-11-30T01:00:00.000Z' \
         FROM gegendruck_inputs WHERE run = {run}"
    ));
    let summary = check(&folder, &["claims.csv"], 70);
    let run = folder.query(&format!("SELECT {run}"));
    assert_eq!(summary["run"].as_str(), Some(run.trim()));
}

#[test]
fn the_command_that_goes_on_needs_neither_environment_nor_settings_file_nor_folder() {
    let folder = folder(claims(30, |_| None));
    std::fs::create_dir(folder.path("other")).expect("a folder");
    folder.write("import.toml", "label = \"true\"\nbatch-size = 10\nif-done = \"ok\"\n");
    let variables = [
        ("NIGHTLY_IMPORT_TO", "sqlite:claims.db"),
        ("NIGHTLY_IMPORT_TABLE", "losses"),
        ("NIGHTLY_IMPORT_ALLOW_EMPTY", "true"),
        ("NIGHTLY_IMPORT_NO_MULTILINE", "false"),
    ];
    refuse_commits_after(&folder, 2);
    let mut first = folder.command(&["run", "claims", "claims.csv", "--config", "import.toml"]);
    let ran: Ran = first.envs(variables).output().expect("the program starts").into();
    let ran = ran.exits(4);
    let command = ran.out.lines().find_map(|line| line.strip_prefix("go on with: "));
    let command = command.expect("the command that goes on");
    let name = folder.query("SELECT run FROM gegendruck_runs WHERE pipeline = 'claims'");
    folder.run(&["status", name.trim()]).exits(0).says(&format!("go on with: {command}\n"));
    for flag in
        ["--allow-empty", "--batch-size=10", "--if-done=ok", "--label=true", "--table=losses"]
    {
        assert!(command.split(' ').any(|word| word == flag), "no {flag} in {command}");
    }
    assert!(!command.contains("multiline") && !command.contains("--config"), "{command}");
    as_if_killed(&folder);
    let words: Vec<_> = command.split(' ').skip(1).collect();
    let ran = folder.command(&words).current_dir(folder.path("other")).output();
    Ran::from(ran.expect("the program starts")).exits(0).says("going on with run");
    assert_eq!(folder.count("SELECT count(*) FROM losses"), 30);
    let left = std::fs::read_dir(folder.path("other")).expect("the folder").count();
    assert_eq!(left, 0, "nothing was begun elsewhere");
}

#[test]
fn a_summary_is_written_by_a_run_that_is_stopped_and_by_one_that_finds_the_target_held() {
    let folder = folder(claims(4_000, |_| None));
    let slow =
        ["run", "claims", "claims.csv", "--rate", "score=1000/s", "--summary", FILE, "--quiet"];
    let mut command = folder.command(&slow);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let status = folder.path("claims.db.status.json");
    let runs = |text: String| text.contains("\"pipeline\":\"claims\"");
    while !std::fs::read_to_string(&status).is_ok_and(runs) {
        std::thread::yield_now();
    }
    check(&folder, &["claims.csv"], 6);
    drop(std::fs::remove_file(folder.path(FILE)));
    let pid = child.id().to_string();
    std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("it is sent");
    let ran = child.wait_with_output().expect("the program ends").into();
    let summary = assert_summary(&folder, ran, 5);
    let message = summary["message"].as_str().expect("why");
    let (first, total) = (&summary["report"]["stages"][1], &summary["total"]);
    let records = |field: &str| first[field]["records"].as_u64().expect("a number");
    let left = records("settled") + records("held") - total["read"].as_u64().expect("a number");
    let expected = match left {
        0 => "all that was read is committed".into(),
        _ => format!("read and not committed: {} record", gegendruck::thousands(left)),
    };
    assert!(message.starts_with(&format!("stopped by a signal; {expected}")), "{left}: {message}");
    let (total, stored) = (&summary["total"], folder.count("SELECT count(*) FROM claims"));
    assert_eq!((&total["read"], &total["stored"]), (&stored.into(), &stored.into()));
}

#[test]
fn a_run_that_finds_its_inputs_done_names_the_run_that_did_them() {
    let folder = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    let first = check(&folder, &["claims.csv"], 1);
    let again = check(&folder, &["claims.csv"], 1);
    assert_eq!((&first["already_done"], &again["already_done"]), (&false.into(), &true.into()));
    for field in ["run", "total", "lines", "rejects", "export", "attempts"] {
        assert!(!again[field].is_null());
        assert_eq!(again[field], first[field], "{field}");
    }
    std::fs::copy(folder.path("claims.csv"), folder.path("copy.csv")).expect("a copy");
    let copy = check(&folder, &["copy.csv", "--if-done", "ok"], 0);
    assert_eq!((&copy["run"], &copy["total"]), (&first["run"], &first["total"]));
    folder.write("more.csv", claims(40, |i| Some(format!("more {i}").into_bytes())));
    let more = check(&folder, &["more.csv", "--on-conflict", "skip"], 0);
    let both = check(&folder, &["claims.csv", "more.csv"], 1);
    let message = both["message"].as_str().expect("which");
    for run in [&first["run"], &more["run"]] {
        assert!(message.contains(run.as_str().expect("a name")), "{message}");
    }
}

#[test]
fn lines_of_a_run_that_takes_what_was_added_to_an_input_are_counted_from_where_it_begins() {
    let text = |i: u64| match i {
        7 => Some(b"\"two\nlines\"".to_vec()),
        8 => Some(b"a blank line follows\n".to_vec()),
        _ => None,
    };
    let input = claims(10, text);
    let folder = folder(&input);
    let first = check(&folder, &["claims.csv"], 0);
    let counts = |summary: &Value| {
        let other = |name: &str| summary["other_lines"][name].as_u64().expect("a number");
        let (lines, read) = (summary["lines"].as_u64(), summary["total"]["read"].as_u64());
        [lines.expect("lines"), other("header"), read.expect("records"), other("blank")]
    };
    assert_eq!(counts(&first), [13, 1, 10, 1]);
    // The same again, and once more: with a blank line and a record of two lines.
    let rows = String::from_utf8(input).expect("text");
    let rows = rows.split_once('\n').expect("a header").1;
    let mut file = std::fs::read_to_string(folder.path("claims.csv")).expect("the input");
    for begin in ["\nC1", "\nC2"] {
        file.push_str(&format!("\n{rows}").replace("\nC0", begin)[1..]);
        folder.write("claims.csv", &file);
        let grown = check(&folder, &["claims.csv", "--accept-grown"], 0);
        assert_eq!(counts(&grown), [12, 0, 10, 1], "one line is within a record");
        let run = grown["run"].as_str().expect("its name");
        let lines = "SELECT header_lines, blank_lines, line - start_line FROM gegendruck_inputs";
        let found = folder.query(&format!("{lines} WHERE run = '{run}'"));
        assert_eq!(found, "0|1|12\n", "the ledger says the same");
    }
    let folder = crate::claims::folder(claims(10, text));
    folder.run(&["run", "claims", "claims.csv"]).exits(0);
    folder.write("claims.csv", &file);
    let ran = folder.run(&["run", "claims", "claims.csv", "--accept-grown"]).exits(0);
    ran.says("\nlines 24 = header 0 + records 20 + blank 2 + trailer 0 + within records 2 (");
}

#[test]
fn a_summary_goes_where_flag_environment_or_file_say_also_when_the_rest_is_wrong() {
    let folder = folder(claims(30, |_| None));
    folder.write("import.toml", "summary = \"file.json\"\nbatch-size = 0\n");
    let run = ["run", "claims", "claims.csv", "--config", "import.toml", "--bach-size", "7"];
    let written = |name: &str| std::fs::remove_file(folder.path(name)).is_ok();
    folder.run(&run).exits(2);
    assert!(written("file.json"));
    let environment = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        let ran = command.env("NIGHTLY_IMPORT_SUMMARY", "environment.json").output();
        Ran::from(ran.expect("the program starts")).exits(2);
    };
    environment(&run);
    assert!(written("environment.json") && !written("file.json"));
    environment(&[&run[..], &["--summary=flag.json"]].concat());
    assert!(written("flag.json") && !written("environment.json"));
    for other in [&["status", "--bogus"][..], &["plan", "claims", "none.csv", "--bogus"]] {
        environment(other);
        assert!(!written("environment.json"), "{other:?} is no run");
    }
}

#[test]
fn a_summary_whose_name_ends_with_csv_is_one_line_of_a_table() {
    let folder = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    let run = ["run", "claims", "claims.csv", "--quiet", "--summary", "summary.csv"];
    let values = || {
        let text = std::fs::read_to_string(folder.path("summary.csv")).expect("the summary");
        let lines: Vec<Vec<String>> =
            text.lines().map(|line| line.split(',').map(str::to_string).collect()).collect();
        assert_eq!((lines.len(), lines[0].len()), (2, lines[1].len()), "{text}");
        move |name: &str| {
            let at = lines[0].iter().position(|found| found == name).expect("a column");
            lines[1][at].clone()
        }
    };
    folder.run(&[&run[..], &["none.csv"]].concat()).exits(9);
    let value = values();
    assert_eq!(["schema", "exit", "state", "run"].map(value), ["1", "9", "NO INPUT", ""]);
    folder.run(&run).exits(1);
    let value = values();
    assert_eq!(value("state"), "COMPLETE WITH REJECTS");
    assert_eq!(["exit", "read", "stored", "rejected"].map(value), ["1", "30", "29", "1"]);
}
