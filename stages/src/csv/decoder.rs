//! From the text of a record to the values of its fields.

use memchr::memchr;

use super::fields::Fields;
use super::header::Columns;
use super::splitter::ValueForm;

/// A record as it was cut.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Its text, without the line end.
    pub text: &'a str,
    /// Where each field ends in the text; each begins one byte after the one before it.
    pub ends: &'a [u32],
    /// Whether its values are not simply what lies between the delimiters.
    pub form: ValueForm,
}

impl<'a> RawRecord<'a> {
    /// Field `index` as written.
    ///
    /// # Panics
    /// If the record has no such field.
    #[inline]
    pub fn field(&self, index: usize) -> &'a str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize + 1 };
        &self.text[start..self.ends[index] as usize]
    }
}

/// Takes the wanted fields out of records, without quotes, in the order in which they were wanted. Keeps its memory from one
/// record to the next.
#[derive(Debug)]
pub struct Decoder {
    columns: Columns,
    quote: Option<u8>,
    text: String,
    ends: Vec<u32>,
}

impl Decoder {
    /// Takes these columns, from records in which `quote` opens a quoted field.
    pub fn new(columns: Columns, quote: Option<u8>) -> Decoder {
        Decoder { columns, quote, text: String::new(), ends: Vec::new() }
    }

    /// The wanted values of a record.
    ///
    /// # Panics
    /// If the record has fewer fields than the header whose columns these are.
    pub fn decode(&mut self, record: &RawRecord<'_>) -> Fields<'_> {
        self.text.clear();
        self.ends.clear();
        for &field in self.columns.fields() {
            let raw = record.field(field);
            match record.form {
                ValueForm::Plain => self.text.push_str(raw),
                ValueForm::Quoted => push_unquoted(&mut self.text, raw, self.quote),
                ValueForm::Repaired => push_repaired(&mut self.text, raw, self.quote),
            }
            self.ends.push(self.text.len() as u32);
        }
        Fields::new(&self.text, &self.ends)
    }
}

/// Adds a field's value: what lies in its quotes, with two quotes for one, and what is glued on behind them.
fn push_unquoted(text: &mut String, raw: &str, quote: Option<u8>) {
    let Some(quote) = quote.filter(|&quote| raw.as_bytes().first() == Some(&quote)) else {
        return text.push_str(raw);
    };
    let mut rest = &raw[1..];
    while let Some(at) = memchr(quote, rest.as_bytes()) {
        let after = &rest[at + 1..];
        if after.as_bytes().first() == Some(&quote) {
            text.push_str(&rest[..=at]);
            rest = &after[1..];
        } else {
            text.push_str(&rest[..at]);
            return text.push_str(after);
        }
    }
    text.push_str(rest);
}

/// Adds a field's value without the NULs in it.
fn push_repaired(text: &mut String, raw: &str, quote: Option<u8>) {
    let start = text.len();
    push_unquoted(text, raw, quote);
    if memchr(b'\0', &text.as_bytes()[start..]).is_some() {
        let value = text.split_off(start);
        text.extend(value.split('\0'));
    }
}
