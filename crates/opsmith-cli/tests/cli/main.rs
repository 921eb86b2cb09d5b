//! The tests of the program and of its rules.

mod bench;
mod check;
mod common;
mod graph;
mod guide;
mod inspect_and_compat;
mod new_and_build;
mod pairs;
mod rules;
mod saved_graphs;
