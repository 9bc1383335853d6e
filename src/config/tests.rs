//! Every kind of mistake and its message; sources, and how they are put on each other.

use std::{fs, path::Path, time::Duration};

use serde_json::json;

use super::*;
use crate::backend::Protocol;

fn toml(text: &str) -> Result<Settings, SettingsError> {
    Settings::from_layers(vec![Layer::toml("springtide.toml", text)?])
}

fn mooncake(text: &str) -> String {
    format!("[store.mooncake]\nmaster = \"m:1\"\nlocal_hostname = \"node\"\n{text}")
}

#[test]
fn nothing_is_the_defaults() {
    assert_eq!(toml(""), Ok(Settings::default()));
    assert_eq!(Settings::from_layers(vec![]), Ok(Settings::default()));
}

#[test]
fn all_kinds_of_values_are_read() {
    let settings = toml(&format!(
        "pool_bytes = \"3 GiB\"\npayload_checksum = false\n{}\n[saves]\nbatch_bytes_max = 1048576\n\
         [loads]\ndeadline_ms = 250\n[namespace]\nwidth = 8192",
        mooncake("protocol = \"rdma\"\nsegment_bytes = \"1.5 GiB\"")
    ));
    let settings = settings.unwrap();
    let StoreSettings::Mooncake(store) = &settings.store else { panic!("{settings:?}") };
    assert_eq!((store.protocol, store.segment_bytes), (Protocol::Rdma, 3 << 29));
    assert_eq!((settings.pool_bytes, settings.namespace.width), (3 << 30, Some(8192)));
    let connector = settings.connector(Backing::Anonymous);
    assert_eq!((connector.pool.bytes, connector.pool.quarantine_max), (3 << 30, 3 << 28));
    assert_eq!(connector.saves.batch_bytes_max, 1 << 20);
    assert_eq!(connector.loads.deadline, Duration::from_millis(250));
    assert!(!connector.payload_checksum);
}

#[test]
fn each_kind_of_mistake_is_told_by_key_value_and_what_was_expected() {
    let plain = |text: &str| text.to_owned();
    let saves = |text: &str| format!("[saves]\n{text}");
    let mistakes = [
        ("an unknown section", plain("[save]")),
        ("an unknown key", saves("batch_bites_max = 1")),
        ("a key at the wrong place", plain("deadline_ms = 1")),
        ("false as a text", plain("payload_checksum = \"false\"")),
        ("a number as a text", saves("attempts_max = \"8\"")),
        ("a fraction", saves("attempts_max = 0.5")),
        ("a negative number", saves("deadline_ms = -1")),
        ("a number for a text", plain("[namespace]\nmodel = 3")),
        ("no replica", mooncake("replicas = 0")),
        ("a size without a unit that is known", plain("pool_bytes = \"3 gigs\"")),
        ("a size that is no number", plain("pool_bytes = true")),
        ("a negative size", plain("pool_bytes = -1")),
        ("a value for a section", plain("saves = 3")),
        ("an unknown store", plain("[store.redis]\nmaster = \"m:1\"")),
        ("two stores", format!("{}\n[store.disk]\ndirectory = \"/d\"", mooncake(""))),
        ("a protocol that is not known", mooncake("protocol = \"ib\"")),
        ("a missing key", plain("[store.mooncake]\nmaster = \"m:1\"")),
        ("a master without a port", mooncake("").replace("m:1", "m")),
        ("a metadata server that ends the process", mooncake("metadata_server = \"etcd\"")),
        ("out of range", plain("[loads]\ndeadline_ms = 100000")),
        ("a wait without an end", plain("wait_for_save_ms = 0")),
        ("pauses that shrink", saves("retry_pause_ms = 100\nretry_pause_max_ms = 50")),
        ("a pool smaller than a unit", plain("pool_bytes = \"1 KiB\"")),
        ("a batch above what may be in flight", saves("batch_bytes_max = \"1 TiB\"")),
        ("a disk without room", plain("[store.disk]\ndirectory = \"/d\"\ncapacity_bytes = 0")),
        ("a name for an address", plain("[metrics]\nlisten = \"localhost:9465\"")),
        ("an address without a port", plain("[metrics]\nlisten = \"127.0.0.1\"")),
        ("no TOML", plain("[saves\nattempts_max = 1")),
    ];
    let mut told = String::new();
    for (name, text) in mistakes {
        let error = toml(&text).expect_err(name);
        told.push_str(&format!("{name}\n    {error}\n"));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn later_sources_win_and_are_named() {
    let engine = json!({"saves": {"attempts_max": 1, "deadline_ms": 7}});
    let variables = |attempts: &str| {
        let attempts = ("SPRINGTIDE__SAVES__ATTEMPTS_MAX".to_owned(), attempts.to_owned());
        vec![attempts, ("PATH".into(), "/bin".into()), ("SPRINGTIDE_OTHER".into(), "1".into())]
    };
    let read = |attempts| {
        let engine = Layer::new("vLLM", engine.clone());
        Settings::from_layers(vec![engine, Layer::environment(variables(attempts))])
    };
    let saves = read("3").unwrap().saves;
    assert_eq!((saves.attempts_max, saves.deadline), (3, Duration::from_millis(7)));
    let told = |attempts| read(attempts).unwrap_err().to_string();
    let variable = "environment (SPRINGTIDE__SAVES__ATTEMPTS_MAX): saves.attempts_max is";
    assert_eq!(told("four"), format!("{variable} \"four\", expected a whole number, 0 or more"));
    assert_eq!(told("0"), format!("{variable} 0, expected 1 to 10000"));
}

#[test]
fn another_store_replaces_the_one_below() {
    let layers = |upper: serde_json::Value| {
        let lower = json!({"store": {"mooncake": {"master": "m:1", "local_hostname": "node"}}});
        let layers = vec![Layer::new("lower", lower), Layer::new("upper", json!({"store": upper}))];
        Settings::from_layers(layers).map(|settings| settings.store)
    };
    let disk = layers(json!({"disk": {"directory": "/d", "capacity_bytes": 1}}));
    assert!(matches!(disk, Ok(StoreSettings::Disk(_))), "{disk:?}");
    let library = layers(json!({"mooncake": {"library": "/lib.so"}})).unwrap();
    let StoreSettings::Mooncake(config) = library else { panic!("{library:?}") };
    assert_eq!(
        (config.master.as_str(), config.library.as_deref()),
        ("m:1", Some(Path::new("/lib.so")))
    );
}

#[test]
fn mooncakes_own_file_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mooncake.json");
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        Layer::mooncake_file(&path).and_then(|layer| Settings::from_layers(vec![layer]))
    };
    let settings = read(
        r#"{"local_hostname": "10.0.0.2", "metadata_server": "P2PHANDSHAKE", "protocol": "rdma",
            "master_server_address": "10.0.0.1:50051", "device_name": "mlx5_0,mlx5_1", "storage_root_dir": "",
            "global_segment_size": "4GB", "local_buffer_size": 1073741824}"#,
    );
    let StoreSettings::Mooncake(config) = settings.unwrap().store else {
        panic!("a Mooncake Store")
    };
    let expected = MooncakeConfig {
        protocol: Protocol::Rdma,
        device: "mlx5_0,mlx5_1".into(),
        segment_bytes: 4 << 30,
        local_buffer_bytes: 1 << 30,
        ..MooncakeConfig::new("10.0.0.1:50051", "10.0.0.2")
    };
    assert_eq!(config, expected);
    let mut told = String::new();
    for text in [
        r#"{"local_hostname": 7}"#,
        r#"{"global_segment_size": "4 parsecs"}"#,
        r#"{"local_buffer_size": -1}"#,
        r#"{"local_hostname": "a", "master_server_address": "b:1", "protocol": "ascend"}"#,
        r#"{"local_hostname": "a"}"#,
        "no JSON",
    ] {
        let error = read(text).unwrap_err().to_string();
        told.push_str(&error.replace(path.to_str().unwrap(), "FILE"));
        told.push('\n');
    }
    insta::assert_snapshot!(told);
}

#[test]
fn files_are_what_their_names_say() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        let settings = Layer::file(&path).and_then(|layer| Settings::from_layers(vec![layer]));
        settings.map(|settings| settings.saves.attempts_max).map_err(|error| error.to_string())
    };
    assert_eq!(file("a.toml", "[saves]\nattempts_max = 1"), Ok(1));
    assert_eq!(file("a.json", r#"{"saves": {"attempts_max": 1}}"#), Ok(1));
    assert!(file("a.yaml", "").unwrap_err().ends_with("ends neither in .toml nor in .json"));
    let missing = Layer::file(&directory.path().join("b.toml")).unwrap_err().to_string();
    assert!(missing.contains("b.toml: No such file"), "{missing}");
}

#[test]
fn what_contradicts_the_engine_is_told() {
    let settings = toml("pool_bytes = \"256 MiB\"").unwrap();
    let told = |engine: Engine| settings.check_engine(&engine).unwrap_err();
    let fits = Engine { item_bytes_max: Some(256 << 20), patience: Some(Duration::from_secs(60)) };
    assert_eq!(settings.check_engine(&Engine::default()), Ok(()));
    assert_eq!(settings.check_engine(&fits), Ok(()));
    insta::assert_snapshot!(
        [
            told(Engine { item_bytes_max: Some(319 << 20), ..fits }),
            told(Engine { patience: Some(Duration::from_secs(10)), ..fits }),
            told(Engine { patience: Some(Duration::from_millis(1)), ..fits }),
        ]
        .join("\n")
    );
}

#[test]
fn every_key_is_in_the_table_with_its_default_and_what_it_means() {
    let keys = keys();
    let find = |name: &str| {
        let found = keys.iter().find(|described| described.key == name);
        found.unwrap_or_else(|| panic!("{name} is missing"))
    };
    assert_eq!(find("saves.deadline_ms").default, "10000");
    assert_eq!(find("store.mooncake.protocol").default, "\"tcp\"");
    assert_eq!(find("store.mooncake.master").default, "");
    for Described { key, text, .. } in &keys {
        assert!(!text.is_empty(), "{key} has no description");
        assert!(!text.contains("[`"), "{key}: {text}");
    }
    // Every key that a default configuration has is in the table.
    let mut found = Vec::new();
    leaves(&serde_json::to_value(Settings::default()).unwrap(), String::new(), &mut found);
    for key in found {
        find(&key);
    }
}

fn leaves(value: &serde_json::Value, path: String, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, key, found);
            }
        }
        _ => found.push(path),
    }
}
