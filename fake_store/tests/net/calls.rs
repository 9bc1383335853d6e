//! Calls to the master: answered, refused, lost.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig, service::Health};
use springtide::env::{ErrorCode, Key, Outcome, Store};

use super::*;

#[tokio::test]
async fn everything_works_over_tcp() {
    let bed = Bed::new().await;
    let large = pattern(1, 1_500_000);
    assert_eq!(bed.put("large", &large).await, 0);
    let items = (0..20).map(|i| put_item(&bed.pool, &format!("k{i}"), &[i; 1000])).collect();
    for outcome in bed.client.put(items).await {
        assert!(matches!(outcome, Outcome::Ended { result: Ok(()), .. }));
    }
    let keys = (0..21).map(|i| Key::new(format!("k{i}"))).collect();
    let exist: Vec<bool> =
        bed.client.exists(keys).await.into_iter().map(|result| result.unwrap()).collect();
    assert_eq!(exist, [[true; 20].as_slice(), &[false]].concat());
    assert_eq!(bed.get("large", large.len()).await.unwrap(), large);
    let items = (0..20).map(|i| get_item(&bed.pool, &format!("k{i}"), 1000)).collect();
    for (i, outcome) in bed.client.get(items).await.into_iter().enumerate() {
        let Outcome::Ended { buffer, result: Ok(1000) } = outcome else { panic!("{outcome:?}") };
        assert_eq!(bytes_of(&buffer), [i as u8; 1000]);
    }
    assert_eq!(bed.client.size(Key::new("k3")).await.unwrap(), 1000);
    let removed = bed.client.remove(Key::new("k3"), false).await;
    assert_eq!(removed.unwrap_err().code, ErrorCode::ObjectHasLease);
    bed.client.remove(Key::new("k3"), true).await.unwrap();
    assert_eq!(bed.client.remove_by_regex("^k1", true).await, Ok(11));
    let two = ReplicaConfig { replica_num: 2, ..ReplicaConfig::default() };
    bed.client.put_bytes("two", vec![9; 70_000], &two).await.unwrap();
    assert_eq!(bed.client.get_bytes("two").await.unwrap(), vec![9; 70_000]);
    bed.client.upsert("two", vec![8; 70_000], &two).await.unwrap();
    assert_eq!(bed.client.get_bytes("two").await.unwrap(), vec![8; 70_000]);
    assert_eq!(bed.pool.usage().free, bed.pool.region().len());
    bed.master.service.with(|master| assert_eq!(master.verify(), Ok(())));
}

#[tokio::test]
async fn nobody_listens() {
    let bed = Bed::new().await;
    let net = NetConfig { master: "127.0.0.1:1".into(), ..NetConfig::default() };
    let transport = NetTransport::new(TokioNetwork, bed.clock, net, Vec::new());
    let config = ClientConfig { reconnect: ms(100), ..ClientConfig::new(ClientId(9), "c:9") };
    let client = Client::new(transport, bed.clock, spawner(), bed.faults.clone(), config);
    let before = bed.clock.now();
    assert_eq!(put(&client, &bed.pool, "k", b"bytes").await, -900);
    assert!(bed.clock.now() - before < ms(90), "the first refusal is told at once");
    assert_eq!(get(&client, &bed.pool, "k", 5).await, Err(-900));
    assert!(bed.clock.now() - before >= ms(100));
}

/// Each fault before and after the effect, and what is true afterwards: as in one process.
#[tokio::test]
async fn faults_before_and_after_the_effect() {
    let table = [
        (Point::PutStart, false, Action::fail(ErrorCode::NoAvailableHandle), -200, false),
        (Point::PutStart, true, Action::DropReply, -901, false),
        (Point::PutStart, true, Action::Disconnect, -900, false),
        (Point::Write, false, Action::fail(ErrorCode::TransferFail), -800, false),
        (Point::Write, false, Action::PartialBytes(2), -800, false),
        (Point::Write, true, Action::fail(ErrorCode::TransferFail), -800, false),
        (Point::Write, true, Action::DropReply, -800, false),
        (Point::Write, true, Action::Disconnect, -800, false),
        (Point::PutEnd, false, Action::DropReply, -901, false),
        (Point::PutEnd, true, Action::DropReply, -901, true),
        (Point::PutEnd, true, Action::Disconnect, -900, true),
        (Point::PutEnd, false, Action::Delay(ms(50)), 0, true),
    ];
    let bed = Bed::new().await;
    for (number, (point, after, action, expected, stored)) in table.into_iter().enumerate() {
        let key = format!("k{number}");
        let rule = Rule::new(point, action).for_key(key.clone()).times(1);
        let rule = if after { rule.after() } else { rule };
        let id = bed.faults.add(rule.clone()).unwrap();
        assert_eq!(bed.put(&key, b"bytes").await, expected, "{rule:?}");
        assert_eq!(exists(&bed.client, &key).await, Ok(stored), "{rule:?}");
        assert_eq!(bed.faults.fired_by(id), 1);
    }
}

#[tokio::test]
async fn a_hung_master_executes_what_it_was_sent() {
    let bed = Bed::new().await;
    bed.master.service.set_health(Health::Hung);
    assert_eq!(bed.put("k", b"bytes").await, -901);
    bed.master.service.set_health(Health::Up);
    until("the call is executed", || bed.master.service.with(|m| m.peek("k").is_some())).await;
    assert_eq!(bed.client.get_size("k").await, Err(ErrorCode::ReplicaIsNotReady));
}

#[tokio::test]
async fn nodes_mount_again_at_a_restarted_master() {
    let bed = Bed::new().await;
    bed.put("k", b"bytes").await;
    bed.master.service.restart();
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    until("the nodes are back", || capacity(&bed.master) == 32 * MIB).await;
    assert_eq!(bed.put("k", b"other").await, 0);
    assert_eq!(bed.get("k", 5).await.unwrap(), b"other");
    let owner = bed.client_with(2, vec![bed.a.service.clone()]);
    assert_eq!(owner.health_check(), 0);
    bed.master.service.set_health(Health::Refused);
    until("a ping has failed", || owner.health_check() == 2).await;
}
