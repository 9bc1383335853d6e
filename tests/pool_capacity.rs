//! How much of a pool the items of real encoders can use.

use springtide::pool::{
    PoolConfig,
    buddy::{Block, Buddy},
    extents,
};

const GIB: u64 = 1 << 30;
/// Bytes of an object beside its payload.
const HEADER: u64 = 64;

/// Model, width in the cache, tokens by image size: 448², 640², 1024², 1280×720, 1920×1080, 2400×1080,
/// 3840×2160. All in bf16. 28-pixel models first, 32-pixel models after them.
const MODELS: [(&str, u64, [u64; 7]); 12] = [
    ("Qwen2.5-VL-3B", 2048, PIXELS_28),
    ("Qwen2/2.5-VL-7B", 3584, PIXELS_28),
    ("Qwen2.5-VL-32B", 5120, PIXELS_28),
    ("Qwen2.5-VL-72B", 8192, PIXELS_28),
    ("Qwen3-VL-2B, 30B-A3B", 8192, PIXELS_32),
    ("Qwen3-VL-4B", 10240, PIXELS_32),
    ("Qwen3-VL-8B, 235B-A22B", 16384, PIXELS_32),
    ("Qwen3-VL-32B", 20480, PIXELS_32),
    ("Qwen3.5-4B", 2560, PIXELS_32),
    ("Qwen3.5-9B", 4096, PIXELS_32),
    ("Qwen3.5-27B", 5120, PIXELS_32),
    ("Qwen3.5/3.6-35B-A3B", 2048, PIXELS_32),
];
const PIXELS_28: [u64; 7] = [256, 529, 1369, 1196, 2691, 3354, 10549];
const PIXELS_32: [u64; 7] = [196, 400, 1024, 880, 2040, 2550, 8160];

/// Objects of `len` bytes that fit in a fresh GiB with the default unit.
fn held(len: u64, max_extents: usize) -> u64 {
    let config = PoolConfig::with_bytes(GIB);
    let mut buddy = Buddy::new(config.units().unwrap());
    let units = len.div_ceil(config.unit()) as u32;
    (0..).take_while(|_| extents::allocate(&mut buddy, units, max_extents).is_some()).count() as u64
}

/// The lowest share of the items that byte-perfect packing would hold, over all models and sizes.
fn worst(max_extents: usize) -> (f64, &'static str, u64) {
    let cells = MODELS.iter().flat_map(|(name, width, sizes)| {
        sizes.iter().map(move |tokens| (*name, *tokens, tokens * width * 2 + HEADER))
    });
    cells
        .map(|(name, tokens, len)| {
            let share = held(len, max_extents) as f64 / (GIB / len) as f64;
            (share, name, tokens)
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap()
}

#[test]
fn a_gib_holds_nearly_as_many_items_as_its_bytes_allow() {
    for max_extents in [1, 4, 8, 10, 16] {
        let (share, model, tokens) = worst(max_extents);
        println!("{max_extents:2} extents: worst {share:.4}, {model} with {tokens} tokens");
    }
    let (share, model, tokens) = worst(PoolConfig::with_bytes(GIB).max_extents);
    assert!(share >= 0.975, "{share:.4} of byte-perfect for {model} with {tokens} tokens");
}

/// Deterministic numbers for choosing sizes and victims.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }
}

/// Requested bytes over pool bytes whenever an allocation fails, in the steady state: the mean.
fn fill_at_failure(sizes_mib: &[f64], max_extents: usize) -> f64 {
    let config = PoolConfig::with_bytes(3 * GIB);
    let mut buddy = Buddy::new(config.units().unwrap());
    let mut draw = Draw(7);
    let mut live: Vec<(u32, Vec<Block>)> = Vec::new();
    let mut fills = Vec::new();
    let mut used = 0;
    for _ in 0..3000 {
        let bytes = sizes_mib[draw.below(sizes_mib.len())] * (1 << 20) as f64;
        let units = (bytes as u64 + HEADER).div_ceil(config.unit()) as u32;
        let mut failed = false;
        let blocks = loop {
            if let Some(blocks) = extents::allocate(&mut buddy, units, max_extents) {
                break blocks;
            }
            if !std::mem::replace(&mut failed, true) {
                fills.push(f64::from(used) / f64::from(buddy.units()));
            }
            let (units, blocks) = live.swap_remove(draw.below(live.len()));
            used -= units;
            blocks.into_iter().for_each(|block| buddy.free(block).unwrap());
        };
        used += units;
        live.push((units, blocks.to_vec()));
    }
    buddy.verify().unwrap();
    let steady = &fills[fills.len() / 2..];
    steady.iter().sum::<f64>() / steady.len() as f64
}

#[test]
fn scattered_items_fill_a_fragmented_pool_where_single_blocks_do_not() {
    for (workload, sizes_mib) in [
        ("chat", &[3.6, 8.2, 9.4, 18.4][..]),
        ("multi-image", &[12.5, 27.5, 32.0, 63.8]),
        ("mixed", &[1.0, 1.8, 2.5, 3.6, 4.0, 5.3, 8.3, 10.5, 16.0, 18.4, 32.0, 63.8]),
    ] {
        let (single, scattered) = (fill_at_failure(sizes_mib, 1), fill_at_failure(sizes_mib, 8));
        println!("{workload}: one block {single:.3}, eight extents {scattered:.3}");
        assert!(scattered >= 0.95, "{workload}: {scattered:.3}");
        assert!(scattered > single + 0.05, "{workload}: {scattered:.3} against {single:.3}");
    }
}
