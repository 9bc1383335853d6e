//! The ranges of a plan's fields, and the errors that name them.
//!
//! Whatever passes here can be executed; what the simulator could not run (an unknown host, a fault that
//! outlives its phase, a tick that is longer than a latency) is refused with the field and the expectation.

use std::fmt::Display;

use springtide::env::ErrorCode;

use super::{Fault, MessageFate, Op, Plan, PlanError, Request, Scheduled};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Simulated time that a run may take.
const RUN_MS_MAX: u64 = 300_000;
/// Bytes of all distinct items of a plan together, so that a run stays under 1 GiB.
const CONTENT_BYTES_MAX: u64 = 128 * MIB;
/// Bytes of a plan's name.
const NAME_MAX: usize = 100;
/// Lengths of the lists.
const REQUESTS_MAX: u64 = 20_000;
const FAULTS_MAX: u64 = 1_000;

impl Plan {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// [`PlanError::Range`] for the first field that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_name()?;
        self.check_world()?;
        self.check_connector()?;
        self.check_store()?;
        self.check_engine()?;
        self.check_phases()?;
        range("requests", self.requests.len() as u64, 0, REQUESTS_MAX)?;
        for (index, request) in self.requests.iter().enumerate() {
            self.check_request(&format!("requests[{index}]"), request)?;
        }
        let row_bytes = self.engine.width * self.engine.dtype.size();
        let content: u64 = self.items().values().map(|rows| rows * row_bytes).sum();
        range("requests (bytes of all items)", content, 0, CONTENT_BYTES_MAX)?;
        range("faults", self.faults.len() as u64, 0, FAULTS_MAX)?;
        for (index, fault) in self.faults.iter().enumerate() {
            self.check_fault(&format!("faults[{index}]"), fault)?;
        }
        Ok(())
    }

    /// The name is printed, and is part of a file's name.
    fn check_name(&self) -> Result<(), PlanError> {
        let printable = self.name.chars().all(|c| c.is_ascii_alphanumeric() || " -_.".contains(c));
        if printable && (1..=NAME_MAX).contains(&self.name.len()) {
            return Ok(());
        }
        Err(PlanError::Range {
            field: "name".into(),
            expected: format!("1 to {NAME_MAX} ASCII letters, digits, spaces, `-`, `_` and `.`"),
            got: format!("{:?}", self.name.chars().take(2 * NAME_MAX).collect::<String>()),
        })
    }

    fn check_world(&self) -> Result<(), PlanError> {
        let topology = &self.topology;
        range("topology.encoders", topology.encoders, 1, 4)?;
        range("topology.prefills", topology.prefills, 1, 4)?;
        range("topology.nodes", topology.nodes, 1, 4)?;
        range("topology.tensor_parallel", topology.tensor_parallel, 1, 4)?;
        // Every model needs an instance of either kind.
        let models = topology.encoders.min(topology.prefills).min(2);
        range("topology.namespaces", topology.namespaces, 1, models.into())?;
        range("link.tick_ms", self.link.tick_ms, 1, 10)?;
        range("link.latency_ms", self.link.latency_ms, 0, 1_000)
    }

    fn check_connector(&self) -> Result<(), PlanError> {
        let c = &self.connector;
        range("connector.encoder_pool_bytes", c.encoder_pool_bytes, KIB, 256 * MIB)?;
        range("connector.prefill_pool_bytes", c.prefill_pool_bytes, KIB, 256 * MIB)?;
        range("connector.unit_payload_bytes", c.unit_payload_bytes, 64, 64 * KIB)?;
        if !c.unit_payload_bytes.is_power_of_two() {
            return Err(wrong(
                "connector.unit_payload_bytes",
                "a power of two",
                c.unit_payload_bytes,
            ));
        }
        range("connector.extents_max", c.extents_max, 1, 16)?;
        range("connector.save_deadline_ms", c.save_deadline_ms, 1, 60_000)?;
        range("connector.load_deadline_ms", c.load_deadline_ms, 1, 60_000)?;
        range("connector.io_timeout_ms", c.io_timeout_ms, 1, 60_000)?;
        range("connector.batch_bytes_max", c.batch_bytes_max, KIB, 256 * MIB)?;
        range("connector.batch_items_max", c.batch_items_max, 1, 1_000)?;
        range("connector.in_flight_bytes_max", c.in_flight_bytes_max, KIB, 256 * MIB)?;
        range("connector.queue_items_max", c.queue_items_max, 1, 10_000)?;
        range("connector.attempts_max", c.attempts_max, 1, 100)?;
        range("connector.retry_pause_ms", c.retry_pause_ms, 1, 10_000)?;
        range("connector.absent_ttl_ms", c.absent_ttl_ms, 0, 60_000)?;
        range("connector.failed_ttl_ms", c.failed_ttl_ms, 0, 60_000)?;
        range("connector.quarantine_permille", c.quarantine_permille, 0, 1_000)
    }

    fn check_store(&self) -> Result<(), PlanError> {
        let s = &self.store;
        range("store.segment_bytes", s.segment_bytes, 64 * KIB, 256 * MIB)?;
        range("store.replicas", s.replicas, 1, 4)?;
        range("store.lease_ttl_ms", s.lease_ttl_ms, 1, 60_000)?;
        range("store.watermark_permille", s.watermark_permille, 1, 1_000)?;
        range("store.eviction_permille", s.eviction_permille, 0, 1_000)?;
        range("store.put_discard_ms", s.put_discard_ms, 1, 600_000)?;
        range("store.put_release_ms", s.put_release_ms, s.put_discard_ms + 1, 1_200_000)?;
        range("store.client_ttl_ms", s.client_ttl_ms, 100, 60_000)?;
        range("store.rpc_timeout_ms", s.rpc_timeout_ms, 1, 60_000)?;
        range("store.transfer_limit_ms", s.transfer_limit_ms, 1, 60_000)
    }

    fn check_engine(&self) -> Result<(), PlanError> {
        let e = &self.engine;
        range("engine.width", e.width, 1, 4_096)?;
        range("engine.encode_us_per_row", e.encode_us_per_row, 0, 10_000)?;
        range("engine.step_ms", e.step_ms, 1, 1_000)?;
        range("engine.batch_requests_max", e.batch_requests_max, 1, 256)?;
        range("engine.cache_items_max", e.cache_items_max, 1, 10_000)?;
        range("engine.wait_ms", e.wait_ms, 1, 60_000)?;
        range("engine.encoder_timeout_ms", e.encoder_timeout_ms, 1, 60_000)?;
        range("engine.prefill_timeout_ms", e.prefill_timeout_ms, 1, 60_000)?;
        range("engine.attempts_max", e.attempts_max, 1, 20)
    }

    fn check_phases(&self) -> Result<(), PlanError> {
        let p = &self.phases;
        for (field, length) in [
            ("phases.warm_up_ms", p.warm_up_ms),
            ("phases.inject_ms", p.inject_ms),
            ("phases.heal_ms", p.heal_ms),
            ("phases.settle_ms", p.settle_ms),
            ("phases.verify_ms", p.verify_ms),
            ("phases.close_ms", p.close_ms),
        ] {
            range(field, length, 0, RUN_MS_MAX)?;
        }
        range("phases (sum of lengths)", p.end_at(), 1, RUN_MS_MAX)
    }

    fn check_request(&self, at: &str, request: &Request) -> Result<(), PlanError> {
        range(&format!("{at}.at_ms"), request.at_ms, 0, self.phases.settle_at())?;
        let last = u64::from(self.topology.encoders) - 1;
        range(&format!("{at}.encoder"), request.encoder, 0, last)?;
        let last = u64::from(self.topology.prefills) - 1;
        range(&format!("{at}.prefill"), request.prefill, 0, last)?;
        let namespaces = self.topology.namespaces;
        if request.encoder % namespaces != request.prefill % namespaces {
            let expected = format!("an instance of the encoder's model (modulo {namespaces})");
            return Err(wrong(&format!("{at}.prefill"), &expected, request.prefill));
        }
        // A request whose items do not fit into the engine's cache together is never scheduled.
        let items_max = self.engine.cache_items_max.into();
        range(&format!("{at}.items"), request.items.len() as u64, 1, items_max)?;
        range(&format!("{at}.decode_steps"), request.decode_steps, 0, 1_000)?;
        for (index, item) in request.items.iter().enumerate() {
            if item.id.is_empty() {
                return Err(wrong(&format!("{at}.items[{index}].id"), "a name", "\"\""));
            }
            range(&format!("{at}.items[{index}].rows"), item.rows, 0, 100_000)?;
        }
        Ok(())
    }

    fn check_fault(&self, at: &str, scheduled: &Scheduled) -> Result<(), PlanError> {
        let (from, until) = (self.phases.inject_at(), self.phases.heal_at());
        range(&format!("{at}.at_ms"), scheduled.at_ms, from, until)?;
        let fault = &scheduled.fault;
        // Everything has ended when healing begins: liveness is judged from there.
        range(&format!("{at}.fault.for_ms"), fault.for_ms(), 0, until - scheduled.at_ms)?;
        let hosts = self.hosts();
        for host in fault.hosts() {
            if !hosts.iter().any(|known| known == host) {
                let expected = format!("one of {}", hosts.join(", "));
                return Err(wrong(&format!("{at}.fault.host"), &expected, host));
            }
        }
        if let [a, b] = fault.hosts()[..]
            && a == b
        {
            return Err(wrong(&format!("{at}.fault.b"), "another host than the first", b));
        }
        self.check_fault_details(at, fault)
    }

    fn check_fault_details(&self, at: &str, fault: &Fault) -> Result<(), PlanError> {
        let instance = |host: &str| host.starts_with("encoder") || host.starts_with("prefill");
        let transfer = |op: &Op| matches!(op, Op::PutTransfer | Op::GetTransfer);
        let field = |name: &str| format!("{at}.fault.{name}");
        match fault {
            Fault::Crash { host, .. } if host == "client" => {
                Err(wrong(&field("host"), "a host other than the client", host))
            }
            Fault::Messages { host, .. }
            | Fault::StoreCode { host, .. }
            | Fault::Stall { host, .. }
            | Fault::Disconnect { host, .. }
            | Fault::Broken { host, .. }
            | Fault::LateWrite { host, .. }
            | Fault::ShortRead { host, .. }
            | Fault::FlippedByte { host, .. }
            | Fault::ForeignBytes { host, .. }
            | Fault::Panic { host, .. }
            | Fault::FailCopy { host, .. }
            | Fault::SlowCopy { host, .. }
            | Fault::LateKernel { host, .. }
            | Fault::HogPool { host, .. }
            | Fault::DoubleSave { host, .. }
            | Fault::Close { host }
                if !instance(host) =>
            {
                Err(wrong(&field("host"), "an encoder or a prefill instance", host))
            }
            Fault::LateWrite { op, .. }
            | Fault::Broken { op, .. }
            | Fault::FlippedByte { op, .. }
            | Fault::ForeignBytes { op, .. }
                if !transfer(op) =>
            {
                Err(wrong(&field("op"), "put_transfer or get_transfer", format!("{op:?}")))
            }
            Fault::StoreCode { code, .. }
                if !ErrorCode::ALL.iter().any(|c| c.number() == *code) =>
            {
                Err(wrong(&field("code"), "a code of Mooncake Store", code))
            }
            Fault::Disconnect { op: Op::Register | Op::Unregister, .. }
            | Fault::Messages { op: Op::Register | Op::Unregister, .. } => {
                Err(wrong(&field("op"), "a call that sends something", "a registration"))
            }
            Fault::Panic { op, .. }
                if !matches!(op, Op::PutStart | Op::Query | Op::Exists | Op::Size | Op::Remove) =>
            {
                let expected = "put_start, query, exists, size or remove";
                Err(wrong(&field("op"), expected, format!("{op:?}")))
            }
            Fault::Messages { op, fate: MessageFate::Duplicate { .. }, .. } if transfer(op) => {
                Err(wrong(&field("op"), "a call to the master", format!("{op:?}")))
            }
            Fault::ShortLease { ttl_ms, .. } => range(&field("ttl_ms"), *ttl_ms, 1, 60_000),
            Fault::HogPool { permille, .. } => range(&field("permille"), *permille, 1, 1_000),
            Fault::FillStore { object_bytes, objects, .. } => {
                range(&field("object_bytes"), *object_bytes, 1, 64 * MIB)?;
                range(&field("objects"), *objects, 1, 4_096)
            }
            Fault::Plant { bytes, .. } => range(&field("bytes"), *bytes, 1, 64 * MIB),
            Fault::Slow { latency_ms, .. } => range(&field("latency_ms"), *latency_ms, 0, 10_000),
            _ => Ok(()),
        }
    }
}

fn range(field: &str, got: impl Into<u64>, low: u64, high: u64) -> Result<(), PlanError> {
    let got = got.into();
    if (low..=high).contains(&got) {
        return Ok(());
    }
    Err(wrong(field, &format!("{low} to {high}"), got))
}

fn wrong(field: &str, expected: &str, got: impl Display) -> PlanError {
    PlanError::Range {
        field: field.to_owned(),
        expected: expected.to_owned(),
        got: got.to_string(),
    }
}
