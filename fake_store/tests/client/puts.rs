//! Putting: batches, duplicates, existing keys, replicas, limits.

use fake_store::{Action, Point, Rule, client::Protocol, protocol::ReplicaConfig};
use springtide::env::{ErrorCode, Store};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_put_is_read_back_and_takes_time() {
    let bed = Bed::new();
    let bytes = pattern(1, 100_000);
    assert_eq!(bed.put("k", &bytes).await, 0);
    assert!(bed.clock.now().as_millis() >= 9, "100 kB at 10 MiB/s");
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    assert_eq!(bed.get("k", 100_000).await.unwrap(), bytes);
    assert_eq!(bed.client.get_size("k").await, Ok(100_000));
    assert_eq!(bed.pool.usage().free, bed.pool.region().len());
}

#[tokio::test(start_paused = true)]
async fn a_put_over_an_existing_key_succeeds_and_writes_nothing() {
    let bed = Bed::new();
    assert_eq!(bed.put("k", b"first").await, 0);
    assert_eq!(bed.put("k", b"second one").await, 0);
    assert_eq!(bed.get("k", 5).await.unwrap(), b"first");

    let session = bed.client.start_put("half", 4, &ReplicaConfig::default()).await.unwrap();
    assert_eq!(bed.put("half", b"mine").await, 0, "somebody else is writing it");
    assert_eq!(exists(&bed.client, "half").await, Ok(false), "stored nothing");
    assert_eq!(bed.get("half", 4).await, Err(-703));
    session.write(0, b"abcd").await.unwrap();
    session.end().await.unwrap();
    assert_eq!(bed.get("half", 4).await.unwrap(), b"abcd");
}

#[tokio::test(start_paused = true)]
async fn of_equal_keys_the_first_wins_or_the_last() {
    let bed = Bed::new();
    let items = || vec![put_item(&bed.pool, "k", b"one"), put_item(&bed.pool, "k", b"three")];
    let outcomes = bed.client.put(items()).await;
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { result: Ok(()), .. }))
    );
    assert_eq!(bed.get("k", 3).await.unwrap(), b"one", "multi-buffer form");

    bed.client.remove_all(true).await.unwrap();
    let config = ClientConfig::new(ClientId(2), "c:2").single_buffer();
    let single = bed.cluster.client(config);
    single.put(items()).await;
    assert_eq!(single.get_size("k").await, Ok(5));
    assert_eq!(bed.get("k", 5).await.unwrap(), b"three", "single-buffer form");
}

#[tokio::test(start_paused = true)]
async fn a_bad_item_fails_alone() {
    let bed = Bed::new();
    let items = ["a", "", "c"]
        .map(|key| put_item(&bed.pool, key, b"bytes"))
        .into_iter()
        .collect::<Vec<_>>();
    let outcomes = bed.client.put(items).await;
    let ok: Vec<bool> =
        outcomes.iter().map(|o| matches!(o, Outcome::Ended { result: Ok(()), .. })).collect();
    assert_eq!(ok, [true, false, true]);
    assert!(bed.client.put(Vec::new()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_replica_must_be_written() {
    let bed = Bed::new();
    let two = ReplicaConfig { replica_num: 2, ..ReplicaConfig::default() };
    bed.client.put_bytes("both", vec![1; 1000], &two).await.unwrap();
    let place = bed.cluster.master().with(|master| master.peek("both").unwrap());
    assert_eq!(place.replicas.len(), 2);

    bed.b.set_health(fake_store::service::Health::Refused);
    let put = bed.client.put_bytes("k", vec![1; 1000], &two).await;
    assert_eq!(put, Err(ErrorCode::TransferFail));
    assert_eq!(bed.client.get_size("k").await, Err(ErrorCode::ObjectNotFound), "revoked");
    assert_eq!(bed.client.is_exist("k").await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_failed_end_leaves_the_object_half_written() {
    let bed = Bed::new();
    let fail = Action::fail(ErrorCode::RpcFail);
    bed.cluster.faults().add(Rule::new(Point::PutEnd, fail).times(1)).unwrap();
    assert_eq!(bed.put("k", b"bytes").await, -900);
    assert_eq!(bed.get("k", 5).await, Err(-703), "nothing is revoked");
    assert_eq!(bed.put("k", b"bytes").await, 0);
    assert_eq!(exists(&bed.client, "k").await, Ok(false), "which stored nothing");
    bed.sleep(secs(31)).await;
    assert_eq!(bed.put("k", b"bytes").await, 0);
    assert_eq!(exists(&bed.client, "k").await, Ok(true), "after the discard time");
}

#[tokio::test(start_paused = true)]
async fn a_failed_revoke_hides_the_failed_transfer_only_in_single_puts() {
    let bed = Bed::new();
    let faults = bed.cluster.faults();
    faults.add(Rule::new(Point::Write, Action::PartialBytes(3))).unwrap();
    faults.add(Rule::new(Point::PutRevoke, Action::fail(ErrorCode::RpcFail))).unwrap();
    assert_eq!(bed.put("k", b"bytes").await, -800);
    let single = bed.client.put_bytes("j", b"bytes".to_vec(), &ReplicaConfig::default()).await;
    assert_eq!(single, Err(ErrorCode::RpcFail));
}

#[tokio::test(start_paused = true)]
async fn the_copying_path_has_its_own_edge_cases() {
    let bed = Bed::new();
    let config = ReplicaConfig::default();
    let small = ClientConfig { local_buffer_bytes: 10, ..ClientConfig::new(ClientId(3), "c:3") };
    let client = bed.cluster.client(small);
    assert_eq!(client.put_bytes("k", vec![], &config).await, Err(ErrorCode::InvalidParams));
    assert_eq!(client.put_bytes("k", vec![1; 11], &config).await, Err(ErrorCode::InvalidParams));
    assert_eq!(client.put_parts("k", &[b"", b""], &config).await, Ok(()));
    assert_eq!(client.is_exist("k").await, Ok(false), "no bytes, no object");
    assert_eq!(client.put_parts("k", &[b"head", b"er"], &config).await, Ok(()));
    assert_eq!(client.get_bytes("k").await.unwrap(), b"header");
    bed.client.put_bytes("large", vec![1; 11], &config).await.unwrap();
    assert_eq!(client.get_bytes("large").await, Err(ErrorCode::InvalidParams));
    assert_eq!(client.upsert("k", b"other".to_vec(), &config).await, Ok(()));
    assert_eq!(client.get_bytes("k").await.unwrap(), b"other");
    let none = ReplicaConfig { replica_num: 0, ..config.clone() };
    assert_eq!(client.put_bytes("k", vec![1], &none).await, Err(ErrorCode::InvalidParams));
    let values = |last: &[u8]| {
        vec![("x".into(), vec![1; 2]), ("x".into(), vec![2; 3]), ("y".into(), last.to_vec())]
    };
    let put = client.put_bytes_batch(values(b""), &config).await;
    assert_eq!(put, [Err(ErrorCode::InvalidParams); 3]);
    assert_eq!(client.is_exist("x").await, Ok(false), "a value that cannot be staged fails all");
    let put = client.put_bytes_batch(values(b"y"), &config).await;
    assert_eq!(put, [Ok(()); 3]);
    assert_eq!(client.get_bytes("x").await.unwrap(), [1, 1], "the first wins");
}

#[tokio::test(start_paused = true)]
async fn more_fragments_than_a_peer_takes_fail_the_tail() {
    let bed = Bed::new();
    let config =
        ClientConfig { fragments_per_peer_max: 4, ..ClientConfig::new(ClientId(4), "c:4") };
    let client = bed.cluster.client(config);
    let values = (0..6).map(|i| (format!("k{i}"), vec![7; 100])).collect();
    let put = client.put_bytes_batch(values, &ReplicaConfig::default()).await;
    let tail = Err(ErrorCode::TransferFail);
    assert_eq!(put, [Ok(()), Ok(()), Ok(()), Ok(()), tail, tail]);
    assert_eq!(client.get_size("k5").await, Err(ErrorCode::ObjectNotFound), "revoked");
}

#[tokio::test(start_paused = true)]
async fn registration_is_for_rdma_and_must_not_overlap() {
    let bed = Bed::new();
    let config = ClientConfig { protocol: Protocol::Rdma, ..ClientConfig::new(ClientId(5), "c:5") };
    let client = bed.cluster.client(config);
    let region = bed.pool.region().clone();
    let code = |result: Result<(), springtide::env::StoreError>| result.map_err(|e| e.code);
    assert_eq!(put(&client, &bed.pool, "k", b"bytes").await, -800, "unregistered");
    assert_eq!(exists(&client, "k").await, Ok(false));
    assert_eq!(code(client.register(region.clone()).await), Ok(()));
    let refused = Err(ErrorCode::InvalidParams);
    assert_eq!(code(client.register(region.clone()).await), refused, "again");
    assert_eq!(client.registered_bytes(), region.len());
    assert_eq!(put(&client, &bed.pool, "k", b"bytes").await, 0);
    assert_eq!(get(&client, &bed.pool, "k", 5).await.unwrap(), b"bytes");
    assert_eq!(code(client.unregister(region.clone()).await), Ok(()));
    assert_eq!(code(client.unregister(region.clone()).await), refused, "again");
    assert_eq!(get(&client, &bed.pool, "k", 5).await, Err(-800));

    let fail = Action::fail(ErrorCode::InvalidParams);
    bed.cluster.faults().add(Rule::new(Point::Register, fail)).unwrap();
    assert_eq!(code(client.register(region.clone()).await), refused, "on demand");
    assert_eq!(client.registered_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upsert_is_not_readable_while_it_writes() {
    let bed = Bed::new();
    let config = ReplicaConfig::default();
    bed.client.put_bytes("k", vec![1; 100], &config).await.unwrap();
    let held = bed.cluster.faults().add(Rule::new(Point::Write, Action::Stall)).unwrap();
    let (upserted, ()) = tokio::join!(bed.client.upsert("k", vec![2; 100], &config), async {
        bed.cluster.faults().wait_held(held, 1).await;
        assert_eq!(bed.client.get_size("k").await, Err(ErrorCode::ReplicaIsNotReady));
        bed.cluster.faults().release(held);
    });
    assert_eq!(upserted, Ok(()));
    assert_eq!(bed.client.get_bytes("k").await.unwrap(), [2; 100]);
}
