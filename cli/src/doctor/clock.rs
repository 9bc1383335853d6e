//! Clocks: deadlines are read from the monotonic one, no two hosts' are compared.

use super::{machine::Machine, report::Finding};

const SOURCE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Sources that cost a system call or more to read.
const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

/// 2025-01-01: an earlier wall clock was never set.
const PLAUSIBLE: i64 = 1_735_689_600;

/// What time is read from.
pub(super) fn source(machine: &Machine) -> Finding {
    const CHECK: &str = "clock";
    if machine.outside.wall_seconds() < PLAUSIBLE {
        let text = "the wall clock is before 2025: logs of several hosts cannot be compared";
        return Finding::warning(CHECK, text, "set it, for example with chrony");
    }
    // No other host was asked.
    let unknown = "the offset to other hosts is not looked at, and no deadline depends on it";
    match machine.text(SOURCE) {
        Some(source) if SLOW.contains(&source.as_str()) => Finding::warning(
            CHECK,
            format!("source {source}, which is slow to read; {unknown}"),
            "let the kernel use tsc (its log says why it does not)",
        ),
        Some(source) => Finding::ok(CHECK, format!("source {source}; {unknown}")),
        None => Finding::ok(CHECK, format!("source not known; {unknown}")),
    }
}
