//! What has been measured: a table for people, an object for programs.

use std::{collections::BTreeMap, time::Duration};

use comfy_table::{Cell as TableCell, CellAlignment, Table, presets};
use serde::Serialize;
use springtide::size;

use super::{
    Cell, Plan, Round, Taken,
    stats::{quantile, sorted},
};

const MIB: f64 = (1 << 20) as f64;

/// All that has been measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The store.
    pub store: String,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Whether the connector wrote and checked checksums of the payload.
    pub checksum: bool,
    /// Processors that this process may use.
    pub processors: usize,
    /// One entry a cell.
    pub cells: Vec<CellReport>,
}

/// One combination of an item size, calls at a time and items a call.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// Bytes of an item's payload.
    pub item_bytes: u64,
    /// Calls at a time.
    pub concurrency: usize,
    /// Items a call.
    pub batch: usize,
    /// Payload bytes that each part of a round moved.
    pub round_bytes: u64,
    /// Copies in memory, an item each.
    pub memcpy: Operation,
    /// The store's own batch put, a call each.
    pub put: Operation,
    /// From the first save of a step to the end of its `wait_for_save`.
    pub wait_for_save: Operation,
    /// The store's own batch get, a call each.
    pub get: Operation,
    /// From a request's first scheduling pass to its last tensor.
    pub load: Operation,
    /// Throughput of the connector's saves over that of the puts.
    pub wait_for_save_to_put: Ratio,
    /// Throughput of the connector's loads over that of the gets.
    pub load_to_get: Ratio,
    /// What the connector counted, warm-up included: each process' counters by the names that a scraper sees.
    pub counters: Counted,
}

/// What the processes of a cell have counted. Raw calls are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The producer's worker.
    pub producer: BTreeMap<String, u64>,
    /// The consumer's scheduler.
    pub scheduler: BTreeMap<String, u64>,
    /// The consumer's worker.
    pub worker: BTreeMap<String, u64>,
}

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// Median over the rounds, payload bytes.
    pub bytes_per_sec: f64,
    /// Throughput over that of a copy in memory, median over the rounds.
    pub to_memcpy: f64,
    /// Processor time of this process an item, the store's threads in it included; median over the rounds.
    pub cpu_us: f64,
    /// Calls or steps of all rounds.
    pub count: usize,
    /// Half of them took at most this long.
    pub p50_us: f64,
    /// 90 % of them.
    pub p90_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// A ratio of two throughputs of one round, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Its median.
    pub median: f64,
    /// A quarter of the rounds had less.
    pub low: f64,
    /// A quarter of the rounds had more.
    pub high: f64,
}

impl Report {
    pub(super) fn new(store: String, plan: &Plan, cells: Vec<CellReport>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { store, rounds: plan.rounds, checksum: plan.checksum, processors, cells }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header([
            "item",
            "calls",
            "batch",
            "what",
            "MiB/s",
            "of raw",
            "of memcpy",
            "cpu/item",
            "p50",
            "p90",
            "p99",
            "max",
        ]);
        for cell in &self.cells {
            for (name, operation, ratio) in cell.rows() {
                let mut row = match name {
                    "memcpy" => vec![
                        TableCell::new(size::show(cell.item_bytes)),
                        right(cell.concurrency.to_string()),
                        right(cell.batch.to_string()),
                    ],
                    _ => vec![TableCell::new(""); 3],
                };
                row.push(TableCell::new(name));
                row.extend(operation.columns(ratio).map(right));
                table.add_row(row);
            }
        }
        let Self { store, rounds, processors, .. } = self;
        let checksum = if self.checksum { "with" } else { "without" };
        format!(
            "{table}\n{store}; {rounds} rounds a cell, {checksum} checksums, {processors} processors\n\
             put, get: the store's own calls; wait_for_save: from the first save on; load: a request\n\
             cpu/item: processor time of this process, the store's threads in it included"
        )
    }
}

impl CellReport {
    pub(super) fn new(cell: &Cell, rounds: &[Round], counters: Counted) -> Self {
        let bytes = cell.round_bytes();
        let operation = |taken: fn(&Round) -> &Taken| Operation::new(cell, rounds, taken);
        Self {
            item_bytes: cell.item_bytes,
            concurrency: cell.concurrency,
            batch: cell.batch,
            round_bytes: bytes,
            memcpy: operation(|round| &round.memcpy),
            put: operation(|round| &round.put),
            wait_for_save: operation(|round| &round.save),
            get: operation(|round| &round.get),
            load: operation(|round| &round.load),
            wait_for_save_to_put: Ratio::new(rounds, |round| (&round.save, &round.put)),
            load_to_get: Ratio::new(rounds, |round| (&round.load, &round.get)),
            counters,
        }
    }

    fn rows(&self) -> [(&'static str, &Operation, Option<&Ratio>); 5] {
        [
            ("memcpy", &self.memcpy, None),
            ("put", &self.put, None),
            ("wait_for_save", &self.wait_for_save, Some(&self.wait_for_save_to_put)),
            ("get", &self.get, None),
            ("load", &self.load, Some(&self.load_to_get)),
        ]
    }
}

impl Operation {
    fn new(cell: &Cell, rounds: &[Round], taken: fn(&Round) -> &Taken) -> Self {
        let (bytes, items) = (cell.round_bytes(), (cell.items() * cell.steps) as f64);
        let cpu =
            sorted(rounds.iter().map(|round| taken(round).cpu.as_nanos() as f64 / 1e3 / items));
        let rate = |round: &Round| bytes as f64 / taken(round).total.as_secs_f64();
        let rates = sorted(rounds.iter().map(rate));
        let each = rounds.iter().flat_map(|round| &taken(round).each);
        let each = sorted(each.map(|took: &Duration| took.as_nanos() as f64 / 1e3));
        let at = |share| quantile(&each, share).unwrap_or(0.0);
        Self {
            bytes_per_sec: quantile(&rates, 0.5).unwrap_or(0.0),
            to_memcpy: Ratio::new(rounds, |round| (taken(round), &round.memcpy)).median,
            cpu_us: quantile(&cpu, 0.5).unwrap_or(0.0),
            count: each.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: at(1.0),
        }
    }

    fn columns(&self, ratio: Option<&Ratio>) -> [String; 8] {
        let raw = ratio.map(|ratio| format!("{:.3}", ratio.median)).unwrap_or_default();
        [
            format!("{:.0}", self.bytes_per_sec / MIB),
            raw,
            format!("{:.3}", self.to_memcpy),
            time(self.cpu_us),
            time(self.p50_us),
            time(self.p90_us),
            time(self.p99_us),
            time(self.max_us),
        ]
    }
}

impl Ratio {
    /// Of the throughputs of the first and the second kind, which moved as much.
    fn new(rounds: &[Round], pair: impl Fn(&Round) -> (&Taken, &Taken)) -> Self {
        let ratio = |round: &Round| {
            let (this, other) = pair(round);
            other.total.as_secs_f64() / this.total.as_secs_f64()
        };
        let ratios = sorted(rounds.iter().map(ratio));
        let at = |share| quantile(&ratios, share).unwrap_or(0.0);
        Self { median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

fn right(text: String) -> TableCell {
    TableCell::new(text).set_alignment(CellAlignment::Right)
}

/// Microseconds with three digits or so.
fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ms: &[u64]) -> Taken {
        let each: Vec<Duration> = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        Taken { total: each.iter().sum(), cpu: each.iter().sum::<Duration>() / 2, each }
    }

    fn report() -> Report {
        let cell = Cell { item_bytes: 4 << 20, concurrency: 1, batch: 2, steps: 2, checksum: true };
        let round = |factor: u64| Round {
            memcpy: taken(&[1, 1, 1, 1]),
            put: taken(&[16 * factor, 16 * factor]),
            save: taken(&[32, 32]),
            get: taken(&[5, 5 * factor]),
            load: taken(&[8, 2000]),
        };
        let rounds = [round(1), round(1), round(2)];
        let puts = [("springtide_puts_total".to_owned(), 4)];
        let counted = Counted { producer: puts.into(), ..Counted::default() };
        Report {
            store: "a store".into(),
            rounds: 3,
            checksum: true,
            processors: 2,
            cells: vec![CellReport::new(&cell, &rounds, counted)],
        }
    }

    #[test]
    fn figures_are_those_of_the_rounds() {
        let cell = report().cells.remove(0);
        // 16 MiB in 32 ms and 64 ms.
        assert_eq!(cell.round_bytes, 16 << 20);
        assert_eq!(cell.put.bytes_per_sec, (16 << 20) as f64 / 0.032);
        assert_eq!(cell.wait_for_save.to_memcpy, 0.0625);
        assert_eq!(cell.wait_for_save_to_put, Ratio { median: 0.5, low: 0.5, high: 1.0 });
        // Half of 32 ms and 64 ms, for 4 items.
        assert_eq!((cell.put.cpu_us, cell.memcpy.cpu_us), (4_000.0, 500.0));
        assert_eq!((cell.put.count, cell.put.p50_us, cell.put.max_us), (6, 16_000.0, 32_000.0));
        assert_eq!((cell.load.p50_us, cell.load.p99_us), (8000.0, 2e6));
    }

    #[test]
    fn the_table() {
        insta::assert_snapshot!(report().table());
    }

    #[test]
    fn the_object() {
        insta::assert_snapshot!(report().to_json());
    }
}
