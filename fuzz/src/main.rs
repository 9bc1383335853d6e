//! What libFuzzer runs. `SPRINGTIDE_FUZZ_TARGET` names the target: one program serves them all, so that it is
//! built and linked once.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use springtide_fuzz::{Target, target};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let run = TARGET.get_or_init(|| {
        target(&std::env::var("SPRINGTIDE_FUZZ_TARGET").expect("ci/fuzz names the target"))
    });
    run(bytes);
});
