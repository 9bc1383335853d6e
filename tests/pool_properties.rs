//! The pool against its shadow model (`testing/src/pool`), over random sequences of steps.

use proptest::{collection::vec, prelude::*};
use springtide_testing::{corpus, pool};

#[test]
fn the_pool_keeps_to_its_model() {
    let cases = (pool::config(), vec(pool::step(), 1..120));
    corpus::check("pool", 300, cases.boxed(), |(config, steps)| pool::play(&config, steps));
}
