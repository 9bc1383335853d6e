//! The library as C sees it: a program that is linked against it, alone and with another process.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use fake_store::{Faults, Knobs, Spawner, server::MasterServer};
use mooncake_store::API;
use springtide::runtime::{TokioClock, TokioNetwork};
use tokio::runtime::{Builder, Handle, Runtime};

/// The library that cargo has built for this test.
fn library() -> PathBuf {
    let program = env::current_exe().expect("a running program has a path");
    let beside = program.parent().expect("it lies in a directory").join("libmooncake_store.so");
    assert!(beside.exists(), "expected the library at {}", beside.display());
    beside
}

/// The C program, linked against the library; `None`, with the reason printed, without a C compiler.
fn program(name: &str) -> Option<PathBuf> {
    let library = library();
    let directory = library.parent().expect("it lies in a directory").display().to_string();
    // The directory is shared with the tests of other crates.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("drop-in-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.c");
    let cc = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .args([format!("-L{directory}"), format!("-Wl,-rpath,{directory}")])
        .arg("-lmooncake_store")
        .output();
    match cc {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler (cc: {error})");
            None
        }
    }
}

fn good(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
}

fn run(program: &Path, mode: &str, master: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(program);
    command.args([mode, master]).envs(variables.iter().copied());
    command.output().expect("the program was built")
}

/// A master in this process, which other processes reach.
fn master() -> (Runtime, String) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async {
        let spawner: Spawner = Arc::new(|task| drop(Handle::current().spawn(task)));
        let (clock, faults) = (TokioClock::new(), Faults::default());
        let address = "127.0.0.1:0";
        MasterServer::start(&TokioNetwork, clock, &spawner, faults, address, Knobs::default(), 0)
            .await
    });
    (runtime, server.unwrap().address)
}

#[test]
fn every_function_answers_c_as_mooncake_does() {
    let Some(program) = program("calls") else { return };
    good(&run(&program, "calls", "inproc:1", &[]));
    let (_runtime, address) = master();
    good(&run(&program, "calls", &address, &[]));
}

#[test]
fn two_processes_share_one_store() {
    let Some(program) = program("share") else { return };
    let (_runtime, address) = master();
    let mut owner = Command::new(&program)
        .args(["own", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let reader = run(&program, "read", &address, &[]);
    // Its input ends, and it goes on.
    drop(owner.stdin.take());
    let owner = owner.wait_with_output().unwrap();
    good(&reader);
    good(&owner);
}

#[test]
fn a_fault_plan_comes_from_the_environment() {
    let Some(program) = program("faults") else { return };
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.json");
    let rule = r#"{"rules":[{"point":"put_end","key":"broken","action":{"fail":-900}}]}"#;
    fs::write(&plan, rule).unwrap();
    good(&run(&program, "faulty", "inproc:7", &[("FAKE_MOONCAKE_FAULT_PLAN", &plan)]));
    // Without it that put is good.
    assert!(!run(&program, "faulty", "inproc:7", &[]).status.success());
}

#[test]
fn a_bad_fault_plan_or_knob_is_named_and_refused() {
    let Some(program) = program("refused") else { return };
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.json");
    let absent = directory.path().join("absent.json");
    fs::write(&plan, r#"{"rules":[{"point":"put_end","colour":1,"action":"stall"}]}"#).unwrap();
    for (variable, file, part) in [
        ("FAKE_MOONCAKE_FAULT_PLAN", &plan, "unknown field `colour`"),
        ("FAKE_MOONCAKE_FAULT_PLAN", &absent, "absent.json: No such file"),
        ("FAKE_MOONCAKE_KNOBS", &plan, "unknown field `rules`"),
    ] {
        let output = run(&program, "refused", "inproc:1", &[(variable, file)]);
        good(&output);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&format!("{variable}=")) && errors.contains(part), "{errors}");
    }
}

#[test]
fn the_library_exports_what_the_crate_binds() {
    // SAFETY: the library is the one under test, of this ABI.
    #[expect(unsafe_code, reason = "loads a library")]
    let loaded = unsafe { mooncake_sys::Library::open(library()) }.unwrap();
    // Two copies of the code: the loaded one is not the one that is linked here.
    assert_ne!(loaded.api().create as usize, API.create as usize);
}
