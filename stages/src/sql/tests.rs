//! Imports of a few lines into real databases: through every batch size, every conflict mode, and every place to fail at.

mod kit;

use std::time::{Duration, SystemTime};

use gegendruck::{Position, Sink, SinkError, Tried, Tries};
use gegendruck_checkpoints::{Accept, Decision, Ledger};
use proptest::prelude::*;

use super::{Conflict, MaxErrors, SqlError, TableState, check_table};
use kit::{ENTRIES, Entry, Import, World, attempt, lines};

pub(super) use kit::Faults;

/// Keys twice in one group, over groups, and a third time; a rejected and a filtered record between them.
const INPUT: &str = "a,1\nb,2\na,3\n!bad\nc,4\n#left out\nb,5\na,6\nd,7\n";

#[track_caller]
fn check(name: &str, conflict: Conflict, input: &str, expected: &str) {
    for batch in [1, 2, 3, 7, 5_000] {
        kit::run(async {
            let world = World::new(input);
            let outcome = world.import(Import { batch, conflict, ..Import::default() }).await;
            assert_eq!(outcome, Ok(()), "{name}, batch {batch}");
            assert_eq!(world.dump().await, expected, "{name}, batch {batch}");
        });
    }
}

#[test]
fn the_first_of_equal_keys_is_stored_and_the_others_are_rejects_with_their_source_bytes() {
    let expected = "\
a=1 b=2 c=4 d=7
3 key_exists `a,3`
4 bad `!bad`
7 key_exists `b,5`
8 key_exists `a,6`
read 9 = stored 4 (updated 0) + rejected 4 + filtered 1 + duplicate 0; complete, exit 1";
    check("error", Conflict::Error, INPUT, expected);
}

#[test]
fn the_first_of_equal_keys_is_stored_and_the_others_are_duplicates() {
    let expected = "\
a=1 b=2 c=4 d=7
4 bad `!bad`
read 9 = stored 4 (updated 0) + rejected 1 + filtered 1 + duplicate 3; complete, exit 1";
    check("skip", Conflict::Skip, INPUT, expected);
}

#[test]
fn the_last_of_equal_keys_is_what_the_table_has() {
    let expected = "\
a=6 b=5 c=4 d=7
4 bad `!bad`
read 9 = stored 7 (updated 3) + rejected 1 + filtered 1 + duplicate 0; complete, exit 1";
    check("update", Conflict::Update, INPUT, expected);
}

#[test]
fn rows_of_one_record_are_stored_as_a_whole_or_not_at_all() {
    let input = "a|b,1\nc|a|d,2\ne,3\nc|f,4\ng|g,5\n";
    let expected = "\
a=1 b=1 c=4 e=3 f=4
2 key_exists `c|a|d,2`
5 key_exists `g|g,5`
read 5 = stored 3 (updated 0) + rejected 2 + filtered 0 + duplicate 0; complete, exit 1";
    check("error", Conflict::Error, input, expected);
    let expected = "\
a=1 b=1 c=2 d=2 e=3 f=4 g=5

read 5 = stored 5 (updated 0) + rejected 0 + filtered 0 + duplicate 0; complete, exit 0";
    check("skip", Conflict::Skip, input, expected);
    let expected = "\
a=2 b=1 c=4 d=2 e=3 f=4 g=5

read 5 = stored 5 (updated 3) + rejected 0 + filtered 0 + duplicate 0; complete, exit 0";
    check("update", Conflict::Update, input, expected);
}

#[test]
fn a_row_that_breaks_another_rule_of_the_table_is_a_reject_and_harms_no_neighbour() {
    let ddl = "CREATE TABLE entries (key TEXT PRIMARY KEY ON CONFLICT REPLACE, value INTEGER UNIQUE CHECK (value < 100)) STRICT";
    for conflict in [Conflict::Error, Conflict::Skip, Conflict::Update] {
        for batch in [1, 7, 5_000] {
            kit::run(async {
                let world = World::new("a,1\nb,200\nc,1\nd,4\ne,5\n");
                world.execute(ddl).await;
                let outcome = world.import(Import { batch, conflict, ..Import::default() }).await;
                assert_eq!(outcome, Ok(()));
                let expected = "\
a=1 d=4 e=5
2 constraint `b,200`
3 constraint `c,1`
read 5 = stored 3 (updated 0) + rejected 2 + filtered 0 + duplicate 0; complete, exit 1";
                assert_eq!(world.dump().await, expected, "{conflict:?}, batch {batch}");
            });
        }
    }
}

#[test]
fn rows_are_replaced_in_the_order_of_the_source() {
    for batch in [1, 2, 5_000] {
        kit::run(async {
            let world = World::new("a,1\nb,9\na,2\nc,2\nb,1\n");
            world
                .execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER UNIQUE) STRICT")
                .await;
            let update = Import { batch, conflict: Conflict::Update, ..Import::default() };
            world.import(update).await.unwrap();
            let expected = "\
a=2 b=1
4 constraint `c,2`
read 5 = stored 4 (updated 2) + rejected 1 + filtered 0 + duplicate 0; complete, exit 1";
            assert_eq!(world.dump().await, expected, "batch {batch}");
        });
    }
}

#[test]
fn a_key_that_is_equal_to_another_only_in_a_further_index_is_no_key_that_exists() {
    for ddl in [
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT UNIQUE, value INTEGER CHECK (value < 100));
         CREATE UNIQUE INDEX other ON entries (key COLLATE NOCASE)",
        "CREATE TABLE entries (key TEXT COLLATE NOCASE UNIQUE, value INTEGER CHECK (value < 100));
         CREATE UNIQUE INDEX other ON entries (key COLLATE BINARY)",
    ] {
        for (conflict, x, counts) in [
            (Conflict::Error, "x=2", "stored 3 (updated 0) + rejected 3 + filtered 0 + duplicate 0"),
            (Conflict::Skip, "x=2", "stored 3 (updated 0) + rejected 2 + filtered 0 + duplicate 1"),
            (Conflict::Update, "x=9", "stored 4 (updated 1) + rejected 2 + filtered 0 + duplicate 0"),
        ] {
            for batch in [1, 5_000] {
                kit::run(async {
                    let world = World::new("abc,1\nx,2\nz,200\nx,9\nABC,3\ny,4\n");
                    world.execute(ddl).await;
                    let max_errors = MaxErrors::Count(10);
                    let import = Import { batch, conflict, max_errors, ..Import::default() };
                    world.import(import).await.unwrap();
                    let dump = world.dump().await;
                    let rows = format!("abc=1 {x} y=4\n");
                    assert!(dump.starts_with(&rows), "{conflict:?}, batch {batch}: {dump}");
                    assert!(dump.contains("\n5 constraint `ABC,3`\n"), "{conflict:?}: {dump}");
                    assert!(dump.contains(counts), "{conflict:?}, batch {batch}: {dump}");
                });
            }
        }
    }
}

#[test]
fn rows_are_not_counted_by_numbers_that_do_not_grow() {
    for ddl in [
        "CREATE TABLE entries (rowid TEXT, key TEXT PRIMARY KEY, value INTEGER)",
        "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER);
         INSERT INTO entries (rowid, key, value) VALUES (9223372036854775807, 'last', 0)",
    ] {
        kit::run(async {
            let world = World::new("a,1\nb,2\n");
            world.execute(ddl).await;
            world.import(Import::default()).await.unwrap();
            assert!(world.rows().await.contains("a=1 b=2"), "{ddl}");
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_batch_size_changes_what_becomes_of_a_row(
        rows in proptest::collection::vec((0..80_u8, 0..250_u8), 1..150),
    ) {
        let input: String = rows.iter().map(|(key, value)| format!("k{key},{value}\n")).collect();
        let ddl = "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER UNIQUE CHECK (value < 248)) STRICT";
        for conflict in [Conflict::Error, Conflict::Skip, Conflict::Update] {
            let dump = |batch| {
                kit::run(async {
                    let world = World::new(&input);
                    world.execute(ddl).await;
                    let max_errors = MaxErrors::Count(150);
                    let import = Import { batch, conflict, max_errors, ..Import::default() };
                    world.import(import).await.unwrap();
                    world.dump().await
                })
            };
            let one_by_one = dump(1);
            for batch in [3, 40, 5_000] {
                prop_assert_eq!(&dump(batch), &one_by_one, "{:?}, batch {}", conflict, batch);
            }
        }
    }
}

#[test]
fn what_the_table_says_about_conflicts_does_not_replace_rows() {
    let ddl =
        "CREATE TABLE entries (key TEXT PRIMARY KEY ON CONFLICT REPLACE, value INTEGER) STRICT";
    kit::run(async {
        let world = World::new("a,1\na,2\n");
        world.execute(ddl).await;
        world.import(Import::default()).await.unwrap();
        assert!(world.dump().await.starts_with("a=1\n2 key_exists `a,2`\n"));
    });
}

#[test]
fn what_a_trigger_says_about_conflicts_of_its_own_holds() {
    let ddl = "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER) STRICT;
         CREATE TABLE kinds (value INTEGER PRIMARY KEY);
         CREATE TRIGGER kind AFTER INSERT ON entries BEGIN INSERT OR IGNORE INTO kinds VALUES (new.value); END";
    for batch in [1, 5_000] {
        kit::run(async {
            let world = World::new("a,1\nb,1\nc,2\n");
            world.execute(ddl).await;
            world.import(Import { batch, ..Import::default() }).await.unwrap();
            assert_eq!(world.rows().await, "a=1 b=1 c=2", "batch {batch}");
        });
    }
}

#[test]
fn a_trigger_that_drops_rows_stops_the_run_and_nothing_of_the_group_stays() {
    kit::run(async {
        let world = World::new("a,1\na,2\n");
        world.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER) STRICT").await;
        world
            .execute("CREATE TRIGGER t BEFORE UPDATE ON entries BEGIN SELECT RAISE(IGNORE); END")
            .await;
        let update = Import { conflict: Conflict::Update, ..Import::default() };
        let error = world.import(update).await.unwrap_err();
        assert!(error.contains("took 0 of 1 rows; take away the trigger"), "{error}");
        for action in ["RAISE(IGNORE)", "RAISE(ROLLBACK, 'no')", "RAISE(ABORT, 'no')"] {
            let world = World::new("a,1\nb,2\nc,3\n");
            world
                .execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER) STRICT")
                .await;
            let trigger = format!(
                "CREATE TRIGGER t BEFORE INSERT ON entries WHEN new.key = 'b' BEGIN SELECT {action}; END"
            );
            world.execute(&trigger).await;
            let error = world.import(Import::default()).await.unwrap_err();
            assert!(error.contains("trigger"), "{error}");
            assert_eq!(world.rows().await, "", "{action}");
        }
    });
}

#[test]
fn a_row_that_a_trigger_drops_does_not_pass_for_one_whose_key_exists() {
    for conflict in [Conflict::Error, Conflict::Skip] {
        for batch in [1, 2, 5_000] {
            kit::run(async {
                let world = World::new("a,1\na,2\nb,3\nc|d,4\n");
                world
                    .execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER) STRICT")
                    .await;
                let trigger = "CREATE TRIGGER t BEFORE INSERT ON entries WHEN new.key = 'b' BEGIN SELECT RAISE(IGNORE); END";
                world.execute(trigger).await;
                let error = world
                    .import(Import { batch, conflict, ..Import::default() })
                    .await
                    .unwrap_err();
                assert!(error.contains("took 0 of 1 rows"), "{conflict:?}, batch {batch}: {error}");
            });
        }
    }
}

#[test]
fn rows_that_are_missing_in_the_table_are_missed_by_every_attempt() {
    kit::run(async {
        let world = World::new("a,1\nb,2\nc,3\nd,4\n");
        let first = Import { batch: 2, stop_after: Some(1), ..Import::default() };
        world.import(first).await.unwrap_err();
        world.execute("DELETE FROM entries WHERE key = 'b'").await;
        for _ in 0..2 {
            let error = world.import(Import::default()).await.unwrap_err();
            assert!(error.contains("table entries has 3 new rows, expected 4"), "{error}");
        }
        world.execute("INSERT INTO entries VALUES ('b', 2)").await;
        world.import(Import::default()).await.unwrap();
    });
}

#[test]
fn rows_that_another_run_adds_between_two_attempts_are_its_own() {
    kit::run(async {
        let mut world = World::new("a,1\nb,2\nc,3\nd,4\n");
        let first = Import { batch: 2, stop_after: Some(1), ..Import::default() };
        world.import(first).await.unwrap_err();
        let input = world.input.with_file_name("other.csv");
        std::fs::write(&input, "e,5\na,6\n").unwrap();
        let input = std::mem::replace(&mut world.input, input);
        world.import(Import::default()).await.unwrap();
        world.input = input;
        world.import(Import::default()).await.unwrap();
        assert_eq!(world.rows().await, "a=1 b=2 c=3 d=4 e=5");
    });
}

#[test]
fn a_run_that_fails_at_any_step_and_is_gone_on_with_ends_like_a_clean_one() {
    for (conflict, once) in [(Conflict::Error, true), (Conflict::Update, false)] {
        kit::run(async {
            let input = format!("{INPUT}{}", lines(40));
            let clean = World::new(&input);
            let import = Import {
                batch: 9,
                conflict,
                finish: Some("CREATE TABLE done AS SELECT count(*) n FROM entries"),
                ..Import::default()
            };
            clean.import(import.clone()).await.unwrap();
            let expected = clean.dump().await;
            let (mut step, mut failures) = (1, 0);
            loop {
                let world = World::new(&input);
                let faults = Faults::after(step, once);
                let first = world.import(Import { faults: faults.clone(), ..import.clone() }).await;
                if first.is_err() {
                    failures += 1;
                    world.import(Import { batch: 4, ..import.clone() }).await.unwrap();
                }
                assert_eq!(world.dump().await, expected, "step {step}");
                if !faults.fired() {
                    break;
                }
                step += 53;
            }
            assert!(failures > 30, "only {failures} steps failed");
        });
    }
}

#[test]
fn a_commit_that_is_dropped_at_any_poll_is_there_as_a_whole_or_not_at_all() {
    kit::run(async {
        let input = lines(300);
        let clean = World::new(&input);
        clean.import(Import { batch: 100, ..Import::default() }).await.unwrap();
        let expected = clean.dump().await;
        let mut polls = 1;
        loop {
            let world = World::new(&input);
            let dropped =
                world.import(Import { batch: 100, polls: Some(polls), ..Import::default() }).await;
            let committed = world.committed().await;
            assert!(committed % 100 == 0, "{committed} records");
            if dropped.is_ok() {
                break;
            }
            if !world.dump().await.contains("; complete") {
                world.import(Import::default()).await.unwrap();
            }
            assert_eq!(world.dump().await, expected, "{polls} polls");
            polls += 1;
        }
        assert!(polls > 20, "only {polls} polls");
    });
}

#[test]
fn c27_disk_full_is_named_and_the_run_goes_on_when_there_is_room() {
    kit::run(async {
        let input = lines(10_000);
        let clean = World::new(&input);
        clean.import(Import { batch: 1_000, ..Import::default() }).await.unwrap();
        let world = World::new(&input);
        let error = world
            .import(Import { batch: 1_000, max_pages: Some(70), ..Import::default() })
            .await
            .unwrap_err();
        assert!(error.contains("disk full; make room"), "{error}");
        assert!(error.contains("the run goes on at record "), "{error}");
        let committed = world.committed().await;
        assert!(committed > 0 && committed % 1_000 == 0, "{committed} records");
        assert_eq!(
            world.rows().await.split(' ').count() as u64,
            committed,
            "no row outside a transaction"
        );
        world.import(Import { batch: 500, ..Import::default() }).await.unwrap();
        assert_eq!(world.dump().await, clean.dump().await);
    });
}

#[test]
fn c16_counters_pass_two_to_the_31st() {
    kit::run(async {
        let world = World::new(&lines(40));
        world
            .import(Import { batch: 20, stop_after: Some(1), ..Import::default() })
            .await
            .unwrap_err();
        let preset = (1_i64 << 31) - 5;
        world
            .execute(&format!(
                "UPDATE gegendruck_runs SET read_records = {preset}, stored = {preset}; \
                 UPDATE gegendruck_inputs SET record = {preset} + 1, line = {preset} + 1"
            ))
            .await;
        world.import(Import { batch: 7, ..Import::default() }).await.unwrap();
        let dump = world.dump().await;
        assert!(dump.contains(&format!("read {0} = stored {0} ", preset + 20)), "{dump}");
    });
}

#[test]
fn a_run_that_was_taken_over_can_write_nothing() {
    kit::run(async {
        let world = World::new(&lines(30));
        let (_ledger, ticket, points) = world.begin(Conflict::Error, false).await;
        let mut old = world.sink(&ticket, &Import::default()).await;
        let groups = world.groups(&points[0], 10);
        old.commit_group(&groups[0], None).await.unwrap();
        let (mut ledger, new, points) = world.begin(Conflict::Error, false).await;
        assert_eq!((new.run(), new.attempt()), (ticket.run(), 2));
        let before = world.dump().await;
        for group in &groups[1..] {
            let error = old.commit_group(group, None).await.unwrap_err();
            assert!(
                matches!(&error, SinkError::Fenced(words) if words.contains("taken over by pid")),
                "{error}"
            );
        }
        assert!(matches!(old.complete(&Default::default()).await, Err(SinkError::Fenced(_))));
        assert!(ledger.heartbeat(&ticket).await.is_err());
        assert_eq!(world.dump().await, before);
        let mut sink = world.sink(&new, &Import::default()).await;
        for group in world.groups(&points[0], 10) {
            sink.commit_group(&group, None).await.unwrap();
        }
        sink.complete(&Default::default()).await.unwrap();
        assert!(world.dump().await.contains("read 30 = stored 30 "));
    });
}

#[test]
fn attempts_stand_or_fall_with_their_group_and_cost_nothing_where_there_are_none() {
    kit::run(async {
        let world = World::new(&lines(40));
        let (_ledger, ticket, points) = world.begin(Conflict::Error, false).await;
        let mut groups = world.groups(&points[0], 10);
        let tried = |attempts| {
            let (at, now) = (Position { record: 35, ..Position::default() }, SystemTime::now());
            vec![Tried {
                stage: "score".into(),
                at,
                tries: Tries { attempts, first: now, last: now },
            }]
        };
        let kept = async || {
            sqlx::query_scalar::<_, i64>("SELECT attempts FROM gegendruck_tried")
                .fetch_optional(&mut world.connect().await)
                .await
                .unwrap()
        };
        let mut sink = world.sink(&ticket, &Import::default()).await;
        groups[0].tried = tried(1);
        sink.commit_group(&groups[0], None).await.unwrap();
        assert_eq!(kept().await, Some(1));
        let mut failing = world.groups(&points[0], 10).swap_remove(1);
        failing.tried = tried(2);
        failing.checkpoints[0].at.byte = 0;
        sink.commit_group(&failing, None).await.unwrap_err();
        assert_eq!(kept().await, Some(1), "nothing of the group was written");
        // A sink that is opened later knows that there are some.
        let mut sink = world.sink(&ticket, &Import::default()).await;
        sink.commit_group(&groups[1], None).await.unwrap();
        assert_eq!(kept().await, None);
        // Without the table, a statement on it would fail.
        world.execute("ALTER TABLE gegendruck_tried RENAME TO elsewhere").await;
        sink.commit_group(&groups[2], None).await.unwrap();
        world.execute("ALTER TABLE elsewhere RENAME TO gegendruck_tried").await;
        sink.commit_group(&groups[3], None).await.unwrap();
        sink.complete(&Default::default()).await.unwrap();
    });
}

#[test]
fn a_database_that_somebody_else_holds_is_waited_for_and_then_given_up() {
    kit::run(async {
        let world = World::new(&lines(10));
        let (_ledger, ticket, points) = world.begin(Conflict::Error, false).await;
        let import = Import { retry_for: Some(Duration::from_millis(700)), ..Import::default() };
        let mut sink = world.sink(&ticket, &import).await;
        let group = &world.groups(&points[0], 10)[0];
        let mut other = world.connect().await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let error = sink.commit_group(group, None).await.unwrap_err().to_string();
        assert!(error.contains("somebody else holds the database"), "{error}");
        assert!(error.contains("the run goes on at record 1 "), "{error}");
        let mut sink = world.sink(&ticket, &Import::default()).await;
        let (committed, ()) = tokio::join!(sink.commit_group(group, None), async {
            tokio::time::sleep(Duration::from_millis(800)).await;
            sqlx::query("COMMIT").execute(&mut other).await.unwrap();
        });
        assert_eq!(committed.unwrap().tally.stored, 10);
    });
}

#[test]
fn c28_a_commit_whose_answer_was_lost_is_asked_for_in_the_ledger_and_not_made_twice() {
    kit::run(async {
        let clean = World::new(INPUT);
        clean.import(Import::default()).await.unwrap();
        let world = World::new(INPUT);
        let faults = Faults::lost_answers();
        world.import(Import { batch: 2, faults, ..Import::default() }).await.unwrap();
        assert_eq!(world.dump().await, clean.dump().await);
    });
}

#[test]
fn the_group_that_passes_the_limit_is_committed_and_the_run_stops() {
    kit::run(async {
        let world = World::new("a,1\n!\nb,2\n!\nc,3\n!\nd,4\n");
        let import = Import { batch: 2, max_errors: MaxErrors::Count(1), ..Import::default() };
        let stop = world.import(import).await.unwrap_err();
        assert!(stop.starts_with("2 of 4 records were rejected, 1 are allowed"), "{stop}");
        assert_eq!(world.committed().await, 4);
        let more = Import { batch: 2, max_errors: MaxErrors::Count(3), ..Import::default() };
        world.import(more).await.unwrap();
        assert!(world.dump().await.ends_with("read 7 = stored 4 (updated 0) + rejected 3 + filtered 0 + duplicate 0; complete, exit 1"));
    });
}

#[test]
fn a_file_that_is_rejected_for_the_most_part_is_not_begun() {
    kit::run(async {
        let world = World::new(&format!("{}{}", "!\n".repeat(501), lines(600)));
        let error = world.import(Import { batch: 1_100, ..Import::default() }).await.unwrap_err();
        assert!(error.contains("is it the right file?"), "{error}");
        assert_eq!((world.committed().await, world.rows().await.as_str()), (0, ""));
        let all_the_same = Import { max_errors: MaxErrors::Count(501), ..Import::default() };
        world.import(all_the_same).await.unwrap();
    });
}

#[test]
fn a_table_that_rows_do_not_fit_into_is_refused_with_all_differences() {
    kit::run(async {
        for (ddl, expected) in [
            (
                "CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT) STRICT",
                "value: found TEXT, expected INTEGER",
            ),
            ("CREATE TABLE entries (key TEXT PRIMARY KEY) STRICT", "value: found no such column"),
            (
                "CREATE TABLE entries (key TEXT, value INTEGER) STRICT",
                "key: found none on exactly (key)",
            ),
            (
                "CREATE TABLE entries (key TEXT COLLATE NOCASE PRIMARY KEY, value INTEGER)",
                "key: found none",
            ),
            (
                "CREATE TABLE entries (key TEXT, value INTEGER, PRIMARY KEY (key, value))",
                "key: found none",
            ),
            (
                "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER NOT NULL)",
                "value: found NOT NULL",
            ),
            (
                "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER, x TEXT NOT NULL)",
                "x: found NOT NULL",
            ),
            ("CREATE VIEW entries AS SELECT 'k' AS key, 1 AS value", "entries: found a view"),
            ("CREATE TABLE t (a); CREATE INDEX entries ON t (a)", "entries: found an index"),
        ] {
            let world = World::new("a,1\n");
            world.execute(ddl).await;
            match check_table(&world.target, &ENTRIES, "entries").await {
                Err(SqlError::TableDiffers { differences, .. }) => {
                    assert_eq!(differences.len(), 1, "{ddl}: {differences:?}");
                    assert!(differences[0].starts_with(expected), "{ddl}: {differences:?}");
                }
                other => panic!("{ddl}: {other:?}"),
            }
        }
        for ddl in [
            "CREATE TABLE entries (key VARCHAR(20) PRIMARY KEY, value BIGINT, position TEXT)",
            "CREATE TABLE entries (id INTEGER PRIMARY KEY, value INT, key TEXT UNIQUE) STRICT",
            "CREATE TABLE Entries (Value INTEGER, KEY TEXT PRIMARY KEY) WITHOUT ROWID",
        ] {
            let world = World::new(INPUT);
            world.execute(ddl).await;
            assert_eq!(
                check_table(&world.target, &ENTRIES, "entries").await.unwrap(),
                TableState::Fits,
                "{ddl}"
            );
            world.import(Import::default()).await.unwrap();
            assert_eq!(world.rows().await, "a=1 b=2 c=4 d=7", "{ddl}");
        }
    });
}

#[test]
fn rows_that_vanish_while_a_run_writes_are_noticed_at_its_end() {
    kit::run(async {
        let world = World::new(&lines(10));
        let (_ledger, ticket, points) = world.begin(Conflict::Error, false).await;
        let mut sink = world.sink(&ticket, &Import::default()).await;
        sink.commit_group(&world.groups(&points[0], 10)[0], None).await.unwrap();
        world.execute("DELETE FROM entries WHERE key = 'k00003'").await;
        let error = sink.complete(&Default::default()).await.unwrap_err();
        assert!(
            matches!(&error, SinkError::Unbalanced(words) if words.contains("9 new rows, expected 10")),
            "{error}"
        );
    });
}

#[test]
fn a_failing_last_statement_leaves_the_run_incomplete_and_is_made_up_for() {
    kit::run(async {
        let world = World::new(&lines(10));
        let import = Import {
            finish: Some("INSERT INTO twins SELECT key FROM entries"),
            ..Import::default()
        };
        let error = world.import(import.clone()).await.unwrap_err();
        assert!(
            error.contains("no such table: twins") && error.contains("all records are committed"),
            "{error}"
        );
        assert!(world.dump().await.contains("; failed"), "{}", world.dump().await);
        world.execute("CREATE TABLE twins (key TEXT)").await;
        world.import(import).await.unwrap();
        assert!(world.dump().await.ends_with("complete, exit 0"));
    });
}

#[test]
fn a_complete_input_is_done_and_its_rows_must_be_there() {
    kit::run(async {
        let world = World::new(INPUT);
        world.import(Import::default()).await.unwrap();
        let mut ledger = Ledger::open(&world.target, "entries").await.unwrap();
        let look_up = async |ledger: &mut Ledger| {
            ledger
                .look_up(
                    &world.pipeline(Conflict::Error),
                    std::slice::from_ref(&world.input),
                    Accept::default(),
                )
                .await
        };
        match look_up(&mut ledger).await.unwrap() {
            Decision::AlreadyDone(done) => {
                assert_eq!((done[0].exit_code, &done[0].other_path), (1, &None))
            }
            other => panic!("{other:?}"),
        }
        world.execute("DELETE FROM entries").await;
        let error = look_up(&mut ledger).await.unwrap_err().to_string();
        assert!(error.contains("stored 4 rows in table entries, and it is empty now"), "{error}");
        world.execute("DROP TABLE entries").await;
        let error = look_up(&mut ledger).await.unwrap_err().to_string();
        assert!(error.contains("there is no such table now"), "{error}");
    });
}

#[test]
fn a_sink_can_be_sent_to_a_task_with_any_row() {
    fn is_sink<S: Sink<Entry>>() {}
    is_sink::<super::SqlSink<Entry>>();
    let _ = attempt();
}

/// Tables whose new rows can be counted by their numbers, and tables whose rows have none.
const KINDS_OF_TABLES: [&str; 3] = [
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, value INTEGER)",
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID",
];

#[test]
fn a_trigger_that_deletes_rows_is_noticed_whatever_the_table_and_however_it_is_named() {
    for ddl in KINDS_OF_TABLES {
        for deletes in ["key = new.key AND key = 'b'", "key < new.key"] {
            kit::run(async {
                let mut world = World::new("a,1\nb,2\nc,3\nd,4\n");
                world.table = "ENTRIES";
                world.execute(ddl).await;
                let trigger = format!(
                    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE {deletes}; END"
                );
                world.execute(&trigger).await;
                let import = Import { batch: 2, ..Import::default() };
                let error = world.import(import).await.unwrap_err();
                assert!(error.contains("trigger"), "{ddl}, {deletes}: {error}");
            });
        }
    }
}

#[test]
fn a_trigger_that_deletes_what_replaced_a_row_is_noticed_whatever_the_table() {
    for ddl in KINDS_OF_TABLES {
        kit::run(async {
            let world = World::new("a,1\nb,2\nc,3\n");
            world.execute(ddl).await;
            world.execute("INSERT INTO entries (key, value) VALUES ('b', 7)").await;
            let trigger = "CREATE TRIGGER t AFTER UPDATE ON entries BEGIN DELETE FROM entries WHERE key = new.key; END";
            world.execute(trigger).await;
            let update = Import { conflict: Conflict::Update, ..Import::default() };
            let error = world.import(update).await.unwrap_err();
            assert!(error.contains("take away the trigger"), "{ddl}: {error}");
            assert_eq!(world.rows().await, "b=7", "{ddl}");
        });
    }
}

#[test]
fn a_trigger_that_rolls_back_ends_the_run_and_one_that_fails_leaves_nothing_of_its_statement() {
    for ddl in KINDS_OF_TABLES {
        for (resolution, conflict) in
            [("ROLLBACK", Conflict::Error), ("FAIL", Conflict::Error), ("FAIL", Conflict::Skip)]
        {
            kit::run(async {
                let world = World::new("a,1\nb,2\nc,3\nd,4\n");
                world.execute(ddl).await;
                world.execute("CREATE TABLE seen (key TEXT UNIQUE)").await;
                world.execute("INSERT INTO seen VALUES ('c')").await;
                let trigger = format!(
                    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN INSERT OR {resolution} INTO seen VALUES (new.key); END"
                );
                world.execute(&trigger).await;
                let ended = world.import(Import { conflict, ..Import::default() }).await;
                if resolution == "ROLLBACK" {
                    let error = ended.unwrap_err();
                    assert!(error.contains("rolled the transaction back"), "{ddl}: {error}");
                    assert_eq!(world.rows().await, "", "{ddl}");
                    world.import(Import::default()).await.unwrap_err();
                    assert_eq!(world.rows().await, "", "{ddl}: nothing outside of a transaction");
                } else {
                    ended.unwrap();
                    assert_eq!(world.rows().await, "a=1 b=2 d=4", "{ddl}, {conflict:?}");
                }
            });
        }
    }
}
