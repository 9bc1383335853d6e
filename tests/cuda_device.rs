//! The device on CUDA against a driver that models streams, events and late kernels: copies are ordered by
//! events, own what they use until they are done, and give everything back. Each rule is also shown to be looked
//! at: a driver that leaves the call out is reported.

use std::{future::Future, time::Duration};

use springtide::{
    env::{Clock, DType, Device, DeviceError, Outcome, Shape, TensorSpec},
    pool::{Contiguity, Pin, Pool, PoolConfig, Transfer},
    runtime::{
        TokioClock,
        cuda::{CudaDevice, CudaEvent, CudaTensor, Driver, Ordinal, Stream},
    },
};
use springtide_testing::cuda::{Bug, FakeCuda, Planted};

/// Bytes of a tensor: several pages, and no multiple of anything.
const LEN: u64 = 20_001;
/// Bytes in front of it in the pool.
const HEADER: u64 = 64;
/// Bytes that both take in the pool: whole units.
const HELD: u64 = (HEADER + LEN).next_multiple_of(512 + 64);
const CHUNK: u64 = 8192;
const FIRST: Ordinal = Ordinal(0);
const SECOND: Ordinal = Ordinal(1);

fn spec() -> TensorSpec {
    TensorSpec::new(DType::U8, Shape::new(&[LEN]).unwrap()).unwrap()
}

fn pool() -> Pool {
    let config = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(300 * 576) };
    Pool::new(&config).unwrap()
}

fn transfer(pool: &Pool) -> Transfer {
    pool.allocate(HEADER + LEN, Contiguity::Extents).unwrap().into_transfer()
}

/// An item of the pool that is full of `byte`.
fn item(pool: &Pool, byte: u8) -> Pin {
    let mut lease = pool.allocate(HEADER + LEN, Contiguity::Extents).unwrap();
    lease.write_at(0, &vec![byte; (HEADER + LEN) as usize]);
    lease.publish(1)
}

/// Waits for what must come.
fn come<T>(future: impl Future<Output = T> + Send) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let clock = TokioClock::new();
    runtime.block_on(async {
        let limit = clock.now() + Duration::from_secs(60);
        clock.timeout_at(limit, future).await.expect("it comes")
    })
}

/// Waits until something is so.
fn until(what: impl Fn() -> bool + Send + Sync) {
    let clock = TokioClock::new();
    come(async {
        while !what() {
            clock.sleep(Duration::from_millis(1)).await;
        }
    });
}

struct Bed<D: Driver> {
    cuda: FakeCuda,
    device: CudaDevice<D>,
    engine: Stream,
    pool: Pool,
}

impl Bed<FakeCuda> {
    fn new() -> Self {
        let cuda = FakeCuda::default();
        let engine = cuda.engine_stream(FIRST);
        Self { device: CudaDevice::new(cuda.clone(), CHUNK).unwrap(), cuda, engine, pool: pool() }
    }
}

impl Bed<Planted> {
    fn planted(bug: Bug) -> Self {
        let cuda = FakeCuda::default();
        let engine = cuda.engine_stream(FIRST);
        let device = CudaDevice::new(Planted::new(cuda.clone(), bug, engine), CHUNK).unwrap();
        Self { device, cuda, engine, pool: pool() }
    }
}

impl<D: Driver> Bed<D> {
    /// A tensor of a device full of `byte`, and its address.
    fn tensor(&self, ordinal: Ordinal, byte: u8) -> (CudaTensor, u64) {
        let block = self.cuda.allocate(ordinal, vec![byte; LEN as usize]);
        let address = block.address();
        (block.tensor(spec(), self.engine), address)
    }

    fn in_flight(&self) -> u64 {
        self.pool.usage().in_flight
    }
}

/// What a copy out gave: the bytes behind the header.
fn delivered(outcome: Outcome<(), DeviceError>) -> Vec<u8> {
    match outcome {
        Outcome::Ended { buffer, result: Ok(()) } => {
            let mut bytes = vec![0; LEN as usize];
            buffer.read_at(HEADER, &mut bytes);
            bytes
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn f017_f072_a_copy_out_waits_for_the_kernel_that_produces_the_tensor() {
    let bed = Bed::new();
    let (tensor, address) = bed.tensor(FIRST, 1);
    let kernel = bed.cuda.fill(FIRST, bed.engine, address, 7);
    let ready = bed.device.mark(FIRST, bed.engine).unwrap();
    let copy = bed.device.copy_out(tensor, ready, transfer(&bed.pool), HEADER);
    bed.cuda.run();
    assert_eq!(bed.in_flight(), HELD, "the memory is lent until the kernel and the copy are done");
    bed.cuda.let_go(kernel);
    bed.cuda.run();
    assert_eq!(delivered(come(copy)), [7; LEN as usize]);
    assert_eq!(bed.cuda.violations(), [""; 0]);
}

#[test]
fn f073_a_copy_in_waits_for_the_last_reader_and_the_next_one_waits_for_it() {
    let bed = Bed::new();
    let (tensor, address) = bed.tensor(FIRST, 1);
    let pin = item(&bed.pool, 9);
    let before = bed.cuda.read(FIRST, bed.engine, address);
    let free = bed.device.mark(FIRST, bed.engine).unwrap();
    let view = bed.pool.mapper().view(&pin.descriptor()).unwrap();
    let copy = bed.device.copy_in(view, HEADER, tensor.clone(), free);
    let after = bed.cuda.read(FIRST, bed.engine, address);
    bed.cuda.let_go(after);
    bed.cuda.run();
    assert_eq!(bed.cuda.bytes(address), [1; LEN as usize], "the first reader is not done");
    bed.cuda.let_go(before);
    bed.cuda.run();
    assert_eq!(come(copy), Ok(()));
    assert_eq!(bed.cuda.bytes(address), [9; LEN as usize]);
    assert_eq!(bed.cuda.violations(), [""; 0]);
}

/// Both ways on one device, and out of another one, with kernels that are late.
fn traffic(bug: Bug) -> Vec<String> {
    let bed = Bed::planted(bug);
    let (produced, address) = bed.tensor(FIRST, 1);
    let writer = bed.cuda.fill(FIRST, bed.engine, address, 7);
    let ready = bed.device.mark(FIRST, bed.engine).unwrap();
    let out = bed.device.copy_out(produced, ready, transfer(&bed.pool), HEADER);

    let (target, address) = bed.tensor(FIRST, 2);
    let pin = item(&bed.pool, 9);
    let reader = bed.cuda.read(FIRST, bed.engine, address);
    let free = bed.device.mark(FIRST, bed.engine).unwrap();
    let view = bed.pool.mapper().view(&pin.descriptor()).unwrap();
    let back = bed.device.copy_in(view, HEADER, target.clone(), free);
    let next = bed.cuda.read(FIRST, bed.engine, address);

    let (other, _) = bed.tensor(SECOND, 3);
    let elsewhere = bed.device.copy_out(other, CudaEvent::ready(), transfer(&bed.pool), HEADER);

    if bug == Bug::TakenForDone {
        // The caller believes it, and uses the memory for something else.
        drop(come(out));
        return bed.cuda.violations();
    }
    for kernel in [writer, reader, next] {
        bed.cuda.let_go(kernel);
    }
    bed.cuda.run();
    drop((come(out), come(elsewhere)));
    come(back).unwrap();
    bed.cuda.violations()
}

#[test]
fn every_rule_is_looked_at() {
    assert_eq!(traffic(Bug::None), [""; 0]);
    for (bug, report) in [
        (Bug::NoWaitBefore, "race: copy out is not ordered after a kernel that writes"),
        (Bug::NoWaitBefore, "race: copy in is not ordered after a kernel that reads"),
        (Bug::NoWaitAfter, "race: a kernel that reads is not ordered after copy in"),
        (Bug::TakenForDone, "device memory was freed under work that uses it"),
        (Bug::DefaultStream, "copy out on the default stream"),
        (Bug::FirstDevice, "copy out of memory of device 1 on a stream of device 0"),
    ] {
        let found = traffic(bug);
        assert!(found.iter().any(|text| text == report), "{bug:?}: {found:?}");
    }
}

#[test]
fn memory_that_was_taken_for_done_is_found_when_it_is_used_again() {
    let bed = Bed::planted(Bug::TakenForDone);
    let dest = transfer(&bed.pool);
    let copy = bed.device.copy_out(bed.tensor(FIRST, 1).0, CudaEvent::ready(), dest, HEADER);
    drop(come(copy));
    // The same bytes of the pool, for a tensor of the other device: its streams wait for nothing of the first.
    let again = transfer(&bed.pool);
    let copy = bed.device.copy_out(bed.tensor(SECOND, 1).0, CudaEvent::ready(), again, HEADER);
    drop(come(copy));
    let report = "race: copy out is not ordered after copy out";
    assert!(bed.cuda.violations().iter().any(|text| text == report), "{:?}", bed.cuda.violations());

    // Once the first has really ended, its memory may be used again.
    let bed = Bed::new();
    for ordinal in [FIRST, SECOND] {
        let (tensor, _) = bed.tensor(ordinal, 1);
        let copy = bed.device.copy_out(tensor, CudaEvent::ready(), transfer(&bed.pool), HEADER);
        bed.cuda.run();
        drop(come(copy));
    }
    assert_eq!(bed.cuda.violations(), [""; 0]);
}

#[test]
fn a_caller_that_stops_waiting_frees_nothing() {
    let bed = Bed::new();
    let (tensor, address) = bed.tensor(FIRST, 1);
    let kernel = bed.cuda.fill(FIRST, bed.engine, address, 7);
    let ready = bed.device.mark(FIRST, bed.engine).unwrap();
    drop(bed.device.copy_out(tensor, ready, transfer(&bed.pool), HEADER));
    bed.cuda.run();
    assert_eq!(bed.in_flight(), HELD);
    bed.cuda.let_go(kernel);
    bed.cuda.run();
    until(|| bed.in_flight() == 0);
    let usage = bed.pool.usage();
    assert_eq!((usage.free, usage.quarantined), (usage.total, 0));
    assert_eq!(bed.cuda.violations(), [""; 0]);
}

#[test]
fn a_device_that_is_dropped_under_a_copy_gives_everything_back_after_it() {
    let bed = Bed::new();
    bed.device.lock(FIRST, bed.pool.region()).unwrap();
    let (tensor, address) = bed.tensor(FIRST, 1);
    let kernel = bed.cuda.fill(FIRST, bed.engine, address, 7);
    let ready = bed.device.mark(FIRST, bed.engine).unwrap();
    let copy = bed.device.copy_out(tensor, ready, transfer(&bed.pool), HEADER);
    let Bed { cuda, device, pool, .. } = bed;
    drop(device);
    cuda.run();
    assert!(!cuda.locked().is_empty(), "a copy is under way");
    assert_eq!(cuda.shares(FIRST), 2);
    cuda.let_go(kernel);
    cuda.run();
    assert_eq!(delivered(come(copy)), [7; LEN as usize]);
    until(|| cuda.shares(FIRST) == 1);
    assert_eq!(cuda.locked(), [0; 0]);
    assert_eq!(cuda.violations(), [""; 0]);
    pool.verify().unwrap();

    // Taken for done, all of it goes too early.
    let bed = Bed::planted(Bug::TakenForDone);
    bed.device.lock(FIRST, bed.pool.region()).unwrap();
    let (tensor, _) = bed.tensor(FIRST, 1);
    drop(come(bed.device.copy_out(tensor, CudaEvent::ready(), transfer(&bed.pool), HEADER)));
    let Bed { cuda, device, pool: _pool, .. } = bed;
    drop(device);
    until(|| cuda.shares(FIRST) == 1);
    for report in ["pages were unlocked under a copy", "a stream was destroyed under its work"] {
        assert!(cuda.violations().iter().any(|text| text == report), "{:?}", cuda.violations());
    }
}

#[test]
fn a_region_is_locked_in_chunks_and_no_copy_crosses_one() {
    let bed = Bed::new();
    bed.device.lock(FIRST, bed.pool.region()).unwrap();
    bed.device.lock(SECOND, bed.pool.region()).unwrap();
    let locked = bed.cuda.locked();
    let bytes = bed.pool.region().len().next_multiple_of(4096);
    assert_eq!(locked.iter().sum::<u64>(), bytes, "once, whole pages");
    assert!(locked.iter().all(|len| *len <= CHUNK), "{locked:?}");
    // The driver refuses a copy that crosses from one locked range into the next.
    let copies: Vec<_> = (0..6)
        .map(|byte| {
            let (tensor, _) = bed.tensor(FIRST, byte);
            bed.device.copy_out(tensor, CudaEvent::ready(), transfer(&bed.pool), HEADER)
        })
        .collect();
    bed.cuda.run();
    for (byte, copy) in copies.into_iter().enumerate() {
        assert_eq!(delivered(come(copy)), [byte as u8; LEN as usize]);
    }
}

#[test]
fn f096_a_lock_that_fails_half_way_locks_nothing_and_says_why() {
    let bed = Bed::new();
    bed.cuda.fail("lock_pages", 2, 2);
    let error = bed.device.lock(FIRST, bed.pool.region()).unwrap_err();
    assert_eq!((error.code(), error.to_string()), (2, "lock_pages: CUDA_ERROR (2)".into()));
    assert_eq!(bed.cuda.locked(), [0; 0]);
    // It can be tried again.
    bed.device.lock(FIRST, bed.pool.region()).unwrap();
}

/// The end of a copy out whose `call` fails after `before` others.
fn failing(call: &'static str, before: u32) -> (Bed<FakeCuda>, Outcome<(), DeviceError>) {
    let bed = Bed::new();
    bed.device.lock(FIRST, bed.pool.region()).unwrap();
    let (tensor, _) = bed.tensor(FIRST, 1);
    let ready = bed.device.mark(FIRST, bed.engine).unwrap();
    bed.cuda.fail(call, before, 700);
    let copy = bed.device.copy_out(tensor, ready, transfer(&bed.pool), HEADER);
    bed.cuda.run();
    let outcome = come(copy);
    (bed, outcome)
}

#[test]
fn calls_that_fail_before_any_work_give_the_memory_back() {
    for call in ["create_event", "wait", "copy_out"] {
        match failing(call, 0) {
            (
                bed,
                Outcome::Ended { buffer, result: Err(DeviceError::Device { code: 700, .. }) },
            ) => {
                drop(buffer);
                assert_eq!(bed.pool.usage().free, bed.pool.usage().total, "{call}");
                assert_eq!(bed.cuda.violations(), [""; 0]);
            }
            (_, other) => panic!("{call}: {other:?}"),
        }
    }
}

#[test]
fn calls_that_fail_later_give_it_back_only_when_the_rest_is_done() {
    // The item lies in several chunks: the second piece is refused.
    let (bed, outcome) = failing("copy_out", 1);
    assert!(matches!(outcome, Outcome::Ended { result: Err(_), .. }), "{outcome:?}");
    assert_eq!(bed.cuda.violations(), [""; 0]);
    // Nothing tells how far the work came.
    for call in ["record", "query"] {
        let (bed, outcome) = failing(call, 0);
        assert!(matches!(outcome, Outcome::Uncertain { .. }), "{call}: {outcome:?}");
        drop(outcome);
        assert_eq!(bed.pool.usage().quarantined, HELD, "{call}");
    }
}

#[test]
fn a_tensor_that_a_copy_may_still_write_is_kept() {
    for (call, before) in [("record", 0), ("query", 0)] {
        let bed = Bed::new();
        let (tensor, address) = bed.tensor(FIRST, 1);
        let pin = item(&bed.pool, 9);
        let view = bed.pool.mapper().view(&pin.descriptor()).unwrap();
        bed.cuda.fail(call, before, 700);
        let copy = bed.device.copy_in(view, HEADER, tensor, CudaEvent::ready());
        assert!(matches!(come(copy), Err(DeviceError::Device { code: 700, .. })), "{call}");
        bed.cuda.run();
        assert_eq!(bed.cuda.bytes(address), [9; LEN as usize], "the late copy found its memory");
        assert_eq!(bed.cuda.violations(), [""; 0]);
    }
}

#[test]
fn an_engine_that_cannot_be_held_back_is_an_error() {
    let bed = Bed::new();
    let (tensor, _) = bed.tensor(FIRST, 1);
    let pin = item(&bed.pool, 9);
    let view = bed.pool.mapper().view(&pin.descriptor()).unwrap();
    bed.cuda.fail("wait", 0, 700);
    let copy = bed.device.copy_in(view, HEADER, tensor, CudaEvent::ready());
    bed.cuda.run();
    assert!(matches!(come(copy), Err(DeviceError::Device { code: 700, .. })));
}

#[test]
fn a_context_that_cannot_be_used_is_released() {
    for (call, before) in [("create_stream", 0), ("create_stream", 1)] {
        let bed = Bed::new();
        bed.cuda.fail(call, before, 2);
        let error = bed.device.lock(FIRST, bed.pool.region()).unwrap_err();
        assert_eq!(error.code(), 2);
        assert_eq!(bed.cuda.shares(FIRST), 1, "the engine's own");
        assert_eq!(bed.cuda.violations(), [""; 0]);
    }
}

#[test]
fn each_device_has_its_own_context() {
    let bed = Bed::new();
    for ordinal in [FIRST, SECOND] {
        let (tensor, _) = bed.tensor(ordinal, 5);
        let copy = bed.device.copy_out(tensor, CudaEvent::ready(), transfer(&bed.pool), HEADER);
        bed.cuda.run();
        assert_eq!(delivered(come(copy)), [5; LEN as usize]);
    }
    assert_eq!((bed.cuda.shares(FIRST), bed.cuda.shares(SECOND)), (2, 1));
    assert_eq!(bed.cuda.violations(), [""; 0]);
}

#[test]
fn lengths_that_differ_are_refused_before_any_call() {
    let bed = Bed::new();
    let (tensor, _) = bed.tensor(FIRST, 1);
    let copy = bed.device.copy_out(tensor, CudaEvent::ready(), transfer(&bed.pool), 0);
    match come(copy) {
        Outcome::Ended { result: Err(DeviceError::Length { expected: LEN, got }), .. } => {
            assert_eq!(got, LEN + HEADER);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.cuda.shares(FIRST), 1, "the engine's own");
}
