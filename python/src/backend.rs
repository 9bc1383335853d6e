//! The stores that can be configured, as one type.

use std::{future::Future, io, sync::Arc, thread};

use springtide::{
    backend::{DiskStore, MooncakeStore},
    config::StoreSettings,
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::Region,
    runtime::TokioClock,
};
use tokio::sync::oneshot;

use crate::store::{self, PythonStore};

/// The store of a process.
#[derive(Clone)]
pub enum Backend {
    /// A directory.
    Disk(DiskStore),
    /// Mooncake over its C ABI.
    Mooncake(MooncakeStore),
    /// Mooncake through its Python class.
    Python(PythonStore),
    /// For processes that move nothing.
    Nothing,
}

/// What the configured store can take in one call.
pub fn limits(settings: &StoreSettings) -> StoreLimits {
    match settings {
        StoreSettings::Disk(config) => config.limits(),
        StoreSettings::Mooncake(config) if config.library.is_some() => MooncakeStore::LIMITS,
        StoreSettings::Mooncake(_) => store::LIMITS,
    }
}

impl Backend {
    /// One attempt to reach the store; `region_bytes` are going to be registered.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub async fn connect(
        settings: StoreSettings,
        region_bytes: u64,
        clock: TokioClock,
    ) -> Result<Self, String> {
        match settings {
            StoreSettings::Disk(config) => {
                let named = config.directory.display().to_string();
                let open = on_a_thread(move || DiskStore::open(&config)).await;
                open.map(Self::Disk).map_err(|error| format!("directory {named}: {error}"))
            }
            StoreSettings::Mooncake(config) if config.library.is_some() => {
                let store = MooncakeStore::connect(&config, region_bytes, clock).await;
                store.map(Self::Mooncake).map_err(|error| error.to_string())
            }
            StoreSettings::Mooncake(config) => {
                let store = store::connect(&config, region_bytes, clock).await;
                store.map(Self::Python).map_err(|error| error.to_string())
            }
        }
    }
}

/// Runs what blocks beside the runtime's threads.
async fn on_a_thread<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().name("springtide-open".into());
    thread.spawn(move || drop(sender.send(call())))?;
    receiver.await.map_err(|_| io::Error::other("the thread ended early"))?
}

/// Passes a call on to whichever store it is.
macro_rules! pass_on {
    ($self:expr, $nothing:expr, $store:ident => $call:expr) => {
        match $self {
            Self::Disk($store) => $call,
            Self::Mooncake($store) => $call,
            Self::Python($store) => $call,
            Self::Nothing => $nothing,
        }
    };
}

fn nothing() -> StoreError {
    StoreError::new(ErrorCode::UnavailableInCurrentMode, std::time::Duration::ZERO)
}

impl Store for Backend {
    fn limits(&self) -> StoreLimits {
        pass_on!(self, store::LIMITS, store => store.limits())
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        pass_on!(self, Ok(()), store => store.register(region).await)
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        pass_on!(self, Ok(()), store => store.unregister(region).await)
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let this = self.clone();
        async move {
            let refuse = |item: PutItem| Outcome::Ended {
                buffer: item.source.finish(),
                result: Err(nothing()),
            };
            match this {
                Self::Disk(store) => store.put(items).await,
                Self::Mooncake(store) => store.put(items).await,
                Self::Python(store) => store.put(items).await,
                Self::Nothing => items.into_iter().map(refuse).collect(),
            }
        }
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let this = self.clone();
        async move {
            let refuse = |item: GetItem| Outcome::Ended {
                buffer: item.dest.finish(),
                result: Err(nothing()),
            };
            match this {
                Self::Disk(store) => store.get(items).await,
                Self::Mooncake(store) => store.get(items).await,
                Self::Python(store) => store.get(items).await,
                Self::Nothing => items.into_iter().map(refuse).collect(),
            }
        }
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let count = keys.len();
        pass_on!(self, vec![Err(nothing()); count], store => store.exists(keys).await)
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        pass_on!(self, Err(nothing()), store => store.size(key).await)
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        pass_on!(self, Err(nothing()), store => store.remove(key, force).await)
    }

    async fn close(&self) -> Fence {
        pass_on!(self, Fence::Fenced, store => store.close().await)
    }
}
