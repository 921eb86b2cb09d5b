use opsmith::prelude::*;

fn size(dtype: DType) -> Result<usize> {
    dispatch!(dtype, Floats, |T| Ok(size_of::<T>()))
}

struct Kernel;

fn registrations() -> Vec<KernelDef> {
    kernels!(Kernel for T in [f32, string])
}

fn not_a_kernel() -> Vec<KernelDef> {
    kernels!(Kernel for T in [f32])
}

fn main() {}
