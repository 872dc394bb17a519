//! Gegendruck: a demand-driven pipeline runtime for batch import.
//!
//! ```text
//!          limit <--------          limit <--------          limit <--------
//!  source -> [ read ] ==link==> [ validate ] ==link==> [ score x4 ] ==link==> [ store ] -> sink
//! ```
//!
//! Two currents: batches go down, demand goes up. Nothing is sent that was not asked for, so nothing can overflow, and the
//! most that can be in flight is a number that is known before a run starts ([`Runnable::plan`]).
//!
//! The crate knows demand, links, batches, workers, verdicts and time. It knows no file format and no database: those are
//! [`Source`]s and [`Sink`]s.
//!
//! ```
//! use gegendruck::{Collect, End, Options, Pipeline, Reason, StreamSource};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let numbers = futures::stream::iter(["1", "2", "x", "4"]);
//! let sink = Collect::new();
//! let outcome = Pipeline::new("numbers")
//!     .source(StreamSource::new(numbers))
//!     .try_map("parse", |text| text.parse::<i64>().map_err(|_| Reason::record("not_a_number")))
//!     .sink("collect", sink.clone())
//!     .run(Options::default())
//!     .await
//!     .unwrap();
//! assert!(matches!(outcome.end, End::Complete));
//! assert_eq!((outcome.tally.stored, outcome.tally.rejected), (3, 1));
//! assert_eq!(sink.values(), [1, 2, 4]);
//! # }
//! ```

mod amount;
mod position;
mod reject;

mod clock;
mod meter;
mod sync;

mod batch;
mod link;
mod order;
mod tried;
mod verdict;

mod call;
mod error;
mod sink;
mod source;
mod stage;
mod timed;
mod transform;

mod pipeline;
mod plan;
mod report;
mod run;
mod watchdog;
mod wiring;

mod collect;
mod stream;

pub use amount::{Amount, Bytes, Records};
pub use batch::{Batch, Block, Checkpoint, Filtered, Item, Lines, SourceBatch};
pub use call::{Answers, Call, CallBatch, One, Retry};
pub use clock::{Clock, Moment};
pub use collect::Collect;
pub use error::{BuildError, Failure, RunError, SinkError, SourceError};
pub use link::Room;
pub use meter::{Meter, Reading, State, Times};
pub use pipeline::{Pipeline, Runnable, Unfed};
pub use plan::{Options, Plan, Planned};
pub use position::{Position, Span};
pub use reject::{Reason, Reject};
pub use report::{Limit, Report, StageKind, StageReport, Verdict, number, thousands, time};
pub use run::{Control, End, Event, EventHandler, Outcome, Run};
pub use sink::{Committed, Group, Grouping, Sink, SinkContext, Tally};
pub use source::{Read, Source};
pub use stage::{
    Buffer, Calls, Crew, Outlet, Settings, Stage, StageBuilder, StartWorker, Transforms, call,
    call_batch, call_fn, filter, flat_map, hand_on, map, try_map,
};
pub use stream::{EndStream, Ended, StreamSource, ToStream};
pub use tried::{Tried, Tries};
