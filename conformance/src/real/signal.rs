//! Stopping and continuing processes.

use std::{fs, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::master::failed;
use crate::{
    arm::Broken,
    timeline::{RealTime, Timeline},
};

/// How long a process may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(1);

/// Stops a process, and waits until each of its threads has stopped. The signal alone only asks: on a busy
/// machine a thread that waits for a processor still serves a call.
pub(super) fn stop(pid: Pid) -> Result<(), Broken> {
    let what = format!("stop process {}", pid.as_raw_nonzero());
    kill_process(pid, Signal::STOP).map_err(|error| failed(&what, &error))?;
    let mut time = RealTime::start();
    while !has_stopped(pid).map_err(|error| failed(&what, &error))? {
        if time.now() > STOP_LIMIT {
            return Err(failed(&what, &format!("it still runs after {STOP_LIMIT:?}")));
        }
        let next = time.now() + LOOK;
        time.wait_until(next);
    }
    Ok(())
}

/// Lets a stopped process go on.
pub(super) fn go_on(pid: Pid) -> Result<(), Broken> {
    let what = format!("continue process {}", pid.as_raw_nonzero());
    kill_process(pid, Signal::CONT).map_err(|error| failed(&what, &error))
}

/// Whether no thread of a process runs or will run.
fn has_stopped(pid: Pid) -> std::io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        // One that has ended since does not run either.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_has_stopped_when_all_its_threads_have() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!has_stopped(pid).unwrap());
        stop(pid).unwrap();
        assert!(has_stopped(pid).unwrap());
        go_on(pid).unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(stop(pid).is_err(), "it has ended");
    }
}
