//! Inputs as files: what they look like from outside, and the fingerprints of their beginnings.
//!
//! A file is read once at most, whatever is asked of it: all the places at which a fingerprint is wanted are passed together.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Fingerprint;

/// Bytes that are read from a file at once.
const BLOCK: usize = 1 << 20;

/// What an input looks like from outside. Equal in all but the path means: the same file, and not written to since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Its path, absolute and without symbolic links.
    pub path: PathBuf,
    /// The device that it is on.
    pub device: u64,
    /// Its number on that device.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// When its content was last changed, in nanoseconds since 1970.
    pub mtime: i64,
    /// When anything of it was last changed, in nanoseconds since 1970.
    pub ctime: i64,
}

/// Why an input could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// It is not there, or may not be read.
    #[error("{}: cannot be read; check the path and the permissions", path.display())]
    Unreadable {
        /// The input.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is a directory or a pipe.
    #[error("{}: is no regular file; write it to one first, so that a run can go on after a crash", path.display())]
    NoFile {
        /// The input.
        path: PathBuf,
    },
    /// It ends before the place up to which it was to be read.
    #[error("{}: has {found} bytes, expected at least {expected}", path.display())]
    Short {
        /// The input.
        path: PathBuf,
        /// Bytes that there are.
        found: u64,
        /// Bytes that were asked for.
        expected: u64,
    },
}

impl InputFile {
    /// Looks at the file at `path`.
    ///
    /// # Errors
    /// It is not there, may not be looked at, or is no regular file.
    pub fn look(path: &Path) -> Result<InputFile, InputError> {
        let unreadable = |source| InputError::Unreadable { path: path.into(), source };
        let path = path.canonicalize().map_err(unreadable)?;
        let metadata = path.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(InputError::NoFile { path });
        }
        Ok(InputFile::of(path, &metadata))
    }

    /// The file that was found at `path`, by what the system says of it.
    pub fn of(path: PathBuf, metadata: &Metadata) -> InputFile {
        InputFile {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            mtime: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanos(metadata.ctime(), metadata.ctime_nsec()),
            path,
        }
    }

    /// An input that is no file. It has no content to be known by, so a run that reads it cannot be looked up.
    pub fn stream(name: &str) -> InputFile {
        let path = format!("stream:{name}").into();
        InputFile { path, device: 0, inode: 0, size: 0, mtime: 0, ctime: 0 }
    }

    /// True if `other` is the same file, of the same size and time. Only who sets its time back can have written to it between the
    /// two looks; then [`InputFile::is_unchanged`] is false, as it is after a new name or other permissions.
    pub fn seems_unchanged(&self, other: &InputFile) -> bool {
        let parts = |file: &InputFile| (file.device, file.inode, file.size, file.mtime);
        parts(self) == parts(other)
    }

    /// True if `other` is the same file, and was not written to between the two looks.
    pub fn is_unchanged(&self, other: &InputFile) -> bool {
        let parts = |file: &InputFile| (file.device, file.inode, file.size, file.mtime, file.ctime);
        parts(self) == parts(other)
    }
}

fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The fingerprint of the first `upto` bytes of a file.
///
/// # Errors
/// The file cannot be read, or is shorter.
pub fn prefix(path: &Path, upto: u64) -> Result<Fingerprint, InputError> {
    let mut found = prefixes(path, &[upto])?;
    found.pop().ok_or_else(|| InputError::NoFile { path: path.into() })
}

/// The fingerprints of the first `upto[0]`, `upto[1]`, … bytes of a file, which is read once. `upto` must be ascending.
///
/// # Errors
/// The file cannot be read, or is shorter than the last of them.
pub fn prefixes(path: &Path, upto: &[u64]) -> Result<Vec<Fingerprint>, InputError> {
    let unreadable = |source| InputError::Unreadable { path: path.into(), source };
    let mut found = Vec::with_capacity(upto.len());
    let mut fingerprint = Fingerprint::new();
    let mut file = File::open(path).map_err(unreadable)?;
    let mut block = vec![0; BLOCK];
    for &end in upto {
        while fingerprint.bytes() < end {
            let want = (end - fingerprint.bytes()).min(BLOCK as u64) as usize;
            match file.read(&mut block[..want]) {
                Ok(0) => {
                    let found = fingerprint.bytes();
                    return Err(InputError::Short { path: path.into(), found, expected: end });
                }
                Ok(len) => fingerprint.update(&block[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        found.push(fingerprint.clone());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_hashed_up_to_its_byte_and_a_short_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, b"0123456789").unwrap();
        for upto in 0..=10 {
            let mut expected = Fingerprint::new();
            expected.update(&b"0123456789"[..upto]);
            assert_eq!(prefix(&path, upto as u64).unwrap().value(), expected.value());
        }
        let short = prefix(&path, 11).unwrap_err();
        assert!(matches!(short, InputError::Short { found: 10, expected: 11, .. }), "{short}");
    }

    #[test]
    fn a_written_file_is_no_longer_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, b"one").unwrap();
        let before = InputFile::look(&path).unwrap();
        assert!(before.is_unchanged(&InputFile::look(&path).unwrap()));
        std::fs::write(&path, b"three").unwrap();
        assert!(!before.is_unchanged(&InputFile::look(&path).unwrap()));
        let folder = InputFile::look(folder.path()).unwrap_err();
        assert!(matches!(folder, InputError::NoFile { .. }), "{folder}");
    }
}
