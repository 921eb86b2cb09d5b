//! Literals beside elements of a type parameter: the message is how to write them.

use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn halved<T: Float>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
    z.assign(&(&x * 0.5));
    let doubled = 2.0 * &x;
    z.assign(&(&x * doubled));
    z *= 2.0;
    z.fill(0.0);
}

#[op(shape = "(n),(n)->(n)")]
fn blended<T: Float>(x: ArrayView1<T>, weights: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
    for i in 0..x.len() {
        let v = weights[i];
        z[i] = (1.0 - v) * x[i].max(0.0);
        if v > 0.5 {
            z[i] += 1.0;
        }
    }
    azip!((index i, z in &mut z, &x in &x) *z = 2.0 * x);
    for z in z.iter_mut() {
        *z = 0.0;
    }
    z.assign(&x.mapv(|v| v / 3));
}

#[op(shape = "(n)->()")]
fn total<T: Number>(x: ArrayView1<T>, mut z: ArrayViewMut0<T>) {
    z.fill(x.sum() * 2);
}

opsmith::library! { name = "numbers", ops = [halved, blended, total] }

fn main() {}
