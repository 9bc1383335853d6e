//! Random operations under random faults, and many tasks at once.
//!
//! Whatever fails, and before or after which effect: a read is an error or the bytes of one put of that key,
//! whole; every block comes back; the master's books balance.

use fake_store::{Action, Point, Rule, faults::When};
use proptest::prelude::*;
use springtide::env::{ErrorCode, Fence, Key, Store};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put { keys: Vec<u8>, len: usize },
    Get { keys: Vec<u8> },
    Exists { key: u8 },
    Remove { key: u8, force: bool },
    GiveUpOnPut { key: u8, after_ms: u64 },
    Restart,
    Wait { millis: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u8..4;
    let keys = proptest::collection::vec(key.clone(), 1..4);
    let step = prop_oneof![
        4 => (keys.clone(), 1usize..20_000).prop_map(|(keys, len)| Step::Put { keys, len }),
        4 => keys.prop_map(|keys| Step::Get { keys }),
        1 => key.clone().prop_map(|key| Step::Exists { key }),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, force)| Step::Remove { key, force }),
        1 => (key, 0u64..50).prop_map(|(key, after_ms)| Step::GiveUpOnPut { key, after_ms }),
        1 => Just(Step::Restart),
        1 => (0u64..40_000).prop_map(|millis| Step::Wait { millis }),
    ];
    proptest::collection::vec(step, 1..25)
}

/// Faults that lose calls, replies and connections, but no bytes on the way.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let point = prop_oneof![
        Just(Point::PutStart),
        Just(Point::PutEnd),
        Just(Point::PutRevoke),
        Just(Point::Query),
        Just(Point::Exist),
        Just(Point::Remove),
        Just(Point::Write),
        Just(Point::Read),
    ];
    let action = prop_oneof![
        Just(Action::fail(ErrorCode::RpcFail)),
        Just(Action::DropReply),
        Just(Action::Disconnect),
        // Below every limit: what is later than that may write into other objects.
        (1u64..5000).prop_map(|millis| Action::Delay(ms(millis))),
    ];
    let when = prop_oneof![Just(When::Before), Just(When::After)];
    let rule =
        (point, action, when, 1u64..4, 1u64..5).prop_map(|(point, action, when, from, every)| {
            Rule { when, from, every, ..Rule::new(point, action) }
        });
    proptest::collection::vec(rule, 0..5)
}

/// The bytes of the `attempt`th put of a key: each byte says which.
fn content(key: u8, attempt: u8, len: usize) -> Vec<u8> {
    vec![key * 60 + attempt % 60, 1].into_iter().cycle().take(len.max(2)).collect()
}

async fn run(steps: Vec<Step>, rules: Vec<Rule>) {
    let bed = Bed::new();
    for rule in rules {
        bed.cluster.faults().add(rule).unwrap();
    }
    let mut written: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
    for step in steps {
        match step {
            Step::Put { keys, len } => {
                let items = keys.iter().map(|key| {
                    let history = &mut written[*key as usize];
                    history.push(content(*key, history.len() as u8, len));
                    put_item(&bed.pool, &format!("k{key}"), history.last().unwrap())
                });
                let items = items.collect();
                drop(bed.client.put(items).await);
            }
            Step::Get { keys } => get_and_check(&bed, &keys, &written).await,
            Step::Exists { key } => {
                drop(bed.client.exists(vec![Key::new(format!("k{key}"))]).await)
            }
            Step::Remove { key, force } => {
                // Any code will do.
                let _any = bed.client.remove(Key::new(format!("k{key}")), force).await;
            }
            Step::GiveUpOnPut { key, after_ms } => {
                let history = &mut written[key as usize];
                history.push(content(key, history.len() as u8, 30_000));
                let item = put_item(&bed.pool, &format!("k{key}"), history.last().unwrap());
                let call = bed.client.put(vec![item]);
                // Whether it ends in time makes no difference to what must hold.
                let _either = bed.clock.timeout_at(bed.clock.now() + ms(after_ms), call).await;
            }
            Step::Restart => {
                bed.cluster.master().restart();
                bed.sleep(ms(1100)).await;
            }
            Step::Wait { millis } => bed.sleep(ms(millis)).await,
        }
        bed.cluster.master().with(|master| assert_eq!(master.verify(), Ok(())));
    }
    bed.cluster.faults().heal();
    bed.sleep(secs(200)).await;
    assert_eq!(bed.client.active_transfers(), 0);
    // A transfer that failed early is uncertain all the same if its call ran up to the limit: a revoke
    // that timed out after it is enough.
    let usage = bed.pool.usage();
    assert_eq!(usage.free + usage.quarantined, bed.pool.region().len(), "nothing leaks");
    assert_eq!(bed.client.close().await, Fence::Fenced);
    bed.pool.release_quarantine();
    assert_eq!(bed.pool.usage().free, bed.pool.region().len(), "all is back");
    bed.pool.verify().unwrap();
}

/// Reads each key with the length that the master knows.
async fn get_and_check(bed: &Bed, keys: &[u8], written: &[Vec<Vec<u8>>]) {
    let length = |key: u8| {
        let object = bed.cluster.master().with(|master| master.peek(&format!("k{key}")));
        object.map_or(10, |object| object.bytes as usize)
    };
    let items: Vec<_> =
        keys.iter().map(|key| get_item(&bed.pool, &format!("k{key}"), length(*key))).collect();
    let outcomes = bed.client.get(items).await;
    for (at, (key, outcome)) in keys.iter().zip(outcomes).enumerate() {
        let twin_later = keys[at + 1..].contains(key);
        if let (Outcome::Ended { buffer, result: Ok(_) }, false) = (outcome, twin_later) {
            let read = bytes_of(&buffer);
            assert!(written[*key as usize].contains(&read), "k{key}: bytes that nobody put");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn reads_are_whole_and_blocks_come_back(steps in steps(), rules in rules()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps, rules));
    }
}

/// One handle from many threads at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_handle_serves_many_threads() {
    let bed = Bed::with(ClusterConfig { pacing: Pacing::default(), ..config() });
    let tasks = (0..8u8).map(|task| {
        let (client, pool) = (bed.client.clone(), bed.pool.clone());
        tokio::runtime::Handle::current().spawn(async move {
            let mut not_ready = 0;
            for i in 0..50u8 {
                let (key, bytes) = (format!("k{i}"), [i; 2000]);
                assert_eq!(put(&client, &pool, &key, &bytes).await, 0, "task {task}");
                match get(&client, &pool, &key, 2000).await {
                    Ok(read) => assert_eq!(read, bytes),
                    Err(code) => {
                        assert_eq!(code, -703, "another task's put is in progress");
                        not_ready += 1;
                    }
                }
            }
            not_ready
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        let not_ready: u32 = task.await.unwrap();
        assert!(not_ready <= 50);
    }
    assert_eq!(bed.pool.usage().free, bed.pool.region().len());
    bed.cluster.master().with(|master| assert_eq!(master.keys().count(), 50));
}
