//! The table of scenarios in `docs/scenarios.md`: every row of the fault catalogue has a scenario, or a
//! reason why it has none.

use std::collections::{BTreeMap, BTreeSet};

use springtide_sim::scenario;

/// The rows of the fault catalogue, by number; 27, 36 and others that are missing were never given out.
const ROWS: [u32; 109] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    28, 29, 30, 31, 32, 33, 34, 35, 37, 38, 40, 41, 42, 44, 45, 46, 47, 48, 49, 50, 51, 52, 54, 55,
    56, 57, 58, 59, 60, 61, 62, 63, 64, 66, 67, 68, 69, 70, 71, 72, 73, 75, 76, 77, 78, 79, 80, 81,
    83, 85, 86, 87, 88, 89, 90, 92, 94, 95, 96, 97, 99, 100, 101, 102, 104, 106, 107, 108, 110,
    112, 113, 114, 115, 117, 118, 122, 123, 124, 126, 127, 129, 130, 132,
];

fn documents() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenarios.md");
    std::fs::read_to_string(path).expect("docs/scenarios.md")
}

/// The part of the document under a heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, section) = text.split_once(heading).expect("the heading is there");
    section.split("\n## ").next().unwrap_or_default()
}

/// The rows whose reason for having no scenario is written down.
fn reasons(text: &str) -> BTreeMap<&str, &str> {
    let lines = section(text, "## Rows without a scenario").lines();
    let cells = lines.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    cells
        .filter_map(|line| line.split_once(" | "))
        .filter(|(row, _)| row.starts_with('F'))
        .collect()
}

#[test]
fn every_scenario_is_named_after_a_row_and_documented() {
    let text = documents();
    let table = section(&text, "## Rows and scenarios");
    let documented: BTreeSet<&str> = table.lines().filter(|line| line.starts_with("| F")).collect();
    let mut expected = BTreeSet::new();
    for scenario in scenario::all() {
        let first = scenario.name.split('_').next().unwrap().to_uppercase();
        assert!(scenario.rows.contains(&first.as_str()), "{} is not of {first}", scenario.name);
        for row in scenario.rows {
            expected.insert(format!("| {row} | `{}` | {} |", scenario.name, scenario.text));
        }
    }
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    let missing: Vec<_> = expected.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&expected).collect();
    assert!(missing.is_empty() && stale.is_empty(), "missing {missing:#?}, stale {stale:#?}");
}

#[test]
fn every_row_has_a_scenario_or_a_reason() {
    let text = documents();
    let reasons = reasons(&text);
    let shown: BTreeSet<&str> =
        scenario::all().flat_map(|scenario| scenario.rows).copied().collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|number| format!("F{number:03}")).collect();
    for row in &rows {
        match (shown.contains(row.as_str()), reasons.contains_key(row.as_str())) {
            (false, false) => panic!("{row} has neither a scenario nor a reason"),
            (true, true) => panic!("{row} has a scenario, and a reason why it has none"),
            _ => {}
        }
    }
    let unknown = |row: &&&str| !rows.contains(**row);
    assert_eq!(shown.iter().find(unknown), None, "scenarios of rows that there are not");
    assert_eq!(reasons.keys().find(unknown), None, "reasons for rows that there are not");
}

#[test]
fn reasons_name_files_that_exist() {
    for (row, reason) in reasons(&documents()) {
        assert!(reason.len() > 40, "{row}: a reason is a sentence: {reason}");
        for file in reason.split('`').skip(1).step_by(2) {
            let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&path).exists(), "{row} names {file}, which is not there");
        }
    }
}

#[test]
fn there_are_at_least_eighty_scenarios() {
    let names: BTreeSet<&str> = scenario::all().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenario::all().count(), "names are unique");
    assert!(names.len() >= 80, "scenarios: {}", names.len());
}
