//! The status file: what a run is doing, readable while the database is busy, stalled or down.
//!
//! ```text
//! {"run":"…", … ,"check":"<32 hexadecimal digits: xxh3-128 of all bytes before this field>"}
//! ```
//!
//! - It is replaced as a whole: written beside its place, synchronized, renamed. A reader sees the old one or the new one.
//! - What fails its check is reported as damaged. It is never taken for the truth, and never for "no run".
//! - Nothing is decided by it: the ledger decides.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gegendruck::{Position, Report, Tally};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::{RunState, Target, fingerprint};

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The run.
    pub run: String,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub state: RunState,
    /// The machine that it is on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// When this attempt began, RFC 3339.
    pub since: String,
    /// When this was written, RFC 3339.
    pub written: String,
    /// Up to where all records are committed.
    pub committed: Option<Position>,
    /// When the last commit was made, RFC 3339.
    pub last_commit: Option<String>,
    /// Verdicts of the records committed, over all attempts.
    pub tally: Tally,
    /// Bytes of all inputs that are committed, over all attempts.
    pub bytes: u64,
    /// Those of them that earlier attempts have committed.
    #[serde(default)]
    pub bytes_before: u64,
    /// Bytes of all inputs.
    pub total_bytes: u64,
    /// Where the time of this attempt went.
    pub report: Option<Report>,
    /// Where it went in the last minute.
    pub recent: Option<Report>,
    /// What the operator should know, in whole sentences.
    pub notes: Vec<String>,
}

/// Writes and reads the status of the runs of one target.
#[derive(Clone, Debug)]
pub struct StatusFile {
    path: PathBuf,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// No run has written one.
    #[error("{}: no run has written a status here", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is not what a run wrote.
    #[error("{}: is damaged and was left as it is; the ledger in the database has the truth: see status", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{}: cannot be used", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// What stands between the status and the check.
const CHECK: &str = ",\"check\":\"";
/// What stands behind the check.
const END: &str = "\"}\n";

impl StatusFile {
    /// The status file of `target`.
    pub fn of(target: &Target) -> StatusFile {
        StatusFile { path: target.status_path() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the status. Blocks until it is on the disk.
    ///
    /// # Errors
    /// The file cannot be written; the former status is still there.
    pub fn write(&self, status: &Status) -> Result<(), StatusError> {
        let failed = |source| StatusError::File { path: self.path.clone(), source };
        let mut text = serde_json::to_string(status).map_err(|error| failed(error.into()))?;
        text.pop();
        let check = fingerprint::text(xxh3_128(text.as_bytes()));
        text.push_str(CHECK);
        text.push_str(&check);
        text.push_str(END);
        let mut beside = self.path.clone().into_os_string();
        beside.push(".tmp");
        let beside = PathBuf::from(beside);
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        write().map_err(failed)
    }

    /// The last status that was written.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is damaged.
    pub fn read(&self) -> Result<Status, StatusError> {
        let path = self.path.clone();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StatusError::Missing { path });
            }
            Err(source) => return Err(StatusError::File { path, source }),
        };
        checked(&bytes).ok_or(StatusError::Damaged { path })
    }
}

fn checked(bytes: &[u8]) -> Option<Status> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, check) = text.strip_suffix(END)?.rsplit_once(CHECK)?;
    if fingerprint::parse(check)? != xxh3_128(body.as_bytes()) {
        return None;
    }
    serde_json::from_str(&format!("{body}}}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(run: &str) -> Status {
        Status {
            run: run.into(),
            pipeline: "claims".into(),
            state: RunState::Running,
            host: "etl03".into(),
            pid: 4711,
            since: "2026-11-30T01:00:03Z".into(),
            written: "2026-11-30T01:00:04Z".into(),
            committed: Some(Position { input: 0, byte: 60, record: 1, line: 2 }),
            last_commit: None,
            tally: Tally::default(),
            bytes: 60,
            bytes_before: 0,
            total_bytes: 1 << 33,
            report: None,
            recent: None,
            notes: vec!["nothing is lost".into()],
        }
    }

    #[test]
    fn the_last_status_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = StatusFile { path: folder.path().join("a.db.status.json") };
        assert!(matches!(file.read(), Err(StatusError::Missing { .. })));
        file.write(&status("one")).unwrap();
        file.write(&status("two")).unwrap();
        assert_eq!(file.read().unwrap(), status("two"));
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "plain JSON for scripts");
    }

    #[test]
    fn every_damage_is_told_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = StatusFile { path: folder.path().join("a.db.status.json") };
        file.write(&status("one")).unwrap();
        let whole = std::fs::read(file.path()).unwrap();
        let mut flipped = whole.clone();
        flipped[10] ^= 1;
        let mut damages = vec![Vec::new(), vec![0; whole.len()], flipped, b"{}\n".to_vec()];
        damages.extend((1..whole.len()).map(|cut| whole[..cut].to_vec()));
        for damage in damages {
            std::fs::write(file.path(), &damage).unwrap();
            assert!(matches!(file.read(), Err(StatusError::Damaged { .. })));
            assert_eq!(std::fs::read(file.path()).unwrap(), damage);
        }
    }

    #[test]
    fn a_half_written_file_beside_it_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = StatusFile { path: folder.path().join("a.db.status.json") };
        file.write(&status("one")).unwrap();
        std::fs::write(folder.path().join("a.db.status.json.tmp"), b"\0\0").unwrap();
        assert_eq!(file.read().unwrap(), status("one"));
        file.write(&status("two")).unwrap();
        assert_eq!(file.read().unwrap(), status("two"));
    }
}
