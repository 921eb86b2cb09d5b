//! Bodies as expression graphs: traced, simplified, differentiated, interpreted, printed, and written as CUDA C++.

mod cuda;
mod functions;
mod graph;
mod interpret;
mod nest;
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
pub use graph::{Binary, Compare, Fold, Graph, Id, Node, Unary};
pub use interpret::{Interpreted, Temporary};
pub use nest::{Nest, Nests, PART, Place, Step, Sum, across, add_part, fold_blocks, sum_up};
pub use passes::{Pass, Passes, Source, Target};
pub use trace::{Expr, MaskExpr, compose, trace};
pub(crate) use trace::{axes_of, node, record};
