//! Products of matrices of integers on a card: how `integers.cu` is launched.

use opsmith::cuda::{CudaCall, MAX_GRID, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::{IndexSpace, Layout};

use super::Backend;
use crate::card::strided::Strided;
use crate::moved_on_card::name as name_of_size;

static SOURCE: Source = Source::new("integers.cu", include_str!("integers.cu")).beside(file!());

/// A block has so many threads along either side, as in `opsmith_gemm.cuh`.
const SIDE: usize = 16;
/// So many blocks of the larger tiles keep a card busy.
const ENOUGH: usize = 100;

/// Tensors on a card, of integers of any dtype.
pub(super) struct IntegersOnCard;

impl Backend for IntegersOnCard {
    type Stack<'a> = Strided<'a>;

    fn input<'a>(context: &OpKernelContext<'a>, name: &'static str) -> Result<Option<Strided<'a>>> {
        Ok(context.optional_input(name)?.map(Strided::of))
    }

    fn shape<'s>(stack: &'s Strided<'_>) -> &'s [usize] {
        &stack.shape
    }

    fn transposed<'a>(stack: &Self::Stack<'a>) -> Result<Self::Stack<'a>> {
        Ok(stack.transposed())
    }

    fn make(
        context: &OpKernelContext<'_>,
        name: &'static str,
        (shape, transposed): (&[usize], bool),
        _: &[usize],
        terms: &[(Strided<'_>, Strided<'_>)],
    ) -> Result<()> {
        let [(a, b)] = terms else { return Err(Error::internal("integers have no gradients")) };
        let output = Strided::output(&context.allocate_output(name, shape)?);
        multiply(context, [a, b, &if transposed { output.transposed() } else { output }])
    }
}

/// Sets each matrix of `c` to the product of those of `a` and `b`, whose dims in front broadcast to its own.
pub(crate) fn multiply(context: &OpKernelContext<'_>, [a, b, c]: [&Strided<'_>; 3]) -> Result<()> {
    let [of_a, of_b, of_c] = [a, b, c].map(|own| [2, 1].map(|from_end| own.dim(own.shape.len() - from_end)));
    // Neighbouring threads write what lies side by side: where these are rows, the product is that of the transposes.
    if of_c[1].1 != 1 && of_c[0].1 == 1 {
        let [a, b, c] = [a, b, c].map(Strided::transposed);
        return multiply(context, [&b, &a, &c]);
    }
    let fronts = [a, b, c].map(|own| {
        let (Layout { shape, strides }, rank) = (own.layout(), own.shape.len() - 2);
        Layout { shape: &shape[..rank], strides: &strides[..rank] }
    });
    let kept = IndexSpace::new(fronts[2].shape, &fronts)?;
    let [rows, columns, depth] = [of_c[0].0, of_c[1].0, of_a[1].0];
    let reach = [of_a, of_b, of_c].into_iter().flatten().fold(depth, |far, (size, stride)| {
        far.saturating_add(size.saturating_mul(stride.unsigned_abs().max(1)))
    });
    let index = index_of(&[&kept], 3, reach);
    let tiles = |edge: usize| rows.div_ceil(SIDE * edge).saturating_mul(columns.div_ceil(SIDE * edge));
    let edge = if tiles(4).saturating_mul(kept.len()) >= ENOUGH { 4 } else { 2 };
    let (a_rows, b_columns) = (of_a[0].1 == 1 && of_a[1].1 != 1, of_b[0].1 != 1 || of_b[1].1 == 1);
    let size = c.dtype.size();
    let element = name_of_size(size)
        .ok_or_else(|| Error::internal(format!("integers of {size} bytes are not multiplied on a card")))?;
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(format!("product<{element}, {}, {edge}, {a_rows}, {b_columns}>", index.name()));
    let launch = launch.grid([tiles(edge), kept.len().min(MAX_GRID as usize), 1]);
    let launch = launch.block([SIDE as u32, SIDE as u32, 1]);
    let launch = [a, b, c].iter().fold(launch, |launch, own| launch.address(own.address()));
    let launch = [rows, columns, depth].iter().fold(launch, |launch, &size| launch.index(size, index));
    let launch = [of_a, of_b, of_c].iter().try_fold(launch, |launch, [row, column]| {
        let mut steps = Structure::new(index);
        steps.index(row.1 as i128)?.index(column.1 as i128)?;
        Ok::<_, Error>(launch.raw(&steps.finish_without_address()))
    })?;
    // SAFETY: these are the kernel's parameters, and it stays within the matrices, of which the space has the first elements.
    unsafe { launch.space(&kept, 3, index).launch() }
}
