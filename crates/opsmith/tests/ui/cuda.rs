use opsmith::prelude::*;

#[op(shape = "(n),(k)->(n)")]
fn nothing_on_cuda<T: Float>(x: ArrayView1<T>, #[host] sizes: ArrayView1<i64>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", cuda = "cuda.cu")]
fn no_input<T: Float>(x: ArrayView1<T>, #[host] z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", capturable)]
fn no_kernel<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[pointwise]
fn body<S: Scalar>(#[host] x: S) -> S {
    x
}

fn main() {}
