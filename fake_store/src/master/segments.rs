//! The memory that clients lend, and where in it a new replica goes.
//!
//! Placement walks segment *names*: first the preferred ones, then all, starting where the policy says; at
//! most one replica a name, as many as there is room for. With a single name there is at most one replica
//! and no preference.

use springtide::env::ErrorCode;

use super::{allocator::OffsetAllocator, knobs::Placement};
use crate::{
    protocol::{ClientId, Replica, Segment, SegmentId},
    rng::Rng,
};

/// How many names one allocation looks at, in Mooncake.
const NAMES_TRIED_MAX: usize = 100;

/// Space of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) segment: SegmentId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug)]
struct Mounted {
    segment: Segment,
    owner: ClientId,
    allocator: OffsetAllocator,
}

/// All mounted segments, in the order of their mounting.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    mounted: Vec<Mounted>,
    rounding: bool,
    placement: Placement,
    /// Allocations that asked the policy for a start, which is where round robin and the script stand.
    starts: usize,
}

impl Segments {
    pub(super) fn new(rounding: bool, placement: Placement) -> Self {
        Self { mounted: Vec::new(), rounding, placement, starts: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.mounted.clear();
    }

    /// Mounts a segment; again is as good as once.
    pub(super) fn mount(&mut self, owner: ClientId, segment: Segment) -> Result<(), ErrorCode> {
        if segment.bytes == 0 || segment.name.is_empty() {
            return Err(ErrorCode::InvalidParams);
        }
        if self.find(segment.id).is_none() {
            let allocator = OffsetAllocator::new(segment.bytes, self.rounding);
            self.mounted.push(Mounted { segment, owner, allocator });
        }
        Ok(())
    }

    /// Forgets a segment with its allocator; whether it was mounted.
    pub(super) fn unmount(&mut self, id: SegmentId) -> bool {
        let before = self.mounted.len();
        self.mounted.retain(|mounted| mounted.segment.id != id);
        self.mounted.len() < before
    }

    pub(super) fn owned_by(&self, client: ClientId) -> Vec<SegmentId> {
        let owned = self.mounted.iter().filter(|mounted| mounted.owner == client);
        owned.map(|mounted| mounted.segment.id).collect()
    }

    /// Distinct names, in mount order.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for mounted in &self.mounted {
            if !names.contains(&mounted.segment.name) {
                names.push(mounted.segment.name.clone());
            }
        }
        names
    }

    /// Bytes asked for by every live replica, complete or not, and by those set aside.
    pub(super) fn used_bytes(&self) -> u64 {
        self.mounted.iter().map(|mounted| mounted.allocator.requested()).sum()
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.mounted.iter().map(|mounted| mounted.allocator.bytes()).sum()
    }

    /// The share that the watermark is compared with.
    pub(super) fn used_ratio(&self) -> f64 {
        match self.capacity_bytes() {
            0 => 0.0,
            capacity => self.used_bytes() as f64 / capacity as f64,
        }
    }

    /// Space for up to `replicas` copies of `bytes`, on different names; none if there is no room for one.
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        replicas: u64,
        preferred: &[String],
        rng: &mut Rng,
    ) -> Vec<Extent> {
        let names = self.names();
        let single = names.len() == 1;
        let wanted = if single { 1 } else { replicas.min(names.len() as u64) as usize };
        let mut order: Vec<String> = Vec::new();
        if !single {
            order.extend(preferred.iter().filter(|name| names.contains(name)).cloned());
        }
        order.extend(self.walk(names, rng).into_iter().take(NAMES_TRIED_MAX));
        let mut tried: Vec<String> = Vec::new();
        let mut extents = Vec::new();
        for name in order {
            if extents.len() == wanted {
                break;
            }
            if !tried.contains(&name) {
                extents.extend(self.allocate_in(&name, bytes));
                tried.push(name);
            }
        }
        extents
    }

    pub(super) fn free(&mut self, extent: &Extent) {
        if let Some(mounted) = self.mounted.iter_mut().find(|m| m.segment.id == extent.segment) {
            mounted.allocator.free(extent.offset);
        }
    }

    /// The place of an extent, as clients see it.
    ///
    /// # Panics
    /// If its segment is not mounted: extents go with their segment.
    pub(super) fn replica(&self, extent: &Extent) -> Replica {
        let segment = self.find(extent.segment).expect("an extent's segment is mounted");
        Replica {
            segment: segment.id,
            segment_name: segment.name.clone(),
            endpoint: segment.endpoint.clone(),
            offset: extent.offset,
            bytes: extent.bytes,
        }
    }

    pub(super) fn verify(&self) -> Result<(), String> {
        self.mounted.iter().try_for_each(|mounted| {
            mounted.allocator.verify().map_err(|text| format!("{}: {text}", mounted.segment.id))
        })
    }

    fn find(&self, id: SegmentId) -> Option<&Segment> {
        self.mounted.iter().map(|mounted| &mounted.segment).find(|segment| segment.id == id)
    }

    fn allocate_in(&mut self, name: &str, bytes: u64) -> Option<Extent> {
        self.mounted.iter_mut().filter(|mounted| mounted.segment.name == name).find_map(|mounted| {
            let offset = mounted.allocator.allocate(bytes)?;
            Some(Extent { segment: mounted.segment.id, offset, bytes })
        })
    }

    /// All names in the order in which the policy tries them.
    fn walk(&mut self, mut names: Vec<String>, rng: &mut Rng) -> Vec<String> {
        let turn = self.starts;
        self.starts += 1;
        let start = match &self.placement {
            Placement::Random => rng.below(names.len()),
            Placement::RoundRobin => turn % names.len().max(1),
            Placement::FirstFit => 0,
            Placement::FreeRatioFirst => {
                names.sort_by(|a, b| self.free_ratio(b).total_cmp(&self.free_ratio(a)));
                0
            }
            Placement::Scripted(script) => {
                let scripted = script.get(turn);
                let found = scripted.and_then(|name| names.iter().position(|n| n == name));
                found.unwrap_or_else(|| rng.below(names.len()))
            }
        };
        let start = start.min(names.len());
        names.rotate_left(start);
        names
    }

    fn free_ratio(&self, name: &str) -> f64 {
        let (mut used, mut all) = (0, 0);
        for mounted in self.mounted.iter().filter(|mounted| mounted.segment.name == name) {
            used += mounted.allocator.requested();
            all += mounted.allocator.bytes();
        }
        1.0 - used as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(placement: Placement, sizes: &[(&str, u64)]) -> Segments {
        let mut segments = Segments::new(true, placement);
        for (i, (name, bytes)) in sizes.iter().enumerate() {
            let segment = Segment {
                id: SegmentId(i as u64),
                name: (*name).into(),
                endpoint: format!("{name}:1"),
                bytes: *bytes,
            };
            segments.mount(ClientId(i as u64), segment).unwrap();
        }
        segments
    }

    fn places(segments: &mut Segments, n: u64, preferred: &[&str]) -> Vec<u64> {
        let preferred: Vec<String> = preferred.iter().map(|name| (*name).into()).collect();
        let extents = segments.allocate(8, n, &preferred, &mut Rng::new(1));
        extents.iter().map(|extent| extent.segment.0).collect()
    }

    #[test]
    fn preferred_names_come_first_then_the_walk() {
        let mut s = segments(Placement::FirstFit, &[("a", 64), ("b", 64), ("c", 64)]);
        assert_eq!(places(&mut s, 1, &[]), [0]);
        assert_eq!(places(&mut s, 2, &["c", "c", "nowhere"]), [2, 0]);
        assert_eq!(places(&mut s, 9, &[]), [0, 1, 2], "best effort");
    }

    #[test]
    fn a_single_name_takes_one_replica() {
        let mut s = segments(Placement::FirstFit, &[("a", 8), ("a", 64)]);
        assert_eq!(places(&mut s, 2, &["b"]), [0]);
        assert_eq!(places(&mut s, 2, &[]), [1], "the name's other segment");
        assert_eq!(places(&mut segments(Placement::Random, &[]), 1, &[]), [0u64; 0]);
    }

    #[test]
    fn a_full_preferred_segment_falls_over() {
        let mut s = segments(Placement::FirstFit, &[("a", 64), ("b", 8)]);
        assert_eq!(places(&mut s, 1, &["b"]), [1]);
        assert_eq!(places(&mut s, 1, &["b"]), [0]);
    }

    #[test]
    fn policies_choose_the_start() {
        let sizes = [("a", 1 << 20), ("b", 1 << 20)];
        let mut robin = segments(Placement::RoundRobin, &sizes);
        assert_eq!([places(&mut robin, 1, &[]), places(&mut robin, 1, &[])], [[0], [1]]);
        let mut emptiest = segments(Placement::FreeRatioFirst, &sizes);
        assert_eq!([places(&mut emptiest, 1, &[]), places(&mut emptiest, 1, &[])], [[0], [1]]);
        let mut script = segments(Placement::Scripted(vec!["b".into(), "b".into()]), &sizes);
        assert_eq!([places(&mut script, 1, &[]), places(&mut script, 1, &[])], [[1], [1]]);

        let mut random = segments(Placement::Random, &sizes);
        let mut rng = Rng::new(7);
        let on_b = (0..100).filter(|_| random.allocate(8, 1, &[], &mut rng)[0].segment.0 == 1);
        assert!((35..65).contains(&on_b.count()), "uniform");
    }
}
