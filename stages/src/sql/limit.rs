//! How many rejects a run may have.
//!
//! - All committed rejects of a run count, over all its attempts.
//! - A share is judged from the first 1,000 records on, and at the end: of a few records every share is an accident.

use std::str::FromStr;

use gegendruck::{Position, Reject, SinkError, Tally, thousands};

/// Records from which on a share of them means something.
const ENOUGH: u64 = 1_000;
/// Rejects that are always allowed where the operator said nothing.
const FEW: u64 = 100;
/// One per mille of a million.
const ONE_PER_MILLE: u32 = 1_000;
const MILLION: u128 = 1_000_000;

/// How many rejects a run may have. When there are more, the group that passed the limit is committed, and the run stops.
///
/// ```
/// use gegendruck_stages::sql::MaxErrors;
/// assert_eq!("250".parse(), Ok(MaxErrors::Count(250)));
/// assert_eq!("0.5%".parse(), Ok(MaxErrors::Share { per_million: 5_000 }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxErrors {
    /// The larger of 100 and 0.1 % of the records read; and not more than half of the first 1,000.
    #[default]
    Default,
    /// So many.
    Count(u64),
    /// A share of the records read.
    Share {
        /// Rejects in a million records.
        per_million: u32,
    },
}

/// A text that is no limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {found}, expected a number like 250 or a share like 0.5%")]
pub struct MaxErrorsError {
    /// The text.
    pub found: String,
}

impl FromStr for MaxErrors {
    type Err = MaxErrorsError;

    fn from_str(text: &str) -> Result<MaxErrors, MaxErrorsError> {
        let limit = match text.strip_suffix('%') {
            Some(percent) => {
                per_million(percent).map(|per_million| MaxErrors::Share { per_million })
            }
            None => text.parse().ok().map(MaxErrors::Count),
        };
        limit.ok_or_else(|| MaxErrorsError { found: text.into() })
    }
}

fn per_million(percent: &str) -> Option<u32> {
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 4 {
        return None;
    }
    let parts: u32 = format!("{part:0<4}").parse().ok()?;
    let share = whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(parts)?;
    (share <= 1_000_000).then_some(share)
}

impl MaxErrors {
    /// The most rejects that may be among so many records.
    fn allowed(self, read: u64) -> u64 {
        let share =
            |per_million: u32| (u128::from(read) * u128::from(per_million) / MILLION) as u64;
        match self {
            MaxErrors::Default => FEW.max(share(ONE_PER_MILLE)),
            MaxErrors::Count(count) => count,
            MaxErrors::Share { per_million } => share(per_million),
        }
    }

    /// Judges the group that begins at `start` before it is committed: why the run must stop after it, if so.
    ///
    /// # Errors
    /// The run must stop before it: most of what comes is rejected, and nothing is committed yet.
    pub(super) fn judge<'a>(
        self,
        start: Position,
        before: &Tally,
        group: &Tally,
        rejects: impl Iterator<Item = &'a Reject>,
    ) -> Result<Option<String>, SinkError> {
        let mut after = *before;
        after.add(group);
        if self == MaxErrors::Default && before.read < ENOUGH && after.read >= ENOUGH {
            let first = |at: Position| at.input == start.input && at.record - start.record < ENOUGH;
            let half = match before.read {
                0 => rejects.filter(|reject| first(reject.at)).count() as u64 > ENOUGH / 2,
                _ => after.rejected > after.read / 2,
            };
            if half {
                let words = format!(
                    "more than half of the first {} records were rejected: is it the right file? To import it all the same, \
                     give --max-errors",
                    thousands(ENOUGH)
                );
                return if before.read == 0 {
                    Err(SinkError::Limit(words))
                } else {
                    Ok(Some(words))
                };
            }
        }
        let early = matches!(self, MaxErrors::Share { .. }) && after.read < ENOUGH;
        Ok(if early { None } else { self.passed(&after) })
    }

    /// Judges the run as a whole.
    ///
    /// # Errors
    /// There are too many rejects.
    pub(super) fn judge_at_end(self, total: &Tally) -> Result<(), SinkError> {
        self.passed(total).map_or(Ok(()), |words| Err(SinkError::Limit(words)))
    }

    fn passed(self, total: &Tally) -> Option<String> {
        let allowed = self.allowed(total.read);
        (total.rejected > allowed).then(|| {
            format!(
                "{} of {} records were rejected, {} are allowed; start again with --max-errors {} or more to go on",
                thousands(total.rejected),
                thousands(total.read),
                thousands(allowed),
                total.rejected
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(read: u64, rejected: u64) -> Tally {
        Tally { read, rejected, stored: read - rejected, ..Tally::default() }
    }

    #[test]
    fn limits_are_numbers_or_shares_of_at_most_all() {
        let share = |per_million| Ok(MaxErrors::Share { per_million });
        for (text, expected) in [
            ("0", Ok(MaxErrors::Count(0))),
            ("100%", share(1_000_000)),
            ("0.0001%", share(1)),
            ("12.5%", share(125_000)),
        ] {
            assert_eq!(text.parse::<MaxErrors>(), expected, "{text}");
        }
        for bad in ["", "%", "-1", "1.5", "101%", "1.%", ".5%", "0.00001%", "1 %", "ten"] {
            assert!(bad.parse::<MaxErrors>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_limit_is_passed_by_the_first_reject_above_it() {
        let judge = |limit: MaxErrors, before, group| {
            limit.judge(Position::default(), &before, &group, std::iter::empty()).unwrap().is_some()
        };
        for (limit, read, most) in [
            (MaxErrors::Default, 5_000, 100),
            (MaxErrors::Default, 2_000_000, 2_000),
            (MaxErrors::Count(0), 10, 0),
            (MaxErrors::Share { per_million: 10_000 }, 5_000, 50),
        ] {
            let before = tally(read - 10, most);
            assert!(!judge(limit, before, tally(10, 0)), "{limit:?}");
            assert!(judge(limit, before, tally(10, 1)), "{limit:?}");
        }
    }

    #[test]
    fn a_share_of_a_few_records_is_judged_at_the_end_only() {
        let limit = MaxErrors::Share { per_million: 10_000 };
        assert_eq!(
            limit
                .judge(Position::default(), &Tally::default(), &tally(7, 1), std::iter::empty())
                .unwrap(),
            None
        );
        assert!(matches!(limit.judge_at_end(&tally(7, 1)), Err(SinkError::Limit(_))));
        assert!(limit.judge_at_end(&tally(700, 7)).is_ok());
    }
}
