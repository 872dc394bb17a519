//! What a run came to: for people on standard output, for programs as JSON or CSV.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use gegendruck::{Lines, Report, Tally, Verdict, thousands};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::exit::{Exit, Refused};
use crate::files::NewFile;
use crate::outputs::Kind;

/// Version of the documents.
const SCHEMA: u32 = 1;

/// What a run came to, whatever happened.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Version of this document.
    pub schema: u32,
    /// The exit code.
    pub exit: u8,
    /// The same in words.
    pub state: &'static str,
    /// The run, if one was begun, or had done all of it before.
    pub run: Option<String>,
    /// True if nothing was left to do: `run` had imported the inputs before.
    pub already_done: bool,
    /// The pipeline.
    pub pipeline: String,
    /// The inputs with their sizes in bytes.
    pub inputs: Vec<(String, Option<u64>)>,
    /// The target.
    pub target: String,
    /// The table.
    pub table: String,
    /// When this attempt began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How often the run was started.
    pub attempts: u64,
    /// Lines of the inputs, from where the run began in them up to what is committed.
    pub lines: u64,
    /// Those that are no records.
    pub other_lines: Lines,
    /// Verdicts of all records committed, over all attempts.
    pub total: Tally,
    /// Verdicts of the records committed by this attempt.
    pub attempt: Tally,
    /// Where the time of this attempt went.
    pub report: Option<Report>,
    /// The bottleneck.
    pub verdict: Option<Verdict>,
    /// Rejects by column and kind, most first.
    pub rejects: Vec<RejectCount>,
    /// What an operator must know: why it ended early, and what to do.
    pub message: Option<String>,
    /// The command that goes on.
    pub go_on: Option<String>,
    /// The command that writes the rejects.
    pub export: Option<String>,
}

/// How many rejects there are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectCount {
    /// The column, if it is one column's fault.
    pub column: Option<String>,
    /// The kind.
    pub kind: String,
    /// How many.
    pub count: u64,
}

impl Summary {
    /// A summary of a run that was not even begun.
    pub fn new(pipeline: &str, started: Timestamp) -> Summary {
        Summary {
            schema: SCHEMA,
            exit: Exit::Internal.code(),
            state: Exit::Internal.words(),
            run: None,
            already_done: false,
            pipeline: pipeline.into(),
            inputs: Vec::new(),
            target: String::new(),
            table: String::new(),
            started,
            ended: started,
            attempts: 0,
            lines: 0,
            other_lines: Lines::default(),
            total: Tally::default(),
            attempt: Tally::default(),
            report: None,
            verdict: None,
            rejects: Vec::new(),
            message: None,
            go_on: None,
            export: None,
        }
    }

    /// Sets the exit code.
    pub fn ended(&mut self, exit: Exit) {
        self.exit = exit.code();
        self.state = exit.words();
        self.ended = Timestamp::now();
    }

    /// Refuses a path that no summary can or may be written to, before there is one to write.
    ///
    /// # Errors
    /// It is a directory, or in none, or a file that is no summary.
    pub fn can_be_at(path: &Path) -> Result<(), Refused> {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let may_be = if path.is_dir() {
            Err("is a directory; name a file in it".into())
        } else if folder.is_some_and(|folder| !folder.is_dir()) {
            Err("the folder is not there; create it, or name another file".into())
        } else {
            Kind::Summary.may_be_at(path)
        };
        may_be.map_err(|what| Refused::usage(format!("--summary {}: {what}", path.display())))
    }

    /// Writes the summary to `path`; a reader never sees half of it. It takes the place of nothing but another summary.
    ///
    /// # Errors
    /// The file cannot be written, or is something else.
    pub fn write(&self, path: &Path) -> Result<(), Refused> {
        Kind::Summary.may_be_at(path).map_err(|what| {
            Refused::failed(format!("--summary {}: {what}: it was left as it is", path.display()))
        })?;
        let failed = |error: std::io::Error| {
            Refused::failed(format!("{}: the summary cannot be written: {error}", path.display()))
        };
        let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let document = if is_csv { self.csv() } else { self.json() }.map_err(failed)?;
        let mut file = NewFile::create(path).map_err(failed)?;
        file.write_all(&document).and_then(|()| file.finish()).map_err(failed)
    }

    fn json(&self) -> std::io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }

    /// A line of names, and one of values: what fits into one line of a table.
    fn csv(&self) -> std::io::Result<Vec<u8>> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let inputs: Vec<_> = self.inputs.iter().map(|(path, _)| path.as_str()).collect();
        let Tally { read, stored, updated, rejected, filtered, duplicate } = self.total;
        let fields = [
            ("schema", self.schema.to_string()),
            ("exit", self.exit.to_string()),
            ("state", self.state.into()),
            ("run", text(&self.run)),
            ("already_done", self.already_done.to_string()),
            ("pipeline", self.pipeline.clone()),
            ("inputs", inputs.join(" ")),
            ("target", self.target.clone()),
            ("table", self.table.clone()),
            ("started", self.started.to_string()),
            ("ended", self.ended.to_string()),
            ("attempts", self.attempts.to_string()),
            ("read", read.to_string()),
            ("stored", stored.to_string()),
            ("updated", updated.to_string()),
            ("rejected", rejected.to_string()),
            ("filtered", filtered.to_string()),
            ("duplicate", duplicate.to_string()),
            ("repaired", self.other_lines.repaired.to_string()),
            ("message", text(&self.message)),
            ("go_on", text(&self.go_on)),
        ];
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(fields.iter().map(|(name, _)| name))?;
        writer.write_record(fields.iter().map(|(_, value)| value))?;
        writer.into_inner().map_err(|error| error.into_error())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exit = Exit::from_code(i64::from(self.exit)).unwrap_or(Exit::Internal);
        let mut head = exit.to_string();
        if let Some(run) = &self.run {
            write!(head, "   run {run}")?;
        }
        let inputs: Vec<_> = self.inputs.iter().map(|(path, bytes)| input(path, *bytes)).collect();
        writeln!(f, "{head}   {} -> {}, table {}", inputs.join(", "), self.target, self.table)?;
        self.times(f)?;
        if self.run.is_some() {
            self.counts(f)?;
        }
        if let Some(report) = &self.report {
            writeln!(f, "{report}")?;
            calls(f, report)?;
        }
        self.reject_line(f)?;
        if let Some(message) = &self.message {
            writeln!(f, "{message}")?;
        }
        if let Some(command) = &self.go_on {
            writeln!(f, "go on with: {command}")?;
        }
        Ok(())
    }
}

impl Summary {
    fn times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = TimeZone::system();
        let local = |at: Timestamp| at.to_zoned(zone.clone());
        let (start, end) = (local(self.started), local(self.ended));
        let attempts = counted(self.attempts, "attempt");
        let took = self.ended.duration_since(self.started);
        let (start, end, offset) =
            (start.strftime("%H:%M:%S"), end.strftime("%H:%M:%S"), end.strftime("%:z"));
        writeln!(f, "{start} - {end} {offset}, {}, {attempts}", long_time(took))
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.total.read;
        let Lines { header, blank, trailer, repaired } = self.other_lines;
        let n = thousands;
        let inside = self.lines.saturating_sub(header + blank + trailer + read);
        let inside =
            if inside == 0 { String::new() } else { format!(" + within records {}", n(inside)) };
        writeln!(
            f,
            "lines {} = header {} + records {} + blank {} + trailer {}{inside} (no trailer given: end of file not confirmed)",
            n(self.lines),
            n(header),
            n(read),
            n(blank),
            n(trailer),
        )?;
        writeln!(f, "read  {}", self.total)?;
        if repaired > 0 {
            let records = counted(repaired, "record");
            writeln!(
                f,
                "repaired:   {records} taken with changed values, as --quotes lenient or --nul strip say"
            )?;
        }
        Ok(())
    }

    fn reject_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rejects.is_empty() {
            return Ok(());
        }
        const SHOWN: usize = 8;
        let one = |reject: &RejectCount| {
            let column =
                reject.column.as_ref().map_or(String::new(), |column| format!("{column} "));
            format!("{column}{} {}", reject.kind, thousands(reject.count))
        };
        let mut words = self.rejects.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ");
        if let Some(rest) = self.rejects.get(SHOWN..).filter(|rest| !rest.is_empty()) {
            let more: u64 = rest.iter().map(|reject| reject.count).sum();
            let kinds = counted(rest.len() as u64, "kind");
            write!(words, ", and {} more of {kinds}", thousands(more))?;
        }
        match &self.export {
            Some(command) => writeln!(f, "rejects:    {words}: {command}"),
            None => writeln!(f, "rejects:    {words}"),
        }
    }
}

/// How often the outside was asked, for the stages that do.
fn calls(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    for stage in report.stages.iter().filter(|stage| stage.kind == gegendruck::StageKind::Call) {
        let (calls, again) = (thousands(stage.claims), thousands(stage.retried));
        let records = counted(stage.records, "record");
        writeln!(f, "calls:      {} {calls} for {records}, {again} repeated", stage.name)?;
    }
    Ok(())
}

fn input(path: &str, bytes: Option<u64>) -> String {
    let name =
        Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into_owned());
    match bytes {
        None => name,
        Some(bytes) if bytes >= 10_000_000 => format!("{name} {} MB", bytes / 1_000_000),
        Some(bytes) if bytes >= 10_000 => format!("{name} {} KB", bytes / 1_000),
        Some(bytes) => format!("{name} {}", counted(bytes, "byte")),
    }
}

/// So many of something for a reader: `1 record`, `1,200 records`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// A duration for a reader: `16 min 41 s`, `2.4 s`.
pub fn long_time(duration: SignedDuration) -> String {
    let duration = Duration::try_from(duration).unwrap_or_default();
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
