//! Machine code for nests of loops, made when a body is first run for some sizes.
//!
//! The author's function was traced to a graph, and that was cut into nests. Here each nest becomes a function for processors with AVX2
//! or AVX-512. `wanted` says what code is made for, `writer` what is known while it is written. `nest` and `loops` write loops,
//! `innermost` those with no others in them, whose sums and addresses are in registers; `straight` says which are written out.
//! `segment` makes the steps between loops one straight `line` of vector operations, by `lower`, where elementary functions `record`
//! themselves; `place` gives vectors registers, by when they are still read (`uses`); `tile` says which positions are computed side by side, by the `time` that they take;
//! `choose` takes instructions, `access` reads and writes them, `asm` has the bytes of instructions, `frame` says what memory the code
//! has for itself, `calls` are the functions that it calls.

mod access;
mod asm;
mod calls;
mod choose;
mod chosen;
mod frame;
mod innermost;
pub(crate) mod line;
mod loops;
mod lower;
mod nest;
mod place;
pub(crate) mod record;
mod segment;
mod straight;
mod tile;
mod time;
mod uses;
mod vectors;
mod wanted;
mod writer;

pub use frame::Frame;
pub use nest::{Code, Way, compile, fastest};
pub use vectors::Vectors;
pub use wanted::{Held, Lies, Tile, Wanted};
