//! The state of one allocation: generation, state and pins in one atomic word.
//!
//! Every transition is a method that either happens whole or is refused; there is no way to set a word.
//! Pinning and unpinning need nothing else, so they are lock-free and race safely with eviction: whoever
//! changes the word first wins, the other is refused.
//!
//! ```text
//!             reserve              lend
//!      Free ──────────▶ Filling ◀────────▶ InFlight ──quarantine──▶ Quarantined
//!       ▲ ▲               │  ▲  take back                                │
//!       │ └────release────┘  │                                           │
//!       │         publish │  │ reclaim (unpinned, new generation)        │
//!       │                 ▼  │                                           │
//!       ├──evict────── Resident ◀─▶ pin, unpin                           │
//!       │ (unpinned)      │ discard while pinned                         │
//!       │                 ▼                                              │
//!       └──bury─────── Condemned (last unpin)                            │
//!       └───────────────────────absolve──────────────────────────────────┘
//! ```
//!
//! Each arrow into `Free`, and `reclaim`, begins a new generation: handles from before it are stale. The
//! generation wraps after 2³² uses of one first unit.

#[cfg(test)]
mod tests;

use crate::sync::{AtomicU64, Ordering};

/// What an allocation is being used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nobody's.
    Free = 0,
    /// Exclusively owned by a lease.
    Filling = 1,
    /// Lent to a store or a device.
    InFlight = 2,
    /// Readable through pins; evictable while there are none.
    Resident = 3,
    /// Discarded while pinned: readable through the pins that exist, gone with the last of them.
    Condemned = 4,
    /// Lent to I/O whose end is unknown: neither readable nor free.
    Quarantined = 5,
}

/// The three parts of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// How often the first unit's allocation has ended, modulo 2³².
    pub generation: u32,
    /// What the allocation is used for.
    pub state: State,
    /// Readers; 0 unless resident or condemned.
    pub pins: u32,
}

/// A transition that the word's value does not allow. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {transition} an allocation that is {found:?}")]
pub struct Refused {
    /// The transition.
    pub transition: &'static str,
    /// What the word held.
    pub found: Word,
}

/// What the end of a pin left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpinned {
    /// Other pins, or a resident.
    Kept,
    /// Nothing: this was the last pin of a discarded allocation, and the caller must [`StateWord::bury`] it.
    Last,
}

/// What a discard did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// The allocation is free.
    Freed,
    /// It is pinned and goes with its last pin.
    Condemned,
}

const PIN_BITS: u32 = 28;
const PINS_MAX: u32 = (1 << PIN_BITS) - 1;

impl Word {
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32
            | u64::from(self.state as u8) << PIN_BITS
            | u64::from(self.pins)
    }

    fn unpack(word: u64) -> Self {
        let state = match word >> PIN_BITS & 0xF {
            0 => State::Free,
            1 => State::Filling,
            2 => State::InFlight,
            3 => State::Resident,
            4 => State::Condemned,
            5 => State::Quarantined,
            other => unreachable!("no transition writes state {other}"),
        };
        Self { generation: (word >> 32) as u32, state, pins: word as u32 & PINS_MAX }
    }

    fn with(self, state: State, pins: u32) -> Self {
        Self { state, pins, ..self }
    }

    /// The first word of the next generation.
    fn next(self, state: State) -> Self {
        Self { generation: self.generation.wrapping_add(1), state, pins: 0 }
    }

    fn is(self, state: State) -> bool {
        self.state == state
    }

    /// Resident, unpinned and of this generation.
    fn is_idle(self, generation: u32) -> bool {
        self == (Self { generation, state: State::Resident, pins: 0 })
    }
}

/// One allocation's word. Starts free, in generation 0.
#[derive(Debug)]
pub struct StateWord(AtomicU64);

impl Default for StateWord {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl StateWord {
    /// The word's value now.
    pub fn load(&self) -> Word {
        Word::unpack(self.0.load(Ordering::Acquire))
    }

    /// Free → filling.
    ///
    /// # Errors
    /// [`Refused`] unless free.
    pub fn reserve(&self) -> Result<Word, Refused> {
        self.change("reserve", |w| w.is(State::Free).then(|| w.with(State::Filling, 0)))
    }

    /// Filling → free, next generation.
    ///
    /// # Errors
    /// [`Refused`] unless filling.
    pub fn release(&self) -> Result<Word, Refused> {
        self.change("release", |w| w.is(State::Filling).then(|| w.next(State::Free)))
    }

    /// Filling → in flight.
    ///
    /// # Errors
    /// [`Refused`] unless filling.
    pub fn lend(&self) -> Result<Word, Refused> {
        self.change("lend", |w| w.is(State::Filling).then(|| w.with(State::InFlight, 0)))
    }

    /// In flight → filling: the I/O is over.
    ///
    /// # Errors
    /// [`Refused`] unless in flight.
    pub fn take_back(&self) -> Result<Word, Refused> {
        self.change("take back", |w| w.is(State::InFlight).then(|| w.with(State::Filling, 0)))
    }

    /// In flight → quarantined: the end of the I/O is unknown.
    ///
    /// # Errors
    /// [`Refused`] unless in flight.
    pub fn quarantine(&self) -> Result<Word, Refused> {
        self.change("quarantine", |w| w.is(State::InFlight).then(|| w.with(State::Quarantined, 0)))
    }

    /// Quarantined → free, next generation: the I/O is known to be over.
    ///
    /// # Errors
    /// [`Refused`] unless quarantined.
    pub fn absolve(&self) -> Result<Word, Refused> {
        self.change("absolve", |w| w.is(State::Quarantined).then(|| w.next(State::Free)))
    }

    /// Filling → resident with one pin, the caller's.
    ///
    /// # Errors
    /// [`Refused`] unless filling.
    pub fn publish(&self) -> Result<Word, Refused> {
        self.change("publish", |w| w.is(State::Filling).then(|| w.with(State::Resident, 1)))
    }

    /// One more pin on the resident of this generation.
    ///
    /// # Errors
    /// [`Refused`] unless resident at this generation, or at 2²⁸ - 1 pins.
    pub fn pin(&self, generation: u32) -> Result<Word, Refused> {
        self.change("pin", |w| {
            let pinnable = w.is(State::Resident) && w.generation == generation;
            (pinnable && w.pins < PINS_MAX).then(|| w.with(w.state, w.pins + 1))
        })
    }

    /// One more pin beside one that the caller has; works on a condemned allocation too.
    ///
    /// # Errors
    /// [`Refused`] without a pin, or at 2²⁸ - 1 pins.
    pub fn repin(&self) -> Result<Word, Refused> {
        self.change("pin again", |w| {
            (w.pins > 0 && w.pins < PINS_MAX).then(|| w.with(w.state, w.pins + 1))
        })
    }

    /// One pin less.
    ///
    /// # Errors
    /// [`Refused`] without a pin.
    pub fn unpin(&self) -> Result<Unpinned, Refused> {
        let word =
            self.change("unpin", |w| w.pins.checked_sub(1).map(|pins| w.with(w.state, pins)))?;
        let last = word.is(State::Condemned) && word.pins == 0;
        Ok(if last { Unpinned::Last } else { Unpinned::Kept })
    }

    /// Resident and unpinned → free, next generation.
    ///
    /// # Errors
    /// [`Refused`] unless resident at this generation without pins.
    pub fn evict(&self, generation: u32) -> Result<Word, Refused> {
        self.change("evict", |w| w.is_idle(generation).then(|| w.next(State::Free)))
    }

    /// Resident and unpinned → filling, next generation.
    ///
    /// # Errors
    /// [`Refused`] unless resident at this generation without pins.
    pub fn reclaim(&self, generation: u32) -> Result<Word, Refused> {
        self.change("reclaim", |w| w.is_idle(generation).then(|| w.next(State::Filling)))
    }

    /// Resident → free, next generation, or → condemned if it is pinned.
    ///
    /// # Errors
    /// [`Refused`] unless resident at this generation.
    pub fn discard(&self, generation: u32) -> Result<Discarded, Refused> {
        let word = self.change("discard", |w| {
            let ours = w.is(State::Resident) && w.generation == generation;
            ours.then(|| match w.pins {
                0 => w.next(State::Free),
                pins => w.with(State::Condemned, pins),
            })
        })?;
        let freed = word.is(State::Free);
        Ok(if freed { Discarded::Freed } else { Discarded::Condemned })
    }

    /// Condemned without pins → free, next generation.
    ///
    /// # Errors
    /// [`Refused`] unless condemned without pins.
    pub fn bury(&self) -> Result<Word, Refused> {
        self.change("bury", |w| {
            (w.is(State::Condemned) && w.pins == 0).then(|| w.next(State::Free))
        })
    }

    /// Replaces the word by `to` of it, unless that is `None`; the new word.
    fn change(
        &self,
        transition: &'static str,
        to: impl Fn(Word) -> Option<Word>,
    ) -> Result<Word, Refused> {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            let found = Word::unpack(current);
            let word = to(found).ok_or(Refused { transition, found })?;
            match self.0.compare_exchange(current, word.pack(), Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(word),
                Err(changed) => current = changed,
            }
        }
    }
}
