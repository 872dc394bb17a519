//! Batches: contiguous runs of records that travel together.
//!
//! ```text
//! axis of the run   ... 41 | 42   43   44   45   46 | 47 ...      records handed out by the source
//!                          +------------------------+
//! items                    | 42   43        45      |             what goes on
//! rejects                  |           44           |             rejected, with their source bytes
//! filtered                 |                     1  |             dropped on purpose, counted by reason
//! block                    | source bytes of 42..47 |             so that a reject can be kept untouched
//! checkpoint               |                     (47)             only on the part that ends what the source handed out
//! ```
//!
//! - Every record of the axis is in exactly one place of exactly one batch: an item, a reject, or a count of the filtered.
//! - What one record became (several items after `flat_map`) is never separated.
//! - A batch lies in one input. Cut in two, each part carries its own span; the checkpoint goes with the last.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::Moment;
use crate::tried::Tries;
use crate::{Amount, Position, Reason, Reject, Span};

/// One value on its way, with the position and the source length of the record it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// Where its record begins.
    pub at: Position,
    /// Source bytes of its record, without the line end.
    pub len: u32,
    /// The value.
    pub value: T,
}

impl<T> std::ops::Deref for Item<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Item<T> {
    /// The same record with another value.
    pub fn with<U>(&self, value: U) -> Item<U> {
        Item { at: self.at, len: self.len, value }
    }
}

/// Source bytes that several batches may share.
#[derive(Clone, Debug)]
pub struct Block {
    base: u64,
    bytes: Arc<[u8]>,
}

impl Block {
    /// The bytes of an input from offset `base` on.
    pub fn new(base: u64, bytes: Arc<[u8]>) -> Block {
        Block { base, bytes }
    }

    /// The `len` bytes from offset `at` of the input on, if they are all in this block.
    pub fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(at.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

/// Where a source can go on after all that came before, and what it needs to be sure that it is the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The position after the last record.
    pub at: Position,
    /// A fingerprint of all bytes of the input up to `at.byte` (what hash it is belongs to the source).
    pub fingerprint: u128,
    /// What else was counted of the input up to here.
    pub lines: Lines,
    /// The input has no more records.
    pub complete: bool,
}

/// What is counted of an input besides its records, from where the run began in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lines {
    /// Lines of the header.
    pub header: u64,
    /// Blank lines, skipped.
    pub blank: u64,
    /// Lines of the trailer.
    pub trailer: u64,
    /// Records whose values were changed on the way in, because a flag says so.
    #[serde(default)]
    pub repaired: u64,
}

/// How many records were dropped on purpose, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered(Vec<(&'static str, u64)>);

impl Filtered {
    /// Counts `n` more for `reason`.
    pub fn add(&mut self, reason: &'static str, n: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += n,
            None => self.0.push((reason, n)),
        }
    }

    /// All records dropped.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    /// Reasons and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().copied()
    }

    fn merge(&mut self, other: Filtered) {
        for (reason, n) in other.0 {
            self.add(reason, n);
        }
    }
}

/// A contiguous run of records, handed over in one piece: a hand-over moves one word.
#[derive(Debug)]
pub struct Batch<T>(Box<Whole<T>>);

#[derive(Debug)]
struct Whole<T> {
    head: Head,
    items: VecDeque<Item<T>>,
}

impl<T> Whole<T> {
    fn batch(head: Head, items: VecDeque<Item<T>>) -> Batch<T> {
        Batch(Box::new(Whole { head, items }))
    }
}

/// All of a batch but its values.
#[derive(Debug)]
struct Head {
    /// Place on the axis of the run of its first record: how many were handed out before it.
    first: u64,
    /// The hand-over of the source that its first record belongs to; tells batches without records apart.
    from: u64,
    /// The hand-over that its last record belongs to.
    serial: u64,
    span: Span,
    rejects: Vec<Reject>,
    filtered: Filtered,
    block: Option<Block>,
    more_blocks: Vec<Block>,
    checkpoint: Option<Checkpoint>,
    read_at: Moment,
    claim: Claimed,
}

/// The claim by which a batch, or the whole that it is a part of, was taken from its link.
#[derive(Clone, Copy, Debug, Default)]
struct Claimed {
    number: u64,
    first: u64,
    records: u64,
}

/// What batches are put in the order of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the source handed them out.
    Source,
    /// As they were claimed from the link before.
    Claims,
}

/// A place in an order.
pub(crate) type Place = (u64, u64);

/// What a source made of a run of records, before the runtime gives it its place on the axis.
#[derive(Debug)]
pub struct SourceBatch<T> {
    /// The records' span.
    pub span: Span,
    /// The records that could be taken, in order.
    pub items: Vec<Item<T>>,
    /// The records that could not.
    pub rejects: Vec<Reject>,
    /// The source bytes of the span, or `None` if there are none to keep.
    pub block: Option<Block>,
    /// Where the source could go on after this batch.
    pub checkpoint: Checkpoint,
}

impl<T> SourceBatch<T> {
    /// What it counts on the axis of demand.
    pub fn amount(&self) -> Amount {
        Amount { records: self.span.records(), bytes: self.span.bytes() }
    }

    pub(crate) fn into_batch(self, first: u64, serial: u64, read_at: Moment) -> Batch<T> {
        let head = Head {
            first,
            from: serial,
            serial,
            span: self.span,
            rejects: self.rejects,
            filtered: Filtered::default(),
            block: self.block,
            more_blocks: Vec::new(),
            checkpoint: Some(self.checkpoint),
            read_at,
            claim: Claimed::default(),
        };
        Whole::batch(head, self.items.into())
    }
}

/// A batch taken apart, for the sink.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    pub(crate) items: VecDeque<Item<T>>,
    pub(crate) rejects: Vec<Reject>,
    pub(crate) filtered: Filtered,
    pub(crate) blocks: Vec<Block>,
}

impl<T> Batch<T> {
    /// What it counts on the axis of demand: records and bytes of its span.
    pub fn amount(&self) -> Amount {
        Amount { records: self.0.head.span.records(), bytes: self.0.head.span.bytes() }
    }

    /// Its place on the axis of the run: how many records were handed out before its first one.
    pub fn first(&self) -> u64 {
        self.0.head.first
    }

    /// Where its records lie.
    pub fn span(&self) -> Span {
        self.0.head.span
    }

    /// The values that go on.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &Item<T>> {
        self.0.items.iter()
    }

    /// How many values go on.
    pub fn len(&self) -> usize {
        self.0.items.len()
    }

    /// True if no value goes on.
    pub fn is_empty(&self) -> bool {
        self.0.items.is_empty()
    }

    /// The values that go on, in one piece.
    pub(crate) fn slice(&mut self) -> &[Item<T>] {
        self.0.items.make_contiguous()
    }

    /// The records that were rejected so far.
    pub fn rejects(&self) -> &[Reject] {
        &self.0.head.rejects
    }

    /// The records dropped on purpose so far.
    pub fn filtered(&self) -> &Filtered {
        &self.0.head.filtered
    }

    /// When its first record was read.
    pub fn read_at(&self) -> Moment {
        self.0.head.read_at
    }

    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.0.head.checkpoint.as_ref()
    }

    /// Its place in an order: the hand-over that it begins in, or its claim, and how far it lies in.
    pub(crate) fn place(&self, order: Order) -> Place {
        match order {
            Order::Source => (self.0.head.from, self.0.head.first),
            Order::Claims => {
                (self.0.head.claim.number, self.0.head.first - self.0.head.claim.first)
            }
        }
    }

    /// The place of the batch that follows this one.
    pub(crate) fn next_place(&self, order: Order) -> Place {
        let records = self.0.head.span.records();
        match order {
            Order::Source => (
                self.0.head.serial + u64::from(self.0.head.checkpoint.is_some()),
                self.0.head.first + records,
            ),
            Order::Claims => match self.0.head.first - self.0.head.claim.first + records {
                end if end == self.0.head.claim.records => (self.0.head.claim.number + 1, 0),
                end => (self.0.head.claim.number, end),
            },
        }
    }

    /// It was taken from its link by this claim.
    pub(crate) fn claimed(&mut self, number: u64) {
        self.0.head.claim =
            Claimed { number, first: self.0.head.first, records: self.0.head.span.records() };
    }

    #[cfg(test)]
    pub(crate) fn serial(&self) -> u64 {
        self.0.head.serial
    }

    /// The untouched source bytes of one of its records.
    pub fn source_bytes(&self, at: Position, len: u32) -> &[u8] {
        self.0
            .head
            .block
            .iter()
            .chain(&self.0.head.more_blocks)
            .find_map(|block| block.get(at.byte, len as usize))
            .unwrap_or_default()
    }

    /// Refuses a record of this batch that is no longer among its items.
    pub(crate) fn reject(
        &mut self,
        stage: &Arc<str>,
        at: Position,
        len: u32,
        reason: Reason,
        tries: Tries,
    ) {
        let bytes = self.source_bytes(at, len).into();
        self.0.head.rejects.push(Reject {
            at,
            len: u64::from(len),
            bytes,
            stage: stage.to_string().into(),
            reason,
            attempts: tries.attempts,
            first: tries.first,
            last: tries.last,
        });
    }

    pub(crate) fn filter(&mut self, reason: &'static str) {
        self.0.head.filtered.add(reason, 1);
    }

    /// Takes the items out, to put what became of them into the batch that goes on.
    pub(crate) fn take_items<U>(self) -> (VecDeque<Item<T>>, Batch<U>) {
        let Whole { head, items } = *self.0;
        (items, Whole::batch(head, VecDeque::new()))
    }

    pub(crate) fn put_items(&mut self, items: Vec<Item<T>>) {
        self.0.items = items.into();
    }

    pub(crate) fn into_parts(self) -> Parts<T> {
        let Head { rejects, filtered, block, more_blocks, .. } = self.0.head;
        let blocks = block.into_iter().chain(more_blocks).collect();
        Parts { items: self.0.items, rejects, filtered, blocks }
    }

    /// Cuts off the first `count` items, and leaves the part that begins with the record of the next one.
    ///
    /// The counts of filtered records stay with the first part as a whole; parts of one hand-over are committed together.
    pub(crate) fn split_head(&mut self, count: usize) -> Batch<T> {
        let at = self.0.items[count].at;
        let (before, after) = std::mem::take(&mut self.0.head.rejects)
            .into_iter()
            .partition(|r| r.at.record < at.record);
        let head = Head {
            first: self.0.head.first,
            from: self.0.head.from,
            serial: self.0.head.serial,
            span: Span { start: self.0.head.span.start, end: at },
            rejects: before,
            filtered: std::mem::take(&mut self.0.head.filtered),
            block: self.0.head.block.clone(),
            more_blocks: self.0.head.more_blocks.clone(),
            checkpoint: None,
            read_at: self.0.head.read_at,
            claim: self.0.head.claim,
        };
        let head = Whole::batch(head, self.0.items.drain(..count).collect());
        self.0.head.rejects = after;
        self.0.head.from = self.0.head.serial;
        self.0.head.first += at.record - self.0.head.span.start.record;
        self.0.head.span.start = at;
        head
    }

    /// The number of items in the first `records` records, so that a cut there separates no record's items.
    pub(crate) fn items_in(&self, records: usize) -> usize {
        let mut seen = 0;
        let mut last = None;
        for (index, item) in self.0.items.iter().enumerate() {
            if last != Some(item.at.record) {
                if seen == records {
                    return index;
                }
                seen += 1;
                last = Some(item.at.record);
            }
        }
        self.0.items.len()
    }

    /// The number of items of the record that follows the first `index` items; 0 if there is none.
    pub(crate) fn items_after(&self, index: usize) -> usize {
        let Some(next) = self.0.items.get(index) else { return 0 };
        self.0.items.iter().skip(index).take_while(|item| item.at.record == next.at.record).count()
    }

    /// How many of its records have values that go on.
    pub(crate) fn records_with_items(&self) -> u64 {
        let mut last = None;
        let mut records = 0;
        for item in &self.0.items {
            records += u64::from(last != Some(item.at.record));
            last = Some(item.at.record);
        }
        records
    }

    /// Takes all of it, and leaves an empty batch behind.
    pub(crate) fn take(&mut self) -> Batch<T> {
        let end = Span { start: self.0.head.span.end, end: self.0.head.span.end };
        let empty = Head {
            first: self.0.head.first + self.0.head.span.records(),
            from: self.0.head.serial,
            serial: self.0.head.serial,
            span: end,
            rejects: Vec::new(),
            filtered: Filtered::default(),
            block: None,
            more_blocks: Vec::new(),
            checkpoint: None,
            read_at: self.0.head.read_at,
            claim: self.0.head.claim,
        };
        let empty = Whole::batch(empty, VecDeque::new());
        std::mem::replace(self, empty)
    }

    /// Makes a parked record independent of the block it was read in: its source bytes are copied out.
    pub(crate) fn detach(&mut self) {
        let (Some(first), Some(last)) = (self.0.items.front(), self.0.items.back()) else { return };
        let (base, end) = (first.at.byte, last.at.byte + u64::from(last.len));
        let blocks = self.0.head.block.iter().chain(&self.0.head.more_blocks);
        let bytes = blocks.filter_map(|block| block.get(base, (end - base) as usize)).next();
        if let Some(bytes) = bytes.map(Arc::from) {
            self.0.head.block = Some(Block::new(base, bytes));
            self.0.head.more_blocks = Vec::new();
        }
    }

    /// True if `next` continues this batch, so that the two can be joined. An end of a hand-over is never lost by it: a checkpoint
    /// is given up only for a later one.
    pub(crate) fn continues_with(&self, next: &Batch<T>) -> bool {
        let same_input = self.0.head.span.end.input == next.0.head.span.start.input;
        let later = self
            .0
            .head
            .checkpoint
            .is_none_or(|checkpoint| !checkpoint.complete && next.0.head.checkpoint.is_some());
        same_input
            && later
            && self.next_place(Order::Source) == next.place(Order::Source)
            && self.0.head.span.end == next.0.head.span.start
    }

    /// Joins what follows directly. The checkpoint between the two is given up: the later one covers it.
    pub(crate) fn join(&mut self, mut next: Batch<T>) {
        self.0.head.serial = next.0.head.serial;
        self.0.head.span.end = next.0.head.span.end;
        self.0.head.read_at = self.0.head.read_at.min(next.0.head.read_at);
        self.0.items.append(&mut next.0.items);
        self.0.head.rejects.append(&mut next.0.head.rejects);
        let Head { block, more_blocks, checkpoint, filtered, .. } = next.0.head;
        self.0.head.more_blocks.extend(block.into_iter().chain(more_blocks));
        self.0.head.filtered.merge(filtered);
        self.0.head.checkpoint = checkpoint;
    }
}
