//! Stages that ask somebody else: what is asked, and how often again. `pool` does the asking.

mod gate;
mod pool;

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::Failure;
use crate::batch::Item;

pub(crate) use self::pool::Pool;

/// A function of one record that may have to wait for its answer.
///
/// Closures that return a boxed future are calls too: see [`call_fn`](crate::call_fn).
pub trait Call<In>: Send + Sync + 'static {
    /// What the answer becomes.
    type Out: Send + 'static;

    /// Asks about one record. May be asked again about the same one.
    ///
    /// # Cancel safety
    /// Dropped only when the run is stopped at once; the record is then not committed and will be asked about again.
    fn call(&self, record: &Item<In>) -> impl Future<Output = Result<Self::Out, Failure>> + Send;
}

/// A function of a slice of records, answered in one go.
pub trait CallBatch<In>: Send + Sync + 'static {
    /// What the answer for one record becomes.
    type Out: Send + 'static;

    /// Asks about records: one result each, in their order, or one failure for all of them.
    ///
    /// # Cancel safety
    /// As [`Call::call`].
    fn call_batch(&self, records: &[Item<In>]) -> impl Future<Output = Answers<Self::Out>> + Send;
}

/// One result for each record of a call, or one failure for all.
pub type Answers<Out> = Result<Vec<Result<Out, Failure>>, Failure>;

impl<In, Out, F> Call<In> for F
where
    F: for<'a> Fn(&'a Item<In>) -> BoxFuture<'a, Result<Out, Failure>> + Send + Sync + 'static,
    Out: Send + 'static,
{
    type Out = Out;
    fn call(&self, record: &Item<In>) -> impl Future<Output = Result<Out, Failure>> + Send {
        self(record)
    }
}

/// A [`Call`] that is given one record at a time.
pub struct One<C>(pub(crate) C);

impl<In: Sync + 'static, C: Call<In>> CallBatch<In> for One<C> {
    type Out = C::Out;
    async fn call_batch(&self, records: &[Item<In>]) -> Answers<C::Out> {
        let mut answers = Vec::with_capacity(records.len());
        for record in records {
            answers.push(self.0.call(record).await);
        }
        Ok(answers)
    }
}

/// How often and how long a record is tried again, and how long the stage waits for a service that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts after which a record becomes a dead letter.
    pub attempts: u32,
    /// Wait after the first failed attempt; doubled after each further one.
    pub backoff: Duration,
    /// Longest wait between two attempts.
    pub longest: Duration,
    /// How long the stage holds before it gives up and the run ends.
    pub max_hold: Duration,
}

impl Default for Retry {
    /// 3 attempts, 100 ms doubling to 30 s, 60 minutes.
    fn default() -> Retry {
        Retry {
            attempts: 3,
            backoff: Duration::from_millis(100),
            longest: Duration::from_secs(30),
            max_hold: Duration::from_secs(3600),
        }
    }
}

impl Retry {
    fn wait(&self, failed: u32) -> Duration {
        self.backoff.saturating_mul(1 << failed.saturating_sub(1).min(20)).min(self.longest)
    }
}
