//! Which rows of a generated file are faulty, and how.

use std::fmt;
use std::str::FromStr;

use super::rng::{Rng, Subject};

/// A part of all rows, exact to a millionth. Written `1%`, `0.5%` or `0.005`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// No row.
    pub const NONE: Share = Share(0);

    /// So many rows of a million.
    ///
    /// # Errors
    /// If there are more than a million.
    pub fn of_a_million(rows: u32) -> Result<Share, ShareError> {
        if rows <= 1_000_000 { Ok(Share(rows)) } else { Err(ShareError) }
    }

    pub(super) fn millionths(self) -> u64 {
        self.0.into()
    }

    /// So many of these rows; a part of a row counts as none.
    fn rows_of(self, rows: u64) -> u64 {
        (u128::from(rows) * u128::from(self.0) / 1_000_000) as u64
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let (number, decimals) = match text.strip_suffix('%') {
            Some(percent) => (percent, 4),
            None => (text, 6),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > decimals {
            return Err(ShareError);
        }
        let millionths: u32 =
            format!("{whole}{fraction:0<decimals$}").parse().map_err(|_| ShareError)?;
        Share::of_a_million(millionths)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// The text is no part of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a share, expected 0 to 1 with at most six decimals, or a percentage with at most four"
)]
pub struct ShareError;

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $outcome:expr;)*) => {
        /// A way in which a generated claim is faulty.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &'static [FaultKind] = &[$(FaultKind::$kind),*];

            /// The kind's name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$kind => $name),* }
            }

            /// The reject that such a row becomes, as `column kind` or `kind`.
            pub fn reject(self) -> &'static str {
                match self { $(FaultKind::$kind => $outcome),* }
            }
        }
    };
}

fault_kinds! {
    /// A quote opens the description and is never closed.
    UnclosedQuote "unclosed_quote" "description unclosed_quote";
    /// Text follows the quote that closes the description.
    TextAfterQuote "text_after_quote" "description text_after_quote";
    /// A zero byte in the description.
    NulByte "nul_byte" "description nul_byte";
    /// A Latin-1 letter in the description.
    InvalidUtf8 "invalid_utf8" "description invalid_utf8";
    /// The last field is not there.
    TooFewFields "too_few_fields" "field_count";
    /// There is one more field.
    TooManyFields "too_many_fields" "field_count";
    /// The line ends unlike the others.
    LineEnd "line_end" "line_end";
    /// The header once more, as in concatenated files.
    RepeatedHeader "repeated_header" "repeated_header";
    /// A byte order mark before the row, as in concatenated files.
    StrayBom "stray_bom" "stray_bom";
    /// The claim's identifier is not in its form.
    BadClaimId "bad_claim_id" "claim_id bad_identifier";
    /// The policy's identifier is not in its form.
    BadPolicyId "bad_policy_id" "policy_id bad_identifier";
    /// The day of the loss is missing.
    Missing "missing" "loss_date missing";
    /// The day of the loss is in another format.
    NotADate "not_a_date" "loss_date not_a_date";
    /// The day of the loss is a 31 September.
    ImpossibleDate "impossible_date" "loss_date impossible_date";
    /// The loss lies after its report.
    AfterReport "after_report" "loss_date after_report";
    /// The report has a day and no time.
    NotATimestamp "not_a_timestamp" "reported_at not_a_timestamp";
    /// The report was at 25 o'clock.
    ImpossibleTime "impossible_time" "reported_at impossible_time";
    /// The report's time has no offset.
    MissingOffset "missing_offset" "reported_at missing_offset";
    /// There is no such line of business.
    UnknownLine "unknown_line" "line_of_business unknown_line";
    /// The cause is a whole sentence.
    TooLong "too_long" "cause too_long";
    /// The postal code is a place's name.
    BadPostalCode "bad_postal_code" "postal_code bad_postal_code";
    /// The amount has an exponent.
    NotANumber "not_a_number" "amount not_a_number";
    /// A blank stands before the amount.
    StrayBlank "stray_blank" "amount stray_blank";
    /// The amount has three decimals.
    TooManyDecimals "too_many_decimals" "amount too_many_decimals";
    /// The amount has 20 digits.
    Overflow "overflow" "amount overflow";
    /// The amount is zero.
    NotPositive "not_positive" "amount not_positive";
    /// The currency has left the list.
    UnknownCurrency "unknown_currency" "currency unknown_currency";
    /// A bell in the description.
    ControlCharacter "control_character" "description control_character";
    /// The claim's identifier is that of an earlier claim. Needs a sound row before it.
    DuplicateKey "duplicate_key" "key_exists";
}

impl FromStr for FaultKind {
    type Err = FaultKindError;

    fn from_str(name: &str) -> Result<FaultKind, FaultKindError> {
        FaultKind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or(FaultKindError)
    }
}

/// There is no such kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FaultKindError;

impl fmt::Display for FaultKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        write!(f, "no such kind of fault, expected one of {}", names.join(", "))
    }
}

const KINDS: usize = FaultKind::ALL.len();

/// The share of each kind of fault. The numbers of faulty rows are exact: `rows * share`, a part of a row counting as none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultShares {
    spread: Share,
    single: [Share; KINDS],
}

impl FaultShares {
    /// No faults.
    pub const NONE: FaultShares = FaultShares { spread: Share::NONE, single: [Share::NONE; KINDS] };

    /// `spread` evenly over all kinds, and beside it single kinds.
    ///
    /// # Errors
    /// If these are more than all rows.
    pub fn new(
        spread: Share,
        single: &[(FaultKind, Share)],
    ) -> Result<FaultShares, FaultSharesError> {
        let total: u64 =
            spread.millionths() + single.iter().map(|(_, share)| share.millionths()).sum::<u64>();
        if total > 1_000_000 {
            return Err(FaultSharesError);
        }
        let mut shares = FaultShares { spread, ..FaultShares::NONE };
        for (kind, share) in single {
            shares.single[*kind as usize].0 += share.0;
        }
        Ok(shares)
    }

    /// How many of `rows` have each kind of fault. The first kinds get what is left of an uneven spread.
    fn counts(&self, rows: u64) -> [u64; KINDS] {
        let spread = self.spread.rows_of(rows);
        let (each, left) = (spread / KINDS as u64, spread % KINDS as u64);
        std::array::from_fn(|kind| {
            self.single[kind].rows_of(rows) + each + u64::from((kind as u64) < left)
        })
    }
}

/// The shares of faults are more than all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shares of faults add up to more than all rows")]
pub struct FaultSharesError;

/// Places faults: one at random in each stretch of `rows / faults` rows, kinds in random order. Asked row by row.
pub(super) struct Placement {
    rng: Rng,
    rows: u64,
    faults: u64,
    placed: u64,
    left: [u64; KINDS],
    next_row: Option<u64>,
}

impl Placement {
    pub(super) fn new(seed: u64, rows: u64, shares: &FaultShares) -> Placement {
        let left = shares.counts(rows);
        let rng = Rng::of(seed, Subject::Placement, 0);
        let mut placement =
            Placement { rng, rows, faults: left.iter().sum(), placed: 0, left, next_row: None };
        placement.next_row = placement.draw_row();
        placement
    }

    /// The fault of that row. Rows are counted from 0 and asked for in order, each once.
    pub(super) fn at(&mut self, row: u64) -> Option<FaultKind> {
        if self.next_row != Some(row) {
            return None;
        }
        let kind = self.draw_kind();
        self.placed += 1;
        self.next_row = self.draw_row();
        Some(kind)
    }

    fn draw_row(&mut self) -> Option<u64> {
        if self.placed == self.faults {
            return None;
        }
        let border = |fault: u64| {
            (u128::from(fault) * u128::from(self.rows) / u128::from(self.faults)) as u64
        };
        let (from, to) = (border(self.placed), border(self.placed + 1));
        Some(from + self.rng.below(to - from))
    }

    fn draw_kind(&mut self) -> FaultKind {
        let mut nth = self.rng.below(self.faults - self.placed);
        for (kind, left) in FaultKind::ALL.iter().zip(&mut self.left) {
            if nth < *left {
                *left -= 1;
                return *kind;
            }
            nth -= *left;
        }
        unreachable!("the faults that are left are as many as those not placed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_exactly() {
        for (text, millionths) in [
            ("1%", 10_000),
            ("0.5%", 5_000),
            ("100%", 1_000_000),
            ("0.01", 10_000),
            ("1", 1_000_000),
            ("0.000001", 1),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Share::of_a_million(millionths), "for {text}");
        }
        for text in
            ["", "%", "101%", "1.1", "-1%", ".5", "5.", "1e-3", "0.0000001", "NaN", "99999999999%"]
        {
            assert_eq!(text.parse::<Share>(), Err(ShareError), "for {text}");
        }
        assert_eq!("0.5%".parse::<Share>().unwrap().to_string(), "0.005000");
    }

    #[test]
    fn kinds_are_found_by_name() {
        assert!(FaultKind::ALL.iter().all(|kind| kind.name().parse() == Ok(*kind)));
        assert!(
            "typo"
                .parse::<FaultKind>()
                .unwrap_err()
                .to_string()
                .contains("unclosed_quote, text_after_quote")
        );
    }

    #[test]
    fn every_fault_gets_a_row_of_its_own_and_counts_are_exact() {
        let all = Share::of_a_million(1_000_000).unwrap();
        let some = FaultShares::new(
            "10%".parse().unwrap(),
            &[(FaultKind::NulByte, "0.3%".parse().unwrap())],
        )
        .unwrap();
        for (rows, shares, expected) in [
            (1_000, some.clone(), 103),
            (7, some.clone(), 0),
            (0, some, 0),
            (41, FaultShares::new(all, &[]).unwrap(), 41),
        ] {
            let mut placement = Placement::new(5, rows, &shares);
            let mut found = [0u64; KINDS];
            (0..rows)
                .filter_map(|row| placement.at(row))
                .for_each(|kind| found[kind as usize] += 1);
            assert_eq!(found, shares.counts(rows));
            assert_eq!(found.iter().sum::<u64>(), expected);
        }
    }

    #[test]
    fn more_faults_than_rows_are_refused() {
        let most = Share::of_a_million(999_999).unwrap();
        assert!(FaultShares::new(most, &[(FaultKind::NulByte, Share(1))]).is_ok());
        assert_eq!(
            FaultShares::new(most, &[(FaultKind::NulByte, Share(2))]),
            Err(FaultSharesError)
        );
    }
}
