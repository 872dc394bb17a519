//! The real program, run in a folder of its own, and the database that it leaves behind.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Column, ConnectOptions, Connection, Row, TypeInfo, ValueRef};
use tempfile::TempDir;

/// True if the long forms of tests were asked for.
pub fn long() -> bool {
    std::env::var_os("GEGENDRUCK_LONG").is_some()
}

/// The release build of `nightly-import`: the one that `GEGENDRUCK_PROGRAM` names, else one that is built now.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(built) = std::env::var_os("GEGENDRUCK_PROGRAM") {
            return PathBuf::from(built);
        }
        let root = root();
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--bin", "nightly-import"])
            .current_dir(&root)
            .env_remove("RUSTFLAGS")
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the program builds");
        target.join("release/nightly-import")
    })
}

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is the parent folder")
        .to_path_buf()
}

/// A folder in which the program is run.
pub struct Folder {
    folder: TempDir,
}

/// What one run of the program came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Asserts the exit code, and shows what was printed if it is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "\n--- out\n{}\n--- err\n{}", self.out, self.err);
        self
    }

    /// Asserts that what was printed, on either stream, contains `words`.
    #[track_caller]
    pub fn says(self, words: &str) -> Ran {
        assert!(
            self.out.contains(words) || self.err.contains(words),
            "no \"{words}\" in\n--- out\n{}\n--- err\n{}",
            self.out,
            self.err
        );
        self
    }
}

impl Folder {
    pub fn new() -> Folder {
        Folder { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the file is written");
        path
    }

    /// The program with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("TZ", "UTC");
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().expect("the program starts").into()
    }

    /// Starts the program; its output is thrown away.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts")
    }

    /// Generates claims and contracts.
    pub fn generate(&self, rows: u64, more: &[&str]) {
        let rows_text = rows.to_string();
        let mut claims = vec!["generate", "claims", "--rows", &rows_text, "--out", "claims.csv"];
        claims.extend_from_slice(more);
        self.run(&claims).exits(0);
        let contracts = (rows / 10).max(1).to_string();
        self.run(&["generate", "contracts", "--rows", &contracts, "--out", "contracts.csv"])
            .exits(0);
    }

    /// What a statement gives in `claims.db`, one line a row, values separated by `|`.
    pub fn query(&self, sql: &str) -> String {
        query(&self.path("claims.db"), sql)
    }

    /// Waits until a run of claims has committed some.
    pub fn wait_for_claims(&self) {
        let stored =
            "SELECT coalesce(max(stored), 0) FROM gegendruck_runs WHERE pipeline = 'claims'";
        while self.count(stored) == 0 {
            std::thread::yield_now();
        }
    }

    /// Keeps others from writing to `claims.db` until what is given is dropped.
    pub fn hold(&self) -> Held {
        self.try_hold().expect("nobody writes")
    }

    /// The same, unless somebody else writes.
    pub fn try_hold(&self) -> Option<Held> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connection = runtime.block_on(async {
            let options = SqliteConnectOptions::new().filename(self.path("claims.db"));
            let mut connection = options.connect().await.expect("the database opens");
            let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await;
            begun.is_ok().then_some(connection)
        });
        Some(Held { _connection: connection?, _runtime: runtime })
    }

    /// Makes `claims.db` what it is after a process that kept no write-ahead log died in a transaction: changed, with the
    /// journal beside it that takes the changes back. It has a table `other` with one row.
    pub fn left_open(&self) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let options = SqliteConnectOptions::new()
                .filename(self.path("open.db"))
                .create_if_missing(true)
                .pragma("cache_size", "1");
            let mut connection = options.connect().await.expect("the database opens");
            for statement in [
                "CREATE TABLE other (x)",
                "INSERT INTO other VALUES (1)",
                "BEGIN",
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) \
                 INSERT INTO other SELECT randomblob(1000) FROM n",
            ] {
                sqlx::raw_sql(statement).execute(&mut connection).await.expect("it is done");
            }
            for (open, left) in [("open.db", "claims.db"), ("open.db-journal", "claims.db-journal")]
            {
                std::fs::copy(self.path(open), self.path(left)).expect("it is copied");
            }
        });
        for file in ["open.db", "open.db-journal"] {
            drop(std::fs::remove_file(self.path(file)));
        }
    }

    /// One number.
    pub fn count(&self, sql: &str) -> i64 {
        self.query(sql).trim().parse().expect("a number")
    }
}

/// A transaction that is open. Dropped, it is rolled back.
pub struct Held {
    _connection: SqliteConnection,
    _runtime: tokio::runtime::Runtime,
}

/// What a statement gives in a SQLite file, one line a row, values separated by `|`.
pub fn query(database: &Path, sql: &str) -> String {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = SqliteConnectOptions::new()
            .filename(database)
            .busy_timeout(std::time::Duration::from_secs(20));
        let mut connection = options.connect().await.expect("the database opens");
        let rows = sqlx::query(sql).fetch_all(&mut connection).await.expect("the statement runs");
        let mut text = String::new();
        for row in rows {
            for (index, column) in row.columns().iter().enumerate() {
                let value = row.try_get_raw(index).expect("a value");
                let shown = match value.type_info().name() {
                    _ if value.is_null() => "NULL".into(),
                    "INTEGER" => row.get::<i64, _>(index).to_string(),
                    "REAL" => row.get::<f64, _>(index).to_string(),
                    "BLOB" => row
                        .get::<Vec<u8>, _>(index)
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect(),
                    _ => row.get::<String, _>(index),
                };
                let bar = if index == 0 { "" } else { "|" };
                write!(text, "{bar}{shown}").expect("writing to a string");
                let _ = column.name();
            }
            text.push('\n');
        }
        connection.close().await.expect("the database closes");
        text
    })
}

/// Random numbers that a failure can be repeated with: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}
