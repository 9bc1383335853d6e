//! A master that is down, hung, restarted, or whose replies are lost.

use fake_store::{Action, Point, Rule, protocol::ReplicaConfig, service::Health};
use springtide::env::{ErrorCode, Store};

use super::*;

#[tokio::test(start_paused = true)]
async fn refused_at_once_and_then_after_trying_again() {
    let mut config = config();
    config.master.client_ttl = secs(60);
    let bed = Bed::with(config);
    bed.put("k", b"bytes").await;
    bed.cluster.master().set_health(Health::Refused);
    let before = bed.clock.now();
    assert_eq!(exists(&bed.client, "k").await, Err(ErrorCode::RpcFail));
    assert_eq!(bed.clock.now(), before, "the first at once");
    assert_eq!(bed.get("k", 5).await, Err(-900));
    assert_eq!((bed.clock.now() - before).as_millis(), 4300);
    let batch = bed.client.batch_is_exist(vec!["a".into(), "b".into()]).await;
    assert_eq!(batch, [Err(ErrorCode::RpcFail); 2]);
    assert_eq!(bed.client.health_check(), 0, "a client without segments never pings");
    bed.sleep(secs(2)).await;
    let owner = bed.cluster.client_with(ClientConfig::new(ClientId(2), "a:1"), &[&bed.a]);
    assert_eq!(owner.health_check(), 2);

    let (answer, ()) = tokio::join!(exists(&bed.client, "k"), async {
        bed.sleep(secs(1)).await;
        bed.cluster.master().set_health(Health::Up);
    });
    assert_eq!(answer, Ok(true), "it came back while the client was trying");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_master_has_forgotten_everything() {
    let bed = Bed::new();
    bed.put("k", b"bytes").await;
    let session = bed.client.start_put("half", 4, &ReplicaConfig::default()).await.unwrap();
    bed.cluster.master().restart();
    session.write(0, b"abcd").await.unwrap();
    assert_eq!(session.end().await, Err(ErrorCode::ObjectNotFound));
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    assert_eq!(bed.put("k", b"other").await, -200, "before the owners have mounted again");
    bed.sleep(ms(1100)).await;
    assert_eq!(bed.put("k", b"other").await, 0);
    assert_eq!(bed.get("k", 5).await.unwrap(), b"other");
}

/// The call times out, and takes effect later: the key is left half written.
#[tokio::test(start_paused = true)]
async fn a_hung_master_executes_what_it_was_sent() {
    let bed = Bed::new();
    bed.cluster.master().set_health(Health::Hung);
    let before = bed.clock.now();
    assert_eq!(bed.put("k", b"bytes").await, -901);
    assert_eq!((bed.clock.now() - before).as_secs(), 30);
    bed.cluster.master().set_health(Health::Up);
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
    assert_eq!(bed.client.get_size("k").await, Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(bed.put("k", b"bytes").await, 0);
    assert_eq!(exists(&bed.client, "k").await, Ok(false), "stored nothing");
    bed.sleep(secs(31)).await;
    assert_eq!(bed.put("k", b"bytes").await, 0);
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
}

/// Each call with its fault before and after the effect, and what is true afterwards.
#[tokio::test(start_paused = true)]
async fn faults_before_and_after_the_effect() {
    let table = [
        // point, after, action, put, exists afterwards
        (Point::PutStart, false, Action::fail(ErrorCode::NoAvailableHandle), -200, false),
        (Point::PutStart, false, Action::DropReply, -901, false),
        (Point::PutStart, true, Action::DropReply, -901, false),
        (Point::PutStart, true, Action::Disconnect, -900, false),
        (Point::Write, false, Action::fail(ErrorCode::TransferFail), -800, false),
        (Point::Write, true, Action::fail(ErrorCode::TransferFail), -800, false),
        (Point::Write, true, Action::DropReply, -800, false),
        (Point::PutEnd, false, Action::DropReply, -901, false),
        (Point::PutEnd, true, Action::DropReply, -901, true),
        (Point::PutEnd, true, Action::Disconnect, -900, true),
        (Point::PutEnd, true, Action::fail(ErrorCode::IllegalClient), -601, true),
        (Point::PutEnd, false, Action::Delay(ms(100)), 0, true),
    ];
    for (point, after, action, expected, stored) in table {
        let bed = Bed::new();
        let rule = Rule::new(point, action).times(1);
        let rule = if after { rule.after() } else { rule };
        let id = bed.cluster.faults().add(rule.clone()).unwrap();
        assert_eq!(bed.put("k", b"bytes").await, expected, "{rule:?}");
        assert_eq!(exists(&bed.client, "k").await, Ok(stored), "{rule:?}");
        assert_eq!(bed.cluster.faults().fired_by(id), 1);
    }
}

/// A fault for one key of a batch leaves the others alone, before and after the effect.
#[tokio::test(start_paused = true)]
async fn faults_single_items_of_a_batch_out() {
    let bed = Bed::new();
    let faults = bed.cluster.faults();
    let no_room = Action::fail(ErrorCode::NoAvailableHandle);
    faults.add(Rule::new(Point::PutStart, no_room).for_key("b")).unwrap();
    let fail = Action::fail(ErrorCode::RpcFail);
    faults.add(Rule::new(Point::Exist, fail).for_key("c").after()).unwrap();
    let items = ["a", "b", "c"].map(|key| put_item(&bed.pool, key, key.as_bytes())).into();
    let outcomes = bed.client.put(items).await;
    assert!(matches!(
        &outcomes[1],
        Outcome::Ended { result: Err(e), .. } if e.code == ErrorCode::NoAvailableHandle
    ));
    let keys = ["a", "b", "c"].map(String::from).into();
    let exist = bed.client.batch_is_exist(keys).await;
    assert_eq!(exist, [Ok(true), Ok(false), Err(ErrorCode::RpcFail)]);
}

#[tokio::test(start_paused = true)]
async fn removals_reach_their_fault_point() {
    let bed = Bed::new();
    bed.put("ab", b"bytes").await;
    let faults = bed.cluster.faults();
    let rule = faults.add(Rule::new(Point::Remove, Action::Disconnect).after().times(1)).unwrap();
    assert_eq!(bed.client.remove_by_regex("b$", false).await, Err(ErrorCode::RpcFail));
    assert_eq!(faults.fired_by(rule), 1);
    assert_eq!(exists(&bed.client, "ab").await, Ok(false), "it took effect");
    assert_eq!(bed.client.remove_by_regex("(", false).await, Err(ErrorCode::InvalidParams));
    assert_eq!(bed.client.remove_all(true).await, Ok(0));
    let removed = bed.client.remove(springtide::env::Key::new("ab"), true).await;
    assert_eq!(removed.unwrap_err().code, ErrorCode::ObjectNotFound);
}
