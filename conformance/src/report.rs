//! What is said of a comparison: tables for people, JSON for programs.

use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Map, Value, json};

use crate::{
    campaign::Outcome,
    compare::Divergence,
    coverage::{Coverage, Row},
};

/// Whether a comparison is a success: nothing differs and, if it was a whole one, no cell is missing.
pub fn is_good(outcome: &Outcome) -> bool {
    outcome.differences.is_empty()
        && (!outcome.complete || outcome.tally.coverage.missing().is_empty())
}

/// The report as text.
pub fn text(outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let mut text = format!("{}\n", table(&tally.coverage));
    text += &format!(
        "\nreal store: Mooncake Store {}, tcp\n\
         compared: {} operations in {} calls, {} lists of keys; {} written sequences, {} random ones, \
         {} cut short near the end of a lease\n",
        outcome.version,
        tally.operations,
        tally.calls,
        tally.key_lists,
        outcome.scenarios.len(),
        outcome.sequences,
        outcome.near_edge,
    );
    for divergence in Divergence::ALL {
        let count = tally.divergences.get(&divergence).copied().unwrap_or_default();
        text += &format!("divergence {divergence}: {count} times\n");
    }
    for (name, why) in &outcome.left_out {
        text += &format!("left out without --slow: {name} ({why})\n");
    }
    if outcome.complete {
        for (operation, row) in tally.coverage.missing() {
            text += &format!("NEVER COVERED: {operation} in state {row:?}\n");
        }
    }
    for found in &outcome.differences {
        text += &format!("\nDIFFERENCE in {}: {}\n", found.sequence, found.difference);
        if let Some(file) = &found.file {
            text += &format!("  kept in {}; it runs first from now on\n", file.display());
        }
    }
    text += &format!("{} differences\n", outcome.differences.len());
    text
}

/// The report as JSON.
pub fn json(outcome: &Outcome) -> Value {
    let tally = &outcome.tally;
    let covered: Vec<Value> = Coverage::operations()
        .flat_map(|operation| Row::ALL.map(|row| (operation, row)))
        .map(|(operation, row)| {
            json!({ "operation": operation, "state": row, "count": tally.coverage.get(operation, row) })
        })
        .filter(|cell| cell["count"] != 0)
        .collect();
    json!({
        "real_version": outcome.version,
        "operations": tally.operations,
        "calls": tally.calls,
        "key_lists": tally.key_lists,
        "written_sequences": outcome.scenarios.len(),
        "seconds": outcome.scenarios.iter().map(seconds).collect::<Map<_, _>>(),
        "left_out": outcome.left_out.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "random_sequences": outcome.sequences,
        "near_edge": outcome.near_edge,
        "divergences": tally.divergences,
        "covered": covered,
        "never_covered": if outcome.complete { tally.coverage.missing() } else { Vec::new() },
        "differences": outcome.differences,
    })
}

fn seconds((name, took): &(String, Duration)) -> (String, Value) {
    (name.clone(), json!(took.as_secs_f64()))
}

/// States across, operations down.
fn table(coverage: &Coverage) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    let states = Row::ALL.map(|row| format!("{row:?}").to_lowercase());
    table.set_header([vec!["operation".to_owned()], states.to_vec()].concat());
    for operation in Coverage::operations() {
        let counts = Row::ALL.map(|row| match coverage.get(operation, row) {
            0 => "–".to_owned(),
            count => count.to_string(),
        });
        table.add_row([vec![operation.to_owned()], counts.to_vec()].concat());
    }
    table
}
