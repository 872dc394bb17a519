//! The CSV source: files, cut into records, as many as there is room for.
//!
//! ```text
//! file --one block--> [ cutter ] --record--> [ decoder ] --fields--> T::from_fields --> batch
//!                         |                                                               |
//!                         +--refused: a reject with its source bytes ---------------------+
//!                         +--every byte, once, in order --> fingerprint --> checkpoint ---+
//! ```
//!
//! - It reads at most one block ahead of what was asked for, and looks no further than the room that it is given.
//! - A record that was cut but does not fit into the room waits in the source, and is the first of the next batch.
//! - Inputs are read one after the other, in the order given; a batch lies in one input.
//! - All inputs are opened, and their columns checked, before the first record is read.
//! - An input must be what it was when it was decided to read it, and at its end have the size and time that it had then.

use std::marker::PhantomData;
use std::path::PathBuf;

use gegendruck::{Checkpoint, Lines, Position, Read, Room, Source, SourceBatch, SourceError, Span};
use gegendruck_checkpoints::{Fingerprint, InputFile};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::decoder::Decoder;
use super::dialect::Dialect;
use super::fields::FromFields;
use super::header::ColumnsError;
use super::opening::{BOM, OpenError, Opening};
use super::reading::Reading;
use super::splitter::Input;

/// Where an input is gone on with.
#[derive(Clone, Debug)]
pub struct Start {
    /// The first record to read.
    pub at: Position,
    /// Lines before it that are no records.
    pub lines: Lines,
    /// The fingerprint of all bytes before it.
    pub fingerprint: Fingerprint,
}

/// A file to read.
#[derive(Clone, Debug)]
pub struct CsvInput {
    /// The file.
    pub path: PathBuf,
    /// Where to go on; `None` to begin at its beginning.
    pub start: Option<Start>,
    /// Index of the input among the inputs of the run; those that are already complete count too.
    pub index: u32,
    /// What it was when it was decided to read it; `None` if that was decided by its name alone.
    pub known: Option<InputFile>,
}

impl CsvInput {
    /// A file that is read from its beginning, the only input of its run.
    pub fn new(path: impl Into<PathBuf>) -> CsvInput {
        CsvInput { path: path.into(), start: None, index: 0, known: None }
    }
}

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// It is not there, may not be read, or is no file.
    #[error("{}: {what}", path.display())]
    File {
        /// The input.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Its beginning cannot be read as CSV.
    #[error("{}: {source}", path.display())]
    Opening {
        /// The input.
        path: PathBuf,
        /// What is wrong.
        source: OpenError,
    },
    /// It is not what it was when it was decided to read it.
    #[error("{}: was replaced or written to after it was looked at; start again when it is complete", path.display())]
    Changed {
        /// The input.
        path: PathBuf,
    },
    /// Its columns are not those of the pipeline.
    #[error("{}: {source}", path.display())]
    Columns {
        /// The input.
        path: PathBuf,
        /// What is wrong.
        source: ColumnsError,
    },
}

/// An input whose beginning was read and found good.
pub(super) struct Opened {
    pub(super) input: CsvInput,
    pub(super) found: InputFile,
    pub(super) opening: Opening,
    pub(super) decoder: Decoder,
}

/// An input whose turn has not come.
enum Waiting {
    Opened(Box<Opened>),
    /// It has no bytes but perhaps a byte order mark, and that is right.
    Empty(Box<CsvInput>),
}

/// Whether an input may be without any bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Empty {
    /// It may not: an empty file is more often a broken delivery than a quiet day.
    #[default]
    Refused,
    /// It may, and has no records then.
    Allowed,
}

/// Reads rows of type `T` from CSV files.
pub struct CsvSource<T> {
    waiting: std::vec::IntoIter<Waiting>,
    reading: Option<Reading<T>>,
    openings: Vec<(PathBuf, Opening)>,
    columns: PhantomData<fn() -> T>,
}

impl<T: FromFields> CsvSource<T> {
    /// Opens all inputs and checks that they can be read and have the columns of `T`, except those in `ignored`.
    ///
    /// # Errors
    /// The first input that cannot be read, and why.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn open(
        inputs: Vec<CsvInput>,
        dialect: &Dialect,
        ignored: &[String],
        empty: Empty,
    ) -> Result<CsvSource<T>, CsvError> {
        let mut waiting = Vec::with_capacity(inputs.len());
        let mut openings = Vec::with_capacity(inputs.len());
        for input in inputs {
            match open::<T>(input.clone(), dialect, ignored).await {
                Ok(opened) => {
                    openings.push((input.path, opened.opening.clone()));
                    waiting.push(Waiting::Opened(Box::new(opened)));
                }
                Err(CsvError::Opening { source: OpenError::Empty, .. })
                    if empty == Empty::Allowed =>
                {
                    waiting.push(Waiting::Empty(Box::new(input)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(CsvSource {
            waiting: waiting.into_iter(),
            reading: None,
            openings,
            columns: PhantomData,
        })
    }

    /// What was found at the beginning of each input: line end, byte order mark, columns.
    pub fn openings(&self) -> &[(PathBuf, Opening)] {
        &self.openings
    }
}

async fn open<T: FromFields>(
    input: CsvInput,
    dialect: &Dialect,
    ignored: &[String],
) -> Result<Opened, CsvError> {
    let path = input.path.clone();
    let failed = |source: std::io::Error| CsvError::File {
        path: path.clone(),
        what: explain(&source),
        source,
    };
    let mut file = File::open(&path).await.map_err(failed)?;
    let metadata = file.metadata().await.map_err(failed)?;
    if metadata.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(CsvError::File {
            path,
            what: "is a directory; name the files in it".into(),
            source,
        });
    }
    let mut found = InputFile::of(path.clone(), &metadata);
    if let Some(known) = &input.known {
        if !known.seems_unchanged(&found) {
            return Err(CsvError::Changed { path });
        }
        found = known.clone();
    }
    let mut sample = Vec::new();
    (&mut file).take(Opening::SAMPLE.0).read_to_end(&mut sample).await.map_err(failed)?;
    let end = if (sample.len() as u64) < Opening::SAMPLE.0 { Input::Ended } else { Input::Open };
    let opening = Opening::read(dialect, T::COLUMNS, &sample, end)
        .map_err(|source| CsvError::Opening { path: path.clone(), source })?;
    let columns = opening
        .header()
        .select(T::COLUMNS, ignored)
        .map_err(|source| CsvError::Columns { path: path.clone(), source })?;
    // What cannot go back to its beginning is no file that a run can go on with.
    file.seek(std::io::SeekFrom::Start(0)).await.map_err(failed)?;
    let decoder = Decoder::new(columns, dialect.quote());
    Ok(Opened { input, found, opening, decoder })
}

pub(super) fn explain(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "there is no such file; check the path".into(),
        ErrorKind::PermissionDenied => "may not be read; give this user read permission".into(),
        ErrorKind::NotSeekable => {
            "is a pipe; write it to a file first, so that a run can go on after a crash".into()
        }
        _ => format!("cannot be read: {error}"),
    }
}

impl<T: FromFields> Source for CsvSource<T> {
    type Item = T;

    async fn read(&mut self, room: Room) -> Result<Read<T>, SourceError> {
        loop {
            if self.reading.is_none() {
                match self.waiting.next() {
                    None => return Ok(Read::End),
                    Some(Waiting::Empty(input)) => return nothing(&input).await,
                    Some(Waiting::Opened(opened)) => {
                        self.reading = Some(Reading::begin(*opened).await?)
                    }
                }
            }
            let Some(reading) = &mut self.reading else { continue };
            let (read, over) = reading.read(room).await?;
            if over {
                self.reading = None;
            }
            return Ok(read);
        }
    }
}

/// The one batch of an input without records.
async fn nothing<T>(input: &CsvInput) -> Result<Read<T>, SourceError> {
    let failed = |error: std::io::Error| SourceError {
        message: format!("{}: {}", input.path.display(), explain(&error)),
        source: Some(Box::new(error)),
    };
    let file = File::open(&input.path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(BOM.len() as u64 + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    if !bytes.is_empty() && bytes != BOM {
        return Err(SourceError::new(format!(
            "{}: was empty when it was looked at, and is not now; start again when it is complete",
            input.path.display()
        )));
    }
    let mut fingerprint = Fingerprint::default();
    fingerprint.update(&bytes);
    let start = Position { input: input.index, byte: 0, record: 1, line: 1 };
    let at = Position { byte: bytes.len() as u64, ..start };
    let checkpoint = Checkpoint {
        at,
        fingerprint: fingerprint.value(),
        lines: Lines::default(),
        complete: true,
    };
    // The mark is no record's: the span is empty where it ends.
    let span = Span { start: at, end: at };
    Ok(Read::Batch(SourceBatch {
        span,
        items: Vec::new(),
        rejects: Vec::new(),
        block: None,
        checkpoint,
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gegendruck::{Bytes, Records};
    use gegendruck_checkpoints::prefix;
    use tempfile::NamedTempFile;

    use super::*;
    use crate::csv::Fields;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Pair(String, String);

    impl FromFields for Pair {
        const COLUMNS: &'static [&'static str] = &["id", "text"];

        fn from_fields(fields: &Fields<'_>) -> Self {
            Pair(fields.get(0).into(), fields.get(1).into())
        }
    }

    /// Blank lines, records of several lines, rejects of every size, a byte order mark, no last line end.
    fn input() -> Vec<u8> {
        let mut bytes = b"\xEF\xBB\xBFid,text\r\n".to_vec();
        for id in 1..=60 {
            match id % 10 {
                3 => bytes.extend_from_slice(format!("{id},\"two\r\nlines {id}\"\r\n").as_bytes()),
                5 => bytes.extend_from_slice(b"one field too few\r\n\r\n"),
                7 => bytes
                    .extend_from_slice(format!("{id},\"{}\"\r\n", "long ".repeat(60)).as_bytes()),
                9 => bytes
                    .extend_from_slice(format!("{id},{}\r\n\r\n\r\n", "x".repeat(150)).as_bytes()),
                _ => bytes.extend_from_slice(format!("{id},text {id}\r\n").as_bytes()),
            }
        }
        bytes.truncate(bytes.len() - 2);
        bytes
    }

    fn file(bytes: &[u8]) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("it is written");
        file
    }

    /// At most 200 bytes a record, so that some are over the limit.
    fn dialect() -> Dialect {
        Dialect::builder().max_record_bytes(Bytes(200)).build().expect("it can work")
    }

    async fn open(file: &NamedTempFile, start: Option<Start>) -> CsvSource<Pair> {
        let input = CsvInput { start, ..CsvInput::new(file.path()) };
        CsvSource::open(vec![input], &dialect(), &[], Empty::Refused).await.expect("it can be read")
    }

    /// A record, or why it was refused and its bytes.
    type Became = Result<Pair, (String, Vec<u8>)>;

    /// What came of the records, and where the source could go on.
    #[derive(Default)]
    struct All {
        records: Vec<(Position, Became)>,
        checkpoints: Vec<Checkpoint>,
    }

    /// Reads everything through rooms of this size, as the runtime would.
    async fn read_all(source: &mut CsvSource<Pair>, room: Room) -> All {
        let mut all = All::default();
        let mut bytes = room.bytes;
        let mut end: Option<Position> = None;
        loop {
            match source.read(Room { bytes, ..room }).await.expect("it can be read") {
                Read::End => return all,
                Read::Needs(needs) => {
                    assert!(needs > bytes, "it asks for more than there was");
                    bytes = needs;
                }
                Read::Batch(batch) => {
                    let amount = batch.amount();
                    assert!(
                        amount.records <= room.records.0 && amount.bytes <= bytes.0,
                        "no more than there was room for"
                    );
                    assert!(
                        end.is_none_or(|end| end == batch.span.start),
                        "batches lie end to end"
                    );
                    end = Some(batch.span.end);
                    assert_eq!(batch.span.end, batch.checkpoint.at);
                    let count = (batch.items.len() + batch.rejects.len()) as u64;
                    assert_eq!(count, amount.records, "every record is an item or a reject");
                    let mut records: Vec<_> = Vec::new();
                    for item in batch.items {
                        let block = batch.block.as_ref().expect("items have their source bytes");
                        let raw =
                            block.get(item.at.byte, item.len as usize).expect("within the block");
                        assert!(
                            raw.starts_with(item.value.0.as_bytes()),
                            "the bytes are the record's own"
                        );
                        records.push((item.at, Ok(item.value)));
                    }
                    for reject in batch.rejects {
                        records.push((
                            reject.at,
                            Err((reject.reason.kind.into_owned(), reject.bytes.into_vec())),
                        ));
                    }
                    records.sort_by_key(|(at, _)| *at);
                    all.records.extend(records);
                    all.checkpoints.push(batch.checkpoint);
                    bytes = room.bytes;
                }
            }
        }
    }

    fn room(records: u64, bytes: u64) -> Room {
        Room { records: Records(records), bytes: Bytes(bytes) }
    }

    #[tokio::test]
    async fn the_room_that_is_given_changes_how_records_are_batched_and_nothing_else() {
        let file = file(&input());
        let expected = read_all(&mut open(&file, None).await, room(1_000, 1 << 20)).await;
        let kinds = |kind: &str| {
            expected
                .records
                .iter()
                .filter(|(_, what)| matches!(what, Err((found, _)) if found == kind))
                .count()
        };
        assert_eq!(
            (expected.records.len(), kinds("field_count"), kinds("record_too_long")),
            (60, 6, 6)
        );
        for records in [1, 2, 3, 7, 60] {
            for bytes in [1, 2, 17, 100, 170, 400, 5_000] {
                let found = read_all(&mut open(&file, None).await, room(records, bytes)).await;
                assert_eq!(found.records, expected.records, "{records} records, {bytes} bytes");
                assert_eq!(
                    found.checkpoints.last(),
                    expected.checkpoints.last(),
                    "{records} records, {bytes} bytes"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_source_goes_on_behind_every_checkpoint_and_its_fingerprint_is_that_of_the_bytes_before()
     {
        let bytes = input();
        let file = file(&bytes);
        let whole = read_all(&mut open(&file, None).await, room(1, 1)).await;
        assert!(whole.checkpoints.last().expect("there is one").complete);
        assert_eq!(whole.checkpoints.last().map(|last| last.at.byte), Some(bytes.len() as u64));
        for checkpoint in &whole.checkpoints {
            let before = prefix(file.path(), checkpoint.at.byte).expect("the file is as long");
            assert_eq!(before.value(), checkpoint.fingerprint, "at {}", checkpoint.at);
            let start = Start { at: checkpoint.at, lines: checkpoint.lines, fingerprint: before };
            let rest = read_all(&mut open(&file, Some(start)).await, room(7, 1 << 20)).await;
            let expected: Vec<_> =
                whole.records.iter().filter(|(at, _)| *at >= checkpoint.at).cloned().collect();
            assert_eq!(rest.records, expected, "from {} on", checkpoint.at);
            assert_eq!(
                rest.checkpoints.last(),
                whole.checkpoints.last(),
                "from {} on",
                checkpoint.at
            );
        }
    }

    /// Behind the sample that tells the columns, nothing before the start is read: it is not even CSV any more.
    #[tokio::test]
    async fn a_source_that_goes_on_reads_from_its_start_and_not_from_the_beginning() {
        let mut bytes = b"id,text\n".to_vec();
        let row = |id: u64| format!("{id},{}\n", "y".repeat(100));
        (1..=4_000).for_each(|id| bytes.extend_from_slice(row(id).as_bytes()));
        let start = bytes.len() as u64;
        (4_001..=4_100).for_each(|id| bytes.extend_from_slice(row(id).as_bytes()));
        let before = {
            let mut fingerprint = Fingerprint::default();
            fingerprint.update(&bytes[..start as usize]);
            fingerprint
        };
        bytes[Opening::SAMPLE.0 as usize..start as usize].fill(b'"');
        let file = file(&bytes);
        let at = Position { input: 0, byte: start, record: 4_001, line: 4_002 };
        let start =
            Start { at, lines: Lines { header: 1, ..Lines::default() }, fingerprint: before };
        let rest = read_all(&mut open(&file, Some(start)).await, room(1_000, 1 << 20)).await;
        let ids: Vec<u64> = rest
            .records
            .iter()
            .map(|(_, what)| what.as_ref().unwrap().0.parse().unwrap())
            .collect();
        assert_eq!(ids, (4_001..=4_100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn an_input_without_bytes_is_refused_unless_it_may_be_empty() {
        for bytes in [&b""[..], BOM] {
            let file = file(bytes);
            let input = CsvInput::new(file.path());
            let refused =
                CsvSource::<Pair>::open(vec![input.clone()], &dialect(), &[], Empty::Refused)
                    .await
                    .err();
            assert!(matches!(refused, Some(CsvError::Opening { source: OpenError::Empty, .. })));
            let mut source = CsvSource::<Pair>::open(vec![input], &dialect(), &[], Empty::Allowed)
                .await
                .unwrap();
            let all = read_all(&mut source, room(10, 100)).await;
            assert_eq!((all.records.len(), all.checkpoints.len()), (0, 1));
            assert!(all.checkpoints[0].complete);
            assert_eq!(all.checkpoints[0].at.byte, bytes.len() as u64);
        }
    }

    #[tokio::test]
    async fn half_a_record_of_an_input_that_is_being_written_is_not_handed_out() {
        for records in [1, 2, 3] {
            let mut file = file(b"id,text\n1,a\n");
            let mut source = open(&file, None).await;
            file.write_all(b"2,b").expect("it grows");
            let mut read = source.read(room(records, 100)).await;
            while let Ok(Read::Batch(batch)) = &read {
                assert_eq!(batch.span.end.byte, 12, "{records}");
                read = source.read(room(records, 100)).await;
            }
            let error = read.expect_err("the change is seen").to_string();
            assert!(error.contains("written to after it was looked at"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_input_that_changes_while_it_is_read_is_an_error_at_its_end() {
        let mut file = file(b"id,text\n1,a\n");
        let mut source = open(&file, None).await;
        file.write_all(b"2,b\n").expect("it grows");
        let mut read = source.read(room(1, 100)).await;
        while let Ok(Read::Batch(_)) = read {
            read = source.read(room(1, 100)).await;
        }
        let error = read.expect_err("the change is seen").to_string();
        assert!(
            error
                .contains("written to after it was looked at (12 bytes then, it has 16 bytes now)"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_input_whose_time_is_set_back_after_a_change_is_an_error_and_other_permissions_are_none()
     {
        use std::os::unix::fs::PermissionsExt;
        for (bytes, is_changed) in [(b"id,text\n1,A\n", true), (b"id,text\n1,a\n", false)] {
            let file = file(b"id,text\n1,a\n");
            let known = InputFile::look(file.path()).expect("it is there");
            let time = file.as_file().metadata().expect("it is there").modified().expect("a time");
            let input = CsvInput { known: Some(known), ..CsvInput::new(file.path()) };
            let input = vec![input];
            let opened = CsvSource::<Pair>::open(input, &dialect(), &[], Empty::Refused).await;
            let mut source = opened.expect("it can be read");
            let Ok(Read::Needs(_)) = source.read(room(1, 2)).await else { panic!("it is read") };
            std::fs::write(file.path(), bytes).expect("it is written");
            file.as_file().set_modified(time).expect("the time is set");
            let others = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(file.path(), others).expect("they are set");
            match source.read(room(9, 100)).await {
                Ok(Read::Batch(batch)) => assert_eq!((batch.items.len(), is_changed), (1, false)),
                Err(error) => {
                    assert!(
                        is_changed && error.to_string().contains("its time set back"),
                        "{error}"
                    )
                }
                Ok(other) => panic!("{other:?}"),
            }
        }
    }
}
