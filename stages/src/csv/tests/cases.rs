//! Inputs with faults, and what becomes of them. The numbers are those of the cases that every import must survive.

use super::*;

#[test]
fn c01_a_quote_that_is_never_closed_costs_its_line() {
    let input = gen_with(20_000, |i| (i == 2).then(|| b"\"text 2".to_vec()));
    let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
    let (records, others) = outcome(&items);
    assert_eq!(records, 19_999);
    let at = input.iter().enumerate().filter(|&(_, &byte)| byte == b'\n').nth(1).unwrap().0 + 1;
    assert_eq!(
        others,
        [format!(
            "2:3@{at} 38 bytes 1 lines descr unclosed_quote: the lines after it are records at 31 \
             <C0000002,P0002,2026-01-03,2.00,\\\"text 2>"
        )]
    );
    assert_eq!(cut(&Dialect::default(), &[], &input, &[7]).unwrap(), items);
}

#[test]
fn c01_b_an_unclosed_quote_in_the_last_row_costs_that_row() {
    for line_end in [true, false] {
        let mut input = gen_with(20_000, |i| (i == 20_000).then(|| b"\"text 20000".to_vec()));
        input.truncate(input.len() - usize::from(!line_end));
        let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
        let (records, others) = outcome(&items);
        assert_eq!((records, others.len()), (19_999, 1));
        assert!(
            others[0].starts_with("20000:20001@")
                && others[0].contains("1 lines descr unclosed_quote"),
            "{others:?}"
        );
    }
}

#[test]
fn c01_c_two_stray_quotes_far_apart_are_no_field() {
    let input = gen_with(20_000, |i| match i {
        2 => Some(b"\"text 2".to_vec()),
        15_000 => Some(b"text 15000\"".to_vec()),
        _ => None,
    });
    for block in [BLOCK, 1_000, 3] {
        let items = cut(&Dialect::default(), &[], &input, &[block]).unwrap();
        let (records, others) = outcome(&items);
        assert_eq!((records, others.len()), (19_999, 1));
        assert!(
            others[0].starts_with("2:3@") && others[0].contains("descr unclosed_quote"),
            "{others:?}"
        );
        assert!(items[14_999].ends_with("|text 15000\\\""), "{}", items[14_999]);
    }
}

#[test]
fn c01_d_two_quotes_that_pair_up_are_a_field_of_three_lines() {
    let input = gen_with(20_000, |i| match i {
        2 => Some(b"\"text 2".to_vec()),
        4 => Some(b"text 4\"".to_vec()),
        _ => None,
    });
    let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
    assert_eq!(outcome(&items), (19_998, vec![]));
    assert!(items[2].starts_with("3:6@"), "{}", items[2]);

    let no_multiline = dialect().multiline(Multiline::Refused).build().unwrap();
    let items = cut(&no_multiline, &[], &input, &[BLOCK]).unwrap();
    let (records, others) = outcome(&items);
    assert_eq!((records, others.len()), (19_999, 1));
    assert!(others[0].contains("unclosed_quote: still open at the end of the line"), "{others:?}");
}

#[test]
fn c01_e_a_stray_quote_in_the_header_stops_the_run() {
    let open =
        |input: &[u8]| cut(&Dialect::default(), &[], input, &[BLOCK]).unwrap_err().to_string();
    assert_eq!(
        open(b"id,\"amount\n1,2\n3,\"4\"\n"),
        "header (line 1): quote at byte 3 is not closed on this line: remove it or close it"
    );
    assert_eq!(
        open(b"id,am\"ount\n1,2\n"),
        "header (line 1): stray quote at byte 5: remove it, or quote the whole name"
    );
    assert_eq!(
        open(b"id,\"am\"ount\n1,2\n"),
        "header (line 1): stray quote at byte 6: remove it, or quote the whole name"
    );
}

#[test]
fn an_unclosed_quote_before_records_of_several_lines_costs_its_line() {
    check(
        &small(1_000, 8),
        b"a,b\n1,\"x\n2,\"two\nlines\"\n3,\"two\nlines\"\n\n4,\"two\nlines\"\n5,y\n",
        &[
            "1:2@4 4 bytes 1 lines b text_after_quote: quoted field goes on over more lines and has text after its closing \
             quote: unclosed quote? at 2 <1,\\\"x>",
            "2:3@9|2|two\\nlines",
            "3:5@23|3|two\\nlines",
            "blank",
            "4:8@38|4|two\\nlines",
            "5:10@52|5|y",
        ],
    );
}

#[test]
fn an_unclosed_quote_that_pairs_up_to_the_wrong_shape_costs_its_line() {
    check(
        &Dialect::default(),
        b"a,b,c\n1,2,\"x\n2,2,y\n3,pipe 3\",z\n4,2,y\n",
        &[
            "1:2@6 6 bytes 1 lines c unclosed_quote: the lines after it are records at 4 <1,2,\\\"x>",
            "2:3@13|2|2|y",
            "3:4@19|3|pipe 3\\\"|z",
            "4:5@31|4|2|y",
        ],
    );
}

#[test]
fn c02_a_quote_means_something_only_as_a_first_byte() {
    let input = b"a,descr\n1,pipe 3\" wide\n2,\"ab\"cd\n3,say \"\"hi\"\"\n4, \"x\"\n5,\"a\"\"b\"\n";
    let strict = "2:3@23 8 bytes 1 lines descr text_after_quote at 6 <2,\\\"ab\\\"cd>";
    let row = |two: &'static str| {
        [
            "1:2@8|1|pipe 3\\\" wide",
            two,
            "3:4@32|3|say \\\"\\\"hi\\\"\\\"",
            "4:5@45|4| \\\"x\\\"",
            "5:6@52|5|a\\\"b",
        ]
    };
    check(&Dialect::default(), input, &row(strict));
    let lenient = dialect().quotes(Quotes::Lenient).build().unwrap();
    check(&lenient, input, &row("2:3@23 repaired|2|abcd"));
    let unquoted = dialect().quote(None).build().unwrap();
    let items = cut_all_ways(&unquoted, input);
    assert_eq!(items[1], "2:3@23|2|\\\"ab\\\"cd");
}

#[test]
fn lenient_quotes_harm_no_field_behind_them() {
    let lenient = dialect().quotes(Quotes::Lenient).build().unwrap();
    check(
        &lenient,
        b"a,b\n\"ab\"cd,x\n\"ab\"c\"d\"\"e,\"x\"\n1,2\n",
        &["1:2@4 repaired|abcd|x", "2:3@13 repaired|abc\\\"d\\\"\\\"e|x", "3:4@28|1|2"],
    );
}

#[test]
fn text_after_the_quote_of_a_long_field_costs_one_line() {
    for quotes in [Quotes::Strict, Quotes::Lenient] {
        check(
            &dialect().quotes(quotes).build().unwrap(),
            b"a,b\n1,\"one\n2,two\n3,\"three\"\n",
            &[
                "1:2@4 6 bytes 1 lines b text_after_quote: quoted field goes on over more lines and has text after its \
                 closing quote: unclosed quote? at 2 <1,\\\"one>",
                "2:3@11|2|two",
                "3:4@17|3|three",
            ],
        );
    }
}

#[test]
fn c03_a_byte_order_mark_is_removed_once_and_counted() {
    check(&Dialect::default(), b"\xEF\xBB\xBF\"id\",b\n1,2\n", &["1:2@10|1|2"]);
    let no_header = dialect().header(HeaderLine::Absent).build().unwrap();
    assert_eq!(cut(&no_header, &["id", "b"], b"\xEF\xBB\xBF1,2\n", &[1]).unwrap(), ["1:1@3|1|2"]);
    check(
        &Dialect::default(),
        b"\xEF\xBB\xBFid,b\n1,2\n\xEF\xBB\xBFid,b\n3,4\nid,b\n5,6\n",
        &[
            "1:2@8|1|2",
            "2:3@12 7 bytes 1 lines stray_bom: concatenated file? at 0 <\\xef\\xbb\\xbfid,b>",
            "3:4@20|3|4",
            "4:5@24 4 bytes 1 lines repeated_header: concatenated file? <id,b>",
            "5:6@29|5|6",
        ],
    );
}

#[test]
fn c03_a_byte_order_mark_before_the_header_but_not_before_all_else_is_told() {
    let open = |dialect: &Dialect, input: &[u8]| {
        cut(dialect, &[], input, &[BLOCK]).unwrap_err().to_string()
    };
    let skip = dialect().skip_lines(1).build().unwrap();
    for input in ["Report\n\u{feff}id,b\n1,2\n", "Report\n\u{feff}\"id\",b\n1,2\n"] {
        assert_eq!(
            open(&skip, input.as_bytes()),
            "header (line 2): stray byte order mark at byte 7: remove it; concatenated file?"
        );
    }
    assert_eq!(
        open(&Dialect::default(), "\u{feff}\u{feff}id,b\n".as_bytes()),
        "header (line 1): stray byte order mark at byte 3: remove it; concatenated file?"
    );
}

#[test]
fn c05_a_line_end_in_quotes_survives_every_block_boundary() {
    let one = |pad: usize, inner: &str, value: &str, block: usize| {
        let pad = "z".repeat(pad);
        let input = format!("a,descr\r\n1,\"{pad}{inner}\"\r\n2,plain\r\n");
        let items = cut(&Dialect::default(), &[], input.as_bytes(), &[block]).unwrap();
        let second = 9 + 2 + pad.len() + inner.len() + 4;
        let lines = 3 + inner.matches('\n').count();
        let expected = [format!("1:2@9|1|{pad}{value}"), format!("2:{lines}@{second}|2|plain")];
        assert_eq!(items, expected, "pad {}, blocks of {block} bytes", pad.len());
    };
    for block in 1..=16 {
        for pad in 0..=2 * block {
            one(pad, "A\r\nB", "A\\r\\nB", block);
            one(pad, "A\"\"B", "A\\\"B", block);
        }
    }
    for block in [BLOCK, 64, 4_096] {
        for pad in (block - 40..block + 8).chain(2 * block - 40..2 * block + 8) {
            one(pad, "A\r\nB", "A\\r\\nB", block);
            one(pad, "A\"\"B", "A\\\"B", block);
        }
    }
}

#[test]
fn c06_a_nul_costs_its_row_or_is_stripped() {
    let mut input = gen_with(1_000, |i| (i == 500).then(|| b"a\0bc".to_vec()));
    let row = memchr::memmem::find(&input, b"C0000501").unwrap();
    input.insert(row, b'\0');
    let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
    let (records, others) = outcome(&items);
    assert_eq!((records, others.len()), (998, 2));
    assert!(others[0].contains("lines descr nul_byte at 34 <"), "{others:?}");
    assert!(others[1].contains("lines claim_id nul_byte at 0 <"), "{others:?}");

    let strip = dialect().nul(Nul::Strip).build().unwrap();
    let items = cut(&strip, &[], &input, &[5]).unwrap();
    assert_eq!(outcome(&items), (1_000, vec![]));
    assert_eq!(items.iter().filter(|item| item.contains("repaired")).count(), 2);
    assert!(items[499].ends_with("|abc") && items[500].contains("repaired|C0000501|"));
}

#[test]
fn a_nul_far_behind_other_bytes_is_seen() {
    let text = "x".repeat(500);
    for field in [format!("{text}\0{text}"), format!("\"{text}\0{text}\"")] {
        let items = cut_all_ways(&Dialect::default(), format!("a,b\n1,{field}\n2,y\n").as_bytes());
        assert!(items[0].contains("b nul_byte at 50"), "{items:?}");
        assert_eq!(items.len(), 2);
    }
}

#[test]
fn c07_invalid_utf8_costs_its_row_and_names_the_byte() {
    let input = gen_with(1_000, |i| match i {
        500 => Some(b"caf\xE9".to_vec()),
        700 => Some(b"x\xE2\x82".to_vec()),
        900 => Some(b"\xED\xA0\x80".to_vec()),
        950 => Some(b"\xC3\xA9".to_vec()),
        _ => None,
    });
    let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
    let (records, others) = outcome(&items);
    assert_eq!(records, 997);
    let faults: Vec<_> = others.iter().map(|line| &line[line.find("descr").unwrap()..]).collect();
    assert_eq!(
        faults,
        [
            "descr invalid_utf8: byte 0xe9 is not UTF-8 here at 36 <C0000500,P0500,2026-01-25,500.00,caf\\xe9>",
            "descr invalid_utf8: byte 0xe2 is not UTF-8 here at 34 <C0000700,P0700,2026-01-01,700.00,x\\xe2\\x82>",
            "descr invalid_utf8: byte 0xed is not UTF-8 here at 33 <C0000900,P0900,2026-01-05,900.00,\\xed\\xa0\\x80>",
        ]
    );
    assert!(items[949].ends_with("|\\u{e9}"));
}

#[test]
fn c09_utf16_is_refused_by_name() {
    let wide = |bom: &[u8], big: bool| {
        let text = String::from_utf8(gen_with(3, |_| None)).unwrap().replace('\n', "\r\n");
        let units = text
            .encode_utf16()
            .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() });
        [bom, &units.collect::<Vec<_>>()].concat()
    };
    let inputs =
        [wide(b"\xFF\xFE", false), wide(b"\xFE\xFF", true), wide(b"", false), wide(b"", true)];
    for mut input in inputs {
        for _ in 0..2 {
            let error = Opening::read(&Dialect::default(), &[], &input, Input::Ended).unwrap_err();
            assert!(matches!(error, OpenError::Utf16 { .. }), "{error}");
            assert!(error.to_string().starts_with("input is UTF-16 ("), "{error}");
            input.pop();
        }
    }
}

#[test]
fn c10_ragged_rows_are_refused_and_blank_lines_skipped() {
    let mut rows: Vec<String> =
        String::from_utf8(gen_with(10, |_| None)).unwrap().lines().map(str::to_owned).collect();
    rows[3] = "C3,P3,2026-01-04,3.00".to_owned();
    rows[5] = "C5,P5,2026-01-06,5.00,text,more".to_owned();
    rows[7].clear();
    rows[8] = ",,,,".to_owned();
    let items = cut_all_ways(&Dialect::default(), (rows.join("\n") + "\n").as_bytes());
    let (records, others) = outcome(&items);
    assert_eq!(records, 7, "the row of empty fields is for the rules to refuse");
    assert!(others[0].contains(" field_count: found 4 fields, expected 5 <"), "{others:?}");
    assert!(others[1].contains(" field_count: found 6 fields, expected 5 <"), "{others:?}");
    assert_eq!(others[2..], ["blank"]);
}

#[test]
fn c10_a_trailing_delimiter_is_asked_for() {
    let input = b"a,b,\n1,2,\n3,4\n5,6,7\n";
    let error = cut(&Dialect::default(), &[], input, &[BLOCK]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "header (line 1): line ends with a delimiter: if every line does, pass --trailing-delimiter"
    );
    let trailing = dialect().trailing_delimiter(TrailingDelimiter::Present).build().unwrap();
    check(
        &trailing,
        input,
        &[
            "1:2@5|1|2",
            "2:3@10 3 bytes 1 lines field_count: found 2 fields, expected 2 and a trailing delimiter <3,4>",
            "3:4@14 5 bytes 1 lines field_count: found 3 fields, expected 2 and a trailing delimiter <5,6,7>",
        ],
    );
    let items = cut_all_ways(&Dialect::default(), b"a,b\n1,2,\n");
    assert!(
        items[0].contains("found 3 fields, expected 2; the last one is empty: trailing delimiter?"),
        "{items:?}"
    );
}

#[test]
fn c13_an_empty_input_is_told_from_one_with_a_header_only() {
    let read = |input: &[u8]| Opening::read(&Dialect::default(), &[], input, Input::Ended);
    assert_eq!(read(b""), Err(OpenError::Empty));
    assert_eq!(read(b"\xEF\xBB\xBF"), Err(OpenError::Empty));
    assert_eq!(read(b"\n\n"), Err(OpenError::NoHeader));
    check(&Dialect::default(), b"a,b", &[]);
    check(&Dialect::default(), b"a,b\n\n\n", &["blank", "blank"]);
    let opening = read(b"\n\r\na,b\n").unwrap();
    assert_eq!((opening.blank_lines(), opening.start().line, opening.start().byte), (2, 4, 7));
}

/// Feeds a field of `mib` MiB, with delimiters, line ends and quotes, to a cutter; returns what was cut and the size of its buffer.
fn long_field(mib: usize, quoted: bool) -> (Vec<String>, usize) {
    let text: Vec<u8> = if quoted {
        b"and so, on\n\"\"quoted\"\" ".repeat(1 << 12)
    } else {
        b"and so on ".repeat(1 << 12)
    };
    let quote: &[u8] = if quoted { b"\"" } else { b"" };
    let blocks = (mib << 20) / text.len();
    let opening = Opening::read(&Dialect::default(), &["a", "b"], b"a,b\n", Input::Ended).unwrap();
    let mut cutter = Cutter::new(&opening, opening.start());
    let mut out = Vec::new();
    let mut largest = 0;
    let pieces = [b"1,x\n2,".as_slice(), quote].into_iter();
    let pieces = pieces.chain(std::iter::repeat_n(&*text, blocks)).chain([quote, b"\n3,y\n"]);
    for piece in pieces {
        cutter.feed(piece);
        largest = largest.max(cutter.capacity());
        while let Some(item) = cutter.next() {
            match item {
                Item::Record(cut) => {
                    out.push(format!("{}:{} {}", cut.at.record, cut.at.line, cut.record.text))
                }
                Item::Refused(cut) => {
                    out.push(format!(
                        "{}:{} {} {}",
                        cut.at.record,
                        cut.at.line,
                        cut.bytes.len(),
                        cut.reason
                    ));
                }
                Item::Blank(_) => out.push("blank".to_owned()),
                Item::Skipped(_) => {}
            }
        }
    }
    cutter.end();
    assert!(cutter.next().is_none() && cutter.is_done());
    (out, largest)
}

#[test]
fn c15_a_huge_field_costs_its_record_and_no_memory() {
    for quoted in [true, false] {
        let block = if quoted { 22 << 12 } else { 10 << 12 };
        let len = (64 << 20) / block * block + if quoted { 4 } else { 2 };
        let (out, largest) = long_field(64, quoted);
        let line = if quoted { 3 + (64 << 20) / block * (1 << 12) + 1 } else { 4 };
        assert_eq!(
            out,
            [
                "1:2 1,x".to_owned(),
                format!(
                    "2:3 {EXCERPT} record_too_long: found {len} bytes, at most 1048576 allowed"
                ),
                format!("3:{line} 3,y"),
            ]
        );
        assert!(largest <= (1 << 20) + block + (64 << 10) + EXCERPT, "buffer of {largest} bytes");
    }
}

#[test]
fn c15_a_field_below_the_limit_loads() {
    let input = gen_with(100, |i| {
        (i == 50).then(|| [b"\"".as_slice(), &b"a,\n".repeat(300), b"\""].concat())
    });
    assert_eq!(outcome(&cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap()), (100, vec![]));
    let input = gen_with(100, |i| (i == 50).then(|| b"x".repeat(900 << 10)));
    assert_eq!(outcome(&cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap()), (100, vec![]));
}

#[test]
fn the_limit_is_exact() {
    // Records of 7 bytes, 8 with the line end; 9 with CRLF.
    for (line, ok) in
        [("1,23456", true), ("1,234567", false), ("1,\"345\"", true), ("1,\"3456\"", false)]
    {
        for end in ["\n", "\r\n", ""] {
            let line_end = if end == "\r\n" { LineEnd::CrLf } else { LineEnd::Lf };
            let dialect = dialect().max_record_bytes(Bytes(7)).line_end(line_end).build().unwrap();
            let items = cut_all_ways(&dialect, format!("a,b\n{line}{end}").as_bytes());
            assert_eq!(outcome(&items).0, usize::from(ok), "{line}{end:?}: {items:?}");
            assert_eq!(items.len(), 1);
            assert!(
                ok || items[0].contains("record_too_long: found 8 bytes, at most 7 allowed"),
                "{items:?}"
            );
        }
    }
}

#[test]
fn a_long_record_ends_where_its_quote_is_closed() {
    check(
        &small(1 << 20, 3),
        b"a,b\n1,\"l\nl\nl,\n\"\"l\"l\nl\",\n\nl\n\"\n2,y\n",
        &[
            "1:2@4 19 bytes 5 lines record_too_long: found 5 lines, at most 3 allowed \
             <1,\\\"l\\nl\\nl,\\n\\\"\\\"l\\\"l\\nl\\\",>",
            "blank",
            "2:8@25 1 bytes 1 lines field_count: found 1 field, expected 2 <l>",
            "3:9@27 1 bytes 1 lines a unclosed_quote: the lines after it are records at 0 <\\\">",
            "4:10@29|2|y",
        ],
    );
}

#[test]
fn a_line_end_that_deviates_costs_its_record() {
    let lf = dialect().line_end(LineEnd::Lf).build().unwrap();
    check(
        &lf,
        b"a,b\n1,2\r\n3,4\n\r\n5,\"6\r\n\"\n7\r8,9\n\"x\"\r,y\n",
        &[
            "1:2@4 3 bytes 1 lines line_end: found CRLF, expected LF at 3 <1,2>",
            "2:3@9|3|4",
            "blank",
            "3:5@15|5|6\\r\\n",
            "4:7@23 5 bytes 1 lines line_end: found a lone CR, expected LF at 1 <7\\r8,9>",
            "5:8@29 6 bytes 1 lines a text_after_quote at 3 <\\\"x\\\"\\r,y>",
        ],
    );
    let crlf = dialect().line_end(LineEnd::CrLf).build().unwrap();
    check(
        &crlf,
        b"a,b\r\n1,2\n3,4\r\n\n5,6\r",
        &[
            "1:2@5 3 bytes 1 lines line_end: found LF, expected CRLF at 3 <1,2>",
            "2:3@9|3|4",
            "blank",
            "3:5@15 4 bytes 1 lines line_end: found a lone CR, expected CRLF at 3 <5,6\\r>",
        ],
    );
    let cr = dialect().line_end(LineEnd::Cr).build().unwrap();
    check(
        &cr,
        b"a,b\r1,2\r\n3,\"x\ry\"\r4,5\n6,7",
        &[
            "1:2@4 3 bytes 1 lines line_end: found CRLF, expected CR at 3 <1,2>",
            "2:3@9|3|x\\ry",
            "3:5@17 3 bytes 1 lines line_end: found LF, expected CR at 3 <4,5>",
            "4:6@21|6|7",
        ],
    );
}

#[test]
fn the_line_end_is_that_of_most_lines_outside_quotes() {
    let find = |input: &[u8]| {
        Opening::read(&Dialect::default(), &[], input, Input::Ended).unwrap().line_end()
    };
    assert_eq!(find(b"a,b"), LineEnd::Lf);
    assert_eq!(find(b"a,b\n1,2\n"), LineEnd::Lf);
    assert_eq!(find(b"a,b\r\n1,2\r\n"), LineEnd::CrLf);
    assert_eq!(find(b"a,b\r1,2\r"), LineEnd::Cr);
    assert_eq!(find(b"a,b\r\n1,\"\n\n\n\n\"\r\n"), LineEnd::CrLf);
    assert_eq!(find(b"a,b\n1,2\r\n3,4\n"), LineEnd::Lf);
    assert_eq!(find(b"a,b\n1,2\r\n3,4\r\n"), LineEnd::CrLf);

    // A CRLF that the sample cuts in two is no CR.
    let mut input = b"a,b\r\n".to_vec();
    input.resize(Opening::SAMPLE.0 as usize - 1, b'x');
    input.extend_from_slice(b"\r\n1,2\r\n");
    assert_eq!(find(&input), LineEnd::CrLf);
}

/// The line end that is told from these lines when each ends with `end`, and how many records are not taken.
fn told(dialect: &Dialect, lines: &[&str], end: LineEnd) -> (LineEnd, usize) {
    let input: String =
        lines.iter().flat_map(|line| [line, str::from_utf8(end.as_bytes()).unwrap()]).collect();
    let opening = Opening::read(dialect, &["a", "b"], input.as_bytes(), Input::Ended).unwrap();
    let items = cut(dialect, &["a", "b"], input.as_bytes(), &[BLOCK]).unwrap();
    (opening.line_end(), outcome(&items).1.len())
}

const LINE_ENDS: [LineEnd; 3] = [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr];

#[test]
fn a_quote_that_is_never_closed_does_not_hide_the_line_end() {
    let no_header = dialect().header(HeaderLine::Absent).build().unwrap();
    for end in LINE_ENDS {
        for bad in ["7,\"unclosed", "\"unclosed,7", "7,\"unclosed, with a comma", "7,\"a\"b"] {
            for sound in ["1,x", "1,\"\"", "\"1\",\"x\"", "1,\"two\nlines\"", "1,\"two\r\rlines\""]
            {
                for at in 0..8 {
                    let mut lines = [sound; 8];
                    lines[at] = bad;
                    let case = format!("{end}, {bad:?} at {at}, {sound:?}");
                    assert_eq!(told(&no_header, &lines, end), (end, 1), "{case}");
                    let lines = [&["a,b"], &lines[..]].concat();
                    assert_eq!(told(&Dialect::default(), &lines, end), (end, 1), "{case}");
                }
            }
        }
    }
}

#[test]
fn a_quote_in_a_skipped_line_means_nothing() {
    let skip = dialect().skip_lines(2).build().unwrap();
    for end in LINE_ENDS {
        for first in ["\"Report of the day", "a,\"b", "", "\"\"\""] {
            let lines = [first, "\"of all claims\"", "a,b", "1,x", "2,\"y\""];
            assert_eq!(told(&skip, &lines, end), (end, 0), "{end}, {first:?}");
            assert_eq!(told(&skip, &lines[..3], end), (end, 0), "{end}, {first:?}");
        }
    }
    let find = |input: &[u8]| Opening::read(&skip, &[], input, Input::Ended).unwrap().line_end();
    assert_eq!(find(b"\"Report\n\na,b\r\n"), LineEnd::CrLf, "skipped lines tell nothing");
    assert_eq!(find(b"\"Report\r\ra,b"), LineEnd::Cr, "but where there is nothing else");
}

#[test]
fn line_ends_in_a_field_that_goes_on_behind_the_sample_do_not_count() {
    let mut input = b"a,b\r\n1,\"Dear all,\n".to_vec();
    while input.len() < Opening::SAMPLE.0 as usize + 100 {
        input.extend_from_slice(b"first, \"\"second\"\", third,\nthen, and more\nand no more\n");
    }
    input.extend_from_slice(b"\"\r\n2,x\r\n");
    let dialect = small(1 << 20, 1 << 20);
    let opening = Opening::read(&dialect, &[], &input, Input::Ended).unwrap();
    assert_eq!(opening.line_end(), LineEnd::CrLf);
    assert_eq!(outcome(&cut(&dialect, &[], &input, &[BLOCK]).unwrap()), (2, vec![]));

    // The same text in an input that breaks off.
    input.truncate(10_000);
    assert_eq!(
        Opening::read(&dialect, &[], &input, Input::Ended).unwrap().line_end(),
        LineEnd::CrLf
    );
}

#[test]
fn records_behind_a_quote_that_is_never_closed_outweigh_the_header() {
    for rows in [20, 20_000] {
        let mut input = b"a,b\n1,\"x\r\n".to_vec();
        (2..=rows).for_each(|row| input.extend_from_slice(format!("{row},y\r\n").as_bytes()));
        let opening = Opening::read(&Dialect::default(), &[], &input, Input::Ended).unwrap();
        assert_eq!(opening.line_end(), LineEnd::CrLf);
        let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
        assert_eq!((outcome(&items).0, outcome(&items).1.len()), (rows - 1, 1));
    }
}

#[test]
fn without_a_line_end_outside_quotes_those_inside_tell() {
    let no_header = dialect().header(HeaderLine::Absent).build().unwrap();
    let input = b"1,2,\"x\r\n2,2,y\r\n3,pipe 3\",z";
    let items = cut(&no_header, &["a", "b", "c"], input, &[BLOCK]).unwrap();
    assert_eq!((outcome(&items).0, outcome(&items).1.len()), (2, 1), "{items:?}");
}

#[test]
fn a_cr_at_the_end_of_the_sample_is_judged_by_what_follows_in_the_input() {
    let sample = Opening::SAMPLE.0 as usize;
    for end in LINE_ENDS {
        for more in 0..4 {
            let mut input = Vec::new();
            let row = |text: &str| [text.as_bytes(), end.as_bytes()].concat();
            input.extend(row("a,b"));
            input.extend(row("1,\"unclosed"));
            let rest = sample - input.len() - more;
            input.extend(row(&format!("2,{}", "x".repeat(rest - 2))));
            (3..9).for_each(|id| input.extend(row(&format!("{id},y"))));
            let opening = Opening::read(&Dialect::default(), &[], &input, Input::Ended).unwrap();
            assert_eq!(opening.line_end(), end, "{more} bytes before the end");
            let items = cut(&Dialect::default(), &[], &input, &[BLOCK]).unwrap();
            assert_eq!((outcome(&items).0, outcome(&items).1.len()), (7, 1), "{end}, {more}");
        }
    }
}

#[test]
fn a_header_that_deviates_is_read_all_the_same() {
    check(&Dialect::default(), b"a,b\r\n1,2\n3,4\n", &["1:2@5|1|2", "2:3@9|3|4"]);
}

#[test]
fn what_comes_before_the_header_can_be_skipped() {
    let skip = dialect().skip_lines(2).build().unwrap();
    check(&skip, b"report, \"of\ntoday\na,b\n1,2\n", &["1:4@22|1|2"]);
}

#[test]
fn headers_that_cannot_be_read_say_why() {
    let error =
        |input: &[u8]| cut(&Dialect::default(), &[], input, &[BLOCK]).unwrap_err().to_string();
    assert_eq!(error(b"a,,b\n"), "header (line 1): column 2 has no name: name it");
    assert_eq!(
        error(b"\na,\xE9\n"),
        "header (line 2): byte 3 is not UTF-8: convert the input to UTF-8"
    );
    assert_eq!(
        error(b"a,b\0\n"),
        "header (line 1): NUL at byte 3: remove it, and check that the input is CSV in UTF-8"
    );
    assert_eq!(
        error(&b"a,".repeat(1 << 16)),
        "header does not end within the first 64 KiB: check --delimiter, and that the input is CSV"
    );
}

#[test]
fn columns_go_by_name() {
    let input = b"note,amount,id\n\"a \"\"b\"\"\",5.00,7\n";
    let opening = Opening::read(&Dialect::default(), &[], input, Input::Ended).unwrap();
    let columns = opening.header().select(&["id", "note"], &["amount"]).unwrap();
    let mut decoder = Decoder::new(columns, opening.dialect().quote());
    let mut cutter = Cutter::new(&opening, opening.start());
    cutter.feed(&input[opening.start().byte as usize..]);
    let Some(Item::Record(cut)) = cutter.next() else { panic!("the record is whole") };
    let fields = decoder.decode(&cut.record);
    assert_eq!((fields.get(0), fields.get(1)), ("7", "a \"b\""));
}

#[test]
fn columns_that_do_not_fit_are_all_named() {
    let header = Header::declared(&["id", "x", "id", "y", "note"]);
    let error = header.select(&["id", "amount", "date"], &["note"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column id occurs more than once: give each column a name of its own. \
         columns amount, date are missing: add them to the file. \
         columns x, y are unknown: correct their names, or pass --ignore-columns x,y"
    );
}

#[test]
fn what_cannot_be_seen_in_a_columns_name_is_escaped() {
    let names = ["id", "a\u{feff}mount", "no\u{a0}te", "no\u{a0}te", "o'\"\\\u{e4}", "x\u{200b}\t"];
    let error = Header::declared(&names).select(&["id", "amount"], &[] as &[&str]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column no\\u{a0}te occurs more than once: give each column a name of its own. \
         column amount is missing: add it to the file. \
         columns a\\u{feff}mount, no\\u{a0}te, o'\"\\\u{e4}, x\\u{200b}\\t are unknown: correct their names"
    );
}

#[test]
fn a_first_line_that_is_no_header_is_not_repeated() {
    let header = Header::declared(&["C0000001", "secret", "secret"]);
    let error = header.select(&["id", "amount"], &[] as &[&str]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "header names none of the columns id, amount: check --delimiter, or pass --no-header if there is none"
    );
}

#[test]
fn public_types_can_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<Cutter>();
    check::<Splitter>();
    check::<Decoder>();
    check::<Opening>();
}
