//! What the tests share: a source that is counted, a sink that is strict, and the checks that every run must pass.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use gegendruck::{
    Amount, Bytes, Checkpoint, Collect, Committed, Control, Group, Item, Lines, Outcome, Position,
    Read, Reason, Reject, Room, Run, Sink, SinkContext, SinkError, Source, SourceBatch,
    SourceError, Span, Tried,
};
use tokio::time::sleep;

/// A source of numbered records whose every hand-over is written down and held against the bounds of all links.
#[derive(Clone)]
pub struct Feed {
    /// Records of each input.
    pub inputs: VecDeque<u64>,
    /// Source bytes of the record with this number.
    pub len: fn(u64) -> u64,
    /// Most records in one hand-over, over what was asked for.
    pub most: u64,
    /// How long one hand-over takes.
    pub takes: Duration,
    /// Every so-manieth hand-over has no record, only a byte that is none; 0: never.
    pub blank_every: u64,
    /// Every so-manieth record is refused by the source; 0: none.
    pub refuse_every: u64,
    pub seen: Arc<Seen>,
    at: Position,
    handed: u64,
    reads: u64,
}

/// What a [`Feed`] was asked for and what it gave.
#[derive(Default)]
pub struct Seen {
    /// Set by the test when the run has started; the bounds are checked from then on.
    pub control: OnceLock<Control>,
    pub rooms: Mutex<Vec<Room>>,
    pub given: Mutex<Vec<Amount>>,
}

impl Seen {
    pub fn handed_out(&self) -> Amount {
        self.given.lock().unwrap().iter().fold(Amount::ZERO, |sum, given| sum + *given)
    }

    pub fn given_records(&self) -> Vec<u64> {
        self.given.lock().unwrap().iter().map(|amount| amount.records).collect()
    }

    /// `more` is about to be handed out: nowhere may more be in flight than that link's buffer, but for one record alone.
    fn check(&self, more: Amount) {
        let Some(control) = self.control.get() else { return };
        let handed = self.handed_out() + more;
        for stage in control.report().stages {
            let in_flight = handed - stage.settled;
            let alone = more.records == 1 && stage.settled == self.handed_out();
            assert!(
                in_flight.fits(stage.buffer) || alone,
                "{}: {in_flight:?} in flight, buffer {:?}",
                stage.name,
                stage.buffer
            );
        }
    }
}

impl Feed {
    /// `records` records of ten bytes in one input, handed out as they are asked for.
    pub fn of(records: u64) -> Feed {
        Feed::of_inputs([records])
    }

    pub fn of_inputs(inputs: impl IntoIterator<Item = u64>) -> Feed {
        Feed {
            inputs: inputs.into_iter().collect(),
            len: |_| 10,
            most: u64::MAX,
            takes: Duration::ZERO,
            blank_every: 0,
            refuse_every: 0,
            seen: Arc::default(),
            at: Position { input: 0, byte: 0, record: 1, line: 1 },
            handed: 0,
            reads: 0,
        }
    }

    fn hand_out(
        &mut self,
        items: Vec<Item<u64>>,
        rejects: Vec<Reject>,
        end: Position,
    ) -> Read<u64> {
        let left = self.inputs.front_mut().expect("an input is open");
        *left -= end.record - self.at.record;
        let complete = *left == 0;
        let span = Span { start: self.at, end };
        self.at = end;
        if complete {
            self.inputs.pop_front();
            self.at = Position { input: end.input + 1, byte: 0, record: 1, line: 1 };
        }
        let checkpoint = Checkpoint { at: end, fingerprint: 0, lines: Lines::default(), complete };
        let batch = SourceBatch { span, items, rejects, block: None, checkpoint };
        self.seen.check(batch.amount());
        self.seen.given.lock().unwrap().push(batch.amount());
        Read::Batch(batch)
    }
}

impl Source for Feed {
    type Item = u64;

    async fn read(&mut self, room: Room) -> Result<Read<u64>, SourceError> {
        self.seen.rooms.lock().unwrap().push(room);
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        let Some(&left) = self.inputs.front() else { return Ok(Read::End) };
        self.reads += 1;
        if left > 0 && self.blank_every > 0 && self.reads.is_multiple_of(self.blank_every) {
            let end = Position { byte: self.at.byte + 1, line: self.at.line + 1, ..self.at };
            return Ok(self.hand_out(vec![], vec![], end));
        }
        let (mut items, mut rejects, mut end) = (vec![], vec![], self.at);
        for _ in 0..left.min(room.records.0).min(self.most) {
            let len = (self.len)(self.handed);
            if end.byte + len - self.at.byte > room.bytes.0 {
                break;
            }
            if self.refuse_every > 0 && self.handed.is_multiple_of(self.refuse_every) {
                rejects.push(refused(end, len));
            } else {
                items.push(Item { at: end, len: len as u32, value: self.handed });
            }
            self.handed += 1;
            end.byte += len;
            end.record += 1;
            end.line += 1;
        }
        if end == self.at && left > 0 {
            return Ok(Read::Needs(Bytes((self.len)(self.handed))));
        }
        Ok(self.hand_out(items, rejects, end))
    }
}

fn refused(at: Position, len: u64) -> Reject {
    let now = std::time::SystemTime::UNIX_EPOCH;
    Reject {
        at,
        len,
        bytes: Box::default(),
        stage: "read".into(),
        reason: Reason::record("refused_by_the_source"),
        attempts: 1,
        first: now,
        last: now,
    }
}

/// Keeps what is committed, and insists that groups are contiguous, in the order of the file, and balanced.
#[derive(Clone)]
pub struct Strict<T> {
    pub kept: Collect<T>,
    pub groups: Arc<Mutex<Vec<Amount>>>,
    /// What each commit was to know of later records.
    pub tried: Arc<Mutex<Vec<Vec<Tried>>>>,
    /// How long one record takes in the transaction.
    pub takes: Duration,
    next: Option<Checkpoint>,
}

impl<T: Clone> Strict<T> {
    pub fn new() -> Strict<T> {
        Strict {
            kept: Collect::new(),
            groups: Arc::default(),
            tried: Arc::default(),
            takes: Duration::ZERO,
            next: None,
        }
    }

    pub fn taking(takes: Duration) -> Strict<T> {
        Strict { takes, ..Strict::new() }
    }
}

impl<T: Clone + Send + 'static> Sink<T> for Strict<T> {
    async fn commit(
        &mut self,
        group: Group<T>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        let begins = match self.next {
            None => Position { input: 0, byte: 0, record: 1, line: 1 },
            Some(last) if last.complete => {
                Position { input: last.at.input + 1, byte: 0, record: 1, line: 1 }
            }
            Some(last) => last.at,
        };
        assert_eq!(group.start, begins, "a group begins where the last one ended");
        assert!(
            group.items.is_sorted_by_key(|item| item.at),
            "a group is in the order of the file"
        );
        let checkpoints: Vec<_> = group.checkpoints.iter().map(|point| point.at).collect();
        assert!(checkpoints.is_sorted() && !checkpoints.is_empty(), "{checkpoints:?}");
        let last = group.checkpoints.last().copied();
        let end = last.map(|last| last.at).unwrap_or_default();
        assert!(group.items.iter().all(|item| item.at >= begins && item.at < end), "not beyond it");
        self.next = last;
        self.groups.lock().unwrap().push(group.amount);
        if !self.takes.is_zero() {
            sleep(self.takes * group.amount.records as u32).await;
        }
        self.tried.lock().unwrap().push(group.tried.clone());
        self.kept.commit(group, context).await
    }

    async fn complete(&mut self, context: &SinkContext) -> Result<(), SinkError> {
        Sink::<T>::complete(&mut self.kept, context).await
    }
}

/// Waits for the end of a run whose source is `seen`, and checks what holds for every run.
pub async fn finish<S: Send + 'static>(run: Run<S>, seen: &Seen) -> Outcome<S> {
    let _ = seen.control.set(run.control());
    let control = run.control();
    let outcome = tokio::time::timeout(Duration::from_secs(7_200), run.outcome()).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("hangs: {}", control.report()));
    check(&outcome);
    outcome
}

/// Every worker's states add up to its wall time, and every verdict counted is counted once.
#[track_caller]
pub fn check<S>(outcome: &Outcome<S>) {
    for stage in &outcome.report.stages {
        assert_eq!(stage.times.total(), stage.lived, "states of {} and its wall time", stage.name);
        assert!(
            stage.longest <= outcome.report.wall,
            "{} lived no longer than the run",
            stage.name
        );
    }
    assert!(outcome.tally.balances(), "{:?}", outcome.tally);
}

/// Asserts that `found` is within `percent` percent of `expected`.
#[track_caller]
pub fn near(found: f64, expected: f64, percent: f64) {
    let off = 100.0 * (found - expected).abs() / expected;
    assert!(off <= percent, "found {found}, expected {expected}: {off:.2} % off");
}

/// Keeps the panics that are told to happen out of the test's output.
pub fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"as told") {
                before(info);
            }
        }));
    });
}
