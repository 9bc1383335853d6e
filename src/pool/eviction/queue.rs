//! Doubly linked queues through a fixed array of nodes, one per unit: any resident can leave from anywhere.

const NONE: u32 = u32::MAX;

/// A resident's links.
#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// The links of all queues; a resident is in one queue at most.
#[derive(Debug)]
pub(super) struct Links(Box<[Link]>);

impl Links {
    pub(super) fn new(units: u32) -> Self {
        Self(vec![Link { prev: NONE, next: NONE }; units as usize].into_boxed_slice())
    }

    /// The one behind `index` in its queue.
    pub(super) fn next(&self, index: u32) -> Option<u32> {
        some(self.0[index as usize].next)
    }
}

/// An end of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Where victims are looked for first.
    Front,
    /// Where new residents come in.
    Back,
}

/// A queue of residents, with their size in units.
#[derive(Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    units: u64,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, units: 0 };

    /// The first.
    pub(super) fn head(&self) -> Option<u32> {
        some(self.head)
    }

    /// Units of all residents in it.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    pub(super) fn push(&mut self, links: &mut Links, index: u32, units: u32, end: End) {
        let link = match end {
            End::Back => Link { prev: self.tail, next: NONE },
            End::Front => Link { prev: NONE, next: self.head },
        };
        links.0[index as usize] = link;
        *self.before(links, link) = index;
        *self.behind(links, link) = index;
        self.units += u64::from(units);
    }

    pub(super) fn remove(&mut self, links: &mut Links, index: u32, units: u32) {
        let link = links.0[index as usize];
        *self.before(links, link) = link.next;
        *self.behind(links, link) = link.prev;
        self.units -= u64::from(units);
    }

    /// What points forward at the place of `link`: its predecessor, or the head.
    fn before<'a>(&'a mut self, links: &'a mut Links, link: Link) -> &'a mut u32 {
        match link.prev {
            NONE => &mut self.head,
            prev => &mut links.0[prev as usize].next,
        }
    }

    /// What points backward at the place of `link`: its successor, or the tail.
    fn behind<'a>(&'a mut self, links: &'a mut Links, link: Link) -> &'a mut u32 {
        match link.next {
            NONE => &mut self.tail,
            next => &mut links.0[next as usize].prev,
        }
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}
