//! Products of matrices on a card, and of stacks of them: how `gemm.cu` is launched.

use half::{bf16, f16};
use opsmith_core::space::{Extents, IndexSpace, Layout, Strides, broadcast_shape};
use opsmith_core::{Error, Result, ensure};

use crate::arguments::Structure;
use crate::array::DeviceArray;
use crate::call::{CudaCall, KernelCall};
use crate::launch::MAX_GRID;
use crate::source::Source;
use crate::view::{CudaElement, DeviceTensor, Index};

static SOURCE: Source = Source::new("gemm.cu", include_str!("gemm.cu")).beside(file!());

/// A block has so many threads along either side, as in `opsmith_gemm.cuh`.
const SIDE: usize = 16;

/// The most dims in front of matrices, when those that lie one behind the other are taken as one.
const MAX_RANK: usize = 8;

/// Types of elements of matrices that are multiplied.
pub trait CudaFloat: CudaElement {
    /// Gives a kernel a factor, in the type that products are computed in.
    fn factor(launch: KernelCall<'_>, value: f64) -> KernelCall<'_>;
}

macro_rules! floats {
    ($($float:ty as $wide:ty),*) => {
        $(impl CudaFloat for $float {
            fn factor(launch: KernelCall<'_>, value: f64) -> KernelCall<'_> {
                launch.value(value as $wide)
            }
        })*
    };
}

floats! { f16 as f32, bf16 as f32, f32 as f32, f64 as f64 }

impl CudaCall<'_> {
    /// Sets `c` to `alpha · a · b + beta · c`; with a `beta` of 0, `c` is not read.
    ///
    /// Each may be a matrix, or a stack of matrices: dims in front of the last two broadcast by NumPy's rules, and the products
    /// are added up over those that `c` lacks, or has as 1. Strides are any. float16 and bfloat16 are added up in float32, and
    /// each element in one order, which the sizes alone decide.
    ///
    /// # Errors
    /// `InvalidArgument` when the shapes do not fit; what launching may say.
    pub fn gemm<T: CudaFloat>(
        &self,
        alpha: f64,
        a: &DeviceArray<'_, T>,
        b: &DeviceArray<'_, T>,
        beta: f64,
        c: &DeviceArray<'_, T>,
    ) -> Result<()> {
        self.gemm_pairs(alpha, &[(a, b)], beta, c)
    }

    /// As [`gemm`](Self::gemm), with the sum of the products of one or two pairs of factors.
    ///
    /// # Errors
    /// As [`gemm`](Self::gemm), and `InvalidArgument` for another number of pairs, or pairs of different shapes.
    pub fn gemm_pairs<T: CudaFloat>(
        &self,
        alpha: f64,
        pairs: &[(&DeviceArray<'_, T>, &DeviceArray<'_, T>)],
        beta: f64,
        c: &DeviceArray<'_, T>,
    ) -> Result<()> {
        let [(a, b), others @ ..] = pairs else {
            return Err(Error::invalid_argument("a product has at least one pair of factors"));
        };
        let (a1, b1) = match others {
            [] => (*a, *b),
            [(a1, b1)] => (*a1, *b1),
            _ => return Err(Error::invalid_argument("a sum of products has at most two pairs of factors")),
        };
        let problem = || {
            Error::invalid_argument(format!(
                "products of shapes {:?} and {:?} do not give {:?}",
                a.shape(),
                b.shape(),
                c.shape()
            ))
        };
        ensure!(
            a1.shape() == a.shape() && b1.shape() == b.shape(),
            InvalidArgument,
            "the second product has shapes {:?} and {:?}, the first {:?} and {:?}",
            a1.shape(),
            b1.shape(),
            a.shape(),
            b.shape()
        );
        let operands: [&dyn DeviceTensor; 5] = [*a, *b, a1, b1, c];
        let product = Product::new(operands.map(Matrices::of)).ok_or_else(problem)?;
        let (index, large) = (product.index(&operands), size_of::<T>() > 4);
        let call = self.with(&SOURCE);
        let (edge, [a_rows, b_columns]) = (product.edge(large), product.directions());
        let kernel = format!("gemm<{}, {}, {edge}, {a_rows}, {b_columns}>", T::NAME, index.name());
        let launch = call.kernel(kernel).grid(product.grid(large)).block([SIDE as u32, SIDE as u32, 1]);
        let launch = product.arguments(launch, pairs.len(), index)?;
        let launch = T::factor(T::factor(launch, alpha), beta);
        // SAFETY: these are the kernel's parameters, and it stays within the matrices, whose dims have been checked.
        unsafe { launch.launch() }
    }
}

/// A stack of matrices: the address, and how the stack and each matrix lie.
struct Matrices {
    data: *mut u8,
    stack: (Extents, Strides),
    rows: (usize, isize),
    columns: (usize, isize),
}

impl Matrices {
    /// None of a tensor with fewer than two dims.
    fn of(tensor: &dyn DeviceTensor) -> Option<Matrices> {
        let layout = tensor.layout();
        let dim = |dim: usize| (layout.shape[dim], layout.stride(dim));
        let rows = layout.shape.len().checked_sub(2)?;
        let stack = (layout.shape[..rows].into(), layout.strides[..rows].into());
        Some(Matrices { data: layout.data, stack, rows: dim(rows), columns: dim(rows + 1) })
    }

    fn transposed(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.columns);
    }
}

/// What a launch computes: `[a, b, a1, b1, c]`, with the dims in front of matrices.
struct Product {
    operands: [Matrices; 5],
    kept: IndexSpace,
    summed: IndexSpace,
}

impl Product {
    /// None where the shapes do not fit.
    fn new(operands: [Option<Matrices>; 5]) -> Option<Product> {
        let [Some(a), Some(b), Some(a1), Some(b1), Some(c)] = operands else { return None };
        let fits = a.columns.0 == b.rows.0 && a.rows.0 == c.rows.0 && b.columns.0 == c.columns.0;
        let mut operands = fits.then_some([a, b, a1, b1, c])?;
        // Neighbouring threads write what lies side by side: where these are rows, the product is that of the transposes.
        if operands[4].columns.1 != 1 && operands[4].rows.1 == 1 {
            operands.iter_mut().for_each(Matrices::transposed);
            operands.swap(0, 1);
            operands.swap(2, 3);
        }
        let stacks = operands.each_ref().map(|own| Layout { shape: &own.stack.0, strides: &own.stack.1 });
        let all = broadcast_shape(stacks.map(|stack| stack.shape))?;
        let own = stacks[4].shape;
        let is_summed =
            |dim: usize| (dim + own.len()).checked_sub(all.len()).map_or(1, |at| own[at]) != all[dim];
        let [kept, summed] = IndexSpace::split(&all, &stacks, |dim| usize::from(is_summed(dim))).ok()?;
        Some(Product { operands, kept, summed })
    }

    fn sizes(&self) -> [usize; 3] {
        let [a, .., c] = &self.operands;
        [c.rows.0, c.columns.0, a.columns.0]
    }

    fn tiles(&self, edge: usize) -> usize {
        let [rows, columns, _] = self.sizes();
        rows.div_ceil(SIDE * edge).saturating_mul(columns.div_ceil(SIDE * edge))
    }

    /// Elements of a thread along either side: large tiles read less, and small ones give a card enough blocks to be busy.
    fn edge(&self, wide: bool) -> usize {
        let blocks = |edge: usize| self.tiles(edge).saturating_mul(self.kept.len());
        match () {
            () if !wide && blocks(8) >= 200 => 8,
            () if blocks(4) >= 100 => 4,
            () => 2,
        }
    }

    fn grid(&self, wide: bool) -> [usize; 3] {
        [self.tiles(self.edge(wide)), self.kept.len().min(MAX_GRID as usize), 1]
    }

    /// Whether rows of the first factors, and columns of the second ones, lie side by side in memory.
    fn directions(&self) -> [bool; 2] {
        let [a, b, ..] = &self.operands;
        [a.rows.1 == 1 && a.columns.1 != 1, b.rows.1 != 1 || b.columns.1 == 1]
    }

    fn index(&self, tensors: &[&dyn DeviceTensor]) -> Index {
        let most = i32::MAX as usize - (1 << 16);
        match self.kept.len() <= most && self.summed.len() <= most {
            true => Index::of(tensors),
            false => Index::Bits64,
        }
    }

    fn arguments<'a>(&self, launch: KernelCall<'a>, pairs: usize, index: Index) -> Result<KernelCall<'a>> {
        let launch = self.sizes().iter().fold(launch, |launch, &size| launch.index(size, index));
        let launch = [&self.kept, &self.summed].iter().try_fold(launch, |launch, space| {
            let rank = space.dims().len();
            ensure!(
                rank <= MAX_RANK,
                Unimplemented,
                "products of stacks that lie in {rank} dims have no CUDA kernel; make them contiguous"
            );
            let mut structure = Structure::new(index);
            structure.index(space.len() as i128)?.int(rank as i32);
            for &size in space.dims().iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
                structure.index(size as i128)?;
            }
            Ok::<_, Error>(launch.raw(&structure.finish_without_address()))
        })?;
        let launch =
            (0..4).try_fold(launch, |launch, at| Ok::<_, Error>(launch.raw(&self.packed(at, index)?)))?;
        Ok(launch.value(pairs as i32).raw(&self.packed(4, index)?))
    }

    /// The structure `Matrices` of an operand.
    fn packed(&self, at: usize, index: Index) -> Result<Vec<u8>> {
        let own = &self.operands[at];
        let mut structure = Structure::new(index);
        structure.address(own.data.cast());
        structure.index(own.rows.1 as i128)?.index(own.columns.1 as i128)?;
        for space in [&self.kept, &self.summed] {
            // Of a dim of 0, which leads nowhere, frameworks leave anything.
            let strides = if space.is_empty() { &[] } else { space.strides(at) };
            for &stride in strides.iter().chain(std::iter::repeat(&0)).take(MAX_RANK) {
                structure.index(stride as i128)?;
            }
        }
        Ok(structure.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(shapes: [&[usize]; 3]) -> Option<Product> {
        let [a, b, c] = shapes.map(|shape| DeviceArray::<f32>::dense(4096 as *mut f32, shape));
        Product::new([&a, &b, &a, &b, &c].map(|array| Matrices::of(array)))
    }

    #[test]
    fn dims_are_kept_or_summed_over_and_few() {
        let all = product([&[2, 3, 4, 5], &[2, 3, 5, 6], &[2, 3, 4, 6]]).unwrap();
        assert_eq!((all.kept.dims(), all.summed.dims()), (&[6][..], &[][..]));
        let sum = product([&[2, 3, 4, 5], &[3, 5, 6], &[4, 6]]).unwrap();
        assert_eq!((sum.kept.dims(), sum.summed.dims()), (&[][..], &[3, 2][..]));
        assert_eq!([0, 1, 2, 3, 4].map(|at| sum.summed.strides(at)[1]), [60, 0, 60, 0, 0]);
        let part = product([&[2, 1, 4, 5], &[3, 5, 6], &[2, 1, 4, 6]]).unwrap();
        assert_eq!((part.kept.dims(), part.summed.dims()), (&[2][..], &[3][..]));
        for wrong in [
            [&[4, 5][..], &[6, 5], &[4, 5]],
            [&[4], &[4, 5], &[5]],
            [&[2, 4, 5], &[3, 5, 6], &[4, 6]],
            [&[4, 5], &[5, 6], &[6, 4]],
        ] {
            assert!(product(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn tiles_are_large_where_there_are_enough() {
        let edge = |n: usize, wide| product([&[n, 1], &[1, n], &[n, n]]).unwrap().edge(wide);
        assert_eq!([16, 640, 2048].map(|n| edge(n, false)), [2, 4, 8]);
        assert_eq!([16, 640, 2048].map(|n| edge(n, true)), [2, 4, 4]);
    }
}
