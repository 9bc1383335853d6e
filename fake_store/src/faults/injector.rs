//! Carrying a fault plan out: counting occurrences, holding operations, letting them go.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::{Notify, oneshot};

use super::plan::{Action, FaultPlan, PlanError, Point, Rule, When};
use crate::{memory::lock, protocol::ClientId};

/// The name of a rule in an injector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

/// One passage of a fault point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occurrence<'a> {
    pub(crate) point: Point,
    pub(crate) when: When,
    pub(crate) key: &'a str,
    pub(crate) client: ClientId,
    /// Which replica a transfer is for.
    pub(crate) replica: usize,
}

/// An action that is due, with the rule it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) rule: RuleId,
    pub(crate) action: Action,
    /// [`Rule::bytes`].
    pub(crate) bytes: Option<u64>,
}

#[derive(Debug)]
struct Armed {
    rule: Rule,
    seen: u64,
    fired: u64,
    held: Vec<oneshot::Sender<Option<Action>>>,
}

#[derive(Debug, Default)]
struct State {
    rules: BTreeMap<RuleId, Armed>,
    next: u64,
}

/// Shared by everything that can go wrong together. Clones are the same injector.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Faults {
    /// An injector with the rules of a plan.
    ///
    /// # Errors
    /// [`PlanError::Rule`] for a rule that makes no sense.
    pub fn new(plan: FaultPlan) -> Result<Self, PlanError> {
        plan.validate()?;
        let faults = Self::default();
        for rule in plan.rules {
            faults.arm(rule);
        }
        Ok(faults)
    }

    /// Adds a rule behind the others.
    ///
    /// # Errors
    /// [`PlanError::Rule`] if it makes no sense.
    pub fn add(&self, rule: Rule) -> Result<RuleId, PlanError> {
        FaultPlan { rules: vec![rule.clone()] }.validate()?;
        Ok(self.arm(rule))
    }

    /// Takes a rule out and lets go what it holds.
    pub fn remove(&self, rule: RuleId) {
        lock(&self.state).rules.remove(&rule);
    }

    /// Takes all rules out and lets go what they hold.
    pub fn heal(&self) {
        lock(&self.state).rules.clear();
    }

    /// Each rule with how often it acted, in their order.
    pub fn fired(&self) -> Vec<(Rule, u64)> {
        let state = lock(&self.state);
        state.rules.values().map(|armed| (armed.rule.clone(), armed.fired)).collect()
    }

    /// How often a rule acted; zero if it is not there.
    pub fn fired_by(&self, rule: RuleId) -> u64 {
        lock(&self.state).rules.get(&rule).map_or(0, |armed| armed.fired)
    }

    /// How many operations a rule holds now.
    pub fn held(&self, rule: RuleId) -> usize {
        let mut state = lock(&self.state);
        state.rules.get_mut(&rule).map_or(0, |armed| {
            armed.held.retain(|held| !held.is_closed());
            armed.held.len()
        })
    }

    /// Waits until a rule holds `n` operations or more.
    pub async fn wait_held(&self, rule: RuleId, n: usize) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.held(rule) >= n {
                return;
            }
            changed.await;
        }
    }

    /// Lets go the operation that a rule has held longest; it goes on as if nothing had been.
    pub fn release(&self, rule: RuleId) {
        self.let_go(rule, None);
    }

    /// Lets go the operation that a rule has held longest, with another end.
    pub fn release_with(&self, rule: RuleId, action: Action) {
        self.let_go(rule, Some(action));
    }

    /// What happens at this occurrence. Every rule that matches counts it; of those that are due the first
    /// acts.
    pub(crate) fn at(&self, occurrence: Occurrence<'_>) -> Option<Due> {
        let mut state = lock(&self.state);
        let mut due = None;
        for (id, armed) in &mut state.rules {
            if armed.is_due(occurrence) && due.is_none() {
                armed.fired += 1;
                due = Some(Due { rule: *id, action: armed.rule.action, bytes: armed.rule.bytes });
            }
        }
        due
    }

    /// Waits at a stalled point until it is released; with what it goes on.
    pub(crate) async fn hold(&self, rule: RuleId) -> Option<Action> {
        let released = {
            let mut state = lock(&self.state);
            let armed = state.rules.get_mut(&rule)?;
            let (sender, receiver) = oneshot::channel();
            armed.held.push(sender);
            receiver
        };
        self.changed.notify_waiters();
        // A rule that is taken out lets go what it holds.
        released.await.unwrap_or(None)
    }

    fn arm(&self, rule: Rule) -> RuleId {
        let mut state = lock(&self.state);
        let id = RuleId(state.next);
        state.next += 1;
        state.rules.insert(id, Armed { rule, seen: 0, fired: 0, held: Vec::new() });
        id
    }

    fn let_go(&self, rule: RuleId, mut with: Option<Action>) {
        let mut state = lock(&self.state);
        let Some(armed) = state.rules.get_mut(&rule) else { return };
        // Operations whose caller gave up no longer listen.
        while !armed.held.is_empty() {
            match armed.held.remove(0).send(with) {
                Ok(()) => return,
                Err(unheard) => with = unheard,
            }
        }
    }
}

impl Armed {
    /// Counts an occurrence that matches; whether the rule is due.
    fn is_due(&mut self, occurrence: Occurrence<'_>) -> bool {
        let Rule { point, when, key, client, replica, from, every, times, .. } = &self.rule;
        let matches = *point == occurrence.point
            && *when == occurrence.when
            && key.as_ref().is_none_or(|text| occurrence.key.contains(text))
            && client.is_none_or(|client| client == occurrence.client)
            && replica.is_none_or(|replica| replica == occurrence.replica);
        if !matches {
            return false;
        }
        self.seen += 1;
        self.seen >= *from
            && (self.seen - from).is_multiple_of(*every)
            && times.is_none_or(|times| self.fired < times)
    }
}

#[cfg(test)]
mod tests {
    use springtide::env::ErrorCode;

    use super::*;

    fn at(faults: &Faults, point: Point, key: &str) -> Option<Action> {
        let client = ClientId(1);
        let occurrence = Occurrence { point, when: When::Before, key, client, replica: 0 };
        faults.at(occurrence).map(|due| due.action)
    }

    #[test]
    fn rules_count_their_own_occurrences() {
        let fail = Action::fail(ErrorCode::RpcFail);
        let plan = FaultPlan {
            rules: vec![
                Rule { from: 2, every: 3, times: Some(2), ..Rule::new(Point::Exist, fail) },
                Rule::new(Point::Exist, Action::DropReply).for_key("b"),
            ],
        };
        let faults = Faults::new(plan).unwrap();
        let seen: Vec<Option<Action>> =
            ["a", "a", "b", "a", "b", "a", "a", "a"].map(|k| at(&faults, Point::Exist, k)).into();
        let (f, d) = (Some(fail), Some(Action::DropReply));
        assert_eq!(seen, [None, f, d, None, f, None, None, None]);
        assert_eq!(at(&faults, Point::Query, "b"), None);
        let fired: Vec<u64> = faults.fired().into_iter().map(|(_, n)| n).collect();
        assert_eq!(fired, [2, 1]);
    }

    #[test]
    fn narrowing() {
        let faults = Faults::default();
        let rule = Rule { replica: Some(1), ..Rule::new(Point::Write, Action::Stall) };
        faults.add(rule.for_client(ClientId(2))).unwrap();
        let occurs = |client, replica, when| {
            let client = ClientId(client);
            faults.at(Occurrence { point: Point::Write, when, key: "", client, replica }).is_some()
        };
        assert!(!occurs(1, 1, When::Before));
        assert!(!occurs(2, 0, When::Before));
        assert!(!occurs(2, 1, When::After));
        assert!(occurs(2, 1, When::Before));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn held_operations_go_on_when_told() {
        let faults = Faults::default();
        let rule = faults.add(Rule::new(Point::Query, Action::Stall)).unwrap();
        let fail = Action::fail(ErrorCode::RpcFail);
        let (ends, ()) = tokio::join!(
            async { tokio::join!(faults.hold(rule), faults.hold(rule), faults.hold(rule)) },
            async {
                faults.wait_held(rule, 3).await;
                faults.release_with(rule, fail);
                faults.release(rule);
                assert_eq!(faults.held(rule), 1);
                faults.heal();
            },
        );
        assert_eq!(ends, (Some(fail), None, None));
        assert_eq!(faults.hold(rule).await, None, "of a rule that is gone");
    }
}
