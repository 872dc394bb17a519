//! Files that an operator names for output: nothing else is ever written over, by whatever name and from whatever setting.

use crate::claims::{claims, folder, killed_after_commit, run};
use crate::program::{Folder, Ran};

/// A folder with a complete import in `claims.db`.
fn imported() -> Folder {
    let folder = folder(claims(30, |i| (i == 4).then(|| b"\x01".to_vec())));
    run(&folder, &[]).exits(1);
    folder
}

/// Asserts that the program ends with `code` and says `words`, and that the file `name` is what it was.
#[track_caller]
fn check(folder: &Folder, arguments: &[&str], name: &str, code: i32, words: &str) {
    check_with(folder, arguments, None, name, code, words);
}

#[track_caller]
fn check_with(
    folder: &Folder,
    arguments: &[&str],
    variable: Option<(&str, &str)>,
    name: &str,
    code: i32,
    words: &str,
) {
    let read = || std::fs::read(folder.path(name)).ok();
    let before = read();
    let mut command = folder.command(arguments);
    command.envs(variable);
    let ran: Ran = command.output().expect("the program starts").into();
    ran.exits(code).says(words);
    assert!(read() == before, "{name} was changed by {arguments:?}");
}

#[test]
fn a_summary_takes_the_place_of_nothing_but_a_summary() {
    let folder = imported();
    let no_summary = "is a file that is no summary; name another file";
    folder.write("import.toml", "summary = \"claims.csv\"\n");
    // A name was forgotten: the command line is wrong, and what follows --summary is the input.
    for arguments in [
        &["run", "claims", "--summary", "claims.csv"][..],
        &["run", "--summary=claims.csv"],
        &["run", "claims", "--config", "import.toml"],
        &["run", "clams", "claims.csv", "--summary", "contracts.csv"],
        &["run", "clams", "none.csv", "--summary", "claims.csv"],
        &["run", "claims", "none.csv", "--summary", "claims.csv"],
        &["run", "claims", "contracts.csv", "--config", "import.toml"],
        &["plan", "claims", "contracts.csv", "--summary", "claims.csv"],
    ] {
        let words = if arguments.contains(&"clams") { "no pipeline" } else { no_summary };
        for name in ["claims.csv", "contracts.csv"] {
            check(&folder, arguments, name, 2, words);
        }
    }
    let variable = Some(("NIGHTLY_IMPORT_SUMMARY", "claims.csv"));
    check_with(&folder, &["run", "claims"], variable, "claims.csv", 2, no_summary);
    let input = "--summary claims.csv: is an input; name another file";
    let run = ["run", "claims", "claims.csv"];
    check_with(&folder, &run, variable, "claims.csv", 2, input);
    check(
        &folder,
        &["run", "claims", "--config", "import.toml", "claims.csv"],
        "claims.csv",
        2,
        input,
    );
    // An older summary, an empty file, and one that is not there.
    for name in ["new.json", "new.csv"] {
        for _ in 0..2 {
            folder.run(&[&run[..], &["--summary", name]].concat()).exits(1);
        }
        folder.write(name, "");
        folder.run(&[&run[..], &["--summary", name]].concat()).exits(1);
        assert!(std::fs::metadata(folder.path(name)).expect("the summary").len() > 0);
    }
}

#[test]
fn neither_summary_nor_trace_nor_export_is_written_over_an_input_or_the_target() {
    let folder = imported();
    let of_target = [
        ("claims.db", "is the target; name another file"),
        ("claims.db.lock", "is the target's lock; name another file"),
        ("claims.db.status.json", "is the target's status file; name another file"),
        ("claims.db-wal", "is a file of the target; name another file"),
        ("claims.db-shm", "is a file of the target; name another file"),
    ];
    std::fs::hard_link(folder.path("claims.csv"), folder.path("hard.csv")).expect("a link");
    std::os::unix::fs::symlink("claims.csv", folder.path("soft.csv")).expect("a link");
    let input = "is an input; name another file";
    let inputs = [("claims.csv", input), ("./hard.csv", input), ("soft.csv", input)];
    for (name, words) in of_target.into_iter().chain(inputs) {
        for flag in ["--summary", "--trace-calls"] {
            for command in ["run", "plan"] {
                let words = format!("{flag} {name}: {words}");
                check(&folder, &[command, "claims", "claims.csv", flag, name], name, 2, &words);
            }
        }
        let words = format!("--out {name}: {words}");
        check(&folder, &["rejects", "export", "--out", name], name, 2, &words);
    }
    folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0);
    folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0);
    // A target that is not there yet.
    for (name, flag) in [("sd.db", "--summary"), ("sd.db.lock", "--trace-calls")] {
        let to = ["run", "claims", "claims.csv", "--to", "sqlite:sd.db", flag, name];
        check(&folder, &to, "sd.db", 2, "is the target");
        assert!(!folder.path("sd.db").exists());
    }
    let one = ["run", "claims", "claims.csv", "--summary", "one", "--trace-calls", "./one"];
    check(&folder, &one, "one", 2, "name one file; name two");
}

#[test]
fn a_trace_is_appended_to_nothing_but_a_trace() {
    let folder = folder(claims(30, |_| None));
    let traced = ["--trace-calls", "contracts.csv"];
    let words = "--trace-calls contracts.csv: is a file that is no trace of calls";
    check(
        &folder,
        &[&["run", "claims", "claims.csv"][..], &traced].concat(),
        "contracts.csv",
        2,
        words,
    );
    assert!(!folder.path("claims.db").exists());
    killed_after_commit(&folder, 2, &["--batch-size", "10", "--trace-calls", "trace"]);
    run(&folder, &["--trace-calls", "trace"]).exits(0);
    let trace = std::fs::read_to_string(folder.path("trace")).expect("the trace");
    assert!(trace.starts_with("score 1\n") && trace.ends_with("score 30\n"), "{trace}");
}
