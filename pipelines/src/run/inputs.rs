//! The files of an import: found readable, each a file of its own, with the right columns.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gegendruck_checkpoints::ResumePoint;
use gegendruck_stages::csv::{CsvError, CsvInput, CsvSource, Dialect, Empty, OpenError, Start};

use crate::cli::RunArgs;
use crate::exit::{Exit, Refused};
use crate::imports::Import;

/// Inputs that were looked at.
pub(crate) struct Inputs {
    /// In the order of their names.
    pub(crate) paths: Vec<PathBuf>,
    /// Their header line, if they all have the same.
    pub(crate) header: Option<String>,
}

/// The inputs, after all of them were found to be readable and to have the right columns.
pub(crate) async fn look_at_inputs<I: Import>(
    arguments: &RunArgs,
    dialect: &Dialect,
) -> Result<Inputs, Refused> {
    let paths = regular_files(&arguments.inputs)?;
    let sources = from_the_beginning(&paths);
    let source = CsvSource::<I::Raw>::open(
        sources,
        dialect,
        &arguments.dialect.ignore_columns,
        empty(arguments),
    )
    .await
    .map_err(|error| csv_refused(&error))?;
    let mut headers = source.openings().iter().map(|(_, opening)| opening.header().line());
    let first = headers.next();
    let header = first.filter(|first| headers.all(|line| line == *first));
    Ok(Inputs { paths, header: header.map(|line| String::from_utf8_lossy(line).into_owned()) })
}

/// The paths in the order of their names, after each was found to be a file of its own.
///
/// # Errors
/// One is not there, is no regular file, or is named twice.
pub fn regular_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Refused> {
    let mut paths = paths.to_vec();
    paths.sort();
    paths.dedup();
    let mut files = BTreeMap::new();
    for path in &paths {
        let metadata = std::fs::metadata(path).map_err(|error| not_readable(path, &error))?;
        let shown = path.display();
        if let Some(first) = files.insert((metadata.dev(), metadata.ino()), path) {
            let first = first.display();
            return Err(Refused::usage(format!(
                "{first} and {shown} are the same file; name it once"
            )));
        }
        if metadata.is_dir() {
            return Err(Refused::usage(format!("{shown}: is a directory; name the files in it")));
        }
        if !metadata.is_file() {
            let what =
                "is no regular file; write it to one first, so that a run can go on after a crash";
            return Err(Refused::usage(format!("{shown}: {what}")));
        }
    }
    Ok(paths)
}

/// What the source reads of files of which nothing is committed.
pub fn from_the_beginning(paths: &[PathBuf]) -> Vec<CsvInput> {
    let inputs = paths.iter().zip(0..);
    inputs.map(|(path, index)| CsvInput { path: path.clone(), start: None, index }).collect()
}

/// What the source reads: the inputs that are not complete, from where they are.
pub fn sources(inputs: &[ResumePoint]) -> Vec<CsvInput> {
    let unfinished = inputs.iter().filter(|input| !input.complete);
    unfinished
        .map(|input| CsvInput {
            path: input.file.path.clone(),
            index: input.input,
            start: (!input.is_begin()).then(|| Start {
                at: input.at,
                lines: input.lines,
                fingerprint: input.fingerprint.clone(),
            }),
        })
        .collect()
}

pub(crate) fn not_readable(path: &Path, error: &std::io::Error) -> Refused {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Refused::new(Exit::NotThere, format!("{path}: there is no such file; check the path"))
        }
        std::io::ErrorKind::PermissionDenied => {
            Refused::usage(format!("{path}: may not be read; give this user read permission"))
        }
        _ => Refused::failed(format!("{path}: cannot be read: {error}")),
    }
}

/// What an input that cannot be read means for the exit code.
pub fn csv_refused(error: &CsvError) -> Refused {
    match error {
        CsvError::File { path, source, .. } => not_readable(path, source),
        CsvError::Opening { source: OpenError::Empty, .. } => {
            Refused::new(Exit::Unbalanced, format!("{error}; if that is right, pass --allow-empty"))
        }
        _ => Refused::usage(error.to_string()),
    }
}

/// Whether inputs may be empty.
pub fn empty(arguments: &RunArgs) -> Empty {
    if arguments.allow_empty { Empty::Allowed } else { Empty::Refused }
}

pub(crate) fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

pub(crate) fn size(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.len())
}
