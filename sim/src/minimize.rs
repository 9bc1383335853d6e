//! From a failing plan to the smallest that still fails, by leaving out and making smaller.
//!
//! A step is kept when the plan that comes of it can be run and breaks the same promise. Lists (faults,
//! requests, items) shrink by halves, then one entry at a time; hosts go with their requests moved elsewhere;
//! settings go back to the base plan's; times and counts become smaller. The rounds end when a whole one
//! changes nothing: then no single step is left that could be taken, which is what 1-minimal means.

use std::{fmt, ops::Range};

use serde_json::Value;

use crate::{
    campaign::run_on,
    oracle::OracleId,
    plan::{Plan, Request, Workload},
    recorder::Keep,
    world::engine::EngineKind,
};

/// Sections of a plan whose fields are settings.
const SETTINGS: [&str; 5] = ["topology", "link", "connector", "store", "engine"];
/// Fields in them that are none: they say how many hosts there are.
const HOSTS: [&str; 3] = ["encoders", "prefills", "nodes"];

/// How large a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Hosts.
    pub hosts: usize,
    /// Requests.
    pub requests: usize,
    /// Items of all requests.
    pub items: usize,
    /// Faults.
    pub faults: usize,
    /// Settings that differ from the base plan's.
    pub settings: usize,
    /// Simulated milliseconds.
    pub ms: u64,
}

impl Size {
    /// The size of `plan`.
    pub fn of(plan: &Plan) -> Self {
        Self {
            hosts: plan.hosts().len(),
            requests: plan.requests.len(),
            items: plan.requests.iter().map(|request| request.items.len()).sum(),
            faults: plan.faults.len(),
            settings: changed(&value(plan), &value(&base(plan))).len(),
            ms: plan.phases.end_at(),
        }
    }

    /// Entries: what happens in the plan, apart from where.
    pub fn entries(&self) -> usize {
        self.requests + self.faults
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, requests, items, faults, settings, ms } = self;
        write!(
            f,
            "{requests} requests for {items} items, {faults} faults, {hosts} hosts, {settings} \
             settings, {ms} ms"
        )
    }
}

/// What came of minimizing a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimal {
    /// The plan.
    pub plan: Plan,
    /// The promise that it breaks.
    pub oracle: OracleId,
    /// Plans that were tried.
    pub tried: u64,
    /// Whether no single step is left; false when the tries were used up first.
    pub is_minimal: bool,
}

impl Minimal {
    /// A test that fails for as long as the plan does, to be pasted.
    pub fn test(&self, engine: EngineKind) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = self.plan.name.chars().map(plain).collect();
        let json = self.plan.to_json();
        format!(
            "#[test]\nfn {name}_keeps_{promise}() {{\n    let plan = Plan::from_json(\n        \
             r#\"{json}\"#,\n    );\n    let outcome = run_on(EngineKind::{engine:?}, \
             &plan.expect(\"a plan\"), Keep::Everything);\n    assert_eq!(outcome.violation, None, \"{{}}\", \
             outcome.trace.lines().join(\"\\n\"));\n}}\n",
            promise = self.oracle.name(),
        )
    }
}

/// The promise that a run of `plan` on `engine` breaks, if any.
pub fn broken(plan: &Plan, engine: EngineKind) -> Option<OracleId> {
    run_on(engine, plan, Keep::Nothing).violation.map(|violation| violation.oracle)
}

/// Minimizes a plan that `broken` says breaks a promise, with at most `tries` runs; `None` if it breaks none.
pub fn minimize(
    plan: &Plan,
    tries: u64,
    broken: &dyn Fn(&Plan) -> Option<OracleId>,
) -> Option<Minimal> {
    let oracle = broken(plan)?;
    let mut work = Work { plan: plan.clone(), oracle, tried: 1, tries, broken };
    let is_minimal = loop {
        let before = work.plan.clone();
        work.round();
        if work.tried >= tries {
            break false;
        }
        if work.plan == before {
            break true;
        }
    };
    let Work { mut plan, tried, .. } = work;
    plan.name = format!("{} minimal", plan.name);
    Some(Minimal { plan, oracle, tried, is_minimal })
}

/// A plan while it is made smaller.
struct Work<'a> {
    plan: Plan,
    oracle: OracleId,
    tried: u64,
    tries: u64,
    broken: &'a dyn Fn(&Plan) -> Option<OracleId>,
}

impl Work<'_> {
    /// Takes every step once that can be taken.
    fn round(&mut self) {
        self.list(|plan| plan.faults.len(), |plan, range| _ = plan.faults.drain(range));
        self.list(|plan| plan.requests.len(), |plan, range| _ = plan.requests.drain(range));
        for index in 0..self.plan.requests.len() {
            let (length, drop) = (
                move |plan: &Plan| plan.requests[index].items.len(),
                move |plan: &mut Plan, range| _ = plan.requests[index].items.drain(range),
            );
            self.list(length, drop);
        }
        self.hosts();
        self.settings();
        self.requests();
        self.times();
    }

    /// Goes on with `candidate` if it is another plan that can run and breaks the same promise.
    fn keep(&mut self, candidate: Plan) -> bool {
        if self.tried >= self.tries || candidate == self.plan || candidate.check().is_err() {
            return false;
        }
        self.tried += 1;
        let fails = (self.broken)(&candidate) == Some(self.oracle);
        if fails {
            self.plan = candidate;
        }
        fails
    }

    /// Leaves entries of a list out: halves first, then smaller parts, at last each by itself.
    fn list(&mut self, length: impl Fn(&Plan) -> usize, drop: impl Fn(&mut Plan, Range<usize>)) {
        let mut part = length(&self.plan).div_ceil(2);
        while part > 0 {
            let mut start = 0;
            while start < length(&self.plan) {
                let end = (start + part).min(length(&self.plan));
                let mut candidate = self.plan.clone();
                drop(&mut candidate, start..end);
                if !self.keep(candidate) {
                    start += part;
                }
            }
            part = if part == 1 { 0 } else { part.div_ceil(2) };
        }
    }

    /// Leaves hosts out, their requests going to the first of their kind, their faults with them.
    fn hosts(&mut self) {
        for kind in ["encoder", "prefill", "node"] {
            let hosts = *count(&mut self.plan.clone(), kind);
            for number in (0..hosts).rev() {
                self.keep(without(&self.plan, kind, number));
            }
        }
    }

    /// Takes settings back to the base plan's.
    fn settings(&mut self) {
        for (section, field) in changed(&value(&self.plan), &value(&base(&self.plan))) {
            let mut candidate = value(&self.plan);
            candidate[&section][&field] = value(&base(&self.plan))[&section][&field].clone();
            self.keep_value(candidate);
        }
    }

    /// Makes requests plainer and earlier, and their items smaller.
    fn requests(&mut self) {
        for index in 0..self.plan.requests.len() {
            let steps: [fn(&mut Request); 9] = [
                |r| r.abort_after_ms = None,
                |r| r.preempt = false,
                |r| r.early = false,
                |r| r.decode_steps = 0,
                |r| r.items.iter_mut().for_each(|item| item.rows = item.rows.min(16)),
                |r| r.items.iter_mut().for_each(|item| item.rows = item.rows.min(1024)),
                |r| r.at_ms = 0,
                |r| r.at_ms /= 2,
                |r| r.at_ms -= r.at_ms % 100,
            ];
            for step in steps {
                let mut candidate = self.plan.clone();
                step(&mut candidate.requests[index]);
                self.keep(candidate);
            }
        }
    }

    /// Makes phases shorter, and every number of a fault smaller.
    fn times(&mut self) {
        for (field, length) in numbers(&value(&self.plan)["phases"]) {
            for smaller in [0, length / 2, length - length % 100] {
                let mut candidate = value(&self.plan);
                let now = &mut candidate["phases"][&field];
                // An earlier step of these may have made it smaller still.
                if now.as_u64().is_some_and(|now| smaller < now) {
                    *now = smaller.into();
                    self.keep_value(candidate);
                }
            }
        }
        for index in 0..self.plan.faults.len() {
            let mut candidate = self.plan.clone();
            candidate.faults[index].at_ms = candidate.phases.inject_at();
            self.keep(candidate);
            let Some(name) = fault_name(&self.plan, index) else { continue };
            for (field, number) in numbers(&value(&self.plan)["faults"][index]["fault"][&name]) {
                for smaller in [1, number / 2] {
                    let mut candidate = value(&self.plan);
                    let now = &mut candidate["faults"][index]["fault"][&name][&field];
                    if now.as_u64().is_some_and(|now| smaller < now) {
                        *now = smaller.into();
                        self.keep_value(candidate);
                    }
                }
            }
        }
    }

    fn keep_value(&mut self, candidate: Value) -> bool {
        serde_json::from_value(candidate).is_ok_and(|candidate| self.keep(candidate))
    }
}

/// The plan that settings go back to.
fn base(plan: &Plan) -> Plan {
    Plan::base(&plan.name, Workload::W6)
}

fn value(plan: &Plan) -> Value {
    serde_json::to_value(plan).expect("a plan is plain data")
}

/// Fields of settings that differ from those of another plan.
fn changed(plan: &Value, base: &Value) -> Vec<(String, String)> {
    let fields = |section: &str| plan[section].as_object().into_iter().flatten();
    SETTINGS
        .iter()
        .flat_map(|section| fields(section).map(move |(field, value)| (*section, field, value)))
        .filter(|(_, field, _)| !HOSTS.contains(&field.as_str()))
        .filter(|(section, field, value)| base[section][field.as_str()] != **value)
        .map(|(section, field, _)| (section.to_owned(), field.clone()))
        .collect()
}

/// The numeric fields of an object.
fn numbers(object: &Value) -> Vec<(String, u64)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter_map(|(field, value)| Some((field.clone(), value.as_u64()?))).collect()
}

/// The name under which a plan's file has a fault.
fn fault_name(plan: &Plan, index: usize) -> Option<String> {
    value(plan)["faults"][index]["fault"].as_object()?.keys().next().cloned()
}

fn count<'a>(plan: &'a mut Plan, kind: &str) -> &'a mut u32 {
    match kind {
        "encoder" => &mut plan.topology.encoders,
        "prefill" => &mut plan.topology.prefills,
        _ => &mut plan.topology.nodes,
    }
}

/// The plan without one host of a kind.
fn without(plan: &Plan, kind: &str, number: u32) -> Plan {
    let mut plan = plan.clone();
    let gone = format!("{kind}{number}");
    *count(&mut plan, kind) -= 1;
    // Those behind it move up by one: their faults cannot be told from its own, and go too.
    plan.faults.retain(|scheduled| {
        let behind = |host: &str| {
            host.strip_prefix(kind).and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n > number)
        };
        !scheduled.fault.hosts().iter().any(|host| *host == gone || behind(host))
    });
    for request in &mut plan.requests {
        let instance = match kind {
            "encoder" => &mut request.encoder,
            "prefill" => &mut request.prefill,
            _ => continue,
        };
        *instance = match *instance {
            n if n == number => 0,
            n if n > number => n - 1,
            n => n,
        };
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        generate::generate,
        plan::{Fault, FaultKind},
    };

    /// As if a plan failed that asks for an item twice and crashes a prefill instance.
    fn planted(plan: &Plan) -> Option<OracleId> {
        let twice = plan.requests.iter().any(|request| {
            let same = |other: &&Request| other.items.first() == request.items.first();
            plan.requests.iter().filter(same).count() >= 2
        });
        let crashed = plan.faults.iter().any(|scheduled| {
            matches!(&scheduled.fault, Fault::Crash { host, .. } if host.starts_with("prefill"))
        });
        (twice && crashed).then_some(OracleId::I4)
    }

    fn failing() -> Plan {
        (0..500).map(generate).find(|plan| planted(plan).is_some()).expect("one of 500 plans")
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        let plan = failing();
        let minimal = minimize(&plan, 100_000, &planted).unwrap();
        assert!(minimal.is_minimal);
        assert_eq!(planted(&minimal.plan), Some(OracleId::I4));
        assert_eq!(minimal.plan.check().map_err(|error| error.to_string()), Ok(()));
        let size = Size::of(&minimal.plan);
        assert_eq!((size.requests, size.items, size.faults, size.settings), (2, 2, 1, 0));
        assert_eq!(size.hosts, 5, "one of each kind");
        assert_eq!(minimal.plan.faults[0].fault.kind(), FaultKind::Crash);
        assert_eq!(minimal.plan.faults[0].fault.for_ms(), 0);
        assert!(size.ms < Size::of(&plan).ms);
    }

    #[test]
    fn a_plan_longer_than_the_base_plan_becomes_shorter_than_it() {
        let base = Size::of(&Plan::base("base", Workload::W6));
        let mut plan = failing();
        plan.phases.settle_ms += base.ms;
        plan.phases.inject_ms += base.ms;
        assert!(plan.check().is_ok() && Size::of(&plan).ms > 2 * base.ms);
        let minimal = minimize(&plan, 100_000, &planted).unwrap();
        let size = Size::of(&minimal.plan);
        assert!(minimal.is_minimal && size.ms < base.ms / 2, "{size} of {base}");
    }

    #[test]
    fn a_plan_that_keeps_its_promises_is_not_minimized() {
        assert_eq!(minimize(&failing(), 10, &|_| None), None);
    }

    #[test]
    fn tries_are_bounded() {
        let minimal = minimize(&failing(), 10, &planted).unwrap();
        assert_eq!((minimal.tried, minimal.is_minimal), (10, false));
    }

    #[test]
    fn the_test_to_be_pasted_has_the_plan() {
        let minimal = minimize(&failing(), 10, &planted).unwrap();
        let test = minimal.test(EngineKind::Fast);
        let json = test.split("r#\"").nth(1).and_then(|rest| rest.split("\"#").next()).unwrap();
        assert_eq!(Plan::from_json(json).unwrap(), minimal.plan);
        assert!(test.contains("_keeps_conservation()"), "{test}");
        assert!(test.contains("run_on(EngineKind::Fast, "), "{test}");
    }
}
