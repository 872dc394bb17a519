//! The lock: at most one run writes a target.
//!
//! - It is an OS lock on a file beside the database, so it dies with its holder, however that ends.
//! - The text in the file says who holds it. It is for people: what decides is the lock.
//! - The file is never removed: a process that waits on a removed file and one that creates it anew would both hold a lock.
//! - The ledger's fence stands behind it, should the file be removed all the same.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::{Process, Target};

/// The right to write a target. Dropping it gives the right back.
#[derive(Debug)]
#[must_use = "the lock is given back when it is dropped"]
pub struct Lock {
    file: File,
    path: PathBuf,
    process: Process,
    since: String,
}

/// Why a target's lock was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another run holds it.
    #[error(
        "run {run} of pid {pid} on {host} writes this target since {since}; wait for it, or stop it"
    )]
    Held {
        /// Its machine.
        host: String,
        /// Its process.
        pid: String,
        /// Since when it holds the lock, in UTC.
        since: String,
        /// Its run, or `-` if it has not begun one yet.
        run: String,
    },
    /// The lock's file cannot be used.
    #[error("{}: cannot be locked; give this user write permission on it and its folder", path.display())]
    File {
        /// The lock's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Lock {
    /// Takes the lock of `target` for `process`, without waiting.
    ///
    /// # Errors
    /// Another process holds it, or the folder may not be written.
    pub fn take(target: &Target, process: &Process) -> Result<Lock, LockError> {
        let path = target.lock_path();
        let failed = |source| LockError::File { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Its holder may be writing it at this moment: what cannot be read is left out.
                let _ = file.read_to_string(&mut text);
                return Err(held(&text));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut lock = Lock { file, path: path.clone(), process: process.clone(), since };
        lock.write("-").map_err(failed)?;
        Ok(lock)
    }

    /// Says in the lock's file which run this is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn name(&mut self, run: &str) -> Result<(), LockError> {
        self.write(run).map_err(|source| LockError::File { path: self.path.clone(), source })
    }

    /// Since when it is held, in UTC.
    pub fn since(&self) -> &str {
        &self.since
    }

    fn write(&mut self, run: &str) -> io::Result<()> {
        let Process { host, pid, .. } = &self.process;
        let text = format!("host {host}\npid {pid}\nsince {}\nrun {run}\n", self.since);
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

fn held(text: &str) -> LockError {
    let field = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_string);
        text.lines().find_map(of).unwrap_or_else(|| "unknown".into())
    };
    LockError::Held {
        host: field("host"),
        pid: field("pid"),
        since: field("since"),
        run: field("run"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder_until_the_first_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::parse(folder.path().join("a.db").to_str().unwrap()).unwrap();
        let process = Process::this("1");
        let mut first = Lock::take(&target, &process).unwrap();
        first.name("20261130-0100-a3f").unwrap();
        match Lock::take(&target, &process).unwrap_err() {
            LockError::Held { host, pid, since, run } => {
                assert_eq!((host, pid), (process.host.clone(), process.pid.to_string()));
                assert_eq!((since.as_str(), run.as_str()), (first.since(), "20261130-0100-a3f"));
            }
            other => panic!("{other}"),
        }
        drop(first);
        drop(Lock::take(&target, &process).unwrap());
        assert!(!target.exists(), "the database itself was not touched");
    }

    #[test]
    fn a_damaged_text_does_not_hide_that_the_lock_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::parse(folder.path().join("a.db").to_str().unwrap()).unwrap();
        let held = Lock::take(&target, &Process::this("1")).unwrap();
        for text in ["", "\0\0\0", "host", "nonsense\n"] {
            std::fs::write(target.lock_path(), text).unwrap();
            let error = Lock::take(&target, &Process::this("1")).unwrap_err();
            assert!(matches!(&error, LockError::Held { run, .. } if run == "unknown"), "{error}");
        }
        drop(held);
    }
}
