//! The real arm: a master of Mooncake and its clients, each a process of its own.
//!
//! A client may crash in any call: that is something to be seen, not the end of the comparison. Processes
//! are ended by their handles, and all of them end with the arm.

mod master;
mod peer;
mod signal;

use std::{path::PathBuf, time::Duration};

use serde_json::Value;

use self::{master::Master, peer::Peer};
use crate::{
    arm::{Arm, Broken, Observed},
    step::{Call, Event, World},
};

/// Where the real store is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The script that starts and stops masters: `ci/real-store`.
    pub script: PathBuf,
    /// The interpreter that can import Mooncake.
    pub python: PathBuf,
    /// Where the output of processes goes.
    pub logs: PathBuf,
}

/// The real store.
pub struct RealArm {
    installation: Installation,
    world: World,
    master: Master,
    peers: Vec<Option<Peer>>,
    names: Vec<String>,
    version: String,
}

impl RealArm {
    /// A store as `world` has it.
    ///
    /// # Errors
    /// [`Broken::Harness`] if a process does not start.
    pub fn new(installation: &Installation, world: &World) -> Result<Self, Broken> {
        let master = Master::start(installation, world)?;
        let mut this = Self {
            installation: installation.clone(),
            world: world.clone(),
            master,
            peers: Vec::new(),
            names: Vec::new(),
            version: String::new(),
        };
        for number in 0..world.segments.len() {
            this.peers.push(None);
            this.names.push(String::new());
            this.start(number)?;
        }
        Ok(this)
    }

    /// The store's version, as its package has it.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn start(&mut self, number: usize) -> Result<(), Broken> {
        let segment = self.world.segments[number];
        let peer = Peer::start(&self.installation, &self.world, self.master.address(), segment)?;
        self.version = peer.version().to_owned();
        self.names[number] = peer.name().to_owned();
        self.peers[number] = Some(peer);
        Ok(())
    }

    fn peer(&mut self, number: usize) -> Result<&mut Peer, Broken> {
        let ended = || Broken::Harness(format!("client {number} has ended: a bad sequence"));
        self.peers[number].as_mut().ok_or_else(ended)
    }

    /// The call as a peer takes it: preferences are names there.
    fn request(&self, call: &Call) -> Value {
        let mut request = serde_json::to_value(call).unwrap_or_default();
        // A variant without fields.
        if let Value::String(name) = &request {
            request = Value::from_iter([(name.clone(), Value::Object(Default::default()))]);
        }
        let arguments = request.as_object_mut().into_iter().flat_map(|call| call.values_mut());
        for keep in arguments.filter_map(|arguments| arguments.get_mut("keep")) {
            if let Some(prefer) = keep["prefer"].as_u64() {
                keep["prefer"] = self.names[prefer as usize].clone().into();
            }
        }
        request
    }
}

impl Arm for RealArm {
    fn call(&mut self, client: usize, call: &Call) -> Result<Observed, Broken> {
        let request = self.request(call);
        let answered = self.peer(client)?.ask(&request);
        if answered.is_err() {
            self.peers[client] = None;
        }
        answered
    }

    fn event(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::KillClient(number) => {
                if let Some(peer) = self.peers[number].take() {
                    peer.kill();
                }
                Ok(())
            }
            Event::StopClient(number) => self.peer(number)?.stop(),
            Event::ContinueClient(number) => self.peer(number)?.go_on(),
            Event::CloseClient(number) => {
                let peer = self.peers[number].take();
                peer.map_or(Ok(()), Peer::close)
            }
            Event::StartClient(number) => self.start(number),
            Event::KillMaster => self.master.kill(),
            Event::StartMaster => self.master.restart(&self.installation, &self.world),
            Event::StopMaster => self.master.stop(),
            Event::ContinueMaster => self.master.go_on(),
        }
    }

    fn keys(&mut self) -> Result<Vec<String>, Broken> {
        let mut keys = self.master.keys()?;
        keys.sort();
        Ok(keys)
    }

    fn evicted(&mut self) -> Result<u64, Broken> {
        self.master.metric("master_evicted_key_count")
    }

    fn capacity(&mut self) -> Result<u64, Broken> {
        self.master.metric("master_total_capacity_bytes")
    }

    /// Its time passes by itself.
    fn reach(&mut self, _now: Duration) {}

    fn ahead(&self) -> Duration {
        Duration::ZERO
    }
}
