//! The same plans on both engines, and whether the judgement is the same.
//!
//! The two move messages at other instants (one at ticks, the other when their latency is over), so their traces
//! differ by less than a tick here and there, and whatever hangs on such a difference, too: which of two saves was
//! first, whether a request came before its item. What must not differ is the judgement: the promise that is
//! broken, if one is, and whether a scenario's expectation is met.

use std::{ops::ControlFlow, path::Path};

use crate::{
    campaign::{Job, Verdict, campaign},
    oracle::OracleId,
    world::engine::EngineKind,
};

/// What the two engines say of one plan.
#[derive(Clone, Debug)]
pub struct Both {
    /// Of turmoil.
    pub turmoil: Verdict,
    /// Of the fast one.
    pub fast: Verdict,
}

impl Both {
    /// Whether they judge alike.
    pub fn agree(&self) -> bool {
        broken(&self.turmoil) == broken(&self.fast)
    }
}

/// Runs every job on both engines; calls `done` after each run.
pub fn on_both(
    jobs: &[Job],
    threads: usize,
    directory: &Path,
    done: &(dyn Fn(&Verdict) -> ControlFlow<()> + Sync),
) -> Vec<Both> {
    let [turmoil, fast] = [EngineKind::Turmoil, EngineKind::Fast].map(|engine| {
        let jobs: Vec<Job> = jobs.iter().map(|job| Job { engine, ..job.clone() }).collect();
        campaign(&jobs, threads, directory, done)
    });
    turmoil.into_iter().zip(fast).map(|(turmoil, fast)| Both { turmoil, fast }).collect()
}

/// The promise that a run broke.
pub fn broken(verdict: &Verdict) -> Option<OracleId> {
    verdict.failure.as_ref().map(|failure| failure.violation.oracle)
}
