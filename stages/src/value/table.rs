//! What a target table looks like, and the values that a row has for it.

use std::borrow::Cow;
use std::fmt::Write as _;

use gegendruck_checkpoints::quoted;

use super::Decimal;

/// One column's value, as the target stores it. A decimal is an [`Value::Integer`] in units of its column's scale; dates and
/// timestamps are texts in canonical ISO form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// Absent.
    Null,
    /// A whole number, or a decimal in units of its column's scale.
    Integer(i64),
    /// A text, borrowed from the row wherever the row holds it.
    Text(Cow<'a, str>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<i64> for Value<'_> {
    fn from(integer: i64) -> Self {
        Value::Integer(integer)
    }
}

impl From<Decimal> for Value<'_> {
    fn from(decimal: Decimal) -> Self {
        Value::Integer(decimal.units())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// An exact decimal of at most `precision` digits, `scale` of them after the decimal mark.
    Decimal {
        /// All digits, at most [`Decimal::MAX_PRECISION`].
        precision: u8,
        /// Digits after the decimal mark, at most `precision`.
        scale: u8,
    },
    /// A day.
    Date,
    /// An instant.
    Timestamp,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub ty: ColumnType,
    /// True if a row may have no value for it.
    pub nullable: bool,
}

impl Column {
    /// A column for which every row has a value.
    pub const fn required(name: &'static str, ty: ColumnType) -> Column {
        Column { name, ty, nullable: false }
    }

    /// A column for which a row may have no value.
    pub const fn nullable(name: &'static str, ty: ColumnType) -> Column {
        Column { name, ty, nullable: true }
    }
}

/// A table of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, in the order in which rows give their values.
    pub columns: &'static [Column],
    /// The columns of its primary key; empty if it has none.
    pub key: &'static [&'static str],
}

impl Table {
    /// The statement that creates this table in SQLite, under that name.
    ///
    /// The table is STRICT, so a value of the wrong type is an error and not kept as it is. SQLite has no exact decimals: they
    /// are INTEGER in units of the declared scale, which a comment keeps in the schema.
    pub fn sqlite_ddl(&self, name: &str) -> String {
        let mut lines: Vec<String> = self.columns.iter().map(sqlite_column).collect();
        if !self.key.is_empty() {
            let key: Vec<String> = self.key.iter().map(|column| quoted(column)).collect();
            lines.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        format!("CREATE TABLE {} (\n  {}\n) STRICT", quoted(name), lines.join(",\n  "))
    }

    /// Where the column of that name stands among [`Table::columns`].
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|candidate| candidate.name == column)
    }
}

fn sqlite_column(column: &Column) -> String {
    let mut line = format!("{} {}", quoted(column.name), sqlite_type(column.ty));
    if !column.nullable {
        line.push_str(" NOT NULL");
    }
    if let ColumnType::Decimal { precision, scale } = column.ty {
        let _ = write!(line, " /* decimal({precision},{scale}) in units of 10^-{scale} */");
    }
    line
}

fn sqlite_type(ty: ColumnType) -> &'static str {
    match ty {
        ColumnType::Integer | ColumnType::Decimal { .. } => "INTEGER",
        ColumnType::Text | ColumnType::Date | ColumnType::Timestamp => "TEXT",
    }
}

/// A row of a table.
pub trait Row {
    /// The table that the row belongs to.
    const TABLE: Table;

    /// Appends one value for each column of [`Row::TABLE`], in order. Texts are borrowed from the row.
    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table {
        name: "payments",
        columns: &[
            Column::required("payment_id", ColumnType::Text),
            Column::required("amount", ColumnType::Decimal { precision: 12, scale: 2 }),
            Column::nullable("paid_on", ColumnType::Date),
            Column::nullable("booked_at", ColumnType::Timestamp),
            Column::required("part", ColumnType::Integer),
        ],
        key: &["payment_id", "part"],
    };

    #[test]
    fn sqlite_tables_are_strict_and_say_the_scale_of_decimals() {
        let expected = r#"CREATE TABLE "payments ""2026""" (
  "payment_id" TEXT NOT NULL,
  "amount" INTEGER NOT NULL /* decimal(12,2) in units of 10^-2 */,
  "paid_on" TEXT,
  "booked_at" TEXT,
  "part" INTEGER NOT NULL,
  PRIMARY KEY ("payment_id", "part")
) STRICT"#;
        assert_eq!(TABLE.sqlite_ddl("payments \"2026\""), expected);
    }

    #[test]
    fn a_table_without_a_key_has_no_key_clause() {
        let table = Table { key: &[], ..TABLE };
        assert!(!table.sqlite_ddl("t").contains("KEY"));
        assert_eq!((table.position("part"), table.position("none")), (Some(4), None));
    }

    #[test]
    fn values_know_their_stored_form() {
        assert_eq!(Value::from(Decimal::new(150, 2)), Value::Integer(150));
        assert_eq!(Value::from("x"), Value::Text(Cow::Borrowed("x")));
        assert_eq!(Value::from(None::<i64>), Value::Null);
    }
}
