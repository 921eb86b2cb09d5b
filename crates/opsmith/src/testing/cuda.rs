//! CUDA kernels in tests on a machine without a card: what would be launched is compiled for a card, or run on the processor.
//!
//! ```no_run
//! # use opsmith::prelude::*;
//! # #[op(shape = "(n)->(n)")]
//! # fn doubled(x: ArrayView1<f32>, mut y: ArrayViewMut1<f32>) { y.assign(&x); }
//! use opsmith::testing::call;
//!
//! let x = array![1f32, 2.0, 3.0];
//! let plain = call::<doubled>().input(&x).run()?.array::<f32, Ix1>("y")?;
//! call::<doubled>().input(&x).compile_for_cuda()?;
//! if let Some(outputs) = call::<doubled>().input(&x).run_cuda_on_processor()? {
//!     assert_eq!(outputs.array::<f32, Ix1>("y")?, plain);
//! }
//! # Ok::<(), Error>(())
//! ```

use opsmith_cuda::testing::{compile_everywhere, nvrtc, processor};
use opsmith_cuda::{Launch, with_launches_to};

use super::{Call, Outputs};
use crate::{Device, DeviceKind, Result};

impl Call<'_> {
    /// Makes the call with the op's CUDA kernel, up to its launches, which `sink` gets. The addresses that they have are those of
    /// host memory, and of outputs that are filled with NaN.
    ///
    /// # Errors
    /// As [`run`](Self::run), and what the sink says.
    pub fn launches(mut self, sink: &mut dyn FnMut(&mut Launch<'_>) -> Result<()>) -> Result<Outputs> {
        self.device = Device { kind: DeviceKind::Cuda, index: 0 };
        with_launches_to(sink, || self.run())
    }

    /// The names of the kernels that the call would launch, in order.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn kernels_launched(self) -> Result<Vec<String>> {
        let mut kernels = Vec::new();
        self.launches(&mut |launch| {
            kernels.push(launch.kernel.clone());
            Ok(())
        })?;
        Ok(kernels)
    }

    /// Compiles every kernel that the call would launch, each for one of four generations of cards in turn. With the variable
    /// `OPSMITH_EVERY_SOURCE` it is for all of them, and what a kernel takes of one is printed: registers, shared memory, spills.
    /// Gives the kernels' names; none, and says so, where there is no NVRTC.
    ///
    /// # Errors
    /// As [`launches`](Self::launches), and the compiler's messages.
    pub fn compile_for_cuda(self) -> Result<Vec<String>> {
        let nvrtc = nvrtc();
        let mut kernels = Vec::new();
        self.launches(&mut |launch| {
            let Some(nvrtc) = nvrtc else { return Ok(()) };
            compile_everywhere(nvrtc, launch)?;
            kernels.push(launch.kernel.clone());
            Ok(())
        })?;
        Ok(kernels)
    }

    /// Makes the call with the op's CUDA kernels run on the processor, thread after thread. None, and says so, where there is no
    /// C++ compiler.
    ///
    /// # Errors
    /// As [`launches`](Self::launches), and as [`processor::run`].
    pub fn run_cuda_on_processor(self) -> Result<Option<Outputs>> {
        if !processor::can_run() {
            return Ok(None);
        }
        // SAFETY: the call's tensors and temporaries are in host memory, and there until it is over.
        let run = |launch: &mut Launch<'_>| unsafe { processor::run(launch) };
        self.launches(&mut { run }).map(Some)
    }
}
