//! Ops with one fault each, for the tests of `opsmith check`: it is to find all of them. None is an example to follow.

mod gradients;
mod kernels;
mod shapes;

opsmith::library! {
    name = "faulty",
    ops = [
        gradients::wrong_sign,
        gradients::wrong_sign_grad,
        gradients::ignored_output,
        gradients::ignored_output_grad,
        gradients::shrunk,
        gradients::wrong_second,
        gradients::wrong_second_grad,
        gradients::wrong_second_grad_grad,
        shapes::SwappedDims,
        shapes::LateCheck,
        shapes::EndsOnNoPixels,
        shapes::TrustsShapes,
        kernels::outside_the_view,
        kernels::leaves_a_hole,
        kernels::takes_none,
        kernels::rows_of,
        kernels::counts_threads,
        kernels::ends_on_empty,
        kernels::panics_on_infinity,
        kernels::never_done,
        kernels::needs_the_other,
        kernels::claims_columns,
        kernels::claims_sum,
        kernels::right,
    ]
}
