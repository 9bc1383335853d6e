//! The pool: its lock, its state words and its guards together.
//!
//! `Shadow` stands for the bytes of the region, a cell a unit. Loom fails a model in which a holder's access
//! races with another's, which is what *no block is reused under a lease* means.

use loom::{cell::UnsafeCell, thread};
use springtide::pool::{
    AllocError, Allocation, Contiguity, EvictionPolicy, Handle, Lease, Pin, Pool, PoolConfig,
    UNIT_HEADER,
};
use springtide_model_sync::Arc;

const UNIT: u64 = 64 + UNIT_HEADER;

struct Shadow(Vec<UnsafeCell<()>>);

impl Shadow {
    fn cells(&self, allocation: &Allocation) -> impl Iterator<Item = &UnsafeCell<()>> {
        let units = |offset: u64, len: u64| offset / UNIT..(offset + len).div_ceil(UNIT);
        let extents = allocation.extents().iter().map(move |e| units(e.offset, e.len));
        extents.flatten().map(|unit| &self.0[unit as usize]).collect::<Vec<_>>().into_iter()
    }

    fn read(&self, pin: &Pin) {
        self.cells(pin).for_each(|cell| cell.with(|_| ()));
    }

    fn write(&self, allocation: &Allocation) {
        self.cells(allocation).for_each(|cell| cell.with_mut(|_| ()));
    }
}

/// What the threads of a model share.
#[derive(Clone)]
struct World {
    pool: Pool,
    shadow: Arc<Shadow>,
}

impl World {
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "loom's threads are one thread to the compiler"
    )]
    fn new(units: u64, eviction: EvictionPolicy) -> Self {
        let config = PoolConfig {
            unit_payload: 64,
            quarantine_max: u64::MAX,
            eviction,
            ..PoolConfig::with_bytes(units * UNIT)
        };
        let cells = (0..units).map(|_| UnsafeCell::new(())).collect();
        Self { pool: Pool::new(&config).unwrap(), shadow: Arc::new(Shadow(cells)) }
    }

    fn spawn<T: 'static>(
        &self,
        operation: impl FnOnce(&Self) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let world = self.clone();
        thread::spawn(move || operation(&world))
    }

    fn allocate(&self, units: u64) -> Result<Lease, AllocError> {
        let lease = self.pool.allocate(units * UNIT, Contiguity::Extents)?;
        self.shadow.write(&lease);
        Ok(lease)
    }

    /// Allocates, evicting what is idle.
    fn make_room(&self, units: u64) -> (Vec<Handle>, Result<Lease, AllocError>) {
        let victims = self.pool.evict_until_fits(units * UNIT, Contiguity::Extents);
        (victims, self.allocate(units))
    }

    /// An idle resident of so many units.
    fn resident(&self, units: u64) -> Handle {
        self.allocate(units).unwrap().publish(0).handle()
    }

    /// Reads under a pin, if there is something to pin.
    fn pin_and_read(&self, handle: Handle) -> bool {
        let pin = self.pool.pin(handle);
        if let Ok(pin) = &pin {
            self.shadow.read(pin);
        }
        pin.is_ok()
    }

    /// Everything agrees, and this many handles were found stale.
    fn check(&self, stale_handles: u64) {
        self.pool.verify().unwrap();
        let usage = self.pool.usage();
        assert_eq!(usage.counters.stale_handles, stale_handles);
        assert_eq!(usage.counters.allocated, usage.counters.freed + usage.allocations);
    }
}

model! {
    /// Memory has one holder at a time; whoever gets none is told why.
    fn allocate_against_allocate_exhaustive() {
        let world = World::new(1, EvictionPolicy::Fifo);
        let hold = |world: &World| match world.allocate(1) {
            Ok(lease) => {
                world.shadow.write(&lease);
                1
            }
            Err(error) => {
                assert!(matches!(error, AllocError::NoBytes { free: 0, .. }), "{error}");
                0
            }
        };
        let others = [0, 1].map(|_| world.spawn(hold));
        let held = hold(&world) + others.map(|other| other.join().unwrap()).iter().sum::<u64>();
        let counters = world.pool.usage().counters;
        assert_eq!((counters.allocated, counters.no_bytes), (held, 3 - held));
        assert!(held >= 1 && world.pool.usage().free == UNIT);
        world.check(0);
    }
}

model! {
    /// An eviction takes what nobody has pinned, and a reader who comes late is refused.
    fn evict_against_pins_preempt3() {
        let world = World::new(1, EvictionPolicy::Fifo);
        let handle = world.resident(1);
        let readers = [0, 1].map(|_| world.spawn(move |world| world.pin_and_read(handle)));
        let (victims, lease) = world.make_room(1);
        assert_eq!(victims.len(), usize::from(lease.is_ok()), "a victim went in vain");
        let refused = readers.map(|reader| u64::from(!reader.join().unwrap())).iter().sum();
        assert!(refused == 0 || lease.is_ok(), "nobody has the memory");
        drop(lease);
        world.check(refused);
    }
}

model! {
    /// Two who make room while others read: each allocation that succeeds has a victim of its own.
    fn evict_against_evict_preempt3() {
        let world = World::new(2, EvictionPolicy::Fifo);
        let handles = [world.resident(1), world.resident(1)];
        let other = world.spawn(|world| world.make_room(1));
        let reader = world.spawn(move |world| world.pin_and_read(handles[0]));
        let (ours, lease) = world.make_room(1);
        let (theirs, other_lease) = other.join().unwrap();
        let refused = u64::from(!reader.join().unwrap());
        let mut victims: Vec<Handle> = ours.into_iter().chain(theirs).collect();
        victims.sort();
        victims.dedup();
        let leases = [lease, other_lease];
        let got = leases.iter().filter(|lease| lease.is_ok()).count();
        assert!(got >= 1 && victims.len() >= got, "{got} leases after {victims:?}");
        drop(leases);
        for handle in handles {
            assert_eq!(world.pin_and_read(handle), !victims.contains(&handle));
        }
        world.check(victims.len() as u64 + refused);
    }
}

model! {
    /// A discarded resident serves the pins that it has, then ends once; its memory is another's only then.
    fn discard_against_unpin_and_allocate_preempt3() {
        let world = World::new(1, EvictionPolicy::Fifo);
        let pin = world.allocate(1).unwrap().publish(0);
        let handle = pin.handle();
        let reader = world.spawn(move |world| world.shadow.read(&pin));
        let next = world.spawn(|world| world.allocate(1).is_ok());
        world.pool.discard(handle).unwrap();
        reader.join().unwrap();
        next.join().unwrap();
        assert!(!world.pin_and_read(handle), "a discarded resident was pinned");
        assert_eq!(world.pool.usage().free, UNIT);
        world.check(1);
    }
}

model! {
    /// A transfer that is dropped frees nothing: its memory is another's only after the fence.
    fn quarantine_against_fence_and_allocate_preempt3() {
        let world = World::new(1, EvictionPolicy::Fifo);
        let transfer = world.allocate(1).unwrap().into_transfer();
        let fence = world.spawn(|world| world.pool.release_quarantine());
        let next = world.spawn(|world| world.allocate(1).is_ok());
        world.shadow.write(&transfer);
        drop(transfer);
        let allocated = next.join().unwrap();
        let released = fence.join().unwrap();
        assert!(released == UNIT || !allocated, "memory in quarantine was handed out");
        let usage = world.pool.usage();
        assert_eq!((usage.quarantined, usage.free), (UNIT - released, released));
        world.check(0);
    }
}

model! {
    /// A resident that is taken back under a new name is nobody else's, and the old name is stale.
    fn reclaim_against_pin_exhaustive() {
        let world = World::new(1, EvictionPolicy::Fifo);
        let handle = world.resident(1);
        let readers = [0, 1].map(|_| world.spawn(move |world| world.pin_and_read(handle)));
        let lease = world.pool.reclaim(handle);
        if let Some(lease) = &lease {
            world.shadow.write(lease);
            assert!(lease.handle() != handle, "the old name still holds");
        }
        let refused: u64 = readers.map(|reader| u64::from(!reader.join().unwrap())).iter().sum();
        assert!(refused == 0 || lease.is_some(), "nobody has the memory");
        let stale = refused + u64::from(lease.is_some());
        assert_eq!(world.pin_and_read(handle), lease.is_none());
        drop(lease);
        world.check(stale);
    }
}

model! {
    /// Readers note their accesses without the lock while the order of eviction changes; every resident stays
    /// in it.
    fn accesses_against_publish_and_evict_preempt3() {
        let world = World::new(2, EvictionPolicy::Lru);
        let old = world.resident(1);
        let reader = world.spawn(move |world| world.pin_and_read(old));
        let publisher = world.spawn(|world| {
            let lease = world.allocate(1).ok()?;
            Some(lease.publish(0).handle())
        });
        let (victims, lease) = world.make_room(2);
        drop(lease);
        let read = reader.join().unwrap();
        let new = publisher.join().unwrap();
        world.check(u64::from(!read));
        let residents = [Some(old), new].into_iter().flatten();
        let survivors = residents.filter(|handle| !victims.contains(handle)).count();
        assert_eq!(world.pool.usage().resident, survivors as u64 * UNIT);
        let (victims, lease) = world.make_room(2);
        assert!(lease.is_ok() && victims.len() == survivors, "a resident has left the order");
    }
}
