//! Windows that go over the last dims of tensors, one to three, as convolutions and poolings have them.

pub(crate) mod card;

use std::ops::Range;

use opsmith::Dim;
use opsmith::memory;
use opsmith::prelude::*;

use crate::parameters::elements;

/// The attributes of the ops.
pub(crate) const ATTRS: [&str; 3] =
    ["strides: list(int) = []", "padding: list(int) = []", "dilations: list(int) = []"];

/// What the attributes are, for the documentation.
pub(crate) const ATTRS_DOC: &str = "strides: How far one window is from the next, along each dim; empty for 1.\n\
     padding: How far windows reach beyond the ends: a number for each dim, or for each one in front and one behind; empty for 0.\n\
     dilations: How far the elements of a window are from each other, along each dim; empty for 1.\n";

/// The largest number that the attributes and the sizes of windows may have.
pub(crate) const MOST: i64 = 1 << 20;

/// The windows as attributes say them.
pub(crate) struct Lists {
    strides: Vec<i64>,
    padding: Vec<i64>,
    dilations: Vec<i64>,
}

/// Windows along one dim.
#[derive(Clone, Copy)]
pub(crate) struct Along {
    /// The elements of the dim, and of a window.
    pub(crate) dim: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    /// How far windows reach beyond the ends.
    pub(crate) before: usize,
    pub(crate) behind: usize,
    /// How many windows there are.
    pub(crate) count: usize,
}

impl Lists {
    pub(crate) fn new(construction: &OpKernelConstruction<'_>) -> Result<Lists> {
        let list = |name| construction.attr(name);
        Ok(Lists { strides: list("strides")?, padding: list("padding")?, dilations: list("dilations")? })
    }

    fn of(c: &InferenceContext<'_>) -> Result<Lists> {
        let list = |name| c.get_ints(name).map(<[i64]>::to_vec);
        Ok(Lists { strides: list("strides")?, padding: list("padding")?, dilations: list("dilations")? })
    }

    /// How many dims windows go over, where `strides` must say it.
    pub(crate) fn dims(&self) -> usize {
        self.strides.len()
    }

    /// The windows along each of so many dims, but for their sizes.
    fn along(&self, dims: usize) -> Result<Vec<Along>> {
        ensure!((1..=3).contains(&dims), InvalidArgument, "windows go over one to three dims, got {dims}");
        let pick = |name: &str, list: &[i64], least: i64, index: usize| {
            let number = list.get(index).copied().unwrap_or(least);
            usize::try_from(number).ok().filter(|_| (least..=MOST).contains(&number)).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "`{name}` must be numbers from {least} to {MOST}, got {list:?}"
                ))
                .naming(name)
            })
        };
        let fits = |list: &[i64]| list.is_empty() || list.len() == dims;
        for (name, list) in [("strides", &self.strides), ("dilations", &self.dilations)] {
            ensure!(fits(list), InvalidArgument for name, "`{name}` must have a number for each of {dims} dims, got {list:?}");
        }
        let (padding, both) = (&self.padding, self.padding.len() == 2 * dims);
        ensure!(
            fits(padding) || both,
            InvalidArgument for "padding",
            "`padding` must have one or two numbers for each of {dims} dims, got {padding:?}"
        );
        (0..dims)
            .map(|at| {
                let (first, second) = if both { (2 * at, 2 * at + 1) } else { (at, at) };
                Ok(Along {
                    dim: 1,
                    size: 1,
                    count: 1,
                    stride: pick("strides", &self.strides, 1, at)?,
                    dilation: pick("dilations", &self.dilations, 1, at)?,
                    before: pick("padding", padding, 0, first)?,
                    behind: pick("padding", padding, 0, second)?,
                })
            })
            .collect()
    }

    /// The windows of these sizes over the last dims of a tensor, as if it were three.
    pub(crate) fn over(&self, dims: &[usize], sizes: &[usize]) -> Result<[Along; 3]> {
        ensure!(
            dims.len() == sizes.len(),
            InvalidArgument,
            "windows of sizes {sizes:?} go over as many dims, got those of {dims:?}"
        );
        let mut all = [Along::ONE; 3];
        let own = all.len() - dims.len().min(3);
        for (at, along) in self.along(dims.len())?.into_iter().enumerate() {
            let count = along.count(dims[at], sizes[at])?;
            all[own + at] = Along { dim: dims[at], size: sizes[at], count, ..along };
        }
        ensure!(
            elements(&all.map(|along| along.count)).is_some(),
            ResourceExhausted,
            "as many windows as there are over {dims:?} with `padding` {:?} are too many",
            self.padding
        );
        Ok(all)
    }
}

impl Along {
    /// A dim of one element, which is all of one window.
    pub(crate) const ONE: Along =
        Along { dim: 1, size: 1, stride: 1, dilation: 1, before: 0, behind: 0, count: 1 };

    /// How far a window reaches, if a tensor can be so large.
    fn reach(self, size: usize) -> Option<usize> {
        let reach = size.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)?;
        (reach <= isize::MAX as usize / 2).then_some(reach)
    }

    /// How many windows of a size there are along a dim.
    fn count(self, dim: usize, size: usize) -> Result<usize> {
        let padded = dim.saturating_add(self.before).saturating_add(self.behind);
        let room = self.reach(size).and_then(|reach| padded.checked_sub(reach));
        room.map(|room| room / self.stride + 1).ok_or_else(|| {
            Error::invalid_argument(format!(
                "a window of {size} elements, {} apart, does not fit a dim of {dim} with a padding of {} and {}",
                self.dilation, self.before, self.behind
            ))
        })
    }

    /// Where the element `tap` of the first window is.
    fn shift(self, tap: usize) -> isize {
        (tap * self.dilation) as isize - self.before as isize
    }

    /// The elements of a window that are in the dim in one window at least.
    fn taps(self) -> impl Iterator<Item = usize> {
        let last = (self.count - 1).saturating_mul(self.stride);
        let first = self.before.saturating_sub(last).div_ceil(self.dilation);
        let end = self.dim.saturating_add(self.before).div_ceil(self.dilation).min(self.size);
        // Windows that are farther from each other than the dim is long leave some out.
        (first..end).filter(move |&tap| !self.inside(self.shift(tap)).is_empty())
    }

    /// The windows whose element at a shift is in the dim.
    fn inside(self, shift: isize) -> Range<usize> {
        let first = shift.min(0).unsigned_abs().div_ceil(self.stride);
        let end = (self.dim as isize - shift).max(0).unsigned_abs().div_ceil(self.stride);
        first..end.min(self.count)
    }
}

/// How many elements a window has.
pub(crate) fn window(along: &[Along; 3]) -> usize {
    along.iter().map(|along| along.size).product()
}

/// How many windows there are.
pub(crate) fn count(along: &[Along; 3]) -> usize {
    along.iter().map(|along| along.count).product()
}

/// How many elements the dims have.
pub(crate) fn plane(along: &[Along; 3]) -> usize {
    along.iter().map(|along| along.dim).product()
}

/// Whether there is one window for each element, which it has alone.
pub(crate) fn is_plain(along: &[Along; 3]) -> bool {
    along.iter().all(|along| (along.size, along.stride, along.before, along.behind) == (1, 1, 0, 0))
}

/// The place of an element in a window, along each dim.
pub(crate) fn tap(along: &[Along; 3], element: usize) -> [usize; 3] {
    let [_, b, c] = along;
    [element / (b.size * c.size), element / c.size % b.size, element % c.size]
}

/// Calls `act` for the places in windows that are in the dims in one window at least. A window that reaches far beyond the ends has
/// few of them.
pub(crate) fn each_tap(along: &[Along; 3], mut act: impl FnMut([usize; 3])) -> Result<()> {
    let taps = |along: Along| memory::collected(along.taps(), "the places in windows");
    let [a, b, c] = [taps(along[0])?, taps(along[1])?, taps(along[2])?];
    for &a in &a {
        for &b in &b {
            c.iter().for_each(|&c| act([a, b, c]));
        }
    }
    Ok(())
}

/// Calls `act` for runs of windows among `windows` whose element at `taps` is in the dims: with the place of the first one behind the
/// first of `windows`, that of its element, and their number. The next element is as far as the last dim's stride says.
#[inline]
pub(crate) fn runs(
    along: &[Along; 3],
    taps: [usize; 3],
    windows: Range<usize>,
    mut act: impl FnMut(usize, usize, usize),
) {
    let [a, b, c] = *along;
    let shifts = [a.shift(taps[0]), b.shift(taps[1]), c.shift(taps[2])];
    let inside = [a.inside(shifts[0]), b.inside(shifts[1]), c.inside(shifts[2])];
    let at = |along: Along, window: usize, shift: isize| ((window * along.stride) as isize + shift) as usize;
    let mut window = windows.start;
    while window < windows.end {
        let (line, first) = (window / c.count, window % c.count);
        let last = c.count.min(first + (windows.end - window));
        let (i, j) = (line / b.count, line % b.count);
        let (from, to) = (first.max(inside[2].start), last.min(inside[2].end));
        if from < to && inside[0].contains(&i) && inside[1].contains(&j) {
            let row = at(a, i, shifts[0]) * b.dim + at(b, j, shifts[1]);
            let element = row * c.dim + at(c, from, shifts[2]);
            act(window - windows.start + from - first, element, to - from);
        }
        window += last - first;
    }
}

/// The dims that the windows make of the last ones of a tensor.
pub(crate) fn inferred(c: &mut InferenceContext<'_>, dims: &[Dim], sizes: &[Dim]) -> Result<Vec<Dim>> {
    let mut found = Vec::new();
    for (along, (dim, size)) in Lists::of(c)?.along(dims.len())?.into_iter().zip(dims.iter().zip(sizes)) {
        found.push(match (dim.value(), size.value()) {
            (Some(dim), Some(size)) => Dim::Known(along.count(dim as usize, size as usize)? as u64),
            (_, None) => Dim::Unknown,
            (None, Some(size)) => {
                let Some(reach) = along.reach(size as usize) else {
                    return Err(c.error(format!("a window of {size} elements is none that a tensor has")));
                };
                let padded = c.add(dim, (along.before + along.behind) as u64)?;
                let room = c.subtract(&padded, reach as u64)?;
                let last = c.divide(&room, along.stride as u64, false)?;
                c.add(&last, 1)?
            }
        });
    }
    Ok(found)
}
