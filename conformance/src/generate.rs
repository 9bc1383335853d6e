//! Random sequences: a few keys, a few lengths, so that calls meet each other's objects.

use proptest::{collection::vec, prelude::*, sample::select};

use crate::step::{Call, Keep, Object, Room, Step, Wait};

/// Lengths of objects and of rooms for them, so that exact, larger and too small all happen.
const LENGTHS: [u32; 4] = [1, 100, 4096, 65_537];

/// A sequence of `calls` steps or so.
pub fn sequence(calls: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), calls)
}

fn step() -> impl Strategy<Value = Step> {
    let client = prop_oneof![2 => Just(0usize), 1 => Just(1usize)];
    prop_oneof![
        200 => (client, call()).prop_map(|(client, call)| Step::Call { client, call }),
        4 => Just(Step::Keys),
        2 => Just(Step::Wait(Wait::Leases)),
        1 => Just(Step::Wait(Wait::Discards)),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![8 => question(), 10 => get(), 16 => put(), 10 => session(), 10 => removal(), 1 => memory()]
}

fn question() -> impl Strategy<Value = Call> {
    prop_oneof![
        key().prop_map(|key| Call::IsExist { key }),
        vec(key(), 0..5).prop_map(|keys| Call::BatchIsExist { keys }),
        key().prop_map(|key| Call::GetSize { key }),
    ]
}

fn get() -> impl Strategy<Value = Call> {
    prop_oneof![
        key().prop_map(|key| Call::Get { key }),
        whole_room().prop_map(|room| Call::GetInto { room }),
        vec(whole_room(), 0..5).prop_map(|rooms| Call::BatchGetInto { rooms }),
        vec(room(), 0..5).prop_map(|rooms| Call::BatchGetIntoMultiBuffers { rooms }),
    ]
}

fn put() -> impl Strategy<Value = Call> {
    let whole = || (whole_object(), keep());
    prop_oneof![
        whole().prop_map(|(object, keep)| Call::Put { object, keep }),
        whole().prop_map(|(object, keep)| Call::PutFrom { object, keep }),
        (object(), keep()).prop_map(|(object, keep)| Call::PutParts { object, keep }),
        (vec(whole_object(), 1..4), keep())
            .prop_map(|(objects, keep)| Call::PutBatch { objects, keep }),
        (vec(whole_object(), 0..5), keep())
            .prop_map(|(objects, keep)| Call::BatchPutFrom { objects, keep }),
        (vec(object(), 0..5), keep())
            .prop_map(|(objects, keep)| Call::BatchPutFromMultiBuffers { objects, keep }),
        whole().prop_map(|(object, keep)| Call::Upsert { object, keep }),
    ]
}

fn session() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (key(), length(), keep()).prop_map(|(key, bytes, keep)| Call::Start { key, bytes, keep }),
        1 => key().prop_map(|key| Call::End { key }),
        1 => key().prop_map(|key| Call::Revoke { key }),
    ]
}

fn removal() -> impl Strategy<Value = Call> {
    let force = proptest::bool::ANY;
    prop_oneof![
        6 => (key(), force).prop_map(|(key, force)| Call::Remove { key, force }),
        3 => (vec(key(), 0..4), force)
            .prop_map(|(keys, force)| Call::BatchRemove { keys, force }),
        2 => (pattern(), force)
            .prop_map(|(pattern, force)| Call::RemoveByRegex { pattern, force }),
        1 => force.prop_map(|force| Call::RemoveAll { force }),
    ]
}

fn memory() -> impl Strategy<Value = Call> {
    let at = || select(vec![0u32, 4096, 8192, 12_288]);
    prop_oneof![
        4 => (at(), select(vec![4096u32, 8192])).prop_map(|(at, bytes)| Call::RegisterBuffer { at, bytes }),
        2 => at().prop_map(|at| Call::UnregisterBuffer { at }),
        1 => Just(Call::HealthCheck),
    ]
}

fn key() -> impl Strategy<Value = String> {
    let keys = ["a", "b", "b1", "c d", "é"].map(str::to_owned).to_vec();
    prop_oneof![40 => select(keys), 1 => Just(String::new())]
}

fn pattern() -> impl Strategy<Value = String> {
    let patterns = ["b", "^s[0-9]+/b$", "[ab]", "d$", "é", ".", "nothing", "[", "(a|c)"];
    select(patterns.map(str::to_owned).to_vec())
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![20 => select(LENGTHS.to_vec()), 1 => Just(0u32)]
}

/// One of the usual lengths in one to three parts, empty ones among them; sometimes any parts.
fn parts() -> impl Strategy<Value = Vec<u32>> {
    let cut = (length(), 0u32..=100, 0u32..=100).prop_map(|(length, one, two)| {
        let first = (u64::from(length) * u64::from(one) / 100) as u32;
        let second = ((u64::from(length - first)) * u64::from(two) / 100) as u32;
        vec![first, second, length - first - second]
    });
    prop_oneof![
        3 => length().prop_map(|length| vec![length]),
        3 => cut,
        1 => vec(length(), 0..4),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    (key(), parts(), any::<u8>()).prop_map(|(key, parts, seed)| Object { key, parts, seed })
}

fn whole_object() -> impl Strategy<Value = Object> {
    (key(), length(), any::<u8>()).prop_map(|(key, length, seed)| Object {
        key,
        parts: vec![length],
        seed,
    })
}

fn room() -> impl Strategy<Value = Room> {
    (key(), parts()).prop_map(|(key, parts)| Room { key, parts })
}

fn whole_room() -> impl Strategy<Value = Room> {
    (key(), length()).prop_map(|(key, length)| Room { key, parts: vec![length] })
}

fn keep() -> impl Strategy<Value = Keep> {
    let pins = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2));
    let replicas = prop_oneof![30 => Just(1u32), 2 => Just(2u32), 1 => Just(0u32)];
    let prefer = prop_oneof![8 => Just(None), 1 => Just(Some(0usize)), 1 => Just(Some(1usize))];
    (pins, replicas, prefer).prop_map(|((soft_pin, hard_pin), replicas, prefer)| Keep {
        replicas,
        soft_pin,
        hard_pin,
        prefer,
    })
}
