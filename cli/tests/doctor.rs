//! `springtide doctor`: as a program, on the machine of the test.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Output},
};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_springtide");

fn doctor(arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    program.arg("doctor").args(arguments).env_remove("MOONCAKE_CONFIG_PATH");
    program.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn config(text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("settings.toml");
    fs::write(&path, text).expect("writable");
    let path = path.to_str().expect("UTF-8").to_owned();
    (directory, path)
}

/// Settings that any machine has room for.
const SMALL: &str =
    "pool_bytes = \"1 MiB\"\n[store.disk]\ndirectory = \"/tmp\"\ncapacity_bytes = 1\nthreads = 1\n";

#[test]
fn a_machine_without_a_problem() {
    let (_kept, path) = config(SMALL);
    let output = doctor(&["--config", &path, "--role", "producer"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 11, "{lines:?}");
    let known = |line: &&str| line.starts_with("ok ") || line.starts_with("warning ");
    assert!(lines.iter().all(known), "{lines:?}");
    let json = doctor(&["--config", &path, "--role", "producer", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert_eq!(object["problems"], 0);
    assert_eq!(object["checks"].as_array().map(Vec::len), Some(11));
}

#[test]
fn a_problem_ends_it_with_1() {
    let nobody =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("bound");
    let (_kept, path) = config(&format!(
        "pool_bytes = \"1 MiB\"\n[store.mooncake]\nmaster = \"{nobody}\"\nlocal_hostname = \"127.0.0.1\"\n\
         library = \"/no/such/libmooncake_store.so\"\n"
    ));
    let output = doctor(&["--config", &path, "--role", "producer"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    let begins = |with: &str| out.lines().any(|line| line.starts_with(with));
    assert!(begins("problem  store        no mooncake_master answers at 127.0.0.1:"), "{out}");
    assert!(begins("problem  mooncake     cannot load /no/such/libmooncake_store.so"), "{out}");
    assert_eq!(err, "springtide: 2 problems: an instance with these settings will not work here\n");
}

#[test]
fn misuse_and_help() {
    assert_eq!(doctor(&["--role", "decoder"]).status.code(), Some(2));
    let unread = doctor(&["--config", "/no/such/file.toml"]);
    assert_eq!(unread.status.code(), Some(1));
    assert!(text(&unread.stderr).contains("/no/such/file.toml"), "{}", text(&unread.stderr));
    let help = doctor(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    insta::assert_snapshot!("help_doctor", text(&help.stdout));
}
