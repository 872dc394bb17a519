//! Targets: which database a run writes, and the files beside it.
//!
//! ```text
//! sqlite:claims.db --> /data/claims.db               the database, opened by SQLite only
//!                      /data/claims.db.lock          held by the one run that writes
//!                      /data/claims.db.status.json   what that run is doing
//! ```
//!
//! - All three are named after the real file: two names of one database cannot have two locks.
//! - Files are created with permissions for their owner only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection};

use crate::sqlite;

/// A SQLite database, named by its absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    path: PathBuf,
    max_pages: Option<u32>,
    leaves_nothing: bool,
    patience: Duration,
}

/// How long a lock that somebody else holds is asked for again, unless it is said.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The text is no target.
    #[error("{scheme}: is no target; give sqlite:PATH")]
    Scheme {
        /// What stands before the first colon. Never the rest, which may hold a password.
        scheme: String,
    },
    /// The URL has an option that there is not.
    #[error("{text}: no option of a target is called {option}; there is max_page_count=N")]
    Option {
        /// The text.
        text: String,
        /// The option.
        option: String,
    },
    /// There is no folder to hold the database.
    #[error("{}: the folder is not there; create it, or name another target", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, or not in UTF-8.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: &'static str,
    },
    /// The database cannot be created.
    #[error("{}: cannot be created; give this user write permission on the folder", path.display())]
    Create {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Target {
    /// The target that `text` names: `sqlite:PATH`, `sqlite://PATH` or a plain path. Nothing is created.
    ///
    /// `sqlite:PATH?max_page_count=N` bounds the size of the database in pages of 4 KiB; beyond it, it is full.
    ///
    /// # Errors
    /// It is no target, or there is no folder for it.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let Some(url) = text.strip_prefix("sqlite:") else {
            if text.is_empty() || text.contains("://") || text.starts_with("postgres:") {
                return Err(TargetError::Scheme {
                    scheme: text.split(':').next().unwrap_or_default().into(),
                });
            }
            return Target::at(Path::new(text), None);
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path == ":memory:" {
            return Err(TargetError::Scheme {
                scheme: text.split(':').next().unwrap_or_default().into(),
            });
        }
        let mut max_pages = None;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let value = option.strip_prefix("max_page_count=").and_then(|n| n.parse().ok());
            if value.is_none() {
                return Err(TargetError::Option { text: text.into(), option: option.into() });
            }
            max_pages = value;
        }
        Target::at(Path::new(path), max_pages)
    }

    fn at(path: &Path, max_pages: Option<u32>) -> Result<Target, TargetError> {
        let wrong = |what| TargetError::Path { path: path.into(), what };
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(_) => {
                let name = path
                    .file_name()
                    .ok_or_else(|| wrong("names no file; give the database's file"))?;
                let folder = match path.parent() {
                    Some(folder) if folder != Path::new("") => folder,
                    _ => Path::new("."),
                };
                let missing = |source| TargetError::Folder { folder: folder.into(), source };
                folder.canonicalize().map_err(missing)?.join(name)
            }
        };
        if real.is_dir() {
            return Err(wrong("is a directory; name a file in it"));
        }
        if real.to_str().is_none() {
            return Err(wrong("is not in UTF-8, which SQLite needs; name another file"));
        }
        Ok(Target { path: real, max_pages, leaves_nothing: false, patience: PATIENCE })
    }

    /// The database's absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The target as [`Target::parse`] takes it, whatever folder that is done in.
    pub fn url(&self) -> String {
        let bound = self.max_pages.map_or(String::new(), |n| format!("?max_page_count={n}"));
        format!("sqlite:{}{bound}", self.path.display())
    }

    /// True if the file is there. It need not be a database.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The lock of the run that writes.
    pub fn lock_path(&self) -> PathBuf {
        self.beside("lock")
    }

    /// What the run that writes, or wrote last, is doing.
    pub fn status_path(&self) -> PathBuf {
        self.beside("status.json")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(suffix);
        name.into()
    }

    /// The file that stands at the database's path, by device and inode.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    pub fn file(&self) -> io::Result<(u64, u64)> {
        let metadata = self.path.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// Creates an empty file if there is none, and says whether it did.
    ///
    /// # Errors
    /// The folder may not be written.
    pub(crate) fn create_if_missing(&self) -> Result<bool, TargetError> {
        let failed = |source| TargetError::Create { path: self.path.clone(), source };
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        match created {
            Ok(_) => {
                let folder = self.path.parent().unwrap_or(Path::new("/"));
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens the database for writing: WAL, every commit synchronized to the disk, a bounded cache. It must be there.
    ///
    /// # Errors
    /// It is no database, is locked, or may not be opened.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing open.
    pub async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        sqlite::writer(&self.path, self.max_pages).connect().await
    }

    /// The same target for somebody who can wait so long for the database while others write it (10 s by default), before a run
    /// has begun. What a run says of itself later never waits longer than that.
    pub fn patient(self, patience: Duration) -> Target {
        Target { patience, ..self }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The same target for somebody who only looks: reading leaves no files beside the database. They would be the reader's own,
    /// and shut out the user whose job writes. A run that begins at the same moment can make what is read look damaged; nobody
    /// who is to write should look like this.
    pub fn leaving_nothing(self) -> Target {
        Target { leaves_nothing: true, ..self }
    }

    /// Rolls back what a process left in the middle of a transaction, as SQLite does it for whoever opens the database and may
    /// write. Who only reads cannot, and is refused by SQLite until it was done.
    ///
    /// # Errors
    /// It is no database, or may not be written.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing open.
    pub async fn roll_back(&self) -> Result<(), sqlx::Error> {
        if !self.has("-journal") {
            return Ok(());
        }
        let mut connection = sqlite::as_it_is(&self.path).connect().await?;
        sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut connection).await?;
        connection.close().await
    }

    /// True if SQLite keeps a file of that kind beside the database.
    fn has(&self, suffix: &str) -> bool {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    }

    /// Opens the database for reading only.
    ///
    /// # Errors
    /// It is no database, or may not be opened.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing open.
    pub async fn connect_to_read(&self) -> Result<SqliteConnection, sqlx::Error> {
        let nobody_writes = !self.has("-wal") && !self.has("-journal");
        sqlite::reader(&self.path, self.leaves_nothing && nobody_writes).connect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_a_path_name_the_same_file_by_its_absolute_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("claims.db");
        let plain = Target::parse(path.to_str().unwrap()).unwrap();
        for prefix in ["sqlite:", "sqlite://"] {
            assert_eq!(Target::parse(&format!("{prefix}{}", path.display())).unwrap(), plain);
        }
        assert_eq!(plain.path(), path);
        assert_eq!(plain.lock_path(), path.with_file_name("claims.db.lock"));
        assert!(Target::parse("claims.db").unwrap().path().is_absolute());
        let bounded =
            Target::parse(&format!("sqlite:{}?max_page_count=7", path.display())).unwrap();
        for target in [&plain, &bounded] {
            assert_eq!(Target::parse(&target.url()).unwrap(), *target);
        }
        std::fs::write(&path, b"").unwrap();
        let link = path.with_file_name("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(Target::parse(link.to_str().unwrap()).unwrap(), plain, "one database, one lock");
    }

    #[test]
    fn what_is_no_target_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        for (text, words) in [
            ("postgres://host/db".to_string(), "give sqlite:PATH"),
            ("sqlite:".to_string(), "give sqlite:PATH"),
            ("sqlite::memory:".to_string(), "give sqlite:PATH"),
            (format!("sqlite:{at}/a.db?cache=shared"), "max_page_count=N"),
            (format!("sqlite:{at}/none/a.db"), "create it"),
            (format!("sqlite:{at}"), "name a file in it"),
        ] {
            let error = Target::parse(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_created_file_is_the_owners_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let target = Target::at(&folder.path().join("a.db"), None).unwrap();
        assert!(target.create_if_missing().unwrap());
        assert!(!target.create_if_missing().unwrap());
        assert_eq!(target.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
