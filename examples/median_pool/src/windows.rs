//! Where the windows lie in the images: attributes, shapes, and the part of each window that is inside.

use std::ops::Range;

use opsmith::prelude::*;
use opsmith::{Dim, Shape};

/// The longest side of a window: a position in it is then two numbers of 16 bits.
const LONGEST: i64 = u16::MAX as i64;

/// What the attributes say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    /// Height and width of a window.
    pub(crate) ksize: [usize; 2],
    /// How far one window is from the next, down and across.
    pub(crate) strides: [usize; 2],
    /// Whether windows may reach beyond the image.
    same: bool,
}

impl Windows {
    /// Checks the attributes; the error is without the op's name.
    pub(crate) fn new(ksize: &[i64], strides: &[i64], padding: &str) -> std::result::Result<Windows, String> {
        Ok(Windows {
            ksize: sides("ksize", ksize, LONGEST)?,
            strides: sides("strides", strides, i64::from(i32::MAX))?,
            same: padding == "SAME",
        })
    }

    /// The windows of an instance.
    pub(crate) fn of(construction: &OpKernelConstruction<'_>) -> Result<Windows> {
        let (ksize, strides): (Vec<i64>, Vec<i64>) =
            (construction.attr("ksize")?, construction.attr("strides")?);
        let padding: String = construction.attr("padding")?;
        Windows::new(&ksize, &strides, &padding).map_err(Error::invalid_argument)
    }

    /// How many elements a window has.
    pub(crate) fn size(&self) -> usize {
        self.ksize[0] * self.ksize[1]
    }

    /// The shape of the output, from that of the images as far as it is known.
    pub(crate) fn infer(context: &mut InferenceContext<'_>) -> Result<Shape> {
        let windows = {
            let padding = context.get_string("padding")?;
            let (ksize, strides) = (context.get_ints("ksize")?, context.get_ints("strides")?);
            Windows::new(ksize, strides, padding).map_err(|message| context.error(message))?
        };
        let input = context.with_rank(context.input(0)?, 4)?;
        let mut dims = [0, 1, 2, 3].map(|_| Dim::Unknown);
        for (position, dim) in dims.iter_mut().enumerate() {
            *dim = context.dim(&input, position as i64)?;
        }
        for axis in [0, 1] {
            let (size, stride) = (windows.ksize[axis] as u64, windows.strides[axis] as u64);
            let dim = dims[axis + 1].clone();
            let room = if windows.same {
                context.add(&dim, stride - 1)?
            } else {
                context.assume_at_least(&dim, &Dim::Known(size), windows.too_large(axis))?;
                let room = context.subtract(&dim, size)?;
                context.add(&room, stride)?
            };
            dims[axis + 1] = context.divide(&room, stride, false)?;
        }
        Ok(context.make_shape(dims))
    }

    fn too_large(&self, axis: usize) -> String {
        let (side, dim) = [("height", "rows"), ("width", "columns")][axis];
        let size = self.ksize[axis];
        format!(
            "the images must have at least {size} {dim}, the {side} of a window that no padding lets reach beyond"
        )
    }

    /// The windows in images of a shape.
    pub(crate) fn on(&self, shape: &[usize]) -> Result<Pool> {
        let &[batch, height, width, channels] = shape else {
            bail!(
                InvalidArgument,
                "input `x` must have shape (batch, height, width, channels), got {shape:?}"
            );
        };
        let along = |axis: usize, dim: usize| {
            let (size, stride) = (self.ksize[axis], self.strides[axis]);
            if self.same {
                let count = dim.div_ceil(stride);
                let needed = count.saturating_sub(1) * stride + size;
                return Ok((count, needed.saturating_sub(dim) / 2));
            }
            let too_large = || Error::invalid_argument(format!("{}, got {shape:?}", self.too_large(axis)));
            Ok((dim.checked_sub(size).ok_or_else(too_large)? / stride + 1, 0))
        };
        let ((rows, above), (columns, left)) = (along(0, height)?, along(1, width)?);
        Ok(Pool { windows: *self, batch, height, width, channels, rows, columns, above, left })
    }
}

/// Two numbers for height and width, or four with 1 for batch and channels.
fn sides(name: &str, numbers: &[i64], most: i64) -> std::result::Result<[usize; 2], String> {
    let two = match *numbers {
        [height, width] | [1, height, width, 1] => [height, width],
        _ => {
            return Err(format!(
                "`{name}` must be two numbers, for height and width, or four of which the first and last, for batch and \
                 channels, are 1; got {numbers:?}"
            ));
        }
    };
    match two.iter().all(|side| (1..=most).contains(side)) {
        true => Ok(two.map(|side| side as usize)),
        false => Err(format!("`{name}` must be of numbers from 1 to {most}, got {numbers:?}")),
    }
}

/// The windows in images of known shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) windows: Windows,
    pub(crate) batch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    /// How many windows there are, down and across.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// How far the first ones begin before the image.
    above: usize,
    pub(crate) left: usize,
}

impl Pool {
    /// The shape of the output.
    pub(crate) fn shape(&self) -> [usize; 4] {
        [self.batch, self.rows, self.columns, self.channels]
    }

    /// The elements of an image, and of what is made of it.
    pub(crate) fn image_len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// The elements of a row of windows.
    pub(crate) fn row_len(&self) -> usize {
        self.columns * self.channels
    }

    /// The rows of the image that a row of windows has.
    pub(crate) fn rows_of(&self, row: usize) -> Range<usize> {
        inside(row * self.windows.strides[0], self.windows.ksize[0], self.above, self.height)
    }

    /// The columns of the image that a window has.
    pub(crate) fn columns_of(&self, column: usize) -> Range<usize> {
        inside(column * self.windows.strides[1], self.windows.ksize[1], self.left, self.width)
    }

    /// The windows across whose column `j` is in the image.
    pub(crate) fn windows_with(&self, j: usize) -> Range<usize> {
        let stride = self.windows.strides[1];
        let end = (self.width + self.left).saturating_sub(j).div_ceil(stride).min(self.columns);
        self.left.saturating_sub(j).div_ceil(stride).min(end)..end
    }

    /// The rows of windows that have one of these rows of the image.
    pub(crate) fn rows_at(&self, rows: &Range<usize>) -> Range<usize> {
        let ([size, _], [stride, _]) = (self.windows.ksize, self.windows.strides);
        let first = (rows.start + self.above + 1).saturating_sub(size).div_ceil(stride);
        let end = (rows.end + self.above).div_ceil(stride).min(self.rows);
        first.min(end)..end
    }
}

/// The part of a window that is in the image, where it begins at `at` less `before`.
fn inside(at: usize, size: usize, before: usize, dim: usize) -> Range<usize> {
    at.saturating_sub(before)..(at + size - before).min(dim)
}
