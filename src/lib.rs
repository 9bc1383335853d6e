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
//! | [`config`] | what an instance is configured with, from all its sources | [`connector`], [`backend`] |
//! | [`log`] | the way of each item in the log, and the limit on lines | [`env`](mod@env) |
//! | [`durations`] | how long things took, in fixed buckets | nothing |
//! | [`size`] | numbers of bytes as people write them | nothing |
//! | [`runtime`] | production implementations of the injected world | [`env`](mod@env) |
//!
//! # Example
//!
//! A producer and a consumer share one item through a directory. `Cargo.toml` needs `springtide` and a
//! `tokio` with `rt`, `macros` and `time`; for Mooncake take [`backend::MooncakeStore`] in place of
//! [`backend::DiskStore`].
//!
//! ```
//! use std::time::Duration;
//!
//! use springtide::{
//!     backend::{DiskConfig, DiskStore},
//!     connector::{Config, Availability, ItemDecision, ItemRequest, LoadConfig, LoadTarget, Role, Scheduler, Worker},
//!     connector::{Namespace, NamespaceParts},
//!     env::{Clock, DType, Env},
//!     pool::PoolConfig,
//!     runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path().to_owned();
//! // let directory = PathBuf::from("/shared/encoder-cache");
//! let disk = DiskConfig { directory, capacity_bytes: 1 << 30, threads: 4 };
//! let (clock, handle) = (TokioClock::new(), tokio::runtime::Handle::current());
//! let env = || -> std::io::Result<_> {
//!     Ok(Runtime::new(handle.clone(), clock, DiskStore::open(&disk)?, HostDevice))
//! };
//! let namespace = NamespaceParts {
//!     model: "Qwen3-VL-8B".into(), dtype: DType::Bf16, width: 16_384, ..Default::default()
//! };
//! let pool = PoolConfig::with_bytes(32 << 20);
//! // Long, for a program without optimisation; the default suits a serving engine.
//! let loads = LoadConfig { deadline: Duration::from_secs(20), ..Default::default() };
//! let config = |role| Config {
//!     role, namespace: namespace.clone(), pool: pool.clone(), loads: loads.clone(), ..Default::default()
//! };
//!
//! // The encoder instance: save, and wait before the request is reported complete.
//! let producer = env()?;
//! let producing = Worker::start(producer.clone(), config(Role::Producer), None).await?;
//! let spec = Namespace::new(&namespace).spec(196)?;
//! let tensor = HostTensor::new(spec, vec![7; spec.bytes() as usize])?;
//! producing.save("image-1", tensor, HostEvent::ready());
//! let report = producing.wait_for_save(producer.clock().now() + Duration::from_secs(2)).await;
//! assert_eq!(report.to_string(), "1 stored");
//!
//! // The prefill instance: its scheduler process fetches, its workers copy.
//! let consumer = env()?;
//! let scheduler = Scheduler::start(consumer.clone(), config(Role::Consumer)).await?;
//! let worker = Worker::start(consumer.clone(), config(Role::Consumer), scheduler.mapper()).await?;
//! let items = [ItemRequest { identifier: "image-1".into(), rows: 196 }];
//! while scheduler.ensure_available("request-1", &items) == Availability::Wait {
//!     consumer.clock().sleep(Duration::from_millis(1)).await;
//! }
//! // Had it not come within `loads.deadline`, or been bad: the engine encodes it, and this says why.
//! assert_eq!(scheduler.decision("request-1", "image-1"), Some(ItemDecision::Ready));
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
//!
//! // Drain, close the store, give the memory back.
//! let deadline = clock.now() + Duration::from_secs(5);
//! println!("{:?}, {:?}", scheduler.close(deadline).await, producing.close(deadline).await);
//! # Ok(())
//! # }
//! ```

pub mod backend;
#[forbid(unsafe_code)]
pub mod config;
#[forbid(unsafe_code)]
pub mod connector;
#[forbid(unsafe_code)]
pub mod durations;
#[forbid(unsafe_code)]
pub mod env;
#[forbid(unsafe_code)]
pub mod log;
pub mod pool;
pub mod runtime;
#[forbid(unsafe_code)]
pub mod size;
#[forbid(unsafe_code)]
pub mod sync;
