//! Defining a pipeline.
//!
//! ```text
//! Pipeline::new -> source -> stage ... -> sink -> Runnable --plan--> start(options) --> Run
//! ```
//!
//! A definition holds the stages in the order of the flow, and one function that will wire them, from the sink towards the
//! source: that is the way demand goes.

use std::sync::Arc;

use crate::link::Link;
use crate::plan::{Options, Plan, Planned};
use crate::report::StageKind;
use crate::run::{Outcome, Run};
use crate::sink::{Grouping, Sink};
use crate::source::Source;
use crate::stage::{Buffer, Settings, Stage};
use crate::wiring::{SinkTask, Wiring};
use crate::{BuildError, Reason, Records, stage};

/// Makes the links of what has been defined so far, behind which this one leads on.
type Connect<T> = Box<dyn FnOnce(&mut Wiring, Arc<Link<T>>) + Send>;

/// A pipeline being defined, whose records are `T` here.
#[must_use]
pub struct Pipeline<T> {
    name: String,
    stages: Vec<Planned>,
    connect: Connect<T>,
}

impl Pipeline<()> {
    /// A pipeline by this name; [`Unfed::source`] comes next.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(name: impl Into<String>) -> Unfed {
        Unfed { name: name.into() }
    }
}

/// A pipeline without a source.
#[must_use]
pub struct Unfed {
    name: String,
}

impl Unfed {
    /// Where the records come from. The stage is called `read`.
    pub fn source<S: Source>(self, source: S) -> Pipeline<S::Item> {
        let connect: Connect<S::Item> = Box::new(move |wiring, link| wiring.source(source, link));
        let planned =
            Planned { name: "read".into(), kind: StageKind::Source, settings: Settings::default() };
        Pipeline { name: self.name, stages: vec![planned], connect }
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Adds a stage.
    pub fn stage<S: Stage<T>>(mut self, name: impl Into<String>, stage: S) -> Pipeline<S::Out> {
        let name = name.into();
        let settings = stage.settings().clone();
        self.stages.push(Planned { name: name.clone(), kind: settings.kind(), settings });
        let before = self.connect;
        let connect: Connect<S::Out> = Box::new(move |wiring, output| {
            let input = wiring.stage(&name, stage, output);
            before(wiring, input);
        });
        Pipeline { name: self.name, stages: self.stages, connect }
    }

    /// Adds a stage that turns each value into another.
    pub fn map<Out: Send + 'static>(
        self,
        name: impl Into<String>,
        function: impl Fn(T) -> Out + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::map(function))
    }

    /// Adds a stage that turns each value into another or says why its record is refused.
    pub fn try_map<Out: Send + 'static>(
        self,
        name: impl Into<String>,
        function: impl Fn(&T) -> Result<Out, Reason> + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::try_map(function))
    }

    /// Adds a stage that drops, under the given reason, the values for which `keep` is false.
    pub fn filter(
        self,
        name: impl Into<String>,
        reason: &'static str,
        keep: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Pipeline<T> {
        self.stage(name, stage::filter(reason, keep))
    }

    /// Adds a stage that turns each value into at most `at_most` others.
    pub fn flat_map<Out: Send + 'static, Many: IntoIterator<Item = Out> + 'static>(
        self,
        name: impl Into<String>,
        at_most: usize,
        function: impl Fn(T) -> Many + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::flat_map(at_most, function))
    }

    /// Where the records end.
    pub fn sink<S: Sink<T>>(mut self, name: impl Into<String>, sink: S) -> Runnable<S> {
        let name = name.into();
        let settings = Settings {
            buffer: Buffer::Records(Records(20_000)),
            request: Records(1_000),
            ..Settings::default()
        };
        self.stages.push(Planned { name: name.clone(), kind: StageKind::Sink, settings });
        let before = self.connect;
        let connect = Box::new(move |wiring: &mut Wiring| {
            let (input, task) = wiring.sink(&name, sink);
            before(wiring, input);
            task
        });
        Runnable { name: self.name, stages: self.stages, grouping: Grouping::default(), connect }
    }
}

/// Makes the links of a whole pipeline, and gives the task of its sink.
pub(crate) type ConnectSink<S> = Box<dyn FnOnce(&mut Wiring) -> SinkTask<S> + Send>;

/// A whole pipeline, ready to run.
#[must_use]
pub struct Runnable<S> {
    name: String,
    stages: Vec<Planned>,
    grouping: Grouping,
    connect: ConnectSink<S>,
}

impl<S: Send + 'static> Runnable<S> {
    /// When a group closes.
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// The stages with the settings that they would run with, and the most that can be in flight.
    ///
    /// # Errors
    /// Options that name no stage, and settings that cannot work together.
    pub fn plan(&self, options: &Options) -> Result<Plan, BuildError> {
        Plan::of(&self.name, &self.stages, self.grouping, options)
    }

    /// Starts the run.
    ///
    /// # Errors
    /// As [`Runnable::plan`]; nothing has been started then.
    pub fn start(self, options: Options) -> Result<Run<S>, BuildError> {
        let plan = self.plan(&options)?;
        Ok(Run::start(plan, self.connect, options))
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Runnable::plan`]. How the run itself ended is in the [`Outcome`].
    ///
    /// # Cancel safety
    /// Dropped, the run goes on by itself; keep a [`Run`] to stop it.
    pub async fn run(self, options: Options) -> Result<Outcome<S>, BuildError> {
        Ok(self.start(options)?.outcome().await)
    }
}
