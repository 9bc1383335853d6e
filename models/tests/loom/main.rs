//! Models of the connector's shared state, explored by loom.
//!
//! A model is a small program over the production code, of two to four threads with one or two operations
//! each. Loom runs it in every interleaving within the bound that the model's name states, and with every
//! value that a weakly ordered memory may show; an assertion that fails, an access that races, or threads
//! that all wait fail the model. `./ci/just loom` runs all of them, then the bugs of `mutants.toml`, each of
//! which one of the models must find.

#![cfg(all(springtide_model, feature = "loom"))]

/// A test that explores its body. The name states the bound.
macro_rules! model {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            springtide_models::explore::explore(stringify!($name), || $body);
        }
    };
}

mod loads;
mod mapper;
mod pool;
mod saves;
mod state_word;
