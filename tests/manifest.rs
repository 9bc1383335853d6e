//! The examples of configurations and the manifest for Kubernetes: that they are what their readers take, and
//! that the names, ports and sizes of the manifest fit each other.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;
use springtide::config::{Layer, Settings, StoreSettings};

const MANIFEST: &str = "examples/kubernetes/springtide.yaml";
/// What vLLM needs of shared memory beside the pool.
const ENGINE_SHM: u64 = 1 << 30;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// The objects of the manifest.
fn objects() -> Vec<Value> {
    let text = read(MANIFEST);
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).expect("YAML")).collect()
}

/// The objects of a kind, with their names.
fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<(&'a str, &'a Value)> {
    let found = objects.iter().filter(|object| object["kind"] == kind);
    found.map(|object| (text(&object["metadata"]["name"]), object)).collect()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = of_kind(objects, kind).into_iter().find(|(found, _)| *found == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).1
}

/// Deployments and stateful sets.
fn workloads(objects: &[Value]) -> Vec<(&str, &Value)> {
    ["Deployment", "StatefulSet"].iter().flat_map(|kind| of_kind(objects, kind)).collect()
}

/// The one container of a workload.
fn container(workload: &Value) -> &Value {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array();
    let [container] = containers.expect("containers").as_slice() else { panic!("one container") };
    container
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a text, got {value}"))
}

/// The values of an argument that may come several times.
fn arguments<'a>(workload: &'a Value, name: &str) -> Vec<&'a str> {
    let all = ["command", "args"].iter().filter_map(|part| container(workload)[part].as_array());
    all.flatten().filter_map(|argument| text(argument).strip_prefix(name)).collect()
}

/// Bytes of a quantity: `16Gi`.
fn bytes(value: &Value) -> u64 {
    let text = text(value);
    let (number, unit) = text.split_at(text.find('i').expect("a power of 1024") - 1);
    let shift = match unit {
        "Mi" => 20,
        "Gi" => 30,
        other => panic!("unit {other}"),
    };
    number.parse::<u64>().expect("a number") << shift
}

/// What an instance is configured with: its role and its settings.
fn configured(workload: &Value) -> Option<(String, Settings)> {
    let [argument] = arguments(workload, "--ec-transfer-config=")[..] else { return None };
    let argument = argument.replace("$(POD_IP)", "10.0.0.1");
    let transfer: Value = serde_json::from_str(&argument).expect("JSON");
    assert_eq!(transfer["ec_connector"], "SpringtideConnector");
    let extra = transfer["ec_connector_extra_config"].to_string();
    let layer = Layer::json("ec_connector_extra_config", &extra).expect("JSON");
    let settings = Settings::from_layers(vec![layer]).unwrap_or_else(|error| panic!("{error}"));
    Some((text(&transfer["ec_role"]).to_owned(), settings))
}

#[test]
fn examples_of_configurations_are_read() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut read = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let layer = Layer::file(&path).unwrap_or_else(|error| panic!("{error}"));
            Settings::from_layers(vec![layer]).unwrap_or_else(|error| panic!("{error}"));
            read += 1;
        }
    }
    assert_eq!(read, 3, "disk, tcp, rdma");
}

#[test]
fn every_object_is_complete_and_has_a_name_of_its_own() {
    let objects = objects();
    let mut names = Vec::new();
    for object in &objects {
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        assert!(object["apiVersion"].is_string() && object["spec"].is_object(), "{name}");
        assert!(!names.contains(&name), "{name} twice");
        names.push(name);
    }
    assert_eq!(workloads(&objects).len(), 4, "{names:?}");
}

#[test]
fn services_lead_to_pods_that_listen() {
    let objects = objects();
    for (name, service) in of_kind(&objects, "Service") {
        let leads = |(_, workload): &(&str, &Value)| {
            let labels = &workload["spec"]["template"]["metadata"]["labels"];
            let selector = service["spec"]["selector"].as_object().expect("a selector");
            selector.iter().all(|(key, value)| labels[key] == *value)
        };
        let found: Vec<_> = workloads(&objects).into_iter().filter(leads).collect();
        let [(_, workload)] = found[..] else { panic!("service {name} leads to {}", found.len()) };
        for port in service["spec"]["ports"].as_array().expect("ports") {
            let ports = container(workload)["ports"].as_array().expect("ports");
            let listens = ports.iter().any(|open| open["name"] == port["targetPort"]);
            assert!(listens, "service {name}: no port {}", port["targetPort"]);
        }
    }
    for (name, workload) in workloads(&objects) {
        let (labels, spec) =
            (&workload["spec"]["template"]["metadata"]["labels"], &workload["spec"]);
        for (key, value) in spec["selector"]["matchLabels"].as_object().expect("a selector") {
            assert_eq!(labels[key], *value, "{name} selects its own pods");
        }
        // What the policy lets in and out.
        assert_eq!(labels["app.kubernetes.io/part-of"], "springtide", "{name}");
    }
}

#[test]
fn settings_are_right_and_fit_the_memory() {
    let objects = objects();
    let mut roles = Vec::new();
    for (name, workload) in workloads(&objects) {
        let Some((role, settings)) = configured(workload) else { continue };
        let StoreSettings::Mooncake(mooncake) = &settings.store else { panic!("{name}: a store") };
        let (host, port) = mooncake.master.split_once(':').expect("HOST:PORT");
        let open = &named(&objects, "Service", host)["spec"]["ports"][0]["port"];
        assert_eq!(open.to_string(), port, "{name}: the master's port");

        let (pod, container) = (&workload["spec"]["template"]["spec"], container(workload));
        let mount = &container["volumeMounts"][0];
        let volume = &pod["volumes"][0];
        assert_eq!((&mount["mountPath"], &mount["name"]), (&"/dev/shm".into(), &volume["name"]));
        assert_eq!(volume["emptyDir"]["medium"], "Memory", "{name}: /dev/shm is memory");
        let shm = bytes(&volume["emptyDir"]["sizeLimit"]);
        let (shared, private) = match role.as_str() {
            "ec_consumer" => (settings.pool_bytes, 0),
            _ => (0, settings.pool_bytes),
        };
        assert!(shm >= shared + ENGINE_SHM, "{name}: {shm} bytes of /dev/shm");
        let limit = bytes(&container["resources"]["limits"]["memory"]);
        let ours = shm + private + mooncake.segment_bytes + mooncake.local_buffer_bytes;
        // As much again is the model's: weights on their way, its processor, its caches.
        assert!(limit >= ours + (16 << 30), "{name}: {limit} bytes, {ours} of them ours");
        assert_eq!(role == "ec_producer", mooncake.segment_bytes > 0, "{name}: who lends memory");
        roles.push(role);
    }
    roles.sort();
    assert_eq!(roles, ["ec_consumer", "ec_producer"]);
}

#[test]
fn the_proxy_names_what_is_there() {
    let objects = objects();
    let proxy = named(&objects, "Deployment", "proxy");
    let encoders = named(&objects, "StatefulSet", "encoder");
    let (service, replicas) = (&encoders["spec"]["serviceName"], &encoders["spec"]["replicas"]);
    assert_eq!(named(&objects, "Service", text(service))["spec"]["clusterIP"], "None");
    let pods = 0..replicas.as_u64().expect("a number");
    let pods: Vec<String> =
        pods.map(|pod| format!("http://encoder-{pod}.{}:8000", text(service))).collect();
    assert_eq!(arguments(proxy, "--encoder="), pods);
    let [decoder] = arguments(proxy, "--decoder=")[..] else { panic!("one decoder") };
    let port = &named(&objects, "Service", "decoder")["spec"]["ports"][0]["port"];
    assert_eq!(decoder, format!("http://decoder:{port}"));
    let models = |kind, name| arguments(named(&objects, kind, name), "--model=").concat();
    assert_eq!(models("StatefulSet", "encoder"), models("Deployment", "decoder"), "one model");
}
