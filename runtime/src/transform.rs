//! Stages that compute: `map`, `try_map`, `filter`, `flat_map`. Plain functions over whole batches; they never wait.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Reason;
use crate::batch::{Batch, Item};
use crate::stage::StageInfo;
use crate::verdict::{Made, Verdicts};

/// A function of one value that does not wait.
pub trait Transform<In>: Send + Sync + 'static {
    /// What it makes.
    type Out: Send + 'static;

    /// Judges one value and hands on what became of it.
    fn make(&self, value: In, to: &mut impl FnMut(Made<Self::Out>));

    /// Judges all values of a batch. A panic refuses the record that it happened on, and no other.
    fn apply(&self, stage: &StageInfo, batch: Batch<In>) -> Applied<Self::Out>
    where
        Self: Sized,
    {
        let (items, rest) = batch.take_items::<Self::Out>();
        let mut verdicts = Verdicts::new(&stage.name, rest, items.len(), None);
        let mut items = items.into_iter();
        // The loop is left by a panic and taken up again behind it, so that a batch without one pays for one guard.
        loop {
            let run = AssertUnwindSafe(|| {
                for Item { at, len, value } in items.by_ref() {
                    verdicts.record(at, len);
                    self.make(value, &mut |made| verdicts.made(made));
                }
            });
            if catch_unwind(run).is_ok() {
                return verdicts.finish();
            }
            stage.panicked(verdicts.at());
            verdicts.made(Made::Rejected(panic_reason()));
        }
    }
}

/// The batch that goes on, with the numbers of records rejected and filtered.
pub(crate) type Applied<Out> = (Batch<Out>, u64, u64);

/// The reason of a record that a stage panicked on. The panic's own words may hold field values and are left out.
pub(crate) fn panic_reason() -> Reason {
    Reason::record("panicked").detail("the stage panicked on this record")
}

/// Hands batches on as they are.
#[derive(Clone, Copy, Debug)]
pub struct HandOn;

impl<In: Send + 'static> Transform<In> for HandOn {
    type Out = In;

    fn make(&self, value: In, to: &mut impl FnMut(Made<In>)) {
        to(Made::One(value));
    }

    fn apply(&self, _: &StageInfo, batch: Batch<In>) -> Applied<In> {
        (batch, 0, 0)
    }
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

    /// Looks at all values before it moves any: a batch that stays as it is goes on as it is.
    fn apply(&self, stage: &StageInfo, mut batch: Batch<In>) -> Applied<In> {
        let values = batch.slice();
        let keep = &self.1;
        // Most batches stay as they are: that is found out in a loop of its own.
        let mut first = 0;
        let prefix = AssertUnwindSafe(|| {
            for item in values {
                if !keep(&item.value) {
                    break;
                }
                first += 1;
            }
        });
        let mut fates = Vec::new();
        match catch_unwind(prefix) {
            Ok(()) if first == values.len() => return (batch, 0, 0),
            Ok(()) => fates.push(Fate::Goes),
            Err(_) => {
                stage.panicked(values[first].at);
                fates.push(Fate::Panicked);
            }
        }
        for item in &values[first + 1..] {
            fates.push(match catch_unwind(AssertUnwindSafe(|| keep(&item.value))) {
                Ok(true) => Fate::Stays,
                Ok(false) => Fate::Goes,
                Err(_) => {
                    stage.panicked(item.at);
                    Fate::Panicked
                }
            });
        }
        let (items, rest) = batch.take_items();
        let mut verdicts = Verdicts::new(&stage.name, rest, items.len(), None);
        let fates = std::iter::repeat_n(Fate::Stays, first).chain(fates);
        for (Item { at, len, value }, fate) in items.into_iter().zip(fates) {
            verdicts.record(at, len);
            verdicts.made(match fate {
                Fate::Stays => Made::One(value),
                Fate::Goes => Made::Filtered(self.0),
                Fate::Panicked => Made::Rejected(panic_reason()),
            });
        }
        verdicts.finish()
    }
}

#[derive(Clone, Copy)]
enum Fate {
    Stays,
    Goes,
    Panicked,
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
