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
    let no_quotes = arguments.quote.0.is_none();
    let no_header = arguments.no_header;
    let in_vain = [
        (no_quotes && arguments.quotes == QuotesArg::Lenient, "--quotes lenient", "--quote none"),
        (no_quotes && arguments.no_multiline, "--no-multiline", "--quote none"),
        (no_header && !arguments.ignore_columns.is_empty(), "--ignore-columns", "--no-header"),
    ];
    if let Some((_, one, other)) = in_vain.iter().find(|(is, _, _)| *is) {
        return Err(Refused::usage(format!("{one} means nothing with {other}; leave one out")));
    }
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
    let usage =
        |flag: &str, error: &dyn std::fmt::Display| Refused::usage(format!("{flag}: {error}"));
    let numbers = NumberFormat::new(arguments.decimal, arguments.thousands)
        .map_err(|error| usage("--decimal, --thousands", &error))?;
    let patterns: Vec<_> = arguments.date_format.iter().map(String::as_str).collect();
    let dates = DateFormats::new(&patterns).map_err(|error| usage("--date-format", &error))?;
    let zone = arguments
        .timezone
        .as_deref()
        .map(TimeZone::get)
        .transpose()
        .map_err(|error| usage("--timezone", &error))?;
    if arguments.dst.is_some() && zone.is_none() {
        return Err(Refused::usage(
            "--dst says what local times mean, and without --timezone there are none; give the zone",
        ));
    }
    let dst = arguments.dst.map(|dst| match dst {
        DstArg::Earlier => Dst::Earlier,
        DstArg::Later => Dst::Later,
    });
    let timestamps = TimestampFormat { zone, dst, fraction_digits: 0 };
    Ok(Formats { null: arguments.null.as_str().into(), numbers, dates, timestamps })
}

/// The dialect in words that stay the same as long as it means the same: part of what a resumed run must agree with. Ledgers
/// hold them.
pub fn describe_dialect(arguments: &DialectArgs) -> String {
    let DialectArgs { delimiter, quote, quotes, nul, no_multiline, no_header, skip_lines, .. } =
        arguments;
    let quote = quote.0.map_or("none".into(), |quote| char::from(quote).to_string());
    let quotes = match quotes {
        QuotesArg::Strict => "Strict",
        QuotesArg::Lenient => "Lenient",
    };
    let nul = match nul {
        NulArg::Reject => "Reject",
        NulArg::Strip => "Strip",
    };
    format!(
        "delimiter {} quote {quote} quotes {quotes} nul {nul} multiline {} header {} skip {skip_lines} trailing {} \
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
    let dst = match dst {
        None => "None",
        Some(DstArg::Earlier) => "Some(Earlier)",
        Some(DstArg::Later) => "Some(Later)",
    };
    format!(
        "columns {} ignoring {:?} null {null:?} decimal {decimal} thousands {thousands:?} dates {} zone {timezone:?} dst {dst}",
        columns.join(","),
        dialect.ignore_columns,
        date_format.join(","),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    /// What the ledger keeps of a run with these flags.
    fn described(flags: &[&str]) -> [String; 2] {
        let words = ["nightly-import", "validate", "claims", "claims.csv"].iter().chain(flags);
        let (cli, _) = parse(words.map(Into::into)).expect("the flags are known");
        let Command::Validate(arguments) = cli.command else { unreachable!("it is validate") };
        let mapping = describe_mapping(&["a", "b"], &arguments.dialect, &arguments.values);
        [describe_dialect(&arguments.dialect), mapping]
    }

    #[test]
    fn the_words_that_ledgers_hold_stay_as_they_are() {
        assert_eq!(
            described(&[]),
            [
                "delimiter , quote \" quotes Strict nul Reject multiline true header true skip 0 trailing false \
                 record 1048576 bytes 1000 lines",
                "columns a,b ignoring [] null \"\" decimal . thousands None dates YYYY-MM-DD zone None dst None",
            ]
        );
        let flags = "--delimiter ; --quote none --quotes lenient --nul strip --no-multiline --no-header --skip-lines 2 \
             --trailing-delimiter --max-record-bytes 2K --max-record-lines 7 --ignore-columns x,y --null - --decimal , \
             --thousands . --date-format DD.MM.YYYY,YYYYMMDD --timezone Europe/Berlin --dst earlier";
        assert_eq!(
            described(&flags.split_whitespace().collect::<Vec<_>>()),
            [
                "delimiter ; quote none quotes Lenient nul Strip multiline false header false skip 2 trailing true \
                 record 2048 bytes 7 lines",
                "columns a,b ignoring [\"x\", \"y\"] null \"-\" decimal , thousands Some('.') dates DD.MM.YYYY,YYYYMMDD \
                 zone Some(\"Europe/Berlin\") dst Some(Earlier)",
            ]
        );
        let [_, mapping] = described(&["--timezone", "Europe/Berlin", "--dst", "later"]);
        assert!(mapping.ends_with(" dst Some(Later)"), "{mapping}");
    }
}
