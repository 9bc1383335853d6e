//! A data race in a pool's memory.

use std::{hint::black_box, thread};

use springtide::pool::{Pool, PoolConfig, UNIT_HEADER};

/// Writes the same bytes of a pool from two threads, with nothing between them.
pub(crate) fn data_race() {
    let config =
        PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(8 * (512 + UNIT_HEADER)) };
    let pool = Pool::new(&config).expect("eight units of memory");
    let region = pool.region();
    thread::scope(|scope| {
        for byte in [1, 2] {
            scope.spawn(move || {
                for _ in 0..1000 {
                    region.dma_write(black_box(100), black_box(&[byte; 32]));
                }
            });
        }
    });
}
