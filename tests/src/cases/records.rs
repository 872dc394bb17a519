//! Records: quotes, bytes, encodings, shapes, sizes, numbers.

use crate::claims::{
    HEADER, claims, folder, import_every_way, killed_after_commit, rejects, row, run,
    start_of_line, start_of_row, stored,
};
use crate::program::Folder;

/// Rows of the cases with quotes far apart: more than a record may have lines.
const ROWS: u64 = 20_000;
const FAR: u64 = 15_000;

fn one(i: u64, text: &'static str) -> impl Fn(u64) -> Option<Vec<u8>> {
    move |row| (row == i).then(|| text.into())
}

fn two(first: (u64, &'static str), second: (u64, &'static str)) -> impl Fn(u64) -> Option<Vec<u8>> {
    move |row| [first, second].into_iter().find(|(i, _)| *i == row).map(|(_, text)| text.into())
}

/// Imports a long file: with one record in a transaction it would take long, and show what a short one shows.
fn import_long(description: impl Fn(u64) -> Option<Vec<u8>>, code: i32) -> Folder {
    let folder = folder(claims(ROWS, description));
    run(&folder, &["--workers", "score=8"]).exits(code);
    folder
}

#[test]
fn c01_a_an_unclosed_quote_costs_its_line_only() {
    let input = claims(1_200, one(2, "\"text 2"));
    let folder = import_every_way(&input, &[], 1);
    assert_eq!(stored(&folder), 1_199);
    let (at, len) = (start_of_line(&input, 3), start_of_row(2).len() + "\"text 2".len());
    let quote = start_of_row(2).len();
    assert_eq!(rejects(&folder), format!("3|{at}|{len}|description|unclosed_quote|{quote}\n"));
    let long = import_long(one(2, "\"text 2"), 1);
    assert_eq!(stored(&long), 19_999);
    assert_eq!(rejects(&long), rejects(&folder));
}

#[test]
fn c01_b_an_unclosed_quote_in_the_last_row_costs_that_row() {
    for line_end in [true, false] {
        let mut input = claims(1_200, one(1_200, "\"text 1200"));
        input.truncate(input.len() - usize::from(!line_end));
        let folder = import_every_way(&input, &[], 1);
        assert_eq!(stored(&folder), 1_199);
        let at = start_of_line(&input, 1_201);
        assert!(rejects(&folder).starts_with(&format!("1201|{at}|")), "{}", rejects(&folder));
        assert!(rejects(&folder).contains("|description|unclosed_quote|"));
    }
    let long = import_long(one(ROWS, "\"text 20000"), 1);
    assert_eq!(stored(&long), 19_999);
}

#[test]
fn c01_c_two_stray_quotes_far_apart_are_no_field() {
    let folder =
        import_every_way(claims(1_200, two((2, "\"text 2"), (1_150, "text 1150\""))), &[], 1);
    assert_eq!(stored(&folder), 1_199);
    let long = import_long(two((2, "\"text 2"), (FAR, "text 15000\"")), 1);
    assert_eq!(stored(&long), 19_999);
    assert!(rejects(&long).starts_with("3|"), "{}", rejects(&long));
    let last = "SELECT description FROM claims WHERE claim_id = 'C0015000'";
    assert_eq!(long.query(last), "text 15000\"\n");
}

#[test]
fn c01_d_two_quotes_that_pair_up_are_a_field_of_three_lines() {
    let input = claims(1_200, two((2, "\"text 2"), (4, "text 4\"")));
    let folder = import_every_way(&input, &[], 0);
    assert_eq!(stored(&folder), 1_198);
    let text = folder.query("SELECT description FROM claims WHERE claim_id = 'C0000002'");
    assert_eq!(text, format!("text 2\n{}text 3\n{}text 4\n", start_of_row(3), start_of_row(4)));
    let folder = import_every_way(&input, &["--no-multiline"], 1);
    assert_eq!(stored(&folder), 1_199);
    assert!(rejects(&folder).starts_with("3|"), "{}", rejects(&folder));
}

#[test]
fn c01_e_a_stray_quote_in_the_header_stops_the_run_before_it_begins() {
    for (name, words) in [("\"cause", "is not closed on this line"), ("ca\"use", "stray quote")] {
        let input =
            String::from_utf8(claims(10, |_| None)).expect("text").replacen("cause", name, 1);
        let folder = folder(input);
        run(&folder, &[]).exits(2).says("claims.csv: header (line 1)").says(words);
        assert!(!folder.path("claims.db").exists());
    }
}

#[test]
fn c02_a_quote_means_something_only_as_the_first_byte_of_a_field() {
    let texts = ["pipe 3\" wide", "\"ab\"cd", "say \"\"hi\"\"", " \"x\"", "\"a\"\"b\""];
    let input = claims(5, |i| Some(texts[i as usize - 1].into()));
    let texts = "SELECT claim_id, description FROM claims ORDER BY claim_id";
    let others = "C0000003|say \"\"hi\"\"\nC0000004| \"x\"\nC0000005|a\"b\n";
    let folder = import_every_way(&input, &[], 1);
    assert_eq!(folder.query(texts), format!("C0000001|pipe 3\" wide\n{others}"));
    let (at, len) = (start_of_line(&input, 3), start_of_row(2).len());
    let fault = len + 4;
    assert_eq!(
        rejects(&folder),
        format!("3|{at}|{}|description|text_after_quote|{fault}\n", len + 6)
    );
    let folder = import_every_way(&input, &["--quotes", "lenient"], 0);
    assert_eq!(folder.query(texts), format!("C0000001|pipe 3\" wide\nC0000002|abcd\n{others}"));
    assert_eq!(repaired(&folder), 1);
}

/// Records of the claims that were taken with changed values.
fn repaired(folder: &Folder) -> i64 {
    folder.count(
        "SELECT sum(records) FROM gegendruck_repaired JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'",
    )
}

#[test]
fn c03_a_b_a_byte_order_mark_is_removed_once_and_counted() {
    let text = String::from_utf8(claims(20, |_| None)).expect("text").replacen(
        "claim_id",
        "\"claim_id\"",
        1,
    );
    let input = [b"\xEF\xBB\xBF", text.as_bytes()].concat();
    let folder = import_every_way(&input, &[], 0);
    let committed = "SELECT byte FROM gegendruck_inputs JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'";
    assert_eq!(folder.count(committed) as usize, input.len());
    assert_eq!(stored(&folder), 20);
    let records = text.split_once('\n').expect("a header").1;
    let input = [b"\xEF\xBB\xBF", records.as_bytes()].concat();
    // The contracts beside have a header, and this file has none.
    let bare = crate::claims::folder(&input);
    bare.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    run(&bare, &["--no-header"]).exits(0);
    assert_eq!((stored(&bare), bare.count(committed) as usize), (20, input.len()));
    let rows = "SELECT * FROM claims ORDER BY claim_id";
    assert_eq!(bare.query(rows), folder.query(rows));
}

#[test]
fn c03_c_the_second_of_two_files_in_one_is_told_by_its_header() {
    for mark in ["\u{feff}", ""] {
        let second = format!("{mark}{HEADER}\n{}x\n", start_of_row(501));
        let input = [claims(500, |_| None), second.into_bytes()].concat();
        let folder = import_every_way(&input, &[], 1);
        assert_eq!(stored(&folder), 501);
        let kind = if mark.is_empty() { "repeated_header" } else { "stray_bom" };
        let kinds = folder.query("SELECT line, kind, detail FROM gegendruck_rejects");
        assert_eq!(kinds, format!("502|{kind}|concatenated file?\n"));
    }
}

#[test]
fn c05_a_line_end_in_quotes_survives_the_boundary_of_a_block() {
    // Blocks have 256 KiB, and 64 KiB are looked at first: the line end lies on every place around both.
    for boundary in [64 << 10, 256 << 10, 512 << 10] {
        let start = format!("{HEADER}\r\n{}\"", start_of_row(1));
        for shift in 0..4 {
            let pad = "z".repeat(boundary - start.len() - shift);
            for (inner, value) in [("A\r\nB", "41 0D 0A 42"), ("A\"\"B", "41 22 42")] {
                let input = format!("{start}{pad}{inner}\"\r\n{}plain\r\n", start_of_row(2));
                let folder = folder(&input);
                run(&folder, &[]).exits(0);
                let texts = "SELECT length(CAST(description AS BLOB)), hex(substr(CAST(description AS BLOB), -4)) \
                             FROM claims ORDER BY claim_id";
                let hex = value.replace(' ', "");
                let (len, tail) = (
                    pad.len() + hex.len() / 2,
                    if hex.len() == 8 { hex } else { format!("7A{hex}") },
                );
                assert_eq!(
                    folder.query(texts),
                    format!("{len}|{tail}\n5|6C61696E\n"),
                    "at {boundary} - {shift}"
                );
            }
        }
    }
}

#[test]
fn c06_a_nul_costs_its_row_or_is_stripped() {
    let mut input = claims(1_000, |i| (i == 500).then(|| b"a\0bc".to_vec()));
    let row = start_of_line(&input, 502);
    input.insert(row, b'\0');
    let folder = import_every_way(&input, &[], 1);
    assert_eq!(stored(&folder), 998);
    let start = start_of_row(500).len();
    assert_eq!(
        rejects(&folder),
        format!(
            "501|{}|{}|description|nul_byte|{}\n502|{row}|{}|claim_id|nul_byte|0\n",
            start_of_line(&input, 501),
            start + 4,
            start + 1,
            start_of_row(501).len() + "text 501".len() + 1
        )
    );
    let folder = import_every_way(&input, &["--nul", "strip"], 0);
    assert_eq!(stored(&folder), 1_000);
    let texts = "SELECT description FROM claims WHERE claim_id IN ('C0000500', 'C0000501') ORDER BY claim_id";
    assert_eq!(folder.query(texts), "abc\ntext 501\n");
    assert_eq!(repaired(&folder), 2);
    // Also over a crash, and the operator is told.
    let folder = self::folder(&input);
    killed_after_commit(&folder, 505, &["--nul", "strip", "--batch-size", "1"]);
    assert_eq!(repaired(&folder), 2);
    run(&folder, &["--nul", "strip"]).exits(0).says("repaired:   2 records taken with changed");
}

#[test]
fn c07_invalid_utf8_costs_its_row_names_the_byte_and_keeps_the_bytes() {
    let input = claims(1_000, |i| match i {
        500 => Some(b"caf\xE9".to_vec()),
        700 => Some(b"x\xE2\x82".to_vec()),
        900 => Some(b"\xED\xA0\x80".to_vec()),
        950 => Some(b"\xC3\xA9".to_vec()),
        _ => None,
    });
    let folder = import_every_way(&input, &[], 1);
    assert_eq!(stored(&folder), 997);
    let expected = [(500, 3, 4), (700, 1, 3), (900, 0, 3)].map(|(i, fault, len)| {
        let start = start_of_row(i).len();
        let at = start_of_line(&input, i as usize + 1);
        format!("{}|{at}|{}|description|invalid_utf8|{}\n", i + 1, start + len, start + fault)
    });
    assert_eq!(rejects(&folder), expected.concat());
    assert_eq!(folder.query("SELECT description FROM claims WHERE claim_id = 'C0000950'"), "é\n");
    folder.run(&["rejects", "export", "--out", "rejects.csv"]).exits(0);
    let exported = std::fs::read(folder.path("rejects.csv")).expect("the export");
    let mut expected = format!("reject_id,{HEADER}\n").into_bytes();
    for (id, i, text) in
        [(1, 500, &b"caf\xE9"[..]), (2, 700, b"x\xE2\x82"), (3, 900, b"\xED\xA0\x80")]
    {
        expected.extend([format!("{id},{}", start_of_row(i)).as_bytes(), text, b"\n"].concat());
    }
    assert_eq!(exported, expected, "the bytes of the file, under its header");
}

#[test]
fn c10_ragged_rows_are_refused_and_blank_lines_counted() {
    let text = String::from_utf8(claims(10, |_| None)).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines[3] = lines[3].rsplit_once(',').expect("a column").0.into();
    lines[5].push_str(",more");
    lines[7].clear();
    lines[8] = ",,,,,,,,,".into();
    let folder = import_every_way(lines.join("\n") + "\n", &[], 1);
    assert_eq!(stored(&folder), 6);
    let found = folder.query("SELECT line, column_name, kind, detail FROM gegendruck_rejects");
    assert_eq!(
        found,
        "4|NULL|field_count|found 9 fields, expected 10\n6|NULL|field_count|found 11 fields, expected 10\n\
         9|claim_id|missing|no value, expected one\n"
    );
    let blank = "SELECT blank_lines FROM gegendruck_inputs JOIN gegendruck_runs USING (run) WHERE pipeline = 'claims'";
    assert_eq!(folder.count(blank), 1);
}

#[test]
fn c10_a_delimiter_at_the_end_of_every_line_is_asked_for() {
    let text = String::from_utf8(claims(20, |_| None)).expect("text").replace('\n', ",\n");
    let trailing = folder(&text);
    run(&trailing, &[]).exits(2).says("--trailing-delimiter");
    assert!(!trailing.path("claims.db").exists());
    trailing.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
    run(&trailing, &["--trailing-delimiter"]).exits(0);
    assert_eq!(stored(&trailing), 20);
}

#[test]
fn c13_an_empty_input_is_no_success_and_a_header_alone_is_one_with_a_warning() {
    for empty in ["", "\u{feff}"] {
        let folder = folder(empty);
        for _ in 0..2 {
            run(&folder, &[]).exits(8).says("--allow-empty");
            assert!(!folder.path("claims.db").exists());
        }
        run(&folder, &["--allow-empty"]).exits(0).says("no records");
        run(&folder, &["--allow-empty"]).exits(0).says("already done");
    }
    for (header, blank) in [(HEADER.to_string(), 0), (format!("{HEADER}\n\n\n"), 2)] {
        let folder = import_every_way(&header, &[], 0);
        let run_row = folder.query(
            "SELECT state, exit_code, read_records, blank_lines, complete FROM gegendruck_runs JOIN gegendruck_inputs \
             USING (run) WHERE pipeline = 'claims'",
        );
        assert_eq!(run_row, format!("complete|0|0|{blank}|1\n"));
        run(&folder, &[]).exits(0).says("already done");
        let other = crate::claims::folder(&header);
        run(&other, &[]).exits(0).says("warning: the input has no records");
    }
    let blank = folder("\n\n");
    run(&blank, &[]).exits(2).says("no header line");
}

#[test]
fn c15_a_field_of_900_kib_loads_and_one_of_5_mib_costs_its_row() {
    let long = |bytes: usize| {
        let text = "and so, on\n\"\"quoted\"\" ".repeat(bytes / 22);
        claims(100, |i| (i == 50).then(|| format!("\"{text}\"").into_bytes()))
    };
    let lines = ["--max-record-lines", "1000000"];
    let input = long(900 << 10);
    let taken = import_every_way(&input, &lines, 0);
    let text = "SELECT length(description) FROM claims WHERE claim_id = 'C0000050'";
    let quotes = (900 << 10) / 22;
    assert_eq!((stored(&taken), taken.count(text)), (100, quotes * 20));

    let input = long(5 << 20);
    let folder = import_every_way(&input, &lines, 1);
    assert_eq!(stored(&folder), 99);
    let (at, next) = (start_of_line(&input, 51), input.len() - claims_after_50());
    let found = folder
        .query("SELECT line, byte, length, kind, length(bytes) <= 4096 FROM gegendruck_rejects");
    assert_eq!(found, format!("51|{at}|{}|record_too_long|1\n", next - at - 1));
    assert_eq!(folder.count("SELECT count(*) FROM claims WHERE claim_id = 'C0000051'"), 1);
}

/// Bytes of rows 51 to 100.
fn claims_after_50() -> usize {
    let plain = claims(100, |_| None);
    plain.len() - start_of_line(&plain, 52)
}

const AMOUNTS: [&str; 18] = [
    "1,5",
    "1.234,56",
    "1,213",
    "99999999999999999999",
    "1e400",
    "1e2",
    "NaN",
    "inf",
    " 5",
    "+7",
    "007",
    "1.239",
    "-0.00",
    ".5",
    "5.",
    "--1",
    "",
    "１２",
];

/// What became of each amount: what is stored, in hundredths, or the kind of its reject.
fn amounts(more: &[&str]) -> Vec<String> {
    let mut input = format!("{HEADER}\n");
    for (amount, i) in AMOUNTS.iter().zip(1..) {
        input.push_str(&row(i, &format!("\"{amount}\""), "x"));
        input.push('\n');
    }
    let mut more = more.to_vec();
    more.extend(["--max-errors", "100%"]);
    // The contracts are written with points.
    let mut found: Option<Vec<String>> = None;
    for (workers, batch) in [("score=1", "1"), ("score=8", "7"), ("score=8", "5000")] {
        let folder = folder(&input);
        folder.run(&["run", "contracts", "contracts.csv", "--quiet"]).exits(0);
        let arguments = [&more[..], &["--workers", workers, "--batch-size", batch]].concat();
        run(&folder, &arguments).exits(1);
        let outcome = (1..=AMOUNTS.len()).map(|i| {
            folder.query(&format!(
                "SELECT amount FROM claims WHERE claim_id = 'C{i:07}' \
                 UNION ALL SELECT column_name || ' ' || kind FROM gegendruck_rejects WHERE line = {i} + 1"
            ))
        });
        let outcome: Vec<_> = outcome.map(|text| text.trim_end().to_string()).collect();
        assert_eq!(found.get_or_insert_with(|| outcome.clone()), &outcome);
    }
    found.expect("there was an import")
}

#[test]
fn c32_numbers_are_exact_or_refused() {
    assert_eq!(
        amounts(&[]),
        [
            "amount not_a_number",
            "amount not_a_number",
            "amount not_a_number",
            "amount overflow",
            "amount not_a_number",
            "amount not_a_number",
            "amount not_a_number",
            "amount not_a_number",
            "amount stray_blank",
            "700",
            "700",
            "amount too_many_decimals",
            // A number, 0.00, and no claim.
            "amount not_positive",
            "50",
            "amount not_a_number",
            "amount not_a_number",
            "amount missing",
            "amount not_a_number",
        ]
    );
}

#[test]
fn c32_a_decimal_comma_and_thousands_are_read_if_they_are_declared() {
    let found = amounts(&["--decimal", ",", "--thousands", "."]);
    assert_eq!(found[..3], ["150", "123456", "amount too_many_decimals"]);
    let refused = ["1e400", "1e2", "NaN", "inf", " 5", "5.", "--1", "", "１２", ".5", "1.239"];
    for text in refused {
        let at = AMOUNTS.iter().position(|amount| *amount == text).expect("an amount");
        let dotted = text == "1.239";
        assert_eq!(found[at].starts_with("amount "), !dotted, "{text}: {}", found[at]);
    }
}
