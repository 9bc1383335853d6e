//! springtide: an encoder-cache connector for vLLM on Mooncake Store.
//!
//! # Layout
//!
//! | module | what it is | relies on |
//! |---|---|---|
//! | [`env`](mod@env) | the injected world: clock, network, store, device | [`pool`]'s leases |
//! | [`pool`] | the buddy pool of registered memory, its leases and eviction | nothing |
//! | [`sync`] | the synchronisation primitives, switchable | nothing |
//! | [`connector`] | saving, waiting, looking up, loading | [`env`](mod@env), [`pool`] |
//! | [`backend`] | production implementations of the store | [`env`](mod@env) |
//! | [`runtime`] | production implementations of the injected world | [`env`](mod@env) |
//!
//! # Example
//!
//! A producer and a consumer share one item through a store (here the fake one, in this process):
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use fake_store::{ClientConfig, ClusterConfig, FakeCluster, protocol::ClientId};
//! use springtide::{
//!     connector::{Config, ItemRequest, LoadTarget, Availability, Role, Scheduler, Worker},
//!     connector::{Namespace, NamespaceParts},
//!     env::{Clock, DType, Env},
//!     pool::PoolConfig,
//!     runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (clock, handle) = (TokioClock::new(), tokio::runtime::Handle::current());
//! let spawner = { let handle = handle.clone(); Arc::new(move |task| drop(handle.spawn(task))) };
//! let cluster = FakeCluster::new(clock, spawner, ClusterConfig::default())?;
//! cluster.add_node("node:1", 64 << 20);
//! let env = |id| {
//!     let client = cluster.client(ClientConfig::new(ClientId(id), format!("host{id}:1")));
//!     Runtime::new(handle.clone(), clock, client, HostDevice)
//! };
//! let namespace = NamespaceParts {
//!     model: "Qwen3-VL-8B".into(), dtype: DType::Bf16, width: 16_384, ..Default::default()
//! };
//! let pool = PoolConfig::with_bytes(32 << 20);
//! let config = |role| Config { role, namespace: namespace.clone(), pool: pool.clone(), ..Default::default() };
//!
//! // The encoder instance: save, and wait before the request is reported complete.
//! let producer = env(1);
//! let worker = Worker::start(producer.clone(), config(Role::Producer), None).await?;
//! let spec = Namespace::new(&namespace).spec(196)?;
//! let tensor = HostTensor::new(spec, vec![7; spec.bytes() as usize])?;
//! worker.save("image-1", tensor, HostEvent::ready());
//! let report = worker.wait_for_save(producer.clock().now() + Duration::from_secs(2)).await;
//! assert_eq!(report.to_string(), "1 stored");
//!
//! // The prefill instance: its scheduler process fetches, its workers copy.
//! let consumer = env(2);
//! let scheduler = Scheduler::start(consumer.clone(), config(Role::Consumer)).await?;
//! let worker = Worker::start(consumer.clone(), config(Role::Consumer), scheduler.mapper()).await?;
//! let items = [ItemRequest { identifier: "image-1".into(), rows: 196 }];
//! while scheduler.ensure_available("request-1", &items) == Availability::Wait {
//!     consumer.clock().sleep(Duration::from_millis(1)).await;
//! }
//! assert!(scheduler.has_item("image-1"));
//! scheduler.allocated("request-1", "image-1");
//! for order in scheduler.build_step(&[]).orders {
//!     let (id, tensor) = (order.id, HostTensor::zeros(order.spec));
//!     let target = LoadTarget { order, tensor: tensor.clone(), free: HostEvent::ready() };
//!     assert_eq!(worker.load(vec![target]).await[0].result, Ok(()));
//!     assert!(tensor.to_vec().iter().all(|byte| *byte == 7));
//!     scheduler.acknowledge(0, &[id]);
//! }
//! scheduler.request_finished("request-1");
//! # Ok(())
//! # }
//! ```

pub mod backend;
pub mod connector;
pub mod env;
pub mod pool;
pub mod runtime;
pub mod sync;
