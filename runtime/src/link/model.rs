//! Links under loom: every interleaving of a few threads, capacities at their smallest.
//!
//! ```text
//! [source] -- first link --> [worker] [worker] -- second link --> [sink]
//! ```
//!
//! A lost wake-up shows as a deadlock: loom's threads block for real. Run by
//! `RUSTFLAGS="--cfg gegendruck_model -C debug-assertions" cargo test -p gegendruck --lib --release --target-dir target/model model::`.

use std::pin::pin;

use loom::future::block_on;
use loom::thread;

use super::*;
use crate::{Checkpoint, Item, Lines, Position, SourceBatch, Span};

/// Runs every interleaving with so many switches away from a thread that could have gone on.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn window(records: u64, bytes: u64, request: u64) -> Window {
    let request = Amount { records: request, bytes: bytes.max(1) };
    Window { buffer: Amount { records, bytes }, request }
}

/// Two links, the one behind the other.
fn chain(first: Window, second: Window) -> (Arc<Link<u64>>, Arc<Link<u64>>) {
    let second = Link::new(second, None);
    let first = Link::new(first, Some(second.gauge().limit));
    second.set_upstream(first.clone());
    (first, second)
}

/// The hand-over numbered `serial`: records of `len` bytes, the first of which is the `first` of the run.
fn batch(first: u64, serial: u64, records: u64, from: u64, len: u64) -> Batch<u64> {
    let at =
        |n: u64| Position { input: 0, byte: from + n * len, record: first + n, line: first + n };
    let items =
        (0..records).map(|n| Item { at: at(n), len: len as u32, value: first + n }).collect();
    let span = Span { start: at(0), end: at(records) };
    let checkpoint =
        Checkpoint { at: span.end, fingerprint: 0, lines: Lines::default(), complete: false };
    SourceBatch { span, items, rejects: vec![], block: None, checkpoint }.into_batch(
        first,
        serial,
        Moment::default(),
    )
}

/// Hands out records of the given lengths, as many at a time as there is room for, and closes the link.
fn source(first: &Link<u64>, second: &Link<u64>, lengths: &[u64]) {
    let (mut at, mut byte) = (0, 0);
    while let Some(len) = lengths.get(at) {
        let Some(room) = block_on(first.reserve(Bytes(*len), None)) else { break };
        let most = (room.records.0 as usize).min(lengths.len() - at);
        let fits = |n: &usize| lengths[at..at + n].iter().sum::<u64>() <= room.bytes.0;
        let records = (1..=most).rev().find(fits).expect("there was room for one");
        // In one batch only if they are of one length, so that positions add up.
        let records = lengths[at..at + records].iter().take_while(|other| *other == len).count();
        first.send(batch(at as u64, at as u64, records as u64, byte, *len));
        at += records;
        byte += records as u64 * len;
        let alone = records == 1 && *len > second.gauge().buffer.bytes;
        for link in [first, second] {
            let gauge = link.gauge();
            let in_flight =
                Amount { records: at as u64, bytes: byte }.saturating_sub(gauge.settled);
            assert!(alone || in_flight.fits(gauge.buffer), "{in_flight:?} in flight: {gauge:?}");
        }
    }
    first.close();
}

/// Moves records from the first link to the second until the first is at its end.
fn worker(first: &Link<u64>, second: &Link<u64>) {
    let share = Share::Records(1);
    while let Some(claimed) = block_on(first.claim(share, None)) {
        let mut next = Ok(claimed);
        while let Ok(batch) = next {
            let amount = batch.amount();
            second.send(batch);
            next = first.settle_and_claim(amount, share);
        }
    }
}

/// Settles what comes out of the second link, and says what it was.
fn sink(second: &Link<u64>) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(batch) = block_on(second.claim(Share::Batch, None)) {
        seen.extend(batch.items().map(|item| item.value));
        second.settle(batch.amount());
    }
    seen.sort();
    seen
}

#[test]
fn two_workers_lose_no_record_double_none_and_keep_the_bound() {
    check(2, || {
        let (first, second) = chain(window(2, 100, 1), window(2, 100, 2));
        let active = Arc::new(loom::sync::atomic::AtomicUsize::new(2));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (first, second, active) = (first.clone(), second.clone(), active.clone());
                thread::spawn(move || {
                    worker(&first, &second);
                    if active.fetch_sub(1, loom::sync::atomic::Ordering::SeqCst) == 1 {
                        second.close();
                    }
                })
            })
            .collect();
        source(&first, &second, &[1, 1]);
        assert_eq!(sink(&second), [0, 1]);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let (first, second) = (first.gauge(), second.gauge());
        assert_eq!([first.sent, first.settled, second.sent], [second.settled; 3], "all is settled");
    });
}

#[test]
fn source_is_woken_by_what_is_settled_at_the_far_end() {
    check(1, || {
        let (first, second) = chain(window(2, 100, 2), window(1, 100, 1));
        let (one, two) = (first.clone(), second.clone());
        let stage = thread::spawn(move || {
            worker(&one, &two);
            two.close();
        });
        let (one, two) = (first.clone(), second.clone());
        let reader = thread::spawn(move || source(&one, &two, &[1, 1]));
        assert_eq!(sink(&second), [0, 1]);
        stage.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn record_over_the_byte_limit_comes_through_between_others() {
    // The second link's buffer is the smaller: its raise reaches the first before the first has settled.
    for (first, second) in [((4, 10), (2, 4)), ((2, 4), (4, 10)), ((1, 4), (1, 4))] {
        check(1, move || {
            let (first, second) = chain(window(first.0, first.1, 1), window(second.0, second.1, 1));
            let (one, two) = (first.clone(), second.clone());
            let stage = thread::spawn(move || {
                worker(&one, &two);
                two.close();
            });
            let (one, two) = (first.clone(), second.clone());
            let reader = thread::spawn(move || source(&one, &two, &[1, 20]));
            assert_eq!(sink(&second), [0, 1]);
            stage.join().unwrap();
            reader.join().unwrap();
        });
    }
}

#[test]
fn claim_dropped_at_its_await_passes_its_wake_up_on() {
    check(2, || {
        let (first, _second) = chain(window(4, 100, 1), window(4, 100, 1));
        let impatient = {
            let first = first.clone();
            thread::spawn(move || {
                let polled = {
                    let mut claim = pin!(first.claim(Share::Records(1), None));
                    block_on(std::future::poll_fn(|cx| Poll::Ready(claim.as_mut().poll(cx))))
                };
                matches!(polled, Poll::Ready(Some(_)))
            })
        };
        let patient = {
            let first = first.clone();
            thread::spawn(move || {
                let mut claims = 0;
                while block_on(first.claim(Share::Records(1), None)).is_some() {
                    claims += 1;
                    if claims == 1 {
                        first.close();
                    }
                }
                claims
            })
        };
        first.send(batch(0, 0, 2, 0, 1));
        let taken = usize::from(impatient.join().unwrap()) + patient.join().unwrap();
        assert_eq!(taken, 2);
    });
}

#[test]
fn reserve_dropped_at_its_await_takes_nothing_and_the_next_one_is_woken() {
    check(2, || {
        let (first, second) = chain(window(1, 100, 1), window(1, 100, 1));
        first.send(batch(0, 0, 1, 0, 1));
        let (one, two) = (first.clone(), second.clone());
        let stage = thread::spawn(move || {
            worker(&one, &two);
            two.close();
        });
        let drain = second.clone();
        let end = thread::spawn(move || sink(&drain));
        {
            let mut reserve = pin!(first.reserve(Bytes(0), None));
            let _ = block_on(std::future::poll_fn(|cx| Poll::Ready(reserve.as_mut().poll(cx))));
        }
        let room = block_on(first.reserve(Bytes(0), None)).expect("not frozen");
        assert_eq!(room, Room { records: Records(1), bytes: Bytes(100) });
        first.close();
        stage.join().unwrap();
        assert_eq!(end.join().unwrap(), [0]);
    });
}

#[test]
fn frozen_link_lets_the_source_go_whatever_is_settled_meanwhile() {
    check(2, || {
        let (first, second) = chain(window(1, 100, 1), window(1, 100, 1));
        let (one, two) = (first.clone(), second.clone());
        let reader = thread::spawn(move || source(&one, &two, &[1, 1]));
        let (one, two) = (first.clone(), second.clone());
        let stage = thread::spawn(move || {
            worker(&one, &two);
            two.close();
        });
        first.freeze();
        let seen = sink(&second);
        reader.join().unwrap();
        stage.join().unwrap();
        assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>(), "a prefix, nothing in flight");
        assert!(block_on(first.reserve(Bytes(0), None)).is_none());
        assert_eq!(second.gauge().settled, first.gauge().sent);
    });
}

#[test]
fn close_and_halt_end_every_claim() {
    for halt in [false, true] {
        check(2, move || {
            let (first, _second) = chain(window(4, 100, 1), window(4, 100, 1));
            first.send(batch(0, 0, 2, 0, 1));
            let claimers: Vec<_> = (0..2)
                .map(|_| {
                    let first = first.clone();
                    thread::spawn(move || {
                        let mut claims = 0;
                        while block_on(first.claim(Share::Records(1), None)).is_some() {
                            claims += 1;
                        }
                        claims
                    })
                })
                .collect();
            if halt {
                first.halt();
            } else {
                first.close();
            }
            let claims: usize = claimers.into_iter().map(|claimer| claimer.join().unwrap()).sum();
            assert!(if halt { claims <= 2 } else { claims == 2 }, "{claims}");
        });
    }
}
