//! One input being read: blocks of bytes to records, records to batches, and the fingerprint of every byte.
//!
//! ```text
//! [start .. end) of a batch:  | record | record | blank | record |  pending: cut, and no room for it yet
//!                             ^ fingerprint of all bytes before                ^ first record of the next batch
//! ```
//!
//! - A batch begins where a record begins: blank lines belong to the batch before them.
//! - A record over the limit for one record comes alone; of its bytes only the beginning and the fingerprint are kept.

use std::path::PathBuf;
use std::time::SystemTime;

use gegendruck::{
    Block, Checkpoint, Lines, Position, Read, Reject, Room, SourceBatch, SourceError, Span,
};
use gegendruck_checkpoints::{Fingerprint, InputFile};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::cutter::{Cutter, Item};
use super::decoder::Decoder;
use super::fields::FromFields;
use super::source::{Opened, explain};

/// Bytes that are read from a file at once.
const BLOCK: usize = 256 * 1024;

/// Most bytes of a blank line.
const LINE_END: u64 = 2;

/// An input that is being read.
pub(super) struct Reading<T> {
    path: PathBuf,
    file: File,
    found: InputFile,
    cutter: Cutter,
    decoder: Decoder,
    /// Of all bytes that were handed out.
    fingerprint: Fingerprint,
    /// Of all bytes up to the end of what was skipped of an over-long record.
    ahead: Option<Fingerprint>,
    lines: Lines,
    /// A record that was cut and did not fit into the room.
    pending: Option<Cut<T>>,
}

/// One record, whatever became of it, that waits for room.
struct Cut<T> {
    start: Position,
    end: Position,
    /// Its source bytes with the line end; none if it was over the limit for one record.
    raw: Box<[u8]>,
    what: Result<(T, u32), Reject>,
    repaired: bool,
    /// The fingerprint behind it, if it was over the limit for one record.
    fingerprint: Option<Fingerprint>,
}

/// A batch being filled.
struct Filling<T> {
    start: Position,
    end: Position,
    items: Vec<gegendruck::Item<T>>,
    rejects: Vec<Reject>,
    /// All source bytes from `start` to `end`; none if it is one record over the limit.
    block: Vec<u8>,
    /// The fingerprint at `end`, if it does not follow from the block.
    fingerprint: Option<Fingerprint>,
}

impl<T> Filling<T> {
    fn take(&mut self, cut: Cut<T>) {
        match cut.what {
            Ok((value, len)) => self.items.push(gegendruck::Item { at: cut.start, len, value }),
            Err(reject) => self.rejects.push(reject),
        }
        self.block.extend_from_slice(&cut.raw);
        self.fingerprint = cut.fingerprint;
        self.end = cut.end;
    }

    fn records(&self) -> u64 {
        (self.items.len() + self.rejects.len()) as u64
    }

    fn bytes(&self) -> u64 {
        self.end.byte - self.start.byte
    }

    /// True if it has as many records as there is room for.
    fn is_full(&self, room: Room) -> bool {
        self.records() == room.records.0
    }

    /// True if one more record of so many bytes can be added.
    fn fits(&self, room: Room, bytes: u64) -> bool {
        !self.is_full(room) && bytes <= room.bytes.0 - self.bytes()
    }

    /// True if nothing more can be added, not even a blank line, or it holds a record whose bytes were not kept.
    fn is_closed(&self, room: Room) -> bool {
        self.bytes() + LINE_END > room.bytes.0 || self.fingerprint.is_some()
    }
}

impl<T: FromFields> Reading<T> {
    /// Opens an input that was checked, where it is to be read from.
    pub(super) async fn begin(opened: Opened) -> Result<Reading<T>, SourceError> {
        let Opened { input, found, opening, decoder } = opened;
        let failed = |error: std::io::Error| SourceError {
            message: format!("{}: {}", input.path.display(), explain(&error)),
            source: Some(Box::new(error)),
        };
        // Not kept open since it was checked: there may be more inputs than a process may have files open.
        let mut file = File::open(&input.path).await.map_err(failed)?;
        let start = opening.start();
        let (at, lines, fingerprint) = match input.start {
            Some(start) => (start.at, start.lines, start.fingerprint),
            None => {
                let mut head = vec![0; start.byte as usize];
                file.read_exact(&mut head).await.map_err(failed)?;
                let mut fingerprint = Fingerprint::default();
                fingerprint.update(&head);
                let blank = opening.blank_lines();
                let lines = Lines { header: start.line - 1 - blank, blank, ..Lines::default() };
                (start, lines, fingerprint)
            }
        };
        let at = Position { input: input.index, ..at };
        file.seek(std::io::SeekFrom::Start(at.byte)).await.map_err(failed)?;
        let cutter = Cutter::new(&opening, at);
        let path = input.path;
        let mut reading = Reading {
            path,
            file,
            found,
            cutter,
            decoder,
            fingerprint,
            ahead: None,
            lines,
            pending: None,
        };
        reading.still_the_same().await?;
        Ok(reading)
    }

    /// The next batch, and whether it is the input's last.
    pub(super) async fn read(&mut self, room: Room) -> Result<(Read<T>, bool), SourceError> {
        if room.bytes.0 < LINE_END {
            return Ok((Read::Needs(gegendruck::Bytes(LINE_END)), false));
        }
        let at = self.pending.as_ref().map_or(self.cutter.position(), |cut| cut.start);
        let block = Vec::with_capacity((room.records.0 as usize).saturating_mul(128).min(BLOCK));
        let items = Vec::with_capacity((room.records.0 as usize).min(4096));
        let mut filling =
            Filling { start: at, end: at, items, rejects: Vec::new(), block, fingerprint: None };
        let (mut over, mut looked_on) = (false, false);
        // Blank lines belong to the batch before them, so that a batch ends where a record begins: a full one looks one record
        // further, and one block at most.
        while !over && !filling.is_closed(room) {
            if self.pending.is_none() && !self.cut_into(&mut filling, room) {
                if self.cutter.is_done() {
                    over = true;
                } else if filling.is_full(room) && looked_on && self.ahead.is_none() {
                    break;
                } else {
                    looked_on = filling.is_full(room);
                    self.fill().await?;
                }
                continue;
            }
            let Some(cut) = self.pending.take() else { continue };
            let fits = filling.fits(room, cut.end.byte - cut.start.byte);
            let alone = cut.fingerprint.is_some();
            if fits && !(alone && filling.bytes() > 0) {
                self.lines.repaired += u64::from(cut.repaired);
                filling.take(cut);
                continue;
            }
            let needs = gegendruck::Bytes(cut.end.byte - cut.start.byte);
            self.pending = Some(cut);
            if filling.bytes() == 0 {
                return Ok((Read::Needs(needs), false));
            }
            break;
        }
        let batch = self.finish(filling, over);
        if over {
            self.still_the_same().await?;
            self.same_content().await?;
        }
        Ok((Read::Batch(batch), over))
    }

    /// Cuts records into the batch for as long as they fit; the first that does not is `pending` afterwards.
    /// False if more bytes are needed first.
    fn cut_into(&mut self, filling: &mut Filling<T>, room: Room) -> bool {
        let Reading { cutter, decoder, fingerprint, ahead, lines, pending, .. } = self;
        while !filling.is_closed(room) {
            let Some(item) = cutter.next() else { return false };
            match item {
                Item::Blank(raw) => {
                    filling.block.extend_from_slice(raw);
                    filling.end.byte += raw.len() as u64;
                    filling.end.line += 1;
                    lines.blank += 1;
                }
                Item::Skipped(raw) => {
                    let behind = ahead.get_or_insert_with(|| {
                        let mut behind = fingerprint.clone();
                        behind.update(&filling.block);
                        behind
                    });
                    behind.update(raw);
                }
                Item::Record(cut) => {
                    let len = cut.record.text.len() as u32;
                    let value = T::from_fields(&decoder.decode(&cut.record));
                    let end = after(cut.at, cut.raw.len() as u64, cut.lines);
                    let repaired = cut.is_repaired();
                    if !filling.fits(room, cut.raw.len() as u64) {
                        *pending = Some(Cut {
                            start: cut.at,
                            end,
                            raw: cut.raw.into(),
                            what: Ok((value, len)),
                            repaired,
                            fingerprint: None,
                        });
                        return true;
                    }
                    lines.repaired += u64::from(repaired);
                    filling.items.push(gegendruck::Item { at: cut.at, len, value });
                    filling.block.extend_from_slice(cut.raw);
                    filling.end = end;
                }
                Item::Refused(cut) => {
                    let now = SystemTime::now();
                    let reject = Reject {
                        at: cut.at,
                        len: cut.len,
                        bytes: cut.bytes.into(),
                        stage: "read".into(),
                        reason: *cut.reason,
                        attempts: 1,
                        first: now,
                        last: now,
                    };
                    let behind = ahead.take().map(|mut behind| {
                        behind.update(cut.raw);
                        behind
                    });
                    let raw: Box<[u8]> =
                        if behind.is_some() { Box::default() } else { cut.raw.into() };
                    let end_byte = behind
                        .as_ref()
                        .map_or(cut.at.byte + cut.raw.len() as u64, Fingerprint::bytes);
                    let end = after(cut.at, end_byte - cut.at.byte, cut.lines);
                    *pending = Some(Cut {
                        start: cut.at,
                        end,
                        raw,
                        what: Err(reject),
                        repaired: false,
                        fingerprint: behind,
                    });
                    return true;
                }
            }
        }
        true
    }

    /// Reads the next block of the file.
    async fn fill(&mut self) -> Result<(), SourceError> {
        let spare = &mut self.cutter.spare(BLOCK)[..BLOCK];
        match self.file.read(spare).await {
            // What is there without a line end is a record only if nobody is writing it yet.
            Ok(0) => {
                self.still_the_same().await?;
                self.cutter.end();
            }
            Ok(len) => self.cutter.filled(len),
            Err(error) => {
                let message = format!("{}: cannot be read on: {error}", self.path.display());
                return Err(SourceError { message, source: Some(Box::new(error)) });
            }
        }
        Ok(())
    }

    fn finish(&mut self, filling: Filling<T>, complete: bool) -> SourceBatch<T> {
        match filling.fingerprint {
            Some(fingerprint) => self.fingerprint = fingerprint,
            None => self.fingerprint.update(&filling.block),
        }
        debug_assert_eq!(
            self.fingerprint.bytes(),
            filling.end.byte,
            "the fingerprint covers every byte once"
        );
        let checkpoint = Checkpoint {
            at: filling.end,
            fingerprint: self.fingerprint.value(),
            lines: self.lines,
            complete,
        };
        let block = (!filling.items.is_empty())
            .then(|| Block::new(filling.start.byte, filling.block.into()));
        let span = Span { start: filling.start, end: filling.end };
        SourceBatch { span, items: filling.items, rejects: filling.rejects, block, checkpoint }
    }

    /// A file that changes while it is read is not the file that was checked.
    async fn still_the_same(&mut self) -> Result<(), SourceError> {
        let now = self.now().await;
        let before = &self.found;
        if now.as_ref().is_ok_and(|now| before.seems_unchanged(now)) {
            return Ok(());
        }
        let now = now.map_or("it cannot be looked at".into(), |now| {
            format!("it has {} bytes now", now.size)
        });
        Err(SourceError::new(format!(
            "{}: the file was replaced or written to after it was looked at ({} bytes then, {now}); start again when it is complete",
            self.path.display(),
            before.size
        )))
    }
}

impl<T> Reading<T> {
    async fn now(&mut self) -> std::io::Result<InputFile> {
        Ok(InputFile::of(self.path.clone(), &self.file.metadata().await?))
    }

    /// All of it was read. If anything of the file was changed meanwhile, be it its name or who may read it, its bytes are compared
    /// with those that were read: its time may have been set back.
    async fn same_content(&mut self) -> Result<(), SourceError> {
        if self.now().await.is_ok_and(|now| self.found.is_unchanged(&now)) {
            return Ok(());
        }
        let failed = |source: std::io::Error| SourceError {
            message: format!("{}: {}", self.path.display(), explain(&source)),
            source: Some(Box::new(source)),
        };
        self.file.seek(std::io::SeekFrom::Start(0)).await.map_err(failed)?;
        let mut again = Fingerprint::new();
        let mut block = vec![0; BLOCK];
        loop {
            match self.file.read(&mut block).await.map_err(failed)? {
                0 => break,
                len => again.update(&block[..len]),
            }
        }
        if (again.bytes(), again.value()) == (self.fingerprint.bytes(), self.fingerprint.value()) {
            return Ok(());
        }
        Err(SourceError::new(format!(
            "{}: the file was written to while it was read, and its time set back; start again when it is complete",
            self.path.display()
        )))
    }
}

/// The position behind a record of so many bytes and lines.
fn after(at: Position, bytes: u64, lines: u64) -> Position {
    Position {
        input: at.input,
        byte: at.byte + bytes,
        record: at.record + 1,
        line: at.line + lines,
    }
}
