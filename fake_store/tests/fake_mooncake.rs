//! The binary: started, asked, broken by a plan, misused.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Output, Stdio},
};

const BINARY: &str = env!("CARGO_BIN_EXE_fake-mooncake");

/// A server that is killed with the test.
struct Server {
    child: Child,
    master: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn serve(arguments: &[&str]) -> Server {
    let mut child = Command::new(BINARY)
        .arg("serve")
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let serving: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
    let master = serving["master"].as_str().unwrap().to_owned();
    Server { child, master }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn plan(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

#[test]
fn serves_and_checks() {
    let server = serve(&["--nodes", "2", "--segment", "8MiB", "--client_ttl", "5"]);
    for bytes in ["1MiB", "100"] {
        let output = run(&["check", &server.master, "--bytes", bytes]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["ok"], true);
    }
    let too_large = run(&["check", &server.master, "--bytes", "9MiB"]);
    assert_eq!(too_large.status.code(), Some(1));
    assert!(stderr(&too_large).contains("NO_AVAILABLE_HANDLE (-200)"), "{}", stderr(&too_large));

    let address = server.master.clone();
    drop(server);
    let output = run(&["check", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("RPC_FAIL (-900)"), "{}", stderr(&output));
}

#[test]
fn a_fault_plan_breaks_it() {
    let text = r#"{"rules":[{"point":"read","times":1,"action":{"flip_byte":5}},
                            {"point":"put_start","from":3,"action":"drop_reply"}]}"#;
    let path = plan("faults.json", text);
    let server = serve(&["--fault-plan", path.to_str().unwrap()]);
    let output = run(&["check", &server.master]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("other bytes than were put"), "{}", stderr(&output));
    assert_eq!(run(&["check", &server.master]).status.code(), Some(0));
    let output = run(&["check", &server.master, "--timeout-ms", "300"]);
    assert!(stderr(&output).contains("no end within 300 ms"), "{}", stderr(&output));
}

#[test]
fn a_port_in_use_is_told_with_what_to_do() {
    let first = serve(&[]);
    let output = run(&["serve", "--listen", &first.master]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let tried = format!("fake-mooncake: cannot listen on {}: Address already in use", first.master);
    assert!(said.starts_with(&tried), "{said}");
    assert!(said.contains("port 0 takes a free one"), "{said}");
}

#[test]
fn misuse_is_told_by_name() {
    let unknown = plan("unknown.json", r#"{"rules":[{"point":"read","action":"stall","bite":1}]}"#);
    let nonsense =
        plan("nonsense.json", r#"{"rules":[{"point":"query","action":"foreign_bytes"}]}"#);
    let (unknown, nonsense) = (unknown.to_str().unwrap(), nonsense.to_str().unwrap());
    let table: [(&[&str], &str); 8] = [
        (&["serve", "--fault-plan", unknown], "unknown field `bite`"),
        (
            &["serve", "--fault-plan", nonsense],
            "rule 0: the action is for the points read and write",
        ),
        (&["serve", "--fault-plan", "/no/such/plan"], "/no/such/plan"),
        (&["serve", "--segment", "1XB"], "expected B, KiB, MiB or GiB"),
        (&["serve", "--eviction_ratio", "2"], "eviction_ratio: expected 0 to 1, got 2"),
        (&["serve", "--put_start_release_timeout_sec", "3"], "put_start_release_timeout"),
        (&["check"], "<ADDRESS>"),
        (&["fly"], "fly"),
    ];
    for (arguments, expected) in table {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    let busy = serve(&[]);
    let output = run(&["serve", "--listen", &busy.master]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot listen on"), "{}", stderr(&output));
}

#[test]
fn help_has_examples() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("fake-mooncake check 127.0.0.1:50051"), "{help}");
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    assert!(help.contains("--eviction_high_watermark_ratio"), "{help}");
}
