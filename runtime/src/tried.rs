//! Records that failed in passing and are not settled yet, so that their attempts are counted over restarts.
//!
//! ```text
//! call stage -- attempt --> [ tried records ] -- with each commit --> Group::tried --> ledger
//!     ^                            ^                                                     |
//!     |                            +------------------ Options::tried <-- next start ----+
//!     +--- attempts so far --------+
//! ```
//!
//! - An attempt is noted when it is answered, and forgotten when its record is committed: what is known after a crash is what was
//!   noted before the last commit.
//! - Noted are attempts of a record that was alone in its call. What failed together says nothing about one of them.
//! - At most one entry for each record in flight and stage, and only for those that failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::sync::Mutex;
use crate::{Position, Span};

/// How often a record was tried, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// Calls about it that were answered by an error or a panic; for a record that got its verdict, that answer too.
    pub attempts: u32,
    /// When the first of them began.
    pub first: SystemTime,
    /// When the last of them was answered.
    pub last: SystemTime,
}

impl Tries {
    /// None yet.
    pub(crate) fn begun(first: SystemTime) -> Tries {
        Tries { attempts: 0, first, last: first }
    }

    pub(crate) fn once() -> Tries {
        Tries { attempts: 1, ..Tries::begun(SystemTime::now()) }
    }

    pub(crate) fn again(&mut self) {
        self.attempts += 1;
        self.last = SystemTime::now();
    }
}

/// A record that failed in passing and is not settled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The stage that it failed in.
    pub stage: Arc<str>,
    /// Where it begins. Only input and record count when it is given back to a run.
    pub at: Position,
    /// Its attempts.
    pub tries: Tries,
}

/// Input and record.
type Key = (u32, u64);

fn key(at: Position) -> Key {
    (at.input, at.record)
}

/// All of a run's.
#[derive(Debug, Default)]
pub(crate) struct TriedRecords {
    /// Those that earlier starts of the run left.
    before: BTreeMap<Key, Vec<Tried>>,
    unsettled: Mutex<BTreeMap<Key, Vec<Tried>>>,
}

impl TriedRecords {
    pub(crate) fn new(before: Vec<Tried>) -> TriedRecords {
        let mut by_key: BTreeMap<Key, Vec<Tried>> = BTreeMap::new();
        for tried in before {
            by_key.entry(key(tried.at)).or_default().push(tried);
        }
        TriedRecords { unsettled: Mutex::new(by_key.clone()), before: by_key }
    }

    /// The numbers of a span's records that earlier starts of the run tried in `stage`, in order, with their attempts.
    pub(crate) fn before(&self, stage: &str, span: Span) -> impl Iterator<Item = (u64, Tries)> {
        let records = key(span.start)..key(span.end).max(key(span.start));
        let tried = self.before.range(records).flat_map(|(_, tried)| tried);
        tried
            .filter(move |tried| *tried.stage == *stage)
            .map(|tried| (tried.at.record, tried.tries))
    }

    /// A record was answered by an error or a panic.
    pub(crate) fn note(&self, stage: &Arc<str>, at: Position, tries: Tries) {
        let mut unsettled = self.unsettled.lock();
        let entry = unsettled.entry(key(at)).or_default();
        match entry.iter_mut().find(|tried| tried.stage == *stage) {
            Some(tried) => tried.tries = tries,
            None => entry.push(Tried { stage: stage.clone(), at, tries }),
        }
    }

    /// Everything before `end` is about to be committed: what is to be kept with it.
    pub(crate) fn settle(&self, end: Position) -> Vec<Tried> {
        let mut unsettled = self.unsettled.lock();
        if !unsettled.is_empty() {
            *unsettled = unsettled.split_off(&key(end));
        }
        unsettled.values().flatten().cloned().collect()
    }
}
