//! Values that contradict each other, and what the rest of the system expects.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use super::{Settings, StoreSettings, error::Mistake};
use crate::{
    backend::MooncakeConfig,
    pool::{Backing, PoolError},
    size,
};

/// Threads of a store's client: each has a stack, and more than this are a slip of the finger.
const THREADS_MAX: usize = 1024;

/// What the engine beside the connector is known to do. What is not known is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// Bytes of the largest item that the model's processor lets through, with its header.
    pub item_bytes_max: Option<u64>,
    /// How long the engine waits for an instance before it gives it up.
    pub patience: Option<Duration>,
}

impl Settings {
    /// Whether the settings fit the engine: a pool that holds its largest item, deadlines within its patience.
    ///
    /// # Errors
    /// The first contradiction, in words.
    pub fn check_engine(&self, engine: &Engine) -> Result<(), String> {
        let pool = self.pool_bytes;
        if let Some(item) = engine.item_bytes_max.filter(|item| *item > pool) {
            let (pool, item) = (size::show(pool), size::show(item));
            return Err(format!(
                "pool_bytes is {pool}, expected at least the model's largest item, {item}"
            ));
        }
        let Some(patience) = engine.patience else { return Ok(()) };
        let (saves, loads) = (self.saves.deadline, self.loads.deadline);
        let wait = Duration::from_millis(self.wait_for_save_ms);
        for (key, deadline) in
            [("saves.deadline_ms", saves), ("loads.deadline_ms", loads), ("wait_for_save_ms", wait)]
        {
            if deadline >= patience {
                let (deadline, patience) = (deadline.as_millis(), patience.as_millis());
                return Err(format!(
                    "{key} is {deadline}, expected less than the engine's own {patience} ms"
                ));
            }
        }
        Ok(())
    }

    /// What works, and is probably not meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let deadline = self.loads.deadline.as_millis();
        if deadline > 500 {
            warnings.push(format!(
                "loads.deadline_ms is {deadline}: an engine that waits with nothing else to do spins; at most 500 \
                 is advised"
            ));
        }
        if !self.payload_checksum {
            let text =
                "payload_checksum is false: bytes that the store delivers wrong reach the model";
            warnings.push(text.into());
        }
        if let Ok(Some(address)) = self.metrics.address()
            && !address.ip().is_loopback()
        {
            warnings.push(format!(
                "metrics.listen is {address}: whoever reaches this address can read the counters"
            ));
        }
        if let StoreSettings::Disk(_) = self.store {
            let text = "store is disk: only instances that mount the directory share items";
            warnings.push(text.into());
        }
        warnings
    }

    /// Checks every limit, and what contradicts itself.
    pub(super) fn check(&self) -> Result<(), Mistake> {
        let connector = self.connector(Backing::Anonymous);
        connector.validate().map_err(|error| Mistake {
            key: error.field.to_owned(),
            value: error.value,
            expected: error.expected,
        })?;
        if let Err(PoolError::Config { got, expected, .. }) = connector.pool.units() {
            return Err(mistake("pool_bytes", got, expected));
        }
        if !(1..=600_000).contains(&self.wait_for_save_ms) {
            return Err(mistake("wait_for_save_ms", self.wait_for_save_ms, "1 to 600000"));
        }
        if let Err(text) = self.metrics.address() {
            let expected = "ADDRESS:PORT, the address being a number, such as 127.0.0.1:9465";
            return Err(mistake("metrics.listen", format!("{text:?}"), expected));
        }
        let (saves, loads) = (&self.saves, &self.loads);
        for (part, batch, in_flight) in [
            ("saves", saves.batch_bytes_max, saves.in_flight_bytes_max),
            ("loads", loads.batch_bytes_max, loads.in_flight_bytes_max),
        ] {
            if batch > in_flight {
                let expected =
                    format!("at most {part}.in_flight_bytes_max, {}", size::show(in_flight));
                return Err(mistake(&format!("{part}.batch_bytes_max"), batch, expected));
            }
        }
        match &self.store {
            StoreSettings::Disk(disk) if disk.capacity_bytes == 0 => {
                Err(mistake("store.disk.capacity_bytes", 0, "more than 0"))
            }
            StoreSettings::Disk(disk) => {
                check_number("store.disk.threads", disk.threads, 1..=THREADS_MAX)
            }
            StoreSettings::Mooncake(mooncake) => check_mooncake(mooncake),
        }
    }
}

fn check_mooncake(mooncake: &MooncakeConfig) -> Result<(), Mistake> {
    let named = |field: &str| format!("store.mooncake.{field}");
    if !mooncake.master.contains(':') {
        let expected = "HOST:PORT, the port being the master's rpc_port";
        return Err(mistake(&named("master"), format!("{:?}", mooncake.master), expected));
    }
    check_number(&named("data_threads"), mooncake.data_threads, 1..=THREADS_MAX)?;
    check_number(&named("lookup_threads"), mooncake.lookup_threads, 1..=THREADS_MAX)?;
    check_number(&named("probe_timeout_ms"), mooncake.probe_timeout_ms, 0..=60_000)?;
    mooncake.setup().validate().map_err(|error| {
        let text = error.to_string();
        let (field, what) = text.split_once(' ').unwrap_or(("", &text));
        let (value, expected) = what.split_once(", expected ").unwrap_or((what, "another"));
        mistake(&named(field), value.trim_start_matches("is "), expected)
    })
}

fn check_number<N>(key: &str, number: N, range: RangeInclusive<N>) -> Result<(), Mistake>
where
    N: PartialOrd + Display,
{
    if range.contains(&number) {
        return Ok(());
    }
    Err(mistake(key, number, format!("{} to {}", range.start(), range.end())))
}

fn mistake(key: &str, value: impl ToString, expected: impl Into<String>) -> Mistake {
    Mistake { key: key.to_owned(), value: value.to_string(), expected: expected.into() }
}
