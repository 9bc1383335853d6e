//! Fuzz targets: whatever bytes come from outside, nothing panics, hangs, or allocates without bound.
//!
//! A target is a function over bytes. libFuzzer drives it; the tests here play its corpus, so
//! that a finding, kept as a file, is a test ever after.
//!
//! | target | what the bytes are | what must hold, beyond the above |
//! |---|---|---|
//! | [`header`] | the first bytes of an object in the store | what is accepted is exactly what would be written |
//! | [`key`] | what a namespace is made of, and identifiers | different things have different keys, of bounded length |
//! | [`wire`] | what a peer of the fake store sends | the others are served; calls end in time |
//! | [`plan`] | a plan file of the simulator, or a fault plan | what is accepted is written and read back the same |
//! | [`pool`] | a pool's configuration and operations | the pool keeps to its shadow model |
//! | [`config`](mod@config) | a connector's configuration | what is valid can be used, and is read back the same |

#![forbid(unsafe_code)]

pub mod config;
pub mod header;
pub mod key;
pub mod plan;
mod planted;
pub mod pool;
pub mod wire;

pub use self::planted::PLANTED;

/// A function over bytes that panics where something is wrong.
pub type Target = fn(&[u8]);

/// The targets, by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("header", header::run),
    ("key", key::run),
    ("wire", wire::run),
    ("plan", plan::run),
    ("pool", pool::run),
    ("config", config::run),
];

/// The target with this name, those with planted bugs included.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().chain(&PLANTED).find(|(known, _)| *known == name);
    let known = TARGETS.map(|(known, _)| known).join(", ");
    found.unwrap_or_else(|| panic!("expected one of {known}, got {name:?}")).1
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Plays every file of every target's corpus.
    #[test]
    fn the_corpora_hold_no_failure() {
        for (name, run) in TARGETS {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let entries = fs::read_dir(&directory).expect("every target has a corpus");
            let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            files.sort();
            assert!(!files.is_empty(), "{} is empty", directory.display());
            for file in files {
                eprintln!("playing {}", file.display());
                run(&fs::read(&file).unwrap());
            }
        }
    }

    #[test]
    fn every_target_takes_anything() {
        for (_, run) in TARGETS {
            run(b"");
            for byte in [0, 1, 2, 0x7F, 0x80, 0xFF] {
                run(&[byte; 300]);
            }
        }
    }
}
