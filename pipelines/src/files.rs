//! Files that this program writes: only their owner may read them, and each is whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that takes its place when it is whole: what was there before stays until then, and a reader never sees half of it.
/// Dropped before, it is gone.
///
/// A device or a pipe is written to as it is: nothing may take its place.
#[derive(Debug)]
#[must_use = "dropped before `finish`, it is gone"]
pub struct NewFile {
    file: File,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    beside: PathBuf,
    path: PathBuf,
}

impl NewFile {
    /// A file that is to be at `path`, or where a link there leads.
    ///
    /// # Errors
    /// No file can be created beside it.
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let file = OpenOptions::new().write(true).open(&path)?;
            return Ok(NewFile { file, place: None });
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        // Another process that writes the same file at this moment has one of its own.
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        Ok(NewFile { file, place: Some(Place { beside, path }) })
    }

    /// Puts it in its place, for good: it is on the disk before.
    ///
    /// # Errors
    /// It is not there; what was there before is.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(place) = &self.place else { return self.file.flush() };
        self.file.sync_all()?;
        fs::rename(&place.beside, &place.path)?;
        self.place = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(Place { beside, .. }) = &self.place {
            drop(fs::remove_file(beside));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "before").expect("a file");
        symlink(&path, &link).expect("a link");
        for at in [&path, &link] {
            let mut half = NewFile::create(at).expect("a new file");
            half.write_all(b"half").expect("it is written");
            drop(half);
            assert_eq!(fs::read_to_string(&path).expect("the file"), "before");
            let mut whole = NewFile::create(at).expect("a new file");
            whole.write_all(b"whole").expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("the file"), "before");
            whole.finish().expect("it takes its place");
            assert_eq!(fs::read_to_string(&path).expect("the file"), "whole");
            fs::write(&path, "before").expect("a file");
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2, "nothing is left");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let mut file = NewFile::create(Path::new("/dev/null")).expect("it opens");
        file.write_all(b"text").and_then(|()| file.finish()).expect("it is written");
        assert!(!Path::new("/dev/null").metadata().expect("the device").is_file());
    }
}
