//! The ledger's tables: the one place where they are defined.
//!
//! ```text
//! target 1 --- n runs 1 --- n attempts         who worked on it, when, with which settings
//!                      |--- n inputs           up to where each input is committed
//!                      |--- n rejects          dead letters
//!                      |--- n filtered         records dropped on purpose, by reason
//!                      |--- n reports          where the time went
//!                      |--- 1 marks            record by record: the one being worked on
//!                      |--- n tried            records that failed in passing and are not settled
//!                      '--- n audit            what people decided
//! ```
//!
//! - A ledger of an older version is upgraded by the next run, under the lock and in one transaction; its tables are then those of
//!   a new one. Reading changes nothing: what is older is read as it is.
//! - All counts and offsets are 64 bits wide. A device or inode number is kept as the same 64 bits, signed.
//! - Times are RFC 3339 in UTC, by the database's clock.
//! - Nothing is deleted by a run; `target.runs` says how many runs there must be.

/// The version of the tables below.
pub const VERSION: i64 = 1 + STEPS.len() as i64;

/// What leads from one version to the next, from version 1 on.
const STEPS: &[&str] = &[TRIED, REPAIRED];

/// The database's clock, as the ledger writes it.
pub(crate) const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

/// One table: its name, the version that it came with, and the statement that creates it.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) since: i64,
    pub(crate) ddl: &'static str,
}

/// All tables, in the order in which they are created.
pub(crate) const TABLES: &[Definition] = &[
    Definition {
        name: "gegendruck_target",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_target (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  target TEXT NOT NULL,        -- identifier of this target, drawn once
  version INTEGER NOT NULL,    -- of these tables
  created TEXT NOT NULL,
  created_by TEXT,             -- pipeline whose run created the database, if one did
  runs INTEGER NOT NULL        -- how many runs were begun
) STRICT;
",
    },
    Definition {
        name: "gegendruck_runs",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_runs (
  run TEXT NOT NULL PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,  -- 1, 2, 3 ... in the order in which runs began
  pipeline TEXT NOT NULL,
  rules INTEGER NOT NULL,          -- version of the pipeline's rules
  table_name TEXT NOT NULL,
  dialect TEXT NOT NULL,
  mapping TEXT NOT NULL,
  conflict TEXT NOT NULL,          -- error, skip or update
  label TEXT,
  as_of TEXT,                      -- the date for rules, kept over attempts
  contracts_run TEXT,              -- the run of the reference data that this one used
  created_target INTEGER NOT NULL, -- 1 if it created the database
  state TEXT NOT NULL CHECK (state IN ('running', 'interrupted', 'failed', 'limit', 'complete')),
  epoch INTEGER NOT NULL,          -- the fence: the attempt that may write
  commits INTEGER NOT NULL,        -- over all attempts
  started TEXT NOT NULL,
  finished TEXT,
  exit_code INTEGER,               -- of the last attempt that ended in order
  read_records INTEGER NOT NULL,
  stored INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  rejected INTEGER NOT NULL,
  filtered INTEGER NOT NULL,
  duplicate INTEGER NOT NULL,
  added INTEGER NOT NULL DEFAULT 0, -- rows that it added to its table
  floor INTEGER,                   -- highest row number in the table before it, where new rows get higher ones
  added_before INTEGER             -- rows that all runs had added to the table then
) STRICT;
",
    },
    Definition {
        name: "gegendruck_attempts",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_attempts (
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,        -- 1, 2, 3 ...; the run's epoch while it is the one that may write
  started TEXT NOT NULL,
  heartbeat TEXT NOT NULL,
  ended TEXT,                      -- NULL: it runs, or died
  exit_code INTEGER,
  commits INTEGER NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  user_name TEXT NOT NULL,
  version TEXT NOT NULL,           -- of the binary
  settings TEXT NOT NULL,          -- JSON
  PRIMARY KEY (run, attempt)
) STRICT;
",
    },
    Definition {
        name: "gegendruck_inputs",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_inputs (
  run TEXT NOT NULL,
  input INTEGER NOT NULL,          -- 0, 1, 2 ... in the order in which they are read
  path TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,           -- bytes, when it was last looked at
  mtime INTEGER NOT NULL,          -- nanoseconds since 1970
  ctime INTEGER NOT NULL,
  start_byte INTEGER NOT NULL,     -- where this run began: not at 0 if it takes what another run left
  start_record INTEGER NOT NULL,
  start_line INTEGER NOT NULL,
  byte INTEGER NOT NULL,           -- everything before it is committed
  record INTEGER NOT NULL,         -- number of the record at that byte
  line INTEGER NOT NULL,           -- line of that byte
  fingerprint TEXT NOT NULL,       -- xxh3-128 of all bytes before it
  header_lines INTEGER NOT NULL,
  blank_lines INTEGER NOT NULL,
  trailer_lines INTEGER NOT NULL,
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  PRIMARY KEY (run, input)
) STRICT;
",
    },
    Definition {
        name: "gegendruck_rejects",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_rejects (
  reject INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  input INTEGER NOT NULL,
  record INTEGER NOT NULL,
  line INTEGER NOT NULL,
  byte INTEGER NOT NULL,
  length INTEGER NOT NULL,         -- source bytes of the record
  bytes BLOB,                      -- untouched; shorter than length if over the limit; NULL when purged
  stage TEXT NOT NULL,
  kind TEXT NOT NULL,
  column_name TEXT,
  detail TEXT NOT NULL,
  fault_byte INTEGER,              -- from the record's first byte
  attempts INTEGER NOT NULL,
  first_tried TEXT NOT NULL,
  last_tried TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'replayed', 'discarded')),
  closed TEXT,
  closed_by TEXT,
  closed_why TEXT,
  UNIQUE (run, input, record)
) STRICT;
",
    },
    Definition {
        name: "gegendruck_filtered",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_filtered (
  run TEXT NOT NULL,
  reason TEXT NOT NULL,
  records INTEGER NOT NULL,
  PRIMARY KEY (run, reason)
) STRICT;
",
    },
    Definition {
        name: "gegendruck_reports",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_reports (
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  at TEXT NOT NULL,
  report TEXT NOT NULL,            -- JSON
  PRIMARY KEY (run, attempt)
) STRICT;
",
    },
    Definition {
        name: "gegendruck_audit",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_audit (
  entry INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  who TEXT NOT NULL,
  run TEXT,
  what TEXT NOT NULL
) STRICT;
",
    },
    Definition {
        name: "gegendruck_marks",
        since: 1,
        ddl: "\
CREATE TABLE gegendruck_marks (
  run TEXT NOT NULL PRIMARY KEY,
  input INTEGER NOT NULL,
  byte INTEGER NOT NULL,
  record INTEGER NOT NULL,
  line INTEGER NOT NULL,
  starts INTEGER NOT NULL,         -- how many attempts marked this record
  attempt INTEGER NOT NULL,        -- the last of them
  at TEXT NOT NULL
) STRICT;
",
    },
    Definition { name: "gegendruck_tried", since: 2, ddl: TRIED },
    Definition { name: "gegendruck_repaired", since: 3, ddl: REPAIRED },
];

const TRIED: &str = "\
CREATE TABLE gegendruck_tried (
  run TEXT NOT NULL,
  input INTEGER NOT NULL,
  record INTEGER NOT NULL,
  stage TEXT NOT NULL,             -- that it failed in
  attempts INTEGER NOT NULL,
  first_tried TEXT NOT NULL,
  last_tried TEXT NOT NULL,
  PRIMARY KEY (run, input, record, stage)
) STRICT;
";

const REPAIRED: &str = "\
CREATE TABLE gegendruck_repaired (
  run TEXT NOT NULL,
  input INTEGER NOT NULL,
  records INTEGER NOT NULL,        -- committed ones whose values were changed on the way in, as a flag says
  PRIMARY KEY (run, input)
) STRICT;
";

/// The statements that upgrade a ledger of version `from` to [`VERSION`]. A table may be there: somebody may have run all of
/// [`ddl`].
pub(crate) fn upgrade(from: i64) -> String {
    let steps = (1..).zip(STEPS).filter(|(version, _)| *version >= from);
    let if_missing = |step: &str| step.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ");
    let steps: String = steps.map(|(_, step)| if_missing(step)).collect();
    format!("{steps}UPDATE gegendruck_target SET version = {VERSION};\n")
}

/// The statement that draws the target's identifier. `created_by` is an expression: a parameter, or NULL.
pub(crate) fn first_row(created_by: &str) -> String {
    format!(
        "INSERT INTO gegendruck_target (one, target, version, created, created_by, runs)\n\
         VALUES (1, lower(hex(randomblob(16))), {VERSION}, {NOW}, {created_by}, 0)"
    )
}

/// The statements that create the ledger, for a DBA: after them, a run needs no right to create tables. Behind them, as comments,
/// are those that upgrade an older ledger.
pub fn ddl() -> String {
    let mut text = format!("-- ledger of gegendruck, version {VERSION}\n");
    for table in TABLES {
        text.push('\n');
        text.push_str(table.ddl);
    }
    text = text + "\n" + &first_row("NULL") + ";\n";
    for version in 1..VERSION {
        text += &format!("\n-- A ledger of version {version} is upgraded by these instead:\n");
        let statements = format!("BEGIN;\n{}COMMIT;", upgrade(version));
        statements.lines().for_each(|line| text += &format!("-- {line}\n"));
    }
    text
}
