//! The time in which two arms are compared: real time with the real store, virtual time in tests.

use std::time::Duration;

/// A clock that can be waited for.
pub trait Timeline {
    /// The time since the start.
    fn now(&self) -> Duration;

    /// Waits until `at`; not at all if that is over.
    fn wait_until(&mut self, at: Duration);
}

/// The time of the machine.
#[derive(Debug)]
#[expect(clippy::disallowed_types, reason = "the real store lives in real time")]
pub struct RealTime(std::time::Instant);

impl RealTime {
    /// Starts now.
    pub fn start() -> Self {
        #[expect(clippy::disallowed_types, reason = "the real store lives in real time")]
        Self(std::time::Instant::now())
    }
}

impl Timeline for RealTime {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait_until(&mut self, at: Duration) {
        let left = at.saturating_sub(self.now());
        #[expect(clippy::disallowed_methods, reason = "the real store lives in real time")]
        std::thread::sleep(left);
    }
}

/// Time that passes only where it is waited for.
#[derive(Debug, Default)]
pub struct VirtualTime(Duration);

impl Timeline for VirtualTime {
    fn now(&self) -> Duration {
        self.0
    }

    fn wait_until(&mut self, at: Duration) {
        self.0 = self.0.max(at);
    }
}
