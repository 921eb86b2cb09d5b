//! Convolutions on a card: products of matrices whose factors are read from where they lie.

use opsmith::cuda::{CudaCall, KernelCall, MAX_GRID, Structure};
use opsmith::prelude::*;

use super::{Plan, given};
use crate::card::name;
use crate::windows::card::{Operand, Over, SOURCE};
use crate::windows::{self, Along};

/// A block has so many threads along either side, as in `opsmith_gemm.cuh`.
const SIDE: usize = 16;
/// So many blocks keep every card busy, and so few terms are not worth another one.
const BUSY: usize = 512;
const LEAST: usize = 256;

/// The products of a kernel, one for each group: how many rows and columns they have, and how many terms each sum.
struct Products {
    rows: usize,
    columns: usize,
    depth: usize,
}

impl Products {
    fn blocks(&self, [rows, columns]: [usize; 2]) -> usize {
        self.rows.div_ceil(SIDE * rows).saturating_mul(self.columns.div_ceil(SIDE * columns))
    }

    /// How many rows and columns a thread has: small tiles give a card enough blocks to be busy.
    fn tile(&self, groups: usize) -> [usize; 2] {
        match () {
            () if self.rows <= SIDE => [1, 4],
            () if self.blocks([4, 4]).saturating_mul(groups) >= 100 => [4, 4],
            () => [2, 2],
        }
    }
}

impl Plan {
    fn images(&self, tensor: TensorView<'_>) -> Operand {
        Operand::new(tensor, 1, self.dims)
    }

    fn filters(&self, tensor: TensorView<'_>) -> Operand {
        Operand::new(tensor, 2, self.dims)
    }

    fn over<'a>(&'a self, operands: &'a [Operand]) -> Result<Over<'a>> {
        let front = &self.shape[..self.shape.len() - self.dims - 1];
        let groups = self.groups.saturating_mul(self.inside.max(self.outside));
        let filters = [self.inside, self.outside, windows::window(&self.along)];
        let filters = filters.into_iter().fold(self.groups, |all, size| all.saturating_mul(size.max(1)));
        Over::new(&self.along, front, operands, (groups, filters))
    }

    /// Launches a kernel of products, whose name goes on with `<` and types. Blocks along z share the terms. `add` adds what comes
    /// between the tensors and the sizes.
    ///
    /// # Safety
    /// As for [`Over::launch`].
    unsafe fn multiply(
        &self,
        context: &OpKernelContext<'_>,
        over: &Over<'_>,
        (kernel, parts): (&str, usize),
        products: &Products,
        add: impl FnOnce(KernelCall<'_>) -> KernelCall<'_>,
    ) -> Result<()> {
        let [a, b] = products.tile(self.groups);
        let mut sizes = Structure::new(over.index);
        for size in [self.groups, self.inside, self.outside, products.depth] {
            sizes.index(size as i128)?;
        }
        let grid = [products.blocks([a, b]), self.groups.min(MAX_GRID as usize), parts];
        // SAFETY: the caller's.
        unsafe {
            over.launch(context, &format!("{kernel}, {a}, {b}"), |launch| {
                let launch = launch.grid(grid).block([SIDE as u32, SIDE as u32, 1]);
                add(launch).raw(&sizes.finish_without_address())
            })
        }
    }
}

/// Makes an output like `y` of the convolutions of images and filters, of which there are at most two pairs.
pub(super) fn output(
    context: &OpKernelContext<'_>,
    plan: &Plan,
    output: &'static str,
    terms: &[[TensorView<'_>; 2]],
) -> Result<()> {
    let to = context.allocate_output(output, &plan.shape)?;
    // Of what is not there, something that nobody reads.
    let inputs = [context.input("x")?, context.input("filter")?];
    let [[x0, filter0], [x1, filter1]] = [0usize, 1].map(|at| terms.get(at).copied().unwrap_or(inputs));
    let operands = [plan.images(x0), plan.filters(filter0), plan.images(x1), plan.filters(filter1)];
    let products = Products {
        rows: plan.outside,
        columns: plan.images.saturating_mul(windows::count(&plan.along)),
        depth: plan.inside.saturating_mul(windows::window(&plan.along)),
    };
    let (kernel, to) = (format!("convolved<{}", name(x0.dtype())?), to.data_ptr().cast_const().cast());
    // SAFETY: these are the kernel's parameters; the shapes of the tensors follow from the plan, and the output is dense.
    unsafe {
        plan.multiply(context, &plan.over(&operands)?, (&kernel, 1), &products, |launch| {
            launch.address(to).value(terms.len() as i32)
        })
    }
}

/// Makes the gradient of images from that of `y` and filters.
fn of_images(
    context: &OpKernelContext<'_>,
    plan: &Plan,
    shape: &[usize],
    (y, filter): (TensorView<'_>, Option<TensorView<'_>>),
) -> Result<()> {
    let to = context.allocate_output("x_grad", shape)?;
    let operands = [plan.images(y), plan.filters(filter.unwrap_or(context.input("filter")?))];
    let terms = plan.outside.saturating_mul(windows::window(&plan.along));
    let plane = |all: usize, along: &Along| all.saturating_mul(along.dim);
    let products = Products {
        rows: plan.inside,
        columns: plan.along.iter().fold(plan.images, plane),
        depth: if filter.is_some() { terms } else { 0 },
    };
    let (kernel, to) = (format!("images_back<{}", name(y.dtype())?), to.data_ptr().cast_const().cast());
    // SAFETY: these are the kernel's parameters; the shapes of the tensors follow from the plan, and the output is dense.
    unsafe {
        plan.multiply(context, &plan.over(&operands)?, (&kernel, 1), &products, |launch| launch.address(to))
    }
}

/// Makes the gradient of filters from images and that of `y`. Where there are few tiles, several blocks share the terms of each; what
/// they find is put together in their order.
fn of_filters(
    context: &OpKernelContext<'_>,
    plan: &Plan,
    shape: &[usize],
    (x, y): (Option<TensorView<'_>>, TensorView<'_>),
) -> Result<()> {
    let output = context.allocate_output("filter_grad", shape)?;
    let operands = [plan.images(x.unwrap_or(context.input("x")?)), plan.images(y)];
    let terms = plan.images.saturating_mul(windows::count(&plan.along));
    let products = Products {
        rows: plan.outside,
        columns: plan.inside.saturating_mul(windows::window(&plan.along)),
        depth: if x.is_some() { terms } else { 0 },
    };
    let (over, depth, length) = (plan.over(&operands)?, products.depth, output.num_elements());
    let blocks = products.blocks(products.tile(plan.groups)).saturating_mul(plan.groups);
    let each = depth.div_ceil((BUSY / blocks.max(1)).clamp(1, depth / LEAST + 1));
    let parts = depth.div_ceil(each.max(1)).max(1);
    let (of, to) = (name(y.dtype())?, output.data_ptr().cast_const().cast());
    let make = |sum: &str, to| {
        // SAFETY: these are the kernel's parameters; the shapes of the tensors follow from the plan, and there is room for each part.
        unsafe {
            let kernel = format!("filters_back<{of}, {sum}");
            plan.multiply(context, &over, (&kernel, parts), &products, |launch| {
                launch.address(to).index(each, over.index)
            })
        }
    };
    if parts == 1 {
        return make(of, to);
    }
    let bytes = length.saturating_mul(parts).saturating_mul(if y.dtype() == DType::Float64 { 8 } else { 4 });
    let left = context.device_temp(bytes.max(1))?.as_ptr().cast_const().cast();
    make(&format!("opsmith::wide<{of}>"), left)?;
    let call = CudaCall::new(context, &SOURCE);
    let added = call.kernel(format!("added<{of}, {}>", over.index.name())).for_each(length);
    let added = added.address(left).address(to).value(parts as i32).index(length, over.index);
    // SAFETY: these are the kernel's parameters, and each part has as many sums as the output elements.
    unsafe { added.launch() }
}

/// The gradients of one order or the other, as on the CPU.
pub(super) fn gradients(context: &OpKernelContext<'_>, plan: &Plan, is_second: bool) -> Result<()> {
    let (x, filter) = (context.input("x")?, context.input("filter")?);
    let Some(y) = given(context, "y_grad", &plan.shape)? else {
        bail!(Internal, "input `y_grad` is never absent");
    };
    let (u, v) = match is_second {
        true => {
            (given(context, "x_grad_grad", x.shape())?, given(context, "filter_grad_grad", filter.shape())?)
        }
        false => (Some(x), Some(filter)),
    };
    if context.output_wanted("x_grad")? {
        of_images(context, plan, x.shape(), (y, v))?;
    }
    if context.output_wanted("filter_grad")? {
        of_filters(context, plan, filter.shape(), (u, y))?;
    }
    if is_second && context.output_wanted("y_grad_grad")? {
        let terms = [u.map(|u| [u, filter]), v.map(|v| [x, v])];
        return output(context, plan, "y_grad_grad", &terms.into_iter().flatten().collect::<Vec<_>>());
    }
    Ok(())
}
