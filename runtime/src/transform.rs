//! Stages that compute: `map`, `try_map`, `filter`, `flat_map`. Plain functions over whole batches; they never wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::batch::{Batch, Item};
use crate::verdict::{Made, Verdicts};
use crate::{Position, Reason};

/// A function of one value that does not wait.
pub trait Transform<In>: Send + Sync + 'static {
    /// What it makes.
    type Out: Send + 'static;

    /// Judges one value and hands on what became of it.
    fn make(&self, value: In, to: &mut impl FnMut(Made<Self::Out>));
}

/// Applies a transform to a batch. A panic refuses the record that it happened on, and no other.
/// Returns the batch that goes on, with the numbers of records rejected and filtered; `on_panic` is told each record at fault.
pub(crate) fn apply<In, F: Transform<In>>(
    stage: &Arc<str>,
    function: &F,
    batch: Batch<In>,
    mut on_panic: impl FnMut(Position),
) -> (Batch<F::Out>, u64, u64) {
    let (items, rest) = batch.take_items::<F::Out>();
    let mut verdicts = Verdicts::new(stage, rest, items.len(), None);
    let mut items = items.into_iter();
    // The loop is left by a panic and taken up again behind it, so that a batch without one pays for one guard.
    loop {
        let run = AssertUnwindSafe(|| {
            for Item { at, len, value } in items.by_ref() {
                verdicts.record(at, len);
                function.make(value, &mut |made| verdicts.made(made));
            }
        });
        if catch_unwind(run).is_ok() {
            break;
        }
        on_panic(verdicts.at());
        verdicts.made(Made::Rejected(panicked()));
    }
    verdicts.finish()
}

/// The reason of a record that a stage panicked on. The panic's own words may hold field values and are left out.
pub(crate) fn panicked() -> Reason {
    Reason::record("panicked").detail("the stage panicked on this record")
}

/// Turns each value into another.
#[derive(Clone, Debug)]
pub struct Map<F>(pub(crate) F);

impl<In, Out, F> Transform<In> for Map<F>
where
    F: Fn(In) -> Out + Send + Sync + 'static,
    Out: Send + 'static,
{
    type Out = Out;
    fn make(&self, value: In, to: &mut impl FnMut(Made<Out>)) {
        to(Made::One((self.0)(value)));
    }
}

/// Turns each value into another, or says why its record is refused.
#[derive(Clone, Debug)]
pub struct TryMap<F>(pub(crate) F);

impl<In, Out, F> Transform<In> for TryMap<F>
where
    F: Fn(&In) -> Result<Out, Reason> + Send + Sync + 'static,
    Out: Send + 'static,
{
    type Out = Out;
    fn make(&self, value: In, to: &mut impl FnMut(Made<Out>)) {
        to((self.0)(&value).map_or_else(Made::Rejected, Made::One));
    }
}

/// Drops values, under a reason.
#[derive(Clone, Debug)]
pub struct Filter<F>(pub(crate) &'static str, pub(crate) F);

impl<In, F> Transform<In> for Filter<F>
where
    F: Fn(&In) -> bool + Send + Sync + 'static,
    In: Send + 'static,
{
    type Out = In;
    fn make(&self, value: In, to: &mut impl FnMut(Made<In>)) {
        to(if (self.1)(&value) { Made::One(value) } else { Made::Filtered(self.0) });
    }
}

/// Turns each value into several.
#[derive(Clone, Debug)]
pub struct FlatMap<F> {
    pub(crate) at_most: usize,
    pub(crate) function: F,
}

impl<In, Out, Many, F> Transform<In> for FlatMap<F>
where
    F: Fn(In) -> Many + Send + Sync + 'static,
    Many: IntoIterator<Item = Out>,
    Out: Send + 'static,
{
    type Out = Out;
    fn make(&self, value: In, to: &mut impl FnMut(Made<Out>)) {
        for (index, value) in (self.function)(value).into_iter().enumerate() {
            if index == self.at_most {
                let detail =
                    format!("the record became more than the declared {} values", self.at_most);
                return to(Made::Rejected(Reason::record("too_many_values").detail(detail)));
            }
            to(Made::One(value));
        }
    }
}
