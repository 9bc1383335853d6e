//! Plan files: they come with bug reports.

use fake_store::FaultPlan;
use springtide_plan::Plan;

/// A plan of the simulator, or a fault plan of the fake store.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(plan) = Plan::from_json(text) {
        let again = Plan::from_json(&plan.to_json()).expect("what was read can be read again");
        assert_eq!(again, plan);
        let hosts = plan.hosts();
        assert!(hosts.len() < 10_000, "{} hosts", hosts.len());
        assert!(plan.items().len() <= text.len());
    }
    if let Ok(plan) = FaultPlan::from_json(text) {
        let written = serde_json::to_string(&plan).expect("a fault plan is plain data");
        let again = FaultPlan::from_json(&written).expect("what was read can be read again");
        assert_eq!(again, plan);
    }
}
