//! What is SQLite's own: how tables are compared, and how rows are written.

use std::collections::BTreeSet;

use gegendruck_checkpoints::{Target, quoted, trouble};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, Row as _};

use super::SqlError;
use crate::value::{Column, ColumnType, Table, Value};

/// Most values that one statement may bind.
const MOST_VALUES: usize = 32_766;
/// Most rows that one statement inserts: beyond it nothing is gained, and a refused row costs more.
const MOST_ROWS: usize = 64;

/// A table as it is in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// It is not there.
    Missing,
    /// It is there, and rows fit into it.
    Fits,
}

/// Compares the table called `name` in `target` with `table`. Only reads; a target that is not there has no tables.
///
/// # Errors
/// Rows of `table` do not fit, or the database failed.
///
/// # Cancel safety
/// Only reads.
pub async fn check_table(
    target: &Target,
    table: &Table,
    name: &str,
) -> Result<TableState, SqlError> {
    if !target.exists() {
        return Ok(TableState::Missing);
    }
    let path = target.path().to_path_buf();
    let compare = async || {
        let mut connection = target.connect_to_read().await?;
        compare(&mut connection, table, name).await
    };
    let compared = compare().await.map_err(|source| SqlError::Database {
        path: path.clone(),
        trouble: trouble(&source),
        source,
    })?;
    match compared {
        None => Ok(TableState::Missing),
        Some(differences) if differences.is_empty() => Ok(TableState::Fits),
        Some(differences) => Err(SqlError::TableDiffers { path, table: name.into(), differences }),
    }
}

/// A column as the database describes it.
struct Found {
    name: String,
    ty: String,
    required: bool,
    has_default: bool,
    key: bool,
    generated: bool,
}

/// How the table differs; `None` if it is not there.
async fn compare(
    connection: &mut SqliteConnection,
    table: &Table,
    name: &str,
) -> Result<Option<Vec<String>>, sqlx::Error> {
    let schema: Option<(String, String)> = sqlx::query_as(
        "SELECT type, coalesce(sql, '') FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type <> 'trigger'",
    )
    .bind(name)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((kind, sql)) = schema else { return Ok(None) };
    if kind != "table" {
        let found = if kind == "index" { "an index" } else { "a view" };
        return Ok(Some(vec![format!("{name}: found {found}, expected a table")]));
    }
    let rows = sqlx::query(
        "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?)",
    )
    .bind(name)
    .fetch_all(&mut *connection)
    .await?;
    let mut columns = Vec::with_capacity(rows.len());
    for row in &rows {
        let number = |column: &str| row.try_get::<i64, _>(column).map(|number| number != 0);
        columns.push(Found {
            name: row.try_get("name")?,
            ty: row.try_get::<String, _>("type")?.to_ascii_uppercase(),
            required: number("notnull")?,
            has_default: row.try_get::<Option<String>, _>("dflt_value")?.is_some(),
            key: number("pk")?,
            generated: number("hidden")?,
        });
    }
    let mut differences = Vec::new();
    for column in table.columns {
        let found = columns.iter().find(|found| found.name.eq_ignore_ascii_case(column.name));
        compare_column(column, found, &sql, &mut differences);
    }
    for found in &columns {
        let known =
            table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(&found.name));
        let needs_value = found.required && !found.has_default && !found.generated;
        if !known && needs_value {
            differences.push(format!(
                "{}: found NOT NULL without a default, expected no such column",
                found.name
            ));
        }
    }
    if !table.key.is_empty() && !has_key(connection, table, name, &columns).await? {
        let key = table.key.join(", ");
        differences.push(format!(
            "key: found none on exactly ({key}), expected a primary key or unique index"
        ));
    }
    Ok(Some(differences))
}

fn compare_column(
    column: &Column,
    found: Option<&Found>,
    sql: &str,
    differences: &mut Vec<String>,
) {
    let name = column.name;
    let Some(found) = found else {
        differences.push(format!("{name}: found no such column, expected {}", words(column.ty)));
        return;
    };
    let expected_integer = matches!(column.ty, ColumnType::Integer | ColumnType::Decimal { .. });
    // As SQLite tells the affinity of a column.
    let is_integer = found.ty.contains("INT");
    let is_text =
        !is_integer && ["CHAR", "CLOB", "TEXT"].iter().any(|part| found.ty.contains(part));
    if found.generated || (expected_integer && !is_integer) || (!expected_integer && !is_text) {
        let ty = if found.generated { "a generated column" } else { found.ty.as_str() };
        differences.push(format!("{name}: found {ty}, expected {}", words(column.ty)));
    }
    if found.required && column.nullable {
        differences.push(format!("{name}: found NOT NULL, expected that it may be NULL"));
    }
    if let ColumnType::Decimal { precision, scale } = column.ty
        && let Some(found) = scale_in(sql, name)
        && found != format!("decimal({precision},{scale})")
    {
        differences.push(format!("{name}: found {found}, expected decimal({precision},{scale})"));
    }
}

fn words(ty: ColumnType) -> String {
    match ty {
        ColumnType::Decimal { precision, scale } => {
            format!("INTEGER for decimal({precision},{scale})")
        }
        ColumnType::Integer => "INTEGER".into(),
        ColumnType::Text | ColumnType::Date | ColumnType::Timestamp => "TEXT".into(),
    }
}

/// The `decimal(p,s)` that the table's definition says of a column, if this program has created it.
fn scale_in(sql: &str, column: &str) -> Option<String> {
    let start = format!("{} ", quoted(column));
    let line = sql.lines().map(str::trim_start).find(|line| line.starts_with(&start))?;
    let words = line.split_once("/* ")?.1.split(' ').next()?;
    words.starts_with("decimal(").then(|| words.to_string())
}

/// True if the table's primary key, or one of its unique indexes, is on exactly the key's columns, compared byte by byte.
async fn has_key(
    connection: &mut SqliteConnection,
    table: &Table,
    name: &str,
    columns: &[Found],
) -> Result<bool, sqlx::Error> {
    let expected: BTreeSet<String> =
        table.key.iter().map(|column| column.to_ascii_lowercase()).collect();
    let primary: BTreeSet<String> = columns
        .iter()
        .filter(|found| found.key)
        .map(|found| found.name.to_ascii_lowercase())
        .collect();
    let indexes: Vec<(String, i64, i64, String)> =
        sqlx::query_as("SELECT name, \"unique\", partial, origin FROM pragma_index_list(?)")
            .bind(name)
            .fetch_all(&mut *connection)
            .await?;
    // A primary key that is the row number itself has no index.
    if primary == expected && !indexes.iter().any(|(_, _, _, origin)| origin == "pk") {
        return Ok(true);
    }
    for (index, unique, partial, _) in indexes {
        if unique == 0 || partial != 0 {
            continue;
        }
        let parts: Vec<(Option<String>, String)> =
            sqlx::query_as("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key = 1")
                .bind(&index)
                .fetch_all(&mut *connection)
                .await?;
        let binary = parts.iter().all(|(_, collation)| collation == "BINARY");
        let parts: Option<BTreeSet<String>> =
            parts.into_iter().map(|(name, _)| name.map(|name| name.to_ascii_lowercase())).collect();
        if binary && parts.as_ref() == Some(&expected) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the table's definition says what a conflict does.
pub(super) async fn decides_conflicts(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE AND sql LIKE '%CONFLICT%')",
    )
    .bind(name)
    .fetch_one(connection)
    .await
}

/// True if the table has triggers, which may drop rows without a word.
pub(super) async fn has_triggers(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE)",
    )
    .bind(name)
    .fetch_one(connection)
    .await
}

/// The highest row number, if it can be told and new rows of `table` get higher ones.
pub(super) async fn highest_row(
    connection: &mut SqliteConnection,
    table: &Table,
    name: &str,
) -> Result<Option<i64>, sqlx::Error> {
    let number: Option<String> = sqlx::query_scalar(
        "SELECT name FROM pragma_table_info(?) WHERE pk = 1 AND upper(type) = 'INTEGER'",
    )
    .bind(name)
    .fetch_optional(&mut *connection)
    .await?;
    let without: Option<i64> = sqlx::query_scalar(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
    )
    .bind(name)
    .fetch_optional(&mut *connection)
    .await?;
    let other: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_xinfo(?) WHERE name = 'rowid' COLLATE NOCASE)",
    )
    .bind(name)
    .fetch_one(&mut *connection)
    .await?;
    let is_ours =
        |name: String| table.columns.iter().any(|ours| ours.name.eq_ignore_ascii_case(&name));
    if number.is_some_and(is_ours) || without != Some(0) || other {
        return Ok(None);
    }
    let highest: i64 =
        sqlx::query_scalar(&format!("SELECT coalesce(max(rowid), 0) FROM {}", quoted(name)))
            .fetch_one(connection)
            .await?;
    // After the highest one of all, SQLite draws numbers at random.
    Ok((highest < i64::MAX).then_some(highest))
}

/// True if the table has at least so many rows.
pub(super) async fn has_rows(
    connection: &mut SqliteConnection,
    name: &str,
    rows: u64,
) -> Result<bool, sqlx::Error> {
    let Some(last) = rows.checked_sub(1) else { return Ok(true) };
    let text = format!("SELECT EXISTS (SELECT 1 FROM {} LIMIT 1 OFFSET ?)", quoted(name));
    let last = i64::try_from(last).unwrap_or(i64::MAX);
    sqlx::query_scalar(&text).bind(last).fetch_one(connection).await
}

/// How many rows have a higher number.
pub(super) async fn rows_above(
    connection: &mut SqliteConnection,
    name: &str,
    floor: i64,
) -> Result<u64, sqlx::Error> {
    let rows: i64 =
        sqlx::query_scalar(&format!("SELECT count(*) FROM {} WHERE rowid > ?", quoted(name)))
            .bind(floor)
            .fetch_one(connection)
            .await?;
    Ok(rows.unsigned_abs())
}

/// The texts of the statements that write rows of one table, each for 1, 2, 4, ... rows.
///
/// A statement that refuses a row leaves nothing behind, and its transaction goes on. Where the table's definition says otherwise
/// about conflicts they say `OR ABORT`, which overrides it (and what the table's triggers say, so only there). A statement takes
/// its rows in their order.
#[derive(Debug)]
pub(super) struct Texts {
    plain: Vec<String>,
    if_new: Vec<String>,
    replace: Vec<String>,
    look_up: Vec<String>,
    is_only_key: bool,
}

impl Texts {
    pub(super) fn new(table: &Table, name: &str, decides: bool) -> Texts {
        let name = quoted(name);
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(column.name)).collect();
        let key: Vec<String> = table.key.iter().map(|column| quoted(column)).collect();
        let most = (MOST_VALUES / columns.len().max(1)).clamp(1, MOST_ROWS);
        let sizes = || (0..=most.ilog2()).map(|power| 1_usize << power);

        let insert = if decides { "INSERT OR ABORT" } else { "INSERT" };
        let into = format!("{insert} INTO {name} ({}) VALUES", columns.join(", "));
        let row = format!("({})", vec!["?"; columns.len()].join(","));
        let plain = sizes().map(|rows| format!("{into} {}", vec![row.as_str(); rows].join(",")));
        let plain: Vec<String> = plain.collect();

        let set: Vec<String> = columns
            .iter()
            .filter(|column| !key.contains(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        // Without a collation, SQLite would take a conflict in any unique index of these columns for one of the key.
        let conflicting = table.key.iter().map(|name| {
            let column = table.columns.iter().find(|column| column.name == *name);
            match column.map(|column| column.ty) {
                Some(ColumnType::Integer | ColumnType::Decimal { .. }) => quoted(name),
                _ => format!("{} COLLATE BINARY", quoted(name)),
            }
        });
        let conflicting: Vec<String> = conflicting.collect();
        let on_conflict = |action: &str| {
            let clause = match conflicting.as_slice() {
                [] => String::new(),
                key => format!(" ON CONFLICT ({}) DO {action}", key.join(", ")),
            };
            plain.iter().map(|text| format!("{text}{clause}")).collect::<Vec<_>>()
        };
        let if_new = on_conflict("NOTHING");
        let replace = match set.as_slice() {
            [] => if_new.clone(),
            set => on_conflict(&format!("UPDATE SET {}", set.join(", "))),
        };

        // As the index that makes keys unique compares them, whatever the column's own collation.
        let same = |(index, column)| format!("t.{column} = k.column{} COLLATE BINARY", index + 2);
        let same = key.iter().enumerate().map(same).collect::<Vec<_>>().join(" AND ");
        let keys = |keys: usize| {
            let key = |index| format!("({index}{})", ",?".repeat(key.len()));
            let keys = (0..keys).map(key).collect::<Vec<_>>().join(",");
            format!(
                "SELECT group_concat(k.column1) FROM (VALUES {keys}) AS k CROSS JOIN {name} AS t ON {same}"
            )
        };
        let look_up = sizes().map(keys).collect();
        Texts { plain, if_new, replace, look_up, is_only_key: set.is_empty() }
    }

    /// Most rows of one statement, a power of two.
    pub(super) fn most_rows(&self) -> usize {
        1 << (self.plain.len() - 1)
    }

    /// Inserts so many rows; a row that the table refuses is an error.
    pub(super) fn plain(&self, rows: usize) -> &str {
        of_size(&self.plain, rows)
    }

    /// Inserts those of so many rows whose key is not there.
    pub(super) fn if_new(&self, rows: usize) -> &str {
        of_size(&self.if_new, rows)
    }

    /// Inserts so many rows, or puts them in the place of those with their keys.
    pub(super) fn replace(&self, rows: usize) -> &str {
        of_size(&self.replace, rows)
    }

    /// Asks which of so many keys are there: their indexes, as one text.
    pub(super) fn look_up(&self, keys: usize) -> &str {
        of_size(&self.look_up, keys)
    }

    /// True if a row is nothing but its key, so that there is nothing to replace.
    pub(super) fn is_only_key(&self) -> bool {
        self.is_only_key
    }
}

fn of_size(texts: &[String], rows: usize) -> &str {
    &texts[rows.ilog2() as usize]
}

/// Adds values to what a statement binds.
pub(super) fn bind<'a>(
    arguments: &mut SqliteArguments<'a>,
    values: impl Iterator<Item = Value<'a>>,
) -> Result<(), sqlx::Error> {
    for value in values {
        let added = match value {
            Value::Null => arguments.add(None::<i64>),
            Value::Integer(integer) => arguments.add(integer),
            Value::Text(text) => arguments.add(text),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    const PARTS: Table = Table {
        name: "parts",
        columns: &[
            Column::nullable("text", ColumnType::Text),
            Column::required("part", ColumnType::Integer),
            Column::required("claim \"id\"", ColumnType::Text),
        ],
        key: &["claim \"id\"", "part"],
    };

    #[test]
    fn keys_are_looked_up_through_their_index_whatever_it_is() {
        let run = async |ddl: &str| {
            let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
            sqlx::raw_sql(ddl).execute(&mut connection).await.unwrap();
            let rows = "INSERT INTO parts VALUES ('x', 1, 'a'), ('y', 2, 'a'), ('z', 2, 'b')";
            sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
            let text = Texts::new(&PARTS, "parts", false).look_up(4).to_string();
            let arguments = || {
                let keys = [("a", 2), ("b", 1), ("A", 1), ("b", 2)];
                let values = keys.iter().flat_map(|(id, part)| [Value::from(*id), (*part).into()]);
                let mut arguments = SqliteArguments::default();
                bind(&mut arguments, values).unwrap();
                arguments
            };
            let found: String = sqlx::query_scalar_with(&text, arguments())
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(found, "0,3", "{ddl}");
            let plan: Vec<String> =
                sqlx::query_with(&format!("EXPLAIN QUERY PLAN {text}"), arguments())
                    .fetch_all(&mut connection)
                    .await
                    .unwrap()
                    .iter()
                    .map(|row| row.get("detail"))
                    .collect();
            assert!(plan.iter().any(|step| step.starts_with("SEARCH t USING")), "{ddl}: {plan:?}");
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for end in [
            "PRIMARY KEY (\"claim \"\"id\"\"\", part))",
            "PRIMARY KEY (part, \"claim \"\"id\"\"\")) STRICT",
            "PRIMARY KEY (\"claim \"\"id\"\"\", part)) WITHOUT ROWID",
            "UNIQUE (part, \"claim \"\"id\"\"\"))",
        ] {
            let columns = "text TEXT, part INTEGER, \"Claim \"\"ID\"\"\" TEXT";
            runtime.block_on(run(&format!("CREATE TABLE parts ({columns}, {end}")));
        }
        runtime.block_on(run(
            "CREATE TABLE parts (text TEXT, part INTEGER, \"Claim \"\"ID\"\"\" TEXT COLLATE NOCASE);
             CREATE UNIQUE INDEX keys ON parts (part, \"claim \"\"id\"\"\" COLLATE BINARY)",
        ));
    }
}
