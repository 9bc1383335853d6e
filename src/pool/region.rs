//! The memory of a pool: one mapping, anonymous or a file that other processes map too.
//!
//! ```text
//! base                        base + len()    next page                              end of the last page
//! │ unit 0 │ unit 1 │ … │ unit n-1 │   pad   │ generation 0 │ generation 1 │ … │ pad │ header │
//! └───── what is registered ───────┘         └──── control area, never registered ───────────┘
//! ```
//!
//! The control area holds the generation of each unit's allocation, so that a process that only maps the
//! region can tell a stale handle from a good one. The header, at a fixed distance from the end, says what
//! the file is, and whether its owner has gone.
//!
//! This is the only file of the pool with unsafe code. It promises that every access stays inside the
//! region. It does **not** promise exclusivity: that is what leases, pins and generations are for. The bytes
//! are reached through raw pointers; the one kind of reference handed out is the slice of [`Region::slice`],
//! and its two callers (a lease, a pin) hold the right to read what it covers.
//!
//! [`Region::dma_read`] and [`Region::dma_write`] stand for a card that holds the registration: they act at
//! any time, whatever the leases say, and are as racy as the hardware. They are for I/O that runs in place
//! of such a card, on memory that was lent to it, and for simulations of I/O that comes late.

#![expect(
    unsafe_code,
    reason = "the pool's bytes are raw memory; this file is where they are reached"
)]

use std::{
    fmt,
    path::Path,
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::{
    generation,
    region_file::{self, FileOwner, RegionError, io_error},
};

/// Marks a region file; the last byte is the version of its layout.
const MAGIC: u64 = u64::from_be_bytes(*b"STPOOL\0\x01");
const PAGE: u64 = 4096;

/// Header words, each 8 bytes, in the last [`HEADER_BYTES`] of the mapping.
const MAGIC_WORD: u64 = 0;
const UNIT_WORD: u64 = 1;
const UNITS_WORD: u64 = 2;
const RETIRED_WORD: u64 = 3;
/// 1 while a region has mappers and waits for its owner.
const PREPARED_WORD: u64 = 4;
const HEADER_BYTES: u64 = 64;
/// Bytes that [`Region::first_other`] looks at together.
const CHUNK: usize = 256;

/// One contiguous mapping that a pool divides into units. See the module's text.
pub struct Region {
    map: MmapRaw,
    /// Bytes of one unit.
    unit: u64,
    units: u32,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No address: it differs from run to run.
        f.debug_struct("Region").field("unit", &self.unit).field("units", &self.units).finish()
    }
}

impl Region {
    /// Zeroed memory of this process alone.
    pub(super) fn anonymous(unit: u64, units: u32) -> Result<Self, RegionError> {
        let bytes = mapping_bytes(unit, units);
        let map = MmapOptions::new()
            .len(bytes as usize)
            .map_anon()
            .map(MmapRaw::from)
            .map_err(|source| io_error("map memory for", Path::new(""), source))?;
        Ok(Self { map, unit, units }.with_header())
    }

    /// A new, zeroed file at `path`. A file that a dead owner left there is retired, so that whoever still
    /// maps it sees every handle as stale, and replaced.
    pub(super) fn shared(
        path: &Path,
        unit: u64,
        units: u32,
    ) -> Result<(Self, FileOwner), RegionError> {
        let owner = FileOwner::create(path, mapping_bytes(unit, units))?;
        Ok((Self { map: owner.map()?, unit, units }.with_header(), owner))
    }

    /// The owner's mapping of the region that mappers have prepared at `path`; `None` if there is no such
    /// file. The file loses its name: from here on the memory goes with its last process.
    ///
    /// A prepared region has exactly one owner. Another one's, or one of other sizes, is an error.
    pub(super) fn adopt(
        path: &Path,
        unit: u64,
        units: u32,
    ) -> Result<Option<(Self, FileOwner)>, RegionError> {
        let Some(file) = region_file::Prepared::find(path)? else { return Ok(None) };
        let region = Self::existing(file.map()?, path)?;
        if !region.is_prepared() {
            return Ok(None);
        }
        region.check_sizes(path, unit, units)?;
        let prepared = region.header(PREPARED_WORD);
        if prepared.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(RegionError::InUse { path: path.to_owned() });
        }
        Ok(Some((region, file.into_owner()?)))
    }

    /// Maps the region that waits for its owner at `path`, or makes it.
    pub(super) fn prepare(
        path: &Path,
        unit: u64,
        units: u32,
    ) -> Result<(Self, region_file::Prepared), RegionError> {
        let bytes = mapping_bytes(unit, units);
        let file = region_file::Prepared::find_or_make(path, bytes, |map| {
            let region = Self { map, unit, units };
            region.header(PREPARED_WORD).store(1, Ordering::Relaxed);
            drop(region.with_header());
        })?;
        let region = Self::existing(file.map()?, path)?;
        region.check_sizes(path, unit, units)?;
        if !region.is_prepared() {
            return Err(RegionError::InUse { path: path.to_owned() });
        }
        Ok((region, file))
    }

    /// Whether the region still waits for its owner.
    pub(super) fn is_prepared(&self) -> bool {
        self.header(PREPARED_WORD).load(Ordering::Acquire) != 0
    }

    /// Whether two processes mean the same region.
    fn check_sizes(&self, path: &Path, unit: u64, units: u32) -> Result<(), RegionError> {
        let found = [
            ("bytes in a unit", self.unit, unit),
            ("number of units", self.units.into(), units.into()),
        ];
        match found.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => {
                Err(RegionError::Format { path: path.to_owned(), what, found, expected })
            }
            None => Ok(()),
        }
    }

    /// Maps a file that another process (or another pool of this one) owns.
    pub(super) fn open(path: &Path) -> Result<Self, RegionError> {
        Self::existing(region_file::open(path)?.1, path)
    }

    /// The region that a mapping's header describes.
    pub(super) fn existing(map: MmapRaw, path: &Path) -> Result<Self, RegionError> {
        let wrong = |what, found, expected| RegionError::Format {
            path: path.to_owned(),
            what,
            found,
            expected,
        };
        let length = map.len() as u64;
        if length < PAGE || !length.is_multiple_of(PAGE) {
            return Err(wrong("length in bytes", length, PAGE));
        }
        let tail = length - HEADER_BYTES;
        let word = |number: u64| atomic64(&map, tail + 8 * number).load(Ordering::Acquire);
        if word(MAGIC_WORD) != MAGIC {
            return Err(wrong("magic number", word(MAGIC_WORD), MAGIC));
        }
        let (unit, units) = (word(UNIT_WORD), word(UNITS_WORD));
        let units32 = u32::try_from(units).map_err(|_| wrong("unit count", units, 1 << 30))?;
        match mapping_bytes_checked(unit, units32) {
            Some(expected) if expected == length => Ok(Self { map, unit, units: units32 }),
            expected => Err(wrong("length in bytes", length, expected.unwrap_or(0))),
        }
    }

    /// Start of the memory: page aligned, the same for the life of the region.
    pub fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Bytes of memory: what is allocated, registered and unregistered.
    pub fn len(&self) -> u64 {
        self.unit * u64::from(self.units)
    }

    /// Never: a region has at least one unit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Number of units.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Reads as a card would: at any time, whatever the leases say.
    ///
    /// # Panics
    /// If the range leaves the region; a card would report a remote access error.
    pub fn dma_read(&self, offset: u64, to: &mut [u8]) {
        self.check(offset, to.len() as u64);
        // SAFETY: the range lies in the mapping (checked above), which lives as long as `self`; `to` is a
        // Rust slice, and no Rust slice that can be written overlaps the mapping.
        unsafe { ptr::copy_nonoverlapping(self.at(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Writes as a card would: at any time, whatever the leases say.
    ///
    /// # Panics
    /// If the range leaves the region; a card would report a remote access error.
    pub fn dma_write(&self, offset: u64, from: &[u8]) {
        self.check(offset, from.len() as u64);
        // SAFETY: the range lies in the mapping (checked above), which is writable and lives as long as
        // `self`. `copy` allows `from` to overlap it. Whether anybody may write there is the contract of
        // leases and transfers; readers of a lent range are told to expect what a card does to it.
        unsafe { ptr::copy(from.as_ptr(), self.at(offset), from.len()) }
    }

    /// Sets `len` bytes to `byte`.
    pub(super) fn fill(&self, offset: u64, len: u64, byte: u8) {
        self.check(offset, len);
        // SAFETY: as in `dma_write`.
        unsafe { ptr::write_bytes(self.at(offset), byte, len as usize) }
    }

    /// The byte at `offset`.
    pub(super) fn byte(&self, offset: u64) -> u8 {
        let mut byte = [0];
        self.dma_read(offset, &mut byte);
        byte[0]
    }

    /// Maps what nobody has touched yet, all at once: a look at every byte would fault page by page.
    pub(super) fn touch(&self) {
        // A system that cannot leaves it to the looks.
        let _ = self.map.advise(Advice::PopulateRead);
    }

    /// The first of `len` bytes that differs from `byte`, as its offset in the region.
    pub(super) fn first_other(&self, offset: u64, len: u64, byte: u8) -> Option<u64> {
        // Whole chunks at once: a search byte by byte would take most of a simulation's time.
        let differs = |chunk: &[u8]| chunk.iter().fold(0, |any, found| any | (found ^ byte)) != 0;
        let (number, chunk) =
            self.slice(offset, len).chunks(CHUNK).enumerate().find(|(_, chunk)| differs(chunk))?;
        let at = chunk.iter().position(|found| *found != byte)?;
        Some(offset + (number * CHUNK + at) as u64)
    }

    /// The bytes of a range that the caller may read: its lease or pin must cover the range for as long as
    /// the slice lives.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub(super) fn slice(&self, offset: u64, len: u64) -> &[u8] {
        self.check(offset, len);
        // SAFETY: the range lies in the mapping, which is initialised (the system zeroes it) and lives as
        // long as `self`. Nothing writes there meanwhile: the callers hold a lease by shared reference
        // (writing needs it mutably), or a pin (a resident is not written), or the pool's lock over free
        // memory. Cards keep to the same rule by holding a transfer while they write.
        unsafe { std::slice::from_raw_parts(self.at(offset), len as usize) }
    }

    /// The generation that `unit` had last, as every mapper sees it.
    pub(super) fn generation(&self, unit: u32) -> u32 {
        self.generation_word(unit).load(Ordering::Acquire)
    }

    /// Like [`Region::generation`], after everything that this thread has read: if the generation is still
    /// that of the handle, then what was read belongs to it.
    pub(super) fn generation_after_reading(&self, unit: u32) -> u32 {
        generation::after_reading(self.generation_word(unit))
    }

    /// Begins a new generation of `unit`, before anything is written to its memory.
    pub(super) fn set_generation(&self, unit: u32, generation: u32) {
        generation::begin(self.generation_word(unit), generation);
    }

    /// Whether the owner of the region has gone.
    pub(super) fn is_retired(&self) -> bool {
        self.header(RETIRED_WORD).load(Ordering::Acquire) != 0
    }

    /// Says to every mapper that the owner has gone.
    pub(super) fn set_retired(&self) {
        self.header(RETIRED_WORD).store(1, Ordering::Release);
    }

    fn with_header(self) -> Self {
        self.header(UNIT_WORD).store(self.unit, Ordering::Relaxed);
        self.header(UNITS_WORD).store(self.units.into(), Ordering::Relaxed);
        self.header(MAGIC_WORD).store(MAGIC, Ordering::Release);
        self
    }

    fn header(&self, number: u64) -> &AtomicU64 {
        atomic64(&self.map, self.map.len() as u64 - HEADER_BYTES + 8 * number)
    }

    fn generation_word(&self, unit: u32) -> &AtomicU32 {
        assert!(unit < self.units, "expected a unit below {}, got {unit}", self.units);
        let offset = self.len().next_multiple_of(PAGE) + 4 * u64::from(unit);
        // SAFETY: the control area has 4 aligned bytes for each unit (`mapping_bytes`), the mapping is page
        // aligned and writable and lives as long as `self`, and these bytes are only reached atomically.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }
    }

    fn check(&self, offset: u64, len: u64) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "expected a range in the region's {} bytes, got {len} bytes at {offset}",
            self.len()
        );
    }

    /// The address of a byte that the caller has checked to lie in the mapping.
    fn at(&self, offset: u64) -> *mut u8 {
        self.base().wrapping_add(offset as usize)
    }
}

/// Bytes of data and control area together, in whole pages.
fn mapping_bytes(unit: u64, units: u32) -> u64 {
    mapping_bytes_checked(unit, units).expect("the pool's configuration bounds the region")
}

fn mapping_bytes_checked(unit: u64, units: u32) -> Option<u64> {
    let data = unit.checked_mul(units.into())?.checked_next_multiple_of(PAGE)?;
    let control = 4 * u64::from(units) + HEADER_BYTES;
    data.checked_add(control)?.checked_next_multiple_of(PAGE)
}

fn atomic64(map: &MmapRaw, offset: u64) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8) && offset + 8 <= map.len() as u64);
    // SAFETY: 8 aligned bytes of the mapping (checked above, and a mapping is page aligned), writable, alive
    // as long as `map`, and only reached atomically.
    unsafe { AtomicU64::from_ptr(map.as_mut_ptr().wrapping_add(offset as usize).cast()) }
}
