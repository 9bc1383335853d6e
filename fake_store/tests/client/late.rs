//! Transfers that outlive their limit, and what they do to others.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig, service::Health};
use springtide::env::Store;

use super::*;

/// The read is told -800 at the limit with a part there, and the rest comes later.
#[tokio::test(start_paused = true)]
async fn a_read_goes_on_after_its_limit() {
    let bed = Bed::new();
    bed.put("k", &[7; 300_000]).await;
    bed.cluster.faults().add(Rule::new(Point::Read, Action::LateWrite(secs(10)))).unwrap();
    let before = bed.clock.now();
    let mut outcomes = bed.client.get(vec![get_item(&bed.pool, "k", 300_000)]).await;
    assert_eq!((bed.clock.now() - before).as_secs(), 60);
    let Outcome::Uncertain { buffer, error } = outcomes.remove(0) else { panic!("uncertain") };
    assert_eq!(error.code.number(), -800);
    assert!(error.may_be_in_flight());
    let mut byte = [0];
    buffer.read_at(149_999, &mut byte);
    assert_eq!(byte, [7], "half of it is there");
    buffer.read_at(150_000, &mut byte);
    assert_ne!(byte, [7]);
    assert_eq!(bed.client.active_transfers(), 1);
    bed.client.settle().await;
    assert!((bed.clock.now() - before).as_secs() >= 70);
    assert_eq!(bytes_of(&buffer.finish()), [7; 300_000], "and all of it in the end");
}

/// A put that was told -800 writes on into space that belongs to another object by then.
#[tokio::test(start_paused = true)]
async fn a_late_put_overwrites_another_object() {
    let bed = Bed::new();
    let late = Rule::new(Point::Write, Action::LateWrite(secs(10))).for_key("p");
    bed.cluster.faults().add(late).unwrap();
    let mut outcomes = bed.client.put(vec![put_item(&bed.pool, "p", &[43; 200_000])]).await;
    let Outcome::Uncertain { buffer, .. } = outcomes.remove(0) else { panic!("uncertain") };
    assert_eq!(bed.put("q", &[77; 200_000]).await, 0, "the revoked space");
    assert_eq!(bed.get("q", 200_000).await.unwrap(), [77; 200_000]);
    bed.client.settle().await;
    let read = bed.get("q", 200_000).await.unwrap();
    assert_eq!(read.iter().filter(|byte| **byte == 43).count(), 100_000, "foreign bytes");
    drop(buffer);
}

/// A stopped owner: silence from the start ends the transfer after 30 s, silence in the middle does not.
#[tokio::test(start_paused = true)]
async fn a_stalled_peer_ends_a_transfer_only_at_its_beginning() {
    let bed = Bed::new();
    bed.put("k", &[7; MIB as usize]).await;
    bed.a.set_health(Health::Hung);
    let before = bed.clock.now();
    let outcomes = bed.client.get(vec![get_item(&bed.pool, "k", MIB as usize)]).await;
    assert!(matches!(outcomes[0], Outcome::Ended { .. }), "nothing moves any more");
    assert_eq!((bed.clock.now() - before).as_secs(), 30);
    bed.a.set_health(Health::Up);
    let on_b = ReplicaConfig { preferred_segments: vec!["b".into()], ..Default::default() };
    bed.client.put_bytes("j", vec![8; MIB as usize], &on_b).await.unwrap();

    let (outcomes, ()) =
        tokio::join!(bed.client.get(vec![get_item(&bed.pool, "j", MIB as usize)]), async {
            bed.sleep(ms(50)).await;
            bed.b.set_health(Health::Hung);
        });
    assert!(matches!(outcomes[0], Outcome::Uncertain { .. }), "half of it came: {outcomes:?}");
    assert_eq!(bed.client.active_transfers(), 1);
    bed.b.set_health(Health::Up);
    bed.client.settle().await;
}

/// [stalled, fine, stalled] costs one timeout, and the fine one waits for it.
#[tokio::test(start_paused = true)]
async fn several_stalled_items_cost_one_timeout() {
    let mut config = config();
    config.master.lease_ttl = secs(1000);
    let bed = Bed::with(config);
    for (key, node) in [("x", "b"), ("y", "a"), ("z", "b")] {
        let config = ReplicaConfig { preferred_segments: vec![node.into()], ..Default::default() };
        bed.client.put_bytes(key, vec![3; 100], &config).await.unwrap();
    }
    bed.b.set_health(Health::Hung);
    let before = bed.clock.now();
    let items = ["x", "y", "z"].map(|key| get_item(&bed.pool, key, 100)).into();
    let outcomes = bed.client.get(items).await;
    assert_eq!((bed.clock.now() - before).as_secs(), 30);
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), [-800, 100, -800]);
}

/// Every -800 of a batch is uncertain once the limit has passed: a caller of Mooncake knows only the time.
#[tokio::test(start_paused = true)]
async fn after_the_limit_every_failed_transfer_is_uncertain() {
    let bed = Bed::new();
    bed.put("late", &[1; 100]).await;
    bed.put("early", &[2; 100]).await;
    let faults = bed.cluster.faults();
    faults.add(Rule::new(Point::Read, Action::LateWrite(secs(1))).for_key("late")).unwrap();
    faults.add(Rule::new(Point::Read, Action::PartialBytes(10)).for_key("early")).unwrap();
    let items = ["late", "early"].map(|key| get_item(&bed.pool, key, 100)).into();
    let outcomes = bed.client.get(items).await;
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Uncertain { .. })));
    assert_eq!(bed.client.active_transfers(), 1);
}

#[tokio::test(start_paused = true)]
async fn scaled_limits() {
    let bed = Bed::with(ClusterConfig { transfer_limit: secs(2), ..config() });
    let config = ClientConfig { transfer_limit: secs(2), ..ClientConfig::new(ClientId(2), "c:2") };
    let client = bed.cluster.client(config);
    bed.put("k", &[1; 100]).await;
    bed.cluster.faults().add(Rule::new(Point::Read, Action::LateWrite(ms(500)))).unwrap();
    let before = bed.clock.now();
    let outcomes = client.get(vec![get_item(&bed.pool, "k", 100)]).await;
    assert!(matches!(&outcomes[0], Outcome::Uncertain { error, .. } if error.may_be_in_flight()));
    assert_eq!((bed.clock.now() - before).as_secs(), 2);
    client.settle().await;
    assert_eq!((bed.clock.now() - before).as_millis() / 10, 250);
}
