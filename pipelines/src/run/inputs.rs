//! The files of an import: found readable, each a file of its own, with the right columns, and no content twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gegendruck_checkpoints::{
    InputError, InputFile, InputInfo, Ledger, ResumePoint, RunState, Target, prefix,
};
use gegendruck_stages::csv::{
    CsvError, CsvInput, CsvSource, Dialect, Empty, FromFields, OpenError, Opening, Start,
};

use super::{table, with_cause};
use crate::cli::{DialectArgs, IfDone, RunArgs};
use crate::dialect::formats;
use crate::exit::{Exit, Refused};
use crate::imports::Import;
use crate::validate::first_records;

/// Inputs that were looked at.
pub(crate) struct Inputs {
    /// In the order of their names, each content once.
    pub(crate) paths: Vec<PathBuf>,
    /// What is left out: the first of that content, and the other.
    pub(crate) twins: Vec<(PathBuf, PathBuf)>,
    /// What was found at the beginning of each that is not empty.
    pub(crate) openings: Vec<(PathBuf, Opening)>,
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
    let source = open_source::<I>(sources, dialect, &arguments.dialect, empty(arguments)).await?;
    let openings = source.openings().to_vec();
    let may_have_records = |(path, opening): &&(PathBuf, Opening)| {
        size(path).is_some_and(|size| size > opening.start().byte)
    };
    let candidates = openings.iter().filter(may_have_records).map(|(path, _)| path.clone());
    let twins = twins::<I>(candidates.collect(), arguments, dialect).await?;
    if let (Some((first, other)), IfDone::Fail) = (twins.first(), arguments.if_done) {
        return Err(Refused::new(
            Exit::Known,
            format!(
                "{}: has the same content as {}; give one of them, or take it once with --if-done ok",
                other.display(),
                first.display()
            ),
        ));
    }
    let is_left_out = |path: &PathBuf| twins.iter().any(|(_, other)| other == path);
    let paths = paths.into_iter().filter(|path| !is_left_out(path)).collect();
    let mut headers = openings.iter().map(|(_, opening)| opening.header().line());
    let first = headers.next();
    let header = first.filter(|first| headers.all(|line| line == *first));
    let header = header.map(|line| String::from_utf8_lossy(line).into_owned());
    Ok(Inputs { paths, twins, header, openings })
}

/// Opens files for an import, and refuses those that it cannot read or whose columns do not fit.
pub(crate) async fn open_source<I: Import>(
    inputs: Vec<CsvInput>,
    dialect: &Dialect,
    arguments: &DialectArgs,
    empty: Empty,
) -> Result<CsvSource<I::Raw>, Refused> {
    let needed = |name: &&String| I::Raw::COLUMNS.contains(&name.as_str());
    if let Some(name) = arguments.ignore_columns.iter().find(needed) {
        let words = format!("--ignore-columns {name}: {} needs that column; leave it out", I::NAME);
        return Err(Refused::usage(words));
    }
    let source = CsvSource::open(inputs, dialect, &arguments.ignore_columns, empty).await;
    source.map_err(|error| csv_refused(&error))
}

/// The files that have the content of another: that one, and the file.
///
/// Two files without records have nothing in common that could be stored twice. An input of an unfinished run is no file's twin:
/// the ledger knows what it was, and judges it.
async fn twins<I: Import>(
    paths: Vec<PathBuf>,
    arguments: &RunArgs,
    dialect: &Dialect,
) -> Result<Vec<(PathBuf, PathBuf)>, Refused> {
    let groups = same_content(paths).await?;
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let begun = begun::<I>(arguments).await;
    let mut twins = Vec::new();
    for group in groups {
        if !has_records::<I>(&group[0], arguments, dialect).await? {
            continue;
        }
        let (known, new): (Vec<_>, Vec<_>) = group.into_iter().partition(|path| {
            InputFile::look(path).is_ok_and(|file| {
                begun.iter().any(|(_, input)| file.path == Path::new(&input.path))
            })
        });
        was_replaced(&known, &begun)?;
        let mut new = new.into_iter();
        let first = known.into_iter().next().or_else(|| new.next());
        twins.extend(new.filter_map(|other| Some((first.clone()?, other))));
    }
    twins.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(twins)
}

/// The inputs of the unfinished runs of this import into this table, with their runs; none if the ledger cannot be asked: why
/// not is said when it must be.
async fn begun<I: Import>(arguments: &RunArgs) -> Vec<(String, InputInfo)> {
    let Ok(target) = Target::parse(&arguments.target.to) else { return Vec::new() };
    let looked = Ledger::read(&target.leaving_nothing()).await;
    let Ok(mut ledger) = looked else { return Vec::new() };
    let table = table::<I>(arguments);
    let runs = ledger.runs().await.unwrap_or_default().into_iter().filter(|run| {
        run.pipeline.pipeline == I::NAME
            && run.pipeline.table.eq_ignore_ascii_case(&table)
            && run.state != RunState::Complete
    });
    runs.flat_map(|run| run.inputs.into_iter().map(move |input| (run.run.clone(), input))).collect()
}

/// Refuses two inputs of one unfinished run that have the same content: they had not when it began.
fn was_replaced(known: &[PathBuf], begun: &[(String, InputInfo)]) -> Result<(), Refused> {
    struct Input<'a> {
        path: &'a Path,
        run: &'a str,
        /// Another size than the run knew, and when the file was last changed: the one that was replaced has more of both.
        changed: (bool, i64),
    }
    let mut inputs: Vec<Input<'_>> = Vec::new();
    for path in known {
        let Ok(file) = InputFile::look(path) else { continue };
        let of = begun.iter().filter(|(_, input)| Path::new(&input.path) == file.path);
        inputs.extend(of.map(|(run, input)| Input {
            path,
            run,
            changed: (input.size != file.size, file.ctime),
        }));
    }
    inputs.sort_by_key(|input| input.changed);
    let Some(replaced) = inputs.pop() else { return Ok(()) };
    let Some(other) = inputs.iter().rev().find(|other| other.run == replaced.run) else {
        return Ok(());
    };
    let (path, other, run) = (replaced.path.display(), other.path.display(), replaced.run);
    let words = format!(
        "{path}: was replaced: it has the content of {other} now, and had another when run {run} began; put the first file \
         back, and start again"
    );
    Err(Refused::new(Exit::Mismatch, words))
}

/// True if there is a record in a file, and not only blank lines behind the header.
async fn has_records<I: Import>(
    path: &Path,
    arguments: &RunArgs,
    dialect: &Dialect,
) -> Result<bool, Refused> {
    let formats = Arc::new(formats(&arguments.values)?);
    let inputs = from_the_beginning(&[path.to_path_buf()]);
    let (read, _, _) = first_records::<I>(inputs, dialect, arguments, formats, 1).await?;
    Ok(read > 0)
}

/// The files of one content, those of each in a group. Of files of one size the beginnings are compared, and only those that
/// begin alike are read as a whole.
async fn same_content(paths: Vec<PathBuf>) -> Result<Vec<Vec<PathBuf>>, Refused> {
    const BEGINNING: u64 = 64 * 1024;
    let comparing = tokio::task::spawn_blocking(move || {
        let mut groups = vec![paths];
        for upto in [0, BEGINNING, u64::MAX] {
            let mut alike = Vec::new();
            for group in groups {
                let mut by_content: BTreeMap<(u64, u128), Vec<PathBuf>> = BTreeMap::new();
                for path in group {
                    let size = InputFile::look(&path)?.size;
                    let content = prefix(&path, size.min(upto))?.value();
                    by_content.entry((size, content)).or_default().push(path);
                }
                alike.extend(by_content.into_values().filter(|group| group.len() > 1));
            }
            groups = alike;
        }
        Ok(groups)
    });
    match comparing.await {
        Ok(compared) => compared.map_err(|error: InputError| Refused::failed(with_cause(&error))),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
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
        if path.canonicalize().is_ok_and(|path| path.to_str().is_none()) {
            let words = "its path is not in UTF-8, in which the ledger keeps it; rename it";
            return Err(Refused::usage(format!("{shown}: {words}")));
        }
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

/// How the lines of a file end, and what is unusual about its first and last bytes.
pub(crate) fn form(path: &Path, opening: &Opening) -> String {
    let bom = if opening.has_bom() { ", byte order mark" } else { "" };
    let last = match last_byte(path) {
        Ok(b'\n' | b'\r') => "",
        _ => ", but for the last one",
    };
    format!("lines end with {}{last}{bom}", opening.line_end())
}

fn last_byte(path: &Path) -> std::io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

/// What the source reads of files of which nothing is committed.
pub fn from_the_beginning(paths: &[PathBuf]) -> Vec<CsvInput> {
    let inputs = paths.iter().zip(0..);
    inputs.map(|(path, index)| CsvInput { index, ..CsvInput::new(path) }).collect()
}

/// What the source reads: the inputs that are not complete, from where they are.
pub fn sources(inputs: &[ResumePoint]) -> Vec<CsvInput> {
    let unfinished = inputs.iter().filter(|input| !input.complete);
    unfinished
        .map(|input| CsvInput {
            path: input.file.path.clone(),
            index: input.input,
            known: Some(input.file.clone()),
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
        CsvError::Changed { .. } => Refused::failed(error.to_string()),
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

/// Files as a summary names them: their absolute paths, with their sizes.
pub(crate) fn named(paths: &[PathBuf]) -> Vec<(String, Option<u64>)> {
    paths.iter().map(|path| (shown(path), size(path))).collect()
}

fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

fn size(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.len())
}
