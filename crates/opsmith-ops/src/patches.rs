//! Patches of images.

mod card;

use opsmith::Shape;
use opsmith::prelude::*;

use crate::define::ops;
use crate::elementwise::Shared;
use crate::indexing::add_up;
use crate::linear::{self, Facts, Linear, is_float, last_input};
use crate::moved_on_card::moves;

ops! {
    /// The op `ExtractPatches`: windows of images as rows.
    ExtractPatches = linear::forward::<Patches>(), with &[linear::gradient::<Patches>, linear::second::<Patches>];
}

/// The windows along one dim of images.
#[derive(Clone, Copy)]
struct Windows {
    size: usize,
    stride: usize,
    rate: usize,
}

impl Windows {
    /// How far a window reaches.
    fn reach(self) -> usize {
        (self.size - 1) * self.rate + 1
    }

    /// How many windows there are in a dim, and how far the first one begins before it.
    fn along(self, dim: usize, same: bool) -> (usize, usize) {
        if same {
            let count = dim.div_ceil(self.stride);
            let needed = count.saturating_sub(1) * self.stride + self.reach();
            return (count, needed.saturating_sub(dim) / 2);
        }
        (if dim < self.reach() { 0 } else { (dim - self.reach()) / self.stride + 1 }, 0)
    }
}

struct Patches {
    rows: Windows,
    columns: Windows,
    same: bool,
}

/// Runs of elements that lie one after another in an image and in its patches.
struct Runs<'a> {
    patches: &'a Patches,
    image: [usize; 4],
    /// The number of rows and columns of patches, and where the first ones begin before the image.
    counts: (usize, usize),
    before: (usize, usize),
}

impl Patches {
    fn runs(&self, shape: &[usize]) -> Result<Runs<'_>> {
        let &[_, height, width, _] = shape else {
            bail!(
                InvalidArgument for "x",
                "input `x` must have shape (batch, height, width, channels), got {shape:?}"
            );
        };
        let (rows, above) = self.rows.along(height, self.same);
        let (columns, left) = self.columns.along(width, self.same);
        let image = [shape[0], height, width, shape[3]];
        Ok(Runs { patches: self, image, counts: (rows, columns), before: (above, left) })
    }
}

impl Runs<'_> {
    /// The shape of the patches.
    fn shape(&self) -> Result<[usize; 4]> {
        let ([batch, _, _, channels], (rows, columns)) = (self.image, self.counts);
        let length = self.patches.rows.size.checked_mul(self.patches.columns.size);
        let length = length.and_then(|length| length.checked_mul(channels));
        let shape = length.map(|length| [batch, rows, columns, length]);
        shape
            .filter(|shape| crate::parameters::elements(shape).is_some())
            .ok_or_else(|| Error::resource_exhausted("the patches are too large"))
    }

    /// Calls `act` with the first element of each run in the patches of some rows, that in the image, and its length.
    fn each(&self, rows: std::ops::Range<usize>, mut act: impl FnMut(usize, usize, usize)) {
        let ([_, height, width, channels], (row_count, column_count)) = (self.image, self.counts);
        let Patches { rows: down, columns: across, .. } = self.patches;
        let inside = |at: usize, before: usize, dim: usize| at.checked_sub(before).filter(|&at| at < dim);
        for row in rows {
            let (image, top) = (row / row_count, row % row_count * down.stride);
            for column in 0..column_count {
                let patch = (row * column_count + column) * down.size * across.size;
                for i in 0..down.size {
                    let Some(y) = inside(top + i * down.rate, self.before.0, height) else { continue };
                    for j in 0..across.size {
                        let x = column * across.stride + j * across.rate;
                        let Some(x) = inside(x, self.before.1, width) else { continue };
                        let pixel = (image * height + y) * width + x;
                        act((patch + i * across.size + j) * channels, pixel * channels, channels);
                    }
                }
            }
        }
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.image[0] * self.counts.0
    }
}

/// The two numbers of an attribute, each at least 1.
fn two(construction: &OpKernelConstruction<'_>, name: &str) -> Result<[usize; 2]> {
    let numbers: Vec<i64> = construction.attr(name)?;
    match numbers[..] {
        [a, b] if (1..=1 << 20).contains(&a) && (1..=1 << 20).contains(&b) => Ok([a as usize, b as usize]),
        _ => Err(Error::invalid_argument(format!(
            "`{name}` must be two numbers from 1 on, for rows and columns, got {numbers:?}"
        ))
        .naming(name)),
    }
}

impl Linear for Patches {
    const FACTS: Facts = Facts {
        name: "ExtractPatches",
        x: "x",
        attrs: &[
            "ksize: list(int)",
            "strides: list(int) = [1, 1]",
            "rates: list(int) = [1, 1]",
            "padding: {'SAME', 'VALID'} = 'VALID'",
        ],
        dtypes: "type",
        parameters: &[],
        host: &[],
        dims: &["(n, _, _, _)", "(n, _, _, _)"],
        doc: "The windows of images, each as a row: what a pooling or a convolution goes through.\n\n\
              x: Images, (batch, height, width, channels); not of text.\n\
              ksize: The rows and columns of a window.\n\
              strides: How far one window is from the next, down and across.\n\
              rates: How far the rows and columns of a window are from each other.\n\
              padding: Whether windows are inside of the image alone (VALID), or there is one for every stride, with zeros where \
              it reaches beyond (SAME).\n\
              y: (batch, rows, columns, ksize[0] * ksize[1] * channels), the channels of a pixel together.",
        shape: |c| {
            let input = c.with_rank(c.input(0)?, 4)?;
            let same = c.get_string("padding")? == "SAME";
            let (ksize, strides, rates) =
                (c.get_ints("ksize")?, c.get_ints("strides")?, c.get_ints("rates")?);
            let lists = [("ksize", ksize), ("strides", strides), ("rates", rates)];
            for (name, list) in lists {
                let fits = list.len() == 2 && list.iter().all(|number| (1..=1 << 20).contains(number));
                if !fits {
                    let text = format!("`{name}` must be two numbers from 1 on, got {list:?}");
                    return Err(c.error(text).naming(name));
                }
            }
            let mut count = |axis: usize| {
                let (dim, stride) = (c.dim(&input, axis as i64 + 1)?, strides[axis].unsigned_abs());
                if same {
                    let last = c.add(&dim, stride - 1)?;
                    return c.divide(&last, stride, false);
                }
                let reach = (ksize[axis].unsigned_abs() - 1) * rates[axis].unsigned_abs() + 1;
                // A window for each stride that begins within; none where the first one does not fit.
                let last = c.max(&c.add(&dim, stride)?, reach)?;
                let room = c.subtract(&last, reach)?;
                c.divide(&room, stride, false)
            };
            let (rows, columns) = (count(0)?, count(1)?);
            let length = c.multiply(&c.dim(&input, 3)?, ksize[0].unsigned_abs() * ksize[1].unsigned_abs())?;
            Ok(Shape::from(vec![c.dim(&input, 0)?, rows, columns, length]))
        },
    };
    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [moves, is_float];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        let (size, stride, rate) =
            (two(construction, "ksize")?, two(construction, "strides")?, two(construction, "rates")?);
        let windows = |axis: usize| Windows { size: size[axis], stride: stride[axis], rate: rate[axis] };
        let padding: String = construction.attr("padding")?;
        Ok(Patches { rows: windows(0), columns: windows(1), same: padding == "SAME" })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let runs = self.runs(input.shape())?;
        if crate::card::is_on_card(context) {
            return runs.take(context);
        }
        let shape = runs.shape()?;
        let output = context.allocate_output(0, &shape)?;
        let (size, total) = (output.dtype().size(), output.num_elements());
        if total == 0 {
            return Ok(());
        }
        let (from, to) = (Shared(input.data_ptr().cast_mut()), Shared(output.data_ptr()));
        let (rows, row) = (runs.all(), total / runs.all().len());
        context.compute().parallel_for(rows.len(), row, |range| {
            let (from, to) = (&from, &to);
            // SAFETY: a row of patches is written by one thread, zeros are a value of every dtype here, and runs lie in the
            // image and in the row.
            unsafe {
                to.0.add(range.start * row * size).write_bytes(0, range.len() * row * size);
                runs.each(range, |target, source, count| {
                    let to = to.0.add(target * size);
                    to.copy_from_nonoverlapping(from.0.add(source * size), count * size);
                });
            }
        });
        Ok(())
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let runs = self.runs(shape)?;
        if crate::card::is_on_card(context) {
            return runs.put_back(context);
        }
        let gradient = last_input(context, &runs.shape()?)?;
        add_up(context, gradient, shape, |act| runs.each(runs.all(), act))
    }

    fn kernels() -> Vec<KernelDef> {
        let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::String);
        dtypes.map(|dtype| KernelDef::cpu::<linear::Forward<Self>>().dtype_constraint("T", dtype)).collect()
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array;
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn windows_reach_beyond_the_image_only_if_they_may() -> Result<()> {
        let image = Array::from_iter(1..=9).into_shape_with_order((1, 3, 3, 1)).unwrap();
        let call = || testing::call::<ExtractPatches>().input(&image).attr("ksize", vec![2, 2]);
        let outputs = call().run()?;
        let inner = outputs.array::<i32, Ix4>("y")?;
        assert_eq!((inner.dim(), inner[[0, 1, 1, 3]]), ((1, 2, 2, 4), 9));
        let outputs = call().attr("padding", "SAME").attr("strides", vec![2, 2]).run()?;
        let all = outputs.array::<i32, Ix4>("y")?;
        assert_eq!(all.slice(s![0, 1, 1, ..]), array![9, 0, 0, 0]);
        let test = testing::shapes::<ExtractPatches>().attr("ksize", vec![3, 2].into());
        infer_ok!(test, "[?,7,2,3]", "[d0_0,5,1,18]");
        infer_ok!(test, "[1,2,1,3]", "[d0_0,0,0,18]");
        infer_error!(test, "must have rank 4", "[7,2,3]");
        let error = testing::call::<ExtractPatches>().input(&image).attr("ksize", vec![2]).run().unwrap_err();
        assert!(error.message().contains("`ksize` must be two numbers from 1 on"));
        Ok(())
    }
}
