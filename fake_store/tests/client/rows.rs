//! Reported faults that are the store's: each is named after its row in the list of scenarios, and shows that
//! the fake has the property (or the hazard) which the row is about.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig};
use springtide::env::{ErrorCode, Store};

use super::*;

/// A hit, then an eviction, then the load.
#[tokio::test(start_paused = true)]
async fn f077_absent_after_a_hit() {
    let mut config = config();
    config.master.lease_ttl = ms(100);
    config.master.eviction_high_watermark_ratio = 0.0;
    let bed = Bed::with(config);
    bed.put("k", b"bytes").await;
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    assert_eq!(bed.get("k", 5).await.unwrap(), b"bytes", "the lease protects");
    bed.sleep(ms(120)).await;
    assert_eq!(bed.get("k", 5).await, Err(-704));
}

/// A writer dies between start and end.
#[tokio::test(start_paused = true)]
async fn f081_writer_dies_between_start_and_end() {
    let bed = Bed::new();
    let session = bed.client.start_put("k", 1000, &ReplicaConfig::default()).await.unwrap();
    session.write(0, &[1; 500]).await.unwrap();
    let place = session.replicas()[0].clone();
    drop(session);
    bed.sleep(secs(10)).await;
    assert_eq!(bed.put("k", &[2; 1000]).await, 0, "busy: nothing is stored");
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    assert_eq!(bed.get("k", 1000).await, Err(-703), "a miss");
    bed.sleep(secs(30)).await;
    assert_eq!(bed.put("k", &[2; 1000]).await, 0);
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    let reused = |bed: &Bed| {
        bed.cluster.master().with(|master| {
            let objects = master.keys().filter_map(|key| master.peek(key)).collect::<Vec<_>>();
            objects.iter().flat_map(|object| &object.replicas).any(|r| r.offset == place.offset)
        })
    };
    assert_eq!(bed.put("j", &[3; 1000]).await, 0);
    assert!(!reused(&bed), "the dead writer may still write");
    bed.sleep(secs(1200)).await;
    assert_eq!(bed.put("i", &[4; 1000]).await, 0);
    assert!(reused(&bed), "released in the end");
}

/// A batched read that outlives its lease, over space that was given to another object.
#[tokio::test(start_paused = true)]
async fn f083_read_outlives_its_lease() {
    let mut config = config();
    config.master.lease_ttl = ms(500);
    let bed = Bed::with(config);
    bed.put("k", &[1; 100_000]).await;
    let held = Rule::new(Point::Read, Action::Stall).for_key("k").at_bytes(50_000).times(1);
    let held = bed.cluster.faults().add(held).unwrap();
    let read = bed.client.get(vec![get_item(&bed.pool, "k", 100_000)]);
    bed.cluster.faults().wait_held(held, 1).await;
    bed.sleep(ms(600)).await;
    bed.client.remove_all(false).await.unwrap();
    assert_eq!(bed.put("other", &[2; 100_000]).await, 0);
    bed.cluster.faults().release(held);
    let outcome = read.await.remove(0);
    assert_eq!(code(&outcome), -707, "told, though the bytes are a stranger's");
    let Outcome::Ended { buffer, .. } = outcome else { panic!("ended") };
    assert_eq!(bytes_of(&buffer)[99_999], 2);
}

/// Check, then put, by two clients at once.
#[tokio::test(start_paused = true)]
async fn f085_two_producers_of_one_key() {
    let bed = Bed::new();
    let other = bed.cluster.client(ClientConfig::new(ClientId(2), "other:1"));
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    assert_eq!(exists(&other, "k").await, Ok(false));
    let puts = tokio::join!(
        put(&bed.client, &bed.pool, "k", &[1; 100_000]),
        put(&other, &bed.pool, "k", &[2; 100_000]),
    );
    assert_eq!(puts, (0, 0), "one writes, the other is told that it exists");
    let read = bed.get("k", 100_000).await.unwrap();
    assert!(read == [1; 100_000] || read == [2; 100_000], "one of them, whole");
}

/// A full store: each put that finds no room says so at once.
#[tokio::test(start_paused = true)]
async fn f086_full_store() {
    let mut config = config();
    config.master.eviction_ratio = 0.0;
    config.master.eviction_high_watermark_ratio = 1.0;
    let bed = Bed::with(config);
    let config = ReplicaConfig::default();
    for i in 0..128 {
        let value = vec![0; MIB as usize];
        bed.client.put_bytes(&format!("k{i}"), value, &config).await.unwrap();
    }
    let before = bed.clock.now();
    let values = (0..64).map(|i| (format!("new{i}"), vec![0; 1000])).collect();
    let put = bed.client.put_bytes_batch(values, &config).await;
    assert_eq!(put, [Err(ErrorCode::NoAvailableHandle); 64]);
    assert_eq!(bed.clock.now(), before, "nothing waits for room");
}

/// Above the watermark with every object leased.
#[tokio::test(start_paused = true)]
async fn f087_over_the_watermark_with_everything_leased() {
    let bed = Bed::new();
    bed.cluster.unmount(&bed.b);
    let config = ReplicaConfig::default();
    for i in 0..64 {
        let key = format!("k{i}");
        bed.client.put_bytes(&key, vec![0; MIB as usize], &config).await.unwrap();
        assert_eq!(exists(&bed.client, &key).await, Ok(true));
    }
    for _ in 0..3 {
        assert_eq!(bed.put("new", &[0; 1000]).await, -200, "bounded: at once");
        bed.sleep(ms(100)).await;
    }
    bed.sleep(secs(10)).await;
    assert_eq!(bed.put("new", &[0; 1000]).await, 0, "after the leases");
}

/// A reader with a descriptor, a restarted master, and new bytes in the old place: success, and foreign.
#[tokio::test(start_paused = true)]
async fn f089_a_descriptor_outlives_the_master() {
    let bed = Bed::new();
    bed.put("k", &[1; 100_000]).await;
    let held = Rule::new(Point::Read, Action::Stall).at_bytes(50_000).times(1);
    let held = bed.cluster.faults().add(held).unwrap();
    let read = bed.client.get(vec![get_item(&bed.pool, "k", 100_000)]);
    bed.cluster.faults().wait_held(held, 1).await;
    bed.cluster.master().restart();
    bed.sleep(ms(1100)).await;
    assert_eq!(bed.put("new", &[2; 100_000]).await, 0);
    bed.cluster.faults().release(held);
    let outcome = read.await.remove(0);
    assert_eq!(code(&outcome), 100_000, "only the reader's own checksum can tell");
    let Outcome::Ended { buffer, .. } = outcome else { panic!("ended") };
    assert_eq!((bytes_of(&buffer)[0], bytes_of(&buffer)[99_999]), (1, 2));
}

/// Objects go with the client that lent the memory.
#[tokio::test(start_paused = true)]
async fn f092_the_owner_exits() {
    let bed = Bed::new();
    bed.put("k", b"bytes").await;
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    bed.cluster.unmount(&bed.a);
    assert_eq!(bed.get("k", 5).await, Err(-704));
}

/// A node that comes back empty attracts all new objects.
#[tokio::test(start_paused = true)]
async fn f094_an_empty_node_attracts_everything() {
    let mut config = config();
    config.master.placement = Placement::FreeRatioFirst;
    let bed = Bed::with(config);
    let replica = ReplicaConfig::default();
    for i in 0..20 {
        let value = vec![0; MIB as usize];
        bed.client.put_bytes(&format!("k{i}"), value, &replica).await.unwrap();
    }
    let empty = bed.cluster.add_node("empty", 64 * MIB);
    for i in 0..8 {
        let value = vec![0; MIB as usize];
        bed.client.put_bytes(&format!("new{i}"), value, &replica).await.unwrap();
    }
    let name = empty.segment().name.clone();
    let all_there = bed.cluster.master().with(|master| {
        (0..8).all(|i| master.peek(&format!("new{i}")).unwrap().replicas[0].segment_name == name)
    });
    assert!(all_there);
}

/// Registration is constant over many cycles.
#[tokio::test(start_paused = true)]
async fn f107_registration_does_not_grow() {
    let bed = Bed::new();
    for _ in 0..1000 {
        bed.client.register(bed.pool.region().clone()).await.unwrap();
        assert_eq!(bed.client.registered_bytes(), bed.pool.region().len());
        bed.client.unregister(bed.pool.region().clone()).await.unwrap();
    }
    assert_eq!(bed.client.registered_bytes(), 0);
}
