//! The data race once more, as a test: what `ci/tsan.supp` says of the test harness must not hide it.

#[path = "../src/race.rs"]
mod race;

#[test]
#[ignore = "a bug on purpose: `ci/sanitize thread` runs it and expects a report"]
fn data_race() {
    race::data_race();
}
