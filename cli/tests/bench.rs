//! `springtide bench`: run as a program, measured for real on small items, and misused.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use fake_store::{Faults, Knobs, Spawner, server::MasterServer};
use serde_json::Value;
use springtide::{
    backend::{DiskConfig, DiskStore},
    runtime::{TokioClock, TokioNetwork},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_springtide");

/// Small enough for a second or so.
const SMALL: [&str; 8] =
    ["--size", "64KiB", "--concurrency", "1,2", "--batch", "3", "--rounds", "2"];

fn springtide(arguments: &[&str]) -> Output {
    let program =
        Command::new(PROGRAM).args(arguments).env_remove("MOONCAKE_STORE_LIBRARY").output();
    program.expect("the program runs")
}

fn bench(arguments: &[&str]) -> Output {
    springtide(&[&["bench"], &SMALL[..], &["--round-bytes", "1MiB"], arguments].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a bench that must fail says. Its own words only: addresses and paths are named by `hidden`.
fn failure(arguments: &[&str], code: i32, hidden: &[(&str, &str)]) -> String {
    let output = bench(arguments);
    let mut said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for (text, name) in hidden {
        said = said.replace(text, name);
    }
    said
}

/// The object that a bench prints, after a look at what every one must have.
fn measured(arguments: &[&str]) -> Value {
    let output = bench(&[&["--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let cells = report["cells"].as_array().expect("cells");
    let kinds = ["memcpy", "put", "wait_for_save", "get", "load"];
    assert_eq!(cells.len(), 2);
    for (cell, concurrency) in cells.iter().zip([1, 2]) {
        assert_eq!(cell["concurrency"], concurrency);
        assert_eq!((&cell["batch"], &cell["item_bytes"]), (&3.into(), &65_536.into()));
        // 1 MiB is 6 steps of 3 items, or 3 of 6.
        let steps = if concurrency == 1 { 6 } else { 3 };
        assert_eq!(cell["round_bytes"], steps * concurrency * 3 * 65_536);
        for kind in kinds {
            let number = |field: &str| cell[kind][field].as_f64().expect("a number");
            let calls = match kind {
                "memcpy" => steps * concurrency * 3,
                "put" | "get" => steps * concurrency,
                _ => steps,
            };
            assert_eq!(cell[kind]["count"], 2 * calls, "{kind} {cell}");
            assert!(number("bytes_per_sec") > 0.0, "{kind}: {cell}");
            assert!(number("cpu_us") > 0.0, "{kind}: {cell}");
            let quantiles = ["p50_us", "p90_us", "p99_us", "max_us"].map(number);
            assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{kind}: {cell}");
        }
        for ratio in ["wait_for_save_to_put", "load_to_get"] {
            assert!(cell[ratio]["median"].as_f64().expect("a number") > 0.0, "{cell}");
        }
        adds_up(&cell["counters"], (2 + 2) * steps as u64 * concurrency as u64 * 3);
    }
    report
}

/// The counters of a cell whose rounds, warm-up included, moved so many items.
fn adds_up(counters: &Value, items: u64) {
    let sum = |process: &str, name: &str| {
        let counts = counters[process].as_object().expect("counters");
        let of = |series: &str| series.split('{').next() == Some(name);
        let found: Vec<_> = counts.iter().filter(|(series, _)| of(series)).collect();
        assert!(!found.is_empty(), "no {name} in {counts:?}");
        found.iter().map(|(_, count)| count.as_u64().expect("a number")).sum::<u64>()
    };
    for (process, name) in [
        ("producer", "springtide_saves_opened_total"),
        ("producer", "springtide_saves_total"),
        ("producer", "springtide_puts_total"),
        ("scheduler", "springtide_lookups_started_total"),
        ("scheduler", "springtide_lookups_total"),
        ("scheduler", "springtide_loaded_total"),
        ("scheduler", "springtide_orders_total"),
        ("scheduler", "springtide_orders_acknowledged_total"),
        ("worker", "springtide_deliveries_total"),
    ] {
        assert_eq!(sum(process, name), items, "{process} {name}");
    }
    let stored =
        &counters["producer"]["springtide_saves_total{outcome=\"stored\",reason=\"none\"}"];
    assert_eq!(stored, items, "{counters}");
    let header = 64 * items;
    let moved = sum("worker", "springtide_delivery_bytes_total");
    assert_eq!(sum("producer", "springtide_put_bytes_total"), moved + header);
    assert_eq!(sum("scheduler", "springtide_get_bytes_total"), moved + header);
}

/// Somebody who hangs up on whoever calls, as a master does that is sent no request.
fn somebody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let serve = move || listener.incoming().for_each(drop);
    thread::Builder::new().spawn(serve).expect("a thread");
    address
}

/// An address that nobody has.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("bound").to_string()
}

/// A shared library made of a C source of `mooncake-sys`. `None`, with the reason printed, without a C
/// compiler.
fn library(source: &str) -> Option<PathBuf> {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libbench_{source}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mooncake-sys/tests").join(source);
    let compiled = Command::new("cc")
        .args(["-std=c11", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .output();
    match compiled {
        Ok(output) => {
            assert!(output.status.success(), "{}", stderr(&output));
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler (cc: {error})");
            None
        }
    }
}

#[test]
fn the_disk_is_measured_and_left_clean() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    // A store that is in use: far more than a bench of this size has room for.
    let config =
        DiskConfig { directory: directory.path().to_owned(), capacity_bytes: 1 << 30, threads: 1 };
    DiskStore::open(&config).expect("a store");
    let item = directory.path().join("objects").join("item");
    fs::write(&item, vec![7; 64 << 20]).expect("writable");
    let before = walk(directory.path());
    let report = measured(&["--directory", path]);
    assert_eq!(report["store"], format!("disk {path}"));
    assert_eq!(walk(directory.path()), before, "neither more nor less");
    assert_eq!(fs::metadata(&item).expect("still there").len(), 64 << 20);
}

fn walk(directory: &Path) -> BTreeSet<PathBuf> {
    // What goes while we look is not there.
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let (directories, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let within = directories.iter().flat_map(|directory| walk(directory));
    within.chain(files).chain(directories.iter().cloned()).collect()
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_str().expect("UTF-8");
        let mut program = Command::new(PROGRAM);
        program.args(["bench", "--size", "64KiB", "--rounds", "100000", "--directory", path]);
        let mut child = program.stderr(Stdio::null()).spawn().expect("the program runs");
        wait_until("files are made", || walk(directory.path()).iter().any(|path| path.is_file()));
        let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{name}");
        assert_eq!(walk(directory.path()), BTreeSet::new(), "{name}");
    }
}

#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "waits for another process"
)]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether it went well is told by the exit code also where nobody can be told why it did not.
#[test]
fn a_standard_error_that_is_full_changes_no_exit_code() {
    let checked = [
        (vec!["config", "check"], 0),
        (vec!["config", "check", "missing.toml"], 1),
        (vec!["plan", "--model", "none"], 2),
    ];
    for (arguments, code) in checked {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut program = Command::new(PROGRAM);
        program.args(&arguments).stdout(Stdio::null()).stderr(full);
        let status = program.status().expect("the program runs");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn the_fake_store_is_started_and_measured() {
    let report = measured(&["--store", "fake"]);
    assert!(report["store"].as_str().expect("text").starts_with("fake over TCP 127.0.0.1:"));
    let table = bench(&["--store", "fake", "--no-checksum"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("wait_for_save") && table.contains("without checksums"), "{table}");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    insta::assert_snapshot!(failure(&["--directory", "/dev/full"], 1, &[]));
}

#[test]
fn a_store_without_room_is_named() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    let handle = runtime.handle().clone();
    let spawner: Spawner = Arc::new(move |task| drop(handle.spawn(task)));
    // Nobody lends it memory.
    let master = runtime.block_on(MasterServer::start(
        &TokioNetwork,
        TokioClock::new(),
        &spawner,
        Faults::default(),
        "127.0.0.1:0",
        Knobs::default(),
        0,
    ));
    let address = master.expect("a free port").address;
    let said = failure(&["--store", "fake", "--master", &address], 1, &[(&address, "ADDRESS")]);
    insta::assert_snapshot!(said);
}

#[test]
fn a_master_that_is_not_there_is_named() {
    let address = nobody();
    let hidden = [(address.as_str(), "ADDRESS")];
    let fake = failure(&["--store", "fake", "--master", &address], 1, &hidden);
    let mooncake = failure(&["--store", "mooncake", "--master", &address], 1, &hidden);
    insta::assert_snapshot!(fake + &mooncake);
}

#[test]
fn a_library_that_is_missing_or_of_another_version_is_named() {
    let address = somebody();
    let at = ["--store", "mooncake", "--master", &address, "--library"];
    let missing = failure(&[&at[..], &["/no/such/libmooncake_store.so"]].concat(), 1, &[]);
    insta::assert_snapshot!(missing);
    let Some(other) = library("other.c") else { return };
    let other = other.to_str().expect("UTF-8");
    let hidden = [(other, "LIBRARY")];
    insta::assert_snapshot!(failure(&[&at[..], &[other]].concat(), 1, &hidden));
}

#[test]
fn the_c_library_is_measured() {
    let (address, Some(library)) = (somebody(), library("guard.c")) else { return };
    let library = library.to_str().expect("UTF-8");
    measured(&["--store", "mooncake", "--master", &address, "--library", library]);
}

#[test]
fn misuse_is_told_by_name() {
    let protocol = failure(&["--store", "mooncake", "--protocol", "ib"], 2, &[]);
    let size = failure(&["--size", "1000B"], 2, &[]);
    let unit = failure(&["--size", "4mb"], 2, &[]);
    let python = failure(&["--store", "python"], 1, &[]);
    insta::assert_snapshot!(protocol + &size + &unit + &python);
}

#[test]
fn help() {
    let help = |arguments: &[&str]| {
        let output = springtide(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    insta::assert_snapshot!("help", help(&["--help"]));
    insta::assert_snapshot!("help_bench", help(&["bench", "--help"]));
    insta::assert_snapshot!("help_config_check", help(&["config", "check", "--help"]));
    insta::assert_snapshot!("help_plan", help(&["plan", "--help"]));
    assert_eq!(springtide(&[]).status.code(), Some(2));
}
