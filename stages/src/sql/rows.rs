//! Rows of a group, written in the order of the source.
//!
//! ```text
//! rows, up to 64 at once --> INSERT --all taken--> stored
//!                              |
//!                     one was refused: nothing of the statement is there
//!                              v
//!               INSERT where the key is new, RETURNING key --> stored | key exists --> reject, duplicate, update
//!                              |
//!                     one breaks another rule of the table
//!                              v
//!                      the same, row by row --> stored | key exists | reject
//! ```
//!
//! - Of equal keys the first in the order of the source is the one that is new; which of a statement's rows that was follows from
//!   the keys that came back and the order of the rows, not from the order in which the keys came back.
//! - Rows of one record (several after `flat_map`) are written record by record as soon as one of them is refused: with `error`
//!   the record is refused as a whole; with `skip` its other rows are stored; with `update` each row replaces or is added.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::SystemTime;

use gegendruck::{Group, Item, Reason, Reject};
use gegendruck_checkpoints::{Trouble, trouble};
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Row as _, ValueRef};

use super::sqlite::{self, Texts};
use super::{Conflict, Failed};
use crate::value::{Row, Table, Value};

/// The statements of one table, and where its key stands in a row.
#[derive(Debug)]
pub(super) struct Statements {
    texts: Texts,
    /// Indexes of the key's columns.
    key: Vec<usize>,
    key_names: String,
    /// A row that was not taken may have been dropped by a trigger: its key need not be there.
    pub(super) may_drop: bool,
}

impl Statements {
    pub(super) fn new(table: &Table, name: &str) -> Statements {
        let key = table.key.iter().filter_map(|column| table.position(column)).collect();
        let (texts, key_names) = (Texts::new(table, name), table.key.join(", "));
        Statements { texts, key, key_names, may_drop: false }
    }
}

/// What became of a group's rows, counted in records.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) stored: u64,
    pub(super) updated: u64,
    pub(super) duplicate: u64,
    pub(super) rejects: Vec<Reject>,
    /// Rows added to the table.
    pub(super) inserted: u64,
}

/// What became of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    Updated,
    Exists,
    Refused(String),
}

/// Writes the rows of a group.
pub(super) async fn write<T: Row>(
    connection: &mut SqliteConnection,
    statements: &Statements,
    conflict: Conflict,
    stage: &str,
    group: &Group<T>,
) -> Result<Written, Failed> {
    let mut writer = Writer {
        conflicts: false,
        connection,
        statements,
        conflict,
        outcomes: Vec::with_capacity(group.items.len()),
    };
    if group.records_with_items() == group.items.len() as u64 {
        for items in group.items.chunks(statements.texts.most_rows()) {
            for items in powers(items) {
                writer.some(items).await?;
            }
        }
    } else {
        for items in group.items.chunk_by(|one, next| same_record(one, next)) {
            writer.record(items).await?;
        }
    }
    Ok(count(group, conflict, stage, statements, &writer.outcomes))
}

fn same_record<T>(one: &Item<T>, next: &Item<T>) -> bool {
    (one.at.input, one.at.record) == (next.at.input, next.at.record)
}

/// Cuts rows into pieces whose lengths are powers of two, the largest first: one text for each length.
fn powers<T>(mut items: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let power = items.len().checked_ilog2()?;
        let (piece, rest) = items.split_at(1 << power);
        items = rest;
        Some(piece)
    })
}

/// A key's value as it came back, or as it was sent.
#[derive(PartialEq, Eq, Hash)]
enum Part<'a> {
    Null,
    Integer(i64),
    Text(Cow<'a, str>),
}

struct Writer<'a> {
    connection: &'a mut SqliteConnection,
    statements: &'a Statements,
    conflict: Conflict,
    outcomes: Vec<Outcome>,
    /// The rows before met a key that exists: these are likely to, and trying them all at once would be in vain.
    conflicts: bool,
}

impl Writer<'_> {
    /// Writes rows of as many records, a power of two of them.
    async fn some<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        let power = items.len().ilog2();
        if self.conflicts && !self.statements.key.is_empty() {
            return self.some_new(items, power).await;
        }
        match self.execute(self.statements.texts.plain(power), items).await {
            Ok(changed) => {
                expect(changed, items.len())?;
                self.outcomes.extend(items.iter().map(|_| Outcome::Stored));
                Ok(())
            }
            Err(error) if is_constraint(&error) => self.some_new(items, power).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Writes those rows whose key is new, and settles the others.
    async fn some_new<T: Row>(&mut self, items: &[Item<T>], power: u32) -> Result<(), Failed> {
        if self.statements.key.is_empty() {
            return self.one_by_one(items).await;
        }
        let text = self.statements.texts.new_keys(power);
        let rows =
            sqlx::query_with(&text, arguments(items)?).fetch_all(&mut *self.connection).await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) if is_constraint(&error) => return self.one_by_one(items).await,
            Err(error) => return Err(error.into()),
        };
        let mut new: HashSet<Vec<Part<'_>>> =
            rows.iter().map(returned).collect::<Result<_, _>>()?;
        let first = self.outcomes.len();
        for item in items {
            let is_new = new.remove(&self.key(item));
            self.outcomes.push(if is_new { Outcome::Stored } else { Outcome::Exists });
        }
        if !new.is_empty() {
            return Err(unexpected("a key came back that was not sent"));
        }
        let existing =
            self.outcomes[first..].iter().filter(|outcome| **outcome == Outcome::Exists).count();
        self.conflicts = existing > 0;
        for (index, item) in items.iter().enumerate() {
            if self.outcomes[first + index] == Outcome::Exists {
                self.must_exist(item).await?;
            }
        }
        if self.conflict == Conflict::Update && existing > 0 {
            self.replace_existing(items, first, power, existing).await?;
        }
        Ok(())
    }

    /// Puts those of the rows in the place of others whose keys exist; their outcomes begin at `first`.
    async fn replace_existing<T: Row>(
        &mut self,
        items: &[Item<T>],
        first: usize,
        power: u32,
        existing: usize,
    ) -> Result<(), Failed> {
        if existing == items.len() {
            let text = self.statements.texts.replace(power);
            match self.execute(&text, items).await {
                Ok(changed) => {
                    self.expect_replaced(changed, items.len())?;
                    self.outcomes[first..].fill(Outcome::Updated);
                    return Ok(());
                }
                Err(error) if is_constraint(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (index, item) in items.iter().enumerate() {
            if self.outcomes[first + index] == Outcome::Exists {
                self.outcomes[first + index] = self.replace(item).await?;
            }
        }
        Ok(())
    }

    async fn one_by_one<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        for item in items {
            let outcome = self.one(item).await?;
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    async fn one<T: Row>(&mut self, item: &Item<T>) -> Result<Outcome, Failed> {
        let text = self.statements.texts.if_new();
        match self.execute(&text, std::slice::from_ref(item)).await {
            Ok(1) => Ok(Outcome::Stored),
            Ok(0) if self.conflict == Conflict::Update => self.replace(item).await,
            Ok(0) if !self.statements.key.is_empty() => {
                self.must_exist(item).await.map(|()| Outcome::Exists)
            }
            Ok(changed) => Err(expect(changed, 1)
                .err()
                .unwrap_or_else(|| unexpected("a row was counted twice"))),
            Err(error) => refused(error),
        }
    }

    /// Fails if a row that the table did not take has a key that the table does not have.
    async fn must_exist<T: Row>(&mut self, item: &Item<T>) -> Result<(), Failed> {
        if !self.statements.may_drop {
            return Ok(());
        }
        let value = |part| match part {
            Part::Null => Value::Null,
            Part::Integer(integer) => Value::Integer(integer),
            Part::Text(text) => Value::Text(text),
        };
        let mut key = self.key(item).into_iter().map(value).collect();
        let mut arguments = SqliteArguments::default();
        sqlite::bind(&mut arguments, &mut key)?;
        let text = self.statements.texts.exists();
        let exists: bool =
            sqlx::query_scalar_with(&text, arguments).fetch_one(&mut *self.connection).await?;
        expect(u64::from(exists), 1)
    }

    /// Puts a row in the place of the one with its key.
    async fn replace<T: Row>(&mut self, item: &Item<T>) -> Result<Outcome, Failed> {
        let text = self.statements.texts.replace(0);
        match self.execute(&text, std::slice::from_ref(item)).await {
            Ok(changed) => self.expect_replaced(changed, 1).map(|()| Outcome::Updated),
            Err(error) => refused(error),
        }
    }

    fn expect_replaced(&self, changed: u64, rows: usize) -> Result<(), Failed> {
        expect(changed, if self.statements.texts.is_only_key() { 0 } else { rows })
    }

    /// Writes all rows of one record, or none if one of them is refused.
    async fn record<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        sqlx::query("SAVEPOINT record").execute(&mut *self.connection).await?;
        let first = self.outcomes.len();
        self.one_by_one(items).await?;
        let fails = |outcome: &&Outcome| match outcome {
            Outcome::Refused(_) => true,
            Outcome::Exists => self.conflict == Conflict::Error,
            Outcome::Stored | Outcome::Updated => false,
        };
        let failed = self.outcomes[first..].iter().find(fails).cloned();
        if let Some(failed) = failed {
            sqlx::query("ROLLBACK TO record").execute(&mut *self.connection).await?;
            self.outcomes[first..].fill(failed);
        }
        sqlx::query("RELEASE record").execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn execute<T: Row>(&mut self, text: &str, items: &[Item<T>]) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(text, arguments(items)?).execute(&mut *self.connection).await?;
        Ok(done.rows_affected())
    }

    fn key<'v, T: Row>(&self, item: &'v Item<T>) -> Vec<Part<'v>> {
        let mut values = Vec::with_capacity(T::TABLE.columns.len());
        item.value.values(&mut values);
        let part = |index: &usize| match std::mem::replace(&mut values[*index], Value::Null) {
            Value::Null => Part::Null,
            Value::Integer(integer) => Part::Integer(integer),
            Value::Text(text) => Part::Text(text),
        };
        self.statements.key.iter().map(part).collect()
    }
}

fn arguments<T: Row>(items: &[Item<T>]) -> Result<SqliteArguments<'_>, sqlx::Error> {
    use sqlx::Arguments;
    let columns = T::TABLE.columns.len();
    let mut arguments = SqliteArguments::default();
    arguments.reserve(items.len() * columns, 0);
    let mut values = Vec::with_capacity(columns);
    for item in items {
        item.value.values(&mut values);
        debug_assert_eq!(values.len(), columns, "a row has one value for each column");
        sqlite::bind(&mut arguments, &mut values)?;
    }
    Ok(arguments)
}

fn returned(row: &SqliteRow) -> Result<Vec<Part<'_>>, sqlx::Error> {
    let part = |index: usize| {
        let value = row.try_get_raw(index)?;
        if value.is_null() {
            return Ok(Part::Null);
        }
        let is_integer = sqlx::TypeInfo::name(value.type_info().as_ref()) == "INTEGER";
        if is_integer {
            row.try_get_unchecked(index).map(Part::Integer)
        } else {
            row.try_get_unchecked::<&str, _>(index).map(|text| Part::Text(Cow::Borrowed(text)))
        }
    };
    (0..row.len()).map(part).collect()
}

/// True if a row was refused and the statement has left nothing behind.
fn is_constraint(error: &sqlx::Error) -> bool {
    matches!(trouble(error), Trouble::Constraint(_))
}

fn refused(error: sqlx::Error) -> Result<Outcome, Failed> {
    match trouble(&error) {
        Trouble::Constraint(words) => Ok(Outcome::Refused(words)),
        _ => Err(error.into()),
    }
}

/// A statement must change as many rows as it was given: a trigger that drops rows would lose them without a word.
fn expect(changed: u64, rows: usize) -> Result<(), Failed> {
    if changed == rows as u64 {
        return Ok(());
    }
    Err(unexpected(&format!(
        "the table took {changed} of {rows} rows; take away the trigger that drops rows"
    )))
}

fn unexpected(words: &str) -> Failed {
    Failed::Target(Trouble::Other(words.into()))
}

/// Sums up what became of the records.
fn count<T>(
    group: &Group<T>,
    conflict: Conflict,
    stage: &str,
    statements: &Statements,
    outcomes: &[Outcome],
) -> Written {
    let mut written = Written::default();
    let mut rest = outcomes;
    for items in group.items.chunk_by(|one, next| same_record(one, next)) {
        let (these, after) = rest.split_at(items.len());
        rest = after;
        let any = |outcome: &Outcome| these.contains(outcome);
        let refused = these.iter().find_map(|outcome| match outcome {
            Outcome::Refused(words) => Some(Reason::record("constraint").detail(words.clone())),
            _ => None,
        });
        let exists = conflict == Conflict::Error && any(&Outcome::Exists);
        if let Some(reason) = refused.or_else(|| exists.then(|| key_exists(statements))) {
            written.rejects.push(reject(group, &items[0], stage, reason));
            continue;
        }
        let added = these.iter().filter(|outcome| **outcome == Outcome::Stored).count() as u64;
        written.inserted += added;
        if added > 0 || any(&Outcome::Updated) {
            written.stored += 1;
            written.updated += u64::from(any(&Outcome::Updated));
        } else {
            written.duplicate += 1;
        }
    }
    written
}

fn key_exists(statements: &Statements) -> Reason {
    Reason::column(statements.key_names.clone(), "key_exists")
}

fn reject<T>(group: &Group<T>, item: &Item<T>, stage: &str, reason: Reason) -> Reject {
    let now = SystemTime::now();
    Reject {
        at: item.at,
        len: u64::from(item.len),
        bytes: group.source_bytes(item).into(),
        stage: stage.to_string().into(),
        reason,
        attempts: 1,
        first: now,
        last: now,
    }
}
