//! A machine as the doctor sees it: the files of its kernel, and what no file tells.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::time::ClockId;
use springtide::{
    backend::{mooncake_library, probe_server},
    runtime::cuda::{CudaError, Facts, Libcuda},
};

/// How long a Python interpreter may take to say what is installed.
const PYTHON_LIMIT: Duration = Duration::from_secs(20);

/// Distributions of Mooncake's wheel, in Python, a line for each that is installed.
const ASK_PYTHON: &str = "\
import importlib.metadata as m
for d in m.distributions():
    n = (d.metadata['Name'] or '').lower()
    if n.startswith('mooncake-transfer-engine'): print(n, d.version)";

/// What CUDA's driver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuda {
    /// The newest CUDA that it can do, as major and minor.
    pub version: (i32, i32),
    /// The devices.
    pub devices: Vec<Facts>,
}

/// What no file of the kernel tells.
pub trait Outside {
    /// Asks CUDA's driver.
    ///
    /// # Errors
    /// [`CudaError::Absent`] where there is none, or what it says.
    fn cuda(&self) -> Result<Cuda, CudaError>;

    /// Free bytes of the file system at a path.
    ///
    /// # Errors
    /// The system's, in words.
    fn free_bytes(&self, path: &Path) -> Result<u64, String>;

    /// Loads Mooncake's C library, the one that is named or the one that is found; its path.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn library(&self, named: Option<&Path>) -> Result<String, String>;

    /// Mooncake's Python wheels that the interpreter `python3` has, with their versions.
    ///
    /// # Errors
    /// Why that is not known.
    fn wheels(&self) -> Result<Vec<String>, String>;

    /// Whether a server shows that it lives.
    ///
    /// # Errors
    /// What came of it.
    fn answers(&self, address: &str, limit: Duration) -> Result<(), String>;

    /// Seconds since 1970 by the wall clock.
    fn wall_seconds(&self) -> i64;
}

/// A machine.
pub struct Machine {
    /// Where `proc`, `sys` and `dev` are.
    pub root: PathBuf,
    /// The rest.
    pub outside: Box<dyn Outside>,
}

impl Machine {
    /// The one that this program runs on.
    pub fn this() -> Self {
        Self { root: "/".into(), outside: Box::new(This) }
    }

    /// The text of a file, without what surrounds it; `None` if it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The number in a file.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The names in a directory, in order; none if there is no such directory.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries =
            fs::read_dir(self.root.join(path)).into_iter().flatten().map_while(Result::ok);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The words behind a name at the beginning of a line, as `/proc` has them.
    pub(super) fn words(&self, path: &str, name: &str) -> Option<Vec<String>> {
        let text = self.text(path)?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(rest.split_whitespace().map(str::to_owned).collect())
    }
}

/// The machine that this program runs on.
struct This;

impl Outside for This {
    fn cuda(&self) -> Result<Cuda, CudaError> {
        let driver = Libcuda::load()?;
        Ok(Cuda { version: driver.version()?, devices: driver.devices()? })
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, String> {
        let found = rustix::fs::statvfs(path).map_err(|error| error.to_string())?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn library(&self, named: Option<&Path>) -> Result<String, String> {
        let path = mooncake_library(named).map_err(|error| error.to_string())?;
        Ok(path.display().to_string())
    }

    fn wheels(&self) -> Result<Vec<String>, String> {
        let mut child = Command::new("python3")
            .args(["-c", ASK_PYTHON])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("python3: {error}"))?;
        let (sender, receiver) = mpsc::channel();
        let mut out = child.stdout.take().ok_or("python3: no output")?;
        let read = move || {
            let mut text = String::new();
            let read = out.read_to_string(&mut text).map(|_| text);
            // Whoever has stopped waiting wants no answer.
            drop(sender.send(read));
        };
        thread::Builder::new().spawn(read).map_err(|error| error.to_string())?;
        let said = receiver.recv_timeout(PYTHON_LIMIT);
        // What has ended already cannot be ended.
        let _ended = child.kill();
        let _code = child.wait();
        match said {
            Ok(Ok(text)) => Ok(text.lines().map(str::to_owned).collect()),
            Ok(Err(error)) => Err(format!("python3: {error}")),
            Err(_) => Err(format!("python3 said nothing for {PYTHON_LIMIT:?}")),
        }
    }

    fn answers(&self, address: &str, limit: Duration) -> Result<(), String> {
        probe_server(address, limit).map_err(|error| error.to_string())
    }

    fn wall_seconds(&self) -> i64 {
        rustix::time::clock_gettime(ClockId::Realtime).tv_sec
    }
}
