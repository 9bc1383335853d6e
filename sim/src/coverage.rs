//! Which kinds of fault a campaign had in which state of a connector.
//!
//! A row is a kind of fault, a column something that a connector does; a cell counts the plans in which some
//! connector did that while such a fault was on. What a fault does to a connector that has nothing to lose
//! shows nothing, so an empty cell is work: more plans, or a scenario. The cells that a full campaign
//! reaches are kept in a file; a campaign that misses one of them has lost strength, and says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use comfy_table::{Cell, CellAlignment, Table, presets};
use springtide::env::Time;

use crate::{
    event::{Event, Place, TransferEnd},
    plan::FaultKind,
};

/// What a connector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// A save is open.
    Saving,
    /// The engine waits for its saves.
    Waiting,
    /// A put has ended, and the item is not reported yet.
    Committing,
    /// A request waits for what the store knows of its items.
    LookingUp,
    /// A get is under way.
    Loading,
    /// A get has delivered, and what came is looked at.
    Validating,
    /// A pool makes room.
    Evicting,
    /// A shutdown is under way.
    Draining,
}

impl Activity {
    /// All of them, in the order of an item's life.
    pub const ALL: [Self; 8] = [
        Self::Saving,
        Self::Waiting,
        Self::Committing,
        Self::LookingUp,
        Self::Loading,
        Self::Validating,
        Self::Evicting,
        Self::Draining,
    ];

    /// The name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Saving => "saving",
            Self::Waiting => "waiting",
            Self::Committing => "committing",
            Self::LookingUp => "looking_up",
            Self::Loading => "loading",
            Self::Validating => "validating",
            Self::Evicting => "evicting",
            Self::Draining => "draining",
        }
    }
}

/// A kind of fault in a state of a connector.
pub type CellId = (FaultKind, Activity);

/// Kinds that happen at once, and have no end.
const AT_ONCE: [FaultKind; 4] =
    [FaultKind::EvictAll, FaultKind::Remove, FaultKind::Plant, FaultKind::Close];
/// How long a fault without a length is taken to last.
const ECHO: Duration = Duration::from_millis(100);

/// The cells of one run, while it runs and after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: BTreeSet<CellId>,
    /// Faults that are on, with when the latest of those without a length is over.
    on: BTreeMap<FaultKind, (u32, Time)>,
    /// What goes on: by activity, host and what it is about, how often.
    doing: BTreeMap<(Activity, String, String), u32>,
}

impl Coverage {
    /// The cells that were reached.
    pub fn cells(&self) -> &BTreeSet<CellId> {
        &self.cells
    }

    /// Takes an event.
    pub fn observe(&mut self, place: Place<'_>, event: &Event) {
        use Activity as A;
        let host = place.host;
        match event {
            Event::FaultBegan { kind, .. } => self.fault_began(*kind, place.time),
            Event::FaultEnded { kind, .. } => {
                if let Some((count, _)) = self.on.get_mut(kind) {
                    *count = count.saturating_sub(1);
                }
            }
            Event::SaveOpened { ticket, .. } => self.begin(place, A::Saving, ticket),
            Event::SaveEnded { key, ticket, .. } => {
                self.end(host, A::Saving, ticket);
                self.end(host, A::Committing, key);
            }
            Event::WaitBegan { .. } => self.begin(place, A::Waiting, ""),
            Event::WaitEnded { .. } => self.end(host, A::Waiting, ""),
            Event::TransferBegan { key, put: false, .. } => self.begin(place, A::Loading, key),
            Event::TransferEnded { key, put, end, .. } => {
                let ok = matches!(end, TransferEnd::Ended(code) if code == "ok");
                match (put, ok) {
                    (true, true) => self.begin(place, A::Committing, key),
                    (true, false) => {}
                    (false, _) => self.end(host, A::Loading, key),
                }
                if !put && ok {
                    self.mark(A::Validating, place.time);
                }
            }
            Event::Waiting { request } => self.begin(place, A::LookingUp, &request.to_string()),
            Event::Hit { request, .. } | Event::Miss { request, .. } => {
                self.end(host, A::LookingUp, &request.to_string());
            }
            Event::RequestEnded { request, .. } => {
                let name = request.to_string();
                self.doing.retain(|(what, _, about), _| *what != A::LookingUp || *about != name);
            }
            Event::CloseBegan { .. } => self.begin(place, A::Draining, ""),
            Event::CloseEnded { .. } => self.end(host, A::Draining, ""),
            Event::Killed => self.doing.retain(|(_, other, _), _| other != host),
            _ => {}
        }
    }

    /// A pool was seen to have evicted.
    pub fn evicted(&mut self, now: Time) {
        self.mark(Activity::Evicting, now);
    }

    fn fault_began(&mut self, kind: FaultKind, now: Time) {
        let (count, until) = self.on.entry(kind).or_insert((0, Time::ZERO));
        *count += u32::from(!AT_ONCE.contains(&kind));
        *until = now + ECHO;
        let doing: BTreeSet<Activity> = self.doing.keys().map(|(what, ..)| *what).collect();
        self.cells.extend(doing.into_iter().map(|what| (kind, what)));
    }

    fn begin(&mut self, place: Place<'_>, what: Activity, about: &str) {
        *self.doing.entry((what, place.host.to_owned(), about.to_owned())).or_default() += 1;
        self.mark(what, place.time);
    }

    fn end(&mut self, host: &str, what: Activity, about: &str) {
        let entry = (what, host.to_owned(), about.to_owned());
        if let Some(count) = self.doing.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                self.doing.remove(&entry);
            }
        }
    }

    fn mark(&mut self, what: Activity, now: Time) {
        let on = self.on.iter().filter(|(_, (count, until))| *count > 0 || now < *until);
        self.cells.extend(on.map(|(kind, _)| (*kind, what)));
    }
}

/// The cells of many runs, with how many runs reached each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix(BTreeMap<CellId, u64>);

/// A file of cells that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// Not JSON, or not an object of lists.
    #[error("baseline: {0}")]
    Json(#[from] serde_json::Error),
    /// A name that nothing has.
    #[error("baseline: expected a kind of fault and a state of a connector, got {0}")]
    Name(String),
}

impl Matrix {
    /// Adds the cells of a run.
    pub fn add(&mut self, run: &Coverage) {
        for cell in run.cells() {
            *self.0.entry(*cell).or_default() += 1;
        }
    }

    /// How many runs reached a cell.
    pub fn count(&self, cell: CellId) -> u64 {
        self.0.get(&cell).copied().unwrap_or(0)
    }

    /// The cells of `baseline` that no run reached.
    pub fn missing(&self, baseline: &BTreeSet<CellId>) -> Vec<CellId> {
        baseline.iter().filter(|cell| self.count(**cell) == 0).copied().collect()
    }

    /// The cells that at least `runs` runs reached, as a baseline: what one run reached by luck is not
    /// asked of the next campaign.
    pub fn baseline(&self, runs: u64) -> String {
        let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, what) in self.0.iter().filter(|(_, n)| **n >= runs).map(|(cell, _)| *cell) {
            lists.entry(kind.name()).or_default().push(what.name());
        }
        serde_json::to_string_pretty(&lists).expect("names are plain data")
    }
}

/// The cells of a baseline file.
///
/// # Errors
/// [`BaselineError`] for a text that is none.
pub fn read_baseline(text: &str) -> Result<BTreeSet<CellId>, BaselineError> {
    let lists: BTreeMap<String, Vec<String>> = serde_json::from_str(text)?;
    let mut cells = BTreeSet::new();
    for (kind, names) in lists {
        for name in names {
            let what = Activity::ALL.into_iter().find(|what| what.name() == name);
            match (FaultKind::find(&kind), what) {
                (Some(kind), Some(what)) => _ = cells.insert((kind, what)),
                _ => return Err(BaselineError::Name(format!("{kind}: {name}"))),
            }
        }
    }
    Ok(cells)
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        let names = Activity::ALL.iter().map(|what| what.name().replace('_', " "));
        table.set_header(["fault".to_owned()].into_iter().chain(names));
        for kind in FaultKind::ALL {
            let counts = Activity::ALL.iter().map(|what| match self.count((*kind, *what)) {
                0 => Cell::new("-"),
                count => Cell::new(count),
            });
            let counts = counts.map(|cell| cell.set_alignment(CellAlignment::Right));
            table.add_row([Cell::new(kind.name())].into_iter().chain(counts));
        }
        let cells = FaultKind::ALL.len() * Activity::ALL.len();
        write!(f, "{table}\n{} of {cells} cells reached", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::time;

    fn run(events: &[(u64, &'static str, Event)]) -> Coverage {
        let mut coverage = Coverage::default();
        for (ms, host, event) in events {
            coverage.observe(Place { number: 1, time: time(*ms), host }, event);
        }
        coverage
    }

    fn began(kind: FaultKind) -> Event {
        Event::FaultBegan { kind, text: String::new() }
    }

    fn ended(kind: FaultKind) -> Event {
        Event::FaultEnded { kind, text: String::new() }
    }

    fn opened() -> Event {
        Event::SaveOpened { key: "m0/a".into(), ticket: "#1".into() }
    }

    fn get(end: Option<&str>) -> Event {
        let (key, bytes, put) = ("m0/a".to_owned(), 64, false);
        match end {
            None => Event::TransferBegan { key, bytes, put },
            Some(end) => {
                Event::TransferEnded { key, bytes, put, end: TransferEnd::Ended(end.into()) }
            }
        }
    }

    #[test]
    fn a_cell_needs_both_at_once_whichever_comes_first() {
        use Activity as A;
        let pause = FaultKind::Pause;
        let first = run(&[
            (1, "world", began(pause)),
            (2, "encoder0", opened()),
            (3, "world", ended(pause)),
        ]);
        assert_eq!(first.cells(), &BTreeSet::from([(pause, A::Saving)]));
        let then = run(&[(1, "prefill0", get(None)), (2, "world", began(pause))]);
        assert_eq!(then.cells(), &BTreeSet::from([(pause, A::Loading)]));
        let after = run(&[
            (1, "world", began(pause)),
            (2, "world", ended(pause)),
            (500, "encoder0", opened()),
        ]);
        assert!(after.cells().is_empty());
        let before = run(&[
            (1, "prefill0", get(None)),
            (2, "prefill0", get(Some("LEASE_EXPIRED (-707)"))),
            (3, "world", began(pause)),
        ]);
        assert!(before.cells().is_empty());
    }

    #[test]
    fn a_fault_without_a_length_lasts_for_a_moment() {
        let evict = FaultKind::EvictAll;
        let cells =
            |ms| run(&[(1, "world", began(evict)), (ms, "encoder0", opened())]).cells().len();
        assert_eq!((cells(90), cells(150)), (1, 0));
    }

    #[test]
    fn the_state_of_a_host_ends_with_it() {
        let crash = FaultKind::Crash;
        let killed = run(&[
            (1, "prefill0", get(None)),
            (2, "prefill0", Event::Killed),
            (3, "world", began(crash)),
        ]);
        assert!(killed.cells().is_empty());
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written_and_misses_are_found() {
        let mut matrix = Matrix::default();
        let one = run(&[(1, "encoder0", opened()), (2, "world", began(FaultKind::Pause))]);
        matrix.add(&one);
        matrix.add(&one);
        matrix.add(&run(&[(1, "prefill0", get(None)), (2, "world", began(FaultKind::Crash))]));
        let baseline = read_baseline(&matrix.baseline(2)).unwrap();
        assert_eq!(baseline, BTreeSet::from([(FaultKind::Pause, Activity::Saving)]));
        assert_eq!(matrix.missing(&baseline), []);
        let missed = Matrix::default().missing(&baseline);
        assert_eq!(missed, [(FaultKind::Pause, Activity::Saving)]);
        for wrong in ["[]", r#"{"pause": ["sleeping"]}"#, r#"{"nap": ["saving"]}"#] {
            assert!(read_baseline(wrong).is_err(), "{wrong}");
        }
    }
}
