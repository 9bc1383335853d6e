//! pools.
use super::Scenario;
pub(super) const SCENARIOS: &[Scenario] = &[];
