//! What is told on standard error while a run goes on: progress lines on a terminal, log lines without one.
//!
//! No field value is ever printed. A standard error that nobody reads any more does no harm.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gegendruck::{Report, number, thousands};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::{LogFormat, OutputArgs};

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only with `--verbose`.
    Debug,
    /// What happens.
    Info,
    /// What an operator should look at.
    Warn,
    /// What went wrong.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// Most lines about one kind of thing; after that, only a count at the end.
const MOST_OF_A_KIND: u64 = 20;

/// Writes log lines and progress. Clones share it.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    format: LogFormat,
    least: Level,
    run: Mutex<String>,
    bars: Option<Bars>,
    interval: Option<Duration>,
    kinds: Mutex<BTreeMap<String, u64>>,
}

struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    stages: Mutex<Vec<ProgressBar>>,
}

impl Log {
    /// A log by these settings.
    pub fn new(output: &OutputArgs) -> Log {
        let terminal = std::io::stderr().is_terminal();
        let show = terminal
            && !output.no_progress
            && !output.quiet
            && output.log_format == LogFormat::Text;
        let bars = show.then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5));
            let whole = all.add(ProgressBar::no_length());
            let style =
                ProgressStyle::with_template("{bar:30} {msg}").expect("the template is valid");
            whole.set_style(style);
            Bars { all, whole, stages: Mutex::new(Vec::new()) }
        });
        let least = match (output.quiet, output.verbose) {
            (true, _) => Level::Error,
            (false, true) => Level::Debug,
            (false, false) => Level::Info,
        };
        let interval =
            output.report_interval.unwrap_or(Duration::from_secs(if terminal { 5 } else { 60 }));
        let interval = (!output.no_progress).then_some(interval);
        let run = Mutex::default();
        Log {
            shared: Arc::new(Shared {
                format: output.log_format,
                least,
                run,
                bars,
                interval,
                kinds: Mutex::default(),
            }),
        }
    }

    /// From now on lines name this run.
    pub fn set_run(&self, run: &str) {
        *lock(&self.shared.run) = run.to_string();
    }

    /// Time between two looks at the progress, if it is wanted.
    pub fn interval(&self) -> Option<Duration> {
        self.shared.interval
    }

    /// One line.
    pub fn line(&self, level: Level, message: &str) {
        if level < self.shared.least {
            return;
        }
        let now = Timestamp::now();
        let run = lock(&self.shared.run).clone();
        let text = match self.shared.format {
            LogFormat::Text if run.is_empty() => format!("{now:.3} {:5} {message}", level.name()),
            LogFormat::Text => format!("{now:.3} {:5} {run} {message}", level.name()),
            LogFormat::Json => {
                json!({"time": format!("{now:.3}"), "level": level.name(), "run": run, "message": message}).to_string()
            }
        };
        match &self.shared.bars {
            Some(bars) => drop(bars.all.println(text)),
            None => drop(writeln!(std::io::stderr().lock(), "{text}")),
        }
    }

    /// One line about something of which there may be many: after 20 of them, only their count.
    pub fn line_of_kind(&self, level: Level, kind: &str, message: &str) {
        let count = {
            let mut kinds = lock(&self.shared.kinds);
            let count = kinds.entry(kind.to_string()).or_insert(0);
            *count += 1;
            *count
        };
        if count <= MOST_OF_A_KIND {
            self.line(level, message);
        }
        if count == MOST_OF_A_KIND {
            self.line(level, &format!("more of \"{kind}\" are only counted from here on"));
        }
    }

    /// How many lines there were about this kind of thing.
    #[cfg(test)]
    pub(crate) fn count_of(&self, kind: &str) -> u64 {
        lock(&self.shared.kinds).get(kind).copied().unwrap_or_default()
    }

    /// Says how many lines were left out.
    pub fn close(&self) {
        if let Some(bars) = &self.shared.bars {
            bars.whole.finish_and_clear();
            lock(&bars.stages).iter().for_each(ProgressBar::finish_and_clear);
        }
        for (kind, count) in
            lock(&self.shared.kinds).iter().filter(|(_, count)| **count > MOST_OF_A_KIND)
        {
            self.line(Level::Warn, &format!("{kind}: {} in all", thousands(*count)));
        }
    }

    /// True if progress is redrawn on a terminal.
    pub fn draws(&self) -> bool {
        self.shared.bars.is_some()
    }

    /// Says how far a run is: on a terminal redrawn in its place, otherwise as a line.
    pub fn progress(&self, report: &Report, progress: &Progress) {
        let Some(bars) = &self.shared.bars else {
            return self.line(Level::Info, &progress.words());
        };
        bars.whole.set_length(progress.of.max(1));
        bars.whole.set_position(progress.bytes);
        bars.whole.set_message(progress.words());
        let mut stages = lock(&bars.stages);
        while stages.len() < report.stages.len() {
            let line = bars.all.add(ProgressBar::no_length());
            line.set_style(ProgressStyle::with_template("  {msg}").expect("the template is valid"));
            stages.push(line);
        }
        for (line, stage) in stages.iter().zip(&report.stages) {
            let state = stage
                .now
                .iter()
                .max_by_key(|(_, open)| *open)
                .map_or("ended", |(state, _)| state.name());
            line.set_message(format!(
                "{:10} x{:<3} {:>10}/s  on its way {}/{}  {state}",
                stage.name,
                stage.workers,
                number(stage.per_second),
                thousands(stage.held.records),
                thousands(stage.buffer.records),
            ));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Source bytes read and committed, over all attempts.
    pub bytes: u64,
    /// Source bytes there are.
    pub of: u64,
    /// Source bytes that earlier attempts have committed.
    pub before: u64,
    /// Records committed, over all attempts.
    pub records: u64,
    /// Records committed by this attempt.
    pub records_now: u64,
    /// How long this attempt has been running.
    pub wall: Duration,
}

impl Progress {
    /// Share of the bytes, in percent.
    pub fn percent(&self) -> f64 {
        if self.of == 0 { 100.0 } else { 100.0 * self.bytes as f64 / self.of as f64 }
    }

    /// Time left at this attempt's pace, if there is one.
    pub fn left(&self) -> Option<Duration> {
        let done = self.bytes.saturating_sub(self.before);
        if done == 0 || self.wall.is_zero() {
            return None;
        }
        let per_byte = self.wall.as_secs_f64() / done as f64;
        Duration::try_from_secs_f64(per_byte * self.of.saturating_sub(self.bytes) as f64).ok()
    }

    /// One line: share, pace, time left and when it will be done.
    pub fn words(&self) -> String {
        let seconds = self.wall.as_secs_f64().max(1e-9);
        let pace = number(self.records_now as f64 / seconds);
        let left = match self.left() {
            None => String::new(),
            Some(left) => {
                let end = Timestamp::now().checked_add(left).unwrap_or(Timestamp::MAX);
                let end =
                    end.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
                let left = crate::summary::long_time(
                    jiff::SignedDuration::try_from(left).unwrap_or_default(),
                );
                format!(", {left} left, done at {end}")
            }
        };
        format!(
            "{:.0} %, {} committed, {pace}/s{left}",
            self.percent(),
            crate::summary::counted(self.records, "record")
        )
    }
}
