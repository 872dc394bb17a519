//! Look-up: which run the inputs belong to, by their content.
//!
//! ```text
//!                    content up to the committed byte
//! unfinished run --- equal -----------------------------> go on (also moved, copied)
//!        |      '--- equal, but shorter / longer than it was --> refused / refused unless accepted
//!        '---------- other content under the same path --> refused
//! complete run ----- equal, same size -------------------> done
//!            '------ equal, but longer ------------------> refused unless accepted: then a run of the added records
//! otherwise --------------------------------------------> a new run
//! ```
//!
//! - The first line that fits decides. Nothing is written.
//! - A file is read once at most. It is not read at all if its size, device, inode and times are those of a complete input and no
//!   unfinished run could be meant. To go on, it is always read up to the committed byte: the state of the hash is needed.
//! - An input of which no record was settled is known by its path: there is no content to tell it by, and nothing to lose. One that
//!   its run began in the middle of is known by what comes before.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use gegendruck::{Lines, Position};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::ledger::{count, position};
use crate::{
    Accept, Decision, Done, Fingerprint, GoOn, InputError, InputFile, Ledger, LedgerError,
    LookUpError, PipelineIdentity, Refusal, ResumePoint, RunInfo, RunState, fingerprint, prefixes,
    query, quoted,
};

/// An input of an earlier run.
#[derive(Debug)]
struct Known {
    run: usize,
    file: InputFile,
    start: Position,
    at: Position,
    lines: Lines,
    fingerprint: u128,
    complete: bool,
}

impl Known {
    /// False if no record of it was settled by its run.
    fn has_records(&self) -> bool {
        self.at.record > self.start.record
    }
}

/// What an input turned out to be.
enum Found {
    New(InputFile),
    /// The input `known` of an unfinished run.
    Unfinished {
        known: usize,
        point: ResumePoint,
        accepted: Option<String>,
    },
    Done {
        known: usize,
        file: InputFile,
    },
    /// A complete input that has grown.
    Grown {
        point: ResumePoint,
    },
}

/// A file with the fingerprints of its beginnings, up to each byte that an earlier run had reached.
struct Looked {
    file: InputFile,
    prints: BTreeMap<u64, Fingerprint>,
    /// A complete input that it is, judged from outside.
    unchanged: Option<usize>,
}

struct Past {
    runs: Vec<RunInfo>,
    known: Vec<Known>,
}

impl Ledger {
    /// Decides what to do with the inputs at `paths`, which are to be imported by `pipeline`.
    ///
    /// # Errors
    /// The import is refused, or cannot be decided: among others, for a damaged ledger. Nothing was changed.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn look_up(
        &mut self,
        pipeline: &PipelineIdentity,
        paths: &[PathBuf],
        accept: Accept,
    ) -> Result<Decision, LookUpError> {
        self.check().await?;
        let past = self.past(&pipeline.pipeline).await?;
        let mut found = Vec::with_capacity(paths.len());
        for path in paths {
            let file = InputFile::look(path)?;
            let looked = look(file, &past, pipeline).await?;
            found.push(past.judge(looked, pipeline, accept)?);
        }
        let decision = past.decide(found, pipeline, accept)?;
        self.check_tables(&decision, &past).await?;
        Ok(decision)
    }

    async fn past(&mut self, pipeline: &str) -> Result<Past, LedgerError> {
        let failed = self.failed("reading the runs");
        let rows = sqlx::query("SELECT * FROM gegendruck_runs WHERE pipeline = ? ORDER BY number")
            .bind(pipeline)
            .fetch_all(self.connection().await?)
            .await
            .map_err(&failed)?;
        let runs =
            rows.iter().map(query::run_info).collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        let mut known = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let rows = sqlx::query(self.inputs_of_a_run())
                .bind(&run.run)
                .fetch_all(self.connection().await?)
                .await
                .map_err(&failed)?;
            for row in &rows {
                known.push(known_input(row, index).map_err(&failed)?);
            }
        }
        Ok(Past { runs, known })
    }

    /// Rows that were stored must still be there: a table that is gone or empty is not what the ledger describes.
    async fn check_tables(&mut self, decision: &Decision, past: &Past) -> Result<(), LookUpError> {
        let runs: Vec<&str> = match decision {
            Decision::New { .. } => Vec::new(),
            Decision::GoOn(go_on) => vec![&go_on.run],
            Decision::AlreadyDone(done) => done.iter().map(|done| done.run.as_str()).collect(),
        };
        for run in
            past.runs.iter().filter(|run| runs.contains(&run.run.as_str()) && run.tally.stored > 0)
        {
            let failed = self.failed("looking at the table");
            let table = run.pipeline.table.clone();
            let (run, stored) = (run.run.clone(), run.tally.stored);
            let exists: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ? COLLATE NOCASE)",
            )
            .bind(&table)
            .fetch_one(self.connection().await?)
            .await
            .map_err(&failed)?;
            if !exists {
                return Err(Refusal::TableMissing { run, table, stored }.into());
            }
            let any: bool =
                sqlx::query_scalar(&format!("SELECT EXISTS (SELECT 1 FROM {})", quoted(&table)))
                    .fetch_one(self.connection().await?)
                    .await
                    .map_err(&failed)?;
            if !any {
                return Err(Refusal::TableEmpty { run, table, stored }.into());
            }
        }
        Ok(())
    }
}

fn known_input(row: &SqliteRow, run: usize) -> Result<Known, sqlx::Error> {
    let path: String = row.try_get("path")?;
    let print: String = row.try_get("fingerprint")?;
    let bits = |column: &str| row.try_get::<i64, _>(column).map(i64::cast_unsigned);
    Ok(Known {
        run,
        file: InputFile {
            path: path.into(),
            device: bits("device")?,
            inode: bits("inode")?,
            size: count(row, "size")?,
            mtime: row.try_get("mtime")?,
            ctime: row.try_get("ctime")?,
        },
        start: position(row, ["input", "start_byte", "start_record", "start_line"])?,
        at: position(row, ["input", "byte", "record", "line"])?,
        lines: query::lines(row)?,
        fingerprint: fingerprint::parse(&print).unwrap_or_default(),
        complete: row.try_get::<i64, _>("complete")? != 0,
    })
}

/// Reads as much of a file as the look-up needs.
async fn look(
    file: InputFile,
    past: &Past,
    pipeline: &PipelineIdentity,
) -> Result<Looked, InputError> {
    let finished = |known: &Known| past.runs[known.run].state == RunState::Complete;
    let reached = |known: &&Known| {
        known.has_records() && known.at.byte <= file.size || known.file.path == file.path
    };
    let unfinished =
        past.known.iter().filter(|known| !finished(known)).any(|known| reached(&known));
    let unchanged = past.known.iter().rposition(|known| {
        finished(known)
            && past.runs[known.run].pipeline.has_table_of(pipeline)
            && known.file.is_unchanged(&file)
    });
    if let (Some(_), false) = (unchanged, unfinished) {
        return Ok(Looked { file, prints: BTreeMap::new(), unchanged });
    }
    let mut ends: Vec<u64> =
        past.known.iter().map(|known| known.at.byte).filter(|end| *end <= file.size).collect();
    ends.sort_unstable();
    ends.dedup();
    if ends.is_empty() {
        return Ok(Looked { file, prints: BTreeMap::new(), unchanged: None });
    }
    let path = file.path.clone();
    let hashing = tokio::task::spawn_blocking(move || {
        prefixes(&path, &ends)
            .map(|prints| ends.into_iter().zip(prints).collect::<BTreeMap<_, _>>())
    });
    let prints = match hashing.await {
        Ok(prints) => prints?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    Ok(Looked { file, prints, unchanged: None })
}

impl Past {
    fn run(&self, known: &Known) -> &RunInfo {
        &self.runs[known.run]
    }

    fn is_unfinished(&self, known: &Known) -> bool {
        self.run(known).state != RunState::Complete
    }

    /// The inputs of earlier runs that satisfy a condition, the latest first.
    fn latest<'a>(
        &'a self,
        fits: impl Fn(&Known) -> bool + 'a,
    ) -> impl Iterator<Item = (usize, &'a Known)> + 'a {
        self.known.iter().enumerate().rev().filter(move |(_, known)| fits(known))
    }

    fn judge(
        &self,
        looked: Looked,
        pipeline: &PipelineIdentity,
        accept: Accept,
    ) -> Result<Found, LookUpError> {
        let Looked { file, prints, unchanged } = &looked;
        if let Some(known) = *unchanged {
            return Ok(Found::Done { known, file: file.clone() });
        }
        let print = |known: &Known| {
            prints.get(&known.at.byte).filter(|print| print.value() == known.fingerprint)
        };
        let begins_with = |known: &Known| print(known).is_some();
        let into_table = |known: &Known| self.run(known).pipeline.has_table_of(pipeline);
        let unfinished = |known: &Known| self.is_unfinished(known) && into_table(known);
        let complete = |known: &Known| !self.is_unfinished(known) && into_table(known);

        // The very file that a run has begun with, and nothing of it was settled: to that run it is this input and no other,
        // however much of it is equal to one that was read before it.
        let own = |known: &Known| {
            unfinished(known)
                && !known.has_records()
                && known.file.path == file.path
                && known.file.is_unchanged(file)
        };
        let own = self.latest(own).next().map(|(_, known)| known.run);

        // Equal to an unfinished input, by content.
        let mut equal: Vec<(usize, &Known)> = self
            .latest(|known| unfinished(known) && known.has_records() && begins_with(known))
            .filter(|(_, known)| Some(known.run) != own)
            .collect();
        equal
            .sort_by_key(|(_, known)| (known.file.size != file.size, known.file.path != file.path));
        // Equal to a complete input.
        let whole = |known: &Known| known.at.byte == file.size && begins_with(known);
        let told = |known: &Known| known.has_records() || known.file.path == file.path;
        let done = self.latest(|known| complete(known) && whole(known) && told(known)).next();
        let imported = done.is_some_and(|(_, known)| known.has_records());
        // What a run began in the middle of has a beginning that another run has read: it is known by that.
        let begun_inside = |known: &Known| {
            unfinished(known)
                && !known.has_records()
                && known.start.byte > 0
                && (known.file.path == file.path || known.file.size == file.size)
                && begins_with(known)
                && !imported
        };
        let by_content = equal.first().copied().or_else(|| self.latest(begun_inside).next());
        if let Some((index, known)) = by_content
            && let Some(print) = print(known)
        {
            return self.go_on(index, known, print.clone(), file, accept);
        }
        // The same path, or else the same name and size, and other content or nothing settled yet. Of several the one that it was:
        // moved on the disk, else copied with its folders.
        let here = |known: &Known| unfinished(known) && known.file.path == file.path;
        let moved = |known: &Known| {
            unfinished(known)
                && !known.has_records()
                && known.file.path.file_name() == file.path.file_name()
                && known.file.size == file.size
        };
        let unlike = |(_, known): &(usize, &Known)| {
            let file_now = (file.device, file.inode, file.mtime);
            let same_file = (known.file.device, known.file.inode, known.file.mtime) == file_now;
            (!same_file, Reverse(common_end(&known.file.path, &file.path)))
        };
        let named = self.latest(here).next().or_else(|| self.latest(moved).min_by_key(unlike));
        // A run that has settled nothing of its only input has no claim on it once it was imported under another name.
        let alone = |of: &Known| self.known.iter().filter(|known| known.run == of.run).count() == 1;
        let idle = |known: &Known| !known.has_records() && alone(known);
        if let Some((index, known)) = named.filter(|(_, known)| !(imported && idle(known))) {
            return self.other_content(index, known, print(known).cloned(), file);
        }
        if let Some((known, _)) = done {
            return Ok(Found::Done { known, file: file.clone() });
        }
        // Equal to an unfinished input of another table.
        let elsewhere = |known: &Known| self.is_unfinished(known) && !into_table(known);
        if let Some((_, known)) = self
            .latest(|known| elsewhere(known) && known.has_records() && begins_with(known))
            .next()
        {
            let run = self.run(known);
            return Err(Refusal::PipelineChanged {
                run: run.run.clone(),
                differences: difference("table", &pipeline.table, &run.pipeline.table),
                remedy: "go on with the table that it began with",
            }
            .into());
        }
        // A complete input that has grown; of several, the longest.
        let grown = self
            .latest(|known| {
                complete(known)
                    && known.has_records()
                    && known.at.byte < file.size
                    && begins_with(known)
            })
            .max_by_key(|(_, known)| known.at.byte);
        if let Some((_, known)) = grown
            && let Some(print) = print(known)
        {
            if !accept.grown {
                return Err(self.has_grown(known, file).into());
            }
            let mut point = self.after_growth(known, print.clone(), file)?;
            // What lies before the new run's start is another run's.
            (point.start, point.lines) = (point.at, Lines::default());
            return Ok(Found::Grown { point });
        }
        Ok(Found::New(file.clone()))
    }

    fn has_grown(&self, known: &Known, file: &InputFile) -> Refusal {
        Refusal::InputGrown {
            path: file.path.clone(),
            run: self.run(known).run.clone(),
            found: file.size,
            expected: known.file.size,
        }
    }

    fn was_truncated(&self, known: &Known, file: &InputFile, same: bool) -> Refusal {
        Refusal::InputTruncated {
            path: file.path.clone(),
            run: self.run(known).run.clone(),
            found: file.size,
            expected: known.file.size,
            committed: known.at.byte,
            same,
        }
    }

    /// Goes on with an unfinished input whose committed part is there.
    fn go_on(
        &self,
        index: usize,
        known: &Known,
        print: Fingerprint,
        file: &InputFile,
        accept: Accept,
    ) -> Result<Found, LookUpError> {
        let (found, expected) = (file.size, known.file.size);
        if found < expected {
            return Err(self.was_truncated(known, file, true).into());
        }
        if found == expected {
            let point = known.point(file, print);
            return Ok(Found::Unfinished { known: index, point, accepted: None });
        }
        if !accept.grown {
            return Err(self.has_grown(known, file).into());
        }
        let accepted = Some(format!(
            "{} has grown from {expected} to {found} bytes: accepted",
            file.path.display()
        ));
        let point = self.after_growth(known, print, file)?;
        Ok(Found::Unfinished { known: index, point, accepted })
    }

    /// An unfinished input by its name only: refused, unless nothing of it was settled.
    fn other_content(
        &self,
        index: usize,
        known: &Known,
        print: Option<Fingerprint>,
        file: &InputFile,
    ) -> Result<Found, LookUpError> {
        if !known.has_records() && known.start.byte == 0 {
            let point = match print {
                Some(print) if known.file.size == file.size => known.point(file, print),
                _ => ResumePoint {
                    start: known.start,
                    ..ResumePoint::begin(known.at.input, file.clone())
                },
            };
            return Ok(Found::Unfinished { known: index, point, accepted: None });
        }
        let committed = known.at.byte;
        if file.size < committed {
            return Err(self.was_truncated(known, file, false).into());
        }
        let (path, run) = (file.path.clone(), self.run(known).run.clone());
        Err(Refusal::InputReplaced { path, run, committed }.into())
    }

    /// Where the part begins that is not committed of an input that has grown.
    ///
    /// The last record may have had no line end when it was taken: then the line end belongs to it, and anything else means that
    /// the record itself has grown.
    fn after_growth(
        &self,
        known: &Known,
        mut print: Fingerprint,
        file: &InputFile,
    ) -> Result<ResumePoint, LookUpError> {
        let (before, after) = around(&file.path, known.at.byte)
            .map_err(|source| InputError::Unreadable { path: file.path.clone(), source })?;
        let mut point = known.point(file, Fingerprint::new());
        if !matches!(before, Some(b'\n' | b'\r')) {
            let line_end: &[u8] = match after.as_slice() {
                [b'\r', b'\n', ..] => b"\r\n",
                [b'\n', ..] => b"\n",
                [b'\r', ..] => b"\r",
                _ => {
                    let (path, run) = (point.file.path, self.run(known).run.clone());
                    return Err(Refusal::InputGrownInRecord { path, run }.into());
                }
            };
            print.update(line_end);
            point.at.byte += line_end.len() as u64;
        }
        point.fingerprint = print;
        point.complete = false;
        Ok(point)
    }

    fn decide(
        &self,
        found: Vec<Found>,
        pipeline: &PipelineIdentity,
        accept: Accept,
    ) -> Result<Decision, Refusal> {
        let mut skipped = Vec::new();
        let mut fresh = Vec::new();
        let mut going_on: BTreeMap<usize, (ResumePoint, Option<String>)> = BTreeMap::new();
        let mut run: Option<usize> = None;
        for found in found {
            match found {
                Found::New(file) => fresh.push(ResumePoint::begin(0, file)),
                Found::Grown { point } => fresh.push(point),
                Found::Done { known, file } => {
                    skipped.push(self.done(&self.known[known], file, pipeline))
                }
                Found::Unfinished { known, point, accepted } => {
                    let this = self.known[known].run;
                    if let Some(other) = run.filter(|run| *run != this) {
                        let name = |index: usize| self.runs[index].run.clone();
                        return Err(Refusal::TwoRuns { one: name(other), other: name(this) });
                    }
                    run = Some(this);
                    let path = point.file.path.clone();
                    if let Some((first, _)) = going_on.insert(known, (point, accepted)) {
                        let (one, other) = (first.file.path, path);
                        let known = &self.known[known];
                        if known.has_records() {
                            return Err(Refusal::SameContent { one, other });
                        }
                        let (path, run) = (known.file.path.clone(), self.run(known).run.clone());
                        return Err(Refusal::Ambiguous { one, other, path, run });
                    }
                }
            }
        }
        let Some(run) = run else {
            if fresh.is_empty() && !skipped.is_empty() {
                return Ok(Decision::AlreadyDone(skipped));
            }
            number(&mut fresh, 0);
            return Ok(Decision::New { inputs: fresh, skipped });
        };
        let info = self.runs[run].clone();
        let mut accepted: Vec<String> = Vec::new();
        let differences = differences(pipeline, &info.pipeline);
        if !differences.is_empty() {
            let differences = differences.join("; ");
            if !accept.changed {
                let remedy =
                    "start again with those, or apply yours to the rest with --accept-changed";
                return Err(Refusal::PipelineChanged { run: info.run, differences, remedy });
            }
            accepted.push(format!("from here on other settings: {differences}: accepted"));
        }
        let mut inputs = Vec::new();
        for (index, known) in self.known.iter().enumerate().filter(|(_, known)| known.run == run) {
            match going_on.remove(&index) {
                Some((point, words)) => {
                    accepted.extend(words);
                    inputs.push(point);
                }
                // What is complete need not be there any more.
                None if known.complete => {}
                None => {
                    return Err(Refusal::InputMissing {
                        run: info.run,
                        path: known.file.path.clone(),
                    });
                }
            }
        }
        number(&mut fresh, self.known.iter().filter(|known| known.run == run).count());
        inputs.extend(fresh);
        let pipeline = pipeline.clone();
        Ok(Decision::GoOn(Box::new(GoOn {
            run: info.run.clone(),
            info,
            pipeline,
            inputs,
            skipped,
            accepted,
        })))
    }

    fn done(&self, known: &Known, file: InputFile, pipeline: &PipelineIdentity) -> Done {
        let run = self.run(known);
        Done {
            run: run.run.clone(),
            exit_code: run.exit_code.unwrap_or_default(),
            other_path: (known.file.path != file.path).then(|| known.file.path.clone()),
            differences: differences(pipeline, &run.pipeline),
            path: file.path,
        }
    }
}

impl Known {
    fn point(&self, file: &InputFile, fingerprint: Fingerprint) -> ResumePoint {
        let Known { start, at, lines, complete, .. } = self;
        ResumePoint {
            input: at.input,
            file: file.clone(),
            start: *start,
            at: *at,
            lines: *lines,
            fingerprint,
            complete: *complete,
        }
    }
}

/// How many names two paths have in common at their ends.
fn common_end(one: &Path, other: &Path) -> usize {
    one.components().rev().zip(other.components().rev()).take_while(|(a, b)| a == b).count()
}

fn number(inputs: &mut [ResumePoint], from: usize) {
    for (index, input) in inputs.iter_mut().enumerate() {
        let number = u32::try_from(from + index).unwrap_or(u32::MAX);
        (input.input, input.start.input, input.at.input) = (number, number, number);
    }
}

fn difference(name: &str, found: &str, expected: &str) -> String {
    format!("{name} {found}, expected {expected}")
}

/// How two pipelines of one name differ: what is found now, and what the run expects.
fn differences(found: &PipelineIdentity, expected: &PipelineIdentity) -> Vec<String> {
    let (rules, expected_rules) = (found.rules.to_string(), expected.rules.to_string());
    [
        ("rules", &rules, &expected_rules),
        (
            "table",
            &found.table,
            if found.has_table_of(expected) { &found.table } else { &expected.table },
        ),
        ("dialect", &found.dialect, &expected.dialect),
        ("mapping", &found.mapping, &expected.mapping),
        ("on-conflict", &found.conflict, &expected.conflict),
    ]
    .into_iter()
    .filter(|(_, found, expected)| found != expected)
    .map(|(name, found, expected)| difference(name, found, expected))
    .collect()
}

/// The byte before a place in a file, and the two behind it.
fn around(path: &Path, at: u64) -> std::io::Result<(Option<u8>, Vec<u8>)> {
    let mut file = std::fs::File::open(path)?;
    let from = at.saturating_sub(1);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(at - from + 2).read_to_end(&mut bytes)?;
    let after = bytes.split_off((at - from) as usize);
    Ok((bytes.pop(), after))
}
