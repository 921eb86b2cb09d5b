//! Products of matrices on a card, and of stacks of them: how `gemm.cu` is launched.

use half::{bf16, f16};
use opsmith_core::tensor::Extents;
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

/// A stack of matrices: the address, and for each dim its size and stride, those of a matrix apart.
struct Matrices {
    data: *mut u8,
    stack: Vec<(usize, isize)>,
    rows: (usize, isize),
    columns: (usize, isize),
}

impl Matrices {
    /// None of a tensor with fewer than two dims.
    fn of(tensor: &dyn DeviceTensor) -> Option<Matrices> {
        let layout = tensor.layout();
        let mut stack: Vec<(usize, isize)> =
            (0..layout.shape.len()).map(|dim| (layout.shape[dim], layout.stride(dim))).collect();
        let (columns, rows) = (stack.pop()?, stack.pop()?);
        stack.reverse();
        Some(Matrices { data: layout.data, stack, rows, columns })
    }

    fn transposed(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.columns);
    }

    /// The size and the stride of a dim in front, counted from the last; of one that is not there, or 1, the stride is 0.
    fn dim(&self, dim: usize) -> (usize, isize) {
        self.stack.get(dim).copied().unwrap_or((1, 0))
    }
}

/// Dims in front of the matrices, the last first, with the strides of the five operands.
#[derive(Default)]
struct Dims(Vec<(usize, [isize; 5])>);

impl Dims {
    /// Adds a dim outside of the others, as one with the last where it goes on behind it in all operands.
    fn push(&mut self, dim: usize, strides: [isize; 5]) {
        match self.0.last_mut() {
            _ if dim == 1 => {}
            Some((inner, own)) if (0..5).all(|at| own[at] * *inner as isize == strides[at]) => *inner *= dim,
            _ => self.0.push((dim, strides)),
        }
    }

    fn count(&self) -> usize {
        self.0.iter().fold(1, |count, (dim, _)| count.saturating_mul(*dim))
    }
}

/// What a launch computes: `[a, b, a1, b1, c]`.
struct Product {
    operands: [Matrices; 5],
    kept: Dims,
    summed: Dims,
}

impl Product {
    /// None where the shapes do not fit.
    fn new(operands: [Option<Matrices>; 5]) -> Option<Product> {
        let [Some(a), Some(b), Some(a1), Some(b1), Some(c)] = operands else { return None };
        let fits = a.columns.0 == b.rows.0 && a.rows.0 == c.rows.0 && b.columns.0 == c.columns.0;
        let mut operands = fits.then_some([a, b, a1, b1, c])?;
        let (mut kept, mut summed) = (Dims::default(), Dims::default());
        for dim in 0..operands.iter().map(|own| own.stack.len()).max()? {
            let own: [_; 5] = std::array::from_fn(|at| operands[at].dim(dim));
            let size = own.iter().map(|(size, _)| *size).find(|&size| size != 1).unwrap_or(1);
            if own.iter().any(|(own, _)| ![1, size].contains(own)) {
                return None;
            }
            let part = if own[4].0 == size { &mut kept } else { &mut summed };
            part.push(size, own.map(|(own, stride)| if own == 1 { 0 } else { stride }));
        }
        // Neighbouring threads write what lies side by side: where these are rows, the product is that of the transposes.
        if operands[4].columns.1 != 1 && operands[4].rows.1 == 1 {
            operands.iter_mut().for_each(Matrices::transposed);
            operands.swap(0, 1);
            operands.swap(2, 3);
            for (_, strides) in kept.0.iter_mut().chain(&mut summed.0) {
                strides.swap(0, 1);
                strides.swap(2, 3);
            }
        }
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
        let blocks = |edge: usize| self.tiles(edge).saturating_mul(self.kept.count());
        match () {
            () if !wide && blocks(8) >= 200 => 8,
            () if blocks(4) >= 100 => 4,
            () => 2,
        }
    }

    fn grid(&self, wide: bool) -> [usize; 3] {
        [self.tiles(self.edge(wide)), self.kept.count().min(MAX_GRID as usize), 1]
    }

    /// Whether rows of the first factors, and columns of the second ones, lie side by side in memory.
    fn directions(&self) -> [bool; 2] {
        let [a, b, ..] = &self.operands;
        [a.rows.1 == 1 && a.columns.1 != 1, b.rows.1 != 1 || b.columns.1 == 1]
    }

    fn index(&self, tensors: &[&dyn DeviceTensor]) -> Index {
        let most = i32::MAX as usize - (1 << 16);
        match self.kept.count() <= most && self.summed.count() <= most {
            true => Index::of(tensors),
            false => Index::Bits64,
        }
    }

    fn arguments<'a>(&self, launch: KernelCall<'a>, pairs: usize, index: Index) -> Result<KernelCall<'a>> {
        let launch = self.sizes().iter().fold(launch, |launch, &size| launch.index(size, index));
        let launch = [&self.kept, &self.summed].iter().try_fold(launch, |launch, dims| {
            let rank = dims.0.len();
            ensure!(
                rank <= MAX_RANK,
                Unimplemented,
                "products of stacks that lie in {rank} dims have no CUDA kernel; make them contiguous"
            );
            let sizes: Extents = dims.0.iter().map(|(size, _)| *size).collect();
            let mut structure = Structure::new(index);
            structure.index(dims.count() as i128)?.int(rank as i32);
            for &size in sizes.iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
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
        for dims in [&self.kept, &self.summed] {
            let strides = dims.0.iter().map(|(_, strides)| strides[at]);
            for stride in strides.chain(std::iter::repeat(0)).take(MAX_RANK) {
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

    fn dims(dims: &Dims) -> Vec<usize> {
        dims.0.iter().map(|(dim, _)| *dim).collect()
    }

    #[test]
    fn dims_are_kept_or_summed_over_and_few() {
        let all = product([&[2, 3, 4, 5], &[2, 3, 5, 6], &[2, 3, 4, 6]]).unwrap();
        assert_eq!((dims(&all.kept), dims(&all.summed)), (vec![6], vec![]));
        let sum = product([&[2, 3, 4, 5], &[3, 5, 6], &[4, 6]]).unwrap();
        assert_eq!((dims(&sum.kept), dims(&sum.summed)), (vec![], vec![3, 2]));
        assert_eq!(sum.summed.0[1].1, [60, 0, 60, 0, 0]);
        let part = product([&[2, 1, 4, 5], &[3, 5, 6], &[2, 1, 4, 6]]).unwrap();
        assert_eq!((dims(&part.kept), dims(&part.summed)), (vec![2], vec![3]));
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
