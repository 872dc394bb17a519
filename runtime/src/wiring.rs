//! Wiring: links and tasks of a pipeline, made from the sink towards the source.
//!
//! ```text
//! source <-- link 0 <-- stage <-- link 1 <-- sink        made from right to left: a link needs the limit of the one behind it
//! ```

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::clock::Clock;
use crate::link::{Link, Window};
use crate::meter::{Ending, Meter, State};
use crate::report::StageKind;
use crate::run::EventHandler;
use crate::sink::{CommitState, Feeder, Grouping, HandedOut, Sink, SinkContext, SinkEnd};
use crate::source::{Needs, Source, drive};
use crate::stage::{
    InOrder, Leaving, Outlet, Retire, Settings, Stage, StageInfo, StartWorker, Stop,
};
use crate::sync::Mutex;
use crate::tried::TriedRecords;
use crate::{Amount, Records, RunError};

/// The sink's task: it gives the sink back.
pub(crate) type SinkTask<S> = BoxFuture<'static, (S, Result<SinkEnd, RunError>)>;

/// Makes links and tasks, from the sink towards the source.
pub(crate) struct Wiring {
    pub(crate) settings: BTreeMap<String, Settings>,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
    pub(crate) on_event: EventHandler,
    pub(crate) grouping: Grouping,
    pub(crate) batch: Records,
    pub(crate) commits: Arc<Mutex<CommitState>>,
    pub(crate) stages: Vec<Wired>,
    pub(crate) handed_out: Arc<Mutex<HandedOut>>,
    pub(crate) needs: Arc<Needs>,
    pub(crate) tried: Arc<TriedRecords>,
    pub(crate) source: Option<BoxFuture<'static, Result<(), RunError>>>,
    pub(crate) freeze: Option<Box<dyn Fn() + Send + Sync>>,
}

/// A stage whose links are made.
pub(crate) struct Wired {
    pub(crate) kind: StageKind,
    pub(crate) info: Arc<StageInfo>,
    /// How workers are started, and what happens when they leave; `None` for source and sink.
    pub(crate) workers: Option<Workers>,
}

pub(crate) struct Workers {
    pub(crate) start: StartWorker,
    pub(crate) leaving: Arc<Leaving>,
    /// Those that have not been told to leave, oldest first.
    pub(crate) staying: Mutex<Vec<Retire>>,
}

impl Wiring {
    fn info<T: Send + 'static>(&self, name: &str, link: &Arc<Link<T>>) -> Arc<StageInfo> {
        let settings = self.settings[name].clone();
        let (gauged, resized) = (link.clone(), link.clone());
        let request = window(&settings).request;
        Arc::new(StageInfo {
            name: name.into(),
            workers: AtomicUsize::new(settings.workers),
            settings,
            meters: Mutex::new(Vec::new()),
            gauge: Box::new(move || gauged.gauge()),
            resize: Box::new(move |buffer| resized.set_window(Window { buffer, request })),
            on_event: self.on_event.clone(),
            rejected: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }

    pub(crate) fn sink<T: Send + 'static, S: Sink<T>>(
        &mut self,
        name: &str,
        sink: S,
    ) -> (Arc<Link<T>>, SinkTask<S>) {
        let link = Link::new(window(&self.settings[name]), None);
        let info = self.info(name, &link);
        let meter = Arc::new(Meter::start(self.clock, State::NoInput));
        info.meters.lock().push(meter.clone());
        self.stages.push(Wired { kind: StageKind::Sink, info, workers: None });
        let feeder = Feeder {
            sink,
            link: link.clone(),
            context: SinkContext { meter, commits: self.commits.clone(), stop: self.stop.clone() },
            grouping: self.grouping,
            commits: self.commits.clone(),
            handed_out: self.handed_out.clone(),
            needs: self.needs.clone(),
            tried: self.tried.clone(),
        };
        (link, Box::pin(feeder.run()))
    }

    pub(crate) fn stage<In: Send + 'static, S: Stage<In>>(
        &mut self,
        name: &str,
        stage: S,
        output: Arc<Link<S::Out>>,
    ) -> Arc<Link<In>> {
        let settings = self.settings[name].clone();
        let input: Arc<Link<In>> = Link::new(window(&settings), Some(output.gauge().limit));
        output.set_upstream(input.clone());
        let info = self.info(name, &input);
        let in_order = settings.reorder.map(InOrder::new);
        let outlet = Outlet {
            stage: info.clone(),
            input: input.clone(),
            output: output.clone(),
            in_order,
            tried: self.tried.clone(),
        };
        let start = stage.crew(outlet, &settings);
        let halted = input.clone();
        let leaving = Arc::new(Leaving {
            active: AtomicUsize::new(0),
            close: Box::new(move || output.close()),
            halt: Box::new(move || halted.halt()),
        });
        let workers = Workers { start, leaving, staying: Mutex::new(Vec::new()) };
        self.stages.push(Wired { kind: settings.kind(), info, workers: Some(workers) });
        input
    }

    pub(crate) fn source<S: Source>(&mut self, source: S, link: Arc<Link<S::Item>>) {
        let info = self.info("read", &link);
        let meter = Arc::new(Meter::start(self.clock, State::Backpressured));
        info.meters.lock().push(meter.clone());
        self.stages.push(Wired { kind: StageKind::Source, info, workers: None });
        let mut stop = self.stop.clone();
        let frozen = link.clone();
        self.freeze = Some(Box::new(move || frozen.freeze()));
        let most = self.batch;
        let handed_out = self.handed_out.clone();
        let needs = self.needs.clone();
        self.source = Some(Box::pin(async move {
            let stopped = async move { stop.stopping().await };
            let _ending = Ending(meter.clone());
            let drive = drive(source, link.clone(), meter, most, needs, stopped);
            let end = AssertUnwindSafe(drive).catch_unwind().await;
            let end =
                end.unwrap_or_else(|_| Err(RunError::Panic("the source panicked in read".into())));
            *handed_out.lock() =
                HandedOut { amount: link.gauge().sent, all: matches!(end, Ok(true)) };
            link.close();
            end.map(|_| ())
        }));
    }
}

fn window(settings: &Settings) -> Window {
    let buffer = Amount::new(settings.buffer.most(), settings.buffer_bytes);
    let request =
        Amount { records: settings.request.0, bytes: (settings.buffer_bytes.0 / 4).max(1) };
    Window { buffer, request }
}
