//! What only hardware can show: a ladder of checks, each run where its hardware is, and otherwise reported as not
//! run, with the reason.
//!
//! | module | what it is |
//! |---|---|
//! | `card` | pinning, copies and their order on a GPU |
//! | `pair` | a producer and a consumer over a store, with tensors in one kind of memory |
//! | `tensors` | the kinds of memory: this host's, a GPU's |
//! | `report` | the table and the JSON |

mod card;
mod pair;
mod report;
mod tensors;
#[cfg(test)]
mod tests;

use springtide::{
    backend::Protocol,
    runtime::{
        TokioClock,
        cuda::{CudaError, Libcuda, Ordinal, Workbench, WorkbenchError},
    },
};
use tokio::runtime::Handle;

pub use self::report::{Figures, Outcome, Report, Rung};
use self::tensors::{Card, Host};
use crate::{
    args::{HwArgs, Need},
    doctor::{Machine, has_card_with_link},
    failure::Failure,
    stores::Target,
};

/// A store over one of Mooncake's transports; none without a master.
pub(crate) struct Stores<T> {
    /// Over tcp.
    pub(crate) tcp: Option<T>,
    /// Over rdma.
    pub(crate) rdma: Option<T>,
}

/// Climbs the ladder.
pub(crate) async fn climb<T: Target>(
    arguments: &HwArgs,
    machine: &Machine,
    stores: &Stores<T>,
    handle: &Handle,
    clock: TokioClock,
) -> Report {
    let card = open(arguments);
    let rdma = match has_card_with_link(machine) {
        true => Ok(()),
        false => Err("no RDMA card with a link that is up".to_owned()),
    };
    let mut report = Report::new(card.as_ref().map(|(name, _)| name.clone()).ok());
    for (need, here) in
        [(Need::Cuda, card.as_ref().map(drop)), (Need::Rdma, rdma.as_ref().map(drop))]
    {
        if let Err(reason) = here {
            report.lacks(need, reason.clone());
        }
    }
    if stores.tcp.is_none() {
        report.lacks(Need::Store, "no master was named (--master HOST:PORT)".into());
    }
    on_card(&mut report, &card, arguments, clock).await;
    let pairs = pair::Pairs { arguments, handle, clock };
    let store = |protocol| match protocol {
        Protocol::Tcp => stores.tcp.as_ref().ok_or_else(|| "no master was named".to_owned()),
        Protocol::Rdma => {
            rdma.clone()?;
            stores.rdma.as_ref().ok_or_else(|| "no master was named".to_owned())
        }
    };
    for (protocol, rungs) in
        [(Protocol::Tcp, ["host-tcp", "cuda-tcp"]), (Protocol::Rdma, ["host-rdma", "cuda-rdma"])]
    {
        let target = store(protocol);
        let host = target.as_ref().map(|target| (*target, &Host)).map_err(Clone::clone);
        report.add(rungs[0], pairs.items(host).await);
        let cuda = target.and_then(|target| Ok((target, &card.as_ref().map_err(Clone::clone)?.1)));
        report.add(rungs[1], pairs.items(cuda).await);
    }
    // A GiB over the best that is here.
    let best = [Protocol::Rdma, Protocol::Tcp].map(store).into_iter().find_map(Result::ok);
    let best = best.ok_or_else(|| "no master was named".to_owned());
    report.add(
        "traffic",
        match (&card, best) {
            (Ok((_, card)), Ok(store)) => pairs.traffic(Ok((store, card))).await,
            (Err(_), best) => pairs.traffic(best.map(|store| (store, &Host))).await,
            (Ok(_), Err(reason)) => Outcome::NotRun { reason },
        },
    );
    report
}

/// The GPU that was asked for, with its name; or why there is none.
fn open(arguments: &HwArgs) -> Result<(String, Card), String> {
    let ordinal = Ordinal(arguments.gpu);
    let named = || -> Result<(String, Card), WorkbenchError> {
        let devices = Libcuda::load()?.devices()?;
        let name =
            devices.into_iter().find(|device| device.ordinal == ordinal).map(|device| device.name);
        Ok((name.unwrap_or_default(), Card(Workbench::open(ordinal)?)))
    };
    named().map_err(|error| match error {
        WorkbenchError::Cuda(CudaError::Absent) => "no libcuda.so.1".into(),
        error => format!("GPU {}: {error}", ordinal.0),
    })
}

async fn on_card(
    report: &mut Report,
    card: &Result<(String, Card), String>,
    arguments: &HwArgs,
    clock: TokioClock,
) {
    for rung in card::RUNGS {
        let outcome = match card {
            Ok((_, card)) => match card::climb(rung, card, arguments, clock).await {
                Ok(figures) => Outcome::Passed { figures },
                Err(failure) => Outcome::Failed { why: failure.to_string() },
            },
            Err(reason) => Outcome::NotRun { reason: reason.clone() },
        };
        report.add(rung, outcome);
    }
}

/// How it ended, for the exit code.
pub(crate) fn verdict(report: &Report, required: &[Need]) -> Result<(), Failure> {
    if let Some((need, reason)) = report.missing(required) {
        return Err(Failure::failed(format!(
            "{} is required, and not here: {reason}",
            need.name()
        )));
    }
    match report.failed() {
        0 => Ok(()),
        failed => Err(Failure::failed(format!("{failed} of the checks that were run failed"))),
    }
}
