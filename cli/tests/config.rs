//! `springtide config`: as a program, with its sources.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    process::{Command, Output},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_springtide");

fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut program = Command::new(PROGRAM);
    program.arg("config").args(arguments).env_remove("MOONCAKE_CONFIG_PATH");
    program.envs(variables.iter().copied()).output().expect("the program runs")
}

fn told(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{err}");
    (out, err)
}

#[test]
fn all_sources_are_read_in_their_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let (theirs, ours) = (path("mooncake.json"), path("springtide.toml"));
    let mooncake =
        r#"{"master_server_address": "m:1", "local_hostname": "a", "global_segment_size": "4GB"}"#;
    fs::write(&theirs, mooncake).expect("writable");
    fs::write(&ours, "pool_bytes = \"2 GiB\"\n[store.mooncake]\nlocal_hostname = \"b\"")
        .expect("writable");
    let variables =
        [("MOONCAKE_CONFIG_PATH", theirs.as_str()), ("SPRINGTIDE__SAVES__DEADLINE_MS", "1234")];
    let (out, err) = told(&config(&["check", &ours, "--json"], &variables), 0);
    let read: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(read["store"]["mooncake"]["master"], "m:1");
    assert_eq!(read["store"]["mooncake"]["local_hostname"], "b");
    assert_eq!(read["store"]["mooncake"]["segment_bytes"], 4_u64 << 30);
    assert_eq!(
        (&read["pool_bytes"], &read["saves"]["deadline_ms"]),
        (&(2_u64 << 30).into(), &1234.into())
    );
    assert_eq!(err, "");

    // What was printed can be read again.
    let (toml, _) = told(&config(&["check", &ours], &variables), 0);
    let again = path("again.toml");
    fs::write(&again, toml).expect("writable");
    let (second, _) = told(&config(&["check", &again, "--json"], &[]), 0);
    assert_eq!(second, out);
}

#[test]
fn a_mistake_names_its_source() {
    let variables = [("SPRINGTIDE__SAVES__BATCH_BITES_MAX", "1")];
    let (out, err) = told(&config(&["check"], &variables), 1);
    assert_eq!(out, "");
    insta::assert_snapshot!(err);
    let (_, err) = told(&config(&["check", "/no/such/file.toml"], &[]), 1);
    assert!(err.contains("/no/such/file.toml: No such file"), "{err}");
    told(&config(&["chekc"], &[]), 2);
}

/// Each kind of mistake, from each kind of source: the message says where, which key, what came, what was expected.
#[test]
fn each_source_tells_each_kind_of_mistake() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut told_all = String::new();
    let mut tell = |output: Output| {
        let (out, err) = told(&output, 1);
        assert_eq!(out, "");
        told_all += &err.replace(directory.path().to_str().expect("UTF-8"), "DIR");
    };
    for (name, text) in [
        ("unknown.toml", "pool_bites = 1"),
        ("unknown.json", r#"{"loads": {"dead_line_ms": 1}}"#),
        ("text.toml", "payload_checksum = \"false\""),
        ("text.json", r#"{"payload_checksum": "false"}"#),
        ("type.toml", "[saves]\nattempts_max = \"many\""),
        ("type.json", r#"{"namespace": {"width": -1}}"#),
        ("size.toml", "pool_bytes = \"3 gigs\""),
        ("size.json", r#"{"saves": {"batch_bytes_max": "1,5 GiB"}}"#),
        (
            "contradiction.toml",
            "[loads]\nbatch_bytes_max = \"2 GiB\"\nin_flight_bytes_max = \"1 GiB\"",
        ),
        ("broken.json", "{"),
        ("broken.toml", "a = = 1"),
        ("settings.yaml", ""),
        ("list.json", "[]"),
        (
            "threads.json",
            r#"{"store": {"disk": {"directory": "/x", "capacity_bytes": 1, "threads": 1000000}}}"#,
        ),
        (
            "probe.toml",
            "[store.mooncake]\nmaster = \"m:1\"\nlocal_hostname = \"a\"\nprobe_timeout_ms = 99999999",
        ),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("writable");
        tell(config(&["check", path.to_str().expect("UTF-8")], &[]));
    }
    for (name, value) in [
        ("SPRINGTIDE__POOL_BITES", "1"),
        ("SPRINGTIDE__PAYLOAD_CHECKSUM", "\"false\""),
        ("SPRINGTIDE__PAYLOAD_CHECKSUM", "no"),
        ("SPRINGTIDE__SAVES__ATTEMPTS_MAX", "many"),
        ("SPRINGTIDE__POOL_BYTES", "3 gigs"),
        ("SPRINGTIDE__LOADS__BATCH_BYTES_MAX", "2 GiB"),
        ("MOONCAKE_CONFIG_PATH", "/no/such/mooncake.json"),
    ] {
        tell(config(&["check"], &[(name, value)]));
    }
    let mut binary = Command::new(PROGRAM);
    binary.args(["config", "check"]).env_remove("MOONCAKE_CONFIG_PATH");
    binary.env("SPRINGTIDE__NAMESPACE__MODEL", OsStr::from_bytes(b"a\xff"));
    tell(binary.output().expect("the program runs"));
    // What is no file has no end, or keeps its reader waiting.
    let endless = directory.path().join("endless.toml");
    symlink("/dev/zero", &endless).expect("a link");
    tell(config(&["check", endless.to_str().expect("UTF-8")], &[]));
    let long = directory.path().join("long.toml");
    fs::write(&long, "#".repeat((1 << 20) + 1)).expect("writable");
    tell(config(&["check", long.to_str().expect("UTF-8")], &[]));
    let engine = ["check", "--engine-timeout", "2", "--model", "Qwen3-VL-32B"];
    tell(config(&engine, &[("SPRINGTIDE__LOADS__DEADLINE_MS", "2000")]));
    let small = [("SPRINGTIDE__POOL_BYTES", "64 MiB")];
    tell(config(&["check", "--model", "Qwen3-VL-8B", "--resolution", "3840x2160"], &small));
    tell(config(
        &["check", "--engine-timeout", "5"],
        &[("SPRINGTIDE__SAVES__DEADLINE_MS", "4000"), ("SPRINGTIDE__WAIT_FOR_SAVE_MS", "5000")],
    ));
    insta::assert_snapshot!(told_all);
    // What fits is no mistake.
    let fits = ["check", "--engine-timeout", "300", "--model", "Qwen3-VL-32B", "--frames", "2"];
    told(&config(&fits, &[]), 0);
}

#[test]
fn the_documentation_has_every_key() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let text = fs::read_to_string(&document).expect("docs/configuration.md");
    let (keys, _) = told(&config(&["keys"], &[]), 0);
    // The default directory of files is this machine's.
    let keys = keys.replace(std::env::temp_dir().to_str().expect("UTF-8"), "/tmp");
    assert!(
        text.contains(keys.trim_end()),
        "docs/configuration.md differs from the code; put in what `springtide config keys` prints:\n{keys}"
    );
}

#[test]
fn the_schema_is_one_object() {
    let (out, _) = told(&config(&["schema"], &[]), 0);
    let schema: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(schema["title"], "Settings");
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"]["pool_bytes"]["description"].is_string(), "{schema}");
}
