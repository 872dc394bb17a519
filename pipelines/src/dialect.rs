//! From the flags about files to a dialect, and from the flags about values to their formats.

use gegendruck_stages::csv::{Dialect, HeaderLine, Multiline, Nul, Quotes, TrailingDelimiter};

use gegendruck_stages::value::{DateFormats, Dst, Formats, NumberFormat, TimestampFormat};
use jiff::tz::TimeZone;

use crate::cli::{DialectArgs, DstArg, NulArg, QuotesArg, ValueArgs};
use crate::exit::Refused;

/// The dialect that the flags describe.
///
/// # Errors
/// Flags that cannot be true together.
pub fn dialect(arguments: &DialectArgs) -> Result<Dialect, Refused> {
    Dialect::builder()
        .delimiter(arguments.delimiter)
        .quote(arguments.quote.0)
        .header(if arguments.no_header { HeaderLine::Absent } else { HeaderLine::Present })
        .quotes(match arguments.quotes {
            QuotesArg::Strict => Quotes::Strict,
            QuotesArg::Lenient => Quotes::Lenient,
        })
        .multiline(if arguments.no_multiline { Multiline::Refused } else { Multiline::Allowed })
        .nul(match arguments.nul {
            NulArg::Reject => Nul::Reject,
            NulArg::Strip => Nul::Strip,
        })
        .trailing_delimiter(if arguments.trailing_delimiter {
            TrailingDelimiter::Present
        } else {
            TrailingDelimiter::Absent
        })
        .skip_lines(arguments.skip_lines)
        .max_record_bytes(arguments.max_record_bytes)
        .max_record_lines(arguments.max_record_lines)
        .build()
        .map_err(|error| Refused::usage(error.to_string()))
}

/// The formats that the flags describe.
///
/// # Errors
/// Flags that cannot be true together.
pub fn formats(arguments: &ValueArgs) -> Result<Formats, Refused> {
    let usage = |error: &dyn std::fmt::Display| Refused::usage(error.to_string());
    let numbers =
        NumberFormat::new(arguments.decimal, arguments.thousands).map_err(|error| usage(&error))?;
    let patterns: Vec<_> = arguments.date_format.iter().map(String::as_str).collect();
    let dates = DateFormats::new(&patterns).map_err(|error| usage(&error))?;
    let zone = arguments
        .timezone
        .as_deref()
        .map(TimeZone::get)
        .transpose()
        .map_err(|error| usage(&error))?;
    let dst = arguments.dst.map(|dst| match dst {
        DstArg::Earlier => Dst::Earlier,
        DstArg::Later => Dst::Later,
    });
    let timestamps = TimestampFormat { zone, dst, fraction_digits: 0 };
    Ok(Formats { null: arguments.null.as_str().into(), numbers, dates, timestamps })
}

/// The dialect in words that stay the same as long as it means the same: part of what a resumed run must agree with.
pub fn describe_dialect(arguments: &DialectArgs) -> String {
    let DialectArgs { delimiter, quote, quotes, nul, no_multiline, no_header, skip_lines, .. } =
        arguments;
    let quote = quote.0.map_or("none".into(), |quote| char::from(quote).to_string());
    format!(
        "delimiter {} quote {quote} quotes {quotes:?} nul {nul:?} multiline {} header {} skip {skip_lines} trailing {} \
         record {} bytes {} lines",
        char::from(*delimiter),
        !no_multiline,
        !no_header,
        arguments.trailing_delimiter,
        arguments.max_record_bytes.0,
        arguments.max_record_lines,
    )
}

/// The mapping from fields to columns, in words that stay the same as long as it means the same.
pub fn describe_mapping(columns: &[&str], dialect: &DialectArgs, values: &ValueArgs) -> String {
    let ValueArgs { null, decimal, thousands, date_format, timezone, dst } = values;
    format!(
        "columns {} ignoring {:?} null {null:?} decimal {decimal} thousands {thousands:?} dates {} zone {timezone:?} dst {dst:?}",
        columns.join(","),
        dialect.ignore_columns,
        date_format.join(","),
    )
}
