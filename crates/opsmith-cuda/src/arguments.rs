//! A kernel's arguments, as bytes that its parameters take.

use std::ffi::c_void;

use opsmith_core::space::{IndexSpace, Order};
use opsmith_core::{Error, Result, ensure};

use crate::view::{CudaElement, DeviceTensor, Index};

/// Values in the order of a kernel's parameters.
///
/// ```
/// use opsmith_cuda::Arguments;
///
/// let mut arguments = Arguments::default();
/// arguments.value(7i32).value(0.5f32);
/// assert_eq!(arguments.bytes(1), 0.5f32.to_ne_bytes());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Each argument begins with a word, so is aligned for all that parameters have.
    words: Vec<u64>,
    /// For each argument, the word that it begins with, and how many bytes it has.
    places: Vec<(usize, usize)>,
}

impl Arguments {
    /// Adds a number: `int`, `float` and so on.
    pub fn value<T: CudaElement>(&mut self, value: T) -> &mut Arguments {
        // SAFETY: numbers have no padding, and the slice ends with the call.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        self.raw(bytes)
    }

    /// Adds an integer of the type of indices, which it has to fit.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not.
    pub fn index(&mut self, value: usize, index: Index) -> Result<&mut Arguments> {
        let mut bytes = Structure::new(index);
        bytes.index(value as i128)?;
        Ok(self.raw(&bytes.bytes))
    }

    /// Adds an address on the card.
    pub fn address(&mut self, address: *const c_void) -> &mut Arguments {
        self.raw(&(address as u64).to_ne_bytes())
    }

    /// Adds a tensor as a `PackedAccessor` of `N` dims: the address, the dims, the strides.
    ///
    /// # Errors
    /// `InvalidArgument` when it has not `N` dims, or they do not fit the index.
    pub fn tensor<const N: usize>(
        &mut self,
        tensor: &dyn DeviceTensor,
        index: Index,
    ) -> Result<&mut Arguments> {
        let layout = tensor.layout();
        let rank = layout.shape.len();
        ensure!(rank == N, InvalidArgument, "expected rank {N}, got rank {rank} (shape {:?})", layout.shape);
        let mut packed = Structure::new(index);
        packed.address(layout.data.cast());
        for &dim in layout.shape {
            packed.index(dim as i128)?;
        }
        for dim in 0..rank {
            packed.index(layout.stride(dim) as i128)?;
        }
        Ok(self.raw(&packed.finish()))
    }

    /// Adds a tensor of up to 8 dims as a `FlatAccessor`: the address, the number of elements, the rank, and dims and strides,
    /// the last first. Dims that lie one behind the other are one; of row-major elements there are none.
    ///
    /// # Errors
    /// `InvalidArgument` when there are more dims, or they do not fit the index.
    pub fn flat(&mut self, tensor: &dyn DeviceTensor, index: Index) -> Result<&mut Arguments> {
        let layout = tensor.layout();
        let space = IndexSpace::new(layout.shape, &[layout.plain()])?;
        let is_dense = space.is_empty() || space.order(0) == Order::Dense;
        let rank = if is_dense { 0 } else { space.dims().len() };
        ensure!(
            rank <= FLAT_RANK,
            InvalidArgument,
            "expected at most {FLAT_RANK} dims, got {:?}",
            layout.shape
        );
        let mut packed = Structure::new(index);
        packed.address(layout.data.cast()).index(space.len() as i128)?.int(rank as i32);
        for &size in space.dims()[..rank].iter().chain(std::iter::repeat(&1)).take(FLAT_RANK) {
            packed.index(size as i128)?;
        }
        for &stride in space.strides(0)[..rank].iter().chain(std::iter::repeat(&0)).take(FLAT_RANK) {
            packed.index(stride as i128)?;
        }
        Ok(self.raw(&packed.finish()))
    }

    /// Adds a structure by its bytes, padding and all.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Arguments {
        self.places.push((self.words.len(), bytes.len()));
        self.words.extend(bytes.chunks(size_of::<u64>()).map(|chunk| {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        }));
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The bytes of one.
    ///
    /// # Panics
    /// When there is none at this position.
    pub fn bytes(&self, position: usize) -> &[u8] {
        let (begin, len) = self.places[position];
        // SAFETY: the argument's bytes are those of initialised words from its place on.
        unsafe { std::slice::from_raw_parts(self.words[begin..].as_ptr().cast(), len) }
    }

    /// The addresses of all, as launches take them.
    pub fn pointers(&mut self) -> Vec<*mut c_void> {
        let words = self.words.as_mut_ptr();
        // SAFETY: every place is within the words.
        self.places.iter().map(|&(begin, _)| unsafe { words.add(begin) }.cast()).collect()
    }
}

/// The most dims of a `FlatAccessor`.
const FLAT_RANK: usize = 8;

/// A structure of C++ in the making, member after member, each where the compiler would put it.
///
/// ```
/// use opsmith_cuda::{Index, Structure};
///
/// // struct { int rank; long long count; }
/// let mut structure = Structure::new(Index::Bits64);
/// structure.int(2).index(7)?;
/// assert_eq!(structure.finish(), [&2i64.to_ne_bytes()[..], &7i64.to_ne_bytes()].concat());
/// # Ok::<(), opsmith_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Structure {
    bytes: Vec<u8>,
    index: Index,
}

impl Structure {
    /// One without members, whose indices are of this type.
    pub fn new(index: Index) -> Structure {
        Structure { bytes: Vec::new(), index }
    }

    /// An address.
    pub fn address(&mut self, address: *const c_void) -> &mut Structure {
        self.member(&(address as u64).to_ne_bytes())
    }

    /// A `double`.
    pub fn double(&mut self, value: f64) -> &mut Structure {
        self.member(&value.to_ne_bytes())
    }

    /// An `int`.
    pub fn int(&mut self, value: i32) -> &mut Structure {
        self.member(&value.to_ne_bytes())
    }

    /// An index, with a sign or without: one without is below what an index with a sign holds.
    ///
    /// # Errors
    /// `InvalidArgument` when the type does not hold it.
    pub fn index(&mut self, value: i128) -> Result<&mut Structure> {
        let name = self.index.name();
        let wrong = || {
            let message =
                format!("{value} does not fit an index of type {name}; take `Index::of` all tensors");
            Error::invalid_argument(message)
        };
        match self.index {
            Index::Bits32 => Ok(self.int(i32::try_from(value).map_err(|_| wrong())?)),
            Index::Bits64 => Ok(self.member(&i64::try_from(value).map_err(|_| wrong())?.to_ne_bytes())),
        }
    }

    /// The bytes of a structure with an address, or a number of 8 bytes, to a multiple of which it goes on.
    pub fn finish(mut self) -> Vec<u8> {
        self.align(size_of::<u64>());
        self.bytes
    }

    /// The bytes of a structure of indices, and of what is no larger.
    pub fn finish_without_address(mut self) -> Vec<u8> {
        self.align(if self.index == Index::Bits32 { size_of::<i32>() } else { size_of::<i64>() });
        self.bytes
    }

    /// Members are aligned to their size.
    fn member(&mut self, bytes: &[u8]) -> &mut Structure {
        self.align(bytes.len());
        self.bytes.extend(bytes);
        self
    }

    fn align(&mut self, size: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(size), 0);
    }
}

#[cfg(test)]
mod tests {
    use opsmith_core::{DType, Device, DeviceKind, TensorView};

    use super::*;
    use crate::view::DeviceView;

    fn with<R>(shape: &[usize], strides: &[isize], test: impl FnOnce(&DeviceView<'_, f32>) -> R) -> R {
        let device = Device { kind: DeviceKind::Cuda, index: 0 };
        // SAFETY: nobody reads the elements.
        let tensor = unsafe {
            TensorView::from_raw_parts(
                0x1122_3344_5566_7788 as *const u8,
                DType::Float32,
                device,
                shape,
                strides,
            )
        };
        test(&DeviceView::new(tensor).unwrap())
    }

    fn ints(bytes: &[u8]) -> Vec<i32> {
        bytes.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    #[test]
    fn accessors_are_packed_as_the_header_has_them() {
        let mut arguments = Arguments::default();
        with(&[2, 3, 1], &[-3, 1, 99], |tensor| {
            arguments.tensor::<3>(tensor, Index::Bits32).unwrap();
            arguments.tensor::<3>(tensor, Index::Bits64).unwrap();
        });
        let (small, large) = (arguments.bytes(0), arguments.bytes(1));
        assert_eq!((small.len(), large.len()), (32, 56));
        assert_eq!(small[..8], 0x1122_3344_5566_7788u64.to_ne_bytes());
        assert_eq!(ints(&small[8..]), [2, 3, 1, -3, 1, 0]);
        assert_eq!(ints(&large[8..]), [2, 0, 3, 0, 1, 0, -3, -1, 1, 0, 0, 0]);
        assert_eq!(
            with(&[5], &[1], |t| Arguments::default().tensor::<1>(t, Index::Bits32).unwrap().bytes(0).len()),
            16
        );
    }

    #[test]
    fn flat_tensors_have_as_few_dims_as_may_be() {
        let flat = |shape: &[usize], strides: &[isize]| {
            let mut arguments = Arguments::default();
            with(shape, strides, |tensor| arguments.flat(tensor, Index::Bits32).map(drop)).unwrap();
            let all = ints(&arguments.bytes(0)[8..]);
            (all[0], all[1], all[2..2 + all[1] as usize].to_vec(), all[10..10 + all[1] as usize].to_vec())
        };
        assert_eq!(flat(&[2, 3, 4], &[12, 4, 1]), (24, 0, vec![], vec![]));
        assert_eq!(flat(&[2, 3, 4], &[24, 8, 2]), (24, 1, vec![24], vec![2]));
        assert_eq!(flat(&[2, 3], &[1, 2]), (6, 2, vec![3, 2], vec![2, 1]));
        assert_eq!(flat(&[2, 3], &[0, 0]), (6, 1, vec![6], vec![0]));
        assert_eq!(flat(&[0, 3], &[7, 7]), (0, 0, vec![], vec![]));
        assert_eq!(flat(&[], &[]), (1, 0, vec![], vec![]));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let error = with(&[3], &[1 << 40], |t| {
            Arguments::default().tensor::<1>(t, Index::Bits32).map(drop).unwrap_err()
        });
        assert!(error.message().contains("1099511627776 does not fit an index of type int"), "{error}");
        let error =
            with(&[3], &[1], |t| Arguments::default().tensor::<2>(t, Index::Bits32).map(drop).unwrap_err());
        assert!(error.message().contains("expected rank 2, got rank 1"), "{error}");
        let mut arguments = Arguments::default();
        arguments.value(true).value(2.0f64).address(std::ptr::null());
        assert_eq!((arguments.bytes(0), arguments.bytes(1).len(), arguments.len()), (&[1u8][..], 8, 3));
        let pointers = arguments.pointers();
        // SAFETY: the second argument is a double.
        assert_eq!(unsafe { pointers[1].cast::<f64>().read() }, 2.0);
    }
}
