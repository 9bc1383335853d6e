//! What springtide costs, as ratios against named rivals.
//!
//! An absolute time says more about the machine and its neighbours than about the code, so every row here is
//! a ratio to something else that did the same work in the same run, a moment before or after it: see
//! [`measure`]. A row may have a goal; a goal that is missed is said, and fails nothing.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | [`models`] | the items that real encoders emit |
//! | [`pair`] | a producer and consumers on a store in this process |
//! | [`rivals`] | allocators to compare with, behind one trait |
//! | [`measure`] | rounds in which the contestants take turns |
//! | [`report`] | rows, goals, the table and the file |
//! | [`suites`] | what is compared |

#![forbid(unsafe_code)]

pub mod measure;
pub mod models;
pub mod pair;
pub mod report;
pub mod rivals;
pub mod suites;
