//! What a Mooncake client is made with, and why there is none.

use std::{io, net::TcpListener, num::NonZeroUsize, path::PathBuf, time::Duration};

use mooncake_sys::{
    ConnectError, DEFAULT_LIBRARY, LIBRARY_VARIABLE, LoadError, P2P_HANDSHAKE, Replication, Setup,
    SetupError,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::preflight;
use crate::{backend::probe::probe_server, size};

/// How an instance joins a Mooncake Store, over the C ABI or through Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MooncakeConfig {
    /// The master's `HOST:PORT`.
    pub master: String,
    /// This instance's name and address, `HOST` or `HOST:PORT`. Without a port a free one is taken.
    pub local_hostname: String,
    /// `P2PHANDSHAKE`, or `http://HOST:PORT/metadata`.
    #[serde(default = "default_metadata_server")]
    pub metadata_server: String,
    /// Also accept `etcd://` and `redis://` metadata servers, which end the process if Mooncake was built
    /// without them.
    #[serde(default)]
    pub metadata_plugins: bool,
    /// The transport.
    #[serde(default)]
    pub protocol: Protocol,
    /// The transport's device, such as `mlx5_0`; empty for all.
    #[serde(default)]
    pub device: String,
    /// Bytes of memory that this instance lends to the store; 0 for none.
    #[serde(default, deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub segment_bytes: u64,
    /// Bytes of Mooncake's staging area. Transfers of the pool do not use it.
    #[serde(default, deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub local_buffer_bytes: u64,
    /// Copies of an object.
    #[serde(default = "default_replicas")]
    pub replicas: NonZeroUsize,
    /// Evict objects of this instance only when nothing without a pin is left.
    #[serde(default)]
    pub soft_pin: bool,
    /// The shared library of the C ABI. Otherwise what `MOONCAKE_STORE_LIBRARY` names, otherwise
    /// `libmooncake_store.so` by the loader's search path.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// Threads for calls that move data.
    #[serde(default = "default_data_threads")]
    pub data_threads: usize,
    /// Threads for all other calls.
    #[serde(default = "default_lookup_threads")]
    pub lookup_threads: usize,
    /// How long the master is given to show that it lives, before the setup; 0: it is not tried.
    #[serde(default = "default_probe_timeout_ms")]
    pub probe_timeout_ms: u64,
}

/// A transport of Mooncake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Sockets: no registration needed, CPU copies.
    #[default]
    Tcp,
    /// RDMA cards: memory is pinned.
    Rdma,
}

impl Protocol {
    /// Mooncake's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

fn default_metadata_server() -> String {
    P2P_HANDSHAKE.into()
}

fn default_replicas() -> NonZeroUsize {
    NonZeroUsize::MIN
}

fn default_data_threads() -> usize {
    8
}

fn default_lookup_threads() -> usize {
    2
}

fn default_probe_timeout_ms() -> u64 {
    2000
}

/// There is no client.
#[derive(Debug, thiserror::Error)]
pub enum MooncakeError {
    /// The configuration would end the process.
    #[error("configuration: {0}")]
    Setup(#[from] SetupError),
    /// The system lets this process pin less memory than it would have to.
    #[error(
        "rdma pins {needed} bytes (segment, local buffer and pool), but RLIMIT_MEMLOCK allows {limit}: raise \
         it (`ulimit -l unlimited`, LimitMEMLOCK=infinity, docker --ulimit memlock=-1) or grant CAP_IPC_LOCK"
    )]
    Memlock {
        /// Bytes to be pinned.
        needed: u64,
        /// Bytes that may be pinned.
        limit: u64,
    },
    /// The transport has nothing to run on.
    #[error(
        "protocol rdma needs {}, but {} has {}: load the card's driver, pass its devices to the container, or set \
         protocol to tcp",
        if device.is_empty() { "an RDMA card".to_owned() } else { format!("the RDMA card {device}") },
        preflight::RDMA_CARDS,
        if found.is_empty() { "none".to_owned() } else { format!("only {}", found.join(", ")) }
    )]
    NoCard {
        /// The device that was asked for; empty for any.
        device: String,
        /// Those that the kernel knows.
        found: Vec<String>,
    },
    /// There is no port that this instance could be named by.
    #[error("no free port for local_hostname {host:?} ({error}): name one, as HOST:PORT")]
    Port {
        /// The host.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// Nobody answers where the master should be.
    #[error(
        "no mooncake_master answers at {address} ({error}): is it running, and is this its rpc_port?"
    )]
    Master {
        /// The address that was tried.
        address: String,
        /// What came of it.
        error: io::Error,
    },
    /// The shared library could not be used.
    #[error(
        "{0}. `library` or {LIBRARY_VARIABLE} must name {DEFAULT_LIBRARY} of a Mooncake Store that has all of \
         store_c.h"
    )]
    Library(#[from] LoadError),
    /// Mooncake refused.
    #[error("{0}; its own log says why")]
    Connect(#[from] ConnectError),
    /// The operating system refused a thread.
    #[error("threads for the store's calls: {0}")]
    Thread(io::Error),
}

impl MooncakeConfig {
    /// A client of the master at `address` that lends no memory, over tcp.
    pub fn new(address: impl Into<String>, local_hostname: impl Into<String>) -> Self {
        Self {
            master: address.into(),
            local_hostname: local_hostname.into(),
            metadata_server: default_metadata_server(),
            metadata_plugins: false,
            protocol: Protocol::default(),
            device: String::new(),
            segment_bytes: 0,
            local_buffer_bytes: 0,
            replicas: default_replicas(),
            soft_pin: false,
            library: None,
            data_threads: default_data_threads(),
            lookup_threads: default_lookup_threads(),
            probe_timeout_ms: default_probe_timeout_ms(),
        }
    }

    /// Checks all that can be checked before Mooncake is called: what would end the process, what may be
    /// pinned (`region_bytes` more than this configuration says), whether there is a card for rdma (Mooncake
    /// sets up without one, and fails at the first transfer), and whether the master answers. Blocks as long
    /// as [`probe_server`] does.
    ///
    /// # Errors
    /// [`MooncakeError`].
    pub fn preflight(&self, region_bytes: u64) -> Result<(), MooncakeError> {
        self.setup().validate()?;
        if self.protocol == Protocol::Rdma {
            let pinned = [self.segment_bytes, self.local_buffer_bytes, region_bytes];
            let needed = pinned.into_iter().fold(0, u64::saturating_add);
            preflight::check_memlock(needed)?;
            preflight::check_cards(&self.device)?;
        }
        self.probe_master()
    }

    /// The same with a port in [`MooncakeConfig::local_hostname`], to be set up with. Mooncake would pick one
    /// itself, but takes every failure of a setup for a port in use and tries 20 of them: with a dead master
    /// it fails after 90 s instead of 4, with one that hangs after 10 min instead of 30 s.
    ///
    /// # Errors
    /// [`MooncakeError::Port`].
    pub fn with_port(&self) -> Result<Self, MooncakeError> {
        if self.local_hostname.contains(':') {
            return Ok(self.clone());
        }
        let host = &self.local_hostname;
        let port = TcpListener::bind("0.0.0.0:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| MooncakeError::Port { host: host.clone(), error })?.port();
        Ok(Self { local_hostname: format!("{host}:{port}"), ..self.clone() })
    }

    /// Whether a master answers.
    ///
    /// # Errors
    /// [`MooncakeError::Master`].
    pub fn probe_master(&self) -> Result<(), MooncakeError> {
        if self.probe_timeout_ms == 0 {
            return Ok(());
        }
        probe_server(&self.master, Duration::from_millis(self.probe_timeout_ms))
            .map_err(|error| MooncakeError::Master { address: self.master.clone(), error })
    }

    /// What the C ABI is set up with.
    pub fn setup(&self) -> Setup {
        Setup {
            local_hostname: self.local_hostname.clone(),
            metadata_server: self.metadata_server.clone(),
            metadata_plugins: self.metadata_plugins,
            master: self.master.clone(),
            protocol: self.protocol.name().into(),
            device: self.device.clone(),
            segment_bytes: self.segment_bytes,
            local_buffer_bytes: self.local_buffer_bytes,
        }
    }

    pub(super) fn replication(&self) -> Replication {
        Replication { replicas: self.replicas, soft_pin: self.soft_pin, ..Replication::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_defaults_and_wrong_ones_are_named() {
        let parse = serde_json::from_str::<MooncakeConfig>;
        let config = parse(r#"{"master": "m:1", "local_hostname": "node"}"#).unwrap();
        assert_eq!(config, MooncakeConfig::new("m:1", "node"));
        for (text, words) in [
            (r#"{"local_hostname": "node"}"#, "missing field `master`"),
            (
                r#"{"master": "m:1", "local_hostname": "node", "protocol": "ib"}"#,
                "unknown variant `ib`, expected `tcp` or `rdma`",
            ),
            (r#"{"master": "m:1", "local_hostname": "node", "hots": 1}"#, "unknown field `hots`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_master_that_is_not_there_is_found_before_the_setup() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let config = MooncakeConfig::new(&address, "node");
        let error = config.preflight(0).unwrap_err().to_string();
        let expected = format!("no mooncake_master answers at {address} (Connection refused");
        assert!(error.starts_with(&expected), "{error}");
        MooncakeConfig { probe_timeout_ms: 0, ..config }.preflight(1 << 40).unwrap();
    }

    #[test]
    fn a_port_is_added_where_there_is_none() {
        let config = |host: &str| MooncakeConfig::new("m:1", host).with_port().unwrap();
        assert_eq!(config("node:7").local_hostname, "node:7");
        let named = config("node").local_hostname;
        let port = named.strip_prefix("node:").unwrap().parse::<u16>();
        assert!(port.is_ok_and(|port| port > 0), "{named}");
    }

    #[test]
    fn what_would_end_the_process_is_refused_first() {
        let config =
            MooncakeConfig { metadata_server: "etcd".into(), ..MooncakeConfig::new("m", "n") };
        assert!(matches!(config.preflight(0), Err(MooncakeError::Setup(_))));
    }
}
