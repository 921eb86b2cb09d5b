#![doc = include_str!("../README.md")]

mod along;
pub mod arithmetic;
mod card;
pub mod cast;
pub mod compare;
pub mod compose;
pub mod convolution;
pub mod cumulative;
mod define;
pub mod einsum;
mod elementwise;
mod few;
mod folds;
pub mod functions;
pub mod indexing;
mod integers;
pub mod layout;
mod linear;
pub mod matmul;
mod moved;
mod moved_on_card;
#[cfg(test)]
mod moved_tests;
mod parameters;
pub mod parts;
pub mod patches;
pub mod pooling;
pub mod positions;
pub mod program;
pub mod random;
pub mod reductions;
pub mod select;
pub mod slice;
mod sorted_on_card;
pub mod sorting;
mod sums;
pub mod training;
pub mod values;
mod wide;
mod windows;

/// The library of these ops, with whatever else `library!` is to know of it. Not for direct use.
#[doc(hidden)]
#[macro_export]
macro_rules! __library {
    ($($option:tt)*) => {
        ::opsmith::library! {
            name = "opsmith",
            ops = [
                $crate::arithmetic::Add,
                $crate::arithmetic::Sub,
                $crate::arithmetic::Mul,
                $crate::arithmetic::div,
                $crate::arithmetic::pow,
                $crate::arithmetic::Maximum,
                $crate::arithmetic::Minimum,
                $crate::functions::Neg,
                $crate::functions::Abs,
                $crate::functions::Sign,
                $crate::functions::Square,
                $crate::functions::sqrt,
                $crate::functions::rsqrt,
                $crate::functions::exp,
                $crate::functions::expm1,
                $crate::functions::log,
                $crate::functions::log1p,
                $crate::functions::sin,
                $crate::functions::cos,
                $crate::functions::tanh,
                $crate::functions::sigmoid,
                $crate::functions::erf,
                $crate::functions::floor,
                $crate::functions::softplus,
                $crate::functions::relu,
                $crate::functions::elu,
                $crate::functions::gelu,
                $crate::compare::Equal,
                $crate::compare::NotEqual,
                $crate::compare::Less,
                $crate::compare::LessEqual,
                $crate::compare::Greater,
                $crate::compare::GreaterEqual,
                $crate::compare::LogicalAnd,
                $crate::compare::LogicalOr,
                $crate::compare::LogicalNot,
                $crate::select::Select,
                $crate::cast::Cast,
                $crate::matmul::MatMul,
                $crate::einsum::Einsum,
                $crate::reductions::Sum,
                $crate::reductions::mean,
                $crate::reductions::Max,
                $crate::reductions::Min,
                $crate::reductions::softmax,
                $crate::reductions::log_softmax,
                $crate::positions::ArgMax,
                $crate::positions::ArgMin,
                $crate::cumulative::CumSum,
                $crate::cumulative::CumProd,
                $crate::cumulative::CumMax,
                $crate::cumulative::CumMin,
                $crate::layout::Reshape,
                $crate::layout::Transpose,
                $crate::layout::BroadcastTo,
                $crate::layout::SumTo,
                $crate::slice::Slice,
                $crate::parts::Pad,
                $crate::parts::Concat,
                $crate::parts::Stack,
                $crate::parts::Split,
                $crate::indexing::Gather,
                $crate::indexing::SparseToDense,
                $crate::indexing::OneHot,
                $crate::sorting::Sort,
                $crate::sorting::ArgSort,
                $crate::sorting::Unique,
                $crate::sorting::TopK,
                $crate::patches::ExtractPatches,
                $crate::convolution::Conv,
                $crate::pooling::MaxPool,
                $crate::pooling::AvgPool,
                $crate::values::Identity,
                $crate::values::StopGradient,
                $crate::values::Shape,
                $crate::values::ZerosLike,
                $crate::values::Fill,
                $crate::values::Assign,
                $crate::random::RandomBits,
                $crate::random::RandomUniform,
                $crate::random::RandomNormal,
                $crate::random::RandomBernoulli,
                $crate::random::Dropout,
                $crate::program::Pointwise,
                $crate::program::OverAxes,
                $crate::training::gradient_descent_step,
                $crate::training::momentum_step,
                $crate::training::adam_corrections,
                $crate::training::adam_step,
            ],
            $($option)*
        }
    };
}

__library! { embedded = true }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_well_formed_and_documented() {
        let library = library().unwrap_or_else(|error| panic!("{error}"));
        for op in library.ops() {
            let signature = op.signature();
            assert!(!signature.doc.is_empty(), "{} says nothing of itself", signature.name);
            assert!(!op.kernels().is_empty(), "{} has no kernel", signature.name);
        }
    }

    #[test]
    fn the_readme_lists_every_op() {
        let readme = include_str!("../README.md");
        let library = library().unwrap_or_else(|error| panic!("{error}"));
        for name in library.ops().iter().map(|op| &op.signature().name) {
            assert!(name.ends_with("Grad") || readme.contains(&format!("`{name}`")), "{name} is not listed");
        }
    }

    #[test]
    fn gradients_are_declared_for_every_op() {
        let library = library().unwrap_or_else(|error| panic!("{error}"));
        let undeclared = |op: &&opsmith::Op| {
            let name = &op.signature().name;
            let declares = op.gradient_wiring().is_some() || format!("{:?}", op.gradient()) != "Undeclared";
            !declares && !name.ends_with("GradGrad")
        };
        let names: Vec<&str> =
            library.ops().iter().filter(undeclared).map(|op| op.signature().name.as_str()).collect();
        assert_eq!(
            names,
            ["Pointwise", "OverAxes", "GradientDescentStep", "MomentumStep", "AdamCorrections", "AdamStep"]
        );
    }

    #[test]
    fn the_table_has_the_library() {
        let table = table();
        // SAFETY: a name in the table is text that lives as long as the library.
        let name = unsafe { std::slice::from_raw_parts(table.name.data.cast::<u8>(), table.name.len) };
        assert_eq!(name, b"opsmith");
        // SAFETY: it may be called from any thread.
        assert!(unsafe { (table.init)() }.is_null());
    }
}
