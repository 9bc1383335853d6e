//! The master's configuration: Mooncake's flags with Mooncake's defaults, and what only a fake can turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a replica finds its segment.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Start at a random name (seeded) and walk all names once: Mooncake's default.
    #[default]
    Random,
    /// Start at the name after the last start.
    RoundRobin,
    /// Start at the name that was mounted first.
    FirstFit,
    /// The emptiest segment first.
    FreeRatioFirst,
    /// Start at these names, one an allocation; random when they are used up.
    Scripted(Vec<String>),
}

/// Knobs of the master. Names in backquotes are Mooncake's flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Knobs {
    /// How long a read protects an object (`default_kv_lease_ttl`).
    #[serde(rename = "lease_ttl_ms", with = "crate::millis")]
    pub lease_ttl: Duration,
    /// How long a soft pin lasts (`default_kv_soft_pin_ttl`).
    #[serde(rename = "soft_pin_ttl_ms", with = "crate::millis")]
    pub soft_pin_ttl: Duration,
    /// The longest soft pin that a put may ask for.
    #[serde(rename = "soft_pin_ttl_max_ms", with = "crate::millis")]
    pub soft_pin_ttl_max: Duration,
    /// Whether soft-pinned objects are evicted when nothing else is left.
    pub allow_evict_soft_pinned_objects: bool,
    /// The share of objects that a round evicts (`eviction_ratio`), 0 to 1.
    pub eviction_ratio: f64,
    /// The share of used bytes above which a round starts (`eviction_high_watermark_ratio`), 0 to 1.
    pub eviction_high_watermark_ratio: f64,
    /// After which an unfinished put may be put again (`put_start_discard_timeout_sec`).
    #[serde(rename = "put_start_discard_timeout_ms", with = "crate::millis")]
    pub put_start_discard_timeout: Duration,
    /// After which the space of an unfinished put is reused (`put_start_release_timeout_sec`).
    #[serde(rename = "put_start_release_timeout_ms", with = "crate::millis")]
    pub put_start_release_timeout: Duration,
    /// How long a client lives after its last ping (`client_ttl`).
    #[serde(rename = "client_ttl_ms", with = "crate::millis")]
    pub client_ttl: Duration,
    /// Whether sizes are rounded up to eight bins per power of two, as Mooncake's offset allocator does.
    pub bin_rounding: bool,
    /// How replicas find segments.
    pub placement: Placement,
    /// Whether objects whose leases end at the same nanosecond tie, and then go together (Mooncake's rule).
    /// Off by default: a coarse virtual clock makes whole batches end at one instant, which real clocks do
    /// not, so the order of the calls breaks ties.
    pub equal_leases_tie: bool,
    /// How many events the history keeps until it is drained; older ones are dropped and counted.
    pub history_max: usize,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(10),
            soft_pin_ttl: Duration::from_secs(30 * 60),
            soft_pin_ttl_max: Duration::from_secs(24 * 60 * 60),
            allow_evict_soft_pinned_objects: true,
            eviction_ratio: 0.05,
            eviction_high_watermark_ratio: 0.90,
            put_start_discard_timeout: Duration::from_secs(30),
            put_start_release_timeout: Duration::from_secs(600),
            client_ttl: Duration::from_secs(10),
            bin_rounding: true,
            placement: Placement::Random,
            equal_leases_tie: false,
            history_max: 1 << 20,
        }
    }
}

/// A configuration with which Mooncake's master refuses to start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KnobError {
    /// A ratio outside 0 to 1.
    #[error("{name}: expected 0 to 1, got {got}")]
    Ratio {
        /// The knob.
        name: &'static str,
        /// Its value.
        got: f64,
    },
    /// Space would be reused before the put may be repeated.
    #[error(
        "put_start_release_timeout: expected more than put_start_discard_timeout ({discard:?}), got {release:?}"
    )]
    ReleaseBeforeDiscard {
        /// The discard timeout.
        discard: Duration,
        /// The release timeout.
        release: Duration,
    },
    /// The default soft pin is longer than the longest.
    #[error("soft_pin_ttl: expected at most {max:?}, got {got:?}")]
    SoftPin {
        /// The longest soft pin.
        max: Duration,
        /// The default.
        got: Duration,
    },
}

impl Knobs {
    /// Checks what Mooncake's master checks at start.
    ///
    /// # Errors
    /// [`KnobError`] with the first knob that is out of range.
    pub fn validate(&self) -> Result<(), KnobError> {
        for (name, got) in [
            ("eviction_ratio", self.eviction_ratio),
            ("eviction_high_watermark_ratio", self.eviction_high_watermark_ratio),
        ] {
            if !(0.0..=1.0).contains(&got) {
                return Err(KnobError::Ratio { name, got });
            }
        }
        if self.put_start_release_timeout <= self.put_start_discard_timeout {
            return Err(KnobError::ReleaseBeforeDiscard {
                discard: self.put_start_discard_timeout,
                release: self.put_start_release_timeout,
            });
        }
        if self.soft_pin_ttl > self.soft_pin_ttl_max {
            return Err(KnobError::SoftPin { max: self.soft_pin_ttl_max, got: self.soft_pin_ttl });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mooncake_refuses_is_refused() {
        assert_eq!(Knobs::default().validate(), Ok(()));
        let ratio = Knobs { eviction_ratio: 1.5, ..Knobs::default() };
        assert_eq!(
            ratio.validate().unwrap_err().to_string(),
            "eviction_ratio: expected 0 to 1, got 1.5"
        );
        let equal =
            Knobs { put_start_release_timeout: Duration::from_secs(30), ..Knobs::default() };
        assert!(matches!(equal.validate(), Err(KnobError::ReleaseBeforeDiscard { .. })));
        let pin = Knobs { soft_pin_ttl: Duration::from_secs(90_000), ..Knobs::default() };
        assert!(matches!(pin.validate(), Err(KnobError::SoftPin { .. })));
    }

    #[test]
    fn json_has_milliseconds_and_refuses_unknown_fields() {
        let knobs: Knobs =
            serde_json::from_str(r#"{"lease_ttl_ms":1500,"placement":"round_robin"}"#).unwrap();
        assert_eq!(knobs.lease_ttl, Duration::from_millis(1500));
        assert_eq!(knobs.placement, Placement::RoundRobin);
        assert_eq!(knobs.client_ttl, Duration::from_secs(10));
        let error = serde_json::from_str::<Knobs>(r#"{"lease":1}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `lease`"), "{error}");
    }
}
