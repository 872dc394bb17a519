//! Test input: claims and contracts that fit each other, sound or faulty as asked.
//!
//! ```text
//!  seed, number --> facts of a contract --+--> contracts.csv
//!                                         |
//!  seed, row -----> facts of a claim -----+--> claims.csv
//!                                         ^
//!            shares --> placement of faults
//! ```
//!
//! - The same arguments give the same bytes, on every platform.
//! - A row is a function of the seed and its number, so claims need no contracts at hand, and memory does not grow with rows.
//! - The numbers of faults are exact, and no two faults share a row.
//!
//! Contracts are written without faults: they are what claims are held against.

mod facts;
mod faults;
mod rng;
mod words;

use std::io::{self, Write};

use gegendruck_stages::csv::{FromFields, LineEnd};

use facts::{Calendar, ClaimFacts, ContractFacts, Day};
use faults::Placement;
pub use faults::{FaultKind, FaultKindError, FaultShares, FaultSharesError, Share, ShareError};
use rng::{Rng, Subject};
use words::{Wording, describe};

use crate::claims::RawClaim;
use crate::contracts::{Line, Lines, RawContract};

/// So many bytes are written at once.
const BLOCK: usize = 64 * 1024;

/// A file of contracts, policies `P00000001` on.
#[derive(Clone, Debug)]
pub struct ContractsFile {
    /// How many contracts.
    pub rows: u64,
    /// What they are drawn by. Claims of the same seed are filed under these contracts.
    pub seed: u64,
    /// How lines end.
    pub line_end: LineEnd,
}

impl ContractsFile {
    /// Contracts in lines that end with LF.
    pub fn new(rows: u64, seed: u64) -> ContractsFile {
        ContractsFile { rows, seed, line_end: LineEnd::Lf }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What `out` has to say.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let calendar = Calendar::new();
        let mut text = Vec::with_capacity(2 * BLOCK);
        push_header(&mut text, RawContract::COLUMNS);
        text.extend_from_slice(self.line_end.as_bytes());
        for number in 1..=self.rows {
            push_contract(&mut text, number, &ContractFacts::of(self.seed, number), &calendar);
            text.extend_from_slice(self.line_end.as_bytes());
            flush_full(&mut text, out)?;
        }
        out.write_all(&text)?;
        out.flush()
    }
}

/// A file of claims, `C00000001` on.
///
/// ```
/// use gegendruck_pipelines::generate::{ClaimsFile, FaultShares};
/// let mut file = ClaimsFile::new(1_000, 7);
/// file.faults = FaultShares::new("1%".parse()?, &[("nul_byte".parse()?, "0.2%".parse()?)])?;
/// let mut bytes = Vec::new();
/// let written = file.write(&mut bytes)?;
/// assert_eq!((written.rows, written.faulty()), (1_000, 12));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClaimsFile {
    /// How many claims, faulty ones included.
    pub rows: u64,
    /// What they are drawn by.
    pub seed: u64,
    /// How many contracts there are; at least one is assumed.
    pub contracts: u64,
    /// How lines end.
    pub line_end: LineEnd,
    /// Which rows are faulty, and how.
    pub faults: FaultShares,
    /// Claims that repeat policy, loss date, amount, currency and cause of an earlier one under another identifier.
    pub twins: Share,
    /// Claims under a policy that has no contract.
    pub orphans: Share,
}

impl ClaimsFile {
    /// Claims without faults in lines that end with LF: a tenth as many contracts, 0.2 % twins, 0.5 % without a contract.
    pub fn new(rows: u64, seed: u64) -> ClaimsFile {
        ClaimsFile {
            rows,
            seed,
            contracts: ClaimsFile::default_contracts(rows),
            line_end: LineEnd::Lf,
            faults: FaultShares::NONE,
            twins: Share::of_a_million(2_000).expect("a part of a million"),
            orphans: Share::of_a_million(5_000).expect("a part of a million"),
        }
    }

    /// How many contracts so many claims have, unless said otherwise: a tenth, at least one.
    pub fn default_contracts(rows: u64) -> u64 {
        (rows / 10).max(1)
    }

    /// Writes the file, and says what is in it.
    ///
    /// # Errors
    /// What `out` has to say.
    pub fn write(&self, out: &mut impl Write) -> io::Result<Written> {
        let mut writer = ClaimWriter::new(self);
        writer.write_header();
        for row in 0..self.rows {
            writer.write_row(row);
            flush_full(&mut writer.text, out)?;
        }
        out.write_all(&writer.text)?;
        out.flush()?;
        Ok(writer.written)
    }
}

/// What a generated file of claims holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// All rows.
    pub rows: u64,
    /// Sound rows that repeat an earlier one under another identifier.
    pub twins: u64,
    /// Sound rows without a contract, their twins included.
    pub orphans: u64,
    faults: [u64; FaultKind::ALL.len()],
}

impl Written {
    /// Rows with that fault.
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.faults[kind as usize]
    }

    /// Rows with a fault.
    pub fn faulty(&self) -> u64 {
        self.faults.iter().sum()
    }
}

/// Writes claims, row by row.
struct ClaimWriter<'a> {
    file: &'a ClaimsFile,
    calendar: Calendar,
    placement: Placement,
    /// A sound row that is no twin: what twins and duplicate keys repeat.
    earlier: Option<u64>,
    /// The row under way, before it is written.
    record: Record,
    text: Vec<u8>,
    written: Written,
}

impl<'a> ClaimWriter<'a> {
    fn new(file: &'a ClaimsFile) -> ClaimWriter<'a> {
        ClaimWriter {
            file,
            calendar: Calendar::new(),
            placement: Placement::new(file.seed, file.rows, &file.faults),
            earlier: None,
            record: Record::default(),
            text: Vec::with_capacity(2 * BLOCK),
            written: Written::default(),
        }
    }

    fn write_header(&mut self) {
        push_header(&mut self.text, RawClaim::COLUMNS);
        self.text.extend_from_slice(self.file.line_end.as_bytes());
    }

    fn write_row(&mut self, row: u64) {
        let fault = self
            .placement
            .at(row)
            .filter(|kind| *kind != FaultKind::DuplicateKey || self.earlier.is_some());
        self.written.rows += 1;
        match fault {
            None => self.write_sound(row),
            Some(kind) => {
                self.written.faults[kind as usize] += 1;
                self.write_faulty(row, kind);
            }
        }
    }

    fn write_sound(&mut self, row: u64) {
        let mut rng = Rng::of(self.file.seed, Subject::Places, row);
        let twin_of = self.earlier.filter(|_| rng.chance(self.file.twins.millionths()));
        let facts = self.facts(twin_of.unwrap_or(row));
        self.written.twins += u64::from(twin_of.is_some());
        self.written.orphans += u64::from(!facts.has_contract);
        // Kept now and then, so that twins and duplicates lie near and far.
        if twin_of.is_none() && (self.earlier.is_none() || rng.chance(10_000)) {
            self.earlier = Some(row);
        }
        self.fill(row, &facts, Wording::Free);
        self.record.write(&mut self.text);
        self.text.extend_from_slice(self.file.line_end.as_bytes());
    }

    fn facts(&self, row: u64) -> ClaimFacts {
        ClaimFacts::of(
            self.file.seed,
            row,
            self.file.contracts.max(1),
            self.file.orphans.millionths(),
        )
    }

    fn fill(&mut self, row: u64, facts: &ClaimFacts, wording: Wording) {
        let (report, second) = facts::report(self.file.seed, row, facts.loss);
        let record = &mut self.record;
        record.clear();
        push_identifier(&mut record.claim_id, b'C', row + 1);
        push_identifier(&mut record.policy_id, b'P', facts.policy);
        record.loss_date.extend_from_slice(self.calendar.text(facts.loss));
        push_time(&mut record.reported_at, report, second, &self.calendar);
        record.line.extend_from_slice(facts.line.name().as_bytes());
        record.cause.extend_from_slice(facts.cause.as_bytes());
        let (code, digits) = facts.postal_code;
        push_number(&mut record.postal_code, code, digits);
        push_amount(&mut record.amount, facts.amount);
        record.currency.extend_from_slice(facts.currency.as_bytes());
        let line_end = self.file.line_end.as_bytes();
        describe(
            &mut record.description,
            self.file.seed,
            row,
            facts.line,
            facts.cause,
            line_end,
            wording,
        );
    }

    fn write_faulty(&mut self, row: u64, kind: FaultKind) {
        let facts = self.facts(row);
        self.fill(row, &facts, Wording::Plain);
        match kind {
            FaultKind::RepeatedHeader => return self.write_header(),
            FaultKind::StrayBom => self.text.extend_from_slice("\u{feff}".as_bytes()),
            _ => self.spoil(kind),
        }
        match kind {
            FaultKind::UnclosedQuote => self.record.write_with(&mut self.text, b"\"", b""),
            FaultKind::TextAfterQuote => {
                self.record.write_with(&mut self.text, b"\"", b"\" Nachtrag folgt")
            }
            FaultKind::TooManyFields => self.record.write_with(&mut self.text, b"", b",1"),
            FaultKind::TooFewFields => self.record.write_without_description(&mut self.text),
            _ => self.record.write(&mut self.text),
        }
        let line_end = match (kind, self.file.line_end) {
            (FaultKind::LineEnd, LineEnd::Lf) => LineEnd::CrLf,
            (FaultKind::LineEnd, _) => LineEnd::Lf,
            (_, line_end) => line_end,
        };
        self.text.extend_from_slice(line_end.as_bytes());
    }

    /// Makes one value of the record faulty.
    fn spoil(&mut self, kind: FaultKind) {
        let record = &mut self.record;
        match kind {
            FaultKind::NulByte => record.description.insert(1, 0),
            FaultKind::InvalidUtf8 => record.description.extend_from_slice(b" caf\xe9"),
            FaultKind::ControlCharacter => record.description.push(7),
            FaultKind::BadClaimId => record.claim_id.insert(1, b'-'),
            FaultKind::BadPolicyId => record.policy_id[0] = b'Q',
            FaultKind::Missing => record.loss_date.clear(),
            FaultKind::NotADate => {
                let text = &record.loss_date;
                record.loss_date = [&text[8..10], b".", &text[5..7], b".", &text[0..4]].concat();
            }
            FaultKind::ImpossibleDate => record.loss_date[5..].copy_from_slice(b"09-31"),
            FaultKind::AfterReport => record.loss_date[..4].copy_from_slice(b"2027"),
            FaultKind::NotATimestamp => record.reported_at.truncate(10),
            FaultKind::ImpossibleTime => record.reported_at[11..13].copy_from_slice(b"25"),
            FaultKind::MissingOffset => record.reported_at.truncate(19),
            FaultKind::UnknownLine => replace(&mut record.line, b"pets"),
            FaultKind::TooLong => {
                replace(
                    &mut record.cause,
                    b"the holder cannot say what it was but says that it was not the dog",
                );
            }
            FaultKind::BadPostalCode => replace(&mut record.postal_code, "Köln".as_bytes()),
            FaultKind::NotANumber => replace(&mut record.amount, b"1e2"),
            FaultKind::StrayBlank => record.amount.insert(0, b' '),
            FaultKind::TooManyDecimals => record.amount.push(b'9'),
            FaultKind::Overflow => replace(&mut record.amount, b"99999999999999999999"),
            FaultKind::NotPositive => replace(&mut record.amount, b"0.00"),
            FaultKind::UnknownCurrency => replace(&mut record.currency, b"DEM"),
            FaultKind::DuplicateKey => {
                let earlier = self.earlier.expect("a duplicate key is placed behind a sound row");
                record.claim_id.clear();
                push_identifier(&mut record.claim_id, b'C', earlier + 1);
            }
            FaultKind::UnclosedQuote
            | FaultKind::TextAfterQuote
            | FaultKind::TooFewFields
            | FaultKind::TooManyFields
            | FaultKind::LineEnd
            | FaultKind::RepeatedHeader
            | FaultKind::StrayBom => {}
        }
    }
}

/// The values of one claim, in the order of its columns. Keeps its memory from row to row.
#[derive(Default)]
struct Record {
    claim_id: Vec<u8>,
    policy_id: Vec<u8>,
    loss_date: Vec<u8>,
    reported_at: Vec<u8>,
    line: Vec<u8>,
    cause: Vec<u8>,
    postal_code: Vec<u8>,
    amount: Vec<u8>,
    currency: Vec<u8>,
    description: Vec<u8>,
}

impl Record {
    fn clear(&mut self) {
        let Record {
            claim_id,
            policy_id,
            loss_date,
            reported_at,
            line,
            cause,
            postal_code,
            amount,
            currency,
            description,
        } = self;
        for value in [
            claim_id,
            policy_id,
            loss_date,
            reported_at,
            line,
            cause,
            postal_code,
            amount,
            currency,
            description,
        ] {
            value.clear();
        }
    }

    /// Appends the record, with its description in quotes where it needs them.
    fn write(&self, text: &mut Vec<u8>) {
        let needs_quotes =
            self.description.iter().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r'));
        if !needs_quotes {
            return self.write_with(text, b"", b"");
        }
        self.write_without_description(text);
        text.extend_from_slice(b",\"");
        for part in self.description.split_inclusive(|byte| *byte == b'"') {
            text.extend_from_slice(part);
            if part.ends_with(b"\"") {
                text.push(b'"');
            }
        }
        text.push(b'"');
    }

    /// Appends the record, with something before and behind its description.
    fn write_with(&self, text: &mut Vec<u8>, before: &[u8], behind: &[u8]) {
        self.write_without_description(text);
        text.push(b',');
        text.extend_from_slice(before);
        text.extend_from_slice(&self.description);
        text.extend_from_slice(behind);
    }

    fn write_without_description(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.claim_id);
        for value in [
            &self.policy_id,
            &self.loss_date,
            &self.reported_at,
            &self.line,
            &self.cause,
            &self.postal_code,
            &self.amount,
            &self.currency,
        ] {
            text.push(b',');
            text.extend_from_slice(value);
        }
    }
}

fn replace(value: &mut Vec<u8>, text: &[u8]) {
    value.clear();
    value.extend_from_slice(text);
}

fn push_header(text: &mut Vec<u8>, columns: &[&str]) {
    text.extend_from_slice(columns.join(",").as_bytes());
}

fn push_contract(text: &mut Vec<u8>, number: u64, contract: &ContractFacts, calendar: &Calendar) {
    push_identifier(text, b'P', number);
    text.push(b',');
    push_lines(text, contract.line, contract.second_line);
    text.push(b',');
    text.extend_from_slice(calendar.text(contract.valid_from));
    text.push(b',');
    if let Some(last) = contract.valid_to {
        text.extend_from_slice(calendar.text(last));
    }
    text.push(b',');
    push_amount(text, contract.sum_insured);
    text.push(b',');
    push_amount(text, contract.deductible);
    text.push(b',');
    text.extend_from_slice(contract.currency.as_bytes());
}

fn push_lines(text: &mut Vec<u8>, first: Line, second: Option<Line>) {
    text.extend_from_slice(first.name().as_bytes());
    if let Some(second) = second {
        text.push(Lines::SEPARATOR as u8);
        text.extend_from_slice(second.name().as_bytes());
    }
}

/// `C00000001`
fn push_identifier(text: &mut Vec<u8>, letter: u8, number: u64) {
    text.push(letter);
    push_number(text, number, 8);
}

/// `1234.50`, of 123450 cents.
fn push_amount(text: &mut Vec<u8>, cents: u64) {
    push_number(text, cents / 100, 1);
    text.push(b'.');
    push_number(text, cents % 100, 2);
}

/// `2025-03-31T08:05:59+02:00`
fn push_time(text: &mut Vec<u8>, day: Day, second: u64, calendar: &Calendar) {
    text.extend_from_slice(calendar.text(day));
    for (mark, number) in [(b'T', second / 3_600), (b':', second / 60 % 60), (b':', second % 60)] {
        text.push(mark);
        push_number(text, number, 2);
    }
    text.extend_from_slice(calendar.offset(day));
}

/// Appends a number with at least so many digits; none at all if that is 0 and the number is too.
fn push_number(text: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while number > 0 {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text.extend_from_slice(&digits[start.min(digits.len() - width)..]);
}

/// Hands a block over once it is full.
fn flush_full(text: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    if text.len() >= BLOCK {
        out.write_all(text)?;
        text.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
