//! The program: from the command line to the exit code.

use std::ffi::OsString;
use std::io::Write;

use gegendruck_stages::csv::LineEnd;

use crate::cli::{Cli, Command, GenerateArgs, LedgerCommand, ParseError, Settings, parse};
use crate::exit::{Exit, Refused};
use crate::progress::{Level, Log};
use crate::generate::{ClaimsFile, ContractsFile, FaultShares, Share};
use crate::summary::create_private;
use crate::{imports, rejects, status};

/// Does what the command line asks for, and gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let (cli, settings) = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(ParseError::Clap(error)) => {
            drop(error.print());
            return if error.use_stderr() { Exit::Usage } else { Exit::Complete };
        }
        Err(ParseError::Settings(refused)) => return refuse(&refused),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&Refused::new(Exit::Internal, format!("no runtime: {error}"))),
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

async fn command(cli: Cli, settings: Settings) -> Result<Exit, Refused> {
    match &cli.command {
        Command::Run(arguments) => {
            let import = imports::find(&arguments.pipeline)?;
            let log = Log::new(&arguments.output);
            log.line(Level::Debug, &format!("version {}", env!("CARGO_PKG_VERSION")));
            import.run(arguments, &settings, &log).await
        }
        Command::Plan(arguments) => imports::find(&arguments.pipeline)?.plan(arguments).await,
        Command::Validate(arguments) => imports::find(&arguments.pipeline)?.validate(arguments).await,
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
            crate::print(&gegendruck_checkpoints::ddl());
            Ok(Exit::Complete)
        }
    }
}

/// `nightly-import generate`.
fn write_test_input(arguments: &GenerateArgs) -> Result<Exit, Refused> {
    let (rows, seed) = (arguments.rows, arguments.seed);
    let line_end = if arguments.crlf { LineEnd::CrLf } else { LineEnd::Lf };
    let faults = FaultShares::new(arguments.faults, &arguments.fault).map_err(|error| Refused::usage(error.to_string()))?;
    let name = match &arguments.out {
        Some(path) => path.display().to_string(),
        None => "standard output".into(),
    };
    let failed = |error: std::io::Error| Refused::failed(format!("{name}: cannot be written: {error}"));
    let mut out: Box<dyn Write> = match &arguments.out {
        Some(path) => Box::new(create_private(path).map_err(failed)?),
        None => Box::new(std::io::stdout().lock()),
    };
    match arguments.pipeline.as_str() {
        "claims" => {
            let mut file = ClaimsFile { line_end, faults, ..ClaimsFile::new(rows, seed) };
            file.contracts = arguments.contracts.unwrap_or(file.contracts);
            file.write(&mut out).map(drop).map_err(failed)?;
        }
        "contracts" if arguments.faults == Share::NONE && arguments.fault.is_empty() => {
            ContractsFile { line_end, ..ContractsFile::new(rows, seed) }.write(&mut out).map_err(failed)?;
        }
        "contracts" => return Err(Refused::usage("contracts are generated without faults; leave out --faults and --fault")),
        other => return Err(Refused::usage(format!("\"{other}\" cannot be generated; there are: claims, contracts"))),
    }
    Ok(Exit::Complete)
}
