//! A client of the real store: a Python process that is told what to do line by line.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rustix::process::Pid;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Installation, master::failed, signal};
use crate::{
    arm::{Broken, Observed},
    fake::LOCAL_BUFFER_BYTES,
    step::World,
};

/// The program of a client.
const PROGRAM: &str = include_str!("peer.py");

/// How long a call may take: far longer than the longest of Mooncake's own limits.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// What a client says first.
#[derive(Debug, Deserialize)]
struct Ready {
    ready: i64,
    version: String,
}

/// A client in a process of its own.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    /// Closed to let it end.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    log: PathBuf,
    /// It ended by itself: its log is kept.
    died: bool,
    name: String,
    version: String,
}

impl Peer {
    pub(super) fn start(
        installation: &Installation,
        world: &World,
        master: &str,
        segment: u64,
    ) -> Result<Self, Broken> {
        let name = free_address().map_err(|error| failed("find a free port", &error))?;
        let log = installation.logs.join(format!("client-{}.log", name.replace(':', "-")));
        let config = json!({
            "master": master,
            "hostname": name,
            "segment": segment,
            "local_buffer": LOCAL_BUFFER_BYTES,
        });
        let spawned = File::create(&log).and_then(|log| {
            Command::new(&installation.python)
                .args(["-B", "-u", "-c", PROGRAM, &config.to_string()])
                .env("MC_RPC_TIMEOUT_MS", world.rpc_timeout_ms.to_string())
                .env("MC_TCP_STATUS_TIMEOUT_SEC", world.status_timeout_s.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(log)
                .spawn()
        });
        let mut child = spawned.map_err(|error| failed("start a client", &error))?;
        let (sender, answers) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let read = move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let reader = thread::Builder::new().name("peer-answers".into()).spawn(read);
        reader.map_err(|error| failed("start a thread", &error))?;
        let requests = child.stdin.take();
        let mut this =
            Self { child, requests, answers, log, died: false, name, version: String::new() };
        let Ready { ready, version } = this.answer()?;
        if ready != 0 {
            let what = format!("set a client up ({})", this.log.display());
            return Err(failed(&what, &format!("code {ready}")));
        }
        this.version = version;
        Ok(this)
    }

    /// Its host name, which names its segment.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The version of the package that it runs.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn ask(&mut self, request: &Value) -> Result<Observed, Broken> {
        let requests = self.requests.as_mut().ok_or_else(|| Broken::Died("closed".into()))?;
        if writeln!(requests, "{request}").and_then(|()| requests.flush()).is_err() {
            return Err(self.death());
        }
        self.answer()
    }

    pub(super) fn stop(&self) -> Result<(), Broken> {
        signal::stop(Pid::from_child(&self.child))
    }

    pub(super) fn go_on(&self) -> Result<(), Broken> {
        signal::go_on(Pid::from_child(&self.child))
    }

    /// SIGKILL; what it leaves behind is the store's matter.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Closes its handle and waits for its end.
    pub(super) fn close(mut self) -> Result<(), Broken> {
        self.ask(&json!({ "close": {} }))?;
        self.requests = None;
        let ended = self.child.wait().map_err(|error| failed("wait for a client", &error))?;
        if !ended.success() {
            let what = format!("close a client ({})", self.log.display());
            self.died = true;
            return Err(failed(&what, &ended));
        }
        Ok(())
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Broken> {
        let line = match self.answers.recv_timeout(ANSWER_LIMIT) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.death()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let what = format!("get an answer ({})", self.log.display());
                return Err(failed(&what, &format!("none within {ANSWER_LIMIT:?}")));
            }
        };
        serde_json::from_str(&line).map_err(|error| failed("understand a client", &error))
    }

    fn death(&mut self) -> Broken {
        self.died = true;
        let status = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Broken::Died(format!("{status}; {}: {last}", self.log.display()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ended already, or the comparison is over.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if !self.died {
            // Only the logs of what went wrong are kept.
            let _absent = fs::remove_file(&self.log);
        }
    }
}

fn free_address() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}
