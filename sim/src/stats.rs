//! What a run did, in numbers, for the report.

use std::{collections::BTreeMap, ops::AddAssign};

use serde::Serialize;

use crate::event::{Event, RequestEnd, TransferEnd};

/// Counts of one run or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Saves that were reported as stored or already there.
    pub saved: u64,
    /// Items that consumers loaded.
    pub loaded: u64,
    /// Items that consumers encoded themselves.
    pub missed: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that their client gave up by plan.
    pub aborted: u64,
    /// Requests that failed with a host.
    pub failed: u64,
    /// Faults that began.
    pub faults: u64,
    /// Transfers that ended without giving their memory back.
    pub uncertain: u64,
    /// Ends of saves, by outcome.
    pub saves: BTreeMap<String, u64>,
    /// Misses, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Losses of the store, by cause.
    pub losses: BTreeMap<String, u64>,
}

impl Stats {
    /// Counts an event.
    pub fn count(&mut self, event: &Event) {
        match event {
            Event::SaveEnded { end, .. } => {
                self.saved += u64::from(end.is_saved());
                bump(&mut self.saves, end.to_string());
            }
            Event::Hit { .. } => self.loaded += 1,
            Event::Miss { reason, .. } => {
                self.missed += 1;
                bump(&mut self.misses, reason.clone());
            }
            Event::RequestEnded { end, .. } => match end {
                RequestEnd::Done => self.answered += 1,
                RequestEnd::Aborted => self.aborted += 1,
                RequestEnd::Failed(_) => self.failed += 1,
            },
            Event::FaultBegan { .. } => self.faults += 1,
            Event::TransferEnded { end: TransferEnd::Uncertain(_), .. } => self.uncertain += 1,
            Event::Lost { cause, .. } => bump(&mut self.losses, cause.clone()),
            _ => {}
        }
    }
}

fn bump(counts: &mut BTreeMap<String, u64>, name: String) {
    *counts.entry(name).or_default() += 1;
}

impl AddAssign<&Self> for Stats {
    fn add_assign(&mut self, other: &Self) {
        self.saved += other.saved;
        self.loaded += other.loaded;
        self.missed += other.missed;
        self.answered += other.answered;
        self.aborted += other.aborted;
        self.failed += other.failed;
        self.faults += other.faults;
        self.uncertain += other.uncertain;
        for (mine, theirs) in [
            (&mut self.saves, &other.saves),
            (&mut self.misses, &other.misses),
            (&mut self.losses, &other.losses),
        ] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SaveEnd;

    #[test]
    fn events_are_counted_and_runs_added() {
        let mut stats = Stats::default();
        let ended = |end| Event::SaveEnded { key: "k".into(), ticket: "#1".into(), end };
        stats.count(&ended(SaveEnd::Stored));
        stats.count(&ended(SaveEnd::AlreadyThere));
        stats.count(&ended(SaveEnd::TimedOut));
        let mut sum = Stats::default();
        sum += &stats;
        sum += &stats;
        assert_eq!((sum.saved, sum.saves["timed out"], sum.saves["stored"]), (4, 2, 2));
    }
}
