use super::*;

fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::from_millis(1))
}

fn key(name: &str) -> Key {
    Key::new(name)
}

fn loads() -> Loads {
    let config = LoadConfig {
        absent_ttl: Duration::from_millis(100),
        failed_ttl: Duration::from_millis(1000),
        retry_pause: Duration::from_millis(10),
        attempts_max: 4,
        ..LoadConfig::default()
    };
    Loads::new(config, 1024, 8)
}

/// Wants a key and takes it to its fetch.
fn fetching(loads: &mut Loads, name: &str, len: u64) {
    assert_eq!(loads.want(&key(name), len, at(500), at(0)), Want::Pending);
    assert_eq!(loads.next_action(at(0)), Some(Action::Lookup(vec![key(name)])));
    loads.looked_up(&key(name), Ok(true), at(0));
    assert_eq!(loads.next_action(at(0)), Some(Action::Fetch(vec![(key(name), len)])));
}

#[test]
fn one_lookup_serves_all_who_want_a_key() {
    let mut loads = loads();
    for _ in 0..20 {
        assert_eq!(loads.want(&key("a"), 10, at(500), at(0)), Want::Pending);
    }
    assert_eq!(loads.next_action(at(0)), Some(Action::Lookup(vec![key("a")])));
    assert_eq!(loads.next_action(at(0)), None);
    assert_eq!(loads.counters.exists, 1);
}

#[test]
fn f029_not_ready_is_asked_again_and_absent_is_final() {
    let mut loads = loads();
    loads.want(&key("a"), 10, at(500), at(0));
    loads.next_action(at(0));
    loads.looked_up(&key("a"), Ok(false), at(0));
    assert_eq!(loads.next_action(at(0)), Some(Action::Size(key("a"))));
    loads.sized(&key("a"), Err(error(ErrorCode::ReplicaIsNotReady)), at(0));
    assert_eq!(loads.want(&key("a"), 10, at(500), at(1)), Want::Pending);
    assert_eq!(loads.next_action(at(10)), Some(Action::Lookup(vec![key("a")])));
    loads.looked_up(&key("a"), Ok(false), at(10));
    loads.next_action(at(10));
    loads.sized(&key("a"), Err(error(ErrorCode::ObjectNotFound)), at(10));
    assert_eq!(loads.take_settled(), [(key("a"), Err(MissReason::Absent))]);
    assert_eq!(loads.want(&key("a"), 10, at(500), at(11)), Want::Miss(MissReason::Absent));
    // After its time to live the store is asked anew.
    assert_eq!(loads.want(&key("a"), 10, at(500), at(110)), Want::Pending);
}

#[test]
fn f010_an_error_is_never_a_hit() {
    let mut loads = loads();
    loads.want(&key("a"), 10, at(15), at(0));
    loads.next_action(at(0));
    loads.looked_up(&key("a"), Err(error(ErrorCode::RpcFail)), at(0));
    assert_eq!(loads.next_action(at(10)), Some(Action::Lookup(vec![key("a")])));
    loads.looked_up(&key("a"), Err(error(ErrorCode::RpcFail)), at(10));
    let missed = MissReason::Store(ErrorCode::RpcFail);
    assert_eq!(loads.take_settled(), [(key("a"), Err(missed))]);
    assert_eq!(loads.counters.gets, 0);
    assert_eq!(loads.counters.errors.get("RPC_FAIL (-900)"), Some(&2));
}

#[test]
fn f077_what_vanishes_between_lookup_and_load_is_a_miss() {
    let mut loads = loads();
    fetching(&mut loads, "a", 10);
    loads.fetched(&key("a"), FetchEnd::Failed(error(ErrorCode::ObjectNotFound)), at(1));
    assert_eq!(loads.take_settled(), [(key("a"), Err(MissReason::Vanished))]);
    assert_eq!(loads.in_flight_bytes(), 0);
}

#[test]
fn a_bad_object_cannot_loop() {
    let mut loads = loads();
    fetching(&mut loads, "a", 10);
    loads.fetched(&key("a"), FetchEnd::Rejected(Rejection::Checksum), at(1));
    let missed = MissReason::Rejected(Rejection::Checksum);
    assert_eq!(loads.want(&key("a"), 10, at(900), at(999)), Want::Miss(missed));
    assert_eq!(loads.want(&key("a"), 10, at(1500), at(1001)), Want::Pending);
    assert_eq!(loads.counters.rejected.get("checksum"), Some(&1));
}

#[test]
fn expired_leases_and_failed_transfers_are_tried_again_within_bounds() {
    for code in [ErrorCode::LeaseExpired, ErrorCode::TransferFail] {
        let mut loads = loads();
        fetching(&mut loads, "a", 10);
        let mut gets = 1;
        for step in 1..50 {
            loads.fetched(&key("a"), FetchEnd::Failed(error(code)), at(step * 10));
            match loads.next_action(at(step * 10)) {
                Some(Action::Fetch(_)) => gets += 1,
                // Is it another length? It is not.
                Some(Action::Size(key)) => loads.sized(&key, Ok(10), at(step * 10)),
                _ => {}
            }
        }
        assert_eq!(gets, 4, "{code}");
        assert_eq!(loads.take_settled(), [(key("a"), Err(MissReason::Store(code)))]);
    }
}

#[test]
fn no_room_waits_for_room_until_the_deadline() {
    let mut loads = loads();
    fetching(&mut loads, "a", 10);
    loads.no_room(&key("a"), at(1));
    assert_eq!(loads.in_flight_bytes(), 0);
    assert_eq!(loads.next_action(at(11)), Some(Action::Fetch(vec![(key("a"), 10)])));
    loads.no_room(&key("a"), at(495));
    assert_eq!(loads.take_settled(), [(key("a"), Err(MissReason::PoolFull))]);
}

#[test]
fn what_nobody_waits_for_is_not_asked_for() {
    let mut loads = loads();
    loads.want(&key("a"), 10, at(5), at(0));
    assert_eq!(loads.next_action(at(5)), None);
    assert_eq!(loads.open(), 0);
}

#[test]
fn one_key_has_one_length() {
    let mut loads = loads();
    loads.want(&key("a"), 10, at(500), at(0));
    assert_eq!(loads.want(&key("a"), 11, at(500), at(0)), Want::Miss(MissReason::WrongSpec));
}

#[test]
fn keys_are_bounded() {
    let config = LoadConfig { keys_max: 2, ..LoadConfig::default() };
    let mut loads = Loads::new(config, 1024, 8);
    loads.want(&key("a"), 10, at(500), at(0));
    loads.want(&key("b"), 10, at(500), at(0));
    assert_eq!(loads.want(&key("c"), 10, at(500), at(0)), Want::Miss(MissReason::Overload));
}

#[test]
fn batches_respect_bytes_and_fragments() {
    let config = LoadConfig { batch_bytes_max: 100, ..LoadConfig::default() };
    // Eight fragments an item, sixteen a batch: two items.
    let mut loads = Loads::new(config, 16, 8);
    for name in ["a", "b", "c", "d"] {
        loads.want(&key(name), 30, at(500), at(0));
    }
    loads.next_action(at(0));
    for name in ["a", "b", "c", "d"] {
        loads.looked_up(&key(name), Ok(true), at(0));
    }
    let first = loads.next_action(at(0));
    assert_eq!(first, Some(Action::Fetch(vec![(key("a"), 30), (key("b"), 30)])));
    let second = loads.next_action(at(0));
    assert_eq!(second, Some(Action::Fetch(vec![(key("c"), 30), (key("d"), 30)])));
}

#[test]
fn closing_starts_nothing_more() {
    let mut loads = loads();
    fetching(&mut loads, "a", 10);
    loads.want(&key("b"), 10, at(500), at(0));
    loads.close();
    assert_eq!(loads.next_action(at(0)), None);
    assert_eq!(loads.want(&key("c"), 10, at(500), at(0)), Want::Miss(MissReason::Closed));
    loads.fetched(&key("a"), FetchEnd::Lost, at(1));
    assert_eq!(loads.open(), 0);
    // The miss has a timer; it must not wake the driver for nothing.
    assert_eq!(loads.next_wakeup(), None);
}

#[test]
fn an_object_of_another_length_is_found_out_and_removed() {
    for code in [ErrorCode::TransferFail, ErrorCode::InvalidParams] {
        let mut loads = loads();
        fetching(&mut loads, "a", 10);
        loads.fetched(&key("a"), FetchEnd::Failed(error(code)), at(1));
        assert_eq!(loads.next_action(at(1)), Some(Action::Size(key("a"))));
        loads.sized(&key("a"), Ok(9), at(2));
        let missed = MissReason::Rejected(Rejection::Length);
        assert_eq!(loads.take_settled(), [(key("a"), Err(missed))]);
        assert_eq!(loads.next_action(at(2)), Some(Action::Remove(key("a"), Rejection::Length)));
        loads.removed(true);
        assert_eq!(loads.counters.removed, 1);
    }
}

#[test]
fn a_bad_object_is_removed_once() {
    let mut loads = loads();
    fetching(&mut loads, "a", 10);
    loads.fetched(&key("a"), FetchEnd::Rejected(Rejection::Checksum), at(1));
    assert_eq!(loads.next_action(at(1)), Some(Action::Remove(key("a"), Rejection::Checksum)));
    assert_eq!(loads.next_action(at(1)), None);
}
