//! The small worlds: all of them are exhausted, and what they say of the connector is that it keeps its
//! promises. That the search finds bugs is shown by the mutants that it must catch.

use std::collections::BTreeSet;

use springtide_sim::explore::{WORLDS, explore};

#[test]
fn there_are_six_worlds_with_names_of_their_own() {
    let names: BTreeSet<&str> = WORLDS.iter().map(|world| world.name).collect();
    assert!(names.len() >= 6 && names.len() == WORLDS.len(), "{names:?}");
}

#[test]
fn the_smallest_world_is_exhausted() {
    let world = WORLDS.iter().find(|world| world.name == "two_loads_of_one_key").unwrap();
    let explored = explore(*world, 1_000_000);
    assert!(explored.violation.is_none(), "{explored:?}");
    assert!(explored.exhausted && explored.executions > 100, "{explored:?}");
    assert_eq!(explore(*world, 1_000_000).states, explored.states, "the search is deterministic");
}

#[test]
fn a_search_that_is_cut_off_says_so() {
    let explored = explore(WORLDS[0], 10);
    assert!(!explored.exhausted, "{explored:?}");
    assert_eq!(explored.executions + explored.pruned, 10);
}
