//! The program: from the command line to the exit code.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use gegendruck_stages::csv::LineEnd;

use crate::cli::{Cli, Command, GenerateArgs, LedgerCommand, ParseError, Settings, parse};
use crate::exit::{Exit, Refused};
use crate::files::NewFile;
use crate::generate::{ClaimsFile, ContractsFile, FaultShares, Share};
use crate::progress::{Level, Log};
use crate::run::summary_can_be_written;
use crate::summary::Summary;
use crate::{Output, imports, rejects, status};

/// Does what the command line asks for, and gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    std::panic::set_hook(Box::new(|panic| {
        // Not what it says: that may be a field's value.
        let at = panic.location().map_or("an unknown place".into(), ToString::to_string);
        drop(writeln!(std::io::stderr().lock(), "nightly-import: internal error (panic) at {at}"));
    }));
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    std::panic::catch_unwind(|| whole(&arguments))
        .unwrap_or_else(|_| refuse_arguments(&arguments, &Refused::internal()))
}

fn whole(arguments: &[OsString]) -> Exit {
    let (cli, settings) = match parse(arguments.to_vec()) {
        Ok(parsed) => parsed,
        Err(ParseError::Clap(error)) if is_help(&error) => {
            drop(error.print());
            return if error.use_stderr() { Exit::Usage } else { Exit::Complete };
        }
        Err(ParseError::Clap(error)) => {
            let words = sentence(&error, known_command(arguments).as_deref());
            return refuse_arguments(arguments, &Refused::usage(words));
        }
        Err(ParseError::Settings(refused)) => return refuse_arguments(arguments, &refused),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let words = format!("no threads can be started: {error}; start again");
            return refuse_arguments(arguments, &Refused::failed(words));
        }
    };
    let exit = match runtime.block_on(command(cli, settings)) {
        Ok(exit) => exit,
        Err(refused) => refuse(&refused),
    };
    // A thread that is stuck in the system (a dead disk) must not keep the program from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    exit
}

fn refuse(refused: &Refused) -> Exit {
    drop(writeln!(std::io::stderr().lock(), "nightly-import: {}", refused.message));
    refused.exit
}

fn is_help(error: &clap::Error) -> bool {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion)
}

/// What the parser has to say, in one line.
fn sentence(error: &clap::Error, command: Option<&str>) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| {
        !line.starts_with("Usage:")
            && !line.starts_with("For more information")
            && !line.contains("tip: to pass '")
    });
    let parts: Vec<_> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let words = parts.join(" ").replace(" tip: ", "; ");
    let command = command.map_or(String::new(), |command| format!("{command} "));
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    format!("{words}; see nightly-import {command}--help")
}

/// The command of a command line, if there is one of that name.
fn known_command(arguments: &[OsString]) -> Option<String> {
    let command = arguments.get(1)?.to_str()?;
    let known = crate::cli::definition().get_subcommands().any(|known| known.get_name() == command);
    known.then(|| command.into())
}

/// Refuses a command line that could not be read, or done. Those who wait for a run's summary get one all the same.
fn refuse_arguments(arguments: &[OsString], refused: &Refused) -> Exit {
    if known_command(arguments).is_none_or(|command| command == "run")
        && let Some(path) = summary_path(arguments)
    {
        summarize_refusal(path.as_ref(), refused);
    }
    refuse(refused)
}

/// Where the summary goes, by flag, environment or file, however wrong the rest of them is.
fn summary_path(arguments: &[OsString]) -> Option<OsString> {
    let flag = |name: &str| {
        let next = arguments.iter().skip(1).map(Some).chain([None]);
        let values = arguments.iter().zip(next).filter_map(|(argument, next)| {
            let argument = argument.to_string_lossy();
            let joined = argument.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            if argument == name { next.cloned() } else { joined.map(Into::into) }
        });
        values.last()
    };
    let in_file = || {
        let text = std::fs::read_to_string(flag("--config")?).ok()?;
        let table: toml::Table = text.parse().ok()?;
        table.get("summary")?.as_str().map(Into::into)
    };
    flag("--summary").or_else(|| std::env::var_os("NIGHTLY_IMPORT_SUMMARY")).or_else(in_file)
}

fn summarize_refusal(path: &Path, refused: &Refused) {
    let mut summary = Summary::new("", jiff::Timestamp::now());
    summary.message = Some(refused.message.clone());
    summary.ended(refused.exit);
    if let Err(unwritten) = summary.write(path) {
        refuse(&unwritten);
    }
}

async fn command(cli: Cli, settings: Settings) -> Result<Exit, Refused> {
    match &cli.command {
        Command::Run(arguments) => {
            let found = imports::find(&arguments.pipeline);
            if let (Err(refused), Some(path)) = (&found, &arguments.output.summary)
                && summary_can_be_written(arguments).is_ok()
            {
                summarize_refusal(path, refused);
            }
            let import = found?;
            let log = Log::new(&arguments.output);
            log.line(Level::Debug, &format!("version {}", env!("CARGO_PKG_VERSION")));
            import.run(arguments, &settings, &log).await
        }
        Command::Plan(arguments) => {
            imports::find(&arguments.pipeline)?.plan(arguments, &settings).await
        }
        Command::Validate(arguments) => {
            imports::find(&arguments.pipeline)?.validate(arguments).await
        }
        Command::Status(arguments) => status::status(arguments).await,
        Command::Inspect(arguments) => status::inspect(arguments).await,
        Command::Rejects { command } => rejects::rejects(command).await,
        Command::Pipelines => {
            for import in imports::all() {
                crate::print(&format!(
                    "{}: {}\n  stages   {}\n  table    {}\n  columns  {}\n",
                    import.name(),
                    import.about(),
                    import.stages().join(" -> "),
                    import.table(),
                    import.columns().join(", ")
                ));
            }
            Ok(Exit::Complete)
        }
        Command::Generate(arguments) => write_test_input(arguments),
        Command::Ledger { command: LedgerCommand::Ddl } => {
            let mut text = gegendruck_checkpoints::ddl();
            for import in imports::all() {
                text.push_str(&format!("\n-- tables of {}\n{}", import.name(), import.ddl()));
            }
            crate::print(&text);
            Ok(Exit::Complete)
        }
    }
}

/// `nightly-import generate`.
fn write_test_input(arguments: &GenerateArgs) -> Result<Exit, Refused> {
    let (rows, seed) = (arguments.rows, arguments.seed);
    let line_end = if arguments.crlf { LineEnd::CrLf } else { LineEnd::Lf };
    let faults = FaultShares::new(arguments.faults, &arguments.fault)
        .map_err(|error| Refused::usage(error.to_string()))?;
    let usage = |words: &str| Err(Refused::usage(words));
    match arguments.pipeline.as_str() {
        "claims" => {
            let mut file = ClaimsFile { line_end, faults, ..ClaimsFile::new(rows, seed) };
            file.contracts = arguments.contracts.unwrap_or(file.contracts);
            write_out(arguments.out.as_deref(), |mut out| file.write(&mut out).map(drop))
        }
        "contracts" if arguments.contracts.is_some() => {
            usage("--contracts is for claims; leave it out")
        }
        "contracts" if arguments.faults != Share::NONE || !arguments.fault.is_empty() => {
            usage("contracts are generated without faults; leave out --faults and --fault")
        }
        "contracts" => {
            let file = ContractsFile { line_end, ..ContractsFile::new(rows, seed) };
            write_out(arguments.out.as_deref(), |mut out| file.write(&mut out))
        }
        other => usage(&format!("\"{other}\" cannot be generated; there are: claims, contracts")),
    }
}

/// Writes to a file, or to standard output. A file that is there is replaced when the new one is whole.
fn write_out(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<Exit, Refused> {
    let name = path.map_or("standard output".into(), |path| path.display().to_string());
    let written = match path {
        None => write(&mut Output::default()),
        Some(path) => NewFile::create(path).and_then(|mut file| {
            write(&mut file)?;
            file.finish()
        }),
    };
    written.map_err(|error| Refused::failed(format!("{name}: cannot be written: {error}")))?;
    Ok(Exit::Complete)
}
