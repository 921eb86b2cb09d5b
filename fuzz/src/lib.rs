//! All that reads what others have written, as functions of any bytes: `cargo xtask fuzz` gives them bytes that lead to code which
//! was not run before, and the tests here those of `corpus`, and some that are changed at random.
//!
//! A target panics where an answer is wrong; else it comes back, whatever it is given.

mod calls;
mod files;
mod frames;
mod memory;
mod messages;
mod texts;

pub use memory::MOST_BYTES;

/// Something that reads.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of the folder of its corpus.
    pub name: &'static str,
    /// Gives it these bytes.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 13] = [
    Target { name: "definitions", run: texts::definitions },
    Target { name: "shapes", run: texts::shapes },
    Target { name: "axes", run: texts::axes },
    Target { name: "programs", run: texts::programs },
    Target { name: "requests", run: texts::requests },
    Target { name: "calls", run: calls::calls },
    Target { name: "queries", run: calls::queries::queries },
    Target { name: "tensorflow", run: messages::tensorflow },
    Target { name: "jax", run: frames::jax },
    Target { name: "graphs", run: files::graphs },
    Target { name: "checkpoints", run: files::checkpoints },
    Target { name: "descriptions", run: files::descriptions },
    Target { name: "libraries", run: files::libraries },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
