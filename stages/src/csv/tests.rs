//! The splitter, the cutter and the decoder on inputs with faults, under every way of cutting the input into blocks.

use std::fmt::Write as _;

use gegendruck::Bytes;

use super::*;

mod cases;
mod properties;

/// What a run reads a file by.
const BLOCK: usize = 256 * 1024;

/// Lines of text for what is cut from `input` when it arrives in blocks of these lengths, over and over.
fn cut(
    dialect: &Dialect,
    declared: &[&str],
    input: &[u8],
    blocks: &[usize],
) -> Result<Vec<String>, OpenError> {
    let opening = Opening::read(dialect, declared, input, Input::Ended)?;
    let start = opening.start();
    let mut cutter = Cutter::new(&opening, start);
    let names: Vec<_> = opening.header().names().to_vec();
    let columns = opening.header().select::<_, &str>(&names, &[]).expect("names are not repeated");
    let mut decoder = Decoder::new(columns, dialect.quote());
    let mut out = Vec::new();
    let mut raw = Vec::new();
    let mut rest = &input[start.byte as usize..];
    let mut blocks = blocks.iter().cycle();
    loop {
        while let Some(item) = cutter.next() {
            let line = match item {
                Item::Record(cut) => {
                    raw.extend_from_slice(cut.raw);
                    let repaired = if cut.is_repaired() { " repaired" } else { "" };
                    let mut line =
                        format!("{}:{}@{}{repaired}", cut.at.record, cut.at.line, cut.at.byte);
                    let fields = decoder.decode(&cut.record);
                    for field in 0..names.len() {
                        write!(line, "|{}", fields.get(field).escape_default()).unwrap();
                    }
                    line
                }
                Item::Refused(cut) => {
                    raw.extend_from_slice(cut.raw);
                    assert!(cut.bytes.len() as u64 == cut.len || cut.bytes.len() == EXCERPT);
                    let at = cut.reason.byte.map(|byte| format!(" at {byte}")).unwrap_or_default();
                    let (reason, bytes) = (&cut.reason, cut.bytes.escape_ascii());
                    format!(
                        "{}:{}@{} {} bytes {} lines {reason}{at} <{bytes}>",
                        cut.at.record, cut.at.line, cut.at.byte, cut.len, cut.lines
                    )
                }
                Item::Blank(bytes) => {
                    raw.extend_from_slice(bytes);
                    "blank".to_owned()
                }
                Item::Skipped(bytes) => {
                    raw.extend_from_slice(bytes);
                    continue;
                }
            };
            out.push(line);
        }
        if cutter.is_done() {
            break;
        }
        let (block, after) = rest.split_at((*blocks.next().unwrap()).min(rest.len()));
        cutter.feed(block);
        rest = after;
        if rest.is_empty() {
            cutter.end();
        }
    }
    assert!(raw == input[start.byte as usize..], "the items' bytes are not the input");
    assert_eq!(cutter.position().byte, input.len() as u64);
    Ok(out)
}

/// What is cut from `input`, the same under every way of cutting it into blocks.
#[track_caller]
fn cut_all_ways(dialect: &Dialect, input: &[u8]) -> Vec<String> {
    let expected = cut(dialect, &[], input, &[BLOCK]).unwrap();
    for block in 1..=16 {
        assert_eq!(
            cut(dialect, &[], input, &[block]).unwrap(),
            expected,
            "blocks of {block} bytes"
        );
    }
    expected
}

/// Compares what is cut from `input` with `expected`, one line for each item.
#[track_caller]
fn check(dialect: &Dialect, input: &[u8], expected: &[&str]) {
    assert_eq!(cut_all_ways(dialect, input), expected);
}

/// Rows of `cases.md`'s gen(n), with some of them replaced.
fn gen_with(rows: u64, replace: impl Fn(u64) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = b"claim_id,policy_no,loss_date,amount,descr\n".to_vec();
    for i in 1..=rows {
        match replace(i) {
            Some(descr) => {
                out.extend_from_slice(
                    format!("C{i:07},P{:04},2026-01-{:02},{i}.00,", i % 1000, i % 28 + 1)
                        .as_bytes(),
                );
                out.extend_from_slice(&descr);
            }
            None => out.extend_from_slice(
                format!("C{i:07},P{:04},2026-01-{:02},{i}.00,text {i}", i % 1000, i % 28 + 1)
                    .as_bytes(),
            ),
        }
        out.push(b'\n');
    }
    out
}

/// How many items are records, and those that are not.
fn outcome(items: &[String]) -> (usize, Vec<&str>) {
    let is_record = |item: &&String| item.contains('|');
    let others = items.iter().filter(|item| !is_record(item)).map(String::as_str).collect();
    (items.iter().filter(is_record).count(), others)
}

fn dialect() -> DialectBuilder {
    Dialect::builder()
}

/// A dialect with small limits, so that their edges are reached.
fn small(bytes: u64, lines: u32) -> Dialect {
    dialect().max_record_bytes(Bytes(bytes)).max_record_lines(lines).build().unwrap()
}
