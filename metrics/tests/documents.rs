//! The document, the dashboard and the alert rules name metrics that exist, and the document names all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use springtide_metrics::catalogue::{self, Metric};

/// What is on every metric, what Prometheus adds, and the buckets of histograms.
const EVERYWHERE: [&str; 5] = ["process", "rank", "job", "instance", "le"];

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The metric that is meant by `name`: one of its series, or in words the whole of it.
fn exposed(name: &str, rest: &str) -> Option<&'static Metric> {
    let in_words = !rest.starts_with(['{', '[']);
    let is_it = |metric: &&Metric| {
        metric.series().iter().any(|one| one == name) || in_words && metric.exposed() == name
    };
    catalogue::ALL.iter().copied().find(is_it)
}

/// The names of metrics in a text, with what follows each.
fn named(text: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("springtide_").filter_map(|(at, _)| {
        let begins = !text[..at].ends_with(is_part);
        let len = text[at..].find(|c| !is_part(c)).unwrap_or(text.len() - at);
        begins.then_some((&text[at..at + len], &text[at + len..]))
    });
    starts.collect()
}

/// The labels in the selector that begins a text: `{a="1",b=~"2"}`.
fn labels(rest: &str) -> Vec<String> {
    let Some(selector) = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()) else {
        return Vec::new();
    };
    let selector = selector.replace("\\\"", "\"");
    let parts = selector.split(',').filter(|part| !part.is_empty());
    let name = |part: &str| part.split(['=', '!']).next().unwrap_or_default().trim().to_owned();
    parts.map(name).collect()
}

/// What is wrong in a text that names metrics.
fn complaints(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, rest) in named(text) {
        let Some(metric) = exposed(name, rest) else {
            found.push(format!("there is no metric {name}"));
            continue;
        };
        for label in labels(rest) {
            if !metric.labels.contains(&label.as_str()) && !EVERYWHERE.contains(&label.as_str()) {
                found.push(format!("{name} has no label {label}"));
            }
        }
    }
    found
}

/// The table of the document.
fn table() -> String {
    let mut table =
        "| metric | kind | unit | labels | what it is |\n|---|---|---|---|---|".to_owned();
    for metric in catalogue::ALL {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, unit) = (metric.exposed(), metric.kind.name(), metric.unit());
        // Writing to a string does not fail.
        let _ = write!(
            table,
            "\n| `{name}` | {kind} | {unit} | {} | {} |",
            labels.join(", "),
            metric.help()
        );
    }
    table
}

#[test]
fn the_document_has_every_metric_as_it_is() {
    let document = read("metrics.md");
    let table = table();
    assert!(
        document.contains(&table),
        "docs/metrics.md differs from the catalogue; put in:\n{table}"
    );
    assert_eq!(complaints(&document), [""; 0]);
}

#[test]
fn the_dashboard_and_the_rules_name_what_exists() {
    for name in ["grafana/springtide.json", "prometheus/springtide.rules.yml"] {
        let text = read(name);
        assert!(named(&text).len() > 10, "{name} names few metrics");
        assert_eq!(complaints(&text), [""; 0], "{name}");
    }
}

#[test]
fn what_does_not_exist_is_found() {
    assert_eq!(
        complaints("springtide_saves is a counter"),
        ["there is no metric springtide_saves"]
    );
    let selector = r#"rate(springtide_saves_total{outcome="failed",code!="1",job=~"a"}[5m])"#;
    assert_eq!(complaints(selector), ["springtide_saves_total has no label code"]);
    let quoted = r#""expr": "springtide_puts_total{reason=\"none\"} + vllm:springtide_lost_total""#;
    assert_eq!(
        complaints(quoted),
        ["springtide_puts_total has no label reason", "there is no metric springtide_lost_total"]
    );
}

#[test]
fn every_panel_of_the_dashboard_has_a_query_a_unit_and_words() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana/springtide.json")).unwrap();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut titles = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().expect("a title");
        assert!(titles.insert(title), "two panels are named {title}");
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 15), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let query = target["expr"].as_str().expect("a query");
            assert!(!named(query).is_empty(), "{title}: {query}");
            let balance = |open, close| query.matches(open).count() == query.matches(close).count();
            assert!(
                balance('(', ')') && balance('{', '}') && balance('[', ']'),
                "{title}: {query}"
            );
        }
    }
    assert!(titles.len() >= 12, "{titles:?}");
}

/// An alert rule, with all that one may have.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasting: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// What promtool says of queries, `ci/lint` asks it where it is there.
#[test]
fn every_rule_has_a_name_a_query_and_words() {
    let file: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(&read("prometheus/springtide.rules.yml")).expect("YAML");
    let rules = file["groups"][0]["rules"].clone();
    let rules: Vec<Rule> = serde_yaml_ng::from_value(rules).expect("rules");
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.alert.as_str()).collect();
    assert_eq!(names.len(), rules.len(), "two rules have one name");
    assert!(names.len() >= 10, "{names:?}");
    for Rule { alert, expr, lasting, labels, annotations } in &rules {
        assert!(!named(expr).is_empty(), "{alert}: {expr}");
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            assert_eq!(expr.matches(open).count(), expr.matches(close).count(), "{alert}: {open}");
        }
        assert!(lasting.as_ref().is_none_or(|time| time.ends_with('m')), "{alert}");
        let severity = labels["severity"].as_str();
        assert!(["warning", "critical"].contains(&severity), "{alert}: {severity}");
        for key in ["summary", "description"] {
            assert!(annotations[key].len() > 15, "{alert}: {key}");
        }
    }
}
