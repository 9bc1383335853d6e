//! A master of the real store, and what it tells of itself over HTTP.

use std::{
    fmt::Display,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use rustix::process::Pid;
use serde::Deserialize;

use super::{Installation, signal};
use crate::{arm::Broken, step::World};

/// How long the master may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What `ci/real-store start` prints.
#[derive(Debug, Deserialize)]
struct Started {
    address: String,
    pid: i32,
    metrics: u16,
}

/// A `mooncake_master`.
#[derive(Debug)]
pub(super) struct Master {
    installation: Installation,
    started: Started,
    runs: bool,
}

impl Master {
    pub(super) fn start(installation: &Installation, world: &World) -> Result<Self, Broken> {
        let started = start(installation, world, None)?;
        Ok(Self { installation: installation.clone(), started, runs: true })
    }

    /// Starts a new one where the killed one was.
    pub(super) fn restart(
        &mut self,
        installation: &Installation,
        world: &World,
    ) -> Result<(), Broken> {
        let port = self.started.address.rsplit(':').next().map(str::to_owned);
        self.started = start(installation, world, port.as_deref())?;
        self.runs = true;
        Ok(())
    }

    pub(super) fn address(&self) -> &str {
        &self.started.address
    }

    /// Ends it; the script waits until it has.
    pub(super) fn kill(&mut self) -> Result<(), Broken> {
        self.runs = false;
        real_store(&self.installation, &["stop".into(), self.started.pid.to_string()]).map(drop)
    }

    pub(super) fn stop(&self) -> Result<(), Broken> {
        signal::stop(self.running()?)
    }

    pub(super) fn go_on(&self) -> Result<(), Broken> {
        signal::go_on(self.running()?)
    }

    fn running(&self) -> Result<Pid, Broken> {
        let pid = Pid::from_raw(self.started.pid).filter(|_| self.runs);
        pid.ok_or_else(|| Broken::Harness("no master runs".into()))
    }

    /// All keys that it knows.
    pub(super) fn keys(&self) -> Result<Vec<String>, Broken> {
        let keys = self.http("/get_all_keys")?;
        Ok(keys.split('\n').filter(|key| !key.is_empty()).map(str::to_owned).collect())
    }

    /// One of its figures.
    pub(super) fn metric(&self, name: &str) -> Result<u64, Broken> {
        let metrics = self.http("/metrics")?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.map(|value| value as u64).ok_or_else(|| failed("read a metric", &name))
    }

    fn http(&self, path: &str) -> Result<String, Broken> {
        let get = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.started.metrics))?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: master\r\nConnection: close\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let answer = get().map_err(|error| failed("ask the master's metrics port", &error))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        if !head.starts_with("HTTP/1.1 200") {
            return Err(failed("ask the master's metrics port", &head));
        }
        Ok(body.to_owned())
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        if self.runs {
            // Stopped by SIGSTOP it would not end.
            let _continued = self.go_on();
            let _ended = self.kill();
        }
    }
}

fn start(
    installation: &Installation,
    world: &World,
    port: Option<&str>,
) -> Result<Started, Broken> {
    let mut arguments = vec!["start".to_owned()];
    arguments.extend([
        format!("--default_kv_lease_ttl={}", world.lease_ttl_ms),
        format!("--default_kv_soft_pin_ttl={}", world.soft_pin_ttl_ms),
        format!("--allow_evict_soft_pinned_objects={}", world.evict_soft_pinned),
        format!("--eviction_high_watermark_ratio={}", world.watermark),
        format!("--eviction_ratio={}", world.eviction_ratio),
        format!("--put_start_discard_timeout_sec={}", world.discard_s),
        format!("--put_start_release_timeout_sec={}", world.release_s),
        format!("--client_ttl={}", world.client_ttl_s),
    ]);
    arguments.extend(port.map(|port| format!("--rpc_port={port}")));
    let answer = real_store(installation, &arguments)?;
    serde_json::from_str(&answer).map_err(|error| failed("understand ci/real-store", &error))
}

fn real_store(installation: &Installation, arguments: &[String]) -> Result<String, Broken> {
    let output = Command::new(&installation.script).args(arguments).output();
    let output = output.map_err(|error| failed("run ci/real-store", &error))?;
    if !output.status.success() {
        let what = format!("run ci/real-store {}", arguments.join(" "));
        return Err(failed(&what, &String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn failed(what: &str, why: &dyn Display) -> Broken {
    Broken::Harness(format!("cannot {what}: {why}"))
}
