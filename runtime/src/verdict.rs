//! One verdict for each record, also where a record has become several values.
//!
//! A record's values are judged one by one, but the record ends as one thing: refused if any of its values is (the others are
//! taken back, so that what one record became is never half there), filtered if nothing is left of it, and passed on otherwise.

use std::sync::Arc;

use crate::batch::{Batch, Item, Tries};
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
    open: Option<Open>,
    tries: Option<Tries>,
    pub(crate) rejected: u64,
    pub(crate) filtered: u64,
}

/// The record whose values are being judged.
struct Open {
    at: Position,
    len: u32,
    first_out: usize,
    filtered: Option<&'static str>,
    rejected: Option<Reason>,
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
            open: None,
            tries,
            rejected: 0,
            filtered: 0,
        }
    }

    /// The next value is one of the record at `at`.
    pub(crate) fn record(&mut self, at: Position, len: u32) {
        if self.open.as_ref().is_some_and(|open| open.at.record == at.record) {
            return;
        }
        self.close();
        self.open =
            Some(Open { at, len, first_out: self.out.len(), filtered: None, rejected: None });
    }

    /// What became of a value of the record named last.
    pub(crate) fn made(&mut self, made: Made<Out>) {
        let Some(open) = &mut self.open else { return };
        match made {
            Made::One(value) if open.rejected.is_none() => {
                self.out.push(Item { at: open.at, len: open.len, value })
            }
            Made::One(_) => {}
            Made::Filtered(reason) => open.filtered = Some(reason),
            Made::Rejected(reason) => open.rejected = open.rejected.take().or(Some(reason)),
        }
    }

    fn close(&mut self) {
        let Some(Open { at, len, first_out, filtered, rejected }) = self.open.take() else {
            return;
        };
        if let Some(reason) = rejected {
            self.out.truncate(first_out);
            self.rejected += 1;
            self.rest.reject(self.stage, at, len, reason, self.tries.unwrap_or_else(Tries::once));
        } else if self.out.len() == first_out {
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
