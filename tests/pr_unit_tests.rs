//! The unit tests of vLLM's pull request #30468, against the fake store and the buddy pool.
//!
//! Each does what the test of that name did there (start with and without the fast path, existence, batched
//! get and put on the copying and on the zero-copy path, dtypes, pool eviction, registration, closing,
//! removal by pattern) and asserts the right outcome where the original had a fault. The faults are those of
//! its public review; a comment names each.

#[path = "../fake_store/tests/common/mod.rs"]
mod common;

use fake_store::{
    Action, Client, ClientConfig, ClusterConfig, FakeCluster, Knobs, Point, Rule,
    client::Protocol,
    master::Placement,
    protocol::{ClientId, ReplicaConfig},
    service::Health,
    transport::LocalTransport,
};
use springtide::{
    connector::{HEADER_BYTES, Header, PayloadChecksum, Proof, object_bytes},
    env::{
        Clock, DType, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Shape, Store, StoreError,
        TensorSpec,
    },
    pool::{Contiguity, Pool, PoolConfig},
    runtime::TokioClock,
};

use self::common::{
    bytes_of, exists, filled, get, get_item, ms, pattern, pool, put, put_item, secs, spawner,
};

const MIB: u64 = 1 << 20;

/// A store, a client and the pool that it was given.
struct Bed {
    clock: TokioClock,
    cluster: FakeCluster<TokioClock>,
    client: Client<LocalTransport<TokioClock>, TokioClock>,
    pool: Pool,
}

/// `fast` is the zero-copy path: registered memory and a transport that insists on it.
async fn start(fast: bool) -> Result<Bed, StoreError> {
    start_with(fast, None).await
}

async fn start_with(fast: bool, fault: Option<Rule>) -> Result<Bed, StoreError> {
    let clock = TokioClock::new();
    let master = Knobs { placement: Placement::FirstFit, ..Knobs::default() };
    let config = ClusterConfig { master, ..ClusterConfig::default() };
    let cluster = FakeCluster::new(clock, spawner(), config).unwrap();
    cluster.add_node("node", 32 * MIB);
    spawner()(Box::pin(cluster.clone().run()));
    if let Some(rule) = fault {
        cluster.faults().add(rule).unwrap();
    }
    let protocol = if fast { Protocol::Rdma } else { Protocol::Tcp };
    let config = ClientConfig { protocol, ..ClientConfig::new(ClientId(1), "encoder:1") };
    let client = cluster.client(config);
    // 3 MiB: no power of two.
    let pool = pool(3 * MIB);
    if fast {
        client.register(pool.region().clone()).await?;
    }
    Ok(Bed { clock, cluster, client, pool })
}

/// A tensor as the store holds it: header and payload in one object.
fn object(key: &str, spec: TensorSpec, payload: &[u8]) -> Vec<u8> {
    let mut checksum = PayloadChecksum::default();
    checksum.update(payload);
    let header = Header::new(&Key::new(key), spec, Some(checksum.finish()));
    [&header.encode()[..], payload].concat()
}

/// The tensor in an object, checked as a reader has to.
fn tensor(key: &str, expected: &TensorSpec, object: &[u8]) -> Vec<u8> {
    let (header, payload) = object.split_at(HEADER_BYTES as usize);
    let header = Header::decode(header.try_into().unwrap()).unwrap();
    header.check(&Key::new(key), expected).unwrap();
    let mut checksum = PayloadChecksum::default();
    checksum.update(payload);
    assert_eq!(header.proof, Proof::Checksum(checksum.finish()));
    payload.to_vec()
}

fn spec(dtype: DType, rows: u64, width: u64) -> TensorSpec {
    TensorSpec::new(dtype, Shape::rows(rows, width).unwrap()).unwrap()
}

/// The original rounded the pool up, registered what was asked for and unregistered a third length.
#[tokio::test(start_paused = true)]
async fn init_with_fast_transfer() {
    let bed = start(true).await.unwrap();
    assert_eq!(bed.client.registered_bytes(), bed.pool.region().len(), "one length everywhere");
    let whole = bed.pool.allocate(bed.pool.region().len(), Contiguity::Extents).unwrap();
    assert!(whole.extents().iter().all(|e| e.end().unwrap() <= bed.pool.region().len()));
    drop(whole);
    let len = bed.pool.region().len() as usize;
    let bytes = pattern(1, len);
    assert_eq!(put(&bed.client, &bed.pool, "k", &bytes).await, 0, "the last block works, too");
    assert_eq!(get(&bed.client, &bed.pool, "k", len).await.unwrap(), bytes);
}

#[tokio::test(start_paused = true)]
async fn init_without_fast_transfer() {
    let bed = start(false).await.unwrap();
    assert_eq!(bed.client.registered_bytes(), 0);
    let config = ReplicaConfig::default();
    bed.client.put_bytes("k", b"bytes".to_vec(), &config).await.unwrap();
    assert_eq!(bed.client.get_bytes("k").await.unwrap(), b"bytes");
}

/// The original ignored the code: later transfers claimed success.
#[tokio::test(start_paused = true)]
async fn init_reports_a_failed_registration() {
    let fault = Rule::new(Point::Register, Action::fail(ErrorCode::InvalidParams));
    let error = start_with(true, Some(fault)).await.err().unwrap();
    assert!(error.to_string().starts_with("INVALID_PARAMS (-600)"), "{error}");

    let bed = start(true).await.unwrap();
    bed.client.unregister(bed.pool.region().clone()).await.unwrap();
    assert_eq!(put(&bed.client, &bed.pool, "k", b"bytes").await, -800);
    assert_eq!(exists(&bed.client, "k").await, Ok(false));
}

/// The original took a negative code for a hit.
#[tokio::test(start_paused = true)]
async fn batch_exists() {
    let bed = start(true).await.unwrap();
    for key in ["a", "c"] {
        assert_eq!(put(&bed.client, &bed.pool, key, b"bytes").await, 0);
    }
    let _half = bed.client.start_put("half", 5, &ReplicaConfig::default()).await.unwrap();
    let keys = ["a", "b", "c", "half"].map(Key::new).to_vec();
    let found: Vec<bool> =
        bed.client.exists(keys.clone()).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [true, false, true, false]);

    bed.cluster.master().set_health(Health::Refused);
    for answer in bed.client.exists(keys).await {
        assert_eq!(answer.unwrap_err().code, ErrorCode::RpcFail, "an error, no hit");
    }
    assert!(bed.client.exists(Vec::new()).await.is_empty());
}

/// One bad item failed the original's whole batch and lost its blocks.
#[tokio::test(start_paused = true)]
async fn batch_put_and_get_zero_copy() {
    let bed = start(true).await.unwrap();
    let spec = spec(DType::Bf16, 10, 64);
    let tensors: Vec<(String, Vec<u8>)> =
        (0..5u8).map(|i| (format!("k{i}"), pattern(i, spec.bytes() as usize))).collect();
    let items = tensors.iter().map(|(key, payload)| PutItem {
        key: Key::new(key.as_str()),
        source: filled(&bed.pool, &object(key, spec, payload)),
    });
    let stored = bed.client.put(items.collect()).await;
    assert!(stored.iter().all(|outcome| matches!(outcome, Outcome::Ended { result: Ok(()), .. })));
    drop(stored);

    let missing = ("missing".to_owned(), Vec::new());
    let wanted = tensors.iter().take(3).chain([&missing]).chain(tensors.iter().skip(3));
    let items =
        wanted.clone().map(|(key, _)| get_item(&bed.pool, key, object_bytes(&spec) as usize));
    let outcomes = bed.client.get(items.collect()).await;
    for ((key, payload), outcome) in wanted.zip(outcomes) {
        match outcome {
            Outcome::Ended { buffer, result: Ok(bytes) } => {
                assert_eq!(bytes, object_bytes(&spec));
                assert_eq!(tensor(key, &spec, &bytes_of(&buffer)), *payload);
            }
            Outcome::Ended { result: Err(error), .. } => {
                assert_eq!((key.as_str(), error.code), ("missing", ErrorCode::ObjectNotFound));
            }
            Outcome::Uncertain { .. } => panic!("nothing is late here"),
        }
    }
    assert_eq!(bed.pool.usage().free, bed.pool.region().len(), "every block is back");
}

#[tokio::test(start_paused = true)]
async fn batch_put_and_get_copying() {
    let bed = start(false).await.unwrap();
    let config = ReplicaConfig::default();
    let spec = spec(DType::F32, 7, 33);
    let payload = pattern(3, spec.bytes() as usize);
    let values = (0..4).map(|i| {
        let key = format!("k{i}");
        let value = object(&key, spec, &payload);
        (key, value)
    });
    let stored = bed.client.put_bytes_batch(values.collect(), &config).await;
    assert_eq!(stored, [Ok(()); 4]);
    for i in 0..4 {
        let key = format!("k{i}");
        let value = bed.client.get_bytes(&key).await.unwrap();
        assert_eq!(tensor(&key, &spec, &value), payload);
    }
    assert_eq!(bed.client.get_bytes("missing").await, Err(ErrorCode::ObjectNotFound));
    assert_eq!(bed.pool.usage().free, bed.pool.region().len(), "the pool is not used");
}

/// The original could not read float16 and float32 back on its copying path. Every type, written on either
/// path and read on either.
#[tokio::test(start_paused = true)]
async fn dtypes() {
    let bed = start(true).await.unwrap();
    let config = ReplicaConfig::default();
    let dtypes = [DType::Bf16, DType::F16, DType::F32, DType::I32, DType::F8E4M3, DType::F8E5M2];
    for (n, dtype) in dtypes.into_iter().enumerate() {
        let spec = spec(dtype, 5, 48);
        let payload = pattern(n as u8, spec.bytes() as usize);
        let len = object_bytes(&spec) as usize;
        for zero_copy in [true, false] {
            let key = format!("{dtype}/{zero_copy}");
            let value = object(&key, spec, &payload);
            if zero_copy {
                assert_eq!(put(&bed.client, &bed.pool, &key, &value).await, 0);
            } else {
                bed.client.put_bytes(&key, value, &config).await.unwrap();
            }
            let read = get(&bed.client, &bed.pool, &key, len).await.unwrap();
            assert_eq!(tensor(&key, &spec, &read), payload, "{key}, zero copy");
            let read = bed.client.get_bytes(&key).await.unwrap();
            assert_eq!(tensor(&key, &spec, &read), payload, "{key}, copying");
        }
    }
}

/// The original raised another kind of error for empty tensors and for those larger than the pool.
#[tokio::test(start_paused = true)]
async fn empty_and_oversize_tensors() {
    let bed = start(true).await.unwrap();
    let empty = spec(DType::Bf16, 0, 64);
    let value = object("empty", empty, &[]);
    assert_eq!(put(&bed.client, &bed.pool, "empty", &value).await, 0);
    let read = get(&bed.client, &bed.pool, "empty", HEADER_BYTES as usize).await.unwrap();
    assert_eq!(tensor("empty", &empty, &read), [0u8; 0]);

    let before = bed.pool.usage().free;
    let refused = bed.pool.allocate(bed.pool.region().len() + 1, Contiguity::Extents);
    assert!(refused.unwrap_err().to_string().contains("can never fit"));
    assert_eq!(bed.pool.usage().free, before);
}

/// The original's pool gave the oldest block away by itself, also one that was being sent, and took a stale
/// address for a live one.
#[tokio::test(start_paused = true)]
async fn pool_eviction() {
    let bed = start(true).await.unwrap();
    let len = bed.pool.region().len() as usize / 2 - 4096;
    let bytes = pattern(1, len);
    let held = bed.cluster.faults().add(Rule::new(Point::Write, Action::Stall)).unwrap();
    let put = bed.client.put(vec![put_item(&bed.pool, "in flight", &bytes)]);
    bed.cluster.faults().wait_held(held, 1).await;

    let resident = bed.pool.allocate(len as u64, Contiguity::Extents).unwrap().publish(7);
    let handle = resident.handle();
    assert!(
        bed.pool.allocate(len as u64, Contiguity::Extents).is_err(),
        "allocating evicts nothing"
    );
    assert_eq!(bed.pool.evict_until_fits(len as u64, Contiguity::Extents), [], "all in use");
    drop(resident);
    assert_eq!(bed.pool.evict_until_fits(len as u64, Contiguity::Extents), [handle]);
    let mut other = bed.pool.allocate(len as u64, Contiguity::Extents).unwrap();
    other.write_at(0, &vec![0xAA; len]);
    assert!(bed.pool.pin(handle).is_err(), "a stale handle names nobody's block");
    assert!(bed.pool.discard(handle).is_err());
    assert_eq!(bed.pool.usage().counters.stale_handles, 2);

    bed.cluster.faults().release(held);
    let Outcome::Ended { buffer, result: Ok(()) } = put.await.remove(0) else { panic!("stored") };
    assert_eq!(bytes_of(&buffer), bytes, "the block was the put's until its end");
    drop(buffer);
    assert_eq!(get(&bed.client, &bed.pool, "in flight", len).await.unwrap(), bytes);
    assert_eq!(bytes_of(&other), vec![0xAA; len]);
    bed.pool.verify().unwrap();
}

/// Evicting a staging block deleted the shared object for everybody.
#[tokio::test(start_paused = true)]
async fn evicting_a_resident_leaves_the_object() {
    let bed = start(true).await.unwrap();
    let outcomes = bed.client.put(vec![put_item(&bed.pool, "k", b"bytes")]).await;
    for outcome in outcomes {
        let Outcome::Ended { buffer, result: Ok(()) } = outcome else { panic!("stored") };
        drop(buffer.publish(1));
    }
    let victims = bed.pool.evict_until_fits(bed.pool.region().len(), Contiguity::Extents);
    assert_eq!(victims.len(), 1);
    assert_eq!(exists(&bed.client, "k").await, Ok(true));
    assert_eq!(get(&bed.client, &bed.pool, "k", 5).await.unwrap(), b"bytes");
}

#[tokio::test(start_paused = true)]
async fn register_and_unregister_the_very_same_buffer() {
    let bed = start(true).await.unwrap();
    let region = bed.pool.region();
    let stranger = Pool::new(&PoolConfig::with_bytes(MIB)).unwrap();
    let code = |result: Result<(), StoreError>| result.map_err(|error| error.code);
    let refused = Err(ErrorCode::InvalidParams);
    assert_eq!(code(bed.client.register(region.clone()).await), refused, "registered already");
    assert_eq!(code(bed.client.unregister(stranger.region().clone()).await), refused);
    assert_eq!(bed.client.registered_bytes(), region.len());
    assert_eq!(code(bed.client.unregister(region.clone()).await), Ok(()));
    assert_eq!(bed.client.registered_bytes(), 0);
    assert_eq!(code(bed.client.register(region.clone()).await), Ok(()), "and again");

    let fail = Action::fail(ErrorCode::InvalidParams);
    bed.cluster.faults().add(Rule::new(Point::Unregister, fail)).unwrap();
    assert_eq!(code(bed.client.unregister(region.clone()).await), refused);
    assert_eq!(bed.client.registered_bytes(), region.len(), "still known to the card");
}

/// The original freed the memory while a put was reading it, or waited for it without a bound.
#[tokio::test(start_paused = true)]
async fn close_with_a_put_that_never_ends() {
    let bed = start(true).await.unwrap();
    let stall = Rule::new(Point::Write, Action::Stall).at_bytes(100);
    let held = bed.cluster.faults().add(stall).unwrap();
    let put = bed.client.put(vec![put_item(&bed.pool, "k", &pattern(1, 5000))]);
    let mut put = std::pin::pin!(put);
    let before = bed.clock.now();
    assert!(bed.clock.timeout_at(before + ms(200), put.as_mut()).await.is_err());
    assert!(bed.pool.usage().free < bed.pool.region().len(), "the block is not free");
    assert_eq!(bed.client.close().await, Fence::Fenced);
    assert!(bed.clock.now() - before < ms(1000), "within a bound");
    let outcome = put.await.remove(0);
    assert!(matches!(outcome, Outcome::Ended { result: Err(_), .. }), "abandoned, but over");
    drop(outcome);
    assert_eq!(bed.pool.usage().free, bed.pool.region().len());
    bed.cluster.faults().release(held);
    for result in bed.client.exists(vec![Key::new("k")]).await {
        assert_eq!(result.unwrap_err().code, ErrorCode::InvalidParams, "closed");
    }
}

/// The original's word boundaries matched prefixes, its answer for a leased object was ignored.
#[tokio::test(start_paused = true)]
async fn remove_by_pattern() {
    let bed = start(true).await.unwrap();
    for key in ["st1/ns/img.1", "st1/ns/img.10", "st1/ns/imgx1"] {
        assert_eq!(put(&bed.client, &bed.pool, key, b"bytes").await, 0);
    }
    assert_eq!(exists(&bed.client, "st1/ns/img.1").await, Ok(true));
    assert_eq!(bed.client.remove_by_regex(r"^st1/ns/img\.1$", false).await, Ok(0), "leased");
    bed.clock.sleep(secs(11)).await;
    assert_eq!(bed.client.remove_by_regex(r"^st1/ns/img\.1$", false).await, Ok(1));
    let keys = bed.cluster.master().with(|m| m.keys().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(keys, ["st1/ns/img.10", "st1/ns/imgx1"], "nothing but the one");
    assert_eq!(bed.client.remove_by_regex("(", true).await, Err(ErrorCode::InvalidParams));

    assert_eq!(exists(&bed.client, "st1/ns/img.10").await, Ok(true));
    let leased = bed.client.remove(Key::new("st1/ns/img.10"), false).await;
    assert_eq!(leased.unwrap_err().code, ErrorCode::ObjectHasLease, "told, not swallowed");
    bed.client.remove(Key::new("st1/ns/img.10"), true).await.unwrap();
}

/// The original took any positive number for success; the rest of the tensor was old pool content.
#[tokio::test(start_paused = true)]
async fn a_short_read_is_told() {
    let bed = start(true).await.unwrap();
    assert_eq!(put(&bed.client, &bed.pool, "k", &[1; 4096]).await, 0);
    bed.cluster.faults().add(Rule::new(Point::Read, Action::ShortRead(512))).unwrap();
    let item = GetItem {
        key: Key::new("k"),
        dest: bed.pool.allocate(4096, Contiguity::Extents).unwrap().into_transfer(),
    };
    let outcome = bed.client.get(vec![item]).await.remove(0);
    assert!(matches!(outcome, Outcome::Ended { result: Ok(3584), .. }), "not 4096");
}

/// The original's wait had a limit, its put had none: the block went back while it was being read.
#[tokio::test(start_paused = true)]
async fn a_put_that_is_given_up_keeps_its_block() {
    let bed = start(true).await.unwrap();
    let len = bed.pool.region().len() as usize - 4096;
    let bytes = pattern(9, len);
    let delay = Rule::new(Point::Write, Action::Delay(secs(3))).at_bytes(1000);
    bed.cluster.faults().add(delay).unwrap();
    let put = bed.client.put(vec![put_item(&bed.pool, "k", &bytes)]);
    assert!(bed.clock.timeout_at(bed.clock.now() + ms(1000), put).await.is_err());
    assert!(bed.pool.allocate(len as u64, Contiguity::Extents).is_err(), "not reissued");
    bed.clock.sleep(ms(2100)).await;
    assert!(bed.pool.allocate(len as u64, Contiguity::Extents).is_ok(), "free when it is over");
    assert_eq!(get(&bed.client, &bed.pool, "k", len).await.unwrap(), bytes, "byte exact");
}

/// Header and payload were two objects: one could be there without the other.
#[tokio::test(start_paused = true)]
async fn header_and_payload_live_and_die_together() {
    let bed = start(true).await.unwrap();
    let spec = spec(DType::F16, 20, 64);
    let value = object("k", spec, &pattern(2, spec.bytes() as usize));
    for bytes in [0, 64, 65, 2000] {
        let partial = Rule::new(Point::Write, Action::PartialBytes(bytes)).times(1);
        bed.cluster.faults().add(partial).unwrap();
        assert_eq!(put(&bed.client, &bed.pool, "k", &value).await, -800);
        assert_eq!(exists(&bed.client, "k").await, Ok(false), "neither at {bytes} bytes");
    }
    assert_eq!(put(&bed.client, &bed.pool, "k", &value).await, 0);
    let read = get(&bed.client, &bed.pool, "k", value.len()).await.unwrap();
    assert_eq!(tensor("k", &spec, &read).len() as u64, spec.bytes());
}
