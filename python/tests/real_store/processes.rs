//! Masters and peers as the tests see them. Each is stopped by its pid when the test lets go of it.

use std::{
    env,
    fmt::Debug,
    fs::File,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command as Program, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use serde::Deserialize;

use crate::protocol::{
    CONFIG_VARIABLE, Closed, Command, Item, Loaded, PREFIX, PeerConfig, Reply, State,
};

/// How long a peer may take to join the store, or for an answer beyond the time that its command has.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// Tries until `attempt` succeeds.
///
/// # Panics
/// When it has not after `limit`; with what came last.
pub(crate) fn until<T, E: Debug>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> T {
    #[expect(clippy::disallowed_types, reason = "a test waits for other processes, in real time")]
    let started = std::time::Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(last) if started.elapsed() > limit => {
                panic!("not so after {limit:?}: {what}; the last time {last:?}")
            }
            Err(_) => {}
        }
    }
}

/// A `mooncake_master`.
pub(crate) struct Master {
    pub(crate) address: String,
    /// `None` while it is stopped.
    pid: Option<u32>,
}

#[derive(Deserialize)]
struct Started {
    address: String,
    pid: u32,
}

impl Master {
    pub(crate) fn start() -> Self {
        let Started { address, pid } = start(&[]);
        Self { address, pid: Some(pid) }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(pid) = self.pid.take() {
            real_store(&["stop", &pid.to_string()]);
        }
    }

    /// Starts it again where it was, with nothing in it.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let port = self.address.rsplit(':').next().expect("an address has a port");
        self.pid = Some(start(&[&format!("--rpc_port={port}")]).pid);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(flags: &[&str]) -> Started {
    let answer = real_store(&[&["start"], flags].concat());
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error} in {answer:?}"))
}

fn real_store(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/real-store");
    // Not the interpreter that the peers embed.
    let output = Program::new(script)
        .args(arguments)
        .env_remove("PYTHONHOME")
        .env_remove("PYTHONPATH")
        .output()
        .expect("ci/real-store can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ci/real-store {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A process with a connector.
pub(crate) struct Peer {
    child: Child,
    commands: Option<ChildStdin>,
    replies: Receiver<Reply>,
    log: PathBuf,
}

impl Peer {
    /// Starts one; it has joined the store when this returns.
    pub(crate) fn start(config: &PeerConfig) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("real-store-peer-{}-{number}.log", std::process::id());
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut child = Program::new(env::current_exe().expect("a test knows its program"))
            .args(["--exact", "peer_in_this_process", "--ignored", "--nocapture"])
            .env(CONFIG_VARIABLE, serde_json::to_string(config).expect("plain data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("the target directory is writable"))
            .spawn()
            .expect("a test can run its program");
        let (sender, replies) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let read = move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((_, reply)) = line.split_once(PREFIX) else { continue };
                let reply = serde_json::from_str(reply).expect("peers answer in the protocol");
                if sender.send(reply).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("peer-output".into()).spawn(read).expect("a thread");
        let commands = child.stdin.take();
        let mut peer = Self { child, commands, replies, log };
        let Reply::Ready = peer.reply(ANSWER_LIMIT) else { panic!("expected Ready") };
        peer
    }

    /// Saves, waits for at most `wait`, and says how each save ended.
    pub(crate) fn save(&mut self, items: &[Item], wait: Duration) -> Vec<String> {
        let items = items.to_vec();
        match self.ask(&Command::Save { items, wait_ms: wait.as_millis() as u64 }, wait) {
            Reply::Saved(outcomes) => outcomes,
            other => panic!("expected Saved, got {other:?}"),
        }
    }

    /// Loads as one request.
    pub(crate) fn load(&mut self, items: &[Item]) -> Loaded {
        match self.ask(&Command::Load { items: items.to_vec() }, Duration::ZERO) {
            Reply::Loaded(loaded) => loaded,
            other => panic!("expected Loaded, got {other:?}"),
        }
    }

    /// What it holds.
    pub(crate) fn state(&mut self) -> State {
        match self.ask(&Command::State, Duration::ZERO) {
            Reply::State(state) => *state,
            other => panic!("expected State, got {other:?}"),
        }
    }

    /// Shuts down, with nothing left running, mapped or registered, and ends without an error.
    pub(crate) fn close_clean(mut self) {
        let close = Command::Close { wait_ms: 60_000 };
        match self.ask(&close, Duration::from_secs(60)) {
            Reply::Closed(closed) => {
                assert_eq!(closed, Closed { fenced: true, abandoned: 0, leaked_bytes: 0 });
            }
            other => panic!("expected Closed, got {other:?}"),
        }
        self.commands = None;
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}\n{}", self.last_words());
        // Only the logs of what went wrong are kept.
        let _ = std::fs::remove_file(&self.log);
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    fn ask(&mut self, command: &Command, wait: Duration) -> Reply {
        let line = serde_json::to_string(command).expect("plain data");
        let written = writeln!(self.commands.as_mut().expect("not closed yet"), "{line}");
        assert!(written.is_ok(), "it has ended: {}", self.last_words());
        self.reply(wait + ANSWER_LIMIT)
    }

    fn reply(&mut self, limit: Duration) -> Reply {
        self.replies.recv_timeout(limit).unwrap_or_else(|error| {
            panic!("no answer within {limit:?} ({error}): {}", self.last_words())
        })
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let start = log.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
        format!("{}\n{}", self.log.display(), &log[start..])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ended already, or a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
