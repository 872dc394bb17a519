//! A sink that keeps everything in memory, for tests and examples.

use std::sync::Arc;

use crate::sink::{Committed, Group, Sink, SinkContext, Tally};
use crate::sync::Mutex;
use crate::{Checkpoint, Item, Reject, SinkError};

/// Keeps what is committed, in the order of the source. Clones share it.
#[derive(Debug)]
pub struct Collect<T> {
    kept: Arc<Mutex<Kept<T>>>,
}

#[derive(Debug)]
struct Kept<T> {
    items: Vec<Item<T>>,
    rejects: Vec<Reject>,
    checkpoints: Vec<Checkpoint>,
    completed: bool,
}

impl<T> Clone for Collect<T> {
    fn clone(&self) -> Self {
        Collect { kept: self.kept.clone() }
    }
}

impl<T> Default for Collect<T> {
    fn default() -> Self {
        let kept = Kept {
            items: Vec::new(),
            rejects: Vec::new(),
            checkpoints: Vec::new(),
            completed: false,
        };
        Collect { kept: Arc::new(Mutex::new(kept)) }
    }
}

impl<T: Clone> Collect<T> {
    /// An empty one.
    pub fn new() -> Collect<T> {
        Collect::default()
    }

    /// The values committed.
    pub fn values(&self) -> Vec<T> {
        self.kept.lock().items.iter().map(|item| item.value.clone()).collect()
    }

    /// The values committed, with their positions.
    pub fn items(&self) -> Vec<Item<T>> {
        self.kept.lock().items.clone()
    }

    /// The records rejected.
    pub fn rejects(&self) -> Vec<Reject> {
        self.kept.lock().rejects.clone()
    }

    /// The last checkpoint of each group.
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.kept.lock().checkpoints.clone()
    }

    /// True if the run was completed.
    pub fn completed(&self) -> bool {
        self.kept.lock().completed
    }
}

impl<T: Send + 'static> Sink<T> for Collect<T> {
    async fn commit(&mut self, group: Group<T>, _: &SinkContext) -> Result<Committed, SinkError> {
        let tally = Tally {
            read: group.amount.records,
            stored: group.records_with_items(),
            rejected: group.rejects.len() as u64,
            filtered: group.filtered.total(),
            ..Tally::default()
        };
        let mut kept = self.kept.lock();
        kept.items.extend(group.items);
        kept.rejects.extend(group.rejects);
        kept.checkpoints.extend(group.checkpoints.last());
        Ok(Committed { tally, stop: None })
    }

    async fn complete(&mut self, _: &SinkContext) -> Result<(), SinkError> {
        self.kept.lock().completed = true;
        Ok(())
    }
}
