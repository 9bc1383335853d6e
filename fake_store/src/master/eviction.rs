//! Making room: the evictor's rounds, and the space of dead writers.
//!
//! A put never waits for space. It fails, raises a flag, and a loop that turns every 10 ms evicts: also when
//! the used share lies above the watermark. Eviction counts **objects**, not bytes, and takes those first
//! whose lease ended first. Space of unfinished puts that were set aside becomes free when it is due *and* a
//! sweep comes by; a round without any candidate does not sweep, and every round puts the next sweep off.
//! Both are Mooncake's behaviour, starvation included.

use springtide::env::Time;

use super::{EventKind, Master, objects::Object, segments::Extent};

/// Space that somebody may still be writing to.
#[derive(Clone, Debug)]
pub(super) struct Discarded {
    pub(super) due: Time,
    pub(super) extents: Vec<Extent>,
}

/// An object that may be evicted. Ordered as they go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    until: Time,
    /// Decides among equal times: the order of events, or chance if equal leases tie.
    tie: u64,
    key: String,
}

impl Master {
    /// One turn of the evictor's loop.
    pub(super) fn evict_or_sweep(&mut self, now: Time) {
        let used = self.segments.used_ratio();
        let ratio = self.knobs.eviction_ratio;
        let watermark = self.knobs.eviction_high_watermark_ratio;
        if used > watermark || (self.need_eviction && ratio > 0.0) {
            let target = f64::max(ratio, used - watermark + ratio);
            let lower = f64::max(target * 0.5, used - watermark);
            self.counters.eviction_rounds += 1;
            self.evict(now, target, lower);
            self.last_sweep = now;
        } else if now - self.last_sweep > self.knobs.put_start_release_timeout {
            self.drop_abandoned(now);
            self.release_discarded(now);
            self.last_sweep = now;
        }
    }

    /// Evicts `target` of the objects if so many may go, and at least `lower` if soft-pinned ones must.
    fn evict(&mut self, now: Time, target: f64, lower: f64) {
        self.drop_abandoned(now);
        let evictable = |object: &&Object| !object.hard_pin && !object.writing;
        let base = self.objects.values().filter(evictable).count();
        if base == 0 {
            self.need_eviction = false;
            return;
        }
        let (plain, soft) = self.candidates(now);

        let first = share(base, target).min(plain.len());
        let last_until = first.checked_sub(1).map(|last| plain[last].until);
        let first = match last_until {
            Some(until) if self.knobs.equal_leases_tie => {
                plain.partition_point(|candidate| candidate.until <= until)
            }
            _ => first,
        };
        let (victims, plain) = plain.split_at(first);
        victims.iter().for_each(|victim| self.evict_one(now, victim));
        let mut evicted = victims.len();

        let released = self.release_discarded(now);
        let missing = share(base, lower).saturating_sub(evicted + released);
        let missing = missing.min(plain.len() + soft.len());
        let (from_plain, from_soft) = if missing <= plain.len() {
            (missing, 0)
        } else if soft.is_empty() {
            (0, 0)
        } else {
            (plain.len(), missing - plain.len())
        };
        for victim in plain[..from_plain].iter().chain(&soft[..from_soft]) {
            self.evict_one(now, victim);
            evicted += 1;
        }
        if evicted + released > 0 {
            self.need_eviction = false;
        }
    }

    /// Complete objects whose lease has ended and that are not hard-pinned, oldest first: those without and
    /// those with a soft pin.
    fn candidates(&mut self, now: Time) -> (Vec<Candidate>, Vec<Candidate>) {
        let (mut plain, mut soft) = (Vec::new(), Vec::new());
        for (key, object) in &self.objects {
            if object.hard_pin || object.writing || object.is_leased(now) {
                continue;
            }
            let chance = self.knobs.equal_leases_tie;
            let tie = if chance { self.rng.next_u64() } else { object.lease.turn };
            let candidate = Candidate { until: object.lease.until, tie, key: key.clone() };
            if !object.is_soft_pinned(now) {
                plain.push(candidate);
            } else if self.knobs.allow_evict_soft_pinned_objects {
                soft.push(candidate);
            }
        }
        plain.sort_unstable();
        soft.sort_unstable();
        (plain, soft)
    }

    fn evict_one(&mut self, now: Time, victim: &Candidate) {
        let Some(object) = self.erase(&victim.key) else { return };
        self.counters.evicted += 1;
        self.counters.evicted_bytes += object.bytes;
        let idle = now.saturating_since(object.lease.until);
        let kind = EventKind::Evicted {
            idle_nanos: u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX),
            soft_pinned: object.is_soft_pinned(now),
        };
        self.history.push(now, &victim.key, kind);
    }

    /// Drops unfinished puts that are older than the release time; their space is due at once.
    fn drop_abandoned(&mut self, now: Time) {
        let release = self.knobs.put_start_release_timeout;
        let abandoned: Vec<(String, Time)> = self
            .objects
            .iter()
            .filter(|(_, object)| object.writing && object.put_start + release < now)
            .map(|(key, object)| (key.clone(), object.put_start + release))
            .collect();
        for (key, due) in abandoned {
            self.discard(&key, due);
            self.history.push(now, &key, EventKind::Expired);
        }
    }

    /// Frees discarded space that is due; how many entries.
    fn release_discarded(&mut self, now: Time) -> usize {
        let (due, kept) = std::mem::take(&mut self.discarded)
            .into_iter()
            .partition::<Vec<_>, _>(|discarded| discarded.due < now);
        self.discarded = kept;
        for extent in due.iter().flat_map(|discarded| &discarded.extents) {
            self.segments.free(extent);
        }
        self.counters.discarded_released += due.len() as u64;
        due.len()
    }
}

/// The number of objects that a share of `base` means, rounded up. In floating point, as Mooncake has it.
fn share(base: usize, ratio: f64) -> usize {
    (base as f64 * ratio).ceil() as usize
}
