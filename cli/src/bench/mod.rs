//! What the connector costs on top of a store: the same bytes moved by the store's own calls, by the
//! connector, and by a copy in memory, in turn.
//!
//! A *cell* is an item size, a number of calls at a time and a number of items a call. Each cell has two
//! instances of its own, a producer and a consumer, and a *step* of it moves calls × items: the raw calls
//! do so in as many batch calls at a time, the connector by as many saves and one `wait_for_save`, or by one
//! request for all; what the connector may have in flight and in one batch is set to the same. A *round*
//! does some steps of each kind, every second one in the other order, so that whatever else the machine
//! does hits all kinds alike. Ratios are taken within a round; the report has their median. Processor time, which
//! other work disturbs less, is that of this process: the connector and the store's client, not its server.
//!
//! | module | what it is |
//! |---|---|
//! | `plan` | the cells |
//! | `bed` | the two instances of a cell |
//! | `raw` | the store's own calls |
//! | `connector` | the same through the connector |
//! | `stats` | quantiles |
//! | `report` | the table and the JSON object |

mod bed;
mod connector;
mod plan;
mod raw;
mod report;
mod stats;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use springtide::{env::Clock, runtime::TokioClock};
use tokio::runtime::Handle;

use self::bed::Bed;
pub use self::{
    plan::{Cell, Plan},
    report::{CellReport, Counted, Operation, Ratio, Report},
};
use crate::{failure::Failure, stores::Target};

/// Rounds of a cell that are not measured: memory is touched for the first time, connections are made.
const WARM_UP: u64 = 2;

/// What one kind of work took in one round.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// All of it.
    total: Duration,
    /// What this process's threads computed meanwhile, the store's among them.
    cpu: Duration,
    /// Each call, or each step of the connector.
    each: Vec<Duration>,
}

/// What a round took.
#[derive(Clone, Debug, Default)]
struct Round {
    memcpy: Taken,
    put: Taken,
    save: Taken,
    get: Taken,
    load: Taken,
}

/// Measures all cells of the plan. `step` is called after each round.
///
/// # Errors
/// [`Failure`] at the first call that fails: a figure that leaves failures out says nothing.
pub async fn measure<T: Target>(
    target: &T,
    plan: &Plan,
    handle: &Handle,
    clock: TokioClock,
    step: &(dyn Fn(&str) + Sync),
) -> Result<Report, Failure> {
    let mut cells = Vec::new();
    for cell in plan.cells() {
        let mut bed = Bed::open(target, &cell, handle, clock).await?;
        let mut rounds = Vec::new();
        for round in 0..WARM_UP + u64::from(plan.rounds) {
            let measured = measure_round(&mut bed, round).await?;
            if round == 0 {
                bed.compare()?;
            } else if round >= WARM_UP {
                rounds.push(measured);
            }
            step(&cell.to_string());
        }
        let counted = bed.close().await?;
        cells.push(CellReport::new(&cell, &rounds, counted));
    }
    Ok(Report::new(target.name(), plan, cells))
}

async fn measure_round<T: Target>(bed: &mut Bed<'_, T>, round: u64) -> Result<Round, Failure> {
    let mut measured = Round { memcpy: bed.memcpy(), ..Round::default() };
    bed.begin(round);
    if round.is_multiple_of(2) {
        measured.put = bed.put().await?;
        measured.save = bed.save().await?;
        measured.get = bed.get().await?;
        measured.load = bed.load().await?;
    } else {
        measured.save = bed.save().await?;
        measured.put = bed.put().await?;
        measured.load = bed.load().await?;
        measured.get = bed.get().await?;
    }
    bed.clear().await?;
    Ok(measured)
}

/// Processor time that this process has used so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Both are positive, by the system's contract.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work`, and how long it took.
fn timed<R>(clock: &TokioClock, work: impl FnOnce() -> R) -> (R, Duration) {
    let started = clock.now();
    let result = work();
    (result, clock.now() - started)
}
