//! Sparse tensors: the elements that are not zero, and where they are.

use half::{bf16, f16};
use ndarray::{Ix1, Ix2, IxDyn};
use num_complex::Complex;
use opsmith_core::{DType, Element, Result, bail, ensure, memory};

use crate::standard;
use crate::tensor::Tensor;

/// A tensor of which only some elements are not zero: coordinates beside values (COO).
#[derive(Debug, Clone)]
pub struct SparseTensor {
    indices: Tensor,
    values: Tensor,
    shape: Vec<usize>,
}

impl SparseTensor {
    /// A tensor of this shape that has `values` (n) at `indices` (n, rank), int64, and zeros elsewhere. Each place may be
    /// given once.
    ///
    /// # Errors
    /// `InvalidArgument` when the shapes do not fit each other; `OutOfRange` for an index that is not in the shape.
    pub fn new(indices: Tensor, values: Tensor, shape: &[usize]) -> Result<SparseTensor> {
        check_places(&indices, values.shape(), shape)?;
        Ok(SparseTensor { indices, values, shape: shape.to_vec() })
    }

    /// The elements of a tensor that are not zero, row-major.
    ///
    /// # Errors
    /// `Unimplemented` for text and quantised numbers; `ResourceExhausted` without memory.
    pub fn from_dense(dense: &Tensor) -> Result<SparseTensor> {
        macro_rules! each {
            ($($dtype:ident $rust:ty),*) => {
                match dense.dtype() {
                    $(DType::$dtype => non_zero::<$rust>(dense),)*
                    other => bail!(Unimplemented, "SparseTensor: there are no sparse tensors of {other}"),
                }
            };
        }
        each!(
            Float16 f16, BFloat16 bf16, Float32 f32, Float64 f64, Int8 i8, Int16 i16, Int32 i32, Int64 i64, UInt8 u8,
            UInt16 u16, UInt32 u32, UInt64 u64, Bool bool, Complex64 Complex<f32>, Complex128 Complex<f64>
        )
    }

    /// Where the values are, int64 (n, rank).
    pub fn indices(&self) -> &Tensor {
        &self.indices
    }

    /// The values (n).
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// The dims.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// The tensor with its zeros: the op `SparseToDense`.
    ///
    /// # Errors
    /// `InvalidArgument` for a place that is given twice; `ResourceExhausted` without memory.
    pub fn to_dense(&self) -> Result<Tensor> {
        let dims: Vec<i64> = self.shape.iter().map(|&dim| dim as i64).collect();
        let shape = Tensor::from_slice(&dims, &[dims.len()])?;
        let args = [(&self.values).into(), (&self.indices).into(), (&shape).into()];
        Ok(standard::op("SparseToDense")?.call(&args, &[])?.remove(0))
    }

    /// The matrix product of this (n, k) and a dense (k, m): time and memory go with the values and the result.
    ///
    /// # Errors
    /// `InvalidArgument` for shapes or dtypes that do not fit; `Unimplemented` for numbers other than float32 and float64.
    pub fn matmul(&self, dense: &Tensor) -> Result<Tensor> {
        let fits = matches!((&*self.shape, dense.shape()), ([_, k], [rows, _]) if k == rows);
        ensure!(
            fits && dense.dtype() == self.dtype(),
            InvalidArgument,
            "SparseTensor: {}{:?} cannot be multiplied by {}{:?}",
            self.dtype(),
            self.shape,
            dense.dtype(),
            dense.shape()
        );
        match self.dtype() {
            DType::Float32 => self.product::<f32>(dense),
            DType::Float64 => self.product::<f64>(dense),
            other => bail!(Unimplemented, "SparseTensor: a product needs float32 or float64, got {other}"),
        }
    }

    fn product<T: Element + ndarray::LinalgScalar>(&self, dense: &Tensor) -> Result<Tensor> {
        let (indices, values) = (self.indices.view::<i64, Ix2>()?, self.values.view::<T, Ix1>()?);
        let dense = dense.view::<T, Ix2>()?;
        let mut result = Tensor::zeros(T::DTYPE, &[self.shape[0], dense.ncols()])?;
        let mut product = result.view_mut::<T, Ix2>()?;
        for (place, &value) in indices.outer_iter().zip(values) {
            let (row, column) = (place[0] as usize, place[1] as usize);
            product
                .row_mut(row)
                .zip_mut_with(&dense.row(column), |sum, &factor| *sum = *sum + value * factor);
        }
        Ok(result)
    }
}

/// Makes sure that a sparse tensor of this shape may have values of that shape at these indices.
///
/// # Errors
/// As [`SparseTensor::new`].
pub fn check_places(indices: &Tensor, values: &[usize], shape: &[usize]) -> Result<()> {
    ensure!(
        indices.dtype() == DType::Int64
            && matches!(indices.shape(), [count, rank] if *rank == shape.len() && [*count] == *values),
        InvalidArgument,
        "SparseTensor: a tensor of shape {shape:?} with {values:?} values needs int64 indices of shape (n, {}), got {}{:?}",
        shape.len(),
        indices.dtype(),
        indices.shape()
    );
    let places = indices.view::<i64, Ix2>()?;
    for (at, place) in places.outer_iter().enumerate() {
        let is_inside =
            place.iter().zip(shape).all(|(&index, &dim)| usize::try_from(index).is_ok_and(|i| i < dim));
        ensure!(is_inside, OutOfRange for "indices", "SparseTensor: indices[{at}] = {place} is not in shape {shape:?}");
    }
    let mut sorted = memory::collected(0..places.nrows(), "the places of values in order")?;
    sorted.sort_unstable_by(|&a, &b| places.row(a).iter().cmp(places.row(b)));
    if let Some(twice) = sorted.windows(2).find(|pair| places.row(pair[0]) == places.row(pair[1])) {
        let index = places.row(twice[0]).to_vec();
        bail!(InvalidArgument for "indices", "SparseTensor: index {index:?} is given twice");
    }
    Ok(())
}

fn non_zero<T: Element>(dense: &Tensor) -> Result<SparseTensor> {
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    for (place, value) in dense.view::<T, IxDyn>()?.indexed_iter() {
        if *value != T::default() {
            let rank = dense.shape().len();
            memory::reserve(&mut indices, rank, "the places of values")?;
            memory::reserve(&mut values, 1, "values")?;
            indices.extend((0..rank).map(|dim| place[dim] as i64));
            values.push(*value);
        }
    }
    Ok(SparseTensor {
        indices: Tensor::from_slice(&indices, &[values.len(), dense.shape().len()])?,
        values: Tensor::from_slice(&values, &[values.len()])?,
        shape: dense.shape().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense() -> Tensor {
        Tensor::from_slice(&[0.0, 2.0, 0.0, 0.0, 0.0, -3.0], &[2, 3]).unwrap()
    }

    #[test]
    fn zeros_are_left_out_and_come_back() {
        let sparse = SparseTensor::from_dense(&dense()).unwrap();
        assert_eq!(sparse.indices().to_vec::<i64>().unwrap(), [0, 1, 1, 2]);
        assert_eq!(sparse.values().to_vec::<f64>().unwrap(), [2.0, -3.0]);
        assert_eq!(sparse.to_dense().unwrap().to_vec::<f64>().unwrap(), dense().to_vec::<f64>().unwrap());
        let none = SparseTensor::from_dense(&Tensor::zeros(DType::Int8, &[2, 2]).unwrap()).unwrap();
        assert_eq!(none.to_dense().unwrap().to_vec::<i8>().unwrap(), [0; 4]);
    }

    #[test]
    fn products_are_those_of_the_dense_tensors() {
        let factor = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
        let product = SparseTensor::from_dense(&dense()).unwrap().matmul(&factor).unwrap();
        let expected = dense().view::<f64, Ix2>().unwrap().dot(&factor.view::<f64, Ix2>().unwrap());
        assert_eq!(product.view::<f64, Ix2>().unwrap(), expected);
        assert!(SparseTensor::from_dense(&dense()).unwrap().matmul(&dense()).is_err());
    }

    #[test]
    fn places_outside_are_errors() {
        let values = Tensor::from_slice(&[1f32], &[1]).unwrap();
        let at = |index: i64| Tensor::from_slice(&[index], &[1, 1]).unwrap();
        assert!(SparseTensor::new(at(2), values.clone(), &[3]).is_ok());
        for index in [3, -1] {
            let error = SparseTensor::new(at(index), values.clone(), &[3]).unwrap_err();
            assert!(error.message().contains("is not in shape [3]"), "{error}");
        }
        assert!(SparseTensor::new(at(0), values, &[3, 3]).is_err());
        let twice = Tensor::from_slice(&[1i64, 1], &[2, 1]).unwrap();
        let values = Tensor::from_slice(&[1f32, 2.0], &[2]).unwrap();
        assert!(SparseTensor::new(twice, values, &[3]).unwrap_err().message().contains("is given twice"));
        let none = Tensor::zeros(DType::Int64, &[0, 2]).unwrap();
        let huge =
            SparseTensor::new(none, Tensor::zeros(DType::Float32, &[0]).unwrap(), &[1 << 60, 3]).unwrap();
        let factor = Tensor::zeros(DType::Float32, &[3, 1 << 10]).unwrap();
        assert_eq!(huge.matmul(&factor).unwrap_err().code(), opsmith_core::Code::ResourceExhausted);
        let text = Tensor::from_strings(&["a"], &[1]).unwrap();
        assert!(SparseTensor::from_dense(&text).is_err());
    }
}
