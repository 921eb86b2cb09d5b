//! Convolutions over one to three dims.

mod card;
#[cfg(test)]
mod card_tests;
mod product;
#[cfg(test)]
mod tests;

use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};

use self::product::{Terms, filter_terms, image_terms, output_terms};
use crate::define::ops;
use crate::linear::{FLOATS, floats_with, is_float};
use crate::wide::Wide;
use crate::windows::{self, ATTRS, ATTRS_DOC, Along, Lists};

ops! {
    /// The op `Conv`: a convolution.
    Conv = forward(), with &[gradient, second_gradient];
}

/// The dims of images, of filters and of what is made of both.
const IMAGES: &str = "(..., _, _*strides)";
const FILTER: &str = "(_, _, _*strides)";

/// What the ops say in their attributes.
struct Convolution {
    lists: Lists,
    groups: usize,
}

/// What a call goes through, as if images had three dims. Channels are in groups, each of which is an image by itself.
struct Plan {
    along: [Along; 3],
    /// How many dims windows go over.
    dims: usize,
    groups: usize,
    /// The number of images, each of all channels.
    images: usize,
    /// The channels of a group, of `x` and of `y`.
    inside: usize,
    outside: usize,
    /// The shape of `y`.
    shape: Extents,
}

impl Convolution {
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Convolution> {
        Ok(Convolution { lists: Lists::new(construction)?, groups: construction.attr("groups")? })
    }

    fn plan(&self, x: &[usize], filter: &[usize]) -> Result<Plan> {
        let (dims, groups) = (self.lists.dims(), self.groups);
        ensure!(
            filter.len() == dims + 2 && x.len() > dims,
            InvalidArgument,
            "`x` must have shape (…, channels, dims) and `filter` (channels, channels, sizes), with a dim and a size for each number \
             of `strides`, of which there are {dims}; got {x:?} and {filter:?}"
        );
        let (front, own) = x.split_at(x.len() - dims - 1);
        let (channels, outside) = (own[0], filter[0]);
        ensure!(
            groups.checked_mul(filter[1]) == Some(channels) && outside.is_multiple_of(groups),
            InvalidArgument for "filter",
            "`groups`, {groups}, must divide the channels of `y`, and those of `x` must be as many times the second dim of \
             `filter`; got {x:?} and {filter:?}"
        );
        let along = self.lists.over(&own[1..], &filter[2..])?;
        let mut shape = Extents::from_slice(front);
        shape.push(outside);
        shape.extend(along[3 - dims..].iter().map(|along| along.count));
        ensure!(
            crate::parameters::elements(&shape).is_some(),
            ResourceExhausted,
            "a convolution of shape {shape:?} is too large"
        );
        let (inside, outside) = (filter[1], outside / groups);
        Ok(Plan { along, dims, groups, images: front.iter().product(), inside, outside, shape })
    }
}

/// The shape of `y`, from those of `x` and `filter`, which are inputs 0 and 1.
fn output_shape(c: &mut InferenceContext<'_>) -> Result<Shape> {
    let (dims, groups) = (c.get_ints("strides")?.len(), c.get_int("groups")?.unsigned_abs());
    let (x, filter) = (c.with_rank_at_least(c.input(0)?, dims + 1)?, c.with_rank(c.input(1)?, dims + 2)?);
    let (Some(x), Some(filter)) = (x.dims(), filter.dims()) else { return Ok(Shape::unknown()) };
    let (front, own) = x.split_at(x.len() - dims - 1);
    let inside = c.multiply(&filter[1], groups)?;
    c.assume_equal(
        &own[0],
        &inside,
        "`x` must have `groups` times as many channels as the second dim of `filter`",
    )?;
    if let Dim::Known(outside) = filter[0]
        && !outside.is_multiple_of(groups)
    {
        let text = format!("`groups`, {groups}, must divide the channels of `y`, {outside}");
        return Err(c.error(text).naming("groups"));
    }
    let found = windows::inferred(c, &own[1..], &filter[2..])?;
    Ok(front.iter().cloned().chain([filter[0].clone()]).chain(found).collect())
}

struct Forward(Convolution);

impl OpKernel for Forward {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Convolution::new(construction).map(Forward)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let plan = self.0.plan(context.input_shape("x")?, context.input_shape("filter")?)?;
        if crate::card::is_on_card(context) {
            let term = [context.input("x")?, context.input("filter")?];
            return card::output(context, &plan, "y", &[term]);
        }
        dispatch!(context.input("x")?.dtype(), AnyFloat, |T| {
            let cx = context.compute();
            let (x, filter) = (wide::<T>(context, "x")?, wide::<T>(context, "filter")?);
            let mut y = context.allocate_output("y", &plan.shape)?;
            let terms = Terms::of(&plan, [Some((x, filter)), None])?;
            T::narrow(&cx, y.as_slice_mut()?, |y| output_terms(&cx, &plan, &terms, y))
        })
    }
}

/// All numbers of an input, as products are made of them.
fn wide<'a, T: Wide>(context: &OpKernelContext<'a>, name: &'static str) -> Result<&'a [T::As]> {
    T::wide(&context.compute(), context.input(name)?.as_slice()?)
}

/// An input that may be absent, and must have this shape.
fn given<'a>(
    context: &OpKernelContext<'a>,
    name: &'static str,
    shape: &[usize],
) -> Result<Option<TensorView<'a>>> {
    let given = context.optional_input(name)?;
    if let Some(tensor) = given {
        ensure!(
            tensor.shape() == shape,
            InvalidArgument for name,
            "input `{name}` must have shape {shape:?}, got {:?}",
            tensor.shape()
        );
    }
    Ok(given)
}

/// Its numbers, as products are made of them.
fn optional<'a, T: Wide>(
    context: &OpKernelContext<'a>,
    name: &'static str,
    shape: &[usize],
) -> Result<Option<&'a [T::As]>> {
    let given = given(context, name, shape)?;
    given.map(|tensor| T::wide(&context.compute(), tensor.as_slice()?)).transpose()
}

/// The gradient. With U and V for the gradients of those of `x` and `filter`, and G for that of `y`, the `SECOND` one is of what
/// U * filter + x * V has with G.
struct Gradient<const SECOND: bool>(Convolution);

impl<const SECOND: bool> OpKernel for Gradient<SECOND> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Convolution::new(construction).map(Gradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (of_x, of_filter) = (context.input_shape("x")?, context.input_shape("filter")?);
        let plan = self.0.plan(of_x, of_filter)?;
        if crate::card::is_on_card(context) {
            return card::gradients(context, &plan, SECOND);
        }
        dispatch!(context.input("x")?.dtype(), AnyFloat, |T| {
            let cx = context.compute();
            let (x, filter) = (wide::<T>(context, "x")?, wide::<T>(context, "filter")?);
            let y = optional::<T>(context, "y_grad", &plan.shape)?.unwrap_or_default();
            let (u, v) = match SECOND {
                true => (
                    optional::<T>(context, "x_grad_grad", of_x)?,
                    optional::<T>(context, "filter_grad_grad", of_filter)?,
                ),
                false => (Some(x), Some(filter)),
            };
            if context.output_wanted("x_grad")? {
                let mut output = context.allocate_output("x_grad", of_x)?;
                let term = v.map(|v| (y, v));
                T::narrow(&cx, output.as_slice_mut()?, |to| image_terms(&cx, &plan, term, to))?;
            }
            if context.output_wanted("filter_grad")? {
                let mut output = context.allocate_output("filter_grad", of_filter)?;
                let term = u.map(|u| (u, y));
                T::narrow(&cx, output.as_slice_mut()?, |to| filter_terms(&cx, &plan, term, to))?;
            }
            if SECOND && context.output_wanted("y_grad_grad")? {
                let mut output = context.allocate_output("y_grad_grad", &plan.shape)?;
                let terms = Terms::of(&plan, [u.map(|u| (u, filter)), v.map(|v| (x, v))])?;
                T::narrow(&cx, output.as_slice_mut()?, |to| output_terms(&cx, &plan, &terms, to))?;
            }
            Ok(())
        })
    }
}

/// An op of this family with its inputs and outputs.
fn begin(name: &str, inputs: &[&str], outputs: &[&str]) -> OpDef {
    let def = OpDef::new(name).attr("strides: list(int) >= 1").attr(ATTRS[1]).attr(ATTRS[2]);
    let def = def.attr("groups: int >= 1 = 1").attr(&format!("T: {FLOATS}"));
    let def = inputs.iter().fold(def, |def, input| def.input(&format!("{input}: T")));
    let def = outputs.iter().fold(def, |def, output| def.output(&format!("{output}: T")));
    let dims = |name: &&str| if name.starts_with("filter") { FILTER } else { IMAGES };
    let output =
        |name: &&str| if name.starts_with("filter") { format!("+{FILTER}") } else { IMAGES.to_owned() };
    let (inputs, outputs): (Vec<&str>, Vec<String>) =
        (inputs.iter().map(dims).collect(), outputs.iter().map(output).collect());
    def.parallel(&format!("{} -> {}", inputs.join(", "), outputs.join(", ")))
}

fn forward() -> OpDef {
    begin("Conv", &["x", "filter"], &["y"])
        .doc(&format!(
            "The convolution of images, or of lines or solids, with filters, as neural networks have it: \
             y[o, p] = Σ x[c, strides p + dilations q - padding] filter[o, c, q] over channels c and the places q of a window, where \
             x is 0 beyond its ends. float16 and bfloat16 are added up in float32.\n\n\
             x: Of shape (…, channels, dims), with one to three dims.\n\
             filter: Of shape (channels of y, channels / groups, sizes), a size for each dim; it is not turned around.\n{}\
             groups: How many groups channels are in, those of `y` as those of `x`: each is made of its own alone.\n\
             y: Of shape (…, channels of y, dims), a number for each window and filter.",
            ATTRS_DOC.replacen("; empty for 1", "", 1)
        ))
        .shape_fn(|c| {
            let shape = output_shape(c)?;
            c.set_output(0, shape)
        })
        .gradient("ConvGrad")
        .autocast(opsmith::Autocast::Lower)
        .kernels(floats_with::<Forward>(false))
        .kernels(crate::card::kernels::<Forward>(is_float))
}

/// The gradients are like the inputs that they belong to.
fn like_inputs(c: &mut InferenceContext<'_>) -> Result<()> {
    let (shape, given) = (output_shape(c)?, c.input(2)?);
    let shape = c.merge_shapes(&shape, &given)?;
    for index in [0, 1] {
        let mut own = c.input(index)?;
        if c.num_inputs() > 3 && c.has_input(3 + index) {
            let given = c.input(3 + index)?;
            own = c.merge_shapes(&own, &given)?;
        }
        c.set_output(index, own)?;
    }
    if c.num_outputs() > 2 { c.set_output(2, shape) } else { Ok(()) }
}

fn gradient() -> OpDef {
    begin("ConvGrad", &["x", "filter", "y_grad"], &["x_grad", "filter_grad"])
        .optional("x_grad")
        .optional("filter_grad")
        .doc("The gradient of `Conv`.")
        .shape_fn(like_inputs)
        .gradient("ConvGradGrad")
        .kernels(floats_with::<Gradient<false>>(false))
        .kernels(crate::card::kernels::<Gradient<false>>(is_float))
}

fn second_gradient() -> OpDef {
    let inputs = ["x", "filter", "y_grad", "x_grad_grad", "filter_grad_grad"];
    begin("ConvGradGrad", &inputs, &["x_grad", "filter_grad", "y_grad_grad"])
        .optional("x_grad_grad")
        .optional("filter_grad_grad")
        .optional("x_grad")
        .optional("filter_grad")
        .optional("y_grad_grad")
        .doc("The gradient of `ConvGrad`.")
        .shape_fn(like_inputs)
        .kernels(floats_with::<Gradient<true>>(false))
        .kernels(crate::card::kernels::<Gradient<true>>(is_float))
}
