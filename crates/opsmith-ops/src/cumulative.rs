//! Sums, products and extremes of all numbers up to each along a dim.

mod card;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use opsmith::dtype::{Complex, bf16, f16, sets};
use opsmith::memory;
use opsmith::prelude::*;

use crate::along::{self, LANE, Near, by_lanes, is_real, lanes, lanes_mut, of_real_numbers, three};
use crate::define::ops;
use crate::linear::{self, FLOATS, Facts, Linear, floats, floats_with, is_float, last_input};
use crate::parameters::axis_of;
use crate::positions::{Extreme, Greatest, Least};

ops! {
    /// The op `CumSum`: sums of all numbers up to each.
    CumSum = linear::forward::<Sums>(), with &[linear::gradient::<Sums>, linear::second::<Sums>];
    /// The op `CumProd`: products of all numbers up to each.
    CumProd = products(), with &[products_gradient_op, products_second_gradient];
    /// The op `CumMax`: the largest of all numbers up to each.
    CumMax = extremes::<Greatest>("CumMax", "largest"),
        with &[|| extremes_gradient::<Greatest>("CumMax"), || extremes_second_gradient::<Greatest>("CumMax")];
    /// The op `CumMin`: the smallest of all numbers up to each.
    CumMin = extremes::<Least>("CumMin", "smallest"),
        with &[|| extremes_gradient::<Least>("CumMin"), || extremes_second_gradient::<Least>("CumMin")];
}

/// The dtypes of sums and products.
const NUMBERS: &str = "{float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, \
                       complex64, complex128}";
const ATTRS: &[&str] = &["axis: int = -1", "exclusive: bool = false", "reverse: bool = false"];
const DIMS: &str = "(... but axis)";
const ATTRS_DOC: &str = "axis: Which dim; counted from the end where negative.\n\
                         exclusive: Whether a number itself is left out.\n\
                         reverse: Whether they are gone through from the end.";

/// A number as it is added up and multiplied: wider floats, and integers that wrap around.
trait Running: Number {
    type Wide: Copy + Send + Sync + 'static;
    const ONE: Self::Wide;
    fn wide(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn plus(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn times(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! running {
    ($($ty:ty as $wide:ty, $one:expr; |$x:ident| $widen:expr, |$w:ident| $narrow:expr, |$a:ident, $b:ident| $plus:expr, $times:expr;)*) => {$(
        impl Running for $ty {
            type Wide = $wide;
            const ONE: $wide = $one;
            #[inline(always)]
            fn wide(self) -> $wide { let $x = self; $widen }
            #[inline(always)]
            fn narrow($w: $wide) -> Self { $narrow }
            #[inline(always)]
            fn plus($a: $wide, $b: $wide) -> $wide { $plus }
            #[inline(always)]
            fn times($a: $wide, $b: $wide) -> $wide { $times }
        }
    )*};
    (of integers: $($int:ty)*) => {
        running! { $($int as $int, 1; |x| x, |w| w, |a, b| a.wrapping_add(b), a.wrapping_mul(b);)* }
    };
}

running! {
    f16 as f32, 1.0; |x| x.to_f32(), |w| f16::from_f32(w), |a, b| a + b, a * b;
    bf16 as f32, 1.0; |x| x.to_f32(), |w| bf16::from_f32(w), |a, b| a + b, a * b;
    f32 as f64, 1.0; |x| x.into(), |w| w as f32, |a, b| a + b, a * b;
    f64 as f64, 1.0; |x| x, |w| w, |a, b| a + b, a * b;
    Complex<f32> as Complex<f64>, Complex::new(1.0, 0.0);
        |x| Complex::new(x.re.into(), x.im.into()), |w| Complex::new(w.re as f32, w.im as f32), |a, b| a + b, a * b;
    Complex<f64> as Complex<f64>, Complex::new(1.0, 0.0); |x| x, |w| w, |a, b| a + b, a * b;
}
running! { of integers: i8 i16 i32 i64 u8 u16 u32 u64 }

/// The attributes: how lanes are gone through.
#[derive(Clone, Copy)]
struct Order {
    axis: i64,
    exclusive: bool,
    reverse: bool,
}

impl Order {
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Order> {
        let (exclusive, reverse) = (construction.attr("exclusive")?, construction.attr("reverse")?);
        Ok(Order { axis: construction.attr("axis")?, exclusive, reverse })
    }

    /// The positions along a lane, in order.
    fn positions(self, length: usize) -> impl Iterator<Item = usize> {
        (0..length).map(move |at| if self.reverse { length - 1 - at } else { at })
    }
}

/// Makes `y` of the steps along the lanes of `x`: `step` takes what has been found, a position and the number there, and `show`
/// turns what has been found to an element. Neighbouring lanes are gone through side by side.
fn scan<T: Element, A: Copy + Send + Sync, Z: Element>(
    cx: &Compute<'_>,
    (x, y, dims): (&[T], &mut [Z], [usize; 3]),
    order: Order,
    first: A,
    step: impl Fn(A, usize, T) -> A + Sync,
    show: impl Fn(A) -> Z + Sync,
) -> Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let (x, y) = (lanes(dims, x)?, lanes_mut(dims, y)?);
    let advance = |found: &mut A, at: usize, x: T, y: &mut Z| {
        let next = step(*found, at, x);
        *y = show(if order.exclusive { *found } else { next });
        *found = next;
    };
    by_lanes(cx, y, LANE, 2, |part, mut y| {
        let x = part.of(&x);
        let (length, width) = (y.len_of(LANE), y.len_of(Axis(2)));
        let mut found = memory::filled(first, width, "what is found of lanes")?;
        for (x, mut y) in x.outer_iter().zip(y.outer_iter_mut()) {
            found.fill(first);
            if let (1, Some(x), Some(y)) = (width, x.to_slice(), y.as_slice_mut()) {
                let mut one = first;
                order.positions(length).for_each(|at| advance(&mut one, at, x[at], &mut y[at]));
                continue;
            }
            for at in order.positions(length) {
                let row = x.row(at).into_iter().zip(y.row_mut(at));
                found.iter_mut().zip(row).for_each(|(found, (&x, y))| advance(found, at, x, y));
            }
        }
        Ok(())
    })
}

struct Sums(Order);

impl Sums {
    fn run(&self, context: &OpKernelContext<'_>, tensor: TensorView<'_>, turned: bool) -> Result<()> {
        let order = Order { reverse: self.0.reverse != turned, ..self.0 };
        if crate::card::is_on_card(context) {
            return card::scan(context, tensor, order, ("Sum", ""));
        }
        let dims = three(tensor.shape(), self.0.axis)?;
        let mut output = context.allocate_output(0, tensor.shape())?;
        dispatch!(tensor.dtype(), Number, |T| {
            let (x, y) = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            let zero = <T as Running>::wide(T::default());
            let step = |sum, _, x: T| T::plus(sum, x.wide());
            scan(&context.compute(), (x, y, dims), order, zero, step, T::narrow)
        })
    }
}

impl Linear for Sums {
    const FACTS: Facts = Facts {
        name: "CumSum",
        x: "x",
        attrs: ATTRS,
        dtypes: NUMBERS,
        parameters: &[],
        host: &[],
        dims: &[DIMS, DIMS],
        doc: "The sum of all numbers up to each along a dim: y[i] = x[0] + … + x[i]. float16 and bfloat16 are added up in float32, \
              float32 in float64; sums of integers wrap around.\n\n\
              x: Any numbers, with dims.\n\
              axis: Which dim; counted from the end where negative.\n\
              exclusive: Whether a number itself is left out: y[i] = x[0] + … + x[i - 1], and y[0] = 0.\n\
              reverse: Whether they are added up from the end: y[i] = x[i] + … + x[n - 1].\n\
              y: Of the same shape.",
        shape: |c| {
            let shape = c.with_rank_at_least(c.input(0)?, 1)?;
            c.dim(&shape, c.get_int("axis")?)?;
            Ok(shape)
        },
    };
    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [is_real; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Order::new(construction).map(Sums)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        self.run(context, context.input(0)?, false)
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        self.run(context, last_input(context, context.input_shape(0)?)?, true)
    }

    fn kernels() -> Vec<KernelDef> {
        let kernel = |&dtype| KernelDef::cpu::<linear::Forward<Self>>().dtype_constraint("T", dtype);
        sets::NUMBER.iter().map(kernel).collect()
    }
}

/// An op of this family but for its inputs and outputs.
fn begin(name: &str, dtypes: &str) -> OpDef {
    ATTRS.iter().fold(OpDef::new(name), |def, attr| def.attr(attr)).attr(&format!("T: {dtypes}"))
}

/// A forward op of this family.
fn forward(name: &str, dtypes: &str, doc: &str) -> OpDef {
    begin(name, dtypes)
        .input("x: T")
        .output("y: T")
        .parallel(&format!("{DIMS} -> {DIMS}"))
        .doc(&format!("{doc}\n\nx: Any numbers, with dims.\n{ATTRS_DOC}\ny: Of the same shape."))
        .shape_fn(|c| {
            let shape = (Sums::FACTS.shape)(c)?;
            c.set_output(0, shape)
        })
        .gradient(&format!("{name}Grad"))
}

struct Products(Order);

impl OpKernel for Products {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Order::new(construction).map(Products)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        if crate::card::is_on_card(context) {
            return card::scan(context, tensor, self.0, ("Product", ""));
        }
        let dims = three(tensor.shape(), self.0.axis)?;
        let mut output = context.allocate_output(0, tensor.shape())?;
        dispatch!(tensor.dtype(), Number, |T| {
            let (x, y) = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            let step = |product, _, x: T| T::times(product, x.wide());
            scan(&context.compute(), (x, y, dims), self.0, <T as Running>::ONE, step, T::narrow)
        })
    }
}

/// One lane of the gradients of products, in order, in float64.
struct Lane {
    x: Vec<f64>,
    y_grad: Vec<f64>,
    x_grad_grad: Vec<f64>,
    /// What the sum of all that is asked for depends on the change of a product by, and on the product.
    of_change: Vec<f64>,
    of_product: Vec<f64>,
    /// The results: `x_grad` and, of the second order, `y_grad_grad`.
    results: [Vec<f64>; 2],
}

impl Lane {
    fn new(length: usize) -> Result<Lane> {
        let row = || memory::filled(0f64, length, "a lane of products");
        let (x, y_grad, x_grad_grad, of_change) = (row()?, row()?, row()?, row()?);
        Ok(Lane { x, y_grad, x_grad_grad, of_change, of_product: row()?, results: [row()?, row()?] })
    }

    /// With g for `y_grad`, the gradient is x̄ with ⟨x̄, v⟩ = ⟨g, ẏ⟩ for all changes v of x, where products follow p ← p x and their
    /// changes ṗ ← ṗ x + p v. So it is found from behind, and nothing is divided: a zero is a number like others. The second
    /// order, where v is `x_grad_grad`, is ẏ for g, and for x what ⟨g, ẏ⟩ depends on it by.
    fn run(&mut self, exclusive: bool, second: bool) {
        let length = self.x.len();
        let (mut change, mut product) = (0.0, 0.0);
        for at in (0..length).rev() {
            // The first product that has x[at].
            let own = self.y_grad.get(if exclusive { at + 1 } else { at }).copied().unwrap_or(0.0);
            if at + 1 < length {
                let next = self.x[at + 1];
                product = product * next + change * self.x_grad_grad[at + 1];
                change *= next;
            }
            change += own;
            (self.of_change[at], self.of_product[at]) = (change, product);
        }
        let [x_grad, y_grad_grad] = &mut self.results;
        let (mut change, mut product) = (0.0, 1.0);
        for at in 0..length {
            let (of_change, of_product) = (self.of_change[at], self.of_product[at]);
            x_grad[at] = product * if second { of_product } else { of_change };
            if second {
                x_grad[at] += change * of_change;
            }
            let before = change;
            change = change * self.x[at] + product * self.x_grad_grad[at];
            product *= self.x[at];
            y_grad_grad[at] = if exclusive { before } else { change };
        }
    }
}

struct ProductsGradient<const SECOND: bool>(Order);

impl<const SECOND: bool> OpKernel for ProductsGradient<SECOND> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Order::new(construction).map(ProductsGradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape("x")?;
        let axis = Axis(axis_of(self.0.axis, shape.len())?);
        context.infer_shapes()?;
        if crate::card::is_on_card(context) {
            return card::products_gradient(context, self.0, SECOND);
        }
        dispatch!(context.input("x")?.dtype(), AnyFloat, |T| {
            let inputs = ["x", "y_grad", if SECOND { "x_grad_grad" } else { "x" }];
            let [x, y_grad, along] = inputs.map(|name| context.view::<T, IxDyn>(name));
            let inputs = [x?, y_grad?, along?];
            for output in 0..context.signature().outputs.len() {
                if context.output_wanted(output)? {
                    let to = context.output_view::<T, IxDyn>(output, shape)?;
                    products_gradient(&context.compute(), &inputs, (to, output), (self.0, axis), SECOND)?;
                }
            }
            Ok(())
        })
    }
}

/// Makes output `output` of a gradient of products.
fn products_gradient<T: Near>(
    cx: &Compute<'_>,
    inputs: &[ArrayViewD<'_, T>; 3],
    (to, output): (ArrayViewMutD<'_, T>, usize),
    (order, axis): (Order, Axis),
    second: bool,
) -> Result<()> {
    by_lanes(cx, to, axis, 20, |part, mut to| {
        let mut lane = Lane::new(to.len_of(axis))?;
        let read = |from: ArrayView1<'_, T>, lane: &mut [f64]| {
            let positions = order.positions(lane.len());
            lane.iter_mut().zip(positions).for_each(|(to, at)| *to = from[at].to_f64().unwrap_or(f64::NAN));
        };
        let [x, y_grad, along] = inputs.each_ref().map(|input| part.of(input));
        let lanes = x.lanes(axis).into_iter().zip(y_grad.lanes(axis)).zip(along.lanes(axis));
        for (((x, y_grad), along), mut to) in lanes.zip(to.lanes_mut(axis)) {
            read(x, &mut lane.x);
            read(y_grad, &mut lane.y_grad);
            if second {
                read(along, &mut lane.x_grad_grad);
            }
            lane.run(order.exclusive, second);
            let found = lane.results[output].iter().zip(order.positions(to.len()));
            found.for_each(|(&wide, at)| to[at] = T::near(wide));
        }
        Ok(())
    })
}

fn products() -> OpDef {
    forward(
        "CumProd",
        NUMBERS,
        "The product of all numbers up to each along a dim: y[i] = x[0] · … · x[i], or of those before it, 1 for none, if it is \
         exclusive. float16 and bfloat16 are multiplied in float32, float32 in float64; products of integers wrap around.",
    )
    .kernels(sets::NUMBER.iter().map(|&dtype| KernelDef::cpu::<Products>().dtype_constraint("T", dtype)))
    .kernels(crate::card::kernels::<Products>(is_real))
}

/// The inputs of a gradient and those of its gradient must have one shape, which the outputs have.
fn merged(c: &mut InferenceContext<'_>) -> Result<()> {
    (Sums::FACTS.shape)(c)?;
    shape_fns::merged(c)
}

fn gradient_def(name: &str, inputs: &[&str], outputs: &[&str]) -> OpDef {
    let def = begin(name, FLOATS);
    let def = inputs.iter().fold(def, |def, input| def.input(&format!("{input}: T")));
    let def = outputs.iter().fold(def, |def, output| def.output(&format!("{output}: T")));
    let rule = |args: &[&str]| vec![DIMS; args.len()].join(", ");
    def.parallel(&format!("{} -> {}", rule(inputs), rule(outputs))).shape_fn(merged)
}

fn products_gradient_op() -> OpDef {
    gradient_def("CumProdGrad", &["x", "y_grad"], &["x_grad"])
        .doc("The gradient of `CumProd`.")
        .gradient("CumProdGradGrad")
        .kernels(floats::<ProductsGradient<false>>())
        .kernels(crate::card::kernels::<ProductsGradient<false>>(is_float))
}

fn products_second_gradient() -> OpDef {
    gradient_def("CumProdGradGrad", &["x", "y_grad", "x_grad_grad"], &["x_grad", "y_grad_grad"])
        .optional("x_grad")
        .optional("y_grad_grad")
        .doc("The gradient of `CumProdGrad`.")
        .kernels(floats::<ProductsGradient<true>>())
        .kernels(crate::card::kernels::<ProductsGradient<true>>(is_float))
}

struct Extremes<E>(Order, PhantomData<fn() -> E>);

impl<E: Extreme> OpKernel for Extremes<E> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Extremes(Order::new(construction)?, PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        if crate::card::is_on_card(context) {
            return card::scan(context, tensor, self.0, ("Extreme", card::largest::<E>()));
        }
        let dims = three(tensor.shape(), self.0.axis)?;
        let mut output = context.allocate_output(0, tensor.shape())?;
        if sets::INTEGER.contains(&tensor.dtype()) {
            return dispatch!(tensor.dtype(), Integer, |T| {
                let (x, y) = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
                let step = |found, _, x: T| if E::takes(x, found) { x } else { found };
                scan(&context.compute(), (x, y, dims), self.0, E::of_no_integers(), step, |found| found)
            });
        }
        dispatch!(tensor.dtype(), AnyFloat, |T| {
            let (x, y) = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            let step = |found, _, x: T| if E::takes(x, found) { x } else { found };
            let none = T::near(E::OF_NO_FLOATS);
            scan(&context.compute(), (x, y, dims), self.0, none, step, |found| found)
        })
    }
}

/// The gradient of extremes goes to where each comes from; the gradient's gradient `TAKES` what is there.
struct ExtremesGradient<E, const TAKES: bool>(Order, PhantomData<fn() -> E>);

impl<E: Extreme, const TAKES: bool> OpKernel for ExtremesGradient<E, TAKES> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ExtremesGradient(Order::new(construction)?, PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input("x")?;
        let dims = three(tensor.shape(), self.0.axis)?;
        let given = last_input(context, tensor.shape())?;
        if crate::card::is_on_card(context) {
            return card::extremes_gradient(context, [tensor, given], (self.0, card::largest::<E>(), TAKES));
        }
        let mut output = context.allocate_output(0, tensor.shape())?;
        let cx = context.compute();
        let found = cx.temp::<i64>(tensor.num_elements())?;
        dispatch!(tensor.dtype(), AnyFloat, |T| {
            let step = |found: Option<(i64, T)>, at, x: T| match found {
                Some((_, old)) if !E::takes(x, old) => found,
                _ => Some((at as i64, x)),
            };
            let show = |found: Option<(i64, T)>| found.map_or(-1, |(at, _)| at);
            scan(&cx, (tensor.as_slice::<T>()?, &mut *found, dims), self.0, None, step, show)?;
            let (given, found) = (lanes(dims, given.as_slice::<T>()?)?, lanes(dims, found)?);
            let output = lanes_mut(dims, output.as_slice_mut::<T>()?)?;
            match TAKES {
                true => along::take(&cx, given, found, output, (LANE, T::default())),
                false => along::add(&cx, given, found, output, LANE),
            }
        })
    }
}

fn extremes<E: Extreme>(name: &str, what: &str) -> OpDef {
    let doc = format!(
        "The {what} of all numbers up to each along a dim, or of those before it if it is exclusive; of none, what the {what} of no \
         numbers is for `Max` and `Min`. From the first NaN on, all are NaN. The gradient of equal numbers goes to the first."
    );
    forward(name, "realnumbertype", &doc)
        .kernels(of_real_numbers::<Extremes<E>>())
        .kernels(crate::card::kernels::<Extremes<E>>(is_real))
}

fn extremes_gradient<E: Extreme>(name: &str) -> OpDef {
    gradient_def(&format!("{name}Grad"), &["x", "y_grad"], &["x_grad"])
        .doc(&format!("The gradient of `{name}`."))
        .gradient(&format!("{name}GradGrad"))
        .kernels(floats_with::<ExtremesGradient<E, false>>(false))
        .kernels(crate::card::kernels::<ExtremesGradient<E, false>>(is_float))
}

fn extremes_second_gradient<E: Extreme>(name: &str) -> OpDef {
    gradient_def(&format!("{name}GradGrad"), &["x", "x_grad_grad"], &["y_grad_grad"])
        .doc(&format!("The gradient of `{name}Grad`."))
        .kernels(floats_with::<ExtremesGradient<E, true>>(false))
        .kernels(crate::card::kernels::<ExtremesGradient<E, true>>(is_float))
}
