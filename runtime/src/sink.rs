//! Sinks: where a run's records end, group by group, and the task that feeds them.
//!
//! ```text
//! last link --batches--> [ order of the source ] --> group --commit--> sink: rows + rejects + progress + counts
//!     ^                                                         |
//!     +------------------- settled = committed -----------------+
//! ```
//!
//! - A group is a contiguous stretch of the source that ends at a checkpoint. It is committed as a whole or not at all.
//! - Groups come in the order of the source, one at a time. What has not come yet holds its place in the buffer.
//! - A group closes at its size in records or bytes, after the interval, or when nothing more can come.
//! - At every commit: `read = stored + rejected + filtered + duplicate`, or the run fails before anything is written.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Block, Checkpoint, Filtered, Item, Order};
use crate::clock::{Clock, Moment};
use crate::link::{Link, Share};
use crate::meter::{Ending, Meter, State};
use crate::order::Sorter;
use crate::source::Needs;
use crate::stage::Stop;
use crate::sync::Mutex;
use crate::tried::{Tried, TriedRecords};
use crate::{Amount, Bytes, Position, Records, Reject, RunError, SinkError, thousands};

/// How records ended, by verdict. Its text says what was read, and what that is the sum of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Records read.
    pub read: u64,
    /// Stored in the target.
    pub stored: u64,
    /// Of those stored, the ones that replaced a row.
    pub updated: u64,
    /// Rejected: dead letters.
    pub rejected: u64,
    /// Dropped on purpose.
    pub filtered: u64,
    /// Already in the target, and left as they were.
    pub duplicate: u64,
}

impl Tally {
    /// True if every record read has exactly one verdict.
    pub fn balances(&self) -> bool {
        self.read == self.stored + self.rejected + self.filtered + self.duplicate
    }

    /// Adds another stretch's counts.
    pub fn add(&mut self, other: &Tally) {
        self.read += other.read;
        self.stored += other.stored;
        self.updated += other.updated;
        self.rejected += other.rejected;
        self.filtered += other.filtered;
        self.duplicate += other.duplicate;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { read, stored, updated, rejected, filtered, duplicate } = *self;
        let [read, stored, updated] = [read, stored, updated].map(thousands);
        let [rejected, filtered, duplicate] = [rejected, filtered, duplicate].map(thousands);
        write!(
            f,
            "{read} = stored {stored} (updated {updated}) + rejected {rejected} + filtered {filtered} + duplicate {duplicate}"
        )
    }
}

/// A contiguous stretch of the source, all of whose records have come through: what one transaction takes.
#[derive(Debug)]
pub struct Group<T> {
    /// What came through, in the order of the source.
    pub items: Vec<Item<T>>,
    /// What was rejected on the way, in no particular order.
    pub rejects: Vec<Reject>,
    /// What was dropped on purpose.
    pub filtered: Filtered,
    /// Source records and bytes of the stretch.
    pub amount: Amount,
    /// Where each input that the stretch touches can go on, in order: one, or more if inputs ended in it.
    pub checkpoints: Vec<Checkpoint>,
    /// Where the stretch begins.
    pub start: Position,
    /// Source bytes of the stretch, each block with the index of its input.
    pub blocks: Vec<(u32, Block)>,
    /// Later records that failed in passing so far: what is to be known of them after this commit, in place of what was known
    /// before it.
    pub tried: Vec<Tried>,
}

/// What a sink made of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The verdicts of the group's records.
    pub tally: Tally,
    /// Why the run must not go on after this, if so.
    pub stop: Option<String>,
}

/// Where a run's records end.
pub trait Sink<In>: Send + 'static {
    /// Writes a group, whole or not at all, and says how each of its records ended.
    ///
    /// # Errors
    /// Nothing of the group was written.
    ///
    /// # Cancel safety
    /// Dropped when the run is stopped at once: the group is then in the target as a whole or not at all.
    fn commit(
        &mut self,
        group: Group<In>,
        context: &SinkContext,
    ) -> impl Future<Output = Result<Committed, SinkError>> + Send;

    /// All input was read and committed. What completes the run happens here.
    ///
    /// # Errors
    /// The run is not complete.
    ///
    /// # Cancel safety
    /// Dropped when the run is stopped at once: it is then completed or not.
    fn complete(
        &mut self,
        context: &SinkContext,
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        let _ = context;
        async { Ok(()) }
    }
}

/// Lets a sink say what it is waiting for.
#[derive(Debug)]
pub struct SinkContext {
    pub(crate) meter: Arc<Meter>,
    pub(crate) commits: Arc<Mutex<CommitState>>,
    pub(crate) stop: Stop,
}

impl Default for SinkContext {
    /// Of a run that nobody reads and nobody stops: for a sink that is driven by hand.
    fn default() -> SinkContext {
        let meter = Arc::new(Meter::start(Clock::start(), State::Committing));
        let (_, never) = tokio::sync::watch::channel(None);
        SinkContext { meter, commits: Arc::default(), stop: Stop(never) }
    }
}

impl SinkContext {
    /// Waits until the run is told to stop. A sink that waits for its target gives up then, with [`SinkError::Stopped`]: what it
    /// has not written is left to the next start.
    ///
    /// # Cancel safety
    /// Dropped, it has changed nothing.
    pub async fn stopping(&self) {
        self.stop.clone().stopping().await;
    }

    /// Runs a wait after an error of the target: the time counts as paused.
    ///
    /// # Cancel safety
    /// That of `wait`; dropped, the worker goes on to count as paused.
    pub async fn paused<F: Future>(&self, wait: F) -> F::Output {
        self.meter.enter(State::Paused);
        let output = wait.await;
        self.meter.enter(State::Committing);
        output
    }

    /// Runs the part of a transaction in which the target makes it durable, such as SQL's `COMMIT`: whether a faster disk would
    /// help is told from its share.
    ///
    /// # Cancel safety
    /// That of `commit`.
    pub async fn made_durable<F: Future>(&self, commit: F) -> F::Output {
        let clock = self.meter.clock();
        let before = clock.now();
        let output = commit.await;
        let took = clock.now().since(before);
        *self.commits.lock().durable.get_or_insert_default() += took;
        output
    }
}

/// When a group closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// At so many records.
    pub records: Records,
    /// At so many source bytes.
    pub bytes: Bytes,
    /// So long after its first record came.
    pub interval: Duration,
}

impl Default for Grouping {
    /// 5,000 records, 8 MiB, 1 s.
    fn default() -> Grouping {
        Grouping { records: Records(5_000), bytes: Bytes::mib(8), interval: Duration::from_secs(1) }
    }
}

/// How far the commits are, for readers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitState {
    pub(crate) tally: Tally,
    pub(crate) at: Option<Position>,
    pub(crate) when: Option<Moment>,
    pub(crate) commits: u64,
    /// How long transactions took to be made durable, if the sink says so.
    pub(crate) durable: Option<Duration>,
}

/// Why the sink's task ended without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SinkEnd {
    /// The source came to its end, everything is committed, and the sink has completed the run.
    Completed,
    /// The source was stopped before its end; everything that it handed out is committed.
    Drained,
    /// The link was closed, and some of what the source handed out did not come: `missing` records from `at` on.
    Gap { missing: u64, at: Position },
    /// The sink said so.
    Stopped(String),
}

pub(crate) struct Feeder<T, S> {
    pub(crate) sink: S,
    pub(crate) link: Arc<Link<T>>,
    pub(crate) context: SinkContext,
    pub(crate) grouping: Grouping,
    pub(crate) commits: Arc<Mutex<CommitState>>,
    pub(crate) handed_out: Arc<Mutex<HandedOut>>,
    pub(crate) needs: Arc<Needs>,
    pub(crate) tried: Arc<TriedRecords>,
}

/// What the source gave, all in all. Set by its task before it closes its link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandedOut {
    pub(crate) amount: Amount,
    /// There is nothing more to read.
    pub(crate) all: bool,
}

/// Batches that are next in order, and how many of them end at a checkpoint.
struct Gathered<T> {
    batches: Vec<Batch<T>>,
    /// How many batches make a whole group.
    whole: usize,
    amount: Amount,
    /// What came after the last checkpoint.
    open: Amount,
    since: Moment,
}

impl<T> Gathered<T> {
    fn push(&mut self, batch: Batch<T>, clock: Clock) {
        if self.batches.is_empty() {
            self.since = clock.now();
        }
        self.open += batch.amount();
        let ends = batch.checkpoint().is_some();
        self.batches.push(batch);
        if ends {
            self.amount += std::mem::take(&mut self.open);
            self.whole = self.batches.len();
        }
    }

    /// True if there is a whole group, and this batch would make it larger than it may be.
    fn closes_before(&self, batch: &Batch<T>, grouping: Grouping) -> bool {
        let with = self.amount + self.open + batch.amount();
        self.whole > 0 && (with.records > grouping.records.0 || with.bytes > grouping.bytes.0)
    }

    fn is_full(&self, grouping: Grouping) -> bool {
        self.amount.records >= grouping.records.0 || self.amount.bytes >= grouping.bytes.0
    }
}

impl<T: Send + 'static, S: Sink<T>> Feeder<T, S> {
    /// Commits what comes until the link is closed or the sink stops the run.
    pub(crate) async fn run(mut self) -> (S, Result<SinkEnd, RunError>) {
        let _ending = Ending(self.context.meter.clone());
        let end = self.feed().await;
        (self.sink, end)
    }

    async fn feed(&mut self) -> Result<SinkEnd, RunError> {
        let meter = self.context.meter.clone();
        let clock = meter.clock();
        let mut sorter: Sorter<T> = Sorter::new(Order::Source);
        let mut gathered = Gathered {
            batches: Vec::new(),
            whole: 0,
            amount: Amount::ZERO,
            open: Amount::ZERO,
            since: Moment::default(),
        };
        loop {
            let due = clock.instant(gathered.since.plus(self.grouping.interval));
            let claim = tokio::select! {
                biased;
                batch = self.link.claim(Share::Batch, Some(&meter)) => Some(batch),
                () = tokio::time::sleep_until(due), if gathered.whole > 0 => None,
                () = self.needs.changed.notified(), if gathered.whole > 0 => {
                    if !self.link.is_exhausted(self.needs.waiting()) {
                        continue;
                    }
                    None
                }
            };
            meter.enter(State::Busy);
            let over = matches!(claim, Some(None));
            let mut close = true;
            if let Some(Some(batch)) = claim {
                sorter.push(batch, ());
                while let Some((batch, ())) = sorter.pop() {
                    if let Some(stop) = self.gather(batch, &mut gathered).await? {
                        return Ok(SinkEnd::Stopped(stop));
                    }
                }
                close = self.link.is_exhausted(self.needs.waiting());
            }
            if close
                && gathered.whole > 0
                && let Some(stop) = self.commit(&mut gathered).await?
            {
                return Ok(SinkEnd::Stopped(stop));
            }
            if over {
                return self.end(gathered).await;
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Takes the next batch of the source's order, and commits the groups that it closes. Gives what the sink says if the run
    /// must stop.
    async fn gather(
        &mut self,
        batch: Batch<T>,
        gathered: &mut Gathered<T>,
    ) -> Result<Option<String>, RunError> {
        if gathered.closes_before(&batch, self.grouping)
            && let Some(stop) = self.commit(gathered).await?
        {
            return Ok(Some(stop));
        }
        gathered.push(batch, self.context.meter.clock());
        if gathered.is_full(self.grouping) { self.commit(gathered).await } else { Ok(None) }
    }

    /// No more will come: was it all?
    async fn end(&mut self, gathered: Gathered<T>) -> Result<SinkEnd, RunError> {
        let handed_out = *self.handed_out.lock();
        let came = self.link.gauge();
        if handed_out.amount != came.settled {
            let at = match gathered.batches.last() {
                Some(batch) => batch.span().end,
                None => self.commits.lock().at.unwrap_or_default(),
            };
            let missing = handed_out.amount.records.saturating_sub(came.sent.records);
            return Ok(SinkEnd::Gap { missing, at });
        }
        if !handed_out.all {
            return Ok(SinkEnd::Drained);
        }
        self.context.meter.enter(State::Committing);
        guarded(self.sink.complete(&self.context), || "completing the run".into()).await?;
        Ok(SinkEnd::Completed)
    }

    async fn commit(&mut self, gathered: &mut Gathered<T>) -> Result<Option<String>, RunError> {
        let meter = &self.context.meter;
        let rest = gathered.batches.split_off(gathered.whole);
        let batches = std::mem::replace(&mut gathered.batches, rest);
        let amount = std::mem::take(&mut gathered.amount);
        gathered.whole = 0;
        if !gathered.batches.is_empty() {
            gathered.since = meter.clock().now();
        }
        let mut group = group(batches, amount)?;
        let end = group.checkpoints.last().map(|checkpoint| checkpoint.at);
        group.tried = end.map(|end| self.tried.settle(end)).unwrap_or_default();
        let start = group.start;
        meter.begin(State::Committing);
        let at_work = || format!("committing {} records from {start} on", amount.records);
        let committed = guarded(self.sink.commit(group, &self.context), at_work).await?;
        let now = meter.committed(amount.records);
        if !committed.tally.balances() || committed.tally.read != amount.records {
            let words = format!(
                "the counts of {} records from {start} on do not balance: {}; this is a fault of the sink",
                amount.records, committed.tally
            );
            return Err(SinkError::Unbalanced(words).into());
        }
        {
            let mut state = self.commits.lock();
            state.tally.add(&committed.tally);
            state.at = end.or(state.at);
            state.when = Some(now);
            state.commits += 1;
        }
        self.link.settle(amount);
        Ok(committed.stop)
    }
}

/// Runs a call of the sink; a panic in it is an error of the run.
async fn guarded<T>(
    call: impl Future<Output = Result<T, SinkError>>,
    at_work: impl FnOnce() -> String,
) -> Result<T, RunError> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(done) => Ok(done?),
        Err(_) => Err(RunError::Panic(format!("the sink panicked {}", at_work()))),
    }
}

/// Joins batches that follow each other into what one transaction takes, and checks that no record is without a verdict.
fn group<T>(batches: Vec<Batch<T>>, amount: Amount) -> Result<Group<T>, RunError> {
    let start = batches.first().map(|batch| batch.span().start).unwrap_or_default();
    // The values of a group of one batch stay where they are.
    let several = batches.len() > 1;
    let values = if several { batches.iter().map(Batch::len).sum() } else { 0 };
    let mut group = Group {
        items: Vec::with_capacity(values),
        rejects: Vec::new(),
        filtered: Filtered::default(),
        amount,
        checkpoints: Vec::new(),
        start,
        blocks: Vec::new(),
        tried: Vec::new(),
    };
    for batch in batches {
        if let Some(checkpoint) = batch.checkpoint() {
            if group.checkpoints.last().is_some_and(|last| last.at.input == checkpoint.at.input) {
                group.checkpoints.pop();
            }
            group.checkpoints.push(*checkpoint);
        }
        let input = batch.span().start.input;
        let parts = batch.into_parts();
        group.blocks.extend(parts.blocks.into_iter().map(|block| (input, block)));
        if several {
            group.items.extend(parts.items);
        } else {
            group.items = parts.items.into();
        }
        group.rejects.extend(parts.rejects);
        for (reason, n) in parts.filtered.iter() {
            group.filtered.add(reason, n);
        }
    }
    let with_verdict =
        group.records_with_items() + group.rejects.len() as u64 + group.filtered.total();
    if with_verdict != amount.records {
        return Err(RunError::Unaccounted {
            missing: amount.records.abs_diff(with_verdict),
            at: start,
        });
    }
    Ok(group)
}

impl<T> Group<T> {
    /// The untouched source bytes of the record that one of its items came from; none if its source kept none.
    pub fn source_bytes(&self, item: &Item<T>) -> &[u8] {
        self.blocks
            .iter()
            .filter(|(input, _)| *input == item.at.input)
            .find_map(|(_, block)| block.get(item.at.byte, item.len as usize))
            .unwrap_or_default()
    }

    /// How many records have values in the group; one record may have several.
    pub fn records_with_items(&self) -> u64 {
        let mut records = 0;
        let mut last = None;
        for item in &self.items {
            let this = Some((item.at.input, item.at.record));
            records += u64::from(last != this);
            last = this;
        }
        records
    }
}
