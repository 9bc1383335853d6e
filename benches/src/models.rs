//! The items that real encoders emit: model, width of a row in the cache, rows by image size, in bf16.

/// Bytes of an object beside its payload.
pub const HEADER: u64 = 64;

/// A model's name, the width of its rows, and its rows at each of [`RESOLUTIONS`].
pub type Model = (&'static str, u64, [u64; 7]);

/// Image sizes in pixels, in the order of a model's rows.
pub const RESOLUTIONS: [&str; 7] =
    ["448x448", "640x640", "1024x1024", "1280x720", "1920x1080", "2400x1080", "3840x2160"];

/// One row per 28x28 pixels (Qwen2-VL and Qwen2.5-VL), or per 32x32 (Qwen3-VL, whose rows hold four levels of
/// features, and Qwen3.5).
pub const MODELS: [Model; 12] = [
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

/// Payload bytes of an item of `rows` rows of `width` elements in bf16.
pub fn payload(width: u64, rows: u64) -> u64 {
    rows * width * 2
}

/// Deterministic numbers (xorshift), so that every contestant gets the same work.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// In `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 44) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 20
    }
}
