//! The fake arm: a cluster in this process, in virtual time that follows the real one.
//!
//! Each call runs to its end at once; only calls that wait (for a dead master, a stopped owner) move the
//! fake's time by themselves. It also knows what no store tells: in which state an object is, and when the
//! next lease ends, without taking one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fake_store::{
    CallerMemory, Client, ClientConfig, ClusterConfig, FakeCluster, Knobs,
    client::{Item, PutSession},
    protocol::{ClientId, ReplicaConfig, SoftPin},
    service::{Health, NodeService},
    transport::LocalTransport,
};
use springtide::{
    env::{Clock, ErrorCode, Store, Time},
    runtime::TokioClock,
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    arm::{Arm, Broken, Observed},
    step::{Call, Event, Keep, Object, Room, World, content},
};

type FakeClient = Client<LocalTransport<TokioClock>, TokioClock>;
type Node = Arc<NodeService<TokioClock>>;

/// What memory holds before a get, in both arms.
const UNTOUCHED: u8 = 0xAA;

/// One client with the memory that it lends.
struct Member {
    name: String,
    /// `None` once it has ended.
    client: Option<FakeClient>,
    node: Option<Node>,
    sessions: BTreeMap<String, PutSession<LocalTransport<TokioClock>, TokioClock>>,
}

/// The fake store.
pub struct FakeArm {
    runtime: Runtime,
    clock: TokioClock,
    world: World,
    cluster: FakeCluster<TokioClock>,
    members: Vec<Member>,
    started: u64,
    evicted_before: u64,
}

/// In which state an object is before a call (the rows of the specification's table).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Absent.
    Absent,
    /// Being put.
    Writing,
    /// Being put for longer than the discard timeout.
    Stale,
    /// Being put by a client that has ended.
    Orphaned,
    /// Complete, without a lease.
    Complete,
    /// Complete, with a lease.
    Leased,
    /// Complete, on an owner that is dead or stopped and not given up yet.
    Unreachable,
}

/// What the fake knows of an object.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// Its state.
    pub state: State,
    /// Has an active soft pin.
    pub soft_pinned: bool,
    /// Is hard-pinned.
    pub hard_pinned: bool,
    /// Its length; 0 if it is absent.
    pub bytes: u64,
}

impl FakeArm {
    /// A store as `world` has it.
    ///
    /// # Errors
    /// [`Broken::Harness`].
    pub fn new(world: &World) -> Result<Self, Broken> {
        let failed = |error: &dyn std::fmt::Display| Broken::Harness(format!("fake: {error}"));
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let (clock, cluster) = {
            let _entered = runtime.enter();
            let clock = TokioClock::new();
            let spawner = Arc::new(|task| drop(Handle::current().spawn(task)));
            (clock, FakeCluster::new(clock, spawner, config(world)))
        };
        let cluster = cluster.map_err(|error| failed(&error))?;
        runtime.spawn(cluster.clone().run());
        let (members, world) = (Vec::new(), world.clone());
        let mut this =
            Self { runtime, clock, world, cluster, members, started: 0, evicted_before: 0 };
        for number in 0..this.world.segments.len() {
            let member = this.start(number);
            this.members.push(member);
        }
        Ok(this)
    }

    /// The time since it started.
    pub fn now(&self) -> Duration {
        let _entered = self.runtime.enter();
        self.clock.now().since_origin()
    }

    /// The keys of all objects, unfinished ones too.
    pub fn all_keys(&self) -> Vec<String> {
        self.cluster.master().with(|master| master.keys().map(str::to_owned).collect())
    }

    /// What it knows of an object.
    pub fn knowledge(&self, key: &str) -> Knowledge {
        let now = Time::from_origin(self.now());
        let found = self.cluster.master().with(|master| master.peek(key));
        let Some(object) = found else {
            let state = State::Absent;
            return Knowledge { state, soft_pinned: false, hard_pinned: false, bytes: 0 };
        };
        let unreachable = object.replicas.iter().all(|replica| {
            let nodes = self.members.iter().filter_map(|member| member.node.as_ref());
            let node = nodes.into_iter().find(|node| node.segment().id == replica.segment);
            node.is_none_or(|node| node.health() != Health::Up)
        });
        let owner_lives = self
            .members
            .iter()
            .filter_map(|member| member.client.as_ref())
            .any(|client| client.config().id == object.owner);
        let discard = Duration::from_secs(self.world.discard_s);
        let state = match () {
            () if object.writing && !owner_lives => State::Orphaned,
            () if object.writing && object.put_start + discard < now => State::Stale,
            () if object.writing => State::Writing,
            () if unreachable => State::Unreachable,
            () if object.leased_until > now => State::Leased,
            () => State::Complete,
        };
        let soft_pinned = object.soft_pinned_until.is_some_and(|until| until > now);
        let (hard_pinned, bytes) = (object.hard_pinned, object.bytes);
        Knowledge { state, soft_pinned, hard_pinned, bytes }
    }

    /// The moments at which an object changes by itself.
    pub fn edges(&self) -> Vec<Edge> {
        let discard = Duration::from_secs(self.world.discard_s);
        self.cluster.master().with(|master| {
            let keys: Vec<String> = master.keys().map(str::to_owned).collect();
            let objects = keys.iter().filter_map(|key| master.peek(key));
            objects
                .flat_map(|object| {
                    let mut edges = vec![];
                    if object.writing {
                        let due = object.put_start + discard;
                        edges.push(Edge { kind: EdgeKind::Discard, at: due.since_origin() });
                    } else {
                        let end = object.leased_until.since_origin();
                        edges.push(Edge { kind: EdgeKind::Lease, at: end });
                        let pin = object.soft_pinned_until.map(Time::since_origin);
                        edges.extend(pin.map(|at| Edge { kind: EdgeKind::SoftPin, at }));
                    }
                    edges
                })
                .collect()
        })
    }

    /// Whether the evictor has work: what it does next is not at a moment that can be compared.
    pub fn is_evicting(&self) -> bool {
        let usage = self.cluster.master().with(|master| master.usage());
        let ratio = usage.used_bytes as f64 / usage.capacity_bytes.max(1) as f64;
        usage.need_eviction || ratio > self.world.watermark
    }

    fn start(&mut self, number: usize) -> Member {
        let _entered = self.runtime.enter();
        self.started += 1;
        let name = format!("client-{number}-{}", self.started);
        let bytes = self.world.segments[number];
        let node = (bytes > 0).then(|| self.cluster.add_node(&name, bytes));
        let config = ClientConfig {
            rpc_timeout: Duration::from_millis(self.world.rpc_timeout_ms),
            local_buffer_bytes: LOCAL_BUFFER_BYTES,
            ..ClientConfig::new(ClientId(self.started), name.clone())
        };
        let own: Vec<&NodeService<TokioClock>> = node.iter().map(|node| &**node).collect();
        let client = self.cluster.client_with(config, &own);
        Member { name, client: Some(client), node, sessions: BTreeMap::new() }
    }

    fn keep(&self, keep: &Keep) -> ReplicaConfig {
        let name = |number: usize| self.members[number].name.clone();
        ReplicaConfig {
            replica_num: keep.replicas.into(),
            soft_pin: if keep.soft_pin { SoftPin::Enable } else { SoftPin::Preserve },
            hard_pin: keep.hard_pin,
            preferred_segments: keep.prefer.map(name).into_iter().collect(),
        }
    }
}

/// The memory that `put` and `get` copy through, in both arms.
pub const LOCAL_BUFFER_BYTES: u64 = 16 << 20;

fn config(world: &World) -> ClusterConfig {
    let secs = Duration::from_secs;
    ClusterConfig {
        master: Knobs {
            lease_ttl: Duration::from_millis(world.lease_ttl_ms),
            soft_pin_ttl: Duration::from_millis(world.soft_pin_ttl_ms),
            allow_evict_soft_pinned_objects: world.evict_soft_pinned,
            eviction_ratio: world.eviction_ratio,
            eviction_high_watermark_ratio: world.watermark,
            put_start_discard_timeout: secs(world.discard_s),
            put_start_release_timeout: secs(world.release_s),
            client_ttl: secs(world.client_ttl_s),
            ..Knobs::default()
        },
        status_timeout: secs(world.status_timeout_s),
        ..ClusterConfig::default()
    }
}

/// A moment at which an object changes by itself.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// What ends.
    pub kind: EdgeKind,
    /// When, in the fake's time.
    pub at: Duration,
}

/// What ends at an [`Edge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// A read lease.
    Lease,
    /// The time for which an unfinished put blocks its key.
    Discard,
    /// A soft pin.
    SoftPin,
}

impl Arm for FakeArm {
    fn call(&mut self, client: usize, call: &Call) -> Result<Observed, Broken> {
        let ended = || Broken::Harness(format!("client {client} has ended: a bad sequence"));
        let handle = self.members[client].client.clone().ok_or_else(ended)?;
        match call {
            // Mooncake's class keeps its sessions until they have ended well, and asks nobody about others.
            Call::Start { key, .. } if self.members[client].sessions.contains_key(key) => {
                Ok(codes([ErrorCode::InvalidParams.number().into()]))
            }
            Call::Start { key, bytes, keep } => {
                let keep = self.keep(keep);
                let started =
                    self.runtime.block_on(handle.start_put(key, u64::from(*bytes), &keep));
                let code = code(started.as_ref().map(drop).map_err(|code| *code));
                let sessions = &mut self.members[client].sessions;
                started.into_iter().for_each(|session| _ = sessions.insert(key.clone(), session));
                Ok(codes([code]))
            }
            Call::End { key } | Call::Revoke { key } => {
                let sessions = &mut self.members[client].sessions;
                let Some(session) = sessions.get(key) else {
                    return Ok(codes([ErrorCode::InvalidParams.number().into()]));
                };
                let end = matches!(call, Call::End { .. });
                let ended = self.runtime.block_on(async {
                    if end { session.end().await } else { session.revoke().await }
                });
                // What is gone is revoked.
                let gone = !end && ended == Err(ErrorCode::ObjectNotFound);
                let ended = if gone { Ok(()) } else { ended };
                if ended.is_ok() {
                    sessions.remove(key);
                }
                Ok(codes([code(ended)]))
            }
            _ => {
                let keep = call_keep(call).map(|keep| self.keep(keep)).unwrap_or_default();
                Ok(self.runtime.block_on(perform(&handle, call, &keep)))
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Broken> {
        let _entered = self.runtime.enter();
        let health = |member: &Member, health| {
            member.node.iter().for_each(|node| node.set_health(health));
        };
        match event {
            Event::KillClient(number) => {
                let member = &mut self.members[number];
                health(member, Health::Refused);
                (member.client, member.sessions) = (None, BTreeMap::new());
            }
            Event::StopClient(number) => health(&self.members[number], Health::Hung),
            Event::ContinueClient(number) => health(&self.members[number], Health::Up),
            Event::CloseClient(number) => {
                let member = &mut self.members[number];
                let (client, node) = (member.client.take(), member.node.take());
                member.sessions.clear();
                node.iter().for_each(|node| self.cluster.unmount(node));
                let close = async move {
                    if let Some(client) = client {
                        client.close().await;
                    }
                };
                drop(_entered);
                self.runtime.block_on(close);
            }
            Event::StartClient(number) => {
                drop(_entered);
                self.members[number] = self.start(number);
            }
            Event::KillMaster => self.cluster.master().set_health(Health::Refused),
            Event::StartMaster => {
                self.evicted_before = self.counted();
                self.cluster.master().restart();
                self.cluster.master().set_health(Health::Up);
            }
            Event::StopMaster => self.cluster.master().set_health(Health::Hung),
            Event::ContinueMaster => self.cluster.master().set_health(Health::Up),
        }
        Ok(())
    }

    fn keys(&mut self) -> Result<Vec<String>, Broken> {
        // Mooncake's list has no objects that are being put.
        Ok(self.cluster.master().with(|master| {
            let keys = master.keys().map(str::to_owned);
            keys.filter(|key| master.peek(key).is_some_and(|object| !object.writing)).collect()
        }))
    }

    fn evicted(&mut self) -> Result<u64, Broken> {
        Ok(self.counted() - self.evicted_before)
    }

    fn capacity(&mut self) -> Result<u64, Broken> {
        Ok(self.cluster.master().with(|master| master.usage().capacity_bytes))
    }

    fn reach(&mut self, now: Duration) {
        self.runtime.block_on(self.clock.sleep_until(Time::from_origin(now)));
    }

    fn ahead(&self) -> Duration {
        self.now()
    }
}

impl FakeArm {
    fn counted(&self) -> u64 {
        self.cluster.master().with(|master| master.counters().evicted)
    }
}

fn call_keep(call: &Call) -> Option<&Keep> {
    match call {
        Call::Put { keep, .. }
        | Call::PutFrom { keep, .. }
        | Call::PutParts { keep, .. }
        | Call::PutBatch { keep, .. }
        | Call::BatchPutFrom { keep, .. }
        | Call::BatchPutFromMultiBuffers { keep, .. }
        | Call::Upsert { keep, .. } => Some(keep),
        _ => None,
    }
}

/// Makes a call that needs no session.
async fn perform(client: &FakeClient, call: &Call, keep: &ReplicaConfig) -> Observed {
    match call.clone() {
        Call::IsExist { key } => {
            codes([client.is_exist(&key).await.map_or_else(number, i64::from)])
        }
        Call::BatchIsExist { keys } => {
            let found = client.batch_is_exist(keys).await;
            codes(found.into_iter().map(|found| found.map_or_else(number, i64::from)))
        }
        Call::GetSize { key } => codes([length(client.get_size(&key).await)]),
        Call::Get { key } => {
            // Mooncake's `get` tells no code: nothing comes back.
            let value = client.get_bytes(&key).await.unwrap_or_default();
            let memory = vec![crc32fast::hash(&value)];
            Observed { codes: vec![value.len() as i64], memory, overrun: false }
        }
        Call::GetInto { room } => {
            let rooms = Rooms::new(vec![room], false);
            let code = length(client.get_into(rooms.items().remove(0)).await);
            rooms.observed(vec![code])
        }
        Call::BatchGetInto { rooms } => {
            let rooms = Rooms::new(rooms, false);
            let results = client.batch_get_into(rooms.items()).await;
            rooms.observed(results.into_iter().map(length).collect())
        }
        Call::BatchGetIntoMultiBuffers { rooms } => {
            let rooms = Rooms::new(rooms, true);
            let results = client.batch_get_into_multi_buffers(rooms.items()).await;
            rooms.observed(results.into_iter().map(length).collect())
        }
        Call::RegisterBuffer { at, bytes } => {
            codes([code(client.register_buffer(BASE + at as usize, bytes as usize).await)])
        }
        Call::UnregisterBuffer { at } => {
            codes([code(client.unregister_buffer(BASE + at as usize).await)])
        }
        Call::HealthCheck => codes([client.health_check().into()]),
        Call::Remove { key, force } => {
            codes(client.batch_remove(vec![key], force).await.into_iter().map(code))
        }
        Call::BatchRemove { keys, force } => {
            codes(client.batch_remove(keys, force).await.into_iter().map(code))
        }
        Call::RemoveByRegex { pattern, force } => {
            codes([length(client.remove_by_regex(&pattern, force).await)])
        }
        Call::RemoveAll { force } => codes([length(client.remove_all(force).await)]),
        put => perform_put(client, put, keep).await,
    }
}

async fn perform_put(client: &FakeClient, call: Call, keep: &ReplicaConfig) -> Observed {
    let value = |object: &Object| content(object.seed, object.bytes());
    match call {
        Call::Put { object, .. } => {
            codes([code(client.put_bytes(&object.key, value(&object), keep).await)])
        }
        Call::PutFrom { object, .. } => {
            codes([code(client.put_from(source(&object, false), keep).await)])
        }
        Call::PutParts { object, .. } => {
            let value = value(&object);
            codes([code(client.put_parts(&object.key, &[&value], keep).await)])
        }
        Call::PutBatch { objects, .. } => {
            let values = objects.iter().map(|object| (object.key.clone(), value(object)));
            let results = client.put_bytes_batch(values.collect(), keep).await;
            // Mooncake tells the first failure.
            let first = results.into_iter().find(Result::is_err).unwrap_or(Ok(()));
            codes([code(first)])
        }
        Call::BatchPutFrom { objects, .. } => {
            let items = objects.iter().map(|object| source(object, false)).collect();
            codes(client.batch_put_from(items, keep).await.into_iter().map(code))
        }
        Call::BatchPutFromMultiBuffers { objects, .. } => {
            let items = objects.iter().map(|object| source(object, true)).collect();
            codes(client.batch_put_from_multi_buffers(items, keep).await.into_iter().map(code))
        }
        Call::Upsert { object, .. } => {
            codes([code(client.upsert(&object.key, value(&object), keep).await)])
        }
        other => unreachable!("{other:?} is no put"),
    }
}

fn number(code: ErrorCode) -> i64 {
    code.number().into()
}

fn code(result: Result<(), ErrorCode>) -> i64 {
    result.map_or_else(number, |()| 0)
}

fn length(result: Result<u64, ErrorCode>) -> i64 {
    result.map_or_else(number, |bytes| bytes as i64)
}

fn codes(codes: impl IntoIterator<Item = i64>) -> Observed {
    Observed { codes: codes.into_iter().collect(), ..Observed::default() }
}

/// Where the memory begins that is registered. No transfer looks at it.
const BASE: usize = 1 << 32;

/// A caller's memory that can be looked at afterwards.
#[derive(Debug)]
struct Bytes {
    parts: Vec<u32>,
    bytes: Mutex<Vec<u8>>,
}

impl CallerMemory for Bytes {
    fn parts(&self) -> Vec<(usize, u64)> {
        self.parts.iter().map(|len| (BASE, u64::from(*len))).collect()
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        to.copy_from_slice(&bytes[offset as usize..][..to.len()]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
    }
}

fn source(object: &Object, scattered: bool) -> Item {
    let parts = if scattered { object.parts.clone() } else { vec![object.bytes()] };
    let bytes = Mutex::new(content(object.seed, object.bytes()));
    (object.key.clone(), Arc::new(Bytes { parts, bytes }))
}

/// The memory of a get.
struct Rooms(Vec<(String, Arc<Bytes>)>);

impl Rooms {
    fn new(rooms: Vec<Room>, scattered: bool) -> Self {
        let memory = |room: Room| {
            let bytes = Mutex::new(vec![UNTOUCHED; room.bytes() as usize]);
            let parts = if scattered { room.parts.clone() } else { vec![room.bytes()] };
            (room.key, Arc::new(Bytes { parts, bytes }))
        };
        Self(rooms.into_iter().map(memory).collect())
    }

    fn items(&self) -> Vec<Item> {
        self.0.iter().map(|(key, bytes)| (key.clone(), bytes.clone() as _)).collect()
    }

    fn observed(&self, codes: Vec<i64>) -> Observed {
        let checksum = |bytes: &Bytes| {
            crc32fast::hash(&bytes.bytes.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let memory = self.0.iter().map(|(_, bytes)| checksum(bytes)).collect();
        Observed { codes, memory, overrun: false }
    }
}
