//! Fault plans: which operations go wrong, how, and when.
//!
//! A plan is data: a list of rules in JSON. A rule names a fault point, narrows it to keys, clients and
//! occurrences, and says what happens there. Counting is per rule and deterministic, so a plan that made
//! something fail makes it fail again.
//!
//! ```json
//! { "rules": [
//!   { "point": "put_end", "when": "after", "key": "image-7", "action": "drop_reply" },
//!   { "point": "read", "from": 3, "every": 2, "action": { "fail": -800 } },
//!   { "point": "write", "replica": 1, "bytes": 4096, "action": "stall" }
//! ] }
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use springtide::env::ErrorCode;

use crate::protocol::{Call, ClientId, Code};

/// Where something can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The start of a put or upsert, at the master.
    PutStart,
    /// The end of a put or upsert, at the master.
    PutEnd,
    /// The revocation of a put, at the master.
    PutRevoke,
    /// The look-up before a read, at the master.
    Query,
    /// The question whether a key exists, at the master.
    Exist,
    /// The question for an object's length, at the master.
    Size,
    /// A removal of any kind, at the master.
    Remove,
    /// A sign of life or a mount, at the master. Over a network only: a cluster in one process keeps its
    /// nodes alive by itself.
    Ping,
    /// The transfer of one replica of a put, at the node that takes it.
    Write,
    /// The transfer of a read, at the node that gives it.
    Read,
    /// The registration of memory, at the client.
    Register,
    /// The end of a registration, at the client.
    Unregister,
}

impl Point {
    /// The point that a call to the master passes.
    pub fn of(call: &Call) -> Self {
        match call {
            Call::PutStart { .. } | Call::UpsertStart { .. } => Self::PutStart,
            Call::PutEnd { .. } => Self::PutEnd,
            Call::PutRevoke { .. } => Self::PutRevoke,
            Call::Query { .. } => Self::Query,
            Call::Exist { .. } => Self::Exist,
            Call::Size { .. } => Self::Size,
            Call::Remove { .. } | Call::RemoveByRegex { .. } | Call::RemoveAll { .. } => {
                Self::Remove
            }
            Call::Mount { .. } | Call::Unmount { .. } | Call::Ping | Call::Remount { .. } => {
                Self::Ping
            }
        }
    }

    fn is_transfer(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }

    fn is_local(self) -> bool {
        matches!(self, Self::Register | Self::Unregister)
    }
}

/// Whether a fault comes before the operation has its effect or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before: nothing has happened yet. For transfers: at [`Rule::bytes`].
    #[default]
    Before,
    /// After: it has happened, the answer has not been given yet.
    After,
}

/// What happens at a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Answer with this code.
    Fail(Code),
    /// Never answer. The caller sees a timeout: -901 from the master, -800 from a node.
    DropReply,
    /// Break the connection without an answer: -900 from the master, -800 from a node.
    Disconnect,
    /// Go on after this time.
    #[serde(rename = "delay_ms")]
    Delay(#[serde(with = "crate::millis")] Duration),
    /// Go on when the test says so ([`super::Faults::release`]).
    Stall,
    /// Fail with -800 when so many bytes have moved.
    PartialBytes(u64),
    /// Invert this byte (counted modulo the length) and report success.
    FlipByte(u64),
    /// Move bytes of something else and report success.
    ForeignBytes,
    /// Deliver so many bytes less and report success. Reads only.
    ShortRead(u64),
    /// Stop half way (or at [`Rule::bytes`]) until this time after the transfer limit, then go on: the
    /// caller is told -800, its buffer and the segment are touched afterwards.
    #[serde(rename = "late_write_ms")]
    LateWrite(#[serde(with = "crate::millis")] Duration),
}

impl Action {
    /// Fails with `code`.
    pub fn fail(code: ErrorCode) -> Self {
        Self::Fail(Code(code))
    }

    fn moves_bytes(self) -> bool {
        matches!(
            self,
            Self::PartialBytes(_)
                | Self::FlipByte(_)
                | Self::ForeignBytes
                | Self::ShortRead(_)
                | Self::LateWrite(_)
        )
    }
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Where.
    pub point: Point,
    /// Before or after the effect.
    #[serde(default)]
    pub when: When,
    /// Only for keys that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only for this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Only for the replica with this number, in allocation order from 0. Transfers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<usize>,
    /// At how many bytes moved. Transfers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The first occurrence that counts, from 1.
    #[serde(default = "one")]
    pub from: u64,
    /// Every how manyth occurrence from there on, from 1.
    #[serde(default = "one")]
    pub every: u64,
    /// How often at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// What happens.
    pub action: Action,
}

fn one() -> u64 {
    1
}

impl Rule {
    /// A rule for every occurrence at a point, before its effect.
    pub fn new(point: Point, action: Action) -> Self {
        Self {
            point,
            when: When::Before,
            key: None,
            client: None,
            replica: None,
            bytes: None,
            from: 1,
            every: 1,
            times: None,
            action,
        }
    }

    /// The same, after the effect.
    #[must_use]
    pub fn after(self) -> Self {
        Self { when: When::After, ..self }
    }

    /// The same, for keys that contain `text`.
    #[must_use]
    pub fn for_key(self, text: impl Into<String>) -> Self {
        Self { key: Some(text.into()), ..self }
    }

    /// The same, for one client.
    #[must_use]
    pub fn for_client(self, client: ClientId) -> Self {
        Self { client: Some(client), ..self }
    }

    /// The same, when `bytes` bytes have moved.
    #[must_use]
    pub fn at_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// The same, `times` times at most.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }

    fn check(&self) -> Result<(), &'static str> {
        let transfer = self.point.is_transfer();
        if self.from == 0 || self.every == 0 {
            return Err("from and every count from 1");
        }
        if !transfer && (self.replica.is_some() || self.bytes.is_some()) {
            return Err("replica and bytes are for the points read and write");
        }
        if !transfer && self.action.moves_bytes() {
            return Err("the action is for the points read and write");
        }
        if self.when == When::After && (self.action.moves_bytes() || self.bytes.is_some()) {
            return Err("the action happens during the transfer, not after it");
        }
        if matches!(self.action, Action::ShortRead(_)) && self.point != Point::Read {
            return Err("short_read is for the point read");
        }
        if self.point.is_local() && matches!(self.action, Action::DropReply | Action::Disconnect) {
            return Err("nothing is sent at the points register and unregister");
        }
        Ok(())
    }
}

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// The rules. Of those that are due at one occurrence the first acts.
    pub rules: Vec<Rule>,
}

/// A plan that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not the JSON of a plan.
    #[error("fault plan: {0}")]
    Json(#[from] serde_json::Error),
    /// A rule that makes no sense.
    #[error("fault plan: rule {number}: {what}")]
    Rule {
        /// Which, from 0.
        number: usize,
        /// Why not.
        what: &'static str,
    },
}

impl FaultPlan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`PlanError`] for text that is not a plan, an unknown field, or a rule that makes no sense.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(text)?;
        plan.validate()?;
        Ok(plan)
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// [`PlanError::Rule`] with the first that makes no sense.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.rules.iter().enumerate().try_for_each(|(number, rule)| {
            rule.check().map_err(|what| PlanError::Rule { number, what })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_round_trip() {
        let text = r#"{"rules":[
            {"point":"put_end","when":"after","key":"image-7","action":"drop_reply"},
            {"point":"read","from":3,"every":2,"times":1,"action":{"fail":-800}},
            {"point":"write","replica":1,"bytes":4096,"client":5,"action":"stall"},
            {"point":"read","action":{"late_write_ms":250}},
            {"point":"exist","action":{"delay_ms":10}}
        ]}"#;
        let plan = FaultPlan::from_json(text).unwrap();
        assert_eq!(plan.rules[1].action, Action::fail(ErrorCode::TransferFail));
        assert_eq!(plan.rules[3].action, Action::LateWrite(Duration::from_millis(250)));
        let again = serde_json::to_string(&plan).unwrap();
        assert_eq!(FaultPlan::from_json(&again).unwrap(), plan);
    }

    #[test]
    fn bad_plans_name_the_rule() {
        let refused = |rule: &str| {
            FaultPlan::from_json(&format!(r#"{{"rules":[{rule}]}}"#)).unwrap_err().to_string()
        };
        let unknown = refused(r#"{"point":"read","action":"stall","colour":1}"#);
        assert!(unknown.contains("unknown field `colour`"), "{unknown}");
        assert_eq!(
            refused(r#"{"point":"query","action":{"flip_byte":1}}"#),
            "fault plan: rule 0: the action is for the points read and write"
        );
        for rule in [
            r#"{"point":"query","bytes":1,"action":"stall"}"#,
            r#"{"point":"read","from":0,"action":"stall"}"#,
            r#"{"point":"write","action":{"short_read":1}}"#,
            r#"{"point":"read","when":"after","action":{"partial_bytes":1}}"#,
            r#"{"point":"register","action":"drop_reply"}"#,
        ] {
            assert!(refused(rule).starts_with("fault plan: rule 0: "), "{rule}");
        }
    }
}
