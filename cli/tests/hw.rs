//! `springtide hw`: as a program, and as it is carried to a machine with hardware.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_springtide");
const RUNGS: [&str; 9] = [
    "pin",
    "bandwidth",
    "late",
    "extents",
    "host-tcp",
    "cuda-tcp",
    "host-rdma",
    "cuda-rdma",
    "traffic",
];

fn hw(arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    let program = program.arg("hw").args(arguments).env_remove("MOONCAKE_STORE_LIBRARY");
    program.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The object that it prints, and its code.
fn climbed(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = hw(&[arguments, &["--json", "--rounds", "2", "--bytes", "16MiB"]].concat());
    let object = serde_json::from_slice(&output.stdout);
    (object.unwrap_or_else(|_| panic!("{}", text(&output.stderr))), output.status.code())
}

fn outcomes(report: &Value) -> Vec<(&str, &str)> {
    let rungs = report["rungs"].as_array().expect("rungs").iter();
    rungs
        .map(|rung| {
            let text = |field: &str| rung[field].as_str().expect("text");
            assert!(!text("shows").is_empty(), "{report}");
            (text("name"), text("outcome"))
        })
        .collect()
}

#[test]
fn what_is_not_here_is_listed_and_no_error() {
    let (report, code) = climbed(&[]);
    let outcomes = outcomes(&report);
    assert_eq!(outcomes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), RUNGS);
    assert_eq!(code, Some(0), "{report}");
    // Without a master nothing moves through a store, whatever the machine has.
    assert!(outcomes[4..].iter().all(|(_, outcome)| *outcome == "not_run"), "{report}");
    if report["gpu"].is_null() {
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == "not_run"), "{report}");
        let lines = text(&hw(&[]).stdout);
        assert!(lines.starts_with("GPU: none\nnot run  pin        no libcuda.so.1 ("), "{lines}");
    } else {
        assert!(outcomes[..4].iter().all(|(_, outcome)| *outcome == "passed"), "{report}");
    }
}

#[test]
fn what_is_required_and_not_here_is_an_error() {
    let output = hw(&["--require", "store"]);
    assert_eq!(output.status.code(), Some(1));
    let said =
        "springtide: store is required, and not here: no master was named (--master HOST:PORT)\n";
    assert_eq!(text(&output.stderr), said);
    let (report, code) = climbed(&["--require", "cuda,rdma"]);
    let here = !report["gpu"].is_null() && Path::new("/sys/class/infiniband").exists();
    assert_eq!(code, Some(if here { 0 } else { 1 }), "{report}");
}

#[test]
fn misuse_and_help() {
    for wrong in [["--require", "npu"], ["--rounds", "0"], ["--bytes", "0"]] {
        assert_eq!(hw(&wrong).status.code(), Some(2), "{wrong:?}");
    }
    let help = hw(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    insta::assert_snapshot!("help_hw", text(&help.stdout));
}

/// A shared library with the C ABI that keeps objects in this process, and somebody who lives where its master
/// should be. `None`, with the reason printed, without a C compiler.
fn store() -> Option<(String, PathBuf)> {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libhw_guard.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mooncake-sys/tests/guard.c");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .output();
    match compiled {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
        Err(error) => {
            eprintln!("skipped: no C compiler (cc: {error})");
            return None;
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::Builder::new().spawn(move || listener.incoming().for_each(drop)).expect("a thread");
    Some((address, library))
}

#[test]
fn host_memory_over_tcp_needs_no_hardware() {
    let Some((master, library)) = store() else { return };
    let library = library.to_str().expect("UTF-8");
    let arguments = ["--require", "store", "--master", &master, "--library", library];
    let (report, code) = climbed(&arguments);
    assert_eq!(code, Some(0), "{report}");
    for rung in ["host-tcp", "traffic"] {
        let rung =
            report["rungs"].as_array().expect("rungs").iter().find(|found| found["name"] == rung);
        let rung = rung.expect("the rung");
        assert_eq!(rung["outcome"], "passed", "{report}");
        let figures = rung["figures"].as_array().expect("figures");
        assert!(
            figures
                .iter()
                .all(|row| row["count"] == 2 && row["bytes_per_sec"].as_f64() > Some(0.0))
        );
    }
}

#[test]
fn a_store_that_is_not_there_is_a_failed_check() {
    let nobody =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("bound");
    let (report, code) = climbed(&["--master", &nobody.to_string()]);
    assert_eq!(code, Some(1), "{report}");
    let why = report["rungs"][4]["why"].as_str().expect("a reason");
    assert!(why.starts_with("no mooncake_master answers at 127.0.0.1:"), "{why}");
}

#[test]
fn the_bundle_unpacks_and_runs_in_an_empty_directory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let place = tempfile::tempdir().expect("a directory");
    let archive = place.path().join("bundle.tar.gz");
    let mut bundle = Command::new(root.join("ci/hw-bundle"));
    let bundled =
        bundle.args(["--program", PROGRAM, "--out"]).arg(&archive).output().expect("bash");
    assert_eq!(bundled.status.code(), Some(0), "{}", text(&bundled.stderr));
    let bytes = fs::metadata(&archive).expect("the archive").len();
    assert!(bytes < 64_000_000, "{bytes} bytes");
    let empty = place.path().join("empty");
    fs::create_dir(&empty).expect("writable");
    let unpacked = Command::new("tar").arg("xzf").arg(&archive).current_dir(&empty).status();
    assert!(unpacked.expect("tar").success());
    // Nothing of this machine but its system.
    let run = |arguments: &[&str]| {
        let mut program = Command::new("./run");
        let program = program.args(arguments).current_dir(empty.join("springtide-hw"));
        program.env_clear().env("PATH", "/usr/bin:/bin").output().expect("the bundle runs")
    };
    let doctor = run(&["doctor", "--role", "producer", "--json"]);
    let found: Value = serde_json::from_slice(&doctor.stdout).expect("one object");
    assert_eq!(found["checks"].as_array().map(Vec::len), Some(11));
    let ladder = run(&["hw", "--json", "--rounds", "1"]);
    assert_eq!(ladder.status.code(), Some(0), "{}", text(&ladder.stderr));
    let report: Value = serde_json::from_slice(&ladder.stdout).expect("one object");
    assert_eq!(outcomes(&report).len(), RUNGS.len());
    assert_eq!(
        run(&["hw", "--require", "rdma", "--gpu", "99", "--require", "cuda"]).status.code(),
        Some(1)
    );
}
