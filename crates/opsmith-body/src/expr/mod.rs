//! Bodies as expression graphs: traced, simplified, differentiated, interpreted, printed, and written as CUDA C++.

mod cuda;
mod graph;
mod interpret;
mod print;
mod reverse;
mod simplify;
mod trace;

pub use cuda::CudaType;
pub use graph::{Binary, Compare, Graph, Id, Node, Unary};
pub use interpret::Interpreted;
pub use trace::{Expr, MaskExpr, trace};
