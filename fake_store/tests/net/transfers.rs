//! Transfers with nodes: own ones, dead ones, silent ones, late ones.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig, service::Health};
use springtide::env::{Fence, Outcome, Store};

use super::*;

#[tokio::test]
async fn an_own_segment_is_reached_without_the_network() {
    let bed = Bed::new().await;
    let owner = bed.client_with(2, vec![bed.b.service.clone()]);
    let config = ReplicaConfig { replica_num: 2, ..ReplicaConfig::default() };
    owner.put_bytes("k", vec![3; 50_000], &config).await.unwrap();
    bed.a.service.set_health(Health::Refused);
    assert_eq!(bed.client.get_bytes("k").await.map_err(|c| c.number()), Err(-800));
    assert_eq!(owner.get_bytes("k").await.unwrap(), vec![3; 50_000]);
}

#[tokio::test]
async fn a_read_goes_on_after_its_limit() {
    let bed = Bed::new().await;
    bed.put("k", &[7; 300_000]).await;
    bed.faults.add(Rule::new(Point::Read, Action::LateWrite(ms(300)))).unwrap();
    let mut outcomes = bed.client.get(vec![get_item(&bed.pool, "k", 300_000)]).await;
    let Outcome::Uncertain { buffer, error } = outcomes.remove(0) else { panic!("uncertain") };
    assert_eq!(error.code.number(), -800);
    let mut bytes = vec![0; 300_000];
    buffer.read_at(0, &mut bytes);
    assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), 150_000, "half of it is there");
    bed.client.settle().await;
    assert_eq!(bytes_of(&buffer.finish()), [7; 300_000], "and all of it in the end");
}

/// The revoked space belongs to another object when the rest of the put arrives.
#[tokio::test]
async fn a_late_put_overwrites_another_object() {
    let bed = Bed::new().await;
    let late = Rule::new(Point::Write, Action::LateWrite(ms(400))).for_key("p");
    bed.faults.add(late).unwrap();
    let mut outcomes = bed.client.put(vec![put_item(&bed.pool, "p", &[43; 200_000])]).await;
    let Outcome::Uncertain { buffer, .. } = outcomes.remove(0) else { panic!("uncertain") };
    assert_eq!(bed.put("q", &[77; 200_000]).await, 0, "the revoked space");
    assert_eq!(bed.get("q", 200_000).await.unwrap(), [77; 200_000]);
    bed.client.settle().await;
    let read = bed.get("q", 200_000).await.unwrap();
    assert_eq!(read.iter().filter(|byte| **byte == 43).count(), 100_000, "foreign bytes");
    assert_eq!(bytes_of(&buffer.finish()), [43; 200_000]);
}

/// The node takes no more than a window ahead, so the rest of the source is read when it goes on.
#[tokio::test]
async fn a_source_is_read_while_it_moves() {
    let bed = Bed::new().await;
    let item = put_item(&bed.pool, "k", &[1; 1 << 20]);
    let extents = item.source.extents().to_vec();
    let stall = Rule::new(Point::Write, Action::Stall).at_bytes(32 << 10);
    let held = bed.faults.add(stall).unwrap();
    let region = bed.pool.region().clone();
    let (outcomes, ()) = tokio::join!(bed.client.put(vec![item]), async {
        bed.faults.wait_held(held, 1).await;
        for extent in extents {
            region.dma_write(extent.offset, &vec![9; extent.len as usize]);
        }
        bed.faults.release(held);
    });
    assert!(matches!(outcomes[0], Outcome::Ended { result: Ok(()), .. }));
    let stored = bed.get("k", 1 << 20).await.unwrap();
    let old = stored.iter().filter(|byte| **byte == 1).count();
    assert!((32 << 10..=96 << 10).contains(&old), "{old} bytes were read before they changed");
}

#[tokio::test]
async fn silence_at_the_beginning_ends_a_transfer_and_in_the_middle_does_not() {
    let bed = Bed::new().await;
    bed.put("k", &[7; 300_000]).await;
    bed.a.service.set_health(Health::Hung);
    let before = bed.clock.now();
    let outcomes = bed.client.get(vec![get_item(&bed.pool, "k", 300_000)]).await;
    assert!(matches!(outcomes[0], Outcome::Ended { result: Err(_), .. }));
    assert!((ms(250)..TRANSFER_LIMIT).contains(&(bed.clock.now() - before)));
    bed.a.service.set_health(Health::Up);

    let stall = Rule::new(Point::Read, Action::Stall).at_bytes(100_000);
    let held = bed.faults.add(stall).unwrap();
    let outcomes = bed.client.get(vec![get_item(&bed.pool, "k", 300_000)]).await;
    assert!(matches!(outcomes[0], Outcome::Uncertain { .. }));
    assert_eq!(bed.client.active_transfers(), 1);
    assert_eq!(bed.client.close().await, Fence::Fenced);
    assert_eq!(bed.client.active_transfers(), 0);
    bed.faults.release(held);
}

#[tokio::test]
async fn a_progress_timeout_ends_a_transfer_in_the_middle() {
    let bed = Bed::new().await;
    bed.put("k", &[7; 300_000]).await;
    let net = NetConfig {
        master: bed.master.address.clone(),
        progress_timeout: Some(ms(100)),
        ..NetConfig::default()
    };
    let transport = NetTransport::new(TokioNetwork, bed.clock, net, Vec::new());
    let config = ClientConfig::new(ClientId(3), "c:3");
    let client = Client::new(transport, bed.clock, spawner(), bed.faults.clone(), config);
    for point in [Point::Read, Point::Write] {
        bed.faults.add(Rule::new(point, Action::Stall).at_bytes(100_000)).unwrap();
    }
    let outcomes = client.get(vec![get_item(&bed.pool, "k", 300_000)]).await;
    assert!(
        matches!(&outcomes[0], Outcome::Ended { result: Err(e), .. } if e.code.number() == -800)
    );
    let outcomes = client.put(vec![put_item(&bed.pool, "j", &[1; 1 << 20])]).await;
    assert!(
        matches!(&outcomes[0], Outcome::Ended { result: Err(e), .. } if e.code.number() == -800)
    );
    assert_eq!(client.active_transfers(), 0);
}

#[tokio::test]
async fn reads_that_go_wrong() {
    let bed = Bed::new().await;
    let bytes = pattern(9, 50_000);
    bed.put("other", &[5; 50_000]).await;
    bed.put("k", &bytes).await;
    let once = |action| {
        bed.faults.heal();
        bed.faults.add(Rule::new(Point::Read, action)).unwrap();
        bed.get("k", 50_000)
    };
    assert_eq!(once(Action::ShortRead(512)).await.unwrap(), bytes[..49_488]);
    let flipped = once(Action::FlipByte(20_000)).await.unwrap();
    assert_eq!((0..50_000).filter(|i| flipped[*i] != bytes[*i]).collect::<Vec<_>>(), [20_000]);
    assert_eq!(once(Action::ForeignBytes).await.unwrap(), [5; 50_000]);
    assert_eq!(once(Action::PartialBytes(30_000)).await, Err(-800));
    assert_eq!(once(Action::Disconnect).await, Err(-800));
    assert_eq!(once(Action::DropReply).await, Err(-800));
    let failed = once(Action::fail(springtide::env::ErrorCode::ChecksumMismatch));
    assert_eq!(failed.await, Err(-801));
    bed.faults.heal();
    bed.faults
        .add(
            Rule::new(Point::Read, Action::fail(springtide::env::ErrorCode::ChecksumMismatch))
                .after(),
        )
        .unwrap();
    assert_eq!(bed.get("k", 50_000).await, Err(-801), "after all bytes have come");
    bed.faults.heal();
    assert_eq!(bed.get("k", 50_000).await.unwrap(), bytes);
}

/// Neither side need know the other's steps.
#[tokio::test]
async fn steps_of_any_length_fit_together() {
    let bed = Bed::new().await;
    let bytes = pattern(4, 200_001);
    for (id, chunk_bytes) in [(10, 1), (11, 1000), (12, 100_000), (13, 1 << 20)] {
        let net = NetConfig {
            master: bed.master.address.clone(),
            pacing: Pacing { chunk_bytes, ..Pacing::default() },
            window_chunks: 1,
            ..NetConfig::default()
        };
        let bytes = if chunk_bytes == 1 { &bytes[..1000] } else { &bytes };
        let transport = NetTransport::new(TokioNetwork, bed.clock, net, Vec::new());
        let config = ClientConfig::new(ClientId(id), "c:1");
        let client = Client::new(transport, bed.clock, spawner(), bed.faults.clone(), config);
        let key = format!("k{chunk_bytes}");
        assert_eq!(put(&client, &bed.pool, &key, bytes).await, 0);
        assert_eq!(get(&client, &bed.pool, &key, bytes.len()).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn giving_up_on_a_call_frees_nothing() {
    let bed = Bed::new().await;
    let stall = Rule::new(Point::Write, Action::Stall).at_bytes(1000);
    let held = bed.faults.add(stall).unwrap();
    let call = bed.client.put(vec![put_item(&bed.pool, "k", &[1; 5000])]);
    assert!(bed.clock.timeout_at(bed.clock.now() + ms(50), call).await.is_err());
    bed.faults.wait_held(held, 1).await;
    assert!(bed.pool.usage().free < bed.pool.region().len());
    bed.faults.release(held);
    until("the block is back", || bed.pool.usage().free == bed.pool.region().len()).await;
    sleep(&bed.clock, ms(20)).await;
    assert_eq!(bed.get("k", 5000).await.unwrap(), [1; 5000]);
}
