//! The connector on the real Mooncake Store: a producer and a consumer, two processes, over tcp.
//!
//! `ci/real` sets up what this needs (the store, an interpreter to embed) and runs it. Each test has a master
//! of its own on free ports; every process is started here and stopped by its pid. Tests wait for conditions
//! with generous deadlines, never for time.
//!
//! | module | what it is |
//! |---|---|
//! | `protocol` | what the tests and the processes say to each other |
//! | `peer` | the other side: an instance with the connector, told what to do line by line |
//! | `processes` | masters and peers as the tests see them |

mod peer;
mod processes;
mod protocol;

use std::time::Duration;

use processes::{Master, Peer, until};
use protocol::{Item, PeerConfig};

/// Encoder outputs of a 7B model: 640x640, 1280x720, 1024x1024 and 1920x1080, 3.6 to 18.4 MiB.
const W1_ROWS: [u64; 4] = [529, 1196, 1369, 2691];

/// Longer than anything takes that goes well, on a machine that does much else.
const LONG: Duration = Duration::from_secs(90);

const MIB: u64 = 1 << 20;

fn items(name: &str, count: usize) -> Vec<Item> {
    let rows = W1_ROWS.iter().copied().cycle();
    let item = |(n, rows)| Item { identifier: format!("{name}-{n}"), rows };
    (0..count).zip(rows).map(item).collect()
}

fn producer(master: &Master, segment_bytes: u64) -> Peer {
    Peer::start(&PeerConfig { segment_bytes, ..PeerConfig::producer(&master.address) })
}

fn consumer(master: &Master) -> Peer {
    Peer::start(&PeerConfig::consumer(&master.address))
}

/// Saves until everything is readable: what a producer does that publishes again what was lost.
fn save_until_readable(producer: &mut Peer, wanted: &[Item]) {
    until(LONG, "every save is readable", || {
        let outcomes = producer.save(wanted, LONG);
        let readable = |outcome: &String| outcome == "stored" || outcome == "already there";
        outcomes.iter().all(readable).then_some(()).ok_or(outcomes)
    });
}

/// Asks again until everything is delivered: as a request does that comes later.
fn load_until_delivered(consumer: &mut Peer, wanted: &[Item]) {
    until(LONG, "every item is delivered", || {
        let loaded = consumer.load(wanted);
        assert_eq!(loaded.wrong, [""; 0], "delivered with other bytes");
        loaded.missed.is_empty().then_some(()).ok_or(loaded)
    });
}

#[test]
fn w1_items_cross_from_producer_to_consumer_byte_by_byte() {
    let master = Master::start();
    let (mut producer, mut consumer) = (producer(&master, 1024 * MIB), consumer(&master));
    let wanted = items("w1", 24);
    assert_eq!(producer.save(&wanted, LONG), ["stored"; 24]);
    for batch in wanted.chunks(4) {
        let loaded = consumer.load(batch);
        assert_eq!((loaded.delivered, loaded.wrong), (batch.len(), vec![]), "{:?}", loaded.missed);
    }
    // Again: the last ones lie in the pool, without the store.
    let gets = consumer.state().gets;
    assert_eq!(consumer.load(&wanted[20..]).delivered, 4);
    assert_eq!(consumer.state().gets, gets);
    // A second producer finds them all.
    let mut second = Peer::start(&PeerConfig::producer(&master.address));
    assert_eq!(second.save(&wanted[..8], LONG), ["already there"; 8]);
    for peer in [second, consumer, producer] {
        peer.close_clean();
    }
}

#[test]
fn a_master_restart_loses_everything_and_nothing_waits_for_ever() {
    let mut master = Master::start();
    let (mut producer, mut consumer) = (producer(&master, 512 * MIB), consumer(&master));
    let (before, after) = (items("before", 8), items("after", 8));
    assert_eq!(producer.save(&before, LONG), ["stored"; 8]);
    load_until_delivered(&mut consumer, &before[..4]);

    master.stop();
    let outcomes = producer.save(&after, Duration::from_secs(5));
    let unreadable = |outcome: &String| outcome.starts_with("failed") || outcome == "timed out";
    assert!(outcomes.iter().all(unreadable), "{outcomes:?}");
    let loaded = consumer.load(&before[4..]);
    assert_eq!((loaded.delivered, loaded.wrong), (0, vec![]));
    // What was loaded before needs no store.
    assert_eq!(consumer.load(&before[..4]).delivered, 4);

    master.restart();
    save_until_readable(&mut producer, &after);
    load_until_delivered(&mut consumer, &after);
    // The master has forgotten: the producer publishes again, from its pool.
    save_until_readable(&mut producer, &before);
    load_until_delivered(&mut consumer, &before);
    for peer in [consumer, producer] {
        peer.close_clean();
    }
}

#[test]
fn a_killed_producer_costs_its_items_and_nothing_else() {
    let master = Master::start();
    let mut first = producer(&master, 512 * MIB);
    let mut consumer = consumer(&master);
    let wanted = items("orphan", 8);
    assert_eq!(first.save(&wanted, LONG), ["stored"; 8]);
    load_until_delivered(&mut consumer, &wanted[..2]);
    first.kill();

    // The master believes in the dead segment for a while: a get fails, or the item is absent.
    let loaded = consumer.load(&wanted[2..4]);
    assert_eq!((loaded.delivered, loaded.wrong), (0, vec![]));
    // Its successor publishes them again as soon as the master has noticed.
    let mut second = producer(&master, 512 * MIB);
    until(LONG, "the items of the dead producer are delivered again", || {
        second.save(&wanted, LONG);
        let loaded = consumer.load(&wanted);
        assert_eq!(loaded.wrong, [""; 0]);
        loaded.missed.is_empty().then_some(()).ok_or(loaded)
    });
    for peer in [consumer, second] {
        peer.close_clean();
    }
}

#[test]
fn a_full_store_evicts_or_refuses_and_the_newest_item_can_be_loaded() {
    let master = Master::start();
    let (mut producer, mut consumer) = (producer(&master, 96 * MIB), consumer(&master));
    // 24 times the size of 10 MiB on average: more than twice the segment.
    let wanted = items("flood", 24);
    let mut stored = 0;
    for item in &wanted {
        let outcomes = producer.save(std::slice::from_ref(item), LONG);
        match outcomes[0].as_str() {
            "stored" => {
                stored += 1;
                load_until_delivered(&mut consumer, std::slice::from_ref(item));
            }
            refused => assert!(refused.starts_with("failed(NO_AVAILABLE_HANDLE"), "{refused}"),
        }
    }
    // Leases protect what was read for 1.5 s, a save tries for 10 s: every one finds room in the end.
    assert_eq!(stored, wanted.len());
    for peer in [consumer, producer] {
        peer.close_clean();
    }
}

#[test]
fn ten_thousand_items_leave_no_block_and_no_registration_behind() {
    let master = Master::start();
    let (mut producer, mut consumer) = (producer(&master, 256 * MIB), consumer(&master));
    let small = |n: usize| Item { identifier: format!("small-{n}"), rows: 1 + n as u64 % 8 };
    let wanted: Vec<Item> = (0..10_000).map(small).collect();
    let mut threads = None;
    for batch in wanted.chunks(500) {
        save_until_readable(&mut producer, batch);
        load_until_delivered(&mut consumer, batch);
        for peer in [&mut producer, &mut consumer] {
            let state = peer.state();
            assert_eq!(state.registrations, 1, "one region, registered once");
            let usage = &state.usage;
            assert_eq!(
                (usage.in_flight, usage.filling, usage.quarantined, usage.pinned),
                (0, 0, 0, 0)
            );
            assert_eq!(usage.allocations as usize, state.residents, "a block that nobody knows");
        }
        let now = (producer.state().threads, consumer.state().threads);
        // Mooncake starts some when the first peer connects; from then on they stay.
        assert!(threads.is_none_or(|before| before == now), "{threads:?}, now {now:?}");
        threads = Some(now).filter(|_| batch[0].identifier != "small-0");
    }
    let (saved, loaded) = (producer.state(), consumer.state());
    assert!(saved.stored >= 10_000, "{saved:?}");
    assert!(loaded.loaded >= 10_000, "{loaded:?}");
    for peer in [consumer, producer] {
        peer.close_clean();
    }
}

/// The other side of every test, in a process of its own.
#[test]
#[ignore = "run by the tests above in processes of their own"]
fn peer_in_this_process() {
    peer::run();
}
