//! The command line: its commands and their flags.
//!
//! Precedence: flag, then environment (`NIGHTLY_IMPORT_…`), then the file given by `--config`, then the default. A setting
//! that nobody knows is refused wherever it stands.

mod settings;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gegendruck::{Buffer, Bytes};

pub(crate) use self::settings::definition;
pub use self::settings::{ParseError, Setting, Settings, parse};
use self::words::{buffer, byte, duration, fault, named, quote, rate, reject_id, size};
use crate::exit::Exit;
use crate::generate::{FaultKind, Share};

/// Imports files into a database: goes on after a crash where it was, and names the bottleneck.
#[derive(Debug, Parser)]
#[command(
    name = "nightly-import",
    version,
    args_override_self = true,
    disable_help_subcommand = true
)]
#[command(after_help = format!("Exit codes: {}", Exit::list()))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Import; if an earlier run of the same input stopped, go on where it stopped.
    Run(RunArgs),
    /// Check input, columns and target without writing; print stages, bounds and settings of the run with these flags.
    Plan(RunArgs),
    /// List every error of the files that the first stages find, without target or service.
    Validate(ValidateArgs),
    /// Show the runs in a target.
    Status(StatusArgs),
    /// Show where the time of a running or finished run goes.
    Inspect(InspectArgs),
    /// Look at dead letters.
    Rejects {
        /// What to do with them.
        #[command(subcommand)]
        command: RejectsCommand,
    },
    /// Show the pipelines of this program with their stages.
    Pipelines,
    /// Write test input: the same bytes for the same arguments.
    Generate(GenerateArgs),
    /// Print the tables of ledger and pipelines, and what upgrades an older ledger.
    Ledger {
        /// What to print.
        #[command(subcommand)]
        command: LedgerCommand,
    },
}

/// Where rows go.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// The target database.
    #[arg(long, value_name = "URL", default_value = "sqlite:claims.db", env = "NIGHTLY_IMPORT_TO")]
    pub to: String,
}

/// Settings of `run` and `plan`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The pipeline; `nightly-import pipelines` lists them.
    pub pipeline: String,
    /// Files to import, in the order of their names.
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Where rows go.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A TOML file that holds any of these settings, by their long names.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The table to write (default: the pipeline's).
    #[arg(long, env = "NIGHTLY_IMPORT_TABLE")]
    pub table: Option<String>,
    /// Create nothing: no database, table or ledger; and do not upgrade an older ledger.
    #[arg(long, env = "NIGHTLY_IMPORT_NO_CREATE")]
    pub no_create: bool,
    /// What happens to a row whose key exists (default: the pipeline's).
    #[arg(long, value_enum, env = "NIGHTLY_IMPORT_ON_CONFLICT")]
    pub on_conflict: Option<OnConflict>,
    /// Most records in one transaction.
    #[arg(long, value_name = "N", default_value_t = 5_000, env = "NIGHTLY_IMPORT_BATCH_SIZE")]
    pub batch_size: u64,
    /// Most source bytes in one transaction.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size, env = "NIGHTLY_IMPORT_BATCH_BYTES")]
    pub batch_bytes: Bytes,
    /// Longest time between two commits.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, env = "NIGHTLY_IMPORT_COMMIT_INTERVAL")]
    pub commit_interval: Duration,
    /// How long to go on trying when the database is busy or away.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration, env = "NIGHTLY_IMPORT_RETRY_FOR")]
    pub retry_for: Duration,
    /// Competing workers of a stage (repeatable).
    #[arg(long, value_name = "STAGE=N", value_parser = named::<usize>, env = "NIGHTLY_IMPORT_WORKERS", value_delimiter = ',')]
    pub workers: Vec<(String, usize)>,
    /// Records, or the time's worth of them, that may be on their way behind a stage's input (repeatable).
    #[arg(long, value_name = "STAGE=N|TIME", value_parser = buffer, env = "NIGHTLY_IMPORT_BUFFER", value_delimiter = ',')]
    pub buffer: Vec<(String, Buffer)>,
    /// Records that a stage asks for at once (repeatable).
    #[arg(long, value_name = "STAGE=N", value_parser = named::<u64>, env = "NIGHTLY_IMPORT_REQUEST", value_delimiter = ',')]
    pub request: Vec<(String, u64)>,
    /// Records a second that a stage may call for (repeatable).
    #[arg(long, value_name = "STAGE=N/s", value_parser = rate, env = "NIGHTLY_IMPORT_RATE", value_delimiter = ',')]
    pub rate: Vec<(String, f64)>,
    /// Source bytes in flight, all stages together.
    #[arg(long, value_name = "SIZE", default_value = "24M", value_parser = size, env = "NIGHTLY_IMPORT_MEMORY")]
    pub memory: Bytes,
    /// Rejects after which the run stops: a number, or a share of the records read (default: the larger of 100 and 0.1 %).
    #[arg(long, value_name = "N|N%", env = "NIGHTLY_IMPORT_MAX_ERRORS")]
    pub max_errors: Option<String>,
    /// The day by which rules judge (default: the date of the run's first start; kept when it goes on).
    #[arg(long, value_name = "DATE", env = "NIGHTLY_IMPORT_AS_OF")]
    pub as_of: Option<String>,
    /// A text to find the run by.
    #[arg(long, env = "NIGHTLY_IMPORT_LABEL")]
    pub label: Option<String>,
    /// Apply other rules, mapping, dialect, conflict mode or contracts to the rest of a run that was begun without them.
    #[arg(long, env = "NIGHTLY_IMPORT_ACCEPT_CHANGED")]
    pub accept_changed: bool,
    /// Take the records added to an input that was complete before.
    #[arg(long, env = "NIGHTLY_IMPORT_ACCEPT_GROWN")]
    pub accept_grown: bool,
    /// How to end when the same content was loaded, or is given, under another name.
    #[arg(long, value_enum, default_value = "fail", env = "NIGHTLY_IMPORT_IF_DONE")]
    pub if_done: IfDone,
    /// Refuse the record that the process died on again and again, and go on behind it.
    #[arg(long, env = "NIGHTLY_IMPORT_REJECT_POISON")]
    pub reject_poison: bool,
    /// Append to this file a line for every record that a calling stage is asked about: stage and record number.
    #[arg(long, value_name = "FILE", env = "NIGHTLY_IMPORT_TRACE_CALLS")]
    pub trace_calls: Option<PathBuf>,
    /// Take an input without any bytes for one without records.
    #[arg(long, env = "NIGHTLY_IMPORT_ALLOW_EMPTY")]
    pub allow_empty: bool,
    /// How files are written.
    #[command(flatten)]
    pub dialect: DialectArgs,
    /// How values are written.
    #[command(flatten)]
    pub values: ValueArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How files are written.
#[derive(Clone, Debug, Args)]
pub struct DialectArgs {
    /// Byte between two fields.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = byte, env = "NIGHTLY_IMPORT_DELIMITER")]
    pub delimiter: u8,
    /// Byte around a field; `none` if there are no quotes.
    #[arg(long, value_name = "CHAR", default_value = "\"", value_parser = quote, env = "NIGHTLY_IMPORT_QUOTE")]
    pub quote: QuoteArg,
    /// What happens to text after a closing quote.
    #[arg(long, value_enum, default_value = "strict", env = "NIGHTLY_IMPORT_QUOTES")]
    pub quotes: QuotesArg,
    /// What happens to NUL bytes.
    #[arg(long, value_enum, default_value = "reject", env = "NIGHTLY_IMPORT_NUL")]
    pub nul: NulArg,
    /// A quoted field may not span lines.
    #[arg(long, env = "NIGHTLY_IMPORT_NO_MULTILINE")]
    pub no_multiline: bool,
    /// The first line is a record; columns are the pipeline's, in its order.
    #[arg(long, env = "NIGHTLY_IMPORT_NO_HEADER")]
    pub no_header: bool,
    /// Lines before the header.
    #[arg(long, value_name = "N", default_value_t = 0, env = "NIGHTLY_IMPORT_SKIP_LINES")]
    pub skip_lines: u32,
    /// Every line ends with a delimiter.
    #[arg(long, env = "NIGHTLY_IMPORT_TRAILING_DELIMITER")]
    pub trailing_delimiter: bool,
    /// Columns of the file to leave out, where it has them.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        env = "NIGHTLY_IMPORT_IGNORE_COLUMNS"
    )]
    pub ignore_columns: Vec<String>,
    /// Most bytes in one record.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size, env = "NIGHTLY_IMPORT_MAX_RECORD_BYTES")]
    pub max_record_bytes: Bytes,
    /// Most lines in one record.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        env = "NIGHTLY_IMPORT_MAX_RECORD_LINES"
    )]
    pub max_record_lines: u32,
}

/// How values are written.
#[derive(Clone, Debug, Args)]
pub struct ValueArgs {
    /// The text that stands for "absent" (default: an empty field).
    #[arg(long, value_name = "TEXT", default_value = "", env = "NIGHTLY_IMPORT_NULL")]
    pub null: String,
    /// Decimal mark.
    #[arg(long, value_name = "CHAR", default_value_t = '.', env = "NIGHTLY_IMPORT_DECIMAL")]
    pub decimal: char,
    /// Thousands mark; without it numbers have none.
    #[arg(long, value_name = "CHAR", env = "NIGHTLY_IMPORT_THOUSANDS")]
    pub thousands: Option<char>,
    /// Format of dates, such as DD.MM.YYYY (repeatable; ambiguous lists are refused).
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "YYYY-MM-DD",
        value_delimiter = ',',
        env = "NIGHTLY_IMPORT_DATE_FORMAT"
    )]
    pub date_format: Vec<String>,
    /// Zone of times without an offset, such as Europe/Berlin; without it they are rejects.
    #[arg(long, value_name = "ZONE", env = "NIGHTLY_IMPORT_TIMEZONE")]
    pub timezone: Option<String>,
    /// Which instant a local time means that the zone skips or has twice; without it they are rejects.
    #[arg(long, value_enum, env = "NIGHTLY_IMPORT_DST")]
    pub dst: Option<DstArg>,
}

/// What is printed.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Time between two progress lines (default: 5 s on a terminal, 60 s without).
    #[arg(long, value_name = "TIME", value_parser = duration, env = "NIGHTLY_IMPORT_REPORT_INTERVAL")]
    pub report_interval: Option<Duration>,
    /// Form of the log lines.
    #[arg(long, value_enum, default_value = "text", env = "NIGHTLY_IMPORT_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// Say more.
    #[arg(long, short, env = "NIGHTLY_IMPORT_VERBOSE")]
    pub verbose: bool,
    /// Say nothing but errors and the summary.
    #[arg(long, short, env = "NIGHTLY_IMPORT_QUIET")]
    pub quiet: bool,
    /// No progress, neither lines that are redrawn nor lines of the log.
    #[arg(long, env = "NIGHTLY_IMPORT_NO_PROGRESS")]
    pub no_progress: bool,
    /// Write the summary of `run` to a file, whatever happens: as CSV if its name ends so, else as JSON.
    #[arg(long, value_name = "FILE.{json,csv}", env = "NIGHTLY_IMPORT_SUMMARY")]
    pub summary: Option<PathBuf>,
}

/// Settings of `validate`.
#[derive(Clone, Debug, Args)]
pub struct ValidateArgs {
    /// The pipeline.
    pub pipeline: String,
    /// Files to look at.
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// A TOML file that holds any of these settings, by their long names.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How files are written.
    #[command(flatten)]
    pub dialect: DialectArgs,
    /// How values are written.
    #[command(flatten)]
    pub values: ValueArgs,
    /// As a JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Settings of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// One run; without it, all.
    pub run: Option<String>,
    /// Where the runs are.
    #[command(flatten)]
    pub target: TargetArgs,
    /// As a JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Settings of `inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// The run; without it, the one that is running, else the last.
    pub run: Option<String>,
    /// Where the run is.
    #[command(flatten)]
    pub target: TargetArgs,
    /// As a JSON document.
    #[arg(long)]
    pub json: bool,
    /// Again every second until it ends.
    #[arg(long)]
    pub watch: bool,
}

/// What to do with dead letters.
#[derive(Clone, Debug, Subcommand)]
pub enum RejectsCommand {
    /// Count them, by column and kind, and list the first ones.
    List {
        /// Which.
        #[command(flatten)]
        which: RejectsArgs,
        /// As a JSON document, all of them.
        #[arg(long)]
        json: bool,
    },
    /// Show one with its source bytes.
    Show {
        /// Its number, as `list` prints it.
        #[arg(value_parser = reject_id)]
        id: i64,
        /// Where it is.
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Write them as a file of the same dialect with a `reject_id` column; exit 1 if some are not kept whole, and left out.
    Export {
        /// Which.
        #[command(flatten)]
        which: RejectsArgs,
        /// The file to write (default: standard output).
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Which dead letters.
#[derive(Clone, Debug, Args)]
pub struct RejectsArgs {
    /// Of one run; without it, of the last.
    pub run: Option<String>,
    /// Where they are.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// Settings of `generate`.
#[derive(Clone, Debug, Args)]
pub struct GenerateArgs {
    /// What to write: `claims` or `contracts`.
    pub pipeline: String,
    /// How many rows.
    #[arg(long, value_name = "N")]
    pub rows: u64,
    /// The seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// The file to write (default: standard output).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Share of records with a fault, spread over all kinds, such as 1%.
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub faults: Share,
    /// Share of records with one kind of fault (repeatable).
    #[arg(long = "fault", value_name = "KIND=SHARE", value_parser = fault)]
    pub fault: Vec<(FaultKind, Share)>,
    /// Number of contracts that claims refer to (default: a tenth of the rows).
    #[arg(long, value_name = "N")]
    pub contracts: Option<u64>,
    /// Lines end with CR and LF.
    #[arg(long)]
    pub crlf: bool,
}

/// What of the ledger to print.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum LedgerCommand {
    /// The tables, and what upgrades an older ledger, for somebody who has the right to.
    Ddl,
}

/// What happens to a row whose key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// It is a reject.
    Error,
    /// It is a duplicate: the row in the table stays.
    Skip,
    /// It replaces the row in the table.
    Update,
}

/// How to end when the same content was loaded, or is given, under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IfDone {
    /// Take it once, exit 0.
    Ok,
    /// Exit 10.
    Fail,
}

/// What happens to text after a closing quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QuotesArg {
    /// The record is a reject.
    Strict,
    /// It becomes part of the value.
    Lenient,
}

/// What happens to NUL bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NulArg {
    /// The record is a reject.
    Reject,
    /// They are taken out.
    Strip,
}

/// Which instant a doubtful local time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DstArg {
    /// The earlier of the two.
    Earlier,
    /// The later of the two.
    Later,
}

/// Form of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The quote, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuoteArg(pub Option<u8>);
