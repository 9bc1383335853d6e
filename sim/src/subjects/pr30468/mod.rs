//! The design of vllm#30468, written anew from descriptions of its behaviour, as a subject for comparison.
//!
//! It is the connector that this project began from: encoder outputs on Mooncake Store, a pool of registered
//! memory, `wait_for_save`. What it does in the good case it does here, too. What is known to go wrong in it is
//! kept, by the numbers of the hazards that `docs/compare.md` lists:
//!
//! | module | what it is | hazards |
//! |---|---|---|
//! | [`pool`] | addresses as handles, a queue of blocks by age, no pins; a full pool frees its oldest block by itself | 2, 3, 4 |
//! | [`memory`] | the bytes behind the addresses, as cards see them: a block has no owner, so I/O and a new tenant overlap | 13 |
//! | [`saves`] | one task a save behind one event loop; header and payload as two objects; pending keys as a set; a time limit that frees the block | 1, 5, 6, 7, 11, 16, 17, 20, 22, 23, 25, 27 |
//! | [`loads`] | lookups in the scheduler and loads in the model step, both blocking; a status that is not zero is a hit | 8, 10, 12, 14, 15, 28 |
//!
//! It keeps no accounts (hazard 30), so nothing about counters is asked of it. What its wait knows of a save is
//! reported as the design takes it: a put that returned, whatever its status, is a success.

pub mod loads;
pub mod memory;
pub mod pool;
pub mod saves;

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use springtide::env::{Key, TensorSpec};

pub use self::{
    loads::{Scheduler, Worker},
    memory::Memory,
};

/// Bytes of a header object.
const HEADER_BYTES: usize = 256;

/// What an exception was about; a status code is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised(pub &'static str);

/// The payload object of an item: its bare name, whatever the model (hazard 19). The prefix is the store's
/// directory, the same for everybody.
pub fn key(item: &str) -> Key {
    Key::new(format!("pr/{item}"))
}

/// The header object of a payload object.
fn header_key(payload: &Key) -> Key {
    Key::new(format!("{payload}_metadata"))
}

/// Type and shape as text, padded.
fn header(spec: TensorSpec) -> Vec<u8> {
    let mut text = serde_json::to_vec(&spec).expect("plain data");
    assert!(text.len() <= HEADER_BYTES, "a header has room for {MAX} dimensions", MAX = 4);
    text.resize(HEADER_BYTES, b' ');
    text
}

/// What a header says; `None` if it is none.
fn read_header(bytes: &[u8]) -> Option<TensorSpec> {
    serde_json::from_slice(bytes).ok()
}

/// Runs a task's body as an interpreter would: a panic of what it calls is an exception.
async fn caught<T>(body: impl Future<Output = Result<T, Raised>>) -> Result<T, Raised> {
    let mut body = pin!(body);
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(context)))
            .unwrap_or(Poll::Ready(Err(Raised("a call raised"))))
    })
    .await
}

#[cfg(test)]
mod tests {
    use springtide::env::{DType, Shape};

    use super::*;

    #[test]
    fn a_header_says_what_was_written() {
        let spec = TensorSpec::new(DType::F16, Shape::new(&[1024, 1, 7, 32]).unwrap()).unwrap();
        assert_eq!(read_header(&header(spec)), Some(spec));
        assert_eq!(read_header(&[0; HEADER_BYTES]), None);
    }
}
