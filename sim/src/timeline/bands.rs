//! What hosts went through: times in which a fault was at work on one, or it was down.

use serde::Serialize;

use super::{
    kinds::{Kind, Tone},
    spans::{At, Pair, Spans},
};
use crate::event::Event;

/// What a host went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BandKind {
    /// A fault is at work on it.
    Fault,
    /// Its tasks stand still.
    Paused,
    /// Its links are disturbed.
    Disturbed,
    /// It is not running.
    Down,
    /// Its engine runs without a connector.
    Degraded,
}

/// A time in which a host went through something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Band {
    /// The host.
    pub host: usize,
    /// What it is.
    pub kind: BandKind,
    /// When it began.
    pub start_us: u64,
    /// When it ended.
    pub end_us: Option<u64>,
    /// What it is called.
    pub name: String,
}

impl Spans {
    /// What is done to hosts.
    pub(super) fn condition(&mut self, at: At, host: usize, event: &Event) {
        match event {
            Event::FaultBegan { text, .. } => {
                let pair = Pair::Fault(text.clone());
                self.begin(at, host, Kind::Fault, pair, None, words(text));
                for host in self.hosts_of(text) {
                    self.band(at, host, BandKind::Fault, &words(text));
                }
            }
            Event::FaultEnded { text, .. } => {
                self.end(at, host, &Pair::Fault(text.clone()), Tone::Fine);
                for host in self.hosts_of(text) {
                    self.end_band(at, host, BandKind::Fault, &words(text));
                }
            }
            Event::Paused(true) => self.band(at, host, BandKind::Paused, "paused"),
            Event::Paused(false) => self.end_band(at, host, BandKind::Paused, "paused"),
            Event::Disturbed(true) => self.band(at, host, BandKind::Disturbed, "link disturbed"),
            Event::Disturbed(false) => {
                self.end_band(at, host, BandKind::Disturbed, "link disturbed");
            }
            Event::Started => self.end_band(at, host, BandKind::Down, "down"),
            Event::Killed => {
                self.cut(at, host);
                self.end_band(at, host, BandKind::Degraded, "without a connector");
                self.band(at, host, BandKind::Down, "down");
            }
            _ => self.band(at, host, BandKind::Degraded, "without a connector"),
        }
    }

    fn band(&mut self, (at, _): At, host: usize, kind: BandKind, name: &str) {
        self.bands.push(Band { host, kind, start_us: at, end_us: None, name: name.to_owned() });
    }

    fn end_band(&mut self, (at, _): At, host: usize, kind: BandKind, name: &str) {
        let open = self.bands.iter_mut().find(|band| {
            band.end_us.is_none() && (band.host, band.kind) == (host, kind) && band.name == name
        });
        if let Some(band) = open {
            band.end_us = Some(at);
        }
    }

    /// The hosts that a fault names; one that names none is about the store.
    fn hosts_of(&self, fault: &str) -> Vec<usize> {
        let words: Vec<&str> = fault.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let position = |name: &str| self.hosts.iter().position(|host| host == name);
        let mut hosts: Vec<usize> = words.iter().filter_map(|word| position(word)).collect();
        if hosts.is_empty() {
            hosts.extend(position("master"));
        }
        hosts.dedup();
        hosts
    }
}

/// A fault's name and fields without the notation of a plan: `{pause:{host:node0,for_ms:9}}` is `pause host:node0,
/// for_ms:9`.
fn words(fault: &str) -> String {
    fault.trim_matches(['{', '}']).replace(":{", " ").replace(',', ", ")
}
