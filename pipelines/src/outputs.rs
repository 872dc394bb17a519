//! Files that an operator names for this program to write: never over anything that is not of their kind.
//!
//! - What is there already is told by how it begins. A file that is something else stays as it is.
//! - No input, and no file of the target, is ever written to under another name: they are told by device and inode, or by
//!   folder and name where they are not there yet.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gegendruck_checkpoints::Target;

use crate::exit::Refused;

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The file that `--summary` names.
    Summary,
    /// The file that `--trace-calls` names.
    Trace,
}

impl Kind {
    /// The first column names of a summary as CSV.
    const HEADER: &'static [u8] = b"schema,exit,state,";

    fn name(self) -> &'static str {
        match self {
            Kind::Summary => "summary",
            Kind::Trace => "trace of calls",
        }
    }

    fn begins(self, bytes: &[u8]) -> bool {
        match self {
            Kind::Summary => bytes.starts_with(Kind::HEADER) || begins_as_json_summary(bytes),
            Kind::Trace => begins_as_trace(bytes),
        }
    }

    /// Fails, with what an operator is told, unless a file of this kind may be written to `path`: nothing is there, or an empty
    /// file, or one of this kind, or something that is no file.
    ///
    /// # Errors
    /// Something else is there, or what is there cannot be looked at.
    pub fn may_be_at(self, path: &Path) -> Result<(), String> {
        const BEGINNING: u64 = 256;
        match path.metadata() {
            Ok(found) if found.is_file() && found.len() > 0 => {}
            _ => return Ok(()),
        }
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes));
        match read {
            Ok(_) if self.begins(&bytes) => Ok(()),
            Ok(_) => Err(format!("is a file that is no {}; name another file", self.name())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!(
                "is there, and cannot be looked at: {error}; name another file, or give this user read permission"
            )),
        }
    }
}

/// `{"schema":1,"exit":`, with or without blanks.
fn begins_as_json_summary(bytes: &[u8]) -> bool {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let Some(rest) = bytes.strip_prefix(b"{\"schema\":") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b",\"exit\":")
}

/// A stage's name and a record's number.
fn begins_as_trace(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (stage, record, more) = (words.next(), words.next(), words.next());
    let is_name = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_lowercase);
    let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    stage.is_some_and(is_name) && record.is_some_and(is_number) && more.is_none()
}

/// Refuses to write to `path`, which `flag` names, if that is an input, the target, or a file beside the target.
///
/// # Errors
/// It is.
pub fn refuse_clash<'a>(
    flag: &str,
    path: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
    target: Option<&Target>,
) -> Result<(), Refused> {
    let is = |what: &str| {
        Err(Refused::usage(format!("{flag} {}: is {what}; name another file", path.display())))
    };
    if inputs.into_iter().any(|input| is_same(path, input)) {
        return is("an input");
    }
    let Some(target) = target else { return Ok(()) };
    let beside = |suffix: &str| {
        let mut name = target.path().as_os_str().to_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    for (file, what) in [
        (target.path().into(), "the target"),
        (target.lock_path(), "the target's lock"),
        (target.status_path(), "the target's status file"),
        (beside("-wal"), "a file of the target"),
        (beside("-shm"), "a file of the target"),
        (beside("-journal"), "a file of the target"),
    ] {
        if is_same(path, &file) {
            return is(what);
        }
    }
    Ok(())
}

/// True if both paths lead to one file, or will once it is created.
pub fn is_same(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(found), Ok(known)) => {
            found.is_file() && (found.dev(), found.ino()) == (known.dev(), known.ino())
        }
        (Err(_), Err(_)) => {
            place(one).is_some_and(|place_of_one| Some(place_of_one) == place(other))
        }
        _ => false,
    }
}

/// The absolute path of a file that is not there yet.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_over_only_by_one_of_its_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for kind in [Kind::Summary, Kind::Trace] {
            drop(std::fs::remove_file(&path));
            kind.may_be_at(&path).expect("nothing is there");
            kind.may_be_at(Path::new("/dev/null")).expect("no file is there");
            for (text, of) in [
                ("", Some(kind)),
                ("{\n  \"schema\": 1,\n  \"exit\": 0,\n", Some(Kind::Summary)),
                ("{\"schema\":12,\"exit\":4", Some(Kind::Summary)),
                ("schema,exit,state,run\n1,0,", Some(Kind::Summary)),
                ("score 17\nscore 18\n", Some(Kind::Trace)),
                ("{\"schema\": 1, \"run\": \"a\"}", None),
                ("{}", None),
                ("schema,version\n", None),
                ("claim_id,policy_id\nC1,P1\n", None),
                ("score 17 points\n", None),
                ("score\n", None),
                ("SQLite format 3\0", None),
                ("\n", None),
            ] {
                std::fs::write(&path, text).expect("a file");
                assert_eq!(kind.may_be_at(&path).is_ok(), of == Some(kind), "{kind:?}: {text}");
            }
        }
    }

    #[test]
    fn a_file_is_the_same_under_every_name_and_also_before_it_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "text").expect("a file");
        std::fs::write(path("other"), "text").expect("a file");
        std::fs::hard_link(path("file"), path("hard")).expect("a link");
        std::os::unix::fs::symlink(path("file"), path("soft")).expect("a link");
        for name in ["file", "hard", "soft", "./file"] {
            assert!(is_same(&path("file"), &path(name)), "{name}");
            assert!(!is_same(&path("other"), &path(name)), "{name}");
        }
        assert!(is_same(&path("new"), &path("./new")));
        assert!(!is_same(&path("new"), &path("file")) && !is_same(&path("new"), &path("newer")));
    }
}
