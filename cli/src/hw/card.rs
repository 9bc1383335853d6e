//! What a GPU shows without a store: locked memory, copies, and their order.

use std::time::Duration;

use springtide::{
    env::{Clock, DType, Device, Outcome, Shape, TensorSpec},
    pool::{Contiguity, Lease, Pool, PoolConfig},
    runtime::{
        TokioClock,
        cuda::{CudaDevice, CudaTensor, Libcuda},
    },
};

use super::{
    pair::content,
    report::Figures,
    tensors::{Card, Tensors},
};
use crate::{args::HwArgs, failure::Failure};

/// In the order of the ladder.
pub(super) const RUNGS: [&str; 4] = ["pin", "bandwidth", "late", "extents"];

/// Units of the pool, each a piece of its own length: powers of two of it lie in one extent.
const UNIT: u64 = (1 << 20) + 64;
/// Longer than any copy.
const LIMIT: Duration = Duration::from_secs(60);
/// How late the late kernel is.
const LATE: Duration = Duration::from_millis(50);

/// Runs a rung.
pub(super) async fn climb(
    rung: &str,
    card: &Card,
    arguments: &HwArgs,
    clock: TokioClock,
) -> Result<Vec<Figures>, Failure> {
    let device = card.device()?;
    let bench = Bench { card, device, rounds: arguments.rounds.into(), clock };
    match rung {
        "pin" => bench.pin(),
        "bandwidth" => bench.bandwidth().await,
        "late" => bench.late().await,
        _ => bench.extents().await,
    }
}

struct Bench<'a> {
    card: &'a Card,
    device: CudaDevice<Libcuda>,
    rounds: usize,
    clock: TokioClock,
}

impl Bench<'_> {
    fn pool(&self, units: u64) -> Result<Pool, Failure> {
        let config = PoolConfig { unit_payload: 1 << 20, ..PoolConfig::with_bytes(units * UNIT) };
        Pool::new(&config).map_err(Failure::failed)
    }

    /// A pool whose pages are locked.
    fn locked(&self, units: u64) -> Result<Pool, Failure> {
        let pool = self.pool(units)?;
        self.card.lock(&self.device, pool.region())?;
        Ok(pool)
    }

    /// Locks a GiB of a pool, once each for new memory.
    fn pin(&self) -> Result<Vec<Figures>, Failure> {
        let (mut times, mut bytes) = (Vec::new(), 0);
        for _ in 0..3 {
            let (pool, device) = (self.pool(1024)?, self.card.device()?);
            bytes = pool.region().len();
            let started = self.clock.now();
            self.card.lock(&device, pool.region())?;
            times.push(self.clock.now() - started);
        }
        Ok(vec![Figures::new("lock", bytes, times)])
    }

    async fn bandwidth(&self) -> Result<Vec<Figures>, Failure> {
        let (pool, len) = (self.locked(192)?, 64 * UNIT);
        let tensor = self.card.tensor(spec(len)?, &content(1, len))?;
        let mut other = vec![1; len as usize];
        let (mut out, mut back, mut plain_out, mut plain_back) = (vec![], vec![], vec![], vec![]);
        for _ in 0..self.rounds {
            let (lease, took) = self.out(&pool, &tensor).await?;
            out.push(took);
            back.push(self.back(&pool, lease, &tensor).await?);
            let started = self.clock.now();
            self.card.0.read_into(&tensor, &mut other).map_err(Failure::failed)?;
            plain_out.push(self.clock.now() - started);
            let started = self.clock.now();
            self.card.0.write(&tensor, &other).map_err(Failure::failed)?;
            plain_back.push(self.clock.now() - started);
        }
        same(&content(1, len), &self.card.read(&tensor)?, "after all copies")?;
        Ok(vec![
            Figures::new("device to host, locked", len, out),
            Figures::new("device to host, not locked", len, plain_out),
            Figures::new("host to device, locked", len, back),
            Figures::new("host to device, not locked", len, plain_back),
        ])
    }

    /// A copy behind a kernel that is late has what the kernel writes; one into its memory overwrites it.
    async fn late(&self) -> Result<Vec<Figures>, Failure> {
        let (pool, len) = (self.locked(16)?, 4 * UNIT);
        let tensor = self.card.tensor(spec(len)?, &vec![1; len as usize])?;
        let mut times = Vec::new();
        for round in 0..self.rounds.min(20) {
            let byte = 2 + round as u8;
            let started = self.clock.now();
            self.card.0.late_fill(&tensor, byte, LATE).map_err(Failure::failed)?;
            let (lease, took) = self.out(&pool, &tensor).await?;
            if self.clock.now() - started < LATE {
                return Err(Failure::failed("the kernel was not late: nothing was shown"));
            }
            times.push(took);
            let mut got = vec![0; len as usize];
            lease.read_at(0, &mut got);
            same(&vec![byte; len as usize], &got, "copied out behind a late kernel")?;
            drop(lease);
            let mut lease = pool.allocate(len, Contiguity::Extents).map_err(Failure::failed)?;
            lease.write_at(0, &content(9, len));
            self.card.0.late_fill(&tensor, byte, LATE).map_err(Failure::failed)?;
            self.back(&pool, lease, &tensor).await?;
            same(&content(9, len), &self.card.read(&tensor)?, "copied in behind a late kernel")?;
        }
        Ok(vec![Figures::new("copy out behind a kernel of 50 ms", len, times)])
    }

    /// Units of one, two and four binary digits lie in as many extents.
    async fn extents(&self) -> Result<Vec<Figures>, Failure> {
        let mut figures = Vec::new();
        for (extents, units) in [(1, 0b1_0000), (2, 0b1_1000), (4, 0b1_1110)] {
            let (pool, len) = (self.locked(64)?, units * UNIT);
            let tensor = self.card.tensor(spec(len)?, &content(extents, len))?;
            let (mut out, mut back) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                let (lease, took) = self.out(&pool, &tensor).await?;
                if lease.extents().len() as u64 != extents {
                    let text = format!("{} extents, expected {extents}", lease.extents().len());
                    return Err(Failure::failed(text));
                }
                out.push(took);
                back.push(self.back(&pool, lease, &tensor).await?);
            }
            figures.push(Figures::new(format!("device to host, {extents} extents"), len, out));
            figures.push(Figures::new(format!("host to device, {extents} extents"), len, back));
        }
        Ok(figures)
    }

    /// Copies a tensor into the pool, behind everything that the engine has; how long that took.
    async fn out(&self, pool: &Pool, tensor: &CudaTensor) -> Result<(Lease, Duration), Failure> {
        let len = self.device.spec(tensor).bytes();
        let lease = pool.allocate(len, Contiguity::Extents).map_err(Failure::failed)?;
        let started = self.clock.now();
        let ready = self.card.event()?;
        let copy = self.device.copy_out(tensor.clone(), ready, lease.into_transfer(), 0);
        let late = |_| Failure::failed(format!("a copy out did not end within {LIMIT:?}"));
        match self.clock.timeout_at(started + LIMIT, copy).await.map_err(late)? {
            Outcome::Ended { buffer, result } => {
                let took = self.clock.now() - started;
                result.map(|()| (buffer, took)).map_err(Failure::failed)
            }
            Outcome::Uncertain { error, .. } => Err(Failure::failed(error)),
        }
    }

    /// Copies what a lease holds into a tensor, behind everything that the engine has.
    async fn back(
        &self,
        pool: &Pool,
        lease: Lease,
        tensor: &CudaTensor,
    ) -> Result<Duration, Failure> {
        let pin = lease.publish(0);
        let view = pool.mapper().view(&pin.descriptor()).map_err(Failure::failed)?;
        let started = self.clock.now();
        let copy = self.device.copy_in(view, 0, tensor.clone(), self.card.event()?);
        let late = |_| Failure::failed(format!("a copy in did not end within {LIMIT:?}"));
        let copied = self.clock.timeout_at(started + LIMIT, copy).await.map_err(late)?;
        copied.map_err(Failure::failed)?;
        let took = self.clock.now() - started;
        let handle = pin.handle();
        drop(pin);
        pool.discard(handle).map_err(Failure::failed)?;
        Ok(took)
    }
}

fn spec(len: u64) -> Result<TensorSpec, Failure> {
    let shape = Shape::new(&[len]).map_err(Failure::failed)?;
    TensorSpec::new(DType::U8, shape).map_err(Failure::failed)
}

fn same(expected: &[u8], got: &[u8], when: &str) -> Result<(), Failure> {
    match expected.iter().zip(got).position(|(expected, got)| expected != got) {
        None if expected.len() == got.len() => Ok(()),
        at => {
            let at = at.unwrap_or(0);
            let (expected, got) = (expected.get(at), got.get(at));
            Err(Failure::failed(format!("{when}: byte {at} is {got:?}, expected {expected:?}")))
        }
    }
}
