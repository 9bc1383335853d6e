//! The pool against a model of it: a shadow map of byte ranges, and what every byte must hold.
//!
//! Random sequences of everything that a pool's user and a card can do, late writes included. After each
//! step the pool's own verification must hold, its accounts must be the model's, every allocation's blocks
//! must be disjoint from all others', and every readable byte must be the one its owner wrote.

use std::{collections::BTreeMap, ops::Range};

use proptest::prelude::*;
use springtide::pool::{
    AllocError, Contiguity, EvictionPolicy, Extent, Handle, Lease, MAX_EXTENTS, Pin, Pool,
    PoolConfig, QuarantineCause, Transfer, UNIT_HEADER,
};

const UNIT: u64 = 512 + UNIT_HEADER;

/// Item sizes of real encoders in MiB; one byte here stands for a KiB there.
const SIZES_MIB: [f64; 13] =
    [1.0, 1.8, 2.5, 3.6, 4.0, 5.3, 8.3, 10.5, 16.0, 18.4, 32.0, 63.8, 255.0];

/// One step. Numbers choose among whatever is in the right state.
#[derive(Clone, Debug)]
enum Step {
    Allocate { len: u64, contiguity: Contiguity },
    DropLease(usize),
    Lend(usize),
    Write(usize),
    Finish(usize),
    DropTransfer(usize),
    Quarantine(usize),
    LateWrite(usize),
    Release(usize),
    ReleaseAll,
    Publish { choice: usize, tag: u64 },
    Pin(usize),
    ClonePin(usize),
    Unpin(usize),
    Reclaim(usize),
    Discard(usize),
    UseStale(usize),
    Evict { len: u64, contiguity: Contiguity },
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => prop::sample::select(SIZES_MIB.as_slice())
            .prop_map(|mib| (mib * 1024.0) as u64 + UNIT_HEADER),
        3 => 1..6 * UNIT,
        1 => Just(0),
        1 => Just(UNIT),
        1 => any::<u64>(),
    ]
}

fn contiguity() -> impl Strategy<Value = Contiguity> {
    prop_oneof![3 => Just(Contiguity::Extents), 1 => Just(Contiguity::Required)]
}

fn step() -> impl Strategy<Value = Step> {
    let choice = any::<usize>;
    prop_oneof![
        10 => (len(), contiguity()).prop_map(|(len, contiguity)| Step::Allocate { len, contiguity }),
        2 => choice().prop_map(Step::DropLease),
        6 => choice().prop_map(Step::Lend),
        3 => choice().prop_map(Step::Write),
        5 => choice().prop_map(Step::Finish),
        1 => choice().prop_map(Step::DropTransfer),
        1 => choice().prop_map(Step::Quarantine),
        2 => choice().prop_map(Step::LateWrite),
        1 => choice().prop_map(Step::Release),
        1 => Just(Step::ReleaseAll),
        6 => (choice(), 0..20u64).prop_map(|(choice, tag)| Step::Publish { choice, tag }),
        5 => choice().prop_map(Step::Pin),
        2 => choice().prop_map(Step::ClonePin),
        7 => choice().prop_map(Step::Unpin),
        2 => choice().prop_map(Step::Reclaim),
        2 => choice().prop_map(Step::Discard),
        3 => choice().prop_map(Step::UseStale),
        5 => (len(), contiguity()).prop_map(|(len, contiguity)| Step::Evict { len, contiguity }),
    ]
}

fn config() -> impl Strategy<Value = PoolConfig> {
    let policy = prop::sample::select(
        [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo].as_slice(),
    );
    let units = prop_oneof![1 => 1..4u64, 2 => 4..64u64, 3 => 64..700u64, 1 => Just(512)];
    (units, 0..UNIT, 1..=MAX_EXTENTS, policy, 0..3u64).prop_map(
        |(units, more, max_extents, eviction, quarantine)| PoolConfig {
            unit_payload: 512,
            max_extents,
            eviction,
            quarantine_max: units * UNIT * quarantine / 2,
            ..PoolConfig::with_bytes(units * UNIT + more)
        },
    )
}

/// Who holds an allocation.
enum Holder {
    Lease(Lease),
    Transfer(Transfer),
    /// A resident, with the pins on it; discarded or not.
    Pins(Vec<Pin>, bool),
    Quarantine,
}

struct Entry {
    holder: Holder,
    extents: Vec<Extent>,
    len: u64,
    /// What every byte of it holds.
    fill: u8,
}

impl Entry {
    /// The bytes of its blocks: each extent rounded up to a power of two of units.
    fn blocks(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents.iter().map(|extent| {
            let bytes = extent.len.div_ceil(UNIT).next_power_of_two() * UNIT;
            assert!(extent.offset.is_multiple_of(bytes), "{extent:?} is not aligned to its block");
            extent.offset..extent.offset + bytes
        })
    }

    fn block_bytes(&self) -> u64 {
        self.blocks().map(|block| block.end - block.start).sum()
    }

    fn is_idle(&self) -> bool {
        matches!(&self.holder, Holder::Pins(pins, false) if pins.is_empty())
    }
}

/// The pool and what must be true of it.
struct Model {
    pool: Pool,
    max_extents: usize,
    quarantine_max: u64,
    entries: BTreeMap<Handle, Entry>,
    ended: Vec<Handle>,
    stale: u64,
    fills: u8,
}

impl Model {
    fn new(config: &PoolConfig) -> Self {
        Self {
            pool: Pool::new(config).unwrap(),
            max_extents: config.max_extents,
            quarantine_max: config.quarantine_max,
            entries: BTreeMap::new(),
            ended: Vec::new(),
            stale: 0,
            fills: 0,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Allocate { len, contiguity } => drop(self.allocate(len, contiguity)),
            Step::DropLease(choice) => self.end(choice, |h| matches!(h, Holder::Lease(_))),
            Step::Lend(choice) => self.change(choice, is_lease, |holder| match holder {
                Holder::Lease(lease) => Holder::Transfer(lease.into_transfer()),
                other => other,
            }),
            Step::Write(choice) => self.write(choice),
            Step::Finish(choice) => self.change(choice, is_transfer, |holder| match holder {
                Holder::Transfer(transfer) => Holder::Lease(transfer.finish()),
                other => other,
            }),
            Step::DropTransfer(choice) => self.change(choice, is_transfer, |_| Holder::Quarantine),
            Step::Quarantine(choice) => self.change(choice, is_transfer, |holder| {
                if let Holder::Transfer(transfer) = holder {
                    transfer.quarantine(QuarantineCause::Uncertain);
                }
                Holder::Quarantine
            }),
            Step::LateWrite(choice) => self.late_write(choice),
            Step::Release(choice) => self.release(choice),
            Step::ReleaseAll => self.release_all(),
            Step::Publish { choice, tag } => self.change(choice, is_lease, |holder| match holder {
                Holder::Lease(lease) => Holder::Pins(vec![lease.publish(tag)], false),
                other => other,
            }),
            Step::Pin(choice) => self.pin(choice),
            Step::ClonePin(choice) => self.change(choice, is_pinned, |mut holder| {
                if let Holder::Pins(pins, _) = &mut holder {
                    pins.push(pins[0].clone());
                }
                holder
            }),
            Step::Unpin(choice) => self.unpin(choice),
            Step::Reclaim(choice) => self.reclaim(choice),
            Step::Discard(choice) => self.discard(choice),
            Step::UseStale(choice) => self.use_stale(choice),
            Step::Evict { len, contiguity } => self.evict(len, contiguity),
        }
        self.check();
    }

    /// The entry that `choice` picks among those whose holder is as wanted.
    fn pick(&self, choice: usize, wanted: impl Fn(&Holder) -> bool) -> Option<Handle> {
        let fitting: Vec<Handle> =
            self.entries.iter().filter(|(_, e)| wanted(&e.holder)).map(|(h, _)| *h).collect();
        fitting.get(choice.checked_rem(fitting.len())?).copied()
    }

    fn change(
        &mut self,
        choice: usize,
        wanted: fn(&Holder) -> bool,
        change: impl FnOnce(Holder) -> Holder,
    ) {
        let Some(handle) = self.pick(choice, wanted) else { return };
        let entry = self.entries.remove(&handle).unwrap();
        self.entries.insert(handle, Entry { holder: change(entry.holder), ..entry });
    }

    fn end(&mut self, choice: usize, wanted: fn(&Holder) -> bool) {
        if let Some(handle) = self.pick(choice, wanted) {
            self.entries.remove(&handle);
            self.ended.push(handle);
        }
    }

    fn free(&self) -> u64 {
        self.pool.region().len() - self.entries.values().map(Entry::block_bytes).sum::<u64>()
    }

    fn quarantined(&self) -> u64 {
        let ours = self.entries.values().filter(|e| matches!(e.holder, Holder::Quarantine));
        ours.map(Entry::block_bytes).sum()
    }

    /// Allocates, and holds the refusal against the model.
    fn allocate(&mut self, len: u64, contiguity: Contiguity) -> Option<Handle> {
        let error = match self.pool.allocate(len, contiguity) {
            Ok(lease) => return Some(self.adopt(lease, contiguity)),
            Err(error) => error,
        };
        let needed = len.div_ceil(UNIT).saturating_mul(UNIT);
        match error {
            AllocError::Empty => assert_eq!(len, 0),
            AllocError::TooLarge { max, .. } => {
                assert!(len > max && max <= self.pool.region().len());
            }
            AllocError::NoBytes { free, .. } => {
                assert_eq!(free, self.free());
                assert!(needed > free);
            }
            AllocError::NoShape { free, largest, .. } => {
                assert_eq!(free, self.free());
                assert!(needed <= free && largest < needed.next_multiple_of(UNIT));
            }
            AllocError::QuarantineFull { quarantined, max } => {
                assert_eq!((quarantined, max), (self.quarantined(), self.quarantine_max));
                assert!(quarantined > max);
            }
        }
        None
    }

    /// Takes a new lease into the model, and fills it.
    fn adopt(&mut self, mut lease: Lease, contiguity: Contiguity) -> Handle {
        let handle = lease.handle();
        assert!(!self.ended.contains(&handle), "{handle} was used before");
        let count = if contiguity == Contiguity::Required { 1 } else { self.max_extents };
        assert!(lease.extents().len() <= count);
        assert_eq!(lease.extents().iter().map(|extent| extent.len).sum::<u64>(), lease.len());
        assert!(self.quarantined() <= self.quarantine_max);
        self.fills = self.fills.wrapping_add(1);
        lease.write_at(0, &vec![self.fills; lease.len() as usize]);
        let (extents, len) = (lease.extents().to_vec(), lease.len());
        let entry = Entry { holder: Holder::Lease(lease), extents, len, fill: self.fills };
        assert!(self.entries.insert(handle, entry).is_none(), "{handle} is in use");
        handle
    }

    fn write(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, is_transfer) else { return };
        self.fills = self.fills.wrapping_add(1);
        let entry = self.entries.get_mut(&handle).unwrap();
        entry.fill = self.fills;
        let Holder::Transfer(transfer) = &mut entry.holder else { unreachable!() };
        let half = entry.len / 2;
        transfer.write_at(0, &vec![self.fills; half as usize]);
        transfer.write_at(half, &vec![self.fills; (entry.len - half) as usize]);
    }

    /// A card writes where an I/O was given up.
    fn late_write(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, |h| matches!(h, Holder::Quarantine)) else { return };
        for extent in &self.entries[&handle].extents {
            self.pool.region().dma_write(extent.offset, &vec![0xEE; extent.len as usize]);
        }
    }

    fn release(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, |h| matches!(h, Holder::Quarantine)) else { return };
        let entry = self.entries.remove(&handle).unwrap();
        assert_eq!(self.pool.release_quarantined(handle), Ok(entry.block_bytes()));
        self.ended.push(handle);
    }

    fn release_all(&mut self) {
        assert_eq!(self.pool.release_quarantine(), self.quarantined());
        let ended = &mut self.ended;
        self.entries.retain(|handle, entry| {
            let kept = !matches!(entry.holder, Holder::Quarantine);
            if !kept {
                ended.push(*handle);
            }
            kept
        });
    }

    fn pin(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, |h| matches!(h, Holder::Pins(_, false))) else {
            return;
        };
        let pin = self.pool.pin(handle).unwrap();
        let Holder::Pins(pins, _) = &mut self.entries.get_mut(&handle).unwrap().holder else {
            unreachable!()
        };
        pins.push(pin);
    }

    fn unpin(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, is_pinned) else { return };
        let Holder::Pins(pins, discarded) = &mut self.entries.get_mut(&handle).unwrap().holder
        else {
            unreachable!()
        };
        pins.swap_remove(choice % pins.len());
        if *discarded && pins.is_empty() {
            self.entries.remove(&handle);
            self.ended.push(handle);
        }
    }

    fn reclaim(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, |h| matches!(h, Holder::Pins(_, false))) else {
            return;
        };
        let idle = self.entries[&handle].is_idle();
        let lease = self.pool.reclaim(handle);
        assert_eq!(lease.is_some(), idle);
        if let Some(lease) = lease {
            let entry = self.entries.remove(&handle).unwrap();
            self.ended.push(handle);
            assert_eq!(lease.extents(), entry.extents);
            let again = lease.handle();
            assert!(!self.ended.contains(&again));
            self.entries.insert(again, Entry { holder: Holder::Lease(lease), ..entry });
        }
    }

    fn discard(&mut self, choice: usize) {
        let Some(handle) = self.pick(choice, |h| matches!(h, Holder::Pins(_, false))) else {
            return;
        };
        self.pool.discard(handle).unwrap();
        if self.entries[&handle].is_idle() {
            self.entries.remove(&handle);
            self.ended.push(handle);
        } else if let Holder::Pins(_, discarded) =
            &mut self.entries.get_mut(&handle).unwrap().holder
        {
            *discarded = true;
        }
    }

    /// A handle that names nothing, or no resident, does nothing.
    fn use_stale(&mut self, choice: usize) {
        let no_resident = |holder: &Holder| !matches!(holder, Holder::Pins(_, false));
        let ended = choice.checked_rem(self.ended.len()).map(|at| self.ended[at]);
        for handle in ended.into_iter().chain(self.pick(choice, no_resident)) {
            self.pool.pin(handle).unwrap_err();
            self.pool.discard(handle).unwrap_err();
            assert!(self.pool.reclaim(handle).is_none());
            self.stale += 3;
        }
        if let Some(handle) = ended {
            self.pool.release_quarantined(handle).unwrap_err();
            self.stale += 1;
        }
    }

    fn evict(&mut self, len: u64, contiguity: Contiguity) {
        let before = self.pool.usage().largest_free;
        let victims = self.pool.evict_until_fits(len, contiguity);
        for victim in &victims {
            let entry = self.entries.remove(victim).expect("a victim is an allocation");
            assert!(entry.is_idle(), "{victim} was evicted in use");
            self.ended.push(*victim);
        }
        self.check();
        let fits = self.allocate(len, contiguity);
        assert!(fits.is_some() || victims.is_empty(), "{victims:?} went in vain");
        let one_block = len.div_ceil(UNIT).next_power_of_two().saturating_mul(UNIT);
        assert!(victims.is_empty() || before < one_block, "{victims:?} went without need");
    }

    /// Everything that must hold between steps.
    fn check(&self) {
        self.pool.verify().unwrap();
        let mut blocks: Vec<Range<u64>> = self.entries.values().flat_map(Entry::blocks).collect();
        blocks.sort_by_key(|block| block.start);
        assert!(blocks.windows(2).all(|pair| pair[0].end <= pair[1].start), "blocks overlap");
        assert!(blocks.last().is_none_or(|block| block.end <= self.pool.region().len()));
        let sum = |wanted: fn(&Holder) -> bool| -> u64 {
            self.entries.values().filter(|e| wanted(&e.holder)).map(Entry::block_bytes).sum()
        };
        let usage = self.pool.usage();
        assert_eq!(usage.free, self.free());
        assert_eq!(usage.filling, sum(is_lease));
        assert_eq!(usage.in_flight, sum(is_transfer));
        assert_eq!(usage.resident, sum(|h| matches!(h, Holder::Pins(..))));
        assert_eq!(usage.pinned, sum(is_pinned));
        assert_eq!(usage.quarantined, self.quarantined());
        assert_eq!(usage.allocations, self.entries.len() as u64);
        assert_eq!(
            usage.waste,
            self.entries.values().map(|e| e.block_bytes() - e.len).sum::<u64>()
        );
        assert_eq!(usage.counters.stale_handles, self.stale);
        assert_eq!(usage.counters.poison_violations + usage.counters.guard_violations, 0);
        self.entries.values().for_each(check_bytes);
    }

    /// Gives everything back; the pool is as it was.
    fn finish(self, fresh: &Pool) {
        for (handle, entry) in self.entries {
            let published = matches!(entry.holder, Holder::Pins(_, false));
            drop(entry);
            if published {
                self.pool.discard(handle).unwrap();
            }
        }
        // What was in flight was quarantined just now.
        self.pool.release_quarantine();
        let (start, end) = (fresh.usage(), self.pool.usage());
        assert_eq!((end.free, end.largest_free), (start.total, start.largest_free));
        assert_eq!((end.allocations, end.waste), (0, 0));
        assert_eq!(end.counters.allocated, end.counters.freed);
        self.pool.verify().unwrap();
        self.pool.scrub().unwrap();
    }
}

fn is_lease(holder: &Holder) -> bool {
    matches!(holder, Holder::Lease(_))
}

fn is_transfer(holder: &Holder) -> bool {
    matches!(holder, Holder::Transfer(_))
}

fn is_pinned(holder: &Holder) -> bool {
    matches!(holder, Holder::Pins(pins, _) if !pins.is_empty())
}

/// Every byte that its holder can read is the one that was written.
fn check_bytes(entry: &Entry) {
    let mut bytes = vec![0; entry.len as usize];
    match &entry.holder {
        Holder::Lease(lease) => lease.read_at(0, &mut bytes),
        Holder::Transfer(transfer) => transfer.read_at(0, &mut bytes),
        Holder::Pins(pins, _) => match pins.first() {
            Some(pin) => bytes = pin.segments().collect::<Vec<_>>().concat(),
            None => return,
        },
        Holder::Quarantine => return,
    }
    let wrong = bytes.iter().position(|byte| *byte != entry.fill);
    assert_eq!(wrong, None, "a byte changed that only its holder may change");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_pool_keeps_to_its_model(
        config in config(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut model = Model::new(&config);
        for step in steps {
            model.run(step);
        }
        model.finish(&Pool::new(&config).unwrap());
    }
}
