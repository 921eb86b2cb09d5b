//! Bodies as expression graphs: traced, simplified, differentiated, interpreted, printed, and written as CUDA C++.

mod cuda;
mod graph;
mod interpret;
mod passes;
mod print;
mod reverse;
mod rows_cuda;
mod run;
mod simplify;
mod text;
mod trace;

pub use cuda::{CudaType, cuda_functions};
pub(crate) use graph::Argument;
pub use graph::{Binary, Compare, Fold, Graph, Id, Kind, Node, Unary};
pub use interpret::{Interpreted, Temporary};
pub use passes::{Pass, Passes, Source, Target};
pub use trace::{Expr, MaskExpr, compose, trace};
pub(crate) use trace::{node, record};
