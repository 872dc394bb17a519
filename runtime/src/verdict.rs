//! One verdict for each record, also where a record has become several values.
//!
//! A record's values are judged one by one, but the record ends as one thing: refused if any of its values is (the others are
//! taken back, so that what one record became is never half there), filtered if nothing is left of it, and passed on otherwise.

use std::sync::Arc;

use crate::batch::{Batch, Item};
use crate::tried::Tries;
use crate::{Position, Reason};

/// What became of one value.
pub enum Made<Out> {
    /// A value that goes on; one of several, if more are made of the same record.
    One(Out),
    /// Nothing, on purpose.
    Filtered(&'static str),
    /// Nothing: the record is refused.
    Rejected(Reason),
}

/// Builds the batch that goes on from what became of the values of the batch that came in.
pub(crate) struct Verdicts<'a, Out> {
    stage: &'a Arc<str>,
    rest: Batch<Out>,
    out: Vec<Item<Out>>,
    tries: Option<Tries>,
    /// The record whose values are being judged; none before the first.
    open: bool,
    at: Position,
    len: u32,
    /// How many values had gone on before those of the open record.
    before: usize,
    filtered_for: Option<&'static str>,
    rejected_for: Option<Reason>,
    pub(crate) rejected: u64,
    pub(crate) filtered: u64,
}

/// Reason of the records that an expanding stage turned into nothing.
const NOTHING: &str = "became_nothing";

impl<'a, Out> Verdicts<'a, Out> {
    /// Judges for `stage` what was taken out of `rest`; `tries` is what is known of earlier attempts.
    pub(crate) fn new(
        stage: &'a Arc<str>,
        rest: Batch<Out>,
        values: usize,
        tries: Option<Tries>,
    ) -> Self {
        Verdicts {
            stage,
            rest,
            out: Vec::with_capacity(values),
            tries,
            open: false,
            at: Position::default(),
            len: 0,
            before: 0,
            filtered_for: None,
            rejected_for: None,
            rejected: 0,
            filtered: 0,
        }
    }

    /// The next value is one of the record at `at`.
    #[inline]
    pub(crate) fn record(&mut self, at: Position, len: u32) {
        if self.open && self.at.record == at.record {
            return;
        }
        self.close();
        (self.open, self.at, self.len, self.before) = (true, at, len, self.out.len());
        self.filtered_for = None;
    }

    /// The record named last.
    pub(crate) fn at(&self) -> Position {
        self.at
    }

    /// What became of a value of the record named last.
    #[inline]
    pub(crate) fn made(&mut self, made: Made<Out>) {
        match made {
            Made::One(value) if self.rejected_for.is_none() => {
                self.out.push(Item { at: self.at, len: self.len, value })
            }
            Made::One(_) => {}
            Made::Filtered(reason) => self.filtered_for = Some(reason),
            Made::Rejected(reason) => {
                self.rejected_for.get_or_insert(reason);
            }
        }
    }

    #[inline]
    fn close(&mut self) {
        if self.open && (self.out.len() == self.before || self.rejected_for.is_some()) {
            self.close_without_value();
        }
        self.open = false;
    }

    #[cold]
    fn close_without_value(&mut self) {
        let filtered = self.filtered_for.take();
        if let Some(reason) = self.rejected_for.take() {
            self.out.truncate(self.before);
            self.rejected += 1;
            let tries = self.tries.unwrap_or_else(Tries::once);
            self.rest.reject(self.stage, self.at, self.len, reason, tries);
        } else {
            self.filtered += 1;
            self.rest.filter(filtered.unwrap_or(NOTHING));
        }
    }

    /// The batch that goes on, with the numbers of records rejected and filtered here.
    pub(crate) fn finish(mut self) -> (Batch<Out>, u64, u64) {
        self.close();
        self.rest.put_items(self.out);
        (self.rest, self.rejected, self.filtered)
    }
}
