//! Questions that expectations ask of an outcome.

use std::{collections::BTreeMap, time::Duration};

use springtide::connector::{LoadCounters, SaveCounters};

use crate::{
    event::{Check, Event, RequestEnd, SaveEnd},
    world::run::{Final, Outcome},
};

/// An outcome to be questioned.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a>(pub &'a Outcome);

/// Ends an expectation unless two values are equal.
macro_rules! ensure_eq {
    ($got:expr, $expected:expr, $($what:tt)+) => {
        match (&$got, &$expected) {
            (got, expected) => {
                if *got != *expected {
                    let what = format!($($what)+);
                    return Err(format!("{what}: expected {expected:?}, got {got:?}"));
                }
            }
        }
    };
}
pub(super) use ensure_eq;

/// Ends an expectation unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err(format!($($what)+));
        }
    };
}
pub(super) use ensure;

impl<'a> Look<'a> {
    /// How the saves of an item ended on a host, in order.
    pub fn saves(&self, host: &str, item: &str) -> Vec<&'a SaveEnd> {
        self.on(host)
            .filter_map(|event| match event {
                Event::SaveEnded { key, end, .. } if named(key, item) => Some(end),
                _ => None,
            })
            .collect()
    }

    /// How often the connector promised an item, verification included.
    pub fn hits(&self, item: &str) -> usize {
        self.count(|event| matches!(event, Event::Hit { key, .. } if named(key, item)))
    }

    /// The reasons for which an item was declined, in order.
    pub fn misses(&self, item: &str) -> Vec<&'a str> {
        let reason = |event: &'a Event| match event {
            Event::Miss { key, reason, .. } if named(key, item) => Some(reason.as_str()),
            _ => None,
        };
        self.all().filter_map(reason).collect()
    }

    /// How often an item was delivered as it should be.
    pub fn delivered(&self, item: &str) -> usize {
        self.count(|event| {
            matches!(event, Event::Delivered { key, check: Check::Equal, .. } if named(key, item))
        })
    }

    /// How often the store made an item readable.
    pub fn stored(&self, item: &str) -> usize {
        self.count(|event| matches!(event, Event::Stored { key, .. } if named(key, item)))
    }

    /// How often the store lost an item.
    pub fn lost(&self, item: &str) -> usize {
        self.count(|event| matches!(event, Event::Lost { key, .. } if named(key, item)))
    }

    /// How many items of any name were delivered as they should be.
    pub fn deliveries(&self) -> usize {
        self.count(|event| matches!(event, Event::Delivered { check: Check::Equal, .. }))
    }

    /// When a put or get was handed to the store for the first time, and when it ended.
    pub fn transfer(&self, item: &str, put: bool) -> [Option<springtide::env::Time>; 2] {
        let began = self.time(|event| {
            matches!(event, Event::TransferBegan { key, put: which, .. }
                if named(key, item) && *which == put)
        });
        let ended = self.time(|event| {
            matches!(event, Event::TransferEnded { key, put: which, .. }
                if named(key, item) && *which == put)
        });
        [began, ended]
    }

    /// How requests of the plan ended, by number.
    pub fn requests(&self) -> BTreeMap<u32, &'a RequestEnd> {
        self.all()
            .filter_map(|event| match event {
                Event::RequestEnded { request, end }
                    if *request < crate::hosts::client::VERIFY_FROM =>
                {
                    Some((*request, end))
                }
                _ => None,
            })
            .collect()
    }

    /// Whether every request of the plan was answered.
    pub fn all_answered(&self) -> Result<(), String> {
        match self.requests().into_iter().find(|(_, end)| **end != RequestEnd::Done) {
            None => Ok(()),
            Some((request, end)) => Err(format!("request {request}: expected an answer, {end}")),
        }
    }

    /// From the sending of a request to its end.
    pub fn duration(&self, request: u32) -> Duration {
        let sent = self.time(|event| {
            matches!(event, Event::RequestSent { request: number, .. } if *number == request)
        });
        let ended = self.time(|event| {
            matches!(event, Event::RequestEnded { request: number, .. } if *number == request)
        });
        match (sent, ended) {
            (Some(sent), Some(ended)) => ended - sent,
            _ => Duration::MAX,
        }
    }

    /// When an event happened for the first time.
    pub fn time(&self, wanted: impl Fn(&Event) -> bool) -> Option<springtide::env::Time> {
        self.0.events.iter().find(|recorded| wanted(&recorded.event)).map(|recorded| recorded.time)
    }

    /// How often an event happened.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.all().filter(|event| wanted(event)).count()
    }

    /// An instance at the end.
    ///
    /// # Errors
    /// When it does not run.
    pub fn end(&self, host: &str) -> Result<&'a Final, String> {
        self.0.finals.get(host).ok_or_else(|| format!("{host}: expected to run at the end"))
    }

    /// What an instance's saving did.
    ///
    /// # Errors
    /// When it does not run.
    pub fn saving(&self, host: &str) -> Result<&'a SaveCounters, String> {
        self.end(host).map(|end| &end.saves)
    }

    /// What an instance's loading did.
    ///
    /// # Errors
    /// When it does not run.
    pub fn loading(&self, host: &str) -> Result<&'a LoadCounters, String> {
        self.end(host).map(|end| &end.loads)
    }

    fn all(&self) -> impl Iterator<Item = &'a Event> {
        self.0.events.iter().map(|recorded| &recorded.event)
    }

    fn on(&self, host: &str) -> impl Iterator<Item = &'a Event> {
        let on = self.0.events.iter().filter(move |recorded| recorded.host == host);
        on.map(|recorded| &recorded.event)
    }
}

fn named(key: &str, item: &str) -> bool {
    key.split_once('/').is_some_and(|(_, id)| id == item)
}
