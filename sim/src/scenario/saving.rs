//! saving.
use super::Scenario;
pub(super) const SCENARIOS: &[Scenario] = &[];
