//! How fast inputs of several shapes are split, beside the `csv` crate on the same bytes.
//!
//! ```text
//! cargo bench -p gegendruck-stages --bench split [-- SHAPE]
//! ```
//!
//! - `csv` is `read_byte_record`, `csv text` is `read_record`, which checks UTF-8.
//! - `split` is the splitter on the whole input, `cut` the cutter fed in blocks, `decode` the cutter and all values taken out; all
//!   three check UTF-8, and refuse NULs.
//! - All take turns in one process, in an order that changes each round. Printed are medians in MB/s with their range, and the ratio
//!   to `csv`.

use std::hint::black_box;
use std::time::Duration;

use gegendruck_stages::csv::{Cutter, Decoder, Dialect, Input, Item, Opening, Splitter, Step};

const ROUNDS: usize = 21;
const SIZE: usize = 16 << 20;
const BLOCK: usize = 256 << 10;

type Run = fn(&[u8]) -> (u64, u64);

/// Each reports how many records and fields it found.
const RUNS: [(&str, Run); 5] =
    [("csv", csv), ("csv text", csv_text), ("split", split), ("cut", cut), ("decode", decode)];

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    println!(
        "{:<14}{:>10}{:>28}{:>28}{:>28}{:>28}",
        "shape", "bytes/rec", "csv MB/s", "split", "cut", "decode"
    );
    for (name, input) in shapes() {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let found = RUNS.map(|(_, run)| run(&input));
        assert!(found.iter().all(|&one| one == found[0]), "{name}: {found:?}");
        let mut times: [Vec<Duration>; RUNS.len()] = Default::default();
        for round in 0..ROUNDS {
            for turn in 0..RUNS.len() {
                let run = (round + turn) % RUNS.len();
                times[run].push(time(|| RUNS[run].1(black_box(&input))));
            }
        }
        print!("{name:<12}{:>7}", input.len() as u64 / found[0].0);
        let rates = times.map(|times| rates(input.len(), times));
        for (run, [low, median, high]) in rates.iter().enumerate() {
            let ratio =
                if run == 0 { String::new() } else { format!(" x{:.2}", median / rates[0][1]) };
            print!("{:>25}", format!("{median:.0} ({low:.0}-{high:.0}){ratio}"));
        }
        println!();
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn time<T>(run: impl FnOnce() -> T) -> Duration {
    let start = std::time::Instant::now();
    black_box(run());
    start.elapsed()
}

/// Lowest, median and highest rate in MB/s.
fn rates(len: usize, mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    let rate = |time: Duration| len as f64 / 1e6 / time.as_secs_f64();
    [rate(times[times.len() - 1]), rate(times[times.len() / 2]), rate(times[0])]
}

fn csv(input: &[u8]) -> (u64, u64) {
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BLOCK).from_reader(input);
    let mut record = csv::ByteRecord::new();
    let (mut records, mut fields) = (0, 0);
    while reader.read_byte_record(&mut record).expect("the input is valid") {
        records += 1;
        fields += record.len() as u64;
    }
    (records, fields)
}

fn csv_text(input: &[u8]) -> (u64, u64) {
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BLOCK).from_reader(input);
    let mut record = csv::StringRecord::new();
    let (mut records, mut fields) = (0, 0);
    while reader.read_record(&mut record).expect("the input is valid") {
        records += 1;
        fields += record.len() as u64;
    }
    (records, fields)
}

fn open(input: &[u8]) -> Opening {
    Opening::read(&Dialect::default(), &[], input, Input::Ended).expect("the input has a header")
}

fn split(input: &[u8]) -> (u64, u64) {
    let opening = open(input);
    let mut splitter = Splitter::new(&opening);
    let mut rest = &input[opening.start().byte as usize..];
    let (mut records, mut fields) = (0, 0);
    loop {
        match splitter.next(rest, Input::Ended) {
            Step::Record { len, .. } => {
                records += 1;
                fields += splitter.ends().len() as u64;
                rest = &rest[len..];
            }
            Step::End => return (records, fields),
            step => panic!("{step:?}"),
        }
    }
}

fn cut(input: &[u8]) -> (u64, u64) {
    let (mut records, mut fields) = (0, 0);
    for_each(input, |cutter| {
        while let Some(item) = cutter.next() {
            let Item::Record(cut) = item else { panic!("{item:?}") };
            records += 1;
            fields += cut.record.ends.len() as u64;
        }
    });
    (records, fields)
}

fn decode(input: &[u8]) -> (u64, u64) {
    let opening = open(input);
    let columns =
        opening.header().select::<_, &str>(opening.header().names(), &[]).expect("names differ");
    let mut decoder = Decoder::new(columns, Some(b'"'));
    let (mut records, mut fields) = (0, 0);
    for_each(input, |cutter| {
        while let Some(item) = cutter.next() {
            let Item::Record(cut) = item else { panic!("{item:?}") };
            records += 1;
            fields += black_box(decoder.decode(&cut.record)).ends().len() as u64;
        }
    });
    (records, fields)
}

/// Feeds a cutter block by block.
fn for_each(input: &[u8], mut drain: impl FnMut(&mut Cutter)) {
    let opening = open(input);
    let mut cutter = Cutter::new(&opening, opening.start());
    for block in input[opening.start().byte as usize..].chunks(BLOCK) {
        cutter.feed(block);
        drain(&mut cutter);
    }
    cutter.end();
    drain(&mut cutter);
}

/// Inputs of 16 MiB and a line.
fn shapes() -> Vec<(&'static str, Vec<u8>)> {
    let shape = |header: &str, row: &dyn Fn(u64, &mut Vec<u8>)| {
        let mut out = format!("{header}\n").into_bytes();
        let mut i = 1;
        while out.len() < SIZE {
            row(i, &mut out);
            out.push(b'\n');
            i += 1;
        }
        out
    };
    let text = "the insured reports that water came in through the roof; see the letter, and photographs of the damage. ";
    vec![
        (
            "claims",
            shape(
                "id,policy,customer,loss,reported,amount,currency,cause,status,note",
                &|i, out| {
                    let row = format!(
                        "CLM{i:08},POL{:07},CUST{:08},2026-01-{:02},2026-02-{:02},{}.{:02},EUR,water damage {},open,adjuster {} region north {i:08}",
                        i * 7919 % 9_999_991,
                        i * 104_729 % 99_999_989,
                        i % 28 + 1,
                        i % 27 + 1,
                        i * 31 % 100_000,
                        i % 100,
                        i % 40,
                        i % 300,
                    );
                    out.extend_from_slice(row.as_bytes());
                },
            ),
        ),
        (
            "gen",
            shape("claim_id,policy_no,loss_date,amount,descr", &|i, out| {
                let row =
                    format!("C{i:07},P{:04},2026-01-{:02},{i}.00,text {i}", i % 1000, i % 28 + 1);
                out.extend_from_slice(row.as_bytes());
            }),
        ),
        (
            "tiny",
            shape("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t", &|i, out| {
                for field in 0..20 {
                    if field > 0 {
                        out.push(b',');
                    }
                    if i * 7 % 5 != field % 5 {
                        out.extend_from_slice((i * (field + 3) % 97).to_string().as_bytes());
                    }
                }
            }),
        ),
        (
            "narrow",
            shape("a,b", &|i, out| {
                out.extend_from_slice(format!("{},{}", i % 89, i % 7).as_bytes())
            }),
        ),
        (
            "quoted",
            shape("id,policy,name,street,city,amount,note", &|i, out| {
                let row = format!(
                    "\"{i}\",\"P{:06}\",\"Doe, Jane {}\",\"Long Street {}\",\"Town\",\"{}.00\",\"said \"\"call {}\"\" again\"",
                    i * 7919 % 999_983,
                    i % 1000,
                    i % 200,
                    i % 10_000,
                    i % 24,
                );
                out.extend_from_slice(row.as_bytes());
            }),
        ),
        (
            "long text",
            shape("id,amount,text", &|i, out| {
                let text = text.replace(',', " ").repeat(i as usize % 12 + 4);
                out.extend_from_slice(format!("{i},{}.00,{text}", i % 1000).as_bytes());
            }),
        ),
        (
            "quoted text",
            shape("id,amount,text", &|i, out| {
                let text = text.repeat(i as usize % 12 + 4);
                out.extend_from_slice(format!("{i},{}.00,\"{text}\n{text}\"", i % 1000).as_bytes());
            }),
        ),
        (
            "umlauts",
            shape("id,name,city,note", &|i, out| {
                let row = format!(
                    "{i},Müller-Lüdenscheidt {},Köln,Schäden an Dach und Wänden größer als {} €",
                    i % 90,
                    i % 700
                );
                out.extend_from_slice(row.as_bytes());
            }),
        ),
    ]
}
