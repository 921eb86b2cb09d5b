//! Bodies as expression graphs: traced, simplified, differentiated, interpreted, printed, and written as CUDA C++.

mod cuda;
mod graph;
mod print;
mod reverse;
mod simplify;
mod trace;

pub use cuda::CudaType;
pub use graph::{Binary, Compare, Graph, Id, Node, Unary};
pub use trace::{Expr, MaskExpr, trace};
