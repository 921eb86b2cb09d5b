//! Free axes: derived from bodies, stated by `#[op]`.

use opsmith::prelude::*;

#[pointwise]
fn scaled<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[reduce]
fn centred<R: Rows>(x: R::Each, weight: R::One) -> R::Each {
    x * weight - x.mean()
}

#[reduce(axes = any)]
fn total<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

#[pairwise]
fn manhattan<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn convolution<S: Indexed>(x: S, y: S, b: S, #[attr] causal: bool) -> S {
    let near = (-((x - y) * (x - y)).sum(k)).exp();
    // Positions are read for one value of the attribute alone.
    let near = if causal { S::select(S::index(j).gt(S::index(i)), S::of(0.0), near) } else { near };
    (near * b).sum(j)
}

#[body("(i,j)->(i,j)", orders = 0)]
fn shares<S: Indexed>(x: S) -> S {
    x / x.sum(j)
}

#[body("(i,j)->(i,j)", orders = 0)]
fn over_count<S: Indexed>(x: S) -> S {
    x / S::count(i)
}

#[body("(i,k),(j)->(i),(j)", outputs = [row, column], orders = 1)]
fn both<S: Indexed>(x: S, y: S) -> (S, S) {
    (x.sum(k), y * y)
}

#[op(shape = "(...,n,k),(m,k)->(...,n,m)", gradient = product_grad, parallel = "..., n, m")]
fn product<T: Float>(_x: ArrayViewD<T>, _y: ArrayView2<T>, _z: ArrayViewMutD<T>) {}

#[op(shape = "(...,n,k),(m,k),(...,n,m)->(...,n,k),(m,k)", parallel = "+..., +n, +m, k")]
fn product_grad<T: Float>(
    _x: ArrayViewD<T>,
    _y: ArrayView2<T>,
    _z_grad: ArrayViewD<T>,
    _x_grad: ArrayViewMutD<T>,
    _y_grad: ArrayViewMut2<T>,
) {
}

/// The rules of an op and of its gradients.
fn rules<D: OpDefinition>() -> Vec<String> {
    let ops = [D::def()].into_iter().chain(D::COMPANIONS.iter().map(|def| def()));
    ops.map(|def| def.build().unwrap().parallel().map(ToString::to_string).unwrap_or_default()).collect()
}

#[test]
fn bodies_derive_their_free_axes() {
    assert_eq!(rules::<scaled>()[..2], ["(...), (...) -> (...)", "(...), (...), (...) -> +(...), +(...)"]);
    assert_eq!(
        rules::<centred>()[..2],
        [
            "(..., _*axes), (...) -> (..., _*axes)",
            "(..., _*axes), (...), (..., _*axes) -> +(..., _*axes), +(...)"
        ]
    );
    let kept = "(... less axes unless keep_dims)";
    assert_eq!(
        rules::<total>()[..2],
        [format!("(... but axes) -> {kept}"), format!("(... but axes), {kept} -> (... but axes)")]
    );
    assert_eq!(
        rules::<manhattan>()[..2],
        [
            "(..., n, _), (..., m, _) -> (..., n, m)",
            "(..., n, _), (..., m, _), (..., n, m) -> +(..., n, _), +(..., m, _)"
        ]
    );
}

#[test]
fn what_a_body_folds_or_reads_positions_and_sizes_of_is_not_free() {
    assert_eq!(
        rules::<convolution>()[..2],
        [
            "(..., _, _), (..., _, _), (..., _, e) -> (..., _, e)",
            "(..., _, _), (..., _, _), (..., _, e), (..., _, e) -> +(..., _, _), +(..., _, _), +(..., _, e)"
        ]
    );
    assert_eq!(rules::<shares>(), ["(..., i, _) -> (..., i, _)"]);
    assert_eq!(rules::<over_count>(), ["(..., _, j) -> (..., _, j)"]);
    assert_eq!(rules::<both>()[0], "(..., _, _), (..., _) -> (..., _), (..., _)");
}

#[test]
fn an_op_states_its_own() {
    assert_eq!(rules::<product>(), ["(..., n, _), (m, _) -> (..., n, m)"]);
    assert_eq!(rules::<product_grad>(), ["(..., n, k), (m, k), (..., n, m) -> +(..., n, k), +(m, k)"]);
}
