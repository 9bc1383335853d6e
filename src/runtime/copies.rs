//! Copies of tensors in host memory, made by the CPU.
//!
//! They go in slices between which other tasks run, so that one large item delays nothing else. Copies out of
//! tensors are made one at a time: side by side they would all end late, and the first put of a step would
//! wait for most of them. Copies into tensors are what an engine waits for, so a large one is shared out among
//! the runtime's threads. All work on any [`HostMemory`]: a device whose tensors lie in memory of another kind,
//! as those of a Python library, has only to say where its bytes are.

use std::{future::Future, ops::Range};

use tokio::{runtime::Handle, sync::Semaphore, task::JoinError};

use super::host::{HostEvent, HostMemory, SLICE, check_length, slices};
use crate::{
    env::{DeviceError, Outcome, Witness},
    pool::{Lease, Transfer, View},
};

/// Bytes copied and then shown: few enough to lie in a processor's own cache, from and to together.
const SHOWN: usize = 128 << 10;

/// Bytes that are worth another thread.
const SHARE: usize = 2 << 20;

/// Copies out of tensors at a time that take more than a slice, in the order in which they begin.
static COPIES_OUT: Semaphore = Semaphore::const_new(1);

/// [`Device::copy_out`](crate::env::Device::copy_out) for a tensor in host memory.
pub fn copy_out(
    tensor: impl HostMemory,
    ready: HostEvent,
    dest: Transfer,
    offset: u64,
) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
    let copy = copy_out_seen(tensor, ready, dest, offset, Nobody);
    async move { copy.await.0 }
}

/// [`Device::copy_out_seen`](crate::env::Device::copy_out_seen) for a tensor in host memory.
pub fn copy_out_seen<W: Witness>(
    tensor: impl HostMemory,
    ready: HostEvent,
    dest: Transfer,
    offset: u64,
    mut witness: W,
) -> impl Future<Output = (Outcome<(), DeviceError>, Option<W>)> + Send + 'static {
    let mut dest = Idle(Some(dest));
    async move {
        ready.wait().await;
        let room = dest.transfer().len().saturating_sub(offset);
        if let Err(error) = check_length(tensor.spec().bytes(), room) {
            return (Outcome::Ended { buffer: dest.finish(), result: Err(error) }, None);
        }
        let len = tensor.spec().bytes() as usize;
        // What is one slice has its turn at once. An error would mean that the semaphore is closed.
        let turn = if len > SLICE { COPIES_OUT.acquire().await.ok() } else { None };
        for slice in slices(0..len, SLICE) {
            for shown in slices(slice, SHOWN) {
                let mut at = offset + shown.start as u64;
                tensor.read(shown, &mut |bytes| {
                    dest.transfer().write_at(at, bytes);
                    witness.see(bytes);
                    at += bytes.len() as u64;
                });
            }
            tokio::task::yield_now().await;
        }
        drop(turn);
        (Outcome::Ended { buffer: dest.finish(), result: Ok(()) }, Some(witness))
    }
}

/// A witness for copies that nobody needs to see.
struct Nobody;

impl Witness for Nobody {
    fn see(&mut self, _bytes: &[u8]) {}
}

/// [`Device::copy_in`](crate::env::Device::copy_in) for a tensor in host memory.
pub async fn copy_in(
    source: View,
    offset: u64,
    tensor: impl HostMemory,
    free: HostEvent,
) -> Result<(), DeviceError> {
    free.wait().await;
    let room = source.len().saturating_sub(offset);
    check_length(tensor.spec().bytes(), room)?;
    let runtime = Handle::try_current().ok();
    let threads = runtime.as_ref().map_or(1, |runtime| runtime.metrics().num_workers());
    let mut shares = shares(tensor.spec().bytes() as usize, threads);
    let own = shares.next().unwrap_or(0..0);
    let copy = |share| copy_share(source.clone(), offset, tensor.clone(), share);
    // One thread, one share: without a runtime there are no others.
    let others = shares.filter_map(|share| Some(runtime.as_ref()?.spawn(copy(share))));
    let others: Vec<_> = others.collect();
    copy_share(source, offset, tensor, own).await;
    for other in others {
        other.await.map_err(lost)?;
    }
    Ok(())
}

/// Copies a part of a tensor.
async fn copy_share(source: View, offset: u64, tensor: impl HostMemory, share: Range<usize>) {
    for slice in slices(share, SLICE) {
        let mut at = offset + slice.start as u64;
        tensor.write(slice, &mut |bytes| {
            source.read_at(at, bytes);
            at += bytes.len() as u64;
        });
        tokio::task::yield_now().await;
    }
}

/// The runtime has ended, or the copy panicked.
fn lost(error: JoinError) -> DeviceError {
    DeviceError::Device { code: 0, message: format!("a part of the copy was lost: {error}") }
}

/// Shares of `len` bytes, as many as there are threads or as are worth one.
fn shares(len: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let count = threads.min(len / SHARE).max(1);
    slices(0..len, len.div_ceil(count).next_multiple_of(SLICE).max(SLICE))
}

/// Memory that only the future's own polls touch: when the future is dropped, nothing runs any more.
struct Idle(Option<Transfer>);

impl Idle {
    fn transfer(&mut self) -> &mut Transfer {
        self.0.as_mut().expect("present until finish")
    }

    fn finish(mut self) -> Lease {
        self.0.take().expect("present until finish").finish()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(transfer) = self.0.take() {
            drop(transfer.finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use super::*;
    use crate::{
        env::{DType, Device, Shape, TensorSpec},
        pool::{Contiguity, Pool, PoolConfig},
        runtime::{HostDevice, HostTensor},
    };

    /// Rows of a tensor that ends in the middle of a slice and of what is shown at a time.
    const ROWS: u64 = 5 * 1024 + 3;

    fn tensor(rows: u64) -> HostTensor {
        let spec = TensorSpec::new(DType::U8, Shape::rows(rows, 1024).unwrap()).unwrap();
        HostTensor::new(spec, (0..spec.bytes()).map(|n| (n % 251) as u8).collect()).unwrap()
    }

    fn dest(pool: &Pool, tensor: &HostTensor) -> Transfer {
        pool.allocate(tensor.spec().bytes() + 64, Contiguity::Extents).unwrap().into_transfer()
    }

    fn pool() -> Pool {
        Pool::new(&PoolConfig::with_bytes(24 << 20)).unwrap()
    }

    /// Keeps what it sees.
    #[derive(Default)]
    struct Seen(Vec<u8>);

    impl Witness for Seen {
        fn see(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }

    #[tokio::test]
    async fn a_witness_sees_what_is_copied() {
        let (pool, tensor) = (pool(), tensor(ROWS));
        let copy = HostDevice.copy_out_seen(
            tensor.clone(),
            HostEvent::ready(),
            dest(&pool, &tensor),
            64,
            Seen::default(),
        );
        let (Outcome::Ended { buffer, result: Ok(()) }, Some(seen)) = copy.await else {
            panic!("expected a copy and its witness")
        };
        assert!(seen.0 == tensor.to_vec());
        let mut copied = vec![0; seen.0.len()];
        buffer.read_at(64, &mut copied);
        assert!(copied == seen.0);
    }

    #[tokio::test]
    async fn copies_out_take_turns_and_let_others_run() {
        let (pool, tensor) = (pool(), tensor(ROWS));
        let copy =
            || HostDevice.copy_out(tensor.clone(), HostEvent::ready(), dest(&pool, &tensor), 64);
        let (mut first, mut second) = (pin!(copy()), pin!(copy()));
        let (mut polls, mut both) = (0, 0);
        let order = std::future::poll_fn(|cx| {
            polls += 1;
            match first.as_mut().poll(cx) {
                Poll::Ready(_) => return Poll::Ready("first"),
                Poll::Pending => both += usize::from(polls > 1),
            }
            second.as_mut().poll(cx).map(|_| "second")
        });
        // The second has begun its wait behind the first, whatever other tests copy meanwhile.
        assert_eq!(order.await, "first");
        assert!(both >= 5, "one look at others a slice, got {both}");
        assert!(matches!(second.await, Outcome::Ended { result: Ok(()), .. }));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn several_threads_fill_a_tensor() {
        let (pool, tensor) = (pool(), tensor(8 * 1024 + 5));
        let copy =
            HostDevice.copy_out(tensor.clone(), HostEvent::ready(), dest(&pool, &tensor), 64);
        let Outcome::Ended { buffer, result: Ok(()) } = copy.await else {
            panic!("expected a copy")
        };
        let pin = buffer.publish(0);
        let view = pool.mapper().view(&pin.descriptor()).unwrap();
        let loaded = HostTensor::zeros(tensor.spec());
        HostDevice.copy_in(view, 64, loaded.clone(), HostEvent::ready()).await.unwrap();
        assert!(loaded.to_vec() == tensor.to_vec());
    }

    #[test]
    fn shares_are_whole_and_worth_a_thread() {
        const MIB: usize = 1 << 20;
        let ends = |len, threads| shares(len, threads).map(|share| share.end).collect::<Vec<_>>();
        assert_eq!(ends(0, 2), [0_usize; 0]);
        assert_eq!(ends(5, 2), [5]);
        assert_eq!(ends(4 * MIB - 1, 2), [4 * MIB - 1]);
        assert_eq!(ends(4 * MIB, 2), [2 * MIB, 4 * MIB]);
        assert_eq!(ends(16 * MIB, 1), [16 * MIB]);
        assert_eq!(ends(9 * MIB + 7, 3), [4 * MIB, 8 * MIB, 9 * MIB + 7]);
    }
}
