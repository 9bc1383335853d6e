//! The command line: exit codes, errors that name the field, output for people and for programs.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use springtide_sim::{
    minimize::Size,
    plan::{Fault, FaultKind, Item, Op, Plan, Request, Scheduled, Workload},
    scenario,
};

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(args).env("CARGO_TARGET_DIR", directory("out"));
    command.output().expect("the simulator starts")
}

fn directory(name: &str) -> PathBuf {
    // Tests of other crates write there, too.
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{name}"))
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("the output is text")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Writes a plan's text to a file of its own.
fn file(name: &str, text: &str) -> String {
    let path = directory(name);
    std::fs::write(&path, text).expect("a plan file");
    path.display().to_string()
}

/// A short plan with one request.
fn plan() -> Plan {
    let mut plan = Plan::base("test", Workload::W6);
    plan.phases.settle_ms = 3_000;
    plan.requests.push(Request {
        at_ms: 600,
        encoder: 0,
        prefill: 0,
        items: vec![Item { id: "a".into(), rows: 1024 }],
        decode_steps: 1,
        abort_after_ms: None,
        preempt: false,
        early: false,
    });
    plan
}

#[test]
fn help() {
    let output = sim(&["--help"]);
    assert_eq!(code(&output), Some(0));
    insta::assert_snapshot!(out(&output));
}

#[test]
fn kinds_of_fault() {
    let output = sim(&["faults"]);
    assert_eq!(code(&output), Some(0));
    insta::assert_snapshot!(out(&output));
}

#[test]
fn kinds_of_fault_for_programs() {
    let output = sim(&["faults", "--json"]);
    assert_eq!(code(&output), Some(0));
    let kinds: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON");
    let kinds = kinds.as_array().expect("a list");
    assert_eq!(kinds.len(), FaultKind::ALL.len());
    let code = kinds.iter().find(|kind| kind["name"] == "store_code").expect("store_code");
    assert_eq!(code["moments"], serde_json::json!(["before", "after"]));
}

#[test]
fn kinds_of_fault_are_switched_on_and_off() {
    for unknown in ["--fault", "--no-fault"] {
        let output = sim(&[unknown, "gremlins"]);
        assert_eq!(code(&output), Some(2));
        assert!(errors(&output).contains("expected one of crash, pause"), "{}", errors(&output));
    }
    let faults = |args: &[&str]| {
        let all = [&["--seed", "3", "--json"], args].concat();
        let report: serde_json::Value = serde_json::from_str(&out(&sim(&all))).expect("JSON");
        report["runs"][0]["faults"].as_u64()
    };
    assert!(faults(&["--fault", "pause", "--fault", "slow"]).is_some_and(|count| count > 0));
    assert_eq!(faults(&["--fault", "pause", "--no-fault", "pause"]), Some(0));
}

#[test]
fn a_planted_bug_is_minimized_to_a_few_entries() {
    // Without checksums nobody notices a byte that changes on its way: that is the bug.
    let mut failing = plan();
    failing.connector.payload_checksum = false;
    failing.connector.batch_items_max = 2;
    failing.topology.tensor_parallel = 2;
    for n in 0..8 {
        let mut request = failing.requests[0].clone();
        request.at_ms += 50 * n;
        request.items[0].id = format!("item{n}");
        request.items.push(Item { id: format!("other{n}"), rows: 100 });
        failing.requests.push(request);
        let pause = Fault::Pause { host: "node1".into(), for_ms: 10 + n };
        failing.faults.push(Scheduled { at_ms: 600 + 100 * n, fault: pause });
    }
    let (host, op) = ("prefill0".to_owned(), Op::GetTransfer);
    let fault =
        Fault::FlippedByte { host, op, position: 40_000, item: None, count: 9, for_ms: 1_000 };
    failing.faults.push(Scheduled { at_ms: 550, fault });
    let path = file("planted.json", &failing.to_json());
    let output = sim(&["minimize", &path]);
    assert_eq!(code(&output), Some(0), "{}", errors(&output));
    let text = out(&output);
    assert!(text.starts_with("I2 integrity: "), "{text}");
    assert!(text.contains("before: 9 requests for 17 items, 9 faults"), "{text}");
    let minimal = Plan::read(&directory("planted.minimal.json")).expect("the smallest plan");
    let size = Size::of(&minimal);
    assert!(size.entries() <= 5, "{size}");
    assert_eq!((size.requests, size.faults, size.settings), (1, 1, 1), "{size}");
    let again = sim(&["--plan", &directory("planted.minimal.json").display().to_string()]);
    assert_eq!(code(&again), Some(1), "it still fails");
    let good = sim(&["minimize", &file("good.json", &plan().to_json())]);
    assert_eq!(code(&good), Some(2));
    assert!(errors(&good).contains("keeps all of them"), "{}", errors(&good));
}

#[test]
fn the_list_names_every_scenario() {
    let list = out(&sim(&["--list"]));
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    let names: Vec<&str> = scenario::all().map(|scenario| scenario.name).collect();
    assert_eq!(listed, names);
}

#[test]
fn an_unknown_scenario_is_a_usage_error() {
    let output = sim(&["--scenario", "f999_nothing"]);
    assert_eq!(code(&output), Some(2));
    let errors = errors(&output);
    assert!(errors.contains("got `f999_nothing`; near it: f"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn the_beginning_of_a_name_names_all_scenarios_that_begin_so() {
    let report = out(&sim(&["--scenario", "f00", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let groups = report["runs"].as_array().expect("runs").iter().map(|run| &run["group"]);
    let expected = scenario::all().map(|s| s.name).filter(|name| name.starts_with("f00"));
    assert_eq!(groups.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn the_plan_of_a_scenario_is_printed_and_judged_as_the_scenario_is() {
    let printed = out(&sim(&["plan", "--scenario", "f001"]));
    let of_one = Plan::from_json(&printed).expect("a plan");
    assert_eq!(of_one.name, "f001_timeout_while_put_runs");
    let whole = sim(&["--scenario", &of_one.name, "--json"]);
    let replayed = sim(&["--plan", &file("f001.json", &printed), "--json"]);
    assert_eq!(out(&whole), out(&replayed));
    assert_eq!(errors(&replayed), "");
    let changed = printed.replace("\"seed\": 0", "\"seed\": 1");
    let replayed = sim(&["--plan", &file("changed.json", &changed), "--json"]);
    assert!(errors(&replayed).contains("not the plan of f001_"), "{}", errors(&replayed));
    assert_eq!(code(&sim(&["plan", "--scenario", "f0"])), Some(2));
}

#[test]
fn a_list_for_programs() {
    let list: serde_json::Value = serde_json::from_str(&out(&sim(&["--list", "--json"]))).unwrap();
    let names = list.as_array().expect("an array").iter().map(|entry| &entry["name"]);
    assert_eq!(names.collect::<Vec<_>>(), scenario::all().map(|s| s.name).collect::<Vec<_>>());
}

#[test]
fn arguments_that_would_have_no_effect_are_refused() {
    for args in [
        &["--list", "--seed", "7"][..],
        &["--list", "--trace"],
        &["--scenario", "f001", "--plans", "2"],
        &["meta", "--plans", "0", "--random-only"],
        &["plan", "--seed", "1", "--scenario", "f001"],
    ] {
        assert_eq!(code(&sim(args)), Some(2), "{args:?}");
    }
}

#[test]
fn a_missing_value_is_a_usage_error() {
    for args in [&["--seed"][..], &["plan"], &["--jobs", "0"], &["--unknown"]] {
        assert_eq!(code(&sim(args)), Some(2), "{args:?}");
    }
}

#[test]
fn bad_plan_files_are_usage_errors_that_name_the_field() {
    let good = plan().to_json();
    let bad = [
        ("version", good.replace("\"version\": 1", "\"version\": 2")),
        ("unknown", good.replace("\"seed\": 0", "\"seed\": 0, \"sede\": 1")),
        ("range", good.replace("\"replicas\": 1", "\"replicas\": 9")),
        ("missing", good.replace("\"tick_ms\": 2,", "")),
        ("json", good.replace("\"name\"", "name")),
        ("empty", String::new()),
        ("list", "[]".to_owned()),
        ("no-version", good.replace("\"version\": 1,", "")),
        ("name", good.replace("\"name\": \"test\"", "\"name\": \"\\u001b[31m\"")),
    ];
    let mut messages = String::new();
    for (name, text) in bad {
        let output = sim(&["--plan", &file(&format!("{name}.json"), &text)]);
        assert_eq!(code(&output), Some(2), "{name}");
        messages += &errors(&output).replace(&directory("").display().to_string(), "TMP/");
    }
    let absent = sim(&["--plan", "no/such/plan.json"]);
    assert_eq!(code(&absent), Some(2));
    messages += &errors(&absent);
    insta::assert_snapshot!(messages);
}

#[test]
fn a_seed_gives_the_same_hash_twice() {
    let last = |output: &Output| out(output).lines().last().map(str::to_owned);
    let (first, second) = (sim(&["--seed", "7"]), sim(&["--seed", "7"]));
    assert_eq!(code(&first), Some(0));
    assert_eq!(last(&first), last(&second));
    let line = last(&first).unwrap();
    assert!(line.starts_with("0 violations in 1 plan, trace hash "), "{line}");
}

#[test]
fn the_hash_does_not_depend_on_the_threads() {
    let hash = |jobs| {
        let output = sim(&["--seed", "20", "--plans", "4", "--jobs", jobs, "--json"]);
        assert_eq!(code(&output), Some(0));
        let report: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON");
        assert_eq!(report["runs"].as_array().map(Vec::len), Some(4));
        assert_eq!(report["violations"].as_array().map(Vec::len), Some(0));
        report["trace_hash"].as_str().map(str::to_owned)
    };
    assert_eq!(hash("1"), hash("4"));
}

#[test]
fn plans_run_twice_do_not_differ() {
    let output = sim(&["meta", "--plans", "3", "--random-only"]);
    assert_eq!(code(&output), Some(0), "{}", out(&output));
    assert!(
        out(&output).starts_with("no difference in 3 plans run twice, trace hash "),
        "{}",
        out(&output)
    );
}

/// A plan that violates integrity: without checksums nobody notices a byte that changes on its way.
fn violating() -> Plan {
    let mut plan = plan();
    plan.connector.payload_checksum = false;
    let (host, op) = ("prefill0".to_owned(), Op::GetTransfer);
    let fault =
        Fault::FlippedByte { host, op, position: 40_000, item: None, count: 9, for_ms: 1_000 };
    plan.faults.push(Scheduled { at_ms: 550, fault });
    plan
}

#[test]
fn a_reader_that_leaves_does_not_change_the_verdict() {
    let plan = file("pipe.json", &violating().to_json());
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(["--trace", "--plan", &plan]).env("CARGO_TARGET_DIR", directory("out"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((code(&output), errors(&output).as_str()), (Some(1), ""));
}

#[test]
fn a_violation_exits_1_and_leaves_a_plan_that_violates_again() {
    let output = sim(&["--json", "--plan", &file("violates.json", &violating().to_json())]);
    assert_eq!(code(&output), Some(1));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON");
    let violation = &report["violations"][0];
    assert_eq!(violation["oracle"], "I2");
    assert!(violation["event"].as_u64().is_some_and(|event| event > 0), "{violation}");
    assert!(violation["history"].as_array().is_some_and(|lines| !lines.is_empty()));
    let replay = violation["plan_file"].as_str().expect("a plan file");
    let again = sim(&["--trace", "--plan", replay]);
    assert_eq!(code(&again), Some(1));
    let text = out(&again);
    assert!(text.contains("I2 integrity violated by test"), "{text}");
    assert!(
        text.contains("delivered m0/a bfloat16[1024, 32] to rank 0: differs from byte"),
        "{text}"
    );
}

#[test]
fn a_request_that_never_ends_exits_3() {
    let mut plan = plan();
    plan.engine.encode_us_per_row = 10_000;
    plan.engine.encoder_timeout_ms = 100;
    plan.engine.prefill_timeout_ms = 60_000;
    plan.requests[0].early = true;
    let output = sim(&["--plan", &file("late.json", &plan.to_json())]);
    assert_eq!(code(&output), Some(3), "{}", out(&output));
    assert!(out(&output).contains("I5 liveness violated by test"));
}

#[test]
fn a_timeline_as_text_is_the_trace() {
    let timeline = sim(&["timeline", "--scenario", "f001_timeout_while_put_runs"]);
    let trace = sim(&["--trace", "--scenario", "f001_timeout_while_put_runs"]);
    assert_eq!((code(&timeline), out(&timeline)), (Some(0), out(&trace)));
    assert!(out(&timeline).contains("request 0 sent"), "{}", out(&timeline));
    for args in [&["timeline"][..], &["timeline", "x.json", "--seed", "1"]] {
        assert_eq!(code(&sim(args)), Some(2), "{args:?}");
    }
}

#[test]
fn a_page_shows_the_violation_and_how_to_see_it_again() {
    let (page, plan) = (directory("page.html"), file("page.json", &violating().to_json()));
    let shown = page.display().to_string();
    let runs = [vec!["timeline", &plan, "--html", &shown], vec!["--plan", &plan, "--html", &shown]];
    for args in runs {
        _ = std::fs::remove_file(&page);
        assert_eq!(code(&sim(&args)), Some(1), "{args:?}");
        let text = std::fs::read_to_string(&page).expect("a page");
        for words in ["\"promise\":\"I2 integrity\"", "./ci/just sim --trace --plan ", "<canvas"] {
            assert!(text.contains(words), "{args:?}: {words}");
        }
    }
    let nowhere = sim(&["timeline", "--seed", "1", "--html", "no/such/page.html"]);
    assert_eq!(code(&nowhere), Some(2));
    assert!(errors(&nowhere).contains("error: no/such/page.html: "), "{}", errors(&nowhere));
}

#[test]
fn of_many_runs_without_a_violation_there_is_no_page() {
    let page = directory("no-page.html");
    let shown = page.display().to_string();
    let two = sim(&["--seed", "1", "--plans", "2", "--html", &shown]);
    assert_eq!((code(&two), page.exists()), (Some(0), false));
    assert!(errors(&two).contains("is not written: no violation to show"), "{}", errors(&two));
    let one = sim(&["--seed", "1", "--html", &shown]);
    assert_eq!((code(&one), page.exists()), (Some(0), true));
    std::fs::remove_file(&page).expect("the page");
}
