//! The plan that others are made from: one instance of each kind, a healthy store, no traffic, no faults.

use springtide::env::DType;

use super::{
    Apart, Connector, Engine, Eviction, Link, PLAN_VERSION, Phases, Plan, Store, Subject, Topology,
    Workload,
};

const MIB: u64 = 1 << 20;

impl Plan {
    /// A plan without traffic and faults, with the row width of `workload`.
    pub fn base(name: &str, workload: Workload) -> Self {
        Self {
            version: PLAN_VERSION,
            name: name.to_owned(),
            seed: 0,
            topology: Topology {
                encoders: 1,
                prefills: 1,
                nodes: 2,
                tensor_parallel: 1,
                namespaces: 1,
                apart: Apart::Model,
                mismatch: false,
            },
            link: Link { tick_ms: 2, latency_ms: 1 },
            subject: Subject::Springtide,
            connector: Connector {
                encoder_pool_bytes: 8 * MIB,
                prefill_pool_bytes: 8 * MIB,
                unit_payload_bytes: 512,
                extents_max: 8,
                eviction: Eviction::S3Fifo,
                save_deadline_ms: 3_000,
                load_deadline_ms: 400,
                io_timeout_ms: 2_500,
                batch_bytes_max: 2 * MIB,
                batch_items_max: 16,
                in_flight_bytes_max: 4 * MIB,
                queue_items_max: 256,
                attempts_max: 16,
                retry_pause_ms: 20,
                absent_ttl_ms: 50,
                failed_ttl_ms: 300,
                quarantine_permille: 250,
                payload_checksum: true,
                prefill_saves: false,
                secret: false,
                link: false,
            },
            store: Store {
                segment_bytes: 16 * MIB,
                replicas: 1,
                lease_ttl_ms: 1_000,
                watermark_permille: 900,
                eviction_permille: 50,
                put_discard_ms: 2_000,
                put_release_ms: 5_000,
                client_ttl_ms: 1_000,
                rpc_timeout_ms: 500,
                transfer_limit_ms: 1_500,
                close_fences: true,
            },
            engine: Engine {
                width: workload.width(),
                dtype: DType::Bf16,
                encode_us_per_row: 10,
                step_ms: 5,
                batch_requests_max: 8,
                cache_items_max: 24,
                wait_ms: 1_500,
                encoder_timeout_ms: 2_500,
                prefill_timeout_ms: 2_500,
                attempts_max: 3,
                schedules_ahead: false,
            },
            phases: Phases {
                warm_up_ms: 500,
                inject_ms: 3_000,
                heal_ms: 1_000,
                settle_ms: 6_000,
                verify_ms: 1_000,
                close_ms: 1_000,
            },
            requests: Vec::new(),
            faults: Vec::new(),
        }
    }
}
