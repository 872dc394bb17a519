//! Records that kill the process: found by going record by record, and named.
//!
//! A record that makes its stage panic ends as a reject; a record on which the whole process dies (a stack overflow, a call
//! into something that aborts) cannot be caught. After three attempts in a row that died without a commit, the run goes record
//! by record and marks each one durably before it is handed out. If it dies once more, the mark names the record: the next
//! start stops and says so. A process that is killed from outside dies at another record each time, and is never blamed on one.

use gegendruck::{
    Buffer, Grouping, Options, Planned, Position, Read, Reason, Records, Reject, Room, Source,
    SourceError,
};
use gegendruck_checkpoints::{Ledger, Target, Ticket};

use crate::exit::{Exit, Refused};
use crate::run::refused;

/// Attempts that died in a row without a commit, after which the run goes record by record.
const DEATHS: u64 = 3;

/// Attempts that died on the same marked record, after which it is named.
const PROOF: u64 = 2;

/// A run that goes record by record.
pub struct Careful {
    ledger: Ledger,
    ticket: Ticket,
    deaths: u64,
    refuse: Option<Position>,
}

impl Careful {
    /// Whether this attempt must go record by record.
    ///
    /// # Errors
    /// A record has killed the process again and again, and nobody said to refuse it.
    pub async fn of(
        ledger: &mut Ledger,
        ticket: &Ticket,
        target: &Target,
        reject: bool,
    ) -> Result<Option<Careful>, Refused> {
        let deaths = ledger.deaths_in_a_row(ticket).await.map_err(refused)?;
        let mark = ledger.marked(ticket.run()).await.map_err(refused)?;
        let culprit = mark.filter(|mark| mark.starts >= PROOF).map(|mark| mark.at);
        if let Some(at) = culprit
            && !reject
        {
            let message = format!(
                "the process died {PROOF} times in a row on {at}; repair the record in the input's next delivery, or pass \
                 --reject-poison to make it a reject and go on behind it"
            );
            return Err(Refused::new(Exit::Internal, message));
        }
        if deaths < DEATHS && culprit.is_none() {
            return Ok(None);
        }
        let ledger = Ledger::open_existing(target).await.map_err(refused)?;
        Ok(Some(Careful { ledger, ticket: ticket.clone(), deaths, refuse: culprit }))
    }

    /// What an operator is told.
    pub fn words(&self) -> String {
        match self.refuse {
            Some(at) => format!("refusing {at}, on which the process died"),
            None => format!(
                "the process died {} times without a commit: going record by record",
                self.deaths
            ),
        }
    }
}

/// One record at a time: none is handed out, and marked, before the one before it is committed.
pub fn one_at_a_time(options: &mut Options, stages: &[Planned]) {
    options.batch = Records(1);
    options.grouping =
        Some(Grouping { records: Records(1), ..options.grouping.unwrap_or_default() });
    for Planned { name, settings, .. } in &stages[1..] {
        options.workers.insert(name.clone(), 1);
        options.buffer.insert(name.clone(), Buffer::Records(Records(1)));
        options.request.insert(name.clone(), Records(1));
        if settings.claim.is_some() {
            options.claim.insert(name.clone(), 1);
        }
    }
}

/// A source that marks each record before it hands it out, if it must.
pub struct Watched<S> {
    source: S,
    careful: Option<Careful>,
}

impl<S> Watched<S> {
    /// `source`, record by record if there is reason to.
    pub fn new(source: S, careful: Option<Careful>) -> Watched<S> {
        Watched { source, careful }
    }
}

impl<S: Source> Source for Watched<S> {
    type Item = S::Item;

    async fn read(&mut self, room: Room) -> Result<Read<S::Item>, SourceError> {
        let Some(careful) = &mut self.careful else { return self.source.read(room).await };
        let read = self.source.read(Room { records: Records(1), ..room }).await?;
        let Read::Batch(mut batch) = read else {
            if matches!(read, Read::End) {
                careful
                    .ledger
                    .unmark(&careful.ticket)
                    .await
                    .map_err(|error| SourceError::new(error.to_string()))?;
            }
            return Ok(read);
        };
        let Some(item) = batch.items.first() else { return Ok(Read::Batch(batch)) };
        if careful.refuse == Some(item.at) {
            let now = std::time::SystemTime::now();
            let bytes =
                batch.block.as_ref().and_then(|block| block.get(item.at.byte, item.len as usize));
            batch.rejects.push(Reject {
                at: item.at,
                len: u64::from(item.len),
                bytes: bytes.unwrap_or_default().into(),
                stage: "read".into(),
                reason: Reason::record("killed_the_process")
                    .detail("the process died on this record again and again"),
                attempts: PROOF as u32,
                first: now,
                last: now,
            });
            batch.items.clear();
            return Ok(Read::Batch(batch));
        }
        careful
            .ledger
            .mark(&careful.ticket, item.at)
            .await
            .map_err(|error| SourceError::new(error.to_string()))?;
        Ok(Read::Batch(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use crate::plan::stages;

    #[test]
    fn record_by_record_means_that_no_second_one_is_in_flight() {
        let mut options = Options::default();
        options.workers.insert("score".into(), 8);
        options.request.insert("score".into(), Records(500));
        let before = stages::<Claims>(&options).expect("it can work");
        one_at_a_time(&mut options, &before.stages);
        let plan = stages::<Claims>(&options).expect("it can work");
        assert_eq!(
            (plan.in_flight.records, plan.batch, plan.grouping.records),
            (1, Records(1), Records(1))
        );
        assert!(plan.stages[1..].iter().all(|stage| stage.settings.workers == 1));
    }
}
