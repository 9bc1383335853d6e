//! What a client is set up with, checked for what would end the process.
//!
//! The library takes its arguments on trust: a metadata server that it cannot parse aborts the process, an
//! empty master address crashes it. Every string is looked at here first, and an error says what came and
//! what is expected.

use std::ffi::CString;

/// The metadata server that stands for "none: peers find each other through the master".
pub const P2P_HANDSHAKE: &str = "P2PHANDSHAKE";

/// Schemes of metadata servers that only some builds of the library have; the others abort the process.
const PLUGIN_SCHEMES: [&str; 2] = ["etcd", "redis"];

/// How a client joins a Mooncake Store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// This client's name and address, `HOST:PORT` or `HOST`. Without a port the library picks one, and
    /// takes every failure for a port in use: it tries 20 times, for 90 s in all with a dead master and for
    /// 10 min with one that hangs (4 and 30 s with a port).
    pub local_hostname: String,
    /// [`P2P_HANDSHAKE`], or `http://HOST:PORT/metadata`.
    pub metadata_server: String,
    /// Also accept `etcd://` and `redis://` metadata servers. **A library built without the plug-in aborts
    /// the process then**; there is no way to ask it.
    pub metadata_plugins: bool,
    /// The master's `HOST:PORT`.
    pub master: String,
    /// The transport: `tcp`, `rdma`, or another that the library was built with.
    pub protocol: String,
    /// The transport's device, such as `mlx5_0`; empty for all, and for tcp.
    pub device: String,
    /// Bytes of memory to lend to the shared pool; 0 for none.
    pub segment_bytes: u64,
    /// Bytes of the staging area that [`Client::put_bytes`](crate::Client::put_bytes) copies through; 0 if
    /// it is not used.
    pub local_buffer_bytes: u64,
}

/// A setup that the library must not see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A text contains a NUL.
    #[error("{field} contains a NUL at byte {at}")]
    Nul {
        /// Name of the field.
        field: &'static str,
        /// Position of the NUL in bytes.
        at: usize,
    },
    /// A text is empty.
    #[error("{field} is empty, expected {expected}")]
    Empty {
        /// Name of the field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A metadata server that aborts the process.
    #[error(
        "metadata_server is {got:?}, expected {P2P_HANDSHAKE} or http://HOST:PORT/metadata: Mooncake ends \
         the process on anything else"
    )]
    Metadata {
        /// What came.
        got: String,
    },
    /// A metadata server that aborts the process in some builds of the library.
    #[error(
        "metadata_server is {got:?}, whose scheme only some builds of the library know; the others end the \
         process. Use {P2P_HANDSHAKE} or http://HOST:PORT/metadata, or allow plug-ins if the library has it"
    )]
    MetadataPlugin {
        /// What came.
        got: String,
    },
    /// A master's address that crashes the process, or names no one server.
    #[error(
        "master is {got:?}, expected HOST:PORT of one mooncake_master, such as 127.0.0.1:50051"
    )]
    Master {
        /// What came.
        got: String,
    },
}

/// A checked setup, as the library takes it.
pub(crate) struct Arguments {
    pub(crate) local_hostname: CString,
    pub(crate) metadata_server: CString,
    pub(crate) master: CString,
    pub(crate) protocol: CString,
    pub(crate) device: CString,
    pub(crate) segment_bytes: u64,
    pub(crate) local_buffer_bytes: u64,
}

impl Setup {
    /// Checks everything that can be checked without the library.
    ///
    /// # Errors
    /// The first [`SetupError`].
    pub fn validate(&self) -> Result<(), SetupError> {
        self.arguments().map(drop)
    }

    pub(crate) fn arguments(&self) -> Result<Arguments, SetupError> {
        not_empty("local_hostname", &self.local_hostname, "HOST or HOST:PORT")?;
        not_empty("protocol", &self.protocol, "tcp or rdma")?;
        self.check_metadata()?;
        self.check_master()?;
        Ok(Arguments {
            local_hostname: text("local_hostname", &self.local_hostname)?,
            metadata_server: text("metadata_server", &self.metadata_server)?,
            master: text("master", &self.master)?,
            protocol: text("protocol", &self.protocol)?,
            device: text("device", &self.device)?,
            segment_bytes: self.segment_bytes,
            local_buffer_bytes: self.local_buffer_bytes,
        })
    }

    fn check_metadata(&self) -> Result<(), SetupError> {
        let got = &self.metadata_server;
        if got == P2P_HANDSHAKE {
            return Ok(());
        }
        match got.split_once("://") {
            Some(("http" | "https", server)) if !server.is_empty() => Ok(()),
            Some((scheme, server)) if PLUGIN_SCHEMES.contains(&scheme) && !server.is_empty() => {
                let refused = || SetupError::MetadataPlugin { got: got.clone() };
                self.metadata_plugins.then_some(()).ok_or_else(refused)
            }
            _ => Err(SetupError::Metadata { got: got.clone() }),
        }
    }

    fn check_master(&self) -> Result<(), SetupError> {
        let parts = self.master.rsplit_once(':');
        let good = parts.is_some_and(|(host, port)| {
            // A colon in the host belongs to an IPv6 address in brackets, not to a scheme.
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let plain = !host.contains([':', '/', ',', ';']);
            !host.is_empty() && (bracketed || plain) && port.parse::<u16>().is_ok_and(|n| n > 0)
        });
        good.then_some(()).ok_or_else(|| SetupError::Master { got: self.master.clone() })
    }
}

fn not_empty(field: &'static str, value: &str, expected: &'static str) -> Result<(), SetupError> {
    if value.is_empty() { Err(SetupError::Empty { field, expected }) } else { Ok(()) }
}

fn text(field: &'static str, value: &str) -> Result<CString, SetupError> {
    CString::new(value).map_err(|error| SetupError::Nul { field, at: error.nul_position() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            local_hostname: "node-1".into(),
            metadata_server: P2P_HANDSHAKE.into(),
            metadata_plugins: false,
            master: "127.0.0.1:50051".into(),
            protocol: "tcp".into(),
            device: String::new(),
            segment_bytes: 0,
            local_buffer_bytes: 0,
        }
    }

    #[test]
    fn metadata_servers_that_abort_the_process_are_refused() {
        let check = |metadata: &str, metadata_plugins| {
            Setup { metadata_server: metadata.into(), metadata_plugins, ..setup() }.validate()
        };
        for good in [P2P_HANDSHAKE, "http://10.0.0.1:8080/metadata", "https://meta/x"] {
            assert_eq!(check(good, false), Ok(()), "{good}");
        }
        for bad in ["", "127.0.0.1:2379", "p2phandshake", "http://", "ftp://x", "://", "etcd://"] {
            let error = SetupError::Metadata { got: bad.into() };
            assert_eq!(check(bad, true), Err(error), "{bad}");
        }
        for plugin in ["etcd://127.0.0.1:2379", "redis://127.0.0.1:6379"] {
            let error = SetupError::MetadataPlugin { got: plugin.into() };
            assert_eq!(check(plugin, false), Err(error), "{plugin}");
            assert_eq!(check(plugin, true), Ok(()), "{plugin}");
        }
    }

    #[test]
    fn a_master_is_one_host_and_port() {
        let check = |master: &str| Setup { master: master.into(), ..setup() }.validate();
        for good in ["localhost:1", "10.1.2.3:65535", "[::1]:50051"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["", ":", "host", "host:", ":50051", "host:0", "host:65536", "host:x", "::1:50051"]
                .into_iter()
                .chain(["etcd://a:1", "a:1,b:2", "a:1;b:2"])
        {
            assert_eq!(check(bad), Err(SetupError::Master { got: bad.into() }), "{bad}");
        }
    }

    #[test]
    fn empty_texts_and_nul_are_refused_by_name() {
        let error = Setup { local_hostname: String::new(), ..setup() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "local_hostname is empty, expected HOST or HOST:PORT");
        let error = Setup { protocol: String::new(), ..setup() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "protocol is empty, expected tcp or rdma");
        let error = Setup { device: "mlx5\0_0".into(), ..setup() }.validate().unwrap_err();
        assert_eq!(error, SetupError::Nul { field: "device", at: 4 });
    }
}
