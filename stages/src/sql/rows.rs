//! Rows of a group, written in the order of the source.
//!
//! ```text
//! rows, up to 64 at once --> INSERT --all taken--> stored
//!                              |
//!                     one was refused: nothing of the statement is there
//!                              v
//!         which keys has the table? --> INSERT, or UPDATE, in the order of the rows --> stored | key exists --> reject,
//!                                                            |                                     duplicate, update
//!                                          one breaks another rule of the table
//!                                                            v
//!                                            row by row --> stored | key exists | reject
//! ```
//!
//! - Of equal keys the first in the order of the source that the table takes is the one that is new.
//! - Which rows a statement took is known before it runs, from the keys; how many it took must agree.
//! - Triggers may drop rows, write others, delete some, or roll back. A table that has some is written row by row as soon as one is
//!   refused, and each statement stands in a savepoint: what is left of one that failed is taken back, and if the savepoint is
//!   gone, so is the transaction. Rows that replaced others, and new ones that cannot be counted at the end, are looked for.
//! - Rows of one record (several after `flat_map`) are written record by record as soon as one of them is refused: with `error`
//!   the record is refused as a whole; with `skip` its other rows are stored; with `update` each row replaces or is added.

use std::collections::HashSet;
use std::time::SystemTime;

use gegendruck::{Group, Item, Reason, Reject};
use gegendruck_checkpoints::{Trouble, trouble};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use super::sqlite::{self, Texts};
use super::{Conflict, Failed};
use crate::value::{Row, Table, Value};

/// Statements for which keys are looked up after one met a key that exists: the next ones are likely to, and trying them would be
/// in vain.
const WARY: u32 = 8;

/// The statements of one table, and where its key stands in a row.
#[derive(Debug)]
pub(super) struct Statements {
    texts: Texts,
    /// Indexes of the key's columns.
    key: Vec<usize>,
    key_names: String,
    triggers: Triggers,
}

/// Whether the table has triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Triggers {
    None,
    /// It has, and its new rows can be counted at the end of the run.
    Counted,
    /// It has, and they cannot.
    Uncounted,
}

impl Statements {
    /// `decides`: the table's definition says what a conflict does.
    pub(super) fn new(table: &Table, name: &str, decides: bool, triggers: Triggers) -> Statements {
        let key = table.key.iter().filter_map(|column| table.position(column)).collect();
        let (texts, key_names) = (Texts::new(table, name, decides), table.key.join(", "));
        Statements { texts, key, key_names, triggers }
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
    let outcomes = Vec::with_capacity(group.items.len());
    let mut writer = Writer { connection, statements, conflict, outcomes, wary: 0 };
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
    // Rows that replaced others are not counted anywhere.
    let replaced = writer.outcomes.contains(&Outcome::Updated);
    if statements.triggers == Triggers::Uncounted || (writer.has_triggers() && replaced) {
        writer.all_there(&group.items).await?;
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

struct Writer<'a> {
    connection: &'a mut SqliteConnection,
    statements: &'a Statements,
    conflict: Conflict,
    outcomes: Vec<Outcome>,
    /// Statements for which keys are looked up.
    wary: u32,
}

impl Writer<'_> {
    /// Writes rows of as many records, a power of two of them.
    async fn some<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        if self.wary > 0 {
            return self.some_with_keys(items).await;
        }
        match self.execute(self.statements.texts.plain(items.len()), items).await? {
            Ok(changed) => {
                expect(changed, items.len())?;
                self.outcomes.extend(items.iter().map(|_| Outcome::Stored));
                Ok(())
            }
            Err(_) if self.statements.key.is_empty() || self.has_triggers() => {
                self.one_by_one(items).await
            }
            Err(_) => {
                self.wary = WARY;
                self.some_with_keys(items).await
            }
        }
    }

    fn has_triggers(&self) -> bool {
        self.statements.triggers != Triggers::None
    }

    /// The same, for rows whose keys the table may have.
    async fn some_with_keys<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        let keys = self.keys(items);
        let mut exists = self.look_up(&keys).await?;
        let mut seen = HashSet::with_capacity(keys.len());
        for (exists, key) in exists.iter_mut().zip(&keys) {
            // NULL is equal to nothing, not even to itself.
            *exists |= !key.contains(&Value::Null) && !seen.insert(key);
        }
        let existing = exists.iter().filter(|exists| **exists).count();
        self.wary = if existing > 0 { WARY } else { self.wary - 1 };
        let texts = &self.statements.texts;
        let (text, of_existing) = match self.conflict {
            Conflict::Update => (texts.replace(items.len()), Outcome::Updated),
            Conflict::Error | Conflict::Skip => (texts.if_new(items.len()), Outcome::Exists),
        };
        let replaces = of_existing == Outcome::Updated && !texts.is_only_key();
        match self.execute(text, items).await? {
            Ok(changed) => {
                expect(changed, if replaces { items.len() } else { items.len() - existing })?;
                let outcome = |exists| if exists { of_existing.clone() } else { Outcome::Stored };
                self.outcomes.extend(exists.into_iter().map(outcome));
                Ok(())
            }
            Err(_) => self.one_by_one(items).await,
        }
    }

    /// Which of the keys the table has, a power of two of them.
    async fn look_up(&mut self, keys: &[Vec<Value<'_>>]) -> Result<Vec<bool>, Failed> {
        let mut arguments = SqliteArguments::default();
        for key in keys {
            sqlite::bind(&mut arguments, key.iter().cloned())?;
        }
        let text = self.statements.texts.look_up(keys.len());
        let found: Option<String> =
            sqlx::query_scalar_with(text, arguments).fetch_one(&mut *self.connection).await?;
        let mut exists = vec![false; keys.len()];
        for index in found.iter().flat_map(|found| found.split(',')) {
            let index = index.parse().ok().and_then(|index: usize| exists.get_mut(index));
            *index.ok_or_else(|| unexpected("a key was found that was not looked for"))? = true;
        }
        Ok(exists)
    }

    async fn one_by_one<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        for item in items {
            let outcome = self.one(item).await?;
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    async fn one<T: Row>(&mut self, item: &Item<T>) -> Result<Outcome, Failed> {
        match self.execute(self.statements.texts.if_new(1), std::slice::from_ref(item)).await? {
            Ok(0) if !self.statements.key.is_empty() => match self.conflict {
                Conflict::Update => self.replace(item).await,
                Conflict::Error | Conflict::Skip => {
                    self.must_exist(item).await.map(|()| Outcome::Exists)
                }
            },
            Ok(changed) => expect(changed, 1).map(|()| Outcome::Stored),
            Err(words) => Ok(Outcome::Refused(words)),
        }
    }

    /// Fails if a row that the table did not take has a key that the table does not have.
    async fn must_exist<T: Row>(&mut self, item: &Item<T>) -> Result<(), Failed> {
        if !self.has_triggers() {
            return Ok(());
        }
        let exists = self.look_up(&self.keys(std::slice::from_ref(item))).await?;
        expect(u64::from(exists[0]), 1)
    }

    /// Fails if the table does not have all the rows that it took.
    async fn all_there<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        let mut done = 0;
        for items in items.chunks(self.statements.texts.most_rows()).flat_map(powers) {
            let keys = self.keys(items);
            let exists = self.look_up(&keys).await?;
            let there = exists.iter().zip(&keys).zip(&self.outcomes[done..]);
            let missing = there.filter(|((exists, key), outcome)| {
                let taken = match outcome {
                    Outcome::Stored => self.statements.triggers == Triggers::Uncounted,
                    Outcome::Updated => true,
                    Outcome::Exists | Outcome::Refused(_) => false,
                };
                taken && !**exists && !key.contains(&Value::Null)
            });
            expect((items.len() - missing.count()) as u64, items.len())?;
            done += items.len();
        }
        Ok(())
    }

    /// Puts a row in the place of the one with its key.
    async fn replace<T: Row>(&mut self, item: &Item<T>) -> Result<Outcome, Failed> {
        let texts = &self.statements.texts;
        match self.execute(texts.replace(1), std::slice::from_ref(item)).await? {
            Ok(changed) => {
                expect(changed, usize::from(!texts.is_only_key())).map(|()| Outcome::Updated)
            }
            Err(words) => Ok(Outcome::Refused(words)),
        }
    }

    /// Writes all rows of one record, or none if one of them is refused.
    async fn record<T: Row>(&mut self, items: &[Item<T>]) -> Result<(), Failed> {
        self.run("SAVEPOINT record").await?;
        let first = self.outcomes.len();
        self.one_by_one(items).await?;
        let fails = |outcome: &&Outcome| match outcome {
            Outcome::Refused(_) => true,
            Outcome::Exists => self.conflict == Conflict::Error,
            Outcome::Stored | Outcome::Updated => false,
        };
        let failed = self.outcomes[first..].iter().find(fails).cloned();
        if let Some(failed) = failed {
            self.run("ROLLBACK TO record").await?;
            self.outcomes[first..].fill(failed);
        }
        self.run("RELEASE record").await?;
        Ok(())
    }

    /// Runs a statement: how many rows it changed, or why the table refused one of them. Nothing of it is there then.
    async fn execute<T: Row>(
        &mut self,
        text: &str,
        items: &[Item<T>],
    ) -> Result<Result<u64, String>, Failed> {
        let guarded = self.has_triggers();
        if guarded {
            self.run("SAVEPOINT statement").await?;
        }
        let done = sqlx::query_with(text, arguments(items)?).execute(&mut *self.connection).await;
        let done = match done {
            Ok(done) => Ok(done.rows_affected()),
            Err(error) => match trouble(&error) {
                Trouble::Constraint(words) => Err(words),
                _ => return Err(error.into()),
            },
        };
        if guarded && done.is_err() {
            let back = self.run("ROLLBACK TO statement").await;
            back.map_err(|_| unexpected("a trigger rolled the transaction back; take it away"))?;
        }
        if guarded {
            self.run("RELEASE statement").await?;
        }
        Ok(done)
    }

    async fn run(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(text).execute(&mut *self.connection).await.map(|_| ())
    }

    fn keys<'v, T: Row>(&self, items: &'v [Item<T>]) -> Vec<Vec<Value<'v>>> {
        let mut values = Vec::with_capacity(T::TABLE.columns.len());
        let mut keys = Vec::with_capacity(items.len());
        for item in items {
            values.clear();
            item.value.values(&mut values);
            let part = |index: &usize| std::mem::replace(&mut values[*index], Value::Null);
            keys.push(self.statements.key.iter().map(part).collect());
        }
        keys
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
        sqlite::bind(&mut arguments, values.drain(..))?;
    }
    Ok(arguments)
}

/// A statement must change as many rows as it was given: a trigger that drops rows would lose them without a word.
fn expect(changed: u64, rows: usize) -> Result<(), Failed> {
    if changed == rows as u64 {
        return Ok(());
    }
    Err(unexpected(&format!(
        "the table took {changed} of {rows} rows; take away the trigger that drops or deletes rows, or changes keys"
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
