//! Getting: sizes, leases, replicas, batches.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig, service::Health};
use springtide::env::Store;

use super::*;

#[tokio::test(start_paused = true)]
async fn sizes_must_fit_exactly_with_several_buffers_and_be_enough_with_one() {
    let bed = Bed::new();
    bed.put("k", b"12345").await;
    assert_eq!(bed.get("k", 4).await, Err(-600));
    assert_eq!(bed.get("k", 6).await, Err(-800));
    assert_eq!(bed.get("none", 5).await, Err(-704));
    let single = bed.cluster.client(ClientConfig::new(ClientId(2), "c:2").single_buffer());
    assert_eq!(get(&single, &bed.pool, "k", 4).await, Err(-600));
    assert_eq!(get(&single, &bed.pool, "k", 9).await.unwrap(), b"12345");
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_one_result_an_item() {
    let bed = Bed::new();
    bed.put("a", &[1; 1000]).await;
    bed.put("b", &[2; 10]).await;
    let keys = [("a", 1000), ("none", 10), ("a", 10), ("b", 10)];
    let items = keys.map(|(key, len)| get_item(&bed.pool, key, len)).into();
    let outcomes = bed.client.get(items).await;
    let codes: Vec<i64> = outcomes.iter().map(code).collect();
    assert_eq!(codes, [1000, -704, -600, 10]);
}

/// All report success, and only the last buffer is filled.
#[tokio::test(start_paused = true)]
async fn of_equal_keys_the_last_buffer_is_filled() {
    let bed = Bed::new();
    bed.put("k", &[7; 100]).await;
    let items = (0..3).map(|_| get_item(&bed.pool, "k", 100)).collect();
    let mut filled = Vec::new();
    for outcome in bed.client.get(items).await {
        let Outcome::Ended { buffer, result: Ok(100) } = outcome else { panic!("{outcome:?}") };
        filled.push(bytes_of(&buffer) == [7; 100]);
    }
    assert_eq!(filled, [false, false, true]);
}

/// Also whether the length fits is a matter of the last buffer alone.
#[tokio::test(start_paused = true)]
async fn of_equal_keys_the_last_buffer_decides() {
    let bed = Bed::new();
    bed.put("k", &[7; 100]).await;
    for (lengths, expected) in [([101, 100], [100, 100]), ([100, 101], [-800, -800])] {
        let items = lengths.map(|len| get_item(&bed.pool, "k", len)).into();
        let outcomes = bed.client.get(items).await;
        assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), expected, "{lengths:?}");
    }
}

/// The bytes are there, and the call fails.
#[tokio::test(start_paused = true)]
async fn a_read_longer_than_its_lease_fails_with_its_bytes_written() {
    let mut config = config();
    config.master.lease_ttl = ms(50);
    let bed = Bed::with(config);
    let bytes = pattern(3, MIB as usize);
    bed.put("k", &bytes).await;
    let mut outcomes = bed.client.get(vec![get_item(&bed.pool, "k", bytes.len())]).await;
    let Outcome::Ended { buffer, result: Err(error) } = outcomes.remove(0) else {
        panic!("the transfer has ended");
    };
    assert_eq!(error.code.number(), -707);
    assert_eq!(bytes_of(&buffer), bytes);
    assert_eq!(bed.put("small", b"quick").await, 0);
    assert_eq!(bed.get("small", 5).await.unwrap(), b"quick");
}

/// A slow key makes the quick ones of its batch fail, whose bytes are there.
#[tokio::test(start_paused = true)]
async fn one_slow_item_fails_the_leases_of_its_batch() {
    let mut config = config();
    config.master.lease_ttl = ms(1000);
    config.master.placement = Placement::Scripted(vec!["a".into(), "b".into()]);
    let bed = Bed::with(config);
    bed.put("slow", &[1; 100]).await;
    bed.put("quick", &[2; 100]).await;
    bed.cluster
        .faults()
        .add(Rule::new(Point::Read, Action::Delay(ms(1200))).for_key("slow"))
        .unwrap();
    let keys = ["slow", "quick"].map(|key| get_item(&bed.pool, key, 100)).into();
    let outcomes = bed.client.get(keys).await;
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), [-707, -707]);
    let Outcome::Ended { buffer, .. } = &outcomes[1] else { panic!("ended") };
    assert_eq!(bytes_of(buffer), [2; 100]);
    assert_eq!(bed.get("quick", 100).await.unwrap(), [2; 100], "alone it succeeds");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_nothing_fails_every_read() {
    let mut config = config();
    config.master.lease_ttl = ms(0);
    let bed = Bed::with(config);
    bed.put("k", b"bytes").await;
    assert_eq!(bed.get("k", 5).await, Err(-707));
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
}

/// Own segment first, else the first replica; never another one when that fails.
#[tokio::test(start_paused = true)]
async fn there_is_no_second_replica_to_fall_back_to() {
    let bed = Bed::new();
    let two = |first: &str| ReplicaConfig {
        replica_num: 2,
        preferred_segments: vec![first.into()],
        ..ReplicaConfig::default()
    };
    bed.client.put_bytes("dead first", vec![1; 9], &two("a")).await.unwrap();
    bed.client.put_bytes("alive first", vec![2; 9], &two("b")).await.unwrap();
    bed.a.set_health(Health::Refused);
    for _ in 0..3 {
        assert_eq!(bed.get("dead first", 9).await, Err(-800));
    }
    assert_eq!(bed.get("alive first", 9).await.unwrap(), [2; 9]);
    let on_b = bed.cluster.client_with(ClientConfig::new(ClientId(2), "b:1"), &[&bed.b]);
    assert_eq!(get(&on_b, &bed.pool, "dead first", 9).await.unwrap(), [1; 9], "its own copy");
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_believed_alive_for_its_time_to_live() {
    let bed = Bed::new();
    bed.put("k", b"bytes").await;
    bed.sleep(secs(2)).await;
    bed.a.set_health(Health::Refused);
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    assert_eq!(bed.get("k", 5).await, Err(-800));
    assert_eq!(bed.put("new", b"bytes").await, -800, "placed on the dead");
    assert_eq!(exists(&bed.client, "new").await, Ok(false));
    bed.sleep(secs(12)).await;
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    assert_eq!(bed.get("k", 5).await, Err(-704));
    assert_eq!(bed.put("new", b"bytes").await, 0, "elsewhere");
    bed.a.set_health(Health::Up);
    bed.sleep(secs(2)).await;
    assert_eq!(exists(&bed.client, "k").await, Ok(false), "it came back empty");
    assert_eq!(bed.cluster.master().with(|m| m.usage().capacity_bytes), 128 * MIB);
}

#[tokio::test(start_paused = true)]
async fn unmounting_takes_objects_along() {
    let bed = Bed::new();
    bed.put("k", b"bytes").await;
    bed.cluster.unmount(&bed.a);
    assert_eq!(bed.get("k", 5).await, Err(-704));
    assert_eq!(bed.put("k", b"bytes").await, 0);
}

#[tokio::test(start_paused = true)]
async fn reads_that_go_wrong() {
    let bed = Bed::new();
    let bytes = pattern(9, 1000);
    bed.put("other", &[5; 1000]).await;
    bed.put("k", &bytes).await;
    bed.put("another", &[6; 1000]).await;
    let faults = bed.cluster.faults();
    let once = |action| {
        faults.heal();
        faults.add(Rule::new(Point::Read, action)).unwrap();
        bed.get("k", 1000)
    };
    assert_eq!(once(Action::ShortRead(512)).await.unwrap(), bytes[..488]);
    let flipped = once(Action::FlipByte(17)).await.unwrap();
    let differing: Vec<usize> = (0..1000).filter(|i| flipped[*i] != bytes[*i]).collect();
    assert_eq!(differing, [17]);
    assert_eq!(once(Action::ForeignBytes).await.unwrap(), [6; 1000], "those of another object");
    assert_eq!(once(Action::PartialBytes(300)).await, Err(-800));
    assert_eq!(once(Action::Disconnect).await, Err(-800));
    let before = bed.clock.now();
    assert_eq!(once(Action::DropReply).await, Err(-800), "silence");
    assert_eq!((bed.clock.now() - before).as_secs(), 30);
    faults.heal();
    assert_eq!(bed.get("k", 1000).await.unwrap(), bytes);
}
