//! Look-up and damage, against real databases and files.
//!
//! Inputs are lines of five bytes; a run commits some of them, and then the files, the settings or the ledger change.

use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use gegendruck::{Checkpoint, Filtered, Lines, Position, Reason, Reject, Tally, Tried, Tries};
use sqlx::sqlite::SqliteConnection;

use crate::*;

/// Bytes of a line.
const LINE: u64 = 5;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// So many lines that differ between seeds.
fn lines(seed: char, count: u64) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        writeln!(text, "{seed}{n:03}").unwrap();
        text
    })
}

fn pipeline() -> PipelineIdentity {
    PipelineIdentity {
        pipeline: "claims".into(),
        rules: 3,
        table: "claims".into(),
        dialect: "comma".into(),
        mapping: "all".into(),
        conflict: "error".into(),
    }
}

fn attempt() -> Attempt {
    Attempt {
        process: Process::this("test"),
        settings: serde_json::json!({"batch-size": [5000, "default"]}),
    }
}

struct World {
    folder: tempfile::TempDir,
    target: Target,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::parse(folder.path().join("claims.db").to_str().unwrap()).unwrap();
        World { folder, target }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    async fn ledger(&self) -> Ledger {
        Ledger::open(&self.target, "claims").await.unwrap()
    }

    async fn connect(&self) -> SqliteConnection {
        self.target.connect().await.unwrap()
    }

    async fn execute(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(&mut self.connect().await).await.unwrap();
    }

    /// Starts or goes on with a run of `paths`.
    async fn start(&self, paths: &[PathBuf], accept: Accept) -> (Ledger, Ticket, Vec<ResumePoint>) {
        let mut ledger = self.ledger().await;
        let (ticket, inputs) = match ledger.look_up(&pipeline(), paths, accept).await.unwrap() {
            Decision::New { inputs, .. } => {
                let spec = RunSpec {
                    pipeline: pipeline(),
                    inputs,
                    label: None,
                    as_of: None,
                    contracts_run: None,
                };
                (ledger.begin(&spec, &attempt()).await.unwrap(), spec.inputs)
            }
            Decision::GoOn(go_on) => {
                (ledger.go_on(&go_on, &attempt()).await.unwrap().0, go_on.inputs)
            }
            Decision::AlreadyDone(done) => panic!("{done:?}"),
        };
        (ledger, ticket, inputs)
    }

    /// Commits the next `count` lines of an input, each stored in the table.
    async fn commit(&self, ticket: &Ticket, point: &mut ResumePoint, count: u64) {
        let bytes = std::fs::read(&point.file.path).unwrap();
        let from = point.at.byte as usize;
        let to = from + (count * LINE) as usize;
        point.fingerprint.update(&bytes[from..to]);
        point.at.byte = to as u64;
        point.at.record += count;
        point.at.line += count;
        let complete = to == bytes.len();
        point.complete = complete;
        let checkpoint = Checkpoint {
            at: point.at,
            fingerprint: point.fingerprint.value(),
            lines: Lines::default(),
            complete,
        };
        let tally = Tally { read: count, stored: count, ..Tally::default() };
        let mut connection = self.connect().await;
        self.execute("CREATE TABLE IF NOT EXISTS claims (line TEXT) STRICT").await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        fence(&mut connection, ticket).await.unwrap();
        for line in bytes[from..to].chunks(LINE as usize) {
            let insert = "INSERT INTO claims (line) VALUES (?)";
            sqlx::query(insert)
                .bind(std::str::from_utf8(line).unwrap())
                .execute(&mut connection)
                .await
                .unwrap();
        }
        let filtered = Filtered::default();
        let settled =
            Settled { tally: &tally, filtered: &filtered, checkpoints: &[checkpoint], added: 0 };
        write_progress(&mut connection, ticket, settled).await.unwrap();
        sqlx::query("COMMIT").execute(&mut connection).await.unwrap();
    }

    async fn complete(&self, ticket: &Ticket) {
        let mut connection = self.connect().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        fence(&mut connection, ticket).await.unwrap();
        complete(&mut connection, ticket).await.unwrap();
        sqlx::query("COMMIT").execute(&mut connection).await.unwrap();
    }

    /// Imports the whole of a file.
    async fn import(&self, path: &Path, accept: Accept) -> String {
        let (_ledger, ticket, mut inputs) = self.start(&[path.into()], accept).await;
        let point = inputs.last_mut().unwrap();
        let left = (point.file.size - point.at.byte) / LINE;
        self.commit(&ticket, point, left).await;
        self.complete(&ticket).await;
        ticket.run().into()
    }

    /// What a look-up says, in a few words; the database must be the same before and after it.
    async fn says(&self, pipeline: &PipelineIdentity, paths: &[PathBuf], accept: Accept) -> String {
        let before = self.dump().await;
        let said = match self.ledger().await.look_up(pipeline, paths, accept).await {
            Ok(Decision::New { inputs, skipped }) => {
                format!("new{}{}", at(&inputs), names(&skipped))
            }
            Ok(Decision::GoOn(go_on)) => {
                let accepted = if go_on.accepted.is_empty() { "" } else { " accepted" };
                format!("go on{}{}{accepted}", at(&go_on.inputs), names(&go_on.skipped))
            }
            Ok(Decision::AlreadyDone(done)) => format!("done{}", names(&done)),
            Err(error) => error.to_string().replace(&*self.path("").to_string_lossy(), ""),
        };
        assert_eq!(self.dump().await, before, "a look-up changes nothing");
        said
    }

    /// All rows of all tables.
    async fn dump(&self) -> String {
        let mut dump = String::new();
        let mut connection = self.connect().await;
        let tables: Vec<String> =
            sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
                .fetch_all(&mut connection)
                .await
                .unwrap();
        for table in tables {
            let columns: Vec<String> =
                sqlx::query_scalar("SELECT 'quote(' || name || ')' FROM pragma_table_info(?)")
                    .bind(&table)
                    .fetch_all(&mut connection)
                    .await
                    .unwrap();
            let rows: Vec<String> = sqlx::query_scalar(&format!(
                "SELECT {} FROM {table} ORDER BY 1",
                columns.join(" || ',' || ")
            ))
            .fetch_all(&mut connection)
            .await
            .unwrap();
            writeln!(dump, "{table}\n{}", rows.join("\n")).unwrap();
        }
        dump
    }
}

/// The inputs that are read, and at which record.
fn at(inputs: &[ResumePoint]) -> String {
    inputs.iter().fold(String::new(), |mut text, input| {
        let name = input.file.path.file_name().unwrap().to_string_lossy();
        let record = if input.complete { "end".into() } else { input.at.record.to_string() };
        assert_eq!(input.fingerprint.bytes(), input.at.byte);
        assert_eq!(input.at.input, input.input);
        write!(text, " {}:{name}@{record}", input.input).unwrap();
        text
    })
}

fn names(done: &[Done]) -> String {
    done.iter().fold(String::new(), |mut text, done| {
        let name = done.path.file_name().unwrap().to_string_lossy();
        let other =
            done.other_path.as_ref().map(|path| path.file_name().unwrap().to_string_lossy());
        let other = other.map_or(String::new(), |other| format!(" as {other}"));
        write!(text, " ({name} by exit {}{other})", done.exit_code).unwrap();
        text
    })
}

const GROWN: Accept = Accept { grown: true, changed: false };
const CHANGED: Accept = Accept { grown: false, changed: true };

/// A file of 10 lines, of which a run has committed `committed`; then `change` happens, and `paths` are looked up.
#[track_caller]
fn check(committed: u64, change: fn(&World), paths: &[&str], accept: Accept, expected: &str) {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        let (_ledger, ticket, mut inputs) = world.start(&[path], Accept::default()).await;
        if committed > 0 {
            world.commit(&ticket, &mut inputs[0], committed).await;
        }
        if committed == 10 {
            world.complete(&ticket).await;
        }
        change(&world);
        let paths: Vec<PathBuf> = paths.iter().map(|name| world.path(name)).collect();
        let said = world.says(&pipeline(), &paths, accept).await.replace(ticket.run(), "RUN");
        assert!(said.starts_with(expected), "found {said}\nexpected {expected}");
    });
}

fn moved(world: &World) {
    std::fs::rename(world.path("a.csv"), world.path("b.csv")).unwrap();
}

#[test]
fn an_unfinished_input_is_known_by_its_content() {
    let same = |_: &World| {};
    check(6, same, &["a.csv"], Accept::default(), "go on 0:a.csv@7");
    check(6, moved, &["b.csv"], Accept::default(), "go on 0:b.csv@7");
    let copied = |world: &World| {
        world.write("b.csv", &lines('a', 10));
    };
    check(6, copied, &["b.csv"], Accept::default(), "go on 0:b.csv@7");
    let rewritten = |world: &World| {
        world.write("a.csv", &lines('a', 10));
    };
    check(6, rewritten, &["a.csv"], Accept::default(), "go on 0:a.csv@7");
    let other = |world: &World| {
        world.write("b.csv", &lines('b', 10));
    };
    check(6, other, &["b.csv"], Accept::default(), "new 0:b.csv@1");
    check(6, other, &["a.csv", "b.csv"], Accept::default(), "go on 0:a.csv@7 1:b.csv@1");
    check(
        6,
        copied,
        &["a.csv", "b.csv"],
        Accept::default(),
        "a.csv and b.csv have the same content",
    );
}

#[test]
fn inputs_of_one_run_that_begin_alike_are_gone_on_with_each_where_it_was() {
    run(async {
        let world = World::new();
        let longer = lines('a', 6) + &lines('b', 6);
        let paths = [world.write("a.csv", &lines('a', 10)), world.write("b.csv", &longer)];
        let (_ledger, ticket, mut inputs) = world.start(&paths, Accept::default()).await;
        let says = async || world.says(&pipeline(), &paths, Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 4).await;
        assert!(says().await.starts_with("go on 0:a.csv@5 1:b.csv@1"), "{}", says().await);
        world.commit(&ticket, &mut inputs[0], 6).await;
        assert!(says().await.starts_with("go on 0:a.csv@end 1:b.csv@1"), "{}", says().await);
        world.commit(&ticket, &mut inputs[1], 5).await;
        assert!(says().await.starts_with("go on 0:a.csv@end 1:b.csv@6"), "{}", says().await);
    });
}

#[test]
fn inputs_of_the_same_name_and_size_are_gone_on_with_each_as_itself() {
    run(async {
        let world = World::new();
        for folder in ["one", "two"] {
            std::fs::create_dir(world.path(folder)).unwrap();
        }
        let paths =
            [world.write("one/a.csv", &lines('a', 10)), world.write("two/a.csv", &lines('b', 10))];
        let (_ledger, _, _) = world.start(&paths, Accept::default()).await;
        let said = world.says(&pipeline(), &paths, Accept::default()).await;
        assert!(said.starts_with("go on 0:a.csv@1 1:a.csv@1"), "{said}");
    });
}

#[test]
fn what_was_imported_under_another_name_is_done_although_a_run_had_begun_with_it() {
    run(async {
        let world = World::new();
        let first = world.write("a.csv", &lines('a', 10));
        let (_ledger, _, _) = world.start(std::slice::from_ref(&first), Accept::default()).await;
        let copy = world.write("b.csv", &lines('a', 10));
        let (_ledger, ticket, mut inputs) = world.start(&[copy], Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 10).await;
        world.complete(&ticket).await;
        let said = world.says(&pipeline(), &[first], Accept::default()).await;
        assert!(said.starts_with("done (a.csv by exit 0 as b.csv)"), "{said}");
    });
}

#[test]
fn a_record_that_was_committed_without_its_rest_is_not_gone_on_with() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", "a000\na001\na0");
        let paths = std::slice::from_ref(&path);
        let (_ledger, ticket, mut inputs) = world.start(paths, Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 2).await;
        let mut cut = inputs[0].clone();
        cut.fingerprint.update(b"a0");
        let text = format!("{:032x}", cut.fingerprint.value());
        world
            .execute(&format!(
                "UPDATE gegendruck_inputs SET byte = 12, record = 4, line = 4, fingerprint = '{text}'; \
                 UPDATE gegendruck_runs SET read_records = 3, stored = 3"
            ))
            .await;
        std::fs::write(&path, "a000\na001\na002\na003\n").unwrap();
        let said = world.says(&pipeline(), paths, GROWN).await;
        assert!(said.starts_with("a.csv: has grown inside its last record"), "{said}");
        std::fs::write(&path, "a000\na001\na0\na003\n").unwrap();
        let said = world.says(&pipeline(), paths, GROWN).await;
        assert!(said.starts_with("go on 0:a.csv@4"), "{said}");
    });
}

#[test]
fn c20_a_truncated_or_replaced_input_is_refused() {
    for (size, same) in [
        (3, ""),
        (6, ", and up to there it is identical"),
        (9, ", and up to there it is identical"),
    ] {
        run(async {
            let world = World::new();
            let path = world.write("a.csv", &lines('a', 10));
            let (_ledger, ticket, mut inputs) =
                world.start(std::slice::from_ref(&path), Accept::default()).await;
            world.commit(&ticket, &mut inputs[0], 6).await;
            world.write("a.csv", &lines('a', size));
            let expected = format!(
                "a.csv: was truncated: it has {} bytes, run {} began with 50 and committed 30{same}; put the whole file back, and \
                 start again",
                size * LINE,
                ticket.run()
            );
            assert_eq!(world.says(&pipeline(), &[path], GROWN).await, expected);
        });
    }
    let replaced = |world: &World| {
        world.write("a.csv", &lines('b', 30));
    };
    check(6, replaced, &["a.csv"], GROWN, "a.csv: was replaced: its first 30 bytes are not those");
    let replaced_by_less = |world: &World| {
        world.write("a.csv", &lines('b', 3));
    };
    check(6, replaced_by_less, &["a.csv"], GROWN, "a.csv: was truncated: it has 15 bytes");
    let restored = |world: &World| {
        world.write("a.csv", &lines('b', 3));
        world.write("a.csv", &lines('a', 10));
    };
    check(6, restored, &["a.csv"], Accept::default(), "go on 0:a.csv@7");
}

#[test]
fn a_grown_input_is_refused_unless_accepted() {
    let grown = |world: &World| {
        world.write("a.csv", &lines('a', 12));
    };
    check(
        6,
        grown,
        &["a.csv"],
        Accept::default(),
        "a.csv: has grown: 60 bytes, run RUN knew 50 of them; --accept-grown",
    );
    check(6, grown, &["a.csv"], GROWN, "go on 0:a.csv@7 accepted");
    check(
        10,
        grown,
        &["a.csv"],
        Accept::default(),
        "a.csv: has grown: 60 bytes, run RUN knew 50 of them; --accept-grown",
    );
    check(10, grown, &["a.csv"], GROWN, "new 0:a.csv@11");
    let grown_elsewhere = |world: &World| {
        world.write("b.csv", &lines('a', 12));
    };
    check(10, grown_elsewhere, &["b.csv"], Accept::default(), "b.csv: has grown");
}

#[test]
fn what_is_added_to_a_record_without_a_line_end_is_no_record() {
    for (added, expected) in [
        ("\na002\n", "new 0:a.csv@3"),
        ("\r\na002\n", "new 0:a.csv@3"),
        ("\ra002\n", "new 0:a.csv@3"),
        ("9\n", "a.csv: has grown inside its last record"),
    ] {
        run(async {
            let world = World::new();
            let path = world.write("a.csv", "a000\na0011");
            world.import(&path, Accept::default()).await;
            world.write("a.csv", &format!("a000\na0011{added}"));
            let said = world.says(&pipeline(), &[path], GROWN).await;
            assert!(said.starts_with(expected), "{added:?}: {said}");
        });
    }
}

#[test]
fn a_complete_input_is_done_under_any_name() {
    let same = |_: &World| {};
    check(10, same, &["a.csv"], Accept::default(), "done (a.csv by exit 0)");
    check(10, moved, &["b.csv"], Accept::default(), "done (b.csv by exit 0 as a.csv)");
    let tomorrows = |world: &World| {
        world.write("a.csv", &lines('b', 10));
    };
    check(10, tomorrows, &["a.csv"], Accept::default(), "new 0:a.csv@1");
    let another = |world: &World| {
        world.write("b.csv", &lines('b', 4));
    };
    check(10, another, &["a.csv", "b.csv"], Accept::default(), "new 0:b.csv@1 (a.csv by exit 0)");
}

#[test]
fn an_unchanged_complete_input_is_not_read_again() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        world.import(&path, Accept::default()).await;
        // A wrong fingerprint is not noticed if the file need not be read.
        world
            .execute(
                "UPDATE gegendruck_inputs SET fingerprint = '00000000000000000000000000000001'",
            )
            .await;
        assert_eq!(
            world.says(&pipeline(), std::slice::from_ref(&path), Accept::default()).await,
            "done (a.csv by exit 0)"
        );
        world.write("a.csv", &lines('a', 10));
        assert_eq!(world.says(&pipeline(), &[path], Accept::default()).await, "new 0:a.csv@1");
    });
}

#[test]
fn an_input_of_which_nothing_was_settled_is_begun_again_whatever_it_is_now() {
    let same = |_: &World| {};
    check(0, same, &["a.csv"], Accept::default(), "go on 0:a.csv@1");
    check(0, moved, &["b.csv"], Accept::default(), "new 0:b.csv@1");
    let longer = |world: &World| {
        world.write("a.csv", &lines('b', 12));
    };
    check(0, longer, &["a.csv"], Accept::default(), "go on 0:a.csv@1");
}

#[test]
fn inputs_of_one_name_and_size_of_which_nothing_was_settled_are_told_apart_when_they_move() {
    run(async {
        for done in [0, 10] {
            let world = World::new();
            let folders = ["d1", "d2", "d3"];
            let write = |under: &str, folder: &str, letter: char| {
                std::fs::create_dir_all(world.path(under).join(folder)).unwrap();
                world.write(&format!("{under}/{folder}/c.csv"), &lines(letter, 10))
            };
            let old: Vec<PathBuf> = folders
                .iter()
                .zip('a'..)
                .map(|(folder, letter)| write("old", folder, letter))
                .collect();
            let (_ledger, ticket, mut inputs) = world.start(&old, Accept::default()).await;
            if done > 0 {
                world.commit(&ticket, &mut inputs[0], done).await;
            }
            let begins = if done > 0 { "0:c.csv@end" } else { "0:c.csv@1" };
            let expected = format!("go on {begins} 1:c.csv@1 2:c.csv@1");
            let new: Vec<PathBuf> = old
                .iter()
                .map(|path| world.path("new").join(path.strip_prefix(world.path("old")).unwrap()))
                .collect();
            // Copied with their folders, and moved.
            for (folder, letter) in folders.iter().zip('a'..) {
                write("new", folder, letter);
            }
            std::fs::rename(world.path("old"), world.path("away")).unwrap();
            assert_eq!(world.says(&pipeline(), &new, Accept::default()).await, expected);
            let flat = ["x", "y", "z"].map(|folder| world.path(folder).join("c.csv"));
            for (folder, path) in folders.iter().zip(&flat) {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::rename(world.path("away").join(folder).join("c.csv"), path).unwrap();
            }
            assert_eq!(world.says(&pipeline(), &flat, Accept::default()).await, expected);
            // Copied elsewhere, nothing tells one from the other.
            for (path, letter) in flat.iter().zip('a'..) {
                std::fs::remove_file(path).unwrap();
                std::fs::write(path, lines(letter, 10)).unwrap();
            }
            let said = world.says(&pipeline(), &flat, Accept::default()).await;
            assert!(said.contains(" may both be "), "{said}");
        }
    });
}

#[test]
fn what_was_added_to_an_input_is_not_another_input_however_little_of_it_was_settled() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        world.import(&path, Accept::default()).await;
        world.write("a.csv", &lines('a', 15));
        let paths = [path];
        drop(world.start(&paths, GROWN).await);
        let says = async |accept| world.says(&pipeline(), &paths, accept).await;
        assert_eq!(says(Accept::default()).await, "go on 0:a.csv@11");
        world.write("a.csv", &lines('a', 20));
        assert!(says(Accept::default()).await.contains("has grown"));
        assert_eq!(says(GROWN).await, "go on 0:a.csv@11 accepted");
        for other in [lines('b', 15), lines('b', 5)] {
            world.write("a.csv", &other);
            let said = says(GROWN).await;
            assert!(said.contains("was replaced") || said.contains("was truncated"), "{said}");
        }
        world.write("a.csv", &lines('a', 15));
        let moved = [world.path("b.csv")];
        std::fs::rename(&paths[0], &moved[0]).unwrap();
        assert_eq!(world.says(&pipeline(), &moved, GROWN).await, "go on 0:b.csv@11");
        std::fs::rename(&moved[0], &paths[0]).unwrap();
        let (_ledger, ticket, mut inputs) = world.start(&paths, Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 5).await;
        world.complete(&ticket).await;
        assert_eq!(says(Accept::default()).await, "done (a.csv by exit 0)");
    });
}

#[test]
fn a_lock_that_somebody_else_holds_is_waited_for_as_long_as_was_said() {
    run(async {
        let world = World::new();
        drop(world.ledger().await);
        let mut holder = world.connect().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
        let begin = async |patience: Duration| {
            let target = world.target.clone().patient(patience);
            let mut ledger = Ledger::open(&target, "claims").await.unwrap();
            ledger.transaction().await.map(drop)
        };
        let busy = begin(Duration::ZERO).await.unwrap_err();
        assert!(matches!(busy, LedgerError::Database { trouble: Trouble::Busy, .. }), "{busy}");
        // SQLite itself gives up after half a second.
        let release = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            sqlx::query("ROLLBACK").execute(&mut holder).await.unwrap();
        };
        let (begun, ()) = tokio::join!(begin(Duration::from_secs(60)), release);
        begun.unwrap();
    });
}

#[test]
fn empty_inputs_are_done_by_name_only() {
    run(async {
        let world = World::new();
        let monday = world.write("monday.csv", "");
        let tuesday = world.write("tuesday.csv", "");
        world.import(&monday, Accept::default()).await;
        assert_eq!(
            world.says(&pipeline(), std::slice::from_ref(&monday), Accept::default()).await,
            "done (monday.csv by exit 0)"
        );
        assert_eq!(
            world.says(&pipeline(), &[tuesday], Accept::default()).await,
            "new 0:tuesday.csv@1"
        );
        world.write("monday.csv", &lines('m', 2));
        assert_eq!(
            world.says(&pipeline(), &[monday], Accept::default()).await,
            "new 0:monday.csv@1"
        );
    });
}

#[test]
fn several_inputs_are_gone_on_with_together() {
    run(async {
        let world = World::new();
        let paths = [world.write("a.csv", &lines('a', 3)), world.write("b.csv", &lines('b', 4))];
        let (_ledger, ticket, mut inputs) = world.start(&paths, Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 3).await;
        world.commit(&ticket, &mut inputs[1], 2).await;
        let says =
            async |paths: &[PathBuf]| world.says(&pipeline(), paths, Accept::default()).await;
        assert_eq!(says(&paths).await, "go on 0:a.csv@end 1:b.csv@3");
        assert_eq!(
            says(&paths[1..]).await,
            "go on 1:b.csv@3",
            "what is complete need not be given"
        );
        assert!(says(&paths[..1]).await.contains("also reads b.csv; give all its inputs"));
        let c = world.write("c.csv", &lines('c', 1));
        assert_eq!(says(&[c.clone(), paths[1].clone()]).await, "go on 1:b.csv@3 2:c.csv@1");
        let (_ledger, other, mut c_inputs) =
            world.start(&[world.write("d.csv", &lines('d', 5))], Accept::default()).await;
        world.commit(&other, &mut c_inputs[0], 1).await;
        assert!(
            says(&[world.path("b.csv"), world.path("d.csv")]).await.contains("are both unfinished")
        );
    });
}

#[test]
fn another_pipeline_is_refused_with_the_difference_unless_accepted() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        let (_ledger, ticket, mut inputs) =
            world.start(std::slice::from_ref(&path), Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 6).await;
        let paths = [path];
        let rules = PipelineIdentity { rules: 4, dialect: "tab".into(), ..pipeline() };
        let said = world.says(&rules, &paths, Accept::default()).await;
        assert!(said.contains("rules 4, expected 3; dialect tab, expected comma;"), "{said}");
        assert_eq!(world.says(&rules, &paths, CHANGED).await, "go on 0:a.csv@7 accepted");
        let table = PipelineIdentity { table: "other".into(), ..pipeline() };
        let said = world.says(&table, &paths, CHANGED).await;
        assert!(said.contains("table other, expected claims; go on with the table"), "{said}");
        let other = PipelineIdentity { pipeline: "contracts".into(), ..pipeline() };
        assert_eq!(world.says(&other, &paths, Accept::default()).await, "new 0:a.csv@1");
        let mut ledger = world.ledger().await;
        let Decision::GoOn(go_on) = ledger.look_up(&rules, &paths, CHANGED).await.unwrap() else {
            panic!()
        };
        ledger.go_on(&go_on, &attempt()).await.unwrap();
        assert_eq!(ledger.run(ticket.run()).await.unwrap().pipeline, rules);
        let audit = ledger.audit(Some(ticket.run())).await.unwrap();
        assert!(audit[0].what.contains("rules 4, expected 3"), "{audit:?}");
    });
}

#[test]
fn a_taken_back_growth_goes_through_as_a_run_of_the_added_records() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        let first = world.import(&path, Accept::default()).await;
        world.write("a.csv", &lines('a', 14));
        let second = world.import(&path, GROWN).await;
        assert_ne!(first, second);
        let run = world.ledger().await.run(&second).await.unwrap();
        assert_eq!(
            (run.tally.read, run.inputs[0].start.record, run.inputs[0].at.record),
            (4, 11, 15)
        );
        assert_eq!(
            world.says(&pipeline(), &[path], Accept::default()).await,
            "done (a.csv by exit 0)"
        );
    });
}

#[test]
fn c25_a_damaged_ledger_is_refused_and_left_as_it_is() {
    for (damage, expected) in [
        ("DELETE FROM gegendruck_runs", "runs are missing"),
        ("DELETE FROM gegendruck_target", "the row of gegendruck_target is missing"),
        ("UPDATE gegendruck_target SET version = 4", "has version 4, expected 3; use the program"),
        ("UPDATE gegendruck_target SET version = 0", "0 is no version"),
        ("DROP TABLE gegendruck_rejects", "table gegendruck_rejects is missing"),
        ("DROP TABLE gegendruck_target", "table gegendruck_target is missing"),
        ("DROP TABLE gegendruck_tried", "table gegendruck_tried is missing"),
        ("DELETE FROM gegendruck_inputs", "the progress of a run is missing"),
        ("DELETE FROM gegendruck_inputs WHERE input = 0", "the progress of an input is missing"),
        ("DELETE FROM gegendruck_attempts", "an attempt is missing"),
        (
            "UPDATE gegendruck_target SET runs = 0; DELETE FROM gegendruck_runs",
            "the row of a run is missing",
        ),
        (
            "UPDATE gegendruck_inputs SET byte = 51 WHERE input = 0",
            "more is committed of an input than it has bytes",
        ),
        ("UPDATE gegendruck_inputs SET byte = -1", "a number is negative"),
        (
            "UPDATE gegendruck_inputs SET start_record = 8 WHERE input = 0",
            "an input is committed up to before its start",
        ),
        (
            "UPDATE gegendruck_inputs SET record = record + 1",
            "the counts of a run are not those of its inputs",
        ),
        ("UPDATE gegendruck_runs SET stored = 7", "the counts of a run do not add up"),
        ("UPDATE gegendruck_runs SET rejected = 1, stored = 5", "rejects are missing"),
        (
            "UPDATE gegendruck_runs SET filtered = 1, stored = 5",
            "counts of filtered records are missing",
        ),
        (
            "UPDATE gegendruck_inputs SET fingerprint = 'x' WHERE input = 0",
            "the fingerprint of input 0",
        ),
        (
            "UPDATE gegendruck_inputs SET fingerprint = upper(fingerprint)",
            "the fingerprint of input 0",
        ),
        ("UPDATE gegendruck_runs SET epoch = 7", "an attempt is missing"),
        (
            "INSERT INTO gegendruck_runs SELECT 'twin', 2, pipeline, rules, table_name, dialect, mapping, conflict, label, as_of, \
             contracts_run, created_target, state, epoch, commits, started, finished, exit_code, read_records, stored, updated, \
             rejected, filtered, duplicate, added, floor, added_before FROM gegendruck_runs; \
             INSERT INTO gegendruck_attempts SELECT 'twin', attempt, started, heartbeat, ended, exit_code, commits, host, pid, \
             user_name, version, settings FROM gegendruck_attempts; \
             INSERT INTO gegendruck_inputs SELECT 'twin', input, path, device, inode, size, mtime, ctime, start_byte, start_record, \
             start_line, byte, record, line, fingerprint, header_lines, blank_lines, trailer_lines, complete FROM \
             gegendruck_inputs; UPDATE gegendruck_target SET runs = 2",
            "two unfinished runs overlap in one input",
        ),
    ] {
        run(async {
            let world = World::new();
            let paths =
                [world.write("a.csv", &lines('a', 10)), world.write("b.csv", &lines('b', 4))];
            let (_ledger, ticket, mut inputs) = world.start(&paths, Accept::default()).await;
            world.commit(&ticket, &mut inputs[0], 6).await;
            world.execute(damage).await;
            let before = world.dump().await;
            let error = match Ledger::open(&world.target, "claims").await {
                Ok(_) => panic!("{damage}: not noticed"),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(expected), "{damage}: {error}");
            assert_eq!(world.dump().await, before, "{damage}");
        });
    }
}

#[test]
fn c25_a_damaged_database_file_is_refused_and_left_as_it_is() {
    run(async {
        let world = World::new();
        let path = world.write("a.csv", &lines('a', 10));
        world.import(&path, Accept::default()).await;
        world.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        for wal in ["claims.db-wal", "claims.db-shm"] {
            let _ = std::fs::remove_file(world.path(wal));
        }
        let whole = std::fs::read(world.target.path()).unwrap();
        let status = world.target.status_path();
        std::fs::write(&status, "{}").unwrap();
        let mut no_header = whole.clone();
        no_header[..16].fill(0);
        for damage in [
            Vec::new(),
            vec![0; whole.len()],
            no_header,
            whole[..100].to_vec(),
            b"a,b\n1,2\n".to_vec(),
        ] {
            std::fs::write(world.target.path(), &damage).unwrap();
            let error = match Ledger::open(&world.target, "claims").await {
                Ok(_) => panic!("{} bytes: not noticed", damage.len()),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("was left as it is"), "{} bytes: {error}", damage.len());
            assert_eq!(std::fs::read(world.target.path()).unwrap(), damage);
        }
        std::fs::remove_file(status).unwrap();
        std::fs::write(world.target.path(), b"").unwrap();
        assert!(
            world.ledger().await.created(),
            "an empty file that no run has written is a new database"
        );
    });
}

#[test]
fn reading_creates_nothing() {
    run(async {
        let world = World::new();
        assert!(matches!(Ledger::read(&world.target).await, Err(LedgerError::Missing { .. })));
        assert!(!world.target.exists());
        drop(world.ledger().await);
        let mut ledger = Ledger::read(&world.target).await.unwrap();
        assert!(ledger.runs().await.unwrap().is_empty());
        assert!(matches!(ledger.run("none").await, Err(LedgerError::UnknownRun { .. })));
        assert!(ledger.note("me", None, "nothing").await.is_err(), "it cannot be written");
    });
}

#[test]
fn the_pipeline_that_created_the_database_is_kept() {
    run(async {
        let world = World::new();
        let mut ledger = world.ledger().await;
        assert!(ledger.created());
        let (target, created_by) = ledger.identity().await.unwrap();
        assert_eq!((target.len(), created_by.as_deref()), (32, Some("claims")));
        let mut again = Ledger::open(&world.target, "contracts").await.unwrap();
        assert!(!again.created());
        assert_eq!(again.identity().await.unwrap(), (target, Some("claims".into())));
        let other = World::new();
        drop(std::fs::File::create(other.target.path()).unwrap());
        other.execute("CREATE TABLE contracts (id TEXT)").await;
        assert_eq!(other.ledger().await.identity().await.unwrap().1, None);
    });
}

#[test]
fn attempts_that_died_are_counted_until_one_commits() {
    run(async {
        let world = World::new();
        let path = [world.write("a.csv", &lines('a', 10))];
        let mut deaths = Vec::new();
        for attempt in 1..=8 {
            let (mut ledger, ticket, mut inputs) = world.start(&path, Accept::default()).await;
            deaths.push(ledger.deaths_in_a_row(&ticket).await.unwrap());
            match attempt {
                3 => ledger.end_attempt(&ticket, RunState::Interrupted, 5).await.unwrap(),
                6 => world.commit(&ticket, &mut inputs[0], 1).await,
                _ => {}
            }
        }
        assert_eq!(deaths, [0, 1, 2, 2, 3, 4, 0, 1]);
        let mut ledger = world.ledger().await;
        let run = ledger.latest_run().await.unwrap().unwrap();
        let attempts = ledger.attempts(&run.run).await.unwrap();
        assert_eq!(attempts.len(), 8);
        assert_eq!((attempts[2].exit_code, attempts[3].exit_code), (Some(5), None));
        assert_eq!(attempts[5].commits, 1);
        assert_eq!(attempts[0].settings, attempt().settings);
    });
}

#[test]
fn a_mark_counts_the_attempts_that_came_to_its_record() {
    run(async {
        let world = World::new();
        let path = [world.write("a.csv", &lines('a', 10))];
        let at =
            |record: u64| Position { input: 0, byte: (record - 1) * LINE, record, line: record };
        let (mut ledger, ticket, _) = world.start(&path, Accept::default()).await;
        assert_eq!(ledger.marked(ticket.run()).await.unwrap(), None);
        assert_eq!(ledger.mark(&ticket, at(3)).await.unwrap(), 1);
        assert_eq!(ledger.mark(&ticket, at(3)).await.unwrap(), 1, "the same attempt");
        let (mut ledger, again, _) = world.start(&path, Accept::default()).await;
        assert_eq!(ledger.mark(&again, at(3)).await.unwrap(), 2);
        assert_eq!(ledger.marked(ticket.run()).await.unwrap(), Some(Mark { at: at(3), starts: 2 }));
        assert!(ledger.mark(&ticket, at(4)).await.is_err(), "it was taken over");
        assert_eq!(ledger.mark(&again, at(4)).await.unwrap(), 1);
        ledger.unmark(&again).await.unwrap();
        assert_eq!(ledger.marked(ticket.run()).await.unwrap(), None);
    });
}

/// A record that was tried so often.
fn tried(record: u64, stage: &str, attempts: u32) -> Tried {
    let at = Position { record, ..Position::default() };
    let first = SystemTime::UNIX_EPOCH + Duration::from_millis(1_796_041_208_698);
    let last = first + Duration::from_secs(60);
    Tried { stage: stage.into(), at, tries: Tries { attempts, first, last } }
}

#[test]
fn attempts_of_unsettled_records_are_what_the_last_commit_says_until_the_run_is_complete() {
    run(async {
        let world = World::new();
        let path = [world.write("a.csv", &lines('a', 10))];
        let write = async |ticket: &Ticket, tried: &[Tried], end: &str| {
            let mut connection = world.connect().await;
            sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            fence(&mut connection, ticket).await.unwrap();
            write_tried(&mut connection, ticket, tried).await.unwrap();
            sqlx::query(end).execute(&mut connection).await.unwrap();
        };
        let next = async || {
            let mut ledger = world.ledger().await;
            let decision = ledger.look_up(&pipeline(), &path, Accept::default()).await.unwrap();
            let Decision::GoOn(go_on) = decision else { panic!("{decision:?}") };
            ledger.go_on(&go_on, &attempt()).await.unwrap()
        };
        let (_, first, mut inputs) = world.start(&path, Accept::default()).await;
        let three = [tried(7, "score", 2), tried(7, "validate", 1), tried(9, "score", u32::MAX)];
        write(&first, &three, "COMMIT").await;
        let (second, found) = next().await;
        assert_eq!(found, three);
        write(&second, &[tried(8, "score", 3)], "COMMIT").await;
        write(&second, &[tried(8, "score", 4)], "ROLLBACK").await;
        let (third, found) = next().await;
        assert_eq!(found, [tried(8, "score", 3)]);
        assert!(has_tried(&mut world.connect().await, &third).await.unwrap());
        write(&third, &[], "COMMIT").await;
        let (fourth, found) = next().await;
        assert_eq!(found, []);
        write(&fourth, &three, "COMMIT").await;
        world.commit(&fourth, &mut inputs[0], 10).await;
        world.complete(&fourth).await;
        assert!(!has_tried(&mut world.connect().await, &fourth).await.unwrap());
    });
}

#[test]
fn progress_never_goes_back_and_agrees_with_the_counts() {
    run(async {
        let world = World::new();
        let path = [world.write("a.csv", &lines('a', 10))];
        let (_ledger, ticket, mut inputs) = world.start(&path, Accept::default()).await;
        world.commit(&ticket, &mut inputs[0], 6).await;
        let before = world.dump().await;
        for (record, read, right) in [(6, 0, false), (8, 2, false), (9, 1, false), (9, 2, true)] {
            let at = Position { input: 0, byte: (record - 1) * LINE, record, line: record };
            let checkpoint =
                Checkpoint { at, fingerprint: 1, lines: Lines::default(), complete: false };
            let tally = Tally { read, stored: read, ..Tally::default() };
            let filtered = Filtered::default();
            let settled = Settled {
                tally: &tally,
                filtered: &filtered,
                checkpoints: &[checkpoint],
                added: 0,
            };
            let mut connection = world.connect().await;
            sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            fence(&mut connection, &ticket).await.unwrap();
            let moved = write_progress(&mut connection, &ticket, settled).await;
            assert_eq!(moved.is_ok(), right, "record {record} after {read} more");
        }
        assert_eq!(world.dump().await, before, "none was committed");
        let mut connection = world.connect().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        let error = complete(&mut connection, &ticket).await.unwrap_err().to_string();
        assert!(error.contains("was not committed to its end"), "{error}");
    });
}

#[test]
fn rejects_come_back_as_they_were_kept_in_the_order_of_the_source() {
    run(async {
        let world = World::new();
        let path = [world.write("a.csv", &lines('a', 10))];
        let (mut ledger, ticket, _) = world.start(&path, Accept::default()).await;
        let now = SystemTime::now();
        let reject = |record: u64, bytes: &[u8]| Reject {
            at: Position { input: 0, byte: record * LINE, record, line: record },
            len: 1 << 40,
            bytes: bytes.into(),
            stage: "validate".into(),
            reason: Reason::column("amount", "too_many_decimals")
                .detail("3 decimals, 2 allowed")
                .at_byte(4),
            attempts: 2,
            first: now,
            last: now,
        };
        let kept = [reject(7, b"\0\xff\n"), reject(2, b"")];
        let mut connection = world.connect().await;
        write_rejects(&mut connection, &ticket, &kept).await.unwrap();
        assert!(
            write_rejects(&mut connection, &ticket, &kept[..1]).await.is_err(),
            "a record is kept once"
        );
        let found: Vec<RejectInfo> =
            ledger.rejects(Some(ticket.run())).await.unwrap().try_collect().await.unwrap();
        assert_eq!(found.iter().map(|reject| reject.at.record).collect::<Vec<_>>(), [2, 7]);
        let seven = &found[1];
        assert_eq!(seven.bytes.as_deref(), Some(&b"\0\xff\n"[..]));
        assert_eq!(
            (seven.len, seven.fault_byte, seven.attempts, seven.state),
            (1 << 40, Some(4), 2, RejectState::Open)
        );
        assert_eq!(ledger.reject(seven.reject).await.unwrap().as_ref(), Some(seven));
        let kinds = ledger.rejects_by_kind(ticket.run()).await.unwrap();
        assert_eq!(kinds, [(Some("amount".into()), "too_many_decimals".into(), 2)]);
    });
}

#[test]
fn the_ddl_for_a_dba_makes_the_ledger_that_is_opened() {
    run(async {
        let world = World::new();
        drop(std::fs::File::create(world.target.path()).unwrap());
        world.execute(&ddl()).await;
        let mut ledger = world.ledger().await;
        assert_eq!(ledger.identity().await.unwrap().1, None);
        assert!(!ledger.created());
    });
}

/// What a target of version 1 holds, and what one of version 2 holds more; see `fixtures/README.md`.
const OLDER_LEDGERS: [&str; 2] =
    [include_str!("../fixtures/ledger-1.sql"), include_str!("../fixtures/ledger-2.sql")];

impl World {
    async fn of_version_1() -> (World, [PathBuf; 1]) {
        World::of_version(1).await
    }

    /// A target of an older version, and the input of its interrupted run.
    async fn of_version(version: usize) -> (World, [PathBuf; 1]) {
        let world = World::new();
        drop(std::fs::File::create(world.target.path()).unwrap());
        for more in &OLDER_LEDGERS[..version] {
            world.execute(more).await;
        }
        let path = world.write("a.csv", &lines('a', 10));
        (world, [path])
    }

    /// The ledger's tables, as they were created.
    async fn tables(&self) -> Vec<(String, String)> {
        sqlx::query_as(
            "SELECT name, sql FROM sqlite_schema WHERE name LIKE 'gegendruck%' ORDER BY name",
        )
        .fetch_all(&mut self.connect().await)
        .await
        .unwrap()
    }
}

#[test]
fn an_older_ledger_is_read_as_it_is() {
    run(async {
        for version in [1, 2] {
            is_read_as_it_is(World::of_version(version).await.0).await;
        }
    });
}

async fn is_read_as_it_is(world: World) {
    let before = world.dump().await;
    let mut ledger = Ledger::read(&world.target).await.unwrap();
    let run = ledger.latest_run().await.unwrap().unwrap();
    assert_eq!((run.state, run.exit_code, run.attempts), (RunState::Interrupted, Some(5), 1));
    assert_eq!((run.tally.read, run.inputs[0].at.record), (6, 7));
    assert_eq!(ledger.attempts(&run.run).await.unwrap()[0].host, "etl03");
    assert_eq!(ledger.filtered(&run.run).await.unwrap(), [("left_out".into(), 1)]);
    let report = ledger.report(&run.run).await.unwrap().unwrap().report;
    assert_eq!(report.tally.stored, 6);
    assert_eq!(ledger.audit(None).await.unwrap()[0].who, "import");
    assert_eq!(ledger.marked(&run.run).await.unwrap().unwrap().at.record, 7);
    let rejects: Vec<RejectInfo> = ledger.rejects(None).await.unwrap().try_collect().await.unwrap();
    assert_eq!((rejects.len(), rejects[0].bytes.as_deref()), (1, Some(&b"a004\n"[..])));
    drop(ledger);
    assert_eq!(world.dump().await, before);
}

#[test]
fn a_ledger_of_version_2_is_upgraded_with_the_attempts_that_it_keeps() {
    run(async {
        let (world, paths) = World::of_version(2).await;
        let mut ledger = world.ledger().await;
        let decision = ledger.look_up(&pipeline(), &paths, Accept::default()).await.unwrap();
        let Decision::GoOn(go_on) = decision else { panic!("{decision:?}") };
        let (_, tried) = ledger.go_on(&go_on, &attempt()).await.unwrap();
        assert_eq!((tried[0].at.record, tried[0].tries.attempts), (8, 2));
        let new = World::new();
        drop(new.ledger().await);
        assert_eq!(world.tables().await, new.tables().await);
    });
}

#[test]
fn an_older_ledger_is_upgraded_to_the_tables_of_a_new_one_and_its_run_is_gone_on_with() {
    run(async {
        let (world, paths) = World::of_version_1().await;
        let (mut ledger, ticket, mut inputs) = world.start(&paths, Accept::default()).await;
        assert_eq!((ticket.attempt(), inputs[0].at.record), (2, 7));
        world.commit(&ticket, &mut inputs[0], 4).await;
        world.complete(&ticket).await;
        let run = ledger.run(ticket.run()).await.unwrap();
        assert_eq!((run.state, run.exit_code), (RunState::Complete, Some(1)));
        assert_eq!((run.tally.read, run.tally.stored), (10, 8));
        let new = World::new();
        drop(new.ledger().await);
        assert_eq!(world.tables().await, new.tables().await);
        let by_hand = World::of_version_1().await.0;
        let statements: Vec<String> = ddl()
            .lines()
            .skip_while(|line| !line.starts_with("-- A ledger of version 1 "))
            .skip(1)
            .take_while(|line| !line.starts_with("-- A ledger of version "))
            .map(|line| line.trim_start_matches("-- ").to_string())
            .collect();
        by_hand.execute(&statements.join("\n")).await;
        assert_eq!(by_hand.tables().await, new.tables().await);
        drop(by_hand.ledger().await);
        // All of the statements for a new ledger were run instead, and those that failed were passed over.
        let in_vain = World::of_version_1().await.0;
        let table = ddl().split_once("CREATE TABLE gegendruck_tried").unwrap().1.to_string();
        let table = table.split_once(';').unwrap().0.to_string();
        in_vain.execute(&format!("CREATE TABLE gegendruck_tried{table}")).await;
        assert!(Ledger::read(&in_vain.target).await.unwrap().is_older());
        drop(in_vain.ledger().await);
        assert_eq!(in_vain.tables().await, new.tables().await);
    });
}

#[test]
fn a_ledger_that_is_opened_as_it_is_is_neither_created_nor_upgraded() {
    run(async {
        let (world, _) = World::of_version_1().await;
        let before = world.dump().await;
        assert!(Ledger::open_existing(&world.target).await.unwrap().is_older());
        assert_eq!(world.dump().await, before);
        let none = World::new();
        let error = Ledger::open_existing(&none.target).await.err();
        assert!(matches!(error, Some(LedgerError::Missing { .. })), "{error:?}");
        assert!(!none.target.exists());
    });
}

#[test]
fn looking_leaves_nothing_beside_the_database() {
    run(async {
        let world = World::new();
        drop(world.ledger().await.close().await);
        let files = || {
            let mut names: Vec<_> = std::fs::read_dir(world.target.path().parent().unwrap())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        let before = files();
        let looks = world.target.clone().leaving_nothing();
        let mut ledger = Ledger::read(&looks).await.unwrap();
        assert!(ledger.runs().await.unwrap().is_empty());
        assert_eq!(files(), before);
    });
}

#[test]
fn an_older_ledger_that_cannot_be_upgraded_is_left_as_it_is_with_what_to_do() {
    run(async {
        let (world, _) = World::of_version_1().await;
        // Stands in for a user who may not create tables.
        world.execute("CREATE VIEW gegendruck_tried AS SELECT 1 AS one").await;
        let before = world.dump().await;
        let error = match Ledger::open(&world.target, "claims").await {
            Ok(_) => panic!("it was upgraded"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains("the ledger has version 1, expected 3; it was not upgraded: "),
            "{error}"
        );
        assert!(error.ends_with("in what nightly-import ledger ddl prints"), "{error}");
        assert_eq!(world.dump().await, before);
    });
}

#[test]
fn c16_offsets_pass_four_gibibytes() {
    run(async {
        const LOW: u64 = 4_294_967_290;
        let world = World::new();
        let path = world.path("big.csv");
        let mut file = std::fs::File::create(&path).unwrap();
        file.set_len(LOW).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
        std::io::Write::write_all(&mut file, lines('a', 1_000).as_bytes()).unwrap();
        let (_ledger, ticket, mut inputs) =
            world.start(std::slice::from_ref(&path), Accept::default()).await;
        let zeros = vec![0; 1 << 20];
        let point = &mut inputs[0];
        while point.fingerprint.bytes() < LOW {
            let left = LOW - point.fingerprint.bytes();
            point.fingerprint.update(&zeros[..left.min(1 << 20) as usize]);
        }
        let records = 1 << 31;
        point.at = Position { input: 0, byte: LOW, record: records + 1, line: records + 1 };
        let checkpoint = Checkpoint {
            at: point.at,
            fingerprint: point.fingerprint.value(),
            lines: Lines::default(),
            complete: false,
        };
        let tally = Tally { read: records, duplicate: records, ..Tally::default() };
        let filtered = Filtered::default();
        let settled =
            Settled { tally: &tally, filtered: &filtered, checkpoints: &[checkpoint], added: 0 };
        let mut connection = world.connect().await;
        write_progress(&mut connection, &ticket, settled).await.unwrap();

        let (mut ledger, ticket, inputs) = world.start(&[path], Accept::default()).await;
        assert_eq!(inputs[0].at, checkpoint.at);
        let end = Position {
            input: 0,
            byte: LOW + 1_000 * LINE,
            record: records + 1_001,
            line: records + 1_001,
        };
        let checkpoint = Checkpoint { at: end, complete: true, ..checkpoint };
        let tally = Tally { read: 1_000, stored: 1_000, ..Tally::default() };
        let settled =
            Settled { tally: &tally, filtered: &filtered, checkpoints: &[checkpoint], added: 0 };
        write_progress(&mut connection, &ticket, settled).await.unwrap();
        let run = ledger.run(ticket.run()).await.unwrap();
        assert_eq!((run.tally.read, run.inputs[0].at), (records + 1_000, end));
    });
}

#[test]
fn public_types_can_be_sent_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Ledger>();
    is_send::<Lock>();
    is_send::<Decision>();
    is_send::<Ticket>();
    is_send::<LookUpError>();
}
