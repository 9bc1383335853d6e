//! The numbers of a pool.

use springtide::pool::{Counters, Usage};

use super::{Samples, c};

pub(super) fn add(samples: &mut Samples, usage: &Usage) {
    let Usage {
        total,
        free,
        filling,
        in_flight,
        resident,
        pinned,
        quarantined,
        waste,
        largest_free,
        allocations,
        peak_used,
        peak_in_flight,
        peak_resident,
        peak_quarantined,
        counters,
    } = usage;
    for (state, bytes) in [
        ("free", free),
        ("filling", filling),
        ("in_flight", in_flight),
        ("resident", resident),
        ("quarantined", quarantined),
    ] {
        samples.add(&c::POOL, &[state], *bytes);
    }
    for (state, bytes) in [
        ("used", peak_used),
        ("in_flight", peak_in_flight),
        ("resident", peak_resident),
        ("quarantined", peak_quarantined),
    ] {
        samples.add(&c::POOL_PEAK, &[state], *bytes);
    }
    samples.add(&c::POOL_SIZE, &[], *total);
    samples.add(&c::POOL_PINNED, &[], *pinned);
    samples.add(&c::POOL_WASTE, &[], *waste);
    samples.add(&c::POOL_LARGEST_FREE, &[], *largest_free);
    samples.add(&c::POOL_ALLOCATIONS, &[], *allocations);
    counts(samples, counters);
}

fn counts(samples: &mut Samples, counters: &Counters) {
    let Counters {
        allocated,
        freed,
        no_bytes,
        no_shape,
        too_large,
        quarantine_full,
        published,
        evictions,
        reclaimed,
        discarded,
        stale_handles,
        quarantined_abandoned,
        quarantined_uncertain,
        quarantined_timed_out,
        poison_violations,
        guard_violations,
    } = counters;
    for (metric, label, number) in [
        (&c::POOL_REFUSED, "no_bytes", no_bytes),
        (&c::POOL_REFUSED, "no_shape", no_shape),
        (&c::POOL_REFUSED, "too_large", too_large),
        (&c::POOL_REFUSED, "quarantine_full", quarantine_full),
        (&c::POOL_QUARANTINED, "abandoned", quarantined_abandoned),
        (&c::POOL_QUARANTINED, "uncertain", quarantined_uncertain),
        (&c::POOL_QUARANTINED, "timed_out", quarantined_timed_out),
        (&c::POOL_VIOLATIONS, "poison", poison_violations),
        (&c::POOL_VIOLATIONS, "guard", guard_violations),
    ] {
        samples.add(metric, &[label], *number);
    }
    for (metric, number) in [
        (&c::POOL_ALLOCATED, allocated),
        (&c::POOL_FREED, freed),
        (&c::POOL_PUBLISHED, published),
        (&c::POOL_EVICTIONS, evictions),
        (&c::POOL_RECLAIMED, reclaimed),
        (&c::POOL_DISCARDED, discarded),
        (&c::POOL_STALE, stale_handles),
    ] {
        samples.add(metric, &[], *number);
    }
}
