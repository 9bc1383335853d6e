//! The way from a part of an instance to its store: straight, or through the link of the plug-in.

use std::{fmt, future::Future, sync::Arc};

use springtide::{
    backend::{Link, LinkConfig},
    env::{Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::Region,
};

use super::host::Host;
use crate::hosts::store::{self, StoreClient};

/// Asked for to see that a new client reaches its store. Never written.
const HELLO: &str = "st1/hello";

/// See the module's text.
#[derive(Clone)]
pub enum Way {
    /// The client itself.
    Straight(StoreClient),
    /// A link that makes the clients.
    Linked(Link<StoreClient>),
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Way").field(&self.link().map(Link::state)).finish()
    }
}

impl Way {
    /// The way of one part of an instance of `host`, as the plan says. The link is springtide's: another subject
    /// has none.
    pub fn open(host: &Host, part: u32) -> Self {
        let client = store::client(host, part);
        let plan = &host.world.plan;
        if !plan.connector.link || !plan.subject.is_springtide() {
            return Self::Straight(client);
        }
        let maker = host.clone();
        let connect = move || {
            let client = store::client(&maker, part);
            async move {
                // To set a client up needs its master.
                match client.exists(vec![Key::new(HELLO)]).await.pop() {
                    Some(Ok(_)) => Ok(client),
                    Some(Err(error)) => Err(error.to_string()),
                    None => Err("no answer".to_owned()),
                }
            }
        };
        let spawn = |task| host.process.spawn(task);
        Self::Linked(Link::start(LinkConfig::new(client.limits()), host.clock, spawn, connect))
    }

    /// The link, if there is one.
    pub fn link(&self) -> Option<&Link<StoreClient>> {
        match self {
            Self::Straight(_) => None,
            Self::Linked(link) => Some(link),
        }
    }
}

impl Store for Way {
    fn limits(&self) -> StoreLimits {
        match self {
            Self::Straight(store) => store.limits(),
            Self::Linked(store) => store.limits(),
        }
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        match self {
            Self::Straight(store) => store.register(region).await,
            Self::Linked(store) => store.register(region).await,
        }
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        match self {
            Self::Straight(store) => store.unregister(region).await,
            Self::Linked(store) => store.unregister(region).await,
        }
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let way = self.clone();
        async move {
            match way {
                Self::Straight(store) => store.put(items).await,
                Self::Linked(store) => store.put(items).await,
            }
        }
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let way = self.clone();
        async move {
            match way {
                Self::Straight(store) => store.get(items).await,
                Self::Linked(store) => store.get(items).await,
            }
        }
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        match self {
            Self::Straight(store) => store.exists(keys).await,
            Self::Linked(store) => store.exists(keys).await,
        }
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        match self {
            Self::Straight(store) => store.size(key).await,
            Self::Linked(store) => store.size(key).await,
        }
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        match self {
            Self::Straight(store) => store.remove(key, force).await,
            Self::Linked(store) => store.remove(key, force).await,
        }
    }

    async fn close(&self) -> Fence {
        match self {
            Self::Straight(store) => store.close().await,
            Self::Linked(store) => store.close().await,
        }
    }
}
