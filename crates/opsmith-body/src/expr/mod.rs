//! Bodies as expression graphs: traced, simplified, differentiated, interpreted, printed, and written as CUDA C++.

mod absent;
mod cuda;
mod functions;
mod graph;
mod guard;
mod interpret;
mod listing;
mod lying;
mod nest;
mod node;
mod part;
mod passes;
mod print;
mod products;
mod read;
mod reverse;
mod run;
mod simplify;
mod slices;
mod text;
mod trace;

pub use cuda::CudaType;
pub(crate) use graph::Argument;
pub use graph::Graph;
pub use interpret::{Interpreted, Temporary};
pub use listing::{Listing, opcodes};
pub use nest::{Nest, Nests, Online, PART, Place, Step, Sum, Tile, across, add_part, fold_blocks, sum_up};
pub use node::{Binary, Compare, Fold, Id, Node, Unary};
pub use products::{Part, Product, Products};
pub use slices::{Piece, Slices};
pub use trace::{Expr, MaskExpr, compose, compose_over, trace};
pub(crate) use trace::{axes_of, exact, node, record, repeated, save, size_within, taken};
