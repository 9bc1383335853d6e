//! The items that real encoders emit, by model and image size, in bf16.

use springtide_cli::plan::{MODELS, tokens};

/// Bytes of an object beside its payload.
pub const HEADER: u64 = 64;

/// Image sizes in pixels, in the order of a model's rows.
pub const RESOLUTIONS: [(u64, u64); 7] =
    [(448, 448), (640, 640), (1024, 1024), (1280, 720), (1920, 1080), (2400, 1080), (3840, 2160)];

/// Models whose items are alike.
#[derive(Clone, Debug)]
pub struct Model {
    /// The first one's name.
    pub name: &'static str,
    /// Elements of a row.
    pub width: u64,
    /// Rows at each of [`RESOLUTIONS`].
    pub rows: [u64; 7],
}

/// The models that `springtide plan` knows, those with the same items once.
pub fn models() -> Vec<Model> {
    let mut kinds: Vec<(u64, u64)> = Vec::new();
    let mut models = Vec::new();
    for (name, width, pixels) in MODELS {
        if !kinds.contains(&(width, pixels)) {
            kinds.push((width, pixels));
            let rows = RESOLUTIONS.map(|resolution| tokens(resolution, pixels));
            models.push(Model { name, width, rows });
        }
    }
    models
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_that_were_measured() {
        let models = models();
        assert_eq!(models.len(), 12);
        let rows = |name: &str| models.iter().find(|model| model.name == name).unwrap().rows;
        assert_eq!(rows("Qwen2.5-VL-3B"), [256, 529, 1369, 1196, 2691, 3354, 10549]);
        assert_eq!(rows("Qwen3-VL-8B"), [196, 400, 1024, 880, 2040, 2550, 8160]);
    }
}
