use super::*;

fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::from_millis(1))
}

fn config() -> SaveConfig {
    SaveConfig {
        deadline: Duration::from_millis(1000),
        retry_pause: Duration::from_millis(20),
        retry_pause_max: Duration::from_millis(50),
        attempts_max: 4,
        ..SaveConfig::default()
    }
}

fn saves() -> Saves {
    Saves::new(config(), 1024)
}

fn key(name: &str) -> Key {
    Key::new(name)
}

/// Opens a save and takes it to its first put.
fn put(saves: &mut Saves, name: &str, bytes: u64, now: Time) -> (Ticket, UploadId) {
    let (ticket, id) = saves.open(key(name), bytes, 1, false, now);
    assert_eq!(saves.next_action(now), Some(Action::Check(vec![(id, key(name))])));
    saves.checked(id, Ok(false));
    saves.copied(id, true);
    assert_eq!(saves.next_action(now), Some(Action::Put(vec![(id, key(name))])));
    (ticket, id)
}

fn report(saves: &mut Saves, now: Time) -> Vec<SaveOutcome> {
    let wait = saves.begin_wait(now);
    let report = saves.poll_wait(wait, now).expect("the deadline is now");
    assert_eq!(saves.counters().check(), Ok(()));
    report.entries.into_iter().map(|entry| entry.outcome).collect()
}

#[test]
fn commit_is_put_and_exists() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    assert_eq!(saves.in_flight_bytes(), 10);
    saves.put_ended(id, PutEnd::Done, at(1));
    assert_eq!(saves.in_flight_bytes(), 0);
    assert_eq!(saves.next_action(at(1)), Some(Action::Probe(vec![(id, key("a"))])));
    saves.probed(id, Ok(true), at(2));
    assert_eq!(saves.next_action(at(2)), Some(Action::Release(id, key("a"))));
    assert_eq!(saves.next_action(at(2)), None);
    assert_eq!(report(&mut saves, at(2)), [SaveOutcome::Stored]);
}

#[test]
fn a_put_that_stored_nothing_is_repeated_until_it_did() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    saves.put_ended(id, PutEnd::Done, at(0));
    saves.next_action(at(0));
    saves.probed(id, Ok(false), at(0));
    assert_eq!(saves.next_action(at(19)), None);
    assert_eq!(saves.next_wakeup(), Some(at(20)));
    assert_eq!(saves.next_action(at(20)), Some(Action::Put(vec![(id, key("a"))])));
    saves.put_ended(id, PutEnd::Done, at(21));
    saves.next_action(at(21));
    saves.probed(id, Ok(true), at(22));
    assert_eq!(report(&mut saves, at(22)), [SaveOutcome::Stored]);
    assert_eq!(saves.counters().invisible, 1);
    assert_eq!(saves.counters().retries, 1);
}

#[test]
fn an_item_that_is_there_is_not_put() {
    let mut saves = saves();
    let (_, id) = saves.open(key("a"), 10, 1, false, at(0));
    saves.next_action(at(0));
    saves.checked(id, Ok(true));
    // The memory is still in the copy.
    assert_eq!(saves.next_action(at(0)), None);
    assert_eq!(report(&mut saves, at(0)), [SaveOutcome::AlreadyThere]);
    saves.copied(id, true);
    assert_eq!(saves.next_action(at(0)), Some(Action::Release(id, key("a"))));
    assert_eq!(saves.counters().puts, 0);
}

#[test]
fn codes_decide_whether_a_put_is_repeated() {
    let cases = [
        (ErrorCode::NoAvailableHandle, true),
        (ErrorCode::TransferFail, true),
        (ErrorCode::InvalidParams, false),
        (ErrorCode::TenantQuotaExceeded, false),
        (ErrorCode::Other(-9999), false),
    ];
    for (code, repeated) in cases {
        let mut saves = saves();
        let (_, id) = put(&mut saves, "a", 10, at(0));
        saves.put_ended(id, PutEnd::Failed(error(code)), at(0));
        let next = saves.next_action(at(20));
        assert_eq!(matches!(next, Some(Action::Put(_))), repeated, "{code}");
        if !repeated {
            let failed = SaveOutcome::Failed(SaveFailure::Store(code));
            assert_eq!(report(&mut saves, at(20)), [failed]);
        }
    }
}

#[test]
fn an_unknown_effect_is_looked_at_before_it_is_repeated() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    saves.put_ended(id, PutEnd::Failed(error(ErrorCode::RpcTimeout)), at(0));
    assert!(matches!(saves.next_action(at(0)), Some(Action::Probe(_))));
    saves.probed(id, Ok(true), at(1));
    assert_eq!(report(&mut saves, at(1)), [SaveOutcome::Stored]);
}

#[test]
fn a_failed_probe_is_repeated_not_believed() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    saves.put_ended(id, PutEnd::Done, at(0));
    saves.next_action(at(0));
    saves.probed(id, Err(error(ErrorCode::RpcFail)), at(0));
    assert!(matches!(saves.next_action(at(20)), Some(Action::Probe(_))));
}

#[test]
fn f086_a_full_store_fails_with_its_code_after_bounded_attempts() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    let mut puts = 1;
    for step in 0..100 {
        saves.put_ended(id, PutEnd::Failed(error(ErrorCode::NoAvailableHandle)), at(step * 10));
        puts += u32::from(matches!(saves.next_action(at(step * 10)), Some(Action::Put(_))));
    }
    assert_eq!(puts, config().attempts_max);
    let failed = SaveOutcome::Failed(SaveFailure::Store(ErrorCode::NoAvailableHandle));
    assert_eq!(report(&mut saves, at(1000)), [failed]);
}

#[test]
fn the_deadline_ends_the_tickets_but_not_the_io() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    assert_eq!(saves.next_action(at(1000)), None);
    assert_eq!(report(&mut saves, at(1000)), [SaveOutcome::TimedOut]);
    assert_eq!(saves.open_uploads(), 1);
    // A further save of the key is an upload of its own.
    assert_eq!(saves.join(&key("a"), 10, at(0)), None);
    saves.put_ended(id, PutEnd::Done, at(1500));
    saves.next_action(at(1500));
    saves.probed(id, Ok(true), at(1501));
    assert_eq!(saves.next_action(at(1501)), Some(Action::Release(id, key("a"))));
    assert_eq!(saves.counters().late, 1);
    assert_eq!(saves.counters().stored, 0);
}

#[test]
fn an_uncertain_end_is_final() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    let end = PutEnd::Uncertain(error(ErrorCode::TransferFail));
    saves.put_ended(id, end, at(0));
    saves.put_ended(id, PutEnd::Done, at(0));
    assert_eq!(saves.next_action(at(0)), Some(Action::Release(id, key("a"))));
    let failed = SaveOutcome::Failed(SaveFailure::Uncertain(ErrorCode::TransferFail));
    assert_eq!(report(&mut saves, at(0)), [failed]);
    assert_eq!(saves.counters().uncertain, 1);
}

#[test]
fn f006_tickets_are_counted_per_attempt() {
    let mut saves = saves();
    let (first, id) = put(&mut saves, "a", 10, at(0));
    let second = saves.join(&key("a"), 10, at(0)).expect("the upload is under way");
    assert_ne!(first, second);
    let wait = saves.begin_wait(at(100));
    assert_eq!(saves.poll_wait(wait, at(1)), None);
    saves.put_ended(id, PutEnd::Done, at(9));
    saves.next_action(at(9));
    assert_eq!(saves.poll_wait(wait, at(9)), None);
    saves.probed(id, Ok(true), at(9));
    let report = saves.poll_wait(wait, at(9)).expect("both have ended");
    assert_eq!(report.entries.len(), 2);
    assert!(report.is_complete());
    assert_eq!(saves.counters().joined, 1);
}

#[test]
fn f005_refused_saves_end_at_once() {
    let mut saves = saves();
    saves.refuse(key("a"), DropReason::TooLarge);
    let wait = saves.begin_wait(at(100));
    let report = saves.poll_wait(wait, at(0)).expect("nothing to wait for");
    assert_eq!(report.to_string(), "1 dropped(too_large)");
    saves.close();
    assert_eq!(saves.refusal(), Some(DropReason::Closed));
}

#[test]
fn a_failed_copy_ends_the_save() {
    let mut saves = saves();
    let (_, id) = saves.open(key("a"), 10, 1, false, at(0));
    saves.copied(id, false);
    assert_eq!(report(&mut saves, at(0)), [SaveOutcome::Failed(SaveFailure::Copy)]);
    assert_eq!(saves.next_action(at(0)), Some(Action::Release(id, key("a"))));
}

#[test]
fn batches_respect_bytes_items_fragments_and_flight() {
    let config = SaveConfig {
        batch_bytes_max: 100,
        batch_items_max: 3,
        in_flight_bytes_max: 150,
        ..config()
    };
    let mut saves = Saves::new(config, 8);
    let sizes = [(40, 4), (40, 4), (40, 1), (500, 1), (1, 1)];
    let ids: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(n, (bytes, fragments))| {
            let (_, id) = saves.open(key(&n.to_string()), *bytes, *fragments, true, at(0));
            saves.checked(id, Ok(false));
            id
        })
        .collect();
    while matches!(saves.next_action(at(0)), Some(Action::Check(_))) {}
    // The loop's last look took the first batch: two of 40 bytes, since eight fragments are the limit.
    assert_eq!(saves.in_flight_bytes(), 80);
    assert_eq!(saves.next_action(at(0)), Some(Action::Put(vec![(ids[2], key("2"))])));
    assert_eq!(saves.next_action(at(0)), None, "500 bytes wait until nothing is in flight");
    for id in &ids[..3] {
        saves.put_ended(*id, PutEnd::Done, at(1));
    }
    while matches!(saves.next_action(at(1)), Some(Action::Probe(_))) {}
    assert_eq!(saves.in_flight_bytes(), 500, "an item above the limits goes alone");
}

#[test]
fn an_upload_that_is_over_leaves_no_timer() {
    let mut saves = saves();
    let (_, id) = put(&mut saves, "a", 10, at(0));
    saves.join(&key("a"), 10, at(5)).expect("the upload is under way");
    saves.put_ended(id, PutEnd::Failed(error(ErrorCode::NoAvailableHandle)), at(10));
    assert_eq!(saves.next_wakeup(), Some(at(30)));
    saves.stop();
    assert_eq!(saves.next_wakeup(), None);
    assert_eq!(saves.next_action(at(10)), Some(Action::Release(id, key("a"))));
    assert_eq!((saves.open_uploads(), saves.counters().open), (0, 0));
    let (_, id) = put(&mut saves, "b", 10, at(20));
    saves.put_ended(id, PutEnd::Done, at(20));
    saves.next_action(at(20));
    saves.probed(id, Ok(true), at(20));
    assert_eq!(saves.next_wakeup(), None);
}
