use std::collections::{BTreeMap, BTreeSet};

use gegendruck_stages::csv::{Cutter, Decoder, Dialect, Input, Item, Opening};

use super::*;
use crate::claims::{Claim, Decision, score};
use crate::contracts::Contract;

/// What becomes of the rows of a file: sound ones, and how many rejects there are of each `column kind`.
struct Outcome<T> {
    rows: Vec<T>,
    rejects: BTreeMap<String, u64>,
}

fn read<R: FromFields, T>(
    bytes: &[u8],
    validate: impl Fn(&R) -> Result<T, gegendruck::Reason>,
) -> Outcome<T> {
    let dialect = Dialect::default();
    let opening = Opening::read(&dialect, &[], bytes, Input::Ended).unwrap();
    let columns = opening.header().select::<_, &str>(R::COLUMNS, &[]).unwrap();
    let mut decoder = Decoder::new(columns, dialect.quote());
    let mut cutter = Cutter::new(&opening, opening.start());
    cutter.feed(&bytes[opening.start().byte as usize..]);
    cutter.end();
    let mut outcome = Outcome { rows: Vec::new(), rejects: BTreeMap::new() };
    while let Some(item) = cutter.next() {
        let result = match item {
            Item::Record(cut) => validate(&R::from_fields(&decoder.decode(&cut.record))),
            Item::Refused(refused) => Err(*refused.reason),
            Item::Blank(_) | Item::Skipped(_) => {
                panic!("a generated file has no blank or huge lines")
            }
        };
        match result {
            Ok(row) => outcome.rows.push(row),
            Err(reason) => {
                let column = reason.column.map(|column| format!("{column} ")).unwrap_or_default();
                *outcome.rejects.entry(format!("{column}{}", reason.kind)).or_default() += 1;
            }
        }
    }
    outcome
}

fn claims(file: &ClaimsFile) -> (Vec<u8>, Written) {
    let mut bytes = Vec::new();
    let written = file.write(&mut bytes).unwrap();
    (bytes, written)
}

fn contracts(file: &ContractsFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.write(&mut bytes).unwrap();
    bytes
}

/// FNV-1a, 64 bits: a name for a file's bytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn the_same_arguments_give_these_bytes() {
    let mut file = ClaimsFile::new(10_000, 42);
    file.faults = FaultShares::new("1%".parse().unwrap(), &[]).unwrap();
    let lf = claims(&file).0;
    file.line_end = LineEnd::CrLf;
    let crlf = claims(&file).0;
    let contracts = contracts(&ContractsFile::new(1_000, 42));
    assert_eq!([lf, crlf, contracts].map(|bytes| format!("{:016x}", fingerprint(&bytes))), GOLDEN);
}

/// Changes only when the generator is meant to write something else.
const GOLDEN: [&str; 3] = ["dba19db7fe80adf4", "c8419d38a78b0a52", "61f71176fe84e72c"];

/// The files of `fixtures/`, as its README says that they are made.
fn fixtures() -> [(&'static str, Vec<u8>); 3] {
    let shares = |spread: &str, single: &[(FaultKind, &str)]| {
        let single: Vec<_> =
            single.iter().map(|(kind, share)| (*kind, share.parse().unwrap())).collect();
        FaultShares::new(spread.parse().unwrap(), &single).unwrap()
    };
    let few = shares("0", &[(FaultKind::TooManyDecimals, "0.7%"), (FaultKind::NotADate, "0.4%")]);
    let claims_csv = ClaimsFile { faults: few, ..ClaimsFile::new(300, 7206) };
    let faults_csv =
        ClaimsFile { faults: shares("10%", &[]), contracts: 30, ..ClaimsFile::new(290, 7206) };
    [
        ("claims.csv", claims(&claims_csv).0),
        ("contracts.csv", contracts(&ContractsFile::new(30, 7206))),
        ("faults.csv", claims(&faults_csv).0),
    ]
}

/// With `UPDATE_GOLDENS` set, writes the fixtures instead.
#[test]
fn the_fixtures_are_what_the_generator_writes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    for (name, bytes) in fixtures() {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name} is not what the generator writes");
    }
}

#[test]
fn the_fixtures_have_the_rejects_that_their_page_promises() {
    let [(_, claims), (_, contracts), (_, faults)] = fixtures();
    let claims = read(&claims, Claim::validate);
    let expected = [("amount too_many_decimals", 2), ("loss_date not_a_date", 1)];
    assert_eq!(claims.rejects, expected.map(|(reason, count)| (reason.to_owned(), count)).into());
    assert_eq!((claims.rows.len(), read(&contracts, Contract::validate).rows.len()), (297, 30));

    let faults = read(&faults, Claim::validate);
    let mut expected = BTreeMap::new();
    for kind in FaultKind::ALL.iter().filter(|kind| **kind != FaultKind::DuplicateKey) {
        *expected.entry(kind.reject().to_owned()).or_insert(0) += 1;
    }
    // The row with a duplicate key is sound until it meets the table.
    assert_eq!((faults.rejects, faults.rows.len()), (expected, 290 - FaultKind::ALL.len() + 1));
}

#[test]
fn bytes_do_not_depend_on_how_they_are_taken() {
    /// Takes a few bytes at a time.
    struct Slow(Vec<u8>);
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let file = ClaimsFile::new(2_000, 3);
    let mut slow = Slow(Vec::new());
    file.write(&mut slow).unwrap();
    assert_eq!(slow.0, claims(&file).0);
}

#[test]
fn a_longer_file_begins_like_a_shorter_one() {
    let mut long = ClaimsFile::new(2_000, 3);
    long.contracts = 100;
    let short = ClaimsFile { rows: 1_000, ..long.clone() };
    assert!(claims(&long).0.starts_with(&claims(&short).0));
}

#[test]
fn sound_rows_keep_every_rule() {
    for line_end in [LineEnd::Lf, LineEnd::CrLf] {
        let (bytes, written) = claims(&ClaimsFile { line_end, ..ClaimsFile::new(5_000, 11) });
        let outcome = read(&bytes, Claim::validate);
        assert_eq!(outcome.rejects, BTreeMap::new());
        assert_eq!((outcome.rows.len(), written.rows, written.faulty()), (5_000, 5_000, 0));
        let ids: BTreeSet<&str> = outcome.rows.iter().map(Claim::claim_id).collect();
        assert_eq!(
            (ids.len(), ids.first(), ids.last()),
            (5_000, Some(&"C00000001"), Some(&"C00005000"))
        );

        let bytes = contracts(&ContractsFile { line_end, ..ContractsFile::new(500, 11) });
        let outcome = read(&bytes, Contract::validate);
        assert_eq!((outcome.rejects, outcome.rows.len()), (BTreeMap::new(), 500));
    }
}

#[test]
fn claims_fit_the_contracts_of_their_seed_and_meet_every_rule() {
    let (bytes, written) = claims(&ClaimsFile::new(20_000, 11));
    let contracts = read(&contracts(&ContractsFile::new(2_000, 11)), Contract::validate).rows;
    let contracts: BTreeMap<&str, &Contract> =
        contracts.iter().map(|contract| (&*contract.policy_id, contract)).collect();
    let mut decisions = BTreeMap::new();
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for claim in read(&bytes, Claim::validate).rows {
        let score = score(&claim, contracts.get(claim.policy_id()).copied());
        *decisions.entry(score.decision.name()).or_insert(0) += 1;
        score.reasons.iter().for_each(|reason| *reasons.entry(reason.name()).or_default() += 1);
    }
    assert!(decisions[Decision::Accept.name()] > 16_000, "{decisions:?}");
    assert!(
        decisions.len() == 3 && decisions.values().all(|&claims| claims > 200),
        "{decisions:?}"
    );
    assert_eq!(reasons["no_contract"], written.orphans);
    assert!(reasons.len() == 8 && reasons.values().all(|&claims| claims > 5), "{reasons:?}");
}

#[test]
fn twins_repeat_an_earlier_claim_and_are_counted() {
    let (bytes, written) = claims(&ClaimsFile::new(20_000, 11));
    let mut groups: BTreeMap<(String, String, i64), u64> = BTreeMap::new();
    for claim in read(&bytes, Claim::validate).rows {
        let group =
            (claim.policy_id().to_owned(), claim.loss_date().to_string(), claim.amount().units());
        *groups.entry(group).or_default() += 1;
    }
    let repeated: u64 = groups.values().map(|members| members - 1).sum();
    assert_eq!(repeated, written.twins);
    assert!((20..80).contains(&written.twins), "{}", written.twins);
}

#[test]
fn each_kind_of_fault_becomes_its_reject_and_costs_no_other_row() {
    for line_end in [LineEnd::Lf, LineEnd::CrLf] {
        for &kind in FaultKind::ALL.iter().filter(|kind| **kind != FaultKind::DuplicateKey) {
            let faults = FaultShares::new(Share::NONE, &[(kind, "1%".parse().unwrap())]).unwrap();
            let (bytes, written) =
                claims(&ClaimsFile { line_end, faults, ..ClaimsFile::new(2_000, 5) });
            let outcome = read(&bytes, Claim::validate);
            assert_eq!(written.faults(kind), 20);
            assert_eq!(outcome.rows.len(), 1_980, "{} {:?}", kind.name(), outcome.rejects);
            let mut rejects = outcome.rejects;
            if kind == FaultKind::UnclosedQuote {
                // The quote that opens the next quoted description is found to close it.
                *rejects.entry(kind.reject().into()).or_default() +=
                    rejects.remove(FaultKind::TextAfterQuote.reject()).unwrap_or_default();
            }
            assert_eq!(rejects, BTreeMap::from([(kind.reject().to_owned(), 20)]));
        }
    }
}

#[test]
fn duplicate_keys_repeat_an_earlier_sound_row() {
    let faults = FaultShares::new(
        "20%".parse().unwrap(),
        &[(FaultKind::DuplicateKey, "10%".parse().unwrap())],
    )
    .unwrap();
    let (bytes, written) = claims(&ClaimsFile { faults, ..ClaimsFile::new(3_000, 5) });
    let mut seen = BTreeSet::new();
    let rows = read(&bytes, Claim::validate).rows;
    let repeated = rows.iter().filter(|claim| !seen.insert(claim.claim_id())).count();
    assert_eq!(repeated as u64, written.faults(FaultKind::DuplicateKey));
    assert!(repeated >= 300);
}

#[test]
fn a_file_of_nothing_but_duplicate_keys_begins_with_a_sound_row() {
    let faults =
        FaultShares::new(Share::NONE, &[(FaultKind::DuplicateKey, "100%".parse().unwrap())])
            .unwrap();
    let (_, written) = claims(&ClaimsFile { faults, ..ClaimsFile::new(10, 5) });
    assert_eq!((written.rows, written.faults(FaultKind::DuplicateKey)), (10, 9));
}

#[test]
fn an_empty_file_has_its_header() {
    let (bytes, written) = claims(&ClaimsFile::new(0, 1));
    assert_eq!(written, Written::default());
    assert_eq!(bytes, [RawClaim::COLUMNS.join(",").as_bytes(), b"\n"].concat());
}
