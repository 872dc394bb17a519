//! What an import is, and the list of those that this program has.
//!
//! An import is one module: a row type that the CSV source can fill, the stages between source and sink, and the table that the
//! rows go to. Naming it in [`all`] is enough for it to show in `nightly-import pipelines` and to have every command.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use gegendruck::{Pipeline, Reason};
use gegendruck_checkpoints::Target;
use gegendruck_stages::csv::FromFields;
use gegendruck_stages::value::{Formats, Row, Table};

use crate::cli::{OnConflict, RunArgs, Settings, ValidateArgs};
use crate::exit::{Exit, Refused};
use crate::progress::Log;

/// What the stages of an import may know of their run.
#[derive(Clone)]
pub struct Context {
    /// The target.
    pub target: Target,
    /// How values are written.
    pub formats: Arc<Formats>,
    /// A file that takes a line for every call of a stage.
    pub trace: Option<PathBuf>,
}

/// An import: CSV in, rows of one table out.
pub trait Import: Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// One line about it.
    const ABOUT: &'static str;
    /// Version of its rules: raised whenever the same input would give other rows.
    const RULES: u32;
    /// What happens to a row whose key exists, unless the operator says otherwise.
    const ON_CONFLICT: OnConflict;
    /// True if rows can only be made when the contracts are in the target.
    const NEEDS_CONTRACTS: bool;
    /// A record of the file.
    type Raw: FromFields + Sync;
    /// A row of the table.
    type Row: Row + Send + Sync + 'static;

    /// The stages between source and sink.
    fn stages(source: Pipeline<Self::Raw>, context: &Context) -> Pipeline<Self::Row>;

    /// All faults that the first stages find in a record, without target or service.
    fn faults(raw: &Self::Raw, formats: &Formats) -> Vec<Reason>;

    /// Tables that [`Import::finish`] fills for a run into `table`, with their names.
    fn more_tables(_table: &str) -> Vec<(Table, String)> {
        Vec::new()
    }

    /// Statements for the transaction that completes a run into `table`, in order.
    fn finish(_table: &str) -> Vec<String> {
        Vec::new()
    }
}

/// An import whose types are forgotten.
pub trait AnyImport: Send + Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// One line about it.
    fn about(&self) -> &'static str;
    /// The columns that it reads.
    fn columns(&self) -> &'static [&'static str];
    /// The table that it writes.
    fn table(&self) -> &'static str;
    /// The statements that create its tables.
    fn ddl(&self) -> String;
    /// The names of its stages.
    fn stages(&self) -> Vec<String>;
    /// `nightly-import run`.
    fn run<'a>(
        &'a self,
        arguments: &'a RunArgs,
        settings: &'a Settings,
        log: &'a Log,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>>;
    /// `nightly-import plan`.
    fn plan<'a>(
        &'a self,
        arguments: &'a RunArgs,
        settings: &'a Settings,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>>;
    /// `nightly-import validate`.
    fn validate<'a>(
        &'a self,
        arguments: &'a ValidateArgs,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>>;
}

struct Known<I>(std::marker::PhantomData<fn() -> I>);

impl<I: Import> AnyImport for Known<I> {
    fn name(&self) -> &'static str {
        I::NAME
    }

    fn about(&self) -> &'static str {
        I::ABOUT
    }

    fn columns(&self) -> &'static [&'static str] {
        I::Raw::COLUMNS
    }

    fn table(&self) -> &'static str {
        I::Row::TABLE.name
    }

    fn ddl(&self) -> String {
        let statements =
            tables::<I>(I::Row::TABLE.name).map(|(table, name)| table.sqlite_ddl(&name) + ";\n");
        statements.collect()
    }

    fn stages(&self) -> Vec<String> {
        crate::plan::stage_names::<I>()
    }

    fn run<'a>(
        &'a self,
        arguments: &'a RunArgs,
        settings: &'a Settings,
        log: &'a Log,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>> {
        Box::pin(crate::run::run::<I>(arguments, settings, log))
    }

    fn plan<'a>(
        &'a self,
        arguments: &'a RunArgs,
        settings: &'a Settings,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>> {
        Box::pin(crate::plan::plan::<I>(arguments, settings))
    }

    fn validate<'a>(
        &'a self,
        arguments: &'a ValidateArgs,
    ) -> LocalBoxFuture<'a, Result<Exit, Refused>> {
        Box::pin(crate::validate::validate::<I>(arguments))
    }
}

/// The tables that a run into `table` writes, with their names: the one of its rows first.
pub(crate) fn tables<I: Import>(table: &str) -> impl Iterator<Item = (Table, String)> {
    std::iter::once((I::Row::TABLE, table.to_string())).chain(I::more_tables(table))
}

fn known<I: Import>() -> Box<dyn AnyImport> {
    Box::new(Known::<I>(std::marker::PhantomData))
}

/// The imports of this program.
pub fn all() -> Vec<Box<dyn AnyImport>> {
    vec![known::<crate::claims::Claims>(), known::<crate::contracts::Contracts>()]
}

/// The import of that name.
///
/// # Errors
/// There is none; says which there are.
pub fn find(name: &str) -> Result<Box<dyn AnyImport>, Refused> {
    let all = all();
    let names: Vec<_> = all.iter().map(|import| import.name()).collect();
    let names = names.join(", ");
    all.into_iter().find(|import| import.name() == name).ok_or_else(|| {
        Refused::usage(format!("there is no pipeline \"{name}\"; there are: {names}"))
    })
}
