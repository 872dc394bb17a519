//! Putting finished batches back into order.

use std::collections::BTreeMap;

use crate::batch::{Batch, Order, Place};

/// Batches that wait for an earlier one. What comes out is in order, without a gap.
///
/// In the order of the source, hand-overs are counted, so that one without records (only its checkpoint moved) keeps its place
/// too: a checkpoint neither overtakes its records nor comes after a later one.
pub(crate) struct Sorter<T, P = ()> {
    order: Order,
    next: Place,
    waiting: BTreeMap<Place, (Batch<T>, P)>,
}

impl<T, P> Sorter<T, P> {
    pub(crate) fn new(order: Order) -> Self {
        Sorter { order, next: (0, 0), waiting: BTreeMap::new() }
    }

    pub(crate) fn push(&mut self, batch: Batch<T>, with: P) {
        let before = self.waiting.insert(batch.place(self.order), (batch, with));
        debug_assert!(before.is_none(), "two batches at one place");
    }

    /// The next batch in order, if it is there.
    pub(crate) fn pop(&mut self) -> Option<(Batch<T>, P)> {
        let first = self.waiting.first_entry()?;
        if *first.key() != self.next {
            return None;
        }
        let (batch, with) = first.remove();
        self.next = batch.next_place(self.order);
        Some((batch, with))
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

    /// All orders of `items`.
    fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
        let Some((last, rest)) = items.split_last() else { return vec![vec![]] };
        let insert = |order: Vec<T>| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, *last);
                order
            })
        };
        permutations(rest).into_iter().flat_map(insert).collect()
    }

    #[test]
    fn batches_come_out_in_the_order_of_the_source_whatever_the_order_they_came_in() {
        let given = [(0, 0, 2), (2, 1, 0), (2, 2, 0), (2, 3, 3), (5, 4, 1), (6, 5, 0)];
        for order in permutations(&given) {
            let mut sorter = Sorter::new(Order::Source);
            let mut out = Vec::new();
            for &(first, serial, records) in &order {
                sorter.push(batch(first, serial, records), ());
                while let Some((batch, ())) = sorter.pop() {
                    out.push((batch.first(), batch.serial(), batch.amount().records));
                }
            }
            assert_eq!(out, given, "{order:?}");
        }
    }

    #[test]
    fn parts_of_joined_batches_keep_their_places_among_hand_overs_without_records() {
        let mut joined = batch(0, 0, 2);
        joined.join(batch(2, 1, 2));
        assert!(!joined.continues_with(&batch(4, 3, 1)), "the second hand-over is not there yet");
        let parts = [joined, batch(4, 2, 0), batch(4, 3, 1)];
        let mut sorter = Sorter::new(Order::Source);
        for part in parts.into_iter().rev() {
            assert!(sorter.pop().is_none());
            sorter.push(part, ());
        }
        let out: Vec<_> = std::iter::from_fn(|| sorter.pop()).map(|(b, ())| b.serial()).collect();
        assert_eq!(out, [1, 2, 3]);
        assert!(sorter.waiting.is_empty());
    }
}
