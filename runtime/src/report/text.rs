//! Numbers and times for a reader, and the table of stages.

use std::fmt;
use std::time::Duration;

use super::{Report, StageKind};
use crate::meter::State;

/// A number for a reader: thousands separated, no decimals from ten on.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "any number".into();
    }
    if value < 10.0 {
        return format!("{value:.1}");
    }
    thousands(value.round() as u64)
}

/// A count for a reader, thousands separated by commas.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A short time for a reader: two figures and a unit.
pub fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value < 10.0 && unit != "ns" {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Two times for a reader, in the unit of the longer one.
fn pair(short: Duration, long: Duration, between: &str) -> String {
    let (scale, unit) = match long.as_nanos() {
        0..100 => (1e9, "ns"),
        100..1_000_000 => (1e6, "us"),
        1_000_000..1_000_000_000 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let figure = |time: Duration| match time.as_secs_f64() * scale {
        value if value < 10.0 && unit != "ns" => format!("{value:.1}"),
        value => format!("{value:.0}"),
    };
    format!("{}{between}{} {unit}", figure(short), figure(long))
}

/// The table of stages, and under it the bottleneck and the next step.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0).max(8);
        writeln!(
            f,
            "{:width$}  workers   busy  in call  no input  backpr.  limited  paused  reorder  commit    in/s   p50/p99 a record   queue max/limit  oldest",
            "stage"
        )?;
        for stage in &self.stages {
            let share = |state: State| match 100.0 * stage.times.share(state) {
                0.0 => "-".to_string(),
                percent => format!("{percent:.0} %"),
            };
            let service = match stage.kind {
                StageKind::Sink => format!("commit {}", pair(stage.p50, stage.p99, "/")),
                _ => pair(stage.p50, stage.p99, " / "),
            };
            let queue = match stage.kind {
                StageKind::Source => "-".to_string(),
                _ => {
                    format!("{}/{}", thousands(stage.most.records), thousands(stage.buffer.records))
                }
            };
            let oldest = match stage.oldest {
                Some(age) if stage.kind != StageKind::Source => {
                    format!("{:.1} s", age.as_secs_f64())
                }
                _ => "-".to_string(),
            };
            writeln!(
                f,
                "{:width$}  {:>7} {:>6} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>7} {:>7}   {:16}   {:>15}  {:>6}",
                stage.name,
                stage.workers,
                share(State::Busy),
                share(State::InCall),
                share(State::NoInput),
                share(State::Backpressured),
                share(State::Limited),
                share(State::Paused),
                share(State::Reordering),
                share(State::Committing),
                number(stage.per_second),
                service,
                queue,
                oldest,
            )?;
        }
        let verdict = self.verdict();
        write!(f, "bottleneck: {}", verdict.words)?;
        if let Some(next) = &verdict.next_step {
            write!(f, "\nnext step:  {next}")?;
        }
        Ok(())
    }
}
