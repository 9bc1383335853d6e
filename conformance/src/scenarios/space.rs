//! Full segments. One put at a time, and after each the evictor is waited for: when it looks is not compared.

use super::{Scenario, write::*};
use crate::step::{Call, Keep, Object, Room, Step, Wait, World};

const MIB: u64 = 1 << 20;

/// 64 of them fill the segment.
const BLOCK: u32 = 256 << 10;
const SEGMENT: u64 = 16 * MIB;

pub(super) fn all() -> Vec<Scenario> {
    let world = World {
        lease_ttl_ms: 3000,
        discard_s: 300,
        segments: vec![SEGMENT, 0],
        ..World::default()
    };
    let brim = World { watermark: 1.0, ..world.clone() };
    let scenario =
        |name, world: &World, steps| Scenario { name, world: world.clone(), steps, slow: None };
    vec![
        scenario("the_oldest_are_evicted", &world, oldest()),
        scenario("hard_pins_stay", &world, all_kept(hard())),
        scenario("soft_pins_go_last", &world, all_kept(soft())),
        scenario(
            "soft_pins_stay_if_they_must",
            &World { evict_soft_pinned: false, ..world.clone() },
            all_kept(soft()),
        ),
        scenario(
            "soft_pins_end",
            &World { soft_pin_ttl_ms: 1500, ..world.clone() },
            soft_pins_end(),
        ),
        scenario("leases_hold_a_full_store", &brim, leased()),
        scenario("an_upsert_without_room_loses_the_object", &brim, upserts()),
        scenario(
            "a_batch_larger_than_the_store",
            &world,
            vec![by(0, batch(70, &hard())), Step::Keys],
        ),
        scenario("sizes_are_rounded_to_bins", &world, bins()),
        scenario("too_many_fragments_of_a_put", &World::default(), many_parts(true)),
        Scenario {
            name: "too_many_fragments_of_a_get",
            // A get that waits for so long is no reason to begin again.
            world: World { lease_ttl_ms: 300_000, ..World::default() },
            steps: many_parts(false),
            slow: Some(
                "some of the gets that overflow a peer's queue end only with Mooncake's limit for a \
                 transfer, 60 s",
            ),
        },
    ]
}

fn key(number: usize) -> String {
    format!("k{number}.")
}

fn fill(keep: &Keep, numbers: std::ops::Range<usize>) -> Vec<Step> {
    numbers.map(|number| by(0, put_kept(&key(number), BLOCK, keep.clone()))).collect()
}

fn oldest() -> Vec<Step> {
    let mut steps = vec![by(0, start("unfinished", 100))];
    steps.extend([by(0, put_kept("soft", 1000, soft())), by(0, put_kept("hard", 1000, hard()))]);
    steps.extend(fill(&Keep::default(), 0..40));
    // The first ones are read, and later not leased any more: others are older.
    steps.extend((0..6).map(|number| by(1, get(&key(number), BLOCK))));
    steps.push(wait(Wait::Leases));
    steps.extend(fill(&Keep::default(), 40..56));
    steps.push(by(1, exist(&key(20))));
    steps.extend(fill(&Keep::default(), 56..72));
    steps.push(Step::Keys);
    steps.push(wait(Wait::Leases));
    steps.extend(fill(&Keep::default(), 72..90));
    steps.push(Step::Keys);
    steps.extend((0..90).map(|number| by(1, size(&key(number)))));
    steps
}

fn all_kept(keep: Keep) -> Vec<Step> {
    let mut steps = fill(&keep, 0..66);
    steps.extend([Step::Keys, by(1, remove(&key(60), false)), by(0, put(&key(99), BLOCK))]);
    steps.extend([by(1, put(&key(98), BLOCK)), Step::Keys]);
    steps
}

fn soft_pins_end() -> Vec<Step> {
    let mut steps = fill(&Keep::default(), 0..20);
    steps.extend(fill(&soft(), 20..40));
    steps.push(wait(Wait::SoftPins));
    steps.extend(fill(&Keep::default(), 40..66));
    steps.push(Step::Keys);
    steps
}

/// With everything leased a put fails until the first lease ends. It ends alone: how many others an
/// evictor would see is a matter of its moment.
fn leased() -> Vec<Step> {
    let mut steps = fill(&Keep::default(), 0..64);
    steps.extend([by(1, exist(&key(30))), wait(Wait::Millis(600))]);
    let others = (0..64).filter(|number| *number != 30).map(key);
    steps.push(by(1, Call::BatchIsExist { keys: others.collect() }));
    steps.extend([by(0, put("more", BLOCK)), by(1, put("more", BLOCK)), Step::Keys]);
    steps.extend([wait(Wait::Leases), by(0, put("more", BLOCK)), by(1, get("more", BLOCK))]);
    steps.push(Step::Keys);
    steps
}

fn upserts() -> Vec<Step> {
    let mut steps = fill(&hard(), 0..62);
    steps.extend([
        by(0, put("complete", BLOCK)),
        by(0, put("leased", BLOCK)),
        by(1, exist("leased")),
    ]);
    steps.extend([by(0, upsert("complete", 2 * BLOCK)), by(1, exist("complete"))]);
    steps.extend([by(0, upsert("leased", 2 * BLOCK)), by(1, size("leased"))]);
    // Their space is held back.
    steps.extend([by(1, upsert("absent", BLOCK)), by(0, put("absent", BLOCK)), Step::Keys]);
    steps
}

fn batch(n: usize, keep: &Keep) -> Call {
    let objects = (0..n).map(|number| object(&key(number), BLOCK)).collect();
    Call::BatchPutFrom { objects, keep: keep.clone() }
}

fn bins() -> Vec<Step> {
    let keys = (0..60).map(|number| by(0, put_kept(&key(number), BLOCK + 1, hard())));
    let mut steps: Vec<Step> = keys.collect();
    // What is left takes smaller ones.
    steps.extend((60..70).map(|number| by(0, put_kept(&key(number), BLOCK / 4, hard()))));
    steps.push(Step::Keys);
    steps
}

/// 40 objects of 64 parts: more than a peer's queue takes at once.
fn many_parts(put: bool) -> Vec<Step> {
    let parts = vec![16u32; 64];
    let objects: Vec<Object> =
        (0..40).map(|number| Object { parts: parts.clone(), ..object(&key(number), 0) }).collect();
    let whole = |objects| Call::BatchPutFromMultiBuffers { objects, keep: Keep::default() };
    if put {
        return vec![by(1, whole(objects))];
    }
    let rooms: Vec<Room> =
        (0..40).map(|number| Room { key: key(number), parts: parts.clone() }).collect();
    let all = |rooms| Call::BatchGetIntoMultiBuffers { rooms };
    vec![by(0, whole(objects)), by(1, all(rooms[..20].to_vec())), by(1, all(rooms))]
}
