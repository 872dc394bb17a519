//! Failures, by what happens next; panics; and what one record became is never separated.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use gegendruck::{
    Answers, CallBatch, Clock, Collect, Committed, End, Event, Failure, Group, Grouping, Item,
    Options, Outcome, Pipeline, Position, Reason, Records, Reject, Retry, Room, RunError, Sink,
    SinkContext, SinkError, Source, SourceError, StreamSource, Tried, Tries, call_batch, call_fn,
};
use tokio::time::{Instant, sleep};

use crate::support::{Feed, Strict, finish, quiet_panics};

/// What the service answers about a record, the how-manieth time it is asked, so long after the start.
type Answer = dyn Fn(u64, u32, Duration) -> Result<u64, Failure> + Send + Sync;

/// A service that answers as the test says, and writes down when it was asked about what.
struct Service {
    answer: Box<Answer>,
    takes: Duration,
    start: Instant,
    asked: Arc<Mutex<Vec<(Duration, u64)>>>,
    times: Mutex<HashMap<u64, u32>>,
}

impl Service {
    fn new(
        answer: impl Fn(u64, u32, Duration) -> Result<u64, Failure> + Send + Sync + 'static,
    ) -> Service {
        Service {
            answer: Box::new(answer),
            takes: Duration::from_millis(1),
            start: Instant::now(),
            asked: Arc::default(),
            times: Mutex::default(),
        }
    }
}

impl CallBatch<u64> for Service {
    type Out = u64;
    async fn call_batch(&self, records: &[Item<u64>]) -> Answers<u64> {
        sleep(self.takes).await;
        let answer = |item: &Item<u64>| {
            self.asked.lock().unwrap().push((self.start.elapsed(), item.value));
            let nth = {
                let mut times = self.times.lock().unwrap();
                let nth = times.entry(item.value).or_default();
                *nth += 1;
                *nth
            };
            (self.answer)(item.value, nth, self.start.elapsed())
        };
        Ok(records.iter().map(answer).collect())
    }
}

struct Ran {
    outcome: Outcome<Strict<u64>>,
    asked: Vec<(Duration, u64)>,
    events: Vec<Event>,
    sink: Strict<u64>,
}

impl Ran {
    fn rejects(&self) -> Vec<(u64, String, u32)> {
        let short = |reject: Reject| {
            (reject.at.record - 1, reject.reason.kind.to_string(), reject.attempts)
        };
        let mut rejects: Vec<_> = self.sink.kept.rejects().into_iter().map(short).collect();
        rejects.sort();
        rejects
    }

    fn times_asked(&self, record: u64) -> usize {
        self.asked.iter().filter(|(_, asked)| *asked == record).count()
    }
}

/// `records` records through one stage that asks `service`.
async fn ask(records: u64, workers: usize, claim: usize, retry: Retry, service: Service) -> Ran {
    let feed = Feed::of(records);
    let (seen, asked, sink) = (feed.seen.clone(), service.asked.clone(), Strict::new());
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let options = Options {
        on_event: Arc::new(move |event| heard.lock().unwrap().push(event)),
        batch: Records(10),
        ..Options::default()
    };
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", call_batch(service).workers(workers).claim(claim).retry(retry))
        .sink("store", sink.clone())
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(options)
        .unwrap();
    let outcome = finish(run, &seen).await;
    let (asked, events) = (asked.lock().unwrap().clone(), events.lock().unwrap().clone());
    Ran { outcome, asked, events, sink }
}

fn held(events: &[Event]) -> (usize, usize) {
    let held = events.iter().filter(|event| matches!(event, Event::Held { .. })).count();
    let resumed = events.iter().filter(|event| matches!(event, Event::Resumed { .. })).count();
    (held, resumed)
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn rejected_record_is_a_dead_letter_and_the_run_goes_on() {
    let service = Service::new(|n, _, _| match n {
        7 => Err(Reason::column("amount", "too_many_decimals").into()),
        n => Ok(n),
    });
    let ran = ask(20, 2, 1, Retry::default(), service).await;
    assert!(matches!(ran.outcome.end, End::Complete));
    assert_eq!(ran.rejects(), [(7, "too_many_decimals".into(), 1)]);
    assert_eq!((ran.outcome.tally.stored, ran.outcome.tally.rejected), (19, 1));
    assert_eq!(ran.asked.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn record_that_fails_in_passing_is_asked_about_again_and_then_given_up() {
    let service = Service::new(|n, nth, _| match n {
        3 if nth < 3 => Err(Failure::transient("503")),
        5 => Err(Failure::transient("503")),
        8 if nth == 1 => Err(Failure::transient("503")),
        8 => Err(Reason::record("bad").into()),
        n => Ok(n),
    });
    let ran = ask(40, 1, 1, Retry::default(), service).await;
    assert!(matches!(ran.outcome.end, End::Complete));
    let rejects = [(5, "gave_up".into(), 3), (8, "bad".into(), 2)];
    assert_eq!(ran.rejects(), rejects, "each with the attempts that counted");
    assert_eq!(ran.times_asked(3), 3);
    assert_eq!(ran.outcome.tally.stored, 38);
}

#[tokio::test(start_paused = true)]
async fn service_that_is_down_makes_no_dead_letters_and_is_asked_by_one_probe_at_a_time() {
    let back = 60 * SECOND;
    let service = Service::new(move |n, _, now| {
        if now > 10 * Duration::from_millis(2) && now < back {
            Err(Failure::transient("connection refused"))
        } else {
            Ok(n)
        }
    });
    let ran = ask(200, 8, 1, Retry::default(), service).await;
    assert!(matches!(ran.outcome.end, End::Complete), "{:?}", ran.outcome.end);
    assert_eq!(ran.outcome.tally.stored, 200, "overload makes no dead letters");
    assert_eq!(held(&ran.events), (1, 1));
    let down: Vec<_> =
        ran.asked.iter().filter(|(at, _)| *at > 30 * Duration::from_millis(1)).collect();
    let probes: Vec<_> = down.iter().map(|(at, _)| *at).filter(|at| *at < back).collect();
    assert!(probes.len() <= 10, "100 ms doubling to 30 s, one call each: {probes:?}");
    assert!(probes.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(100)));
    let score = ran.outcome.report.stage("ask").unwrap();
    let paused = score.times.share(gegendruck::State::Paused);
    assert!(paused > 0.98, "{paused}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_by_a_hold_and_by_a_single_record() {
    let service = Service::new(move |n, nth, _| {
        let after = Some(20 * SECOND);
        match n {
            2 | 3 if nth == 1 => {
                Err(Failure::Transient { message: "429".into(), retry_after: after })
            }
            n => Ok(n),
        }
    });
    let ran = ask(10, 1, 1, Retry::default(), service).await;
    assert_eq!(ran.outcome.tally.stored, 10);
    let second = |record| ran.asked.iter().filter(|(_, n)| *n == record).nth(1).unwrap().0;
    assert!(second(2) >= 20 * SECOND && second(3) >= 20 * SECOND, "{:?}", ran.asked);
    assert!(ran.asked.iter().all(|(at, _)| *at < SECOND || *at >= 20 * SECOND), "silence between");
}

#[tokio::test(start_paused = true)]
async fn service_that_does_not_come_back_ends_the_run_after_the_longest_hold() {
    let service =
        Service::new(|n, _, _| if n < 25 { Ok(n) } else { Err(Failure::transient("down")) });
    let retry = Retry { max_hold: 600 * SECOND, ..Retry::default() };
    let ran = ask(100, 4, 1, retry, service).await;
    let End::Failed(RunError::Fatal { stage, message }) = &ran.outcome.end else {
        panic!("{:?}", ran.outcome.end)
    };
    let words = "the service did not come back within 600 s: down; last asked about record 61 (";
    assert_eq!(&**stage, "ask");
    assert!(message.starts_with(words), "{message}");
    assert_eq!(ran.outcome.tally.rejected, 0);
    assert_eq!(ran.outcome.tally.stored, 20, "whole groups before the gap");
    let wall = ran.outcome.report.wall;
    assert!(wall >= 600 * SECOND && wall < 602 * SECOND, "{wall:?}");
}

#[tokio::test(start_paused = true)]
async fn two_poisoned_neighbours_do_not_pass_for_a_service_that_is_down() {
    for workers in [1, 2, 5] {
        let mut service = Service::new(|n, _, _| match n {
            10 | 11 => Err(Failure::transient("500")),
            n => Ok(n),
        });
        service.takes = Duration::from_millis(10);
        let ran = ask(300, workers, 1, Retry::default(), service).await;
        assert!(matches!(ran.outcome.end, End::Complete), "{workers}: {:?}", ran.outcome.end);
        assert_eq!(ran.outcome.tally.stored, 298, "{workers} workers");
        assert!(
            ran.rejects().iter().all(|(_, reason, attempts)| reason == "gave_up" && *attempts == 3)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn poisoned_records_side_by_side_are_told_from_an_outage_while_others_can_be_asked_about() {
    for (workers, ordered) in [(1, false), (4, false), (4, true), (8, false)] {
        for (buffer, poisoned) in [(20, 2), (60, 3), (200, 6)] {
            let mut service = Service::new(move |n, _, _| match n {
                n if (100..100 + poisoned).contains(&n) => Err(Failure::transient("500")),
                n => Ok(n),
            });
            service.takes = Duration::from_millis(2);
            let feed = Feed::of(400);
            let seen = feed.seen.clone();
            let stage = call_batch(service).workers(workers).buffer(buffer).request(buffer / 4);
            let stage = if ordered { stage.ordered(16) } else { stage };
            let run = Pipeline::new("p")
                .source(feed)
                .stage("ask", stage)
                .sink("store", Strict::new())
                .start(Options::default())
                .unwrap();
            let outcome = finish(run, &seen).await;
            let case = format!("{workers} workers, ordered {ordered}, buffer {buffer}");
            assert!(matches!(outcome.end, End::Complete), "{case}: {:?}", outcome.end);
            assert_eq!(outcome.tally.rejected, poisoned, "{case}");
            assert!(outcome.report.wall < Duration::from_secs(60), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn second_record_in_a_row_is_not_given_up_before_another_is_answered_well() {
    // 8 is given up when nothing but 9 is left: whether 9 is bad too or the service is down cannot be told.
    let service = Service::new(|n, nth, _| match n {
        8 => Err(Failure::transient("500")),
        9 if nth < 4 => Err(Failure::transient("500")),
        n => Ok(n),
    });
    let retry = Retry { attempts: 1, ..Retry::default() };
    let ran = ask(10, 1, 1, retry, service).await;
    assert!(matches!(ran.outcome.end, End::Complete), "{:?}", ran.outcome.end);
    assert_eq!(ran.rejects(), [(8, "gave_up".into(), 1)]);
    assert_eq!(ran.outcome.tally.stored, 9);
    assert_eq!(held(&ran.events), (1, 1));
}

/// The records of a minute, one every second, while the service is down from the tenth to the fiftieth.
#[tokio::test(start_paused = true)]
async fn outage_with_few_records_on_their_way_makes_no_dead_letters_but_the_first() {
    let begun = Clock::start();
    let service = call_fn(move |record: &Item<u64>| {
        let (value, now) = (record.value, begun.elapsed().as_secs());
        async move {
            let down = (10..50).contains(&now);
            if down { Err(Failure::transient("503")) } else { Ok(value) }
        }
        .boxed()
    });
    let records = futures::stream::unfold(0_u64, |n| async move {
        sleep(Duration::from_secs(1)).await;
        (n < 60).then_some((n, n + 1))
    });
    let kept = Strict::new();
    let outcome = Pipeline::new("p")
        .source(StreamSource::new(records.boxed()))
        .stage("ask", service.workers(4))
        .sink("store", kept)
        .run(Options::default())
        .await
        .unwrap();
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!((outcome.tally.stored, outcome.tally.rejected), (59, 1));
}

/// Every third record fails in passing once, and then the service goes down altogether for a minute.
#[tokio::test(start_paused = true)]
async fn outage_that_announces_itself_makes_no_dead_letters_but_one() {
    for (workers, ordered) in [(1, false), (8, false), (8, true)] {
        let mut service = Service::new(|n, nth, now| {
            let down = (Duration::from_secs(1)..Duration::from_secs(61)).contains(&now);
            let fails = down || (n.is_multiple_of(3) && nth == 1);
            if fails { Err(Failure::transient("503")) } else { Ok(n) }
        });
        service.takes = Duration::from_millis(5);
        let feed = Feed::of(3_000);
        let seen = feed.seen.clone();
        let stage = call_batch(service).workers(workers);
        let run = Pipeline::new("p")
            .source(feed)
            .stage("ask", if ordered { stage.ordered(16) } else { stage })
            .sink("store", Strict::new())
            .start(Options::default())
            .unwrap();
        let outcome = finish(run, &seen).await;
        let case = format!("{workers} workers, ordered {ordered}");
        assert!(matches!(outcome.end, End::Complete), "{case}: {:?}", outcome.end);
        assert!(outcome.tally.rejected <= 1, "{case}: {:?}", outcome.tally);
    }
}

/// A stop while a service that is down is waited for: records that were to be asked about stand in the way of later ones.
#[tokio::test(start_paused = true)]
async fn stop_during_a_hold_ends_an_ordered_stage_too() {
    let nth = Arc::new(Mutex::new(HashMap::<u64, u32>::new()));
    let millis = Duration::from_millis;
    let ask = call_fn(move |record: &Item<u64>| {
        let value = record.value;
        let mut all = nth.lock().unwrap();
        let nth = all.entry(value).or_default();
        *nth += 1;
        let nth = *nth;
        async move {
            match (value, nth) {
                (0, 1) => {
                    sleep(millis(1)).await;
                    Err(Failure::transient("503"))
                }
                (1, 1) => {
                    sleep(millis(2)).await;
                    let retry_after = Some(millis(100));
                    Err(Failure::Transient { message: "503".into(), retry_after })
                }
                _ => {
                    sleep(millis(if value == 2 { 120 } else { 1 })).await;
                    Ok(value)
                }
            }
        }
        .boxed()
    });
    let feed = Feed::of(1_000);
    let seen = feed.seen.clone();
    let retry = Retry { backoff: millis(20), ..Retry::default() };
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", ask.workers(3).ordered(3).retry(retry))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let control = run.control();
    tokio::spawn(async move {
        sleep(millis(50)).await;
        control.stop();
    });
    let outcome = tokio::time::timeout(Duration::from_secs(60), finish(run, &seen)).await;
    let end = outcome.expect("it ends by itself").end;
    assert!(matches!(end, End::Stopped | End::Complete), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn fatal_failure_commits_what_is_done_and_nothing_after_the_gap() {
    let service =
        Service::new(|n, _, _| if n == 47 { Err(Failure::Fatal("disk".into())) } else { Ok(n) });
    let ran = ask(200, 4, 1, Retry::default(), service).await;
    let End::Failed(RunError::Fatal { stage, message }) = &ran.outcome.end else {
        panic!("{:?}", ran.outcome.end)
    };
    assert_eq!((&**stage, &**message), ("ask", "disk"));
    let values = ran.sink.kept.values();
    assert_eq!(values, (0..40).collect::<Vec<_>>());
    assert!(!ran.sink.kept.completed());
}

#[tokio::test(start_paused = true)]
async fn call_that_answers_the_wrong_number_ends_the_run() {
    struct Short;
    impl CallBatch<u64> for Short {
        type Out = u64;
        async fn call_batch(&self, records: &[Item<u64>]) -> Answers<u64> {
            Ok(records.iter().skip(1).map(|item| Ok(item.value)).collect())
        }
    }
    let feed = Feed::of(10);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", call_batch(Short).claim(10))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    let End::Failed(error) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(error.to_string(), "ask: the call was given 10 records and answered 9");
    assert_eq!(outcome.tally.read, 0);
}

#[tokio::test(start_paused = true)]
async fn panicking_call_costs_the_culprit_and_nobody_else() {
    quiet_panics();
    for claim in [1, 4, 10] {
        let service = Service::new(|n, _, _| {
            if n == 13 {
                std::panic::panic_any("as told");
            }
            Ok(n)
        });
        let ran = ask(40, 2, claim, Retry::default(), service).await;
        assert!(matches!(ran.outcome.end, End::Complete), "claim {claim}: {:?}", ran.outcome.end);
        assert_eq!(ran.rejects(), [(13, "panicked".into(), 3)], "claim {claim}");
        assert_eq!(ran.outcome.tally.stored, 39);
        let panics =
            ran.events.iter().filter(|event| matches!(event, Event::Panicked { .. })).count();
        assert_eq!(
            panics,
            if claim == 1 { 3 } else { 4 },
            "once with its neighbours, thrice alone"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn panic_before_the_future_is_made_is_caught_too() {
    struct Eager;
    impl CallBatch<u64> for Eager {
        type Out = u64;
        fn call_batch(&self, records: &[Item<u64>]) -> impl Future<Output = Answers<u64>> + Send {
            if records[0].value == 3 {
                std::panic::panic_any("as told");
            }
            let answers = records.iter().map(|item| Ok(item.value)).collect();
            async move { Ok(answers) }
        }
    }
    quiet_panics();
    let feed = Feed::of(10);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", call_batch(Eager))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!((outcome.tally.stored, outcome.tally.rejected), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn panicking_map_and_try_map_cost_the_culprits_and_name_them() {
    quiet_panics();
    let feed = Feed::of(100);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let options = Options {
        on_event: Arc::new(move |event| heard.lock().unwrap().push(event)),
        ..Options::default()
    };
    let panic_on = |n: u64, culprits: &[u64]| {
        if culprits.contains(&n) {
            std::panic::panic_any("as told");
        }
        n
    };
    let run = Pipeline::new("p")
        .source(feed)
        .map("map", move |n| panic_on(n, &[0, 50, 51]))
        .try_map("try", move |n| Ok(panic_on(*n, &[99])))
        .sink("store", sink.clone())
        .start(options)
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    let rejects: Vec<_> = sink
        .kept
        .rejects()
        .into_iter()
        .map(|reject| {
            (reject.stage.to_string(), reject.at.record - 1, reject.reason.kind.to_string())
        })
        .collect();
    let expected = [("map", 0), ("map", 50), ("map", 51), ("try", 99)]
        .map(|(stage, record)| (stage.to_string(), record, "panicked".to_string()));
    assert_eq!(rejects, expected);
    let named: Vec<_> = events
        .lock()
        .unwrap()
        .iter()
        .map(|event| match event {
            Event::Panicked { at, .. } => at.record - 1,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(named, [0, 50, 51, 99]);
}

#[tokio::test(start_paused = true)]
async fn what_one_record_became_is_never_separated() {
    // One value of three is refused, dropped, refused by a call: the record as a whole ends once.
    let feed = Feed::of(30);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let service = Service::new(|n, nth, _| match n % 30 {
        13 if nth == 1 => Err(Failure::transient("again")),
        22 => Err(Reason::record("by_the_call").into()),
        _ => Ok(n),
    });
    let asked = service.asked.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .flat_map("three", 3, |n| (0..3).map(move |k| 30 * k + n))
        .try_map("try", |n| if *n == 35 { Err(Reason::record("by_the_map")) } else { Ok(*n) })
        .filter("drop", "dropped", |n| *n != 37 && n % 30 != 8)
        .stage("ask", call_batch(service).claim(4).workers(3))
        .sink("store", sink.clone())
        .grouping(Grouping { records: Records(1), ..Grouping::default() })
        .start(Options { batch: Records(3), ..Options::default() })
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    let expected: Vec<u64> = (0..30)
        .filter(|n| ![5, 8, 22].contains(n))
        .flat_map(|n| (0..3).map(move |k| 30 * k + n))
        .filter(|n| *n != 37)
        .collect();
    assert_eq!(sink.kept.values(), expected);
    let tally = outcome.tally;
    assert_eq!((tally.stored, tally.rejected, tally.filtered), (27, 2, 1));
    let times = |n| asked.lock().unwrap().iter().filter(|(_, asked)| *asked == n).count();
    assert_eq!([13, 43, 73].map(times), [2, 2, 2], "asked about again together");
}

#[tokio::test(start_paused = true)]
async fn record_that_becomes_more_values_than_declared_is_refused() {
    let feed = Feed::of(4);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let run = Pipeline::new("p")
        .source(feed)
        .flat_map("many", 2, |n| 0..n)
        .sink("store", sink.clone())
        .start(Options::default())
        .unwrap();
    let tally = finish(run, &seen).await.tally;
    assert_eq!((tally.stored, tally.filtered, tally.rejected), (2, 1, 1));
    assert_eq!(sink.kept.values(), [0, 0, 1]);
}

struct PanicsAt(Feed, u64);

impl Source for PanicsAt {
    type Item = u64;
    async fn read(&mut self, room: Room) -> Result<gegendruck::Read<u64>, SourceError> {
        if self.0.seen.handed_out().records >= self.1 {
            std::panic::panic_any("as told");
        }
        self.0.read(room).await
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_source_fails_the_run_after_what_it_gave_is_committed() {
    quiet_panics();
    let feed = Feed::of(1_000);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(PanicsAt(feed, 500))
        .map("same", |n| n)
        .sink("store", Strict::new())
        .start(Options { batch: Records(50), ..Options::default() })
        .unwrap();
    let outcome = finish(run, &seen).await;
    let End::Failed(RunError::Panic(words)) = &outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(words, "the source panicked in read");
    assert_eq!(outcome.tally.stored, 500);
}

#[tokio::test(start_paused = true)]
async fn source_that_gives_more_than_was_asked_for_fails_the_run() {
    struct Greedy(Feed);
    impl Source for Greedy {
        type Item = u64;
        async fn read(&mut self, room: Room) -> Result<gegendruck::Read<u64>, SourceError> {
            self.0.read(Room { records: Records(room.records.0 + 1), ..room }).await
        }
    }
    let feed = Feed::of(1_000);
    let run = Pipeline::new("p").source(Greedy(feed)).sink("store", Strict::new());
    let outcome = run.run(Options::default()).await.unwrap();
    let End::Failed(RunError::Source(error)) = outcome.end else { panic!("{:?}", outcome.end) };
    assert!(error.to_string().contains("fault of the source"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn failing_source_fails_the_run_after_what_it_gave_is_committed() {
    struct Fails(Feed);
    impl Source for Fails {
        type Item = u64;
        async fn read(&mut self, room: Room) -> Result<gegendruck::Read<u64>, SourceError> {
            if self.0.seen.handed_out().records >= 30 {
                return Err(SourceError::new("the file is gone"));
            }
            self.0.read(room).await
        }
    }
    let feed = Feed::of(100);
    let run = Pipeline::new("p").source(Fails(feed)).sink("store", Strict::new());
    let outcome = run.run(Options { batch: Records(10), ..Options::default() }).await.unwrap();
    let End::Failed(error) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(error.to_string(), "the file is gone");
    assert_eq!(outcome.tally.stored, 30);
}

/// A sink that does something else at its nth commit.
struct At {
    nth: u64,
    then: fn() -> Result<(), SinkError>,
    commits: AtomicU64,
    kept: Collect<u64>,
}

impl Sink<u64> for At {
    async fn commit(
        &mut self,
        group: Group<u64>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        if self.commits.fetch_add(1, Ordering::SeqCst) == self.nth {
            (self.then)()?;
        }
        self.kept.commit(group, context).await
    }
}

async fn with_sink(nth: u64, then: fn() -> Result<(), SinkError>) -> (Outcome<At>, Vec<u64>) {
    let feed = Feed::of(500);
    let (seen, kept) = (feed.seen.clone(), Collect::new());
    let run = Pipeline::new("p")
        .source(feed)
        .map("same", |n| n)
        .sink("store", At { nth, then, commits: AtomicU64::new(0), kept: kept.clone() })
        .grouping(Grouping { records: Records(50), ..Grouping::default() })
        .start(Options { batch: Records(50), ..Options::default() })
        .unwrap();
    (finish(run, &seen).await, kept.values())
}

#[tokio::test(start_paused = true)]
async fn panicking_sink_fails_the_run_and_does_not_hang_it() {
    quiet_panics();
    let (outcome, kept) = with_sink(3, || std::panic::panic_any("as told")).await;
    let End::Failed(RunError::Panic(words)) = &outcome.end else { panic!("{:?}", outcome.end) };
    let place = "record 151 (line 151, byte 1500)";
    assert_eq!(*words, format!("the sink panicked committing 50 records from {place} on"));
    assert_eq!((outcome.tally.stored, kept.len()), (150, 150));
}

#[tokio::test(start_paused = true)]
async fn failing_sink_ends_the_run_with_its_words() {
    let (outcome, kept) = with_sink(2, || Err(SinkError::Target("disk full".into()))).await;
    let End::Failed(error) = &outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(error.to_string(), "disk full");
    assert_eq!((outcome.tally.stored, kept.len()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn poisoned_records_that_nothing_comes_after_are_named_when_the_stage_gives_up() {
    let service =
        Service::new(|n, _, _| if n < 8 { Ok(n) } else { Err(Failure::transient("down")) });
    let ran = ask(10, 1, 1, Retry { max_hold: 60 * SECOND, ..Retry::default() }, service).await;
    let End::Failed(RunError::Fatal { message, .. }) = &ran.outcome.end else {
        panic!("{:?}", ran.outcome.end)
    };
    assert!(message.contains("last asked about record "), "{message}");
    assert_eq!(ran.outcome.tally.rejected, 0, "it may as well be an outage");
}

/// Fails record 25 as often as it is asked about it, in passing; the wait after its second attempt is long.
fn fails_25() -> Service {
    Service::new(|n, _, _| if n == 25 { Err(Failure::transient("503")) } else { Ok(n) })
}

const LONG: Retry = Retry {
    attempts: 3,
    backoff: Duration::from_secs(600),
    longest: Duration::from_secs(1_200),
    max_hold: Duration::from_secs(7_200),
};

/// Runs 60 records until 25 has failed twice and is parked again, and everything before its hand-over is committed; then the
/// run is cut. Gives what the last commit knew.
async fn cut_after_two_attempts(claim: usize) -> Vec<Tried> {
    // The first group takes 650 s: the second attempt lies between it and the second one.
    let (feed, sink) = (Feed::of(60), Strict::taking(65 * SECOND));
    let (seen, tried) = (feed.seen.clone(), sink.tried.clone());
    let service = fails_25();
    let asked = service.asked.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", call_batch(service).claim(claim).retry(LONG))
        .sink("store", sink)
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options { batch: Records(10), ..Options::default() })
        .unwrap();
    let control = run.control();
    tokio::spawn(async move {
        while control.tally().stored < 20 {
            sleep(SECOND).await;
        }
        control.abort();
    });
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Stopped), "{:?}", outcome.end);
    let alone = asked.lock().unwrap().iter().filter(|(_, n)| *n == 25).count();
    assert_eq!(alone, 2);
    let tried = tried.lock().unwrap();
    tried.last().expect("there was a commit").clone()
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_on_after_a_crash() {
    for claim in [1, 4] {
        let known = cut_after_two_attempts(claim).await;
        let [tried] = &known[..] else { panic!("{known:?}") };
        assert_eq!(
            (&*tried.stage, tried.at.record),
            ("ask", 26),
            "the record numbered 25 is the 26th"
        );
        assert_eq!(tried.tries.attempts, 2);

        let (feed, sink, service) = (Feed::of(60), Strict::new(), fails_25());
        let (seen, asked) = (feed.seen.clone(), service.asked.clone());
        let run = Pipeline::new("p")
            .source(feed)
            .stage("ask", call_batch(service).claim(claim).retry(LONG))
            .sink("store", sink.clone())
            .start(Options { tried: known.clone(), ..Options::default() })
            .unwrap();
        let outcome = finish(run, &seen).await;
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
        let times = asked.lock().unwrap().iter().filter(|(_, n)| *n == 25).count();
        assert_eq!(times, 1, "asked about alone from the first call on");
        let rejects = sink.kept.rejects();
        let [reject] = &rejects[..] else { panic!("{rejects:?}") };
        assert_eq!((reject.at.record, reject.attempts), (26, 3));
        assert_eq!(reject.first, tried.tries.first, "the first attempt is that of the first run");
        assert_eq!(outcome.tally.stored, 59);
        let last = sink.tried.lock().unwrap().last().cloned();
        assert_eq!(last, Some(vec![]), "nothing is left to know");
    }
}

#[tokio::test(start_paused = true)]
async fn what_earlier_attempts_tried_is_kept_until_it_is_committed() {
    let tries = Tries {
        attempts: 2,
        first: std::time::SystemTime::UNIX_EPOCH,
        last: std::time::SystemTime::UNIX_EPOCH,
    };
    let at = |record| Position { record, ..Position::default() };
    let known = |records: &[u64]| -> Vec<Tried> {
        records.iter().map(|n| Tried { stage: "ask".into(), at: at(*n), tries }).collect()
    };
    let (feed, sink) = (Feed::of(40), Strict::new());
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", call_batch(Service::new(|n, _, _| Ok(n))).claim(7).workers(2).ordered(2))
        .sink("store", sink.clone())
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options { tried: known(&[5, 6, 18, 40]), batch: Records(10), ..Options::default() })
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert_eq!((outcome.tally.stored, outcome.tally.rejected), (40, 0));
    let kept = sink.tried.lock().unwrap().clone();
    assert_eq!(kept, [known(&[18, 40]), known(&[40]), known(&[40]), vec![]]);
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_tokens_of_a_rate_but_not_for_long() {
    // 2,000 are in flight when it is stopped after ten seconds: at 1,000 a second they settle, at one a second ten of them do.
    for (rate, left, least) in [(1_000.0, false, 10_000), (1.0, true, 19)] {
        let (feed, service) = (Feed::of(100_000), Service::new(|n, _, _| Ok(n)));
        let seen = feed.seen.clone();
        let run = Pipeline::new("p")
            .source(feed)
            .stage("ask", call_batch(service).workers(4).rate(rate))
            .sink("store", Strict::new())
            .start(Options { batch: Records(1), ..Options::default() })
            .unwrap();
        let control = run.control();
        tokio::spawn(async move {
            sleep(10 * SECOND).await;
            control.stop();
        });
        let outcome = finish(run, &seen).await;
        assert!(matches!(outcome.end, End::Stopped), "{:?}", outcome.end);
        let (wall, stored) = (outcome.report.wall, outcome.tally.stored);
        assert_eq!(stored < seen.handed_out().records, left, "{stored}");
        assert!(wall > 11 * SECOND && wall < 21 * SECOND, "{wall:?}");
        assert!(stored >= least, "what was answered is committed: {stored}");
    }
}

/// Waits for a target that does not come back.
struct Away;

impl Sink<u64> for Away {
    async fn commit(
        &mut self,
        _: Group<u64>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        context.paused(context.stopping()).await;
        Err(SinkError::Stopped)
    }
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_run_whose_sink_waits_for_its_target() {
    let feed = Feed::of(10);
    let seen = feed.seen.clone();
    let run =
        Pipeline::new("p").source(feed).sink("store", Away).start(Options::default()).unwrap();
    let control = run.control();
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        control.stop();
    });
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Stopped), "{:?}", outcome.end);
    assert_eq!(outcome.report.wall, Duration::from_secs(5));
    assert_eq!(outcome.tally.read, 0);
}
