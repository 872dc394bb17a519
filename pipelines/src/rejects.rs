//! `nightly-import rejects`: dead letters, listed, shown, exported.
//!
//! - However many there are, they are read and written one by one.
//! - What is exported is the record as its input has it, or it is left out and named: never a part of one.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use futures::TryStreamExt;
use futures::stream::BoxStream;
use gegendruck::thousands;
use gegendruck_checkpoints::{AttemptInfo, InputInfo, Ledger, LedgerError, RejectInfo, RunInfo};
use serde_json::json;

use crate::Output;
use crate::cli::{RejectsArgs, RejectsCommand};
use crate::exit::{Exit, Refused, shell_word};
use crate::files::NewFile;
use crate::outputs::refuse_clash;
use crate::run::refused;
use crate::status::{find, ledger, target};
use crate::summary::counted;

/// Rejects that `list` shows one by one.
const LISTED: usize = 20;

/// Rejects that an export leaves out and names one by one.
const NAMED: u64 = 20;

/// The column that an export has and the inputs have not: the number of the reject.
const NEW: &str = "reject_id";

/// Does what is asked.
///
/// # Errors
/// There are none, or they cannot be read or written.
pub async fn rejects(command: &RejectsCommand) -> Result<Exit, Refused> {
    match command {
        RejectsCommand::List { which, json } => list(which, *json).await,
        RejectsCommand::Show { id, target } => {
            let mut ledger = ledger(&self::target(target)?.leaving_nothing()).await?;
            show(&mut ledger, *id).await
        }
        RejectsCommand::Export { which, out } => export(which, out.as_deref()).await,
    }
}

async fn list(which: &RejectsArgs, json: bool) -> Result<Exit, Refused> {
    let mut ledger = ledger(&target(&which.target)?.leaving_nothing()).await?;
    let run = find(&mut ledger, which.run.as_deref()).await?;
    if json {
        return list_as_json(&mut ledger, &run.run).await;
    }
    let kinds = ledger.rejects_by_kind(&run.run).await.map_err(refused)?;
    let mut rejects = ledger.rejects(Some(&run.run)).await.map_err(refused)?;
    let mut text = format!("run {}: {}\n", run.run, counted(run.tally.rejected, "reject"));
    for (column, kind, count) in &kinds {
        text.push_str(&format!(
            "{:>9}  {:18} {kind}\n",
            thousands(*count),
            column.as_deref().unwrap_or("-")
        ));
    }
    let mut shown = 0;
    while let Some(reject) = rejects.try_next().await.map_err(refused)? {
        if shown == LISTED {
            text.push_str("… export writes all of them; show ID shows one with its source bytes\n");
            break;
        }
        let column = reject.column.as_ref().map_or(String::new(), |column| format!("{column} "));
        let detail =
            if reject.detail.is_empty() { String::new() } else { format!(": {}", reject.detail) };
        text.push_str(&format!(
            "{:>9}  {} {}: {column}{}{detail}\n",
            reject.reject, reject.at, reject.stage, reject.kind
        ));
        shown += 1;
    }
    crate::print(&text);
    Ok(Exit::Complete)
}

/// Prints all rejects of a run as one JSON document, in the form of `{:#}`.
async fn list_as_json(ledger: &mut Ledger, run: &str) -> Result<Exit, Refused> {
    let failed = |error| unwritten(None, &error);
    let mut rejects = ledger.rejects(Some(run)).await.map_err(refused)?;
    let mut writer = BufWriter::new(Output::default());
    writer.write_all(b"{\n  \"rejects\": [").map_err(failed)?;
    let (mut before, mut end) = ("\n", "]");
    while let Some(reject) = rejects.try_next().await.map_err(refused)? {
        // A line end in a text is written as two other characters: those that are found are between values.
        let text = format!("{:#}", json!(reject)).replace('\n', "\n    ");
        write!(writer, "{before}    {text}").map_err(failed)?;
        if writer.get_ref().closed {
            return Ok(Exit::Complete);
        }
        (before, end) = (",\n", "\n  ]");
    }
    write!(writer, "{end},\n  \"run\": {},\n  \"schema\": 1\n}}\n", json!(run))
        .and_then(|()| writer.flush())
        .map_err(failed)?;
    Ok(Exit::Complete)
}

async fn show(ledger: &mut Ledger, id: i64) -> Result<Exit, Refused> {
    let Some(reject) = ledger.reject(id).await.map_err(refused)? else {
        return Err(Refused::usage(format!(
            "there is no reject {id}; nightly-import rejects list shows those that there are"
        )));
    };
    let column = reject.column.as_deref().unwrap_or("-");
    let fault = reject
        .fault_byte
        .map_or(String::new(), |byte| format!(", fault at byte {}", reject.at.byte + byte));
    let mut text = format!(
        "reject {} of run {}: {}, {}{fault}\nstage {}, column {column}, {}: {}\ntried {}, first {}, last {}\n",
        reject.reject,
        reject.run,
        reject.at,
        counted(reject.len, "byte"),
        reject.stage,
        reject.kind,
        reject.detail,
        counted(reject.attempts, "time"),
        reject.first,
        reject.last
    );
    match &reject.bytes {
        Some(bytes) => {
            let kept = bytes.len() as u64;
            let cut = if kept < reject.len {
                format!(" (the first {})", counted(kept, "byte"))
            } else {
                String::new()
            };
            text.push_str(&format!("source bytes{cut}:\n{}\n", bytes.escape_ascii()));
        }
        None => text.push_str("its source bytes were purged\n"),
    }
    crate::print(&text);
    Ok(Exit::Complete)
}

async fn export(which: &RejectsArgs, out: Option<&Path>) -> Result<Exit, Refused> {
    let mut ledger = ledger(&target(&which.target)?.leaving_nothing()).await?;
    let run = find(&mut ledger, which.run.as_deref()).await?;
    if let Some(out) = out {
        let inputs = run.inputs.iter().map(|input| Path::new(&input.path));
        refuse_clash("--out", out, inputs, Some(ledger.target()))?;
    }
    let attempts = ledger.attempts(&run.run).await.map_err(refused)?;
    let form = Form::of(&run, attempts.last());
    let failed = |error: io::Error| unwritten(out, &error);
    let mut file = out.map(NewFile::create).transpose().map_err(failed)?;
    let mut output = Output::default();
    let sink: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => &mut output,
    };
    let mut writer = BufWriter::new(sink);
    match &form.header {
        Ok(header) => writeln!(writer, "{header}").map_err(failed)?,
        Err(why) => tell(&format!("{why}, and the export has none")),
    }
    let rejects = ledger.rejects(Some(&run.run)).await.map_err(refused)?;
    let exported = write_records(rejects, &run, &form.delimiter, &mut writer, failed).await?;
    writer.flush().map_err(failed)?;
    drop(writer);
    if let Some(file) = file {
        file.finish().map_err(failed)?;
    }
    let words = exported.words(&run, out);
    match out {
        Some(_) => crate::print(&format!("{words}\n")),
        None if exported.left_out() > 0 => tell(&words),
        None => {}
    }
    if let Some(words) = form.import.filter(|_| exported.written > 0) {
        tell(&words);
    }
    Ok(if exported.left_out() > 0 { Exit::Rejects } else { Exit::Complete })
}

/// How an export is written: as the inputs of its run are, with a column more.
struct Form {
    delimiter: String,
    /// Its first line, or why it has none.
    header: Result<String, &'static str>,
    /// What to change of the run's flags to import it, if not only the new column is to be ignored.
    import: Option<String>,
}

impl Form {
    fn of(run: &RunInfo, last: Option<&AttemptInfo>) -> Form {
        let setting = |name: &str| {
            let value = last.and_then(|attempt| attempt.settings[name]["value"].as_str());
            value.unwrap_or_default()
        };
        let delimiter = match setting("delimiter") {
            "tab" | "\\t" => "\t",
            "" => ",",
            other => other,
        };
        let has_none = setting("no-header") == "true";
        let header = if has_none {
            let end = if setting("trailing-delimiter") == "true" { delimiter } else { "" };
            let columns = columns(run).ok_or("the columns of the inputs are not known");
            columns.map(|columns| columns.replace(',', delimiter) + end)
        } else {
            let known = Some(setting("header")).filter(|line| !line.is_empty());
            known.map(str::to_string).ok_or("the inputs have different header lines")
        };
        let skips = !["", "0"].contains(&setting("skip-lines"));
        let import = import(has_none, skips, setting("ignore-columns"));
        Form {
            delimiter: delimiter.into(),
            import: import.filter(|_| header.is_ok()),
            header: header.map(|header| format!("{NEW}{delimiter}{header}")),
        }
    }
}

/// What to change of a run's flags to import its export, where that has other lines before its records than the run's inputs.
fn import(has_no_header: bool, skips_lines: bool, ignored: &str) -> Option<String> {
    let flags = match (has_no_header, skips_lines) {
        (true, true) => "--no-header and --skip-lines",
        (true, false) => "--no-header",
        (false, true) => "--skip-lines",
        (false, false) => return None,
    };
    let ignored = if ignored.is_empty() { NEW.into() } else { format!("{ignored},{NEW}") };
    let ignored = shell_word(&ignored);
    Some(format!("to import the export, leave out {flags}, and give --ignore-columns {ignored}"))
}

/// The columns of a run whose inputs have no header line, in their order, as its mapping names them.
fn columns(run: &RunInfo) -> Option<&str> {
    let (columns, _) = run.pipeline.mapping.strip_prefix("columns ")?.split_once(" ignoring ")?;
    Some(columns)
}

/// How many rejects an export has, and how many it has not.
#[derive(Default)]
struct Exported {
    written: u64,
    cut_off: u64,
    purged: u64,
}

impl Exported {
    fn left_out(&self) -> u64 {
        self.cut_off + self.purged
    }

    fn words(&self, run: &RunInfo, out: Option<&Path>) -> String {
        let to = out.map_or(String::new(), |out| format!(" to {}", out.display()));
        let written = counted(self.written, "reject");
        let mut words = format!("{written} of run {} written{to}", run.run);
        if self.left_out() > 0 {
            words.push_str(&format!(
                ", {} left out ({} cut off, {} purged): take each of them from the input file, at its byte",
                thousands(self.left_out()),
                thousands(self.cut_off),
                thousands(self.purged)
            ));
        }
        words
    }
}

/// Writes all records that the ledger has as a whole, each behind its number, and names the first ones of the others.
async fn write_records(
    mut rejects: BoxStream<'_, Result<RejectInfo, LedgerError>>,
    run: &RunInfo,
    delimiter: &str,
    writer: &mut impl Write,
    failed: impl Fn(io::Error) -> Refused + Copy,
) -> Result<Exported, Refused> {
    let mut exported = Exported::default();
    while let Some(reject) = rejects.try_next().await.map_err(refused)? {
        let whole = reject.bytes.as_ref().filter(|bytes| bytes.len() as u64 >= reject.len);
        if let Some(bytes) = whole {
            write!(writer, "{}{delimiter}", reject.reject).map_err(failed)?;
            writer.write_all(bytes).and_then(|()| writer.write_all(b"\n")).map_err(failed)?;
            exported.written += 1;
            continue;
        }
        match &reject.bytes {
            Some(_) => exported.cut_off += 1,
            None => exported.purged += 1,
        }
        if exported.left_out() <= NAMED {
            tell(&why_left_out(&reject, run));
        }
    }
    if let Some(more) = exported.left_out().checked_sub(NAMED).filter(|more| *more > 0) {
        let more = thousands(more);
        tell(&format!(
            "… and {more} more; nightly-import rejects list --json has the position of each"
        ));
    }
    Ok(exported)
}

/// Which reject is left out, where it is, and how much of it there is.
fn why_left_out(reject: &RejectInfo, run: &RunInfo) -> String {
    let is_its = |input: &&InputInfo| input.at.input == reject.at.input;
    let path = run.inputs.iter().find(is_its).map_or("its input", |input| input.path.as_str());
    let len = counted(reject.len, "byte");
    let why = match &reject.bytes {
        Some(bytes) => format!("{} of its {len} are kept", thousands(bytes.len() as u64)),
        None => format!("its bytes were purged ({len})"),
    };
    format!("reject {}, {} of {path}, is left out: {why}", reject.reject, reject.at)
}

fn unwritten(out: Option<&Path>, error: &io::Error) -> Refused {
    let path = out.map_or(String::new(), |path| format!("{}: ", path.display()));
    Refused::failed(format!("{path}the rejects cannot be written: {error}"))
}

/// Says something on standard error, which nobody needs to read.
fn tell(words: &str) {
    drop(writeln!(io::stderr().lock(), "nightly-import: {words}"));
}
