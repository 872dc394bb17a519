//! Streams at both ends: any stream as a source, and a pipeline's end as a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{Fuse, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::batch::{Checkpoint, Item, Lines, SourceBatch};
use crate::link::Room;
use crate::sink::{Committed, Group, Sink, SinkContext, Tally};
use crate::source::{Read, Source};
use crate::{BuildError, Bytes, Position, Reject, SinkError, SourceError, Span};
use crate::{Options, Pipeline, Run};

/// Any stream as a source: each of its values is a record of one byte, numbered from 1.
///
/// The stream is polled only when a value was asked for. It cannot go back, so a run that is taken up again must be given a
/// stream that begins where the last one was committed, and that position.
pub struct StreamSource<S> {
    /// Not polled again behind its end: streams may panic then.
    stream: Fuse<S>,
    at: Position,
}

impl<S: Stream> StreamSource<S> {
    /// A source of the values of `stream`.
    pub fn new(stream: S) -> StreamSource<S> {
        StreamSource::starting_at(stream, Position { input: 0, byte: 0, record: 1, line: 1 })
    }

    /// A source whose first value is the record at `at`.
    pub fn starting_at(stream: S, at: Position) -> StreamSource<S> {
        StreamSource { stream: stream.fuse(), at }
    }
}

impl<S> Source for StreamSource<S>
where
    S: Stream + Unpin + Send + 'static,
    S::Item: Send + 'static,
{
    type Item = S::Item;

    /// Waits for the first value, and takes what is ready after it.
    async fn read(&mut self, room: Room) -> Result<Read<S::Item>, SourceError> {
        let Some(first) = self.stream.next().await else { return Ok(Read::End) };
        let most = room.records.0.min(room.bytes.0);
        let start = self.at;
        let mut items = Vec::new();
        let mut next = Some(first);
        while let Some(value) = next {
            items.push(Item { at: self.at, len: 1, value });
            self.at.byte += 1;
            self.at.record += 1;
            self.at.line += 1;
            next = if (items.len() as u64) < most {
                futures::future::poll_immediate(self.stream.next()).await.flatten()
            } else {
                None
            };
        }
        let checkpoint =
            Checkpoint { at: self.at, fingerprint: 0, lines: Lines::default(), complete: false };
        let span = Span { start, end: self.at };
        Ok(Read::Batch(SourceBatch { span, items, rejects: Vec::new(), block: None, checkpoint }))
    }
}

/// How one record came out of a pipeline that ends as a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// A value.
    Value(Item<T>),
    /// A record that was rejected on the way.
    Rejected(Reject),
}

/// The end of a pipeline as a stream, in the order of the source. Its demand is the pipeline's: what is not taken holds its place.
pub struct EndStream<T> {
    values: ReceiverStream<Ended<T>>,
    run: Option<Run<ToStream<T>>>,
}

impl<T> EndStream<T> {
    /// The run behind the stream, once it is over or to control it.
    pub fn into_run(mut self) -> Option<Run<ToStream<T>>> {
        self.run.take()
    }

    /// The run behind the stream.
    pub fn run(&self) -> Option<&Run<ToStream<T>>> {
        self.run.as_ref()
    }
}

impl<T> Stream for EndStream<T> {
    type Item = Ended<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Ended<T>>> {
        if let Poll::Ready(ended) = Pin::new(&mut self.values).poll_next(cx) {
            return Poll::Ready(ended);
        }
        let Some(run) = &mut self.run else { return Poll::Pending };
        // The outcome has the sink, and with it the sending end: without it, the stream ends behind its last value.
        std::task::ready!(run.poll_ended(cx)).sink = None;
        Pin::new(&mut self.values).poll_next(cx)
    }
}

/// The sink behind an [`EndStream`].
pub struct ToStream<T> {
    values: mpsc::Sender<Ended<T>>,
}

impl<T: Send + 'static> Sink<T> for ToStream<T> {
    async fn commit(&mut self, group: Group<T>, _: &SinkContext) -> Result<Committed, SinkError> {
        let rejected = group.rejects.len() as u64;
        let stored = group.records_with_items();
        let tally = Tally {
            read: group.amount.records,
            stored,
            rejected,
            filtered: group.filtered.total(),
            ..Tally::default()
        };
        let values = group
            .items
            .into_iter()
            .map(Ended::Value)
            .chain(group.rejects.into_iter().map(Ended::Rejected));
        let dropped = || SinkError::Target("the stream at the pipeline's end was dropped".into());
        for value in values {
            self.values.send(value).await.map_err(|_| dropped())?;
        }
        // The channel has one place: when it is free again, the last value was taken.
        self.values.reserve().await.map_err(|_| dropped())?;
        Ok(Committed { tally, stop: None })
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Starts the pipeline with its end as a stream. `buffer`: most source records that are read and not yet taken from it.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn into_stream(
        self,
        buffer: u64,
        mut options: Options,
    ) -> Result<EndStream<T>, BuildError> {
        let (sender, receiver) = mpsc::channel(1);
        let records = crate::Records(buffer);
        options.buffer.insert("stream".into(), crate::Buffer::Records(records));
        let grouping =
            crate::Grouping { records: crate::Records(1), bytes: Bytes(1), ..Default::default() };
        let run =
            self.sink("stream", ToStream { values: sender }).grouping(grouping).start(options)?;
        Ok(EndStream { values: ReceiverStream::new(receiver), run: Some(run) })
    }
}
