//! Names of columns, and which field of a record each wanted column is.

use std::collections::HashMap;

/// The columns of an input: their names, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    names: Box<[Box<str>]>,
    line: Box<[u8]>,
}

impl Header {
    /// Columns that an input's own first line names; `line` is that line as written, without BOM and line end.
    pub(crate) fn from_line(names: Vec<Box<str>>, line: &[u8]) -> Header {
        Header { names: names.into(), line: line.into() }
    }

    /// Columns of an input without a header line, in the order of its fields.
    pub fn declared<S: AsRef<str>>(names: &[S]) -> Header {
        Header {
            names: names.iter().map(|name| name.as_ref().into()).collect(),
            line: Box::default(),
        }
    }

    /// The names, by position.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The header line as written, without BOM and line end; empty if the input has none.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Finds the fields that `wanted` columns are.
    ///
    /// # Errors
    /// If a wanted column is missing or a name occurs twice, or if a column is neither wanted nor in `ignored`.
    ///
    /// ```
    /// use gegendruck_stages::csv::Header;
    /// let header = Header::declared(&["id", "note", "amount"]);
    /// let columns = header.select(&["amount", "id"], &["note"])?;
    /// assert_eq!(columns.fields(), [2, 0]);
    ///
    /// let error = header.select(&["amount", "date"], &["note"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "column date is missing: add it to the file. \
    ///      column id is unknown: correct its name, or pass --ignore-columns id"
    /// );
    /// # Ok::<(), gegendruck_stages::csv::ColumnsError>(())
    /// ```
    pub fn select<W, I>(&self, wanted: &[W], ignored: &[I]) -> Result<Columns, ColumnsError>
    where
        W: AsRef<str>,
        I: AsRef<str>,
    {
        let mut error = ColumnsError::default();
        let mut places = HashMap::new();
        for (field, name) in self.names.iter().enumerate() {
            let name = &**name;
            let is_wanted = wanted.iter().any(|wanted| wanted.as_ref() == name);
            let is_ignored = !is_wanted && ignored.iter().any(|ignored| ignored.as_ref() == name);
            if places.insert(name, field).is_some() {
                if !is_ignored && !error.duplicate.iter().any(|known| known == name) {
                    error.duplicate.push(name.into());
                }
            } else if !is_wanted && !is_ignored {
                error.unknown.push(name.into());
            }
        }
        let mut fields = Vec::with_capacity(wanted.len());
        for name in wanted {
            match places.get(name.as_ref()) {
                Some(&field) => fields.push(field),
                None => error.missing.push(name.as_ref().into()),
            }
        }
        if fields.is_empty() && !wanted.is_empty() {
            // What stands there may be a record's values.
            error.duplicate.clear();
            error.unknown.clear();
            error.none = true;
        }
        if error == ColumnsError::default() {
            Ok(Columns { fields: fields.into() })
        } else {
            Err(error)
        }
    }
}

/// Which field of a record each wanted column is. Made by [`Header::select`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    fields: Box<[usize]>,
}

impl Columns {
    /// Index of the field of each wanted column, in the order in which they were wanted.
    pub fn fields(&self) -> &[usize] {
        &self.fields
    }
}

/// How the columns of an input differ from those that are wanted. Says so in one sentence for each kind, with what cannot be
/// seen of a name escaped: `\u{feff}id`.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentences().join(". "))]
pub struct ColumnsError {
    /// Names that occur more than once.
    pub duplicate: Vec<String>,
    /// Wanted columns that the input has not.
    pub missing: Vec<String>,
    /// Columns of the input that are neither wanted nor ignored.
    pub unknown: Vec<String>,
    /// True if no wanted column was found: then `missing` holds all of them, and nothing else is told of the input.
    pub none: bool,
}

impl ColumnsError {
    fn sentences(&self) -> Vec<String> {
        if self.none {
            return vec![format!(
                "header names none of the columns {}: check --delimiter, or pass --no-header if there is none",
                visible(&self.missing).join(", ")
            )];
        }
        let mut sentences = Vec::new();
        let mut say = |names: &[String], one: &str, many: &str| match &*visible(names) {
            [] => {}
            [name] => sentences.push(format!("column {name} {one}")),
            names => sentences.push(format!("columns {} {many}", names.join(", "))),
        };
        say(
            &self.duplicate,
            "occurs more than once: give each column a name of its own",
            "occur more than once: give each column a name of its own",
        );
        say(&self.missing, "is missing: add it to the file", "are missing: add them to the file");
        // What is escaped here could not be passed as it is shown.
        let ignore = if visible(&self.unknown) == self.unknown {
            format!(", or pass --ignore-columns {}", self.unknown.join(","))
        } else {
            String::new()
        };
        say(
            &self.unknown,
            &format!("is unknown: correct its name{ignore}"),
            &format!("are unknown: correct their names{ignore}"),
        );
        sentences
    }
}

/// The names, with every character escaped that cannot be seen by itself.
fn visible(names: &[String]) -> Vec<String> {
    let escaped = |name: &String| {
        name.chars().fold(String::new(), |mut out, character| {
            match character {
                '"' | '\'' | '\\' => out.push(character),
                _ => out.extend(character.escape_debug()),
            }
            out
        })
    };
    names.iter().map(escaped).collect()
}
