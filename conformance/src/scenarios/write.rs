//! Short ways to write steps.

use crate::step::{Call, Event, Keep, Object, Room, Step, Wait};

/// The length of an object where it does not matter.
pub(super) const LEN: u32 = 4096;

pub(super) fn by(client: usize, call: Call) -> Step {
    Step::Call { client, call }
}

pub(super) fn event(event: Event) -> Step {
    Step::Event(event)
}

pub(super) fn wait(wait: Wait) -> Step {
    Step::Wait(wait)
}

/// Waits until the key's length is answered with this code.
pub(super) fn until(key: &str, code: i64) -> Step {
    Step::Wait(Wait::Size { key: key.to_owned(), code })
}

pub(super) fn object(key: &str, bytes: u32) -> Object {
    let seed = key.bytes().fold(7, |seed: u8, byte| seed.wrapping_mul(31).wrapping_add(byte));
    Object { key: key.to_owned(), parts: vec![bytes], seed }
}

pub(super) fn room(key: &str, bytes: u32) -> Room {
    Room { key: key.to_owned(), parts: vec![bytes] }
}

pub(super) fn put(key: &str, bytes: u32) -> Call {
    put_kept(key, bytes, Keep::default())
}

pub(super) fn put_kept(key: &str, bytes: u32, keep: Keep) -> Call {
    Call::PutFrom { object: object(key, bytes), keep }
}

pub(super) fn upsert(key: &str, bytes: u32) -> Call {
    Call::Upsert { object: object(key, bytes), keep: Keep::default() }
}

pub(super) fn start(key: &str, bytes: u32) -> Call {
    Call::Start { key: key.to_owned(), bytes, keep: Keep::default() }
}

pub(super) fn end(key: &str) -> Call {
    Call::End { key: key.to_owned() }
}

pub(super) fn exist(key: &str) -> Call {
    Call::IsExist { key: key.to_owned() }
}

pub(super) fn size(key: &str) -> Call {
    Call::GetSize { key: key.to_owned() }
}

pub(super) fn get(key: &str, bytes: u32) -> Call {
    Call::GetInto { room: room(key, bytes) }
}

pub(super) fn multi_get(key: &str, parts: &[u32]) -> Call {
    let room = Room { key: key.to_owned(), parts: parts.to_vec() };
    Call::BatchGetIntoMultiBuffers { rooms: vec![room] }
}

pub(super) fn remove(key: &str, force: bool) -> Call {
    Call::Remove { key: key.to_owned(), force }
}

pub(super) fn hard() -> Keep {
    Keep { hard_pin: true, ..Keep::default() }
}

pub(super) fn soft() -> Keep {
    Keep { soft_pin: true, ..Keep::default() }
}

pub(super) fn on(client: usize) -> Keep {
    Keep { prefer: Some(client), ..Keep::default() }
}

/// Every call that names a key, for an object of [`LEN`] bytes.
pub(super) fn every_call(key: &str) -> Vec<Call> {
    let keep = Keep::default();
    let half = [LEN / 2, LEN / 2];
    vec![
        exist(key),
        Call::BatchIsExist { keys: vec![key.to_owned(), key.to_owned()] },
        size(key),
        Call::Get { key: key.to_owned() },
        get(key, LEN),
        get(key, LEN + 1),
        get(key, LEN - 1),
        Call::BatchGetInto { rooms: vec![room(key, LEN), room(key, LEN)] },
        multi_get(key, &half),
        multi_get(key, &[LEN, 1]),
        multi_get(key, &[LEN / 2]),
        Call::Put { object: object(key, 100), keep: keep.clone() },
        put(key, 100),
        Call::BatchPutFrom { objects: vec![object(key, 9), object(key, 10)], keep: keep.clone() },
        Call::BatchPutFromMultiBuffers { objects: vec![object(key, 11)], keep: keep.clone() },
        Call::PutBatch { objects: vec![object(key, 12)], keep },
        start(key, 13),
        upsert(key, 100),
        upsert(key, LEN),
        remove(key, false),
        remove(key, true),
        Call::BatchRemove { keys: vec![key.to_owned(), key.to_owned()], force: false },
        Call::RemoveByRegex { pattern: format!("{key}$"), force: false },
        Call::RemoveByRegex { pattern: format!("{key}$"), force: true },
    ]
}
