//! One of two tensors, element by element.

use opsmith::dtype::Complex;
use opsmith::prelude::*;
use opsmith::space;

use crate::card::{self, folds::fold_to, is_plain};
use crate::define::ops;
use crate::elementwise::{Elementwise, ElementwiseKernel, Loop, broadcast_shape, broadcasting, ternary};
use crate::linear::{FLOATS, floats, is_float, last_input};
use crate::sums::sum_array_to;

ops! {
    /// The op `Select`: one of two tensors, element by element.
    Select = select(), with &[gradient, second_gradient];
}

struct Selection;

impl Elementwise<3> for Selection {
    const ON_CARD: Option<&'static str> = Some("chosen");

    fn pick(construction: &OpKernelConstruction<'_>) -> Result<Loop<3>> {
        let dtype: DType = construction.attr("T")?;
        // What counts is how large elements are.
        Ok(match dtype.size() {
            1 => ternary(|condition: bool, x: u8, y: u8| if condition { x } else { y }),
            2 => ternary(|condition: bool, x: u16, y: u16| if condition { x } else { y }),
            4 => ternary(|condition: bool, x: u32, y: u32| if condition { x } else { y }),
            8 => ternary(|condition: bool, x: u64, y: u64| if condition { x } else { y }),
            _ => ternary(|condition: bool, x: Complex<f64>, y: Complex<f64>| if condition { x } else { y }),
        })
    }
}

fn select() -> OpDef {
    let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::String);
    OpDef::new("Select")
        .attr("T: type")
        .input("condition: bool")
        .input("x: T")
        .input("y: T")
        .output("z: T")
        .parallel("(...), (...), (...) -> (...)")
        .doc(
            "One of two tensors, element by element; all three broadcast by NumPy's rules. What is not taken has no effect \
             on the gradient, even if it is infinite or NaN.\n\n\
             condition: Whether it is the element of `x`.\n\
             x: Any tensor but one of text.\n\
             y: One of the same dtype.\n\
             z: Of the shape that all broadcast to.",
        )
        .shape_fn(broadcasting)
        .gradient("SelectGrad")
        .kernels(dtypes.map(|dtype| {
            KernelDef::cpu::<ElementwiseKernel<Selection, 3>>().strided().dtype_constraint("T", dtype)
        }))
        .kernels(card::kernels::<ElementwiseKernel<Selection, 3>>(is_plain))
}

fn gradient() -> OpDef {
    OpDef::new("SelectGrad")
        .attr(&format!("T: {FLOATS}"))
        .input("condition: bool")
        .input("x: T")
        .input("y: T")
        .input("z_grad: T")
        .output("x_grad: T")
        .output("y_grad: T")
        .optional("x_grad")
        .optional("y_grad")
        .parallel("(...), (...), (...), (...) -> +(...), +(...)")
        .doc("The gradient of `Select`.")
        .shape_fn(|c| {
            for input in [1, 2] {
                let shape = c.input(input)?;
                c.set_output(input - 1, shape)?;
            }
            Ok(())
        })
        .gradient("SelectGradGrad")
        .kernels(floats::<SelectionGradient>())
        .kernels(card::kernels::<SelectionGradient>(is_float))
}

fn second_gradient() -> OpDef {
    OpDef::new("SelectGradGrad")
        .attr(&format!("T: {FLOATS}"))
        .input("condition: bool")
        .input("x_grad_grad: T")
        .input("y_grad_grad: T")
        .output("z_grad_grad: T")
        .parallel("(...), (...), (...) -> (...)")
        .doc("The gradient of `SelectGrad`.")
        .shape_fn(|c| {
            let shape = broadcast_shape(c)?;
            c.set_output(0, shape)
        })
        .kernels(floats::<ElementwiseKernel<Selection, 3>>())
        .kernels(card::kernels::<ElementwiseKernel<Selection, 3>>(is_float))
}

struct SelectionGradient;

impl OpKernel for SelectionGradient {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(SelectionGradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (x, y) = (context.input_shape(1)?, context.input_shape(2)?);
        let shape = space::broadcast_shape([context.input_shape(0)?, x, y]);
        let shape = shape.ok_or_else(|| crate::elementwise::shape_error(context, 3))?;
        let gradient = last_input(context, &shape)?;
        if crate::card::is_on_card(context) {
            let inputs = (gradient, Some(context.input(0)?));
            for (output, fold, own) in [(0, "opsmith::Total<1>", x), (1, "opsmith::Total<0>", y)] {
                if context.output_wanted(output)? {
                    fold_to(context, fold, inputs, (output, own, own))?;
                }
            }
            return Ok(());
        }
        let condition = context.view::<bool, IxDyn>(0)?;
        let Some(condition) = condition.broadcast(&shape[..]) else {
            return Err(crate::elementwise::shape_error(context, 3));
        };
        dispatch!(gradient.dtype(), AnyFloat, |T| {
            let gradient = gradient.view::<T, IxDyn>()?;
            for (output, shape) in [x, y].into_iter().enumerate() {
                if context.output_wanted(output)? {
                    let taken = context.temp::<T>(gradient.len())?;
                    let mut taken = ArrayViewMutD::from_shape(gradient.raw_dim(), taken)
                        .map_err(|error| Error::internal(error.to_string()))?;
                    azip!((to in &mut taken, &from in &gradient, &first in &condition) {
                        if first == (output == 0) {
                            *to = from;
                        }
                    });
                    sum_array_to(context, taken.view(), output, shape)?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use opsmith::testing;

    use super::*;

    #[test]
    fn what_is_not_taken_has_no_gradient() -> Result<()> {
        let (condition, x, y) = (array![[true], [false]], array![1.0, 2.0], 5.0);
        let y = opsmith::ndarray::arr0(y);
        let outputs = testing::call::<Select>().input(&condition).input(&x).input(&y).run()?;
        assert_eq!(outputs.array::<f64, Ix2>("z")?, array![[1.0, 2.0], [5.0, 5.0]]);
        let z_grad = array![[1.0, 2.0], [f64::NAN, 4.0]];
        let call = testing::Call::new(gradient()).input(&condition).input(&x).input(&y).input(&z_grad);
        assert_eq!(call.run()?.array::<f64, Ix1>("x_grad")?, array![1.0, 2.0]);
        Ok(())
    }
}
