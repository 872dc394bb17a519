//! What holds for any input.

use proptest::prelude::*;

use super::*;

/// Bytes that mean something to a splitter, mostly.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b",".to_vec()),
        4 => Just(b"\"".to_vec()),
        3 => Just(b"\n".to_vec()),
        2 => Just(b"\r\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        1 => Just(b"\0".to_vec()),
        1 => Just(b"\xEF\xBB\xBF".to_vec()),
        1 => Just(b"\xE9".to_vec()),
        1 => Just(b"a,b".to_vec()),
        2 => Just(b"\n1,2\n3,4\n5,6\n".to_vec()),
        2 => Just(b"\"x\",".to_vec()),
        3 => proptest::collection::vec(any::<u8>(), 1..4),
        3 => "[a-c]{1,9}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    let line_end = prop_oneof![Just(LineEnd::Lf), Just(LineEnd::CrLf), Just(LineEnd::Cr)];
    let quotes = prop_oneof![Just(Quotes::Strict), Just(Quotes::Lenient)];
    let multiline = prop_oneof![4 => Just(Multiline::Allowed), 1 => Just(Multiline::Refused)];
    let nul = prop_oneof![Just(Nul::Reject), Just(Nul::Strip)];
    let trailing =
        prop_oneof![4 => Just(TrailingDelimiter::Absent), 1 => Just(TrailingDelimiter::Present)];
    let limits = (prop_oneof![1_u64..40, Just(1 << 20)], prop_oneof![1_u32..8, Just(1_000)]);
    (line_end, quotes, multiline, nul, trailing, limits).prop_map(
        |(line_end, quotes, multiline, nul, trailing, limits)| {
            dialect()
                .line_end(line_end)
                .quotes(quotes)
                .multiline(multiline)
                .nul(nul)
                .trailing_delimiter(trailing)
                .header(HeaderLine::Absent)
                .max_record_bytes(Bytes(limits.0))
                .max_record_lines(limits.1)
                .build()
                .unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// `cut` also asserts that no byte is lost or doubled.
    #[test]
    fn steps_do_not_depend_on_how_the_input_is_cut(
        dialect in any_dialect(),
        input in soup(),
        columns in 1_usize..4,
        blocks in proptest::collection::vec(1_usize..20, 1..20),
    ) {
        let columns = &["a", "b", "c"][..columns];
        let whole = cut(&dialect, columns, &input, &[BLOCK]);
        prop_assert_eq!(&cut(&dialect, columns, &input, &[1]), &whole);
        prop_assert_eq!(&cut(&dialect, columns, &input, &blocks), &whole);
    }

    /// The `csv` crate takes more than we do; what we take, it reads in the same bytes.
    #[test]
    fn a_record_that_is_taken_has_the_values_that_the_csv_crate_reads(
        input in soup(),
        quotes in prop_oneof![Just(Quotes::Strict), Just(Quotes::Lenient)],
    ) {
        let dialect = dialect().quotes(quotes).header(HeaderLine::Absent).build().unwrap();
        let Ok(opening) = Opening::read(&dialect, &["a", "b"], &input, Input::Ended) else { return Ok(()) };
        let columns = opening.header().select::<_, &str>(opening.header().names(), &[]).unwrap();
        let mut decoder = Decoder::new(columns, dialect.quote());
        let mut cutter = Cutter::new(&opening, opening.start());
        cutter.feed(&input[opening.start().byte as usize..]);
        cutter.end();
        while let Some(item) = cutter.next() {
            let Item::Record(cut) = item else { continue };
            let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(cut.raw);
            let read: Vec<_> = reader.records().map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), 1);
            let fields = decoder.decode(&cut.record);
            prop_assert_eq!(vec![fields.get(0), fields.get(1)], read[0].iter().collect::<Vec<_>>());
        }
    }

    /// Each line that is numbered is a line of the file.
    #[test]
    fn line_numbers_count_line_feeds(dialect in any_dialect(), input in soup()) {
        if dialect.line_end() == Some(LineEnd::Cr) {
            return Ok(());
        }
        let Ok(opening) = Opening::read(&dialect, &["a", "b"], &input, Input::Ended) else { return Ok(()) };
        let mut cutter = Cutter::new(&opening, opening.start());
        cutter.feed(&input[opening.start().byte as usize..]);
        cutter.end();
        loop {
            let at = cutter.position();
            let lines = input[..at.byte as usize].iter().filter(|&&byte| byte == b'\n').count() as u64;
            if at.byte < input.len() as u64 {
                prop_assert_eq!(at.line, lines + 1);
            }
            if cutter.next().is_none() {
                break;
            }
        }
        prop_assert!(cutter.is_done());
    }

    #[test]
    fn what_the_csv_crate_writes_is_read_as_it_was(
        rows in proptest::collection::vec(proptest::collection::vec("[a-c\",\r\n\u{e4}\u{20ac} ]{0,12}", 3), 0..12),
        crlf in any::<bool>(),
        always in any::<bool>(),
        block in 1_usize..40,
    ) {
        let style = if always { ::csv::QuoteStyle::Always } else { ::csv::QuoteStyle::Necessary };
        let terminator = if crlf { ::csv::Terminator::CRLF } else { ::csv::Terminator::Any(b'\n') };
        let mut writer = ::csv::WriterBuilder::new().terminator(terminator).quote_style(style).from_writer(Vec::new());
        writer.write_record(["x", "y", "z"]).unwrap();
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let input = writer.into_inner().unwrap();
        let line_end = if crlf { LineEnd::CrLf } else { LineEnd::Lf };
        let opening = Opening::read(&Dialect::default(), &[], &input, Input::Ended).unwrap();
        prop_assert_eq!(opening.line_end(), line_end);
        let dialect = dialect().line_end(line_end).build().unwrap();

        let read: Vec<String> = ::csv::Reader::from_reader(&*input)
            .records()
            .map(|record| record.unwrap().iter().map(|field| format!("|{}", field.escape_default())).collect())
            .collect();
        let cut: Vec<String> = cut(&dialect, &[], &input, &[block])
            .unwrap()
            .iter()
            .map(|line| line[line.find('|').unwrap_or(0)..].to_owned())
            .collect();
        prop_assert_eq!(&cut, &read);
        let written: Vec<String> = rows
            .iter()
            .map(|row| row.iter().map(|field| format!("|{}", field.escape_default())).collect())
            .collect();
        prop_assert_eq!(cut, written);
    }

    /// The records of an input, met again from any of its positions.
    #[test]
    fn a_cutter_that_starts_in_the_middle_finds_the_same(input in soup(), dialect in any_dialect()) {
        let Ok(opening) = Opening::read(&dialect, &["a", "b"], &input, Input::Ended) else { return Ok(()) };
        let transcript = |start: gegendruck::Position| {
            let mut cutter = Cutter::new(&opening, start);
            cutter.feed(&input[start.byte as usize..]);
            cutter.end();
            let mut items = Vec::new();
            loop {
                let position = cutter.position();
                let Some(item) = cutter.next() else { return items };
                if !matches!(item, Item::Skipped(_)) {
                    items.push((position, format!("{item:?}")));
                }
            }
        };
        let all = transcript(opening.start());
        for (index, (position, _)) in all.iter().enumerate() {
            prop_assert_eq!(&transcript(*position), &all[index..]);
        }
    }

    #[test]
    fn a_row_with_an_unclosed_quote_costs_that_row_only(
        rows in 8_usize..60,
        bad in any::<proptest::sample::Index>(),
        multiline in proptest::collection::vec(any::<bool>(), 60),
        end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
        header in any::<bool>(),
        block in 1_usize..200,
    ) {
        let bad = bad.index(rows);
        let mut input = if header { format!("id,amount,descr{end}").into_bytes() } else { Vec::new() };
        for (row, multiline) in multiline.into_iter().take(rows).enumerate() {
            let descr = match row {
                _ if row == bad => "\"text",
                _ if multiline && row % 3 == 0 => "\"two\nlines\"",
                _ => "text",
            };
            input.extend_from_slice(format!("{row},{row}.00,{descr}{end}").as_bytes());
        }
        let header = if header { HeaderLine::Present } else { HeaderLine::Absent };
        let dialect = dialect().header(header).build().unwrap();
        let items = cut(&dialect, &["id", "amount", "descr"], &input, &[block]).unwrap();
        let (records, others) = outcome(&items);
        prop_assert_eq!(others.len(), 1, "{:?}", others);
        prop_assert_eq!(records, rows - 1);
    }
}
