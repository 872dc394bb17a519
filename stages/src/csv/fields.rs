//! The decoded fields of one record, as a pipeline's row type sees them.

/// The fields of one record, decoded (quotes removed, UTF-8 checked), in the order of [`FromFields::COLUMNS`].
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    text: &'a str,
    ends: &'a [u32],
}

impl<'a> Fields<'a> {
    /// Fields that lie one behind the other in `text`; field `i` ends at byte `ends[i]`.
    pub fn new(text: &'a str, ends: &'a [u32]) -> Self {
        Fields { text, ends }
    }

    /// All fields, one behind the other.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Where each field ends in [`Fields::text`], in bytes.
    pub fn ends(&self) -> &'a [u32] {
        self.ends
    }

    /// The field of column `index`.
    ///
    /// # Panics
    /// If the record has no such field; the source has checked the count.
    pub fn get(&self, index: usize) -> &'a str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.text[start..self.ends[index] as usize]
    }
}

/// A row type that a CSV source can fill.
pub trait FromFields: Sized + Send + 'static {
    /// The columns that the row needs, by name; the source puts fields into this order.
    const COLUMNS: &'static [&'static str];

    /// Takes the fields over. Judging them is a later stage's work.
    fn from_fields(fields: &Fields<'_>) -> Self;
}
