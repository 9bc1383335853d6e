//! Configurations: of the connector, its stores, and the fake store's parts.

use std::fmt::Debug;

use fake_store::{ClientConfig, Knobs, server::NodeSpec, transport::NetConfig};
use serde::{Serialize, de::DeserializeOwned};
use springtide::{
    backend::MooncakeConfig,
    connector::{Config, Namespace},
    pool::Pool,
};

/// Pools of at most this many bytes are made, to see that what is valid can be used.
const POOL_BYTES_MAX: u64 = 64 << 10;

/// JSON of any of them.
pub fn run(bytes: &[u8]) {
    if let Some(config) = round_trip::<Config>(bytes) {
        connector(&config);
    }
    round_trip::<MooncakeConfig>(bytes);
    round_trip::<ClientConfig>(bytes);
    round_trip::<NetConfig>(bytes);
    round_trip::<NodeSpec>(bytes);
    if let Some(knobs) = round_trip::<Knobs>(bytes) {
        let _refused = knobs.validate();
    }
}

fn connector(config: &Config) {
    let valid = config.validate().map_err(|error| error.to_string());
    let namespace = Namespace::new(&config.namespace);
    assert!(!namespace.key("item").as_str().is_empty());
    let units = config.pool.units();
    let anonymous = config.pool.backing == springtide::pool::Backing::Anonymous;
    if anonymous && config.pool.bytes <= POOL_BYTES_MAX {
        let pool = Pool::new(&config.pool);
        assert_eq!(pool.is_ok(), units.is_ok(), "{valid:?}");
        pool.into_iter().for_each(|pool| pool.verify().expect("a new pool agrees with itself"));
    }
}

/// What the bytes say, which must be said by what is written of it too.
fn round_trip<T>(bytes: &[u8]) -> Option<T>
where
    T: Debug + PartialEq + Serialize + DeserializeOwned,
{
    let value: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_vec(&value).expect("a configuration is plain data");
    let again: T = serde_json::from_slice(&text).expect("what was read can be read again");
    assert_eq!(again, value);
    Some(value)
}
