//! Campaigns that last: they stop in time or when asked to, and go on where the last one stopped.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

/// How long a test waits for a process at most.
const PATIENCE: Duration = Duration::from_secs(300);

fn campaign(directory: &Path, minutes: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(["campaign", "--jobs", "2", "--json", "--minutes", minutes, "--dir"]);
    command.arg(directory);
    command
}

/// An empty directory.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-campaign-{name}"));
    _ = std::fs::remove_dir_all(&directory);
    directory
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn state(directory: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(directory.join("state.json")).ok()?;
    Some(serde_json::from_str(&text).expect("never half written"))
}

#[test]
fn a_campaign_goes_on_where_the_last_one_stopped() {
    let directory = directory("goes-on");
    let first = report(&campaign(&directory, "0.02").output().expect("starts"));
    let plans = first["plans"].as_u64().expect("a number");
    assert!(plans > 0 && first["session"]["plans"] == plans, "{first}");
    assert_eq!((&first["next_seed"], &first["failed"]), (&plans.into(), &0.into()));
    assert!(first["session"]["simulated_seconds_per_second"].as_f64().is_some_and(|s| s > 0.0));
    assert!(first["session"]["plans_per_second_and_core"].as_f64().is_some_and(|s| s > 0.0));
    let second = report(&campaign(&directory, "0.02").output().expect("starts"));
    let more = second["session"]["plans"].as_u64().expect("a number");
    assert!(more > 0);
    assert_eq!(second["next_seed"], plans + more);
    assert_eq!(state(&directory).expect("a state")["plans"], plans + more);
}

#[test]
fn an_interrupted_campaign_keeps_what_it_has() {
    let directory = directory("interrupted");
    let mut command = campaign(&directory, "60");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let child = wait_for(child, |_| state(&directory).is_some_and(|state| state["plans"] != 0));
    let pid = child.id().to_string();
    let other = campaign(&directory, "1").output().expect("starts");
    assert_eq!(other.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&other.stderr);
    assert!(errors.contains("another campaign is using this directory"), "{errors}");
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let child = wait_for(child, |child| child.try_wait().expect("a status").is_some());
    let report = report(&child.wait_with_output().expect("ended"));
    assert_eq!(report["session"]["interrupted"], true);
    let saved = state(&directory).expect("a state");
    assert_eq!((&saved["plans"], &saved["next_seed"]), (&report["plans"], &report["next_seed"]));
}

/// Waits until a process has come so far; ends it if it does not in time.
fn wait_for(mut child: Child, mut is_so_far: impl FnMut(&mut Child) -> bool) -> Child {
    let tick = Duration::from_millis(20);
    let mut left = PATIENCE;
    while !is_so_far(&mut child) {
        if left.is_zero() {
            child.kill().expect("a process");
            panic!("waited {PATIENCE:?}");
        }
        left = left.saturating_sub(tick);
        std::thread::park_timeout(tick);
    }
    child
}

#[test]
fn a_state_that_cannot_be_used_is_said_to_be_so_and_kept() {
    let good = r#"{"version":1,"next_seed":4,"plans":4,"events":1,"simulated_ms":1,"wall_ms":1,
        "aborting":[],"failures":[],"failures_beyond":0}"#;
    let cases = [
        ("cut", &good[..40], "got a file that is none"),
        (
            "older",
            &good.replace("\"version\":1", "\"version\":0"),
            "field `version`: expected 1, got 0",
        ),
        ("foreign", "[1, 2]", "got a file that is none"),
        ("unknown", &good.replace("plans", "plants"), "unknown field `plants`"),
    ];
    for (name, text, expected) in cases {
        let directory = directory(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("state.json");
        std::fs::write(&file, text).expect("a state");
        let output = campaign(&directory, "0.01").output().expect("starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {errors}");
        assert!(errors.contains(expected), "{name}: {errors}");
        assert!(errors.contains("move it away to begin again"), "{name}: {errors}");
        assert_eq!(std::fs::read_to_string(&file).expect("a state"), text, "{name}");
    }
}

#[test]
fn a_campaign_needs_an_end() {
    for minutes in ["0", "-1", "NaN", "soon"] {
        let output = campaign(&directory("no-end"), minutes).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{minutes}");
    }
}
