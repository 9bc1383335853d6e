//! Every metric: its name, kind, labels and meaning.
//!
//! `docs/metrics.md`, the dashboard and the alert rules are compared with this list by tests.

/// What a metric's number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; starts again at zero with its process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts in buckets, a sum and a number; in seconds.
    Histogram,
}

impl Kind {
    /// Prometheus' word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, with its unit and without the `_total` of counters.
    pub name: &'static str,
    /// What its number does.
    pub kind: Kind,
    /// Its own labels; `process` and `rank` are on all metrics.
    pub labels: &'static [&'static str],
    text: &'static str,
}

impl Metric {
    /// What it means.
    pub fn help(&self) -> &'static str {
        self.text.trim()
    }

    /// Its name as it is exposed.
    pub fn exposed(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }

    /// The names of its series.
    pub fn series(&self) -> Vec<String> {
        match self.kind {
            Kind::Histogram => {
                ["bucket", "sum", "count"].map(|part| format!("{}_{part}", self.name)).into()
            }
            Kind::Counter | Kind::Gauge => vec![self.exposed()],
        }
    }

    /// The unit at the end of its name; `1` for a number of things.
    pub fn unit(&self) -> &'static str {
        let units = ["bytes", "seconds"];
        let of = |unit: &&str| self.name.ends_with(&format!("_{unit}"));
        units.into_iter().find(of).unwrap_or("1")
    }
}

macro_rules! catalogue {
    ($($(#[doc = $text:literal])+ $metric:ident: $kind:ident $name:literal [$($label:literal),*];)+) => {
        $(
            $(#[doc = $text])+
            pub static $metric: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                text: concat!($($text),+),
            };
        )+

        /// All of them, in the order in which they are exposed.
        pub static ALL: &[&Metric] = &[$(&$metric),+];
    };
}

catalogue! {
    /// Always 1; its labels say what runs: version, role, and the fingerprint of the namespace, which is equal on instances that share items.
    INFO: Gauge "springtide_info" ["version", "role", "namespace"];
    /// Hooks of the engine that failed inside the connector and answered with a default.
    HOOK_ERRORS: Counter "springtide_hook_errors" ["hook"];
    /// Lines of the log that were not written because too many of their kind came, by kind.
    LOG_SUPPRESSED: Counter "springtide_log_suppressed" ["kind"];
    /// Lines of the log that were lost because the interpreter did not take them in time.
    LOG_LOST: Counter "springtide_log_lost" [];

    /// Saves begun, one a call, each with a ticket. Equal to the sum of springtide_saves_total and springtide_saves_open.
    SAVES_OPENED: Counter "springtide_saves_opened" [];
    /// Saves that ended, by outcome (stored, already_there, dropped, failed, timed_out) and reason.
    SAVES: Counter "springtide_saves" ["outcome", "reason"];
    /// Saves that have not ended.
    SAVES_OPEN: Gauge "springtide_saves_open" [];
    /// Saves that joined an upload of the same item under way.
    SAVES_JOINED: Counter "springtide_saves_joined" [];
    /// Uploads that took an item from the pool, without a copy from the device.
    SAVES_REUSED: Counter "springtide_saves_reused" [];
    /// Uploads that became readable after their saves had timed out.
    SAVES_LATE: Counter "springtide_saves_late" [];
    /// Ends of saves that were forgotten because nobody waited for them.
    SAVES_UNREPORTED: Counter "springtide_saves_unreported" [];
    /// Items handed to the store.
    PUTS: Counter "springtide_puts" [];
    /// Bytes handed to the store.
    PUT_BYTES: Counter "springtide_put_bytes" [];
    /// Puts of an item after its first.
    PUT_RETRIES: Counter "springtide_put_retries" [];
    /// Puts that ended without the store saying whether the transfer is over: the memory is quarantined.
    PUTS_UNCERTAIN: Counter "springtide_puts_uncertain" [];
    /// Puts that outlived the I/O timeout: the store still holds the memory.
    PUTS_LOST: Counter "springtide_puts_lost" [];
    /// Items asked for after a put, to see whether they are readable.
    PROBES: Counter "springtide_probes" [];
    /// Probes that found a successful put not readable.
    PROBES_INVISIBLE: Counter "springtide_probes_invisible" [];

    /// Items that requests asked for, one an item and request. Equal to the sum of springtide_lookups_total and springtide_lookups_waiting.
    LOOKUPS_STARTED: Counter "springtide_lookups_started" [];
    /// Lookups that were decided, by outcome (hit, miss, withdrawn) and reason; a hit's is where the item was: resident (in the pool already) or store.
    LOOKUPS: Counter "springtide_lookups" ["outcome", "reason"];
    /// Lookups that are not decided.
    LOOKUPS_WAITING: Gauge "springtide_lookups_waiting" [];
    /// Keys of which the store was asked whether it has them.
    EXISTS: Counter "springtide_exists_keys" [];
    /// Keys of which the store was asked for the size.
    SIZES: Counter "springtide_size_keys" [];
    /// Items that were to be fetched from the store.
    GETS: Counter "springtide_gets" [];
    /// Of springtide_gets_total, items for which there was no room in the pool: the store was not asked.
    GETS_NO_ROOM: Counter "springtide_gets_no_room" [];
    /// Bytes that were to be fetched from the store.
    GET_BYTES: Counter "springtide_get_bytes" [];
    /// Fetches that ended validated in the pool.
    LOADED: Counter "springtide_loaded" [];
    /// Fetched objects that were not the item, by what was wrong with them.
    REJECTED: Counter "springtide_rejected" ["reason"];
    /// Bad objects removed from the store.
    REMOVED: Counter "springtide_removed" [];
    /// Errors of the store while loading, by code.
    LOAD_ERRORS: Counter "springtide_load_errors" ["code"];
    /// Store calls repeated while loading.
    LOAD_RETRIES: Counter "springtide_load_retries" [];
    /// Gets that ended without the store saying whether the transfer is over: the memory is quarantined.
    GETS_UNCERTAIN: Counter "springtide_gets_uncertain" [];
    /// Gets that outlived the I/O timeout: the store still holds the memory.
    GETS_LOST: Counter "springtide_gets_lost" [];
    /// Loads ordered of the workers.
    ORDERS: Counter "springtide_orders" [];
    /// Orders that every rank has copied.
    ORDERS_ACKNOWLEDGED: Counter "springtide_orders_acknowledged" [];
    /// Orders that some rank has not copied; each pins its item.
    ORDERS_OPEN: Gauge "springtide_orders_open" [];
    /// Orders that a worker ended, by outcome (delivered, failed) and reason.
    DELIVERIES: Counter "springtide_deliveries" ["outcome", "reason"];
    /// Bytes that a worker copied from the pool to its device.
    DELIVERY_BYTES: Counter "springtide_delivery_bytes" [];
    /// Requests that have not finished.
    REQUESTS: Gauge "springtide_requests" [];
    /// Keys that are being asked for or fetched.
    KEYS_OPEN: Gauge "springtide_keys_open" [];

    /// Bytes in running store calls, by direction (put, get).
    IN_FLIGHT: Gauge "springtide_in_flight_bytes" ["direction"];
    /// Items in the pool that serve without the store, by what put them there (save, load).
    RESIDENTS: Gauge "springtide_residents" ["by"];

    /// How long the stages of saves and loads took. Of a save: copy (from the device), queue (waiting for a store call), put, probe, save (all of it). Of a load: lookup, get, validate, load (from the request's question to the decision). In a worker of a consumer: copy_in (to the device).
    STAGES: Histogram "springtide_stage_seconds" ["stage"];

    /// Bytes of the pool.
    POOL_SIZE: Gauge "springtide_pool_size_bytes" [];
    /// Bytes of the pool by what they are used for (free, filling, in_flight, resident, quarantined). They add up to springtide_pool_size_bytes.
    POOL: Gauge "springtide_pool_bytes" ["state"];
    /// Resident bytes that somebody reads or is promised.
    POOL_PINNED: Gauge "springtide_pool_pinned_bytes" [];
    /// Bytes of blocks beyond what was asked for.
    POOL_WASTE: Gauge "springtide_pool_waste_bytes" [];
    /// Bytes of the largest free block.
    POOL_LARGEST_FREE: Gauge "springtide_pool_largest_free_bytes" [];
    /// The most bytes that were ever used, by what for (used, in_flight, resident, quarantined).
    POOL_PEAK: Gauge "springtide_pool_peak_bytes" ["state"];
    /// Allocations that exist.
    POOL_ALLOCATIONS: Gauge "springtide_pool_allocations" [];
    /// Allocations that succeeded. Equal to the sum of springtide_pool_freed_total and springtide_pool_allocations.
    POOL_ALLOCATED: Counter "springtide_pool_allocated" [];
    /// Allocations that ended.
    POOL_FREED: Counter "springtide_pool_freed" [];
    /// Allocations refused, by reason (no_bytes, no_shape, too_large, quarantine_full). Most are tried again after an eviction.
    POOL_REFUSED: Counter "springtide_pool_refused" ["reason"];
    /// Residents published.
    POOL_PUBLISHED: Counter "springtide_pool_published" [];
    /// Residents evicted to make room.
    POOL_EVICTIONS: Counter "springtide_pool_evictions" [];
    /// Residents taken back to be saved again.
    POOL_RECLAIMED: Counter "springtide_pool_reclaimed" [];
    /// Residents discarded.
    POOL_DISCARDED: Counter "springtide_pool_discarded" [];
    /// Handles refused because their memory has been reused since.
    POOL_STALE: Counter "springtide_pool_stale_handles" [];
    /// Allocations put into quarantine, by cause (abandoned, uncertain, timed_out).
    POOL_QUARANTINED: Counter "springtide_pool_quarantined" ["cause"];
    /// Writes by somebody who did not hold the memory, by where they were found (poison: free memory, guard: beyond a block's end).
    POOL_VIOLATIONS: Counter "springtide_pool_violations" ["kind"];

    /// 1 while calls reach the store, otherwise 0.
    STORE_UP: Gauge "springtide_store_up" [];
    /// 1 for the state that the link to the store is in (absent, up, down, closed), 0 for the others.
    STORE_STATE: Gauge "springtide_store_state" ["state"];
    /// Times that the store came up.
    STORE_CAME_UP: Counter "springtide_store_came_up" [];
    /// Times that the store went down.
    STORE_WENT_DOWN: Counter "springtide_store_went_down" [];
    /// Attempts to reach a store that is not up which failed.
    STORE_ATTEMPTS_FAILED: Counter "springtide_store_attempts_failed" [];
    /// Items refused at once because the store is not up, by call (put, get, exists, size, remove).
    STORE_REFUSED: Counter "springtide_store_refused" ["call"];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_well_formed() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let letters = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(letters(metric.name) && metric.name.starts_with("springtide_"), "{metric:?}");
            assert!(!metric.name.ends_with("_total"), "{metric:?}");
            assert!(metric.labels.iter().all(|label| letters(label)), "{metric:?}");
            assert!(metric.help().ends_with('.') && !metric.help().contains('|'), "{metric:?}");
        }
    }
}
