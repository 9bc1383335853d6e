//! Which connector a plan runs.

use serde::{Deserialize, Serialize};

/// Which connector a plan runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The production connector.
    #[default]
    Springtide,
    /// The design of vllm#30468, for comparison.
    Pr30468,
}

impl Subject {
    /// Every subject.
    pub const ALL: [Self; 2] = [Self::Springtide, Self::Pr30468];

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Springtide => "springtide",
            Self::Pr30468 => "pr30468",
        }
    }

    /// Whether this is the production connector, which a plan file does not name.
    pub fn is_springtide(&self) -> bool {
        *self == Self::Springtide
    }
}
