use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
async fn waits<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
unsafe fn trusts<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
struct NotAFunction;

struct Holder;

impl Holder {
    #[op(shape = "(n)->(n)")]
    fn method<T: Float>(&self, x: ArrayView1<T>, z: ArrayViewMut1<T>) {}
}

fn main() {}
