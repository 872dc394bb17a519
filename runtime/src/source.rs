//! Sources: where records come from, and the task that asks them.
//!
//! ```text
//! link 0 --room--> [ driver ] --read(room)--> source
//!                      |  <---- batch, checkpoint
//!                      v
//!                   link 0
//! ```
//!
//! A source is asked for at most what there is room for, and hands out no more. It is asked one thing at a time.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::batch::SourceBatch;
use crate::link::{Link, Room};
use crate::meter::{Meter, State};
use crate::sync::Mutex;
use crate::timed::timed;
use crate::{Bytes, Records, RunError, SourceError};

/// What a source gives when asked.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once a batch; a box would be one more allocation each time"
)]
pub enum Read<T> {
    /// Records, no more than there was room for. May be without records when only the checkpoint moved.
    Batch(SourceBatch<T>),
    /// The next record alone has so many bytes, more than there was room for: ask again with at least that much.
    Needs(Bytes),
    /// There are no more records.
    End,
}

/// Where records come from.
pub trait Source: Send + 'static {
    /// What a record is when it leaves the source.
    type Item: Send + 'static;

    /// Reads the next records: at most `room.records`, of together at most `room.bytes`. Waits for nothing but the outside.
    ///
    /// # Errors
    /// What cannot be read. Bad records are no error: they are rejects of the batch.
    ///
    /// # Cancel safety
    /// The future is dropped when the run stops. The source is not asked again then, so it may lose what it has read.
    fn read(
        &mut self,
        room: Room,
    ) -> impl Future<Output = Result<Read<Self::Item>, SourceError>> + Send;
}

/// What the source's next record takes if that was more than there was room for, for the sink to know when nothing more can come.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    waiting: Mutex<Option<Waiting>>,
    pub(crate) changed: Notify,
}

/// A record that waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Bytes,
    /// Records that were handed out before it.
    pub(crate) behind: u64,
}

impl Needs {
    fn tell(&self, waiting: Option<Waiting>) {
        *self.waiting.lock() = waiting;
        self.changed.notify_one();
    }

    pub(crate) fn waiting(&self) -> Option<Waiting> {
        *self.waiting.lock()
    }
}

/// Asks `source` for what link 0 has room for, until its end (true), until the link is frozen (false), or until it fails.
pub(crate) async fn drive<S: Source>(
    mut source: S,
    link: Arc<Link<S::Item>>,
    meter: Arc<Meter>,
    most: Records,
    needs: Arc<Needs>,
    frozen: impl Future<Output = ()>,
) -> Result<bool, RunError> {
    let mut frozen = std::pin::pin!(frozen);
    let mut need = Bytes(0);
    let (mut first, mut serial) = (0, 0);
    loop {
        let Some(room) = link.reserve(need, Some(&meter)).await else { return Ok(false) };
        let room = Room { records: room.records.min(most), ..room };
        meter.begin(State::Busy);
        let read = tokio::select! {
            biased;
            () = &mut frozen => return Ok(false),
            read = timed(&meter, source.read(room)) => read?,
        };
        match read {
            Read::Batch(batch) => {
                let amount = batch.amount();
                if amount.records > room.records.0 || amount.bytes > room.bytes.0 {
                    return Err(misbehaved(format!(
                        "handed out {amount:?} when asked for {room:?}"
                    )));
                }
                if need > Bytes(0) {
                    need = Bytes(0);
                    needs.tell(None);
                }
                let read_at = meter.served(amount.records, amount.records);
                link.send(batch.into_batch(first, serial, read_at));
                first += amount.records;
                serial += 1;
            }
            Read::Needs(bytes) if bytes <= room.bytes => {
                return Err(misbehaved(format!("needs {bytes:?} when asked for {room:?}")));
            }
            Read::Needs(bytes) => {
                need = bytes;
                needs.tell(Some(Waiting { bytes, behind: first }));
            }
            Read::End => return Ok(true),
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// A source that does not keep to what it was asked: a fault of its code, not of the input.
fn misbehaved(how: String) -> RunError {
    SourceError::new(format!("the source {how}; this is a fault of the source")).into()
}
