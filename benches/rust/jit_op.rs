// The op of the benchmark of just-in-time builds: Manhattan distances with their gradient, by hand.

/// Pairwise Manhattan distances, and SHIFT.
#[op(shape = "(n,p),(m,p)->(n,m)", gradient = distance_grad)]
fn distance<T: Float>(x: ArrayView2<T>, y: ArrayView2<T>, mut z: ArrayViewMut2<T>) {
    for ((i, j), z) in z.indexed_iter_mut() {
        let mut sum = T::from(SHIFT).unwrap();
        azip!((&x in x.row(i), &y in y.row(j)) sum += (x - y).abs());
        *z = sum;
    }
}

#[op(shape = "(n,p),(m,p),(n,m)->(n,p),(m,p)")]
fn distance_grad<T: Float>(
    x: ArrayView2<T>,
    y: ArrayView2<T>,
    z_grad: ArrayView2<T>,
    mut x_grad: ArrayViewMut2<T>,
    mut y_grad: ArrayViewMut2<T>,
) {
    x_grad.fill(T::zero());
    y_grad.fill(T::zero());
    for ((i, j), &g) in z_grad.indexed_iter() {
        azip!((x_grad in x_grad.row_mut(i), y_grad in y_grad.row_mut(j), &x in x.row(i), &y in y.row(j)) {
            let s = if x > y { g } else if x < y { -g } else { T::zero() };
            *x_grad += s;
            *y_grad -= s;
        });
    }
}
