//! How the kernel of `zero_out.cu` is launched.

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut, Index};
use opsmith::prelude::*;

/// Keeps the element at `index` of every `length`, in row-major order, and sets all others to zero.
pub(crate) fn keep<T: CudaElement>(
    call: &CudaCall,
    from: &DeviceView<T>,
    length: usize,
    index: usize,
    to: &DeviceViewMut<T>,
) -> Result<()> {
    let bits = Index::of(&[from, to]);
    let kernel = format!("keep<{}, {}>", T::NAME, bits.name());
    let launch = call.kernel(kernel).for_each(to.num_elements());
    let launch = launch.flat(from, bits).index(length, bits).index(index, bits).flat(to, bits);
    // SAFETY: these are the kernel's parameters, and it goes no further than `to.count()`, which is that of `from`.
    unsafe { launch.launch() }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array1, Array3};
    use opsmith::testing::call;

    use crate::plain::ZeroOut;
    use crate::rows::{zero_out_rows, zero_out_rows_grad};

    use super::*;

    #[test]
    fn the_kernel_compiles_for_every_dtype() -> Result<()> {
        fn rows<T: RealNumber>() -> Result<()> {
            let x = Array1::<T>::zeros(3);
            call::<zero_out_rows>().input(&x).compile_for_cuda().map(drop)
        }
        rows::<f32>()?;
        rows::<f64>()?;
        rows::<i32>()?;
        rows::<i64>()?;
        call::<ZeroOut>().input(&Array1::<i32>::zeros(3)).compile_for_cuda().map(drop)
    }

    #[test]
    fn both_devices_keep_the_same() -> Result<()> {
        let x = Array3::from_shape_fn((4, 300, 3), |(i, j, k)| (1 + i * 1000 + j * 3 + k) as i32);
        for x in [
            x.view(),
            x.slice(s![1..;2, ..;-1, ..]),
            x.view().permuted_axes([2, 1, 0]),
            x.slice(s![..0, .., ..]),
        ] {
            let plain = || call::<ZeroOut>().input(&x);
            let Some(own) = plain().run_cuda_on_processor()? else { return Ok(()) };
            assert_eq!(own.array::<i32, Ix3>("zeroed")?, plain().run()?.array::<i32, Ix3>("zeroed")?);
            let rows = || call::<zero_out_rows>().input(&x).attr("preserve_index", 2);
            let Some(own) = rows().run_cuda_on_processor()? else { return Ok(()) };
            assert_eq!(own.array::<i32, Ix3>("zeroed")?, rows().run()?.array::<i32, Ix3>("zeroed")?);
        }
        let x = x.mapv(f64::from);
        let grad = || call::<zero_out_rows_grad>().input(&x).attr("preserve_index", 1);
        if let Some(own) = grad().run_cuda_on_processor()? {
            let expected = grad().run()?.array::<f64, Ix3>("to_zero_grad")?;
            assert_eq!(own.array::<f64, Ix3>("to_zero_grad")?, expected);
        }
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_wrong_on_both_devices() {
        let x = array![[1f32, 2.0]];
        let rows = || call::<zero_out_rows>().input(&x).attr("preserve_index", 2);
        let error = rows().launches(&mut |_| Ok(())).unwrap_err();
        assert_eq!(error, rows().run().unwrap_err());
    }
}
