//! Putting finished batches back into the order of the source.

use std::collections::BTreeMap;

use crate::batch::Batch;

/// Batches that wait for an earlier one. What comes out is in the order of the axis, without a gap.
///
/// A batch without records (only its checkpoint moved) waits until everything before it is out.
pub(crate) struct Sorter<T, P = ()> {
    next: u64,
    waiting: BTreeMap<(u64, u64), (Batch<T>, P)>,
}

impl<T, P> Sorter<T, P> {
    pub(crate) fn new() -> Self {
        Sorter { next: 0, waiting: BTreeMap::new() }
    }

    pub(crate) fn push(&mut self, batch: Batch<T>, with: P) {
        let before = self.waiting.insert(batch.key(), (batch, with));
        debug_assert!(before.is_none(), "two batches at one place");
    }

    /// The next batch in order, if it is there.
    pub(crate) fn pop(&mut self) -> Option<(Batch<T>, P)> {
        let first = self.waiting.first_entry()?;
        if first.key().0 > self.next {
            return None;
        }
        let (batch, with) = first.remove();
        self.next = self.next.max(batch.first() + batch.amount().records);
        Some((batch, with))
    }

    /// How many batches wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::{Checkpoint, Lines, Position, SourceBatch, Span};

    fn batch(first: u64, serial: u64, records: u64) -> Batch<()> {
        let at = |record| Position { input: 0, byte: record, record, line: record };
        let span = Span { start: at(first), end: at(first + records) };
        let checkpoint =
            Checkpoint { at: span.end, fingerprint: 0, lines: Lines::default(), complete: false };
        SourceBatch { span, items: vec![], rejects: vec![], block: None, checkpoint }.into_batch(
            first,
            serial,
            Moment::default(),
        )
    }

    #[test]
    fn batches_come_out_in_the_order_of_the_source_whatever_the_order_they_came_in() {
        let given = [(0, 0, 2), (2, 1, 0), (2, 2, 3), (5, 3, 1), (6, 4, 0)];
        for rotation in 0..given.len() {
            let mut order = given;
            order.rotate_left(rotation);
            order.reverse();
            let mut sorter = Sorter::new();
            let mut out = Vec::new();
            for (first, serial, records) in order {
                sorter.push(batch(first, serial, records), ());
                while let Some((batch, ())) = sorter.pop() {
                    out.push((batch.key(), batch.amount().records));
                }
            }
            let with_records: Vec<_> =
                out.iter().filter(|(_, n)| *n > 0).map(|(key, _)| key.1).collect();
            assert_eq!(with_records, [0, 2, 3], "rotation {rotation}");
            assert_eq!(out.len(), 5, "rotation {rotation}: nothing is left behind");
            let place = |serial| out.iter().position(|(key, _)| key.1 == serial).unwrap();
            assert!(
                place(1) > place(0) && place(4) > place(3),
                "rotation {rotation}: a checkpoint never overtakes its records"
            );
        }
    }
}
