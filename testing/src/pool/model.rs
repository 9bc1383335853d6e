//! The model, and how each step changes it.

use std::{collections::BTreeMap, ops::Range};

use springtide::pool::{AllocError, Contiguity, Handle, Lease, Pool, PoolConfig, QuarantineCause};

use super::{
    Step, UNIT,
    entry::{Entry, Holder, check_bytes, is_lease, is_pinned, is_transfer},
};

/// The pool and what must be true of it.
pub struct Model {
    pool: Pool,
    max_extents: usize,
    quarantine_max: u64,
    entries: BTreeMap<Handle, Entry>,
    ended: Vec<Handle>,
    stale: u64,
    fills: u8,
}

impl Model {
    /// A new pool, all free.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn new(config: &PoolConfig) -> Self {
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

    /// Plays one step.
    ///
    /// # Panics
    /// If the pool does not keep to its model.
    pub fn run(&mut self, step: Step) {
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
    ///
    /// # Panics
    /// If it is not.
    pub fn finish(self, config: &PoolConfig) {
        let fresh = Pool::new(config).unwrap();
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
