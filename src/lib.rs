//! springtide: an encoder-cache connector for vLLM on Mooncake Store.
//!
//! # Layout
//!
//! | module | what it is | relies on |
//! |---|---|---|
//! | [`env`](mod@env) | the injected world: clock, network, store, device | [`pool`]'s leases |
//! | [`pool`] | the buddy pool of registered memory, its leases and eviction | nothing |
//! | [`sync`] | the synchronisation primitives, switchable | nothing |
//! | [`connector`] | saving, waiting, looking up, loading | [`env`](mod@env), [`pool`] |
//! | [`backend`] | production implementations of the store | [`env`](mod@env) |
//! | [`runtime`] | production implementations of the injected world | [`env`](mod@env) |

pub mod backend;
pub mod connector;
pub mod env;
pub mod pool;
pub mod runtime;
pub mod sync;
