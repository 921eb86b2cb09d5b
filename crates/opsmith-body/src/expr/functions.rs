//! The elementary functions of one number: the one list of them, from which graphs, their listings and their loops are made.

/// Calls a macro with what it is given in braces, then each function: its name in graphs, and its method of `Scalar`, which is
/// also its name in formulas and texts. New ones come at the end, for the positions are numbers of the C ABI, `OPSMITH_NODE_…`.
///
/// What is particular to a function is its values (`float`), its derivative (`dual`), and its C where that is not a function of
/// the same name (`cuda`).
macro_rules! with_functions {
    ($then:ident { $($given:tt)* }) => {
        $then! {
            { $($given)* }
            Exp exp, Log log, Log1p log1p, Expm1 expm1, Tanh tanh, Sigmoid sigmoid, Erf erf, NormalCdf normal_cdf,
            NormalPdf normal_pdf, Softplus softplus, Sin sin, Cos cos, Sqrt sqrt, Rsqrt rsqrt, Abs abs, Sign sign,
            Floor floor, Gelu gelu, GeluTanh gelu_tanh, Atan atan, Lgamma lgamma, Digamma digamma
        }
    };
}

pub(crate) use with_functions;
