//! Memory bugs on purpose. `ci/sanitize` runs each under the checkers that must report it, before it runs any
//! test under them: a checker that sees nothing here would see nothing there.
//!
//! Every address and every value passes through [`black_box`] or a volatile access: an optimizer removes a
//! bug whose result nobody uses, and a checker has then nothing to see.
//!
//! | bug | what must report it |
//! |---|---|
//! | `use-after-free` | AddressSanitizer, valgrind |
//! | `region-after-unmap` | AddressSanitizer, valgrind |
//! | `out-of-bounds` | AddressSanitizer, valgrind |
//! | `uninitialised` | valgrind |
//! | `data-race` | ThreadSanitizer |

#![expect(
    unsafe_code,
    reason = "every function here breaks a rule that only unsafe code can break"
)]

mod race;

use std::{alloc::Layout, env, hint::black_box, process::ExitCode, slice};

use springtide::pool::{Pool, PoolConfig, UNIT_HEADER};

/// The bugs, by name.
const BUGS: [(&str, fn()); 5] = [
    ("use-after-free", use_after_free),
    ("region-after-unmap", region_after_unmap),
    ("out-of-bounds", out_of_bounds),
    ("uninitialised", uninitialised),
    ("data-race", race::data_race),
];

fn main() -> ExitCode {
    let name = env::args().nth(1).unwrap_or_default();
    let Some((_, bug)) = BUGS.iter().find(|(known, _)| *known == name) else {
        let known = BUGS.map(|(known, _)| known).join(", ");
        eprintln!("planted: expected one of {known}, got {name:?}");
        return ExitCode::from(2);
    };
    bug();
    println!("planted: {name} went by unseen");
    ExitCode::SUCCESS
}

fn pool() -> Pool {
    let config =
        PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(8 * (512 + UNIT_HEADER)) };
    Pool::new(&config).expect("eight units of memory")
}

/// Reads a heap allocation that has been freed.
fn use_after_free() {
    let bytes = black_box(vec![7_u8; 64]);
    let address = black_box(bytes.as_ptr());
    drop(black_box(bytes));
    // SAFETY: none. The allocation has ended.
    black_box(unsafe { address.read_volatile() });
}

/// Reads a pool's memory after the pool and its region have gone.
fn region_after_unmap() {
    let pool = pool();
    let address = black_box(pool.region().base());
    drop(black_box(pool));
    // SAFETY: none. The mapping has ended.
    black_box(unsafe { address.read_volatile() });
}

/// Has the region copy its bytes past the end of their destination.
fn out_of_bounds() {
    let pool = pool();
    let mut bytes = black_box(vec![0_u8; 64]);
    // SAFETY: none. The slice is eight bytes longer than the allocation behind it.
    let longer = unsafe { slice::from_raw_parts_mut(black_box(bytes.as_mut_ptr()), 72) };
    pool.region().dma_read(0, black_box(longer));
    black_box(&bytes);
}

/// Decides by a byte that nobody has written.
fn uninitialised() {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the layout is not empty.
    let memory = unsafe { std::alloc::alloc(layout) };
    assert!(!memory.is_null(), "64 bytes of memory");
    // SAFETY: none. The bytes have not been written.
    if unsafe { black_box(memory).add(9).read_volatile() } == 0x5A {
        println!("planted: by chance, 0x5A");
    }
    // SAFETY: allocated above, with this layout.
    unsafe { std::alloc::dealloc(memory, layout) };
}
