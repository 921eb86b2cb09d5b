//! What is right is not refused, what is proposed is right, and the lists of methods are those that there are. What is refused,
//! `crates/opsmith/tests/ui` has.

use syn::{FnArg, ReturnType, TraitItem, parse_quote};

use crate::body::numbers::{FOLDS, INTEGERS, NUMBERS};
use crate::{body, op};

fn assert_right(result: syn::Result<proc_macro2::TokenStream>) {
    if let Err(error) = result {
        panic!("{:?}", error.into_iter().map(|error| error.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn plain_numbers_of_a_body_are_left_alone() {
    assert_right(body::pointwise(
        quote::quote!(),
        quote::quote! {
            fn f<S: Scalar>(x: S, #[attr] k: f64, #[attr] n: usize, #[attr(default = 1.0)] c: S) -> S {
                let two = 2.0 * 3.0 - 1.0;
                let mut y = x * two + S::of(2.0 * k) - 1.0 / 3.0;
                if n > 2 && k < 0.5 {
                    y = y / 2.0;
                }
                for i in 0..n {
                    y = y.powi(2) + S::of(1.0 / (2 * i) as f64);
                }
                let weigh = |x: f64| if x > 1.0 { 2.0 * x } else { x.max(0.0) };
                fn helper(x: f64) -> f64 { 1.0 - x }
                let square = |v: S| v * v;
                y = square(x) * 0.5 + y.max(square(y) * 2.0) + { x } * 0.5 * y;
                for part in [x, y] {
                    y = y + part * 0.5 * y;
                }
                let x = helper(weigh(k));
                let less = if x > 0.0 { 1.0 - x } else { x };
                S::select(c.gt(y) & !y.lt(c), y, S::of(less).max(c))
            }
        },
    ));
    assert_right(body::reduce(
        quote::quote!(),
        quote::quote! {
            fn f<R: Rows>(x: R::Each) -> R::Each {
                let e = (x - x.mean()) * 2.0;
                R::Each::select(e.gt(R::Each::of_row(x.amax())), R::One::of(1.0) / e, -e)
            }
        },
    ));
}

#[test]
fn a_long_sum_is_read_in_no_time() {
    let terms = vec![quote::quote!(x * 2.0); 200];
    assert_right(body::pointwise(
        quote::quote!(),
        quote::quote! { fn f<S: Scalar>(x: S) -> S { #(#terms)+* } },
    ));
}

#[test]
fn positions_and_masks_of_a_body_are_left_alone() {
    assert_right(body::named(
        quote::quote!("(i,j),(i),(i)->(i)"),
        quote::quote! {
            fn f<S: Indexed>(x: S, label: S::Index, keep: S::Mask, #[attr] k: i64) -> S {
                let at = S::index(j);
                let mask = at.eq(label) | x.argmax(j).lt(at) & keep & at.number().ge(S::of(k as f64));
                let count = mask.count(j) + mask.any(j).count(i) * 2.0;
                let size = if k > 2 { S::count(j) } else { label.number() + 1.0 };
                S::select(mask.all(j), count, x.at(j, 1) * 2.0 + x.log_sum_exp(j) + size)
            }
        },
    ));
}

#[test]
fn plain_numbers_of_an_op_are_left_alone() {
    assert_right(op::expand(
        quote::quote!(shape = "(n),(n),(n)->(n)"),
        quote::quote! {
            fn f<T: Float>(
                x: ArrayView1<T>,
                y: ArrayView1<f64>,
                w: Option<ArrayView1<T>>,
                #[attr] k: f64,
                mut z: ArrayViewMut1<T>,
            ) {
                let n = 2 * x.len() - 1;
                let half = &y * 0.5 + 1.0;
                z.assign(&x.mapv(|v| v.powi(2) * T::from(2.0 * k).unwrap()));
                for (i, &v) in x.iter().enumerate() {
                    if i > 1 && v > T::zero() { z[2 * i - 2] = v; }
                }
                azip!((index i, z in &mut z, &h in &half) *z = T::from(2.0 * h * i as f64).unwrap());
                let x = x.shape()[0];
                let _ = (x * 2, n);
            }
        },
    ));
    // A bound of the author's may bring arithmetic with plain numbers.
    assert_right(op::expand(
        quote::quote!(shape = "(n)->(n)"),
        quote::quote! {
            fn f<T: Float + std::ops::Mul<f64, Output = T>>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
                z[0] = x[0] * 2.0;
            }
        },
    ));
}

#[test]
fn names_end_with_what_they_are_bound_in() {
    assert_right(body::pointwise(
        quote::quote!(),
        quote::quote! {
            fn f<S: Scalar>(x: S, #[attr] k: f64, #[attr] n: usize) -> S {
                let twice = |k: S| k * 2.0;
                let c = 1.0 - k;
                let least = match n {
                    x @ 0..=3 => if x > 1 { 2.0 } else { 3.0 },
                    ref x @ (4 | 5) => 1 - x,
                    k if (|n: S| n)(k) => 1.0,
                    _ => 1.0 - k,
                };
                if let k = x.exp() {}
                let later = if k > 0.0 { 1.0 } else { 2.0 - k };
                twice(x) + S::of(c + least + later)
            }
        },
    ));
    assert_right(op::expand(
        quote::quote!(shape = "(n)->(n)"),
        quote::quote! {
            fn f<T: Float>(x: ArrayView1<T>, #[attr] n: usize, mut z: ArrayViewMut1<T>) {
                let square = |n: T| n * n;
                z[n - 1] = square(x[n - 1]);
                while let Some((n, x)) = next() { n * x; }
                for x @ n in 0..n { z[2 * x] = z[n * 2]; }
            }
        },
    ));
}

/// What a function's messages propose.
fn cures(result: syn::Result<proc_macro2::TokenStream>) -> Vec<String> {
    let messages = result.unwrap_err().into_iter().map(|error| error.to_string());
    let cure = |message: String| message.split_once(": ").map(|(_, cure)| cure.to_owned()).unwrap();
    messages.map(cure).collect()
}

#[test]
fn cures_of_bodies_compute_what_was_meant() {
    let all = cures(body::pointwise(
        quote::quote!(),
        quote::quote! {
            fn f<S: Scalar>(x: S, a: S, b: S) -> S {
                (1.0 + 2.0) * 3.0 - x;
                6.0 / (1.0 + 2.0) - x;
                (1 - (2f32)) - x;
                -(1.0 + 2.0) - x;
                x * (1 + 2);
                x / (2 * 4);
                x - -1;
                x.gt(1 / 2);
                a + b < x;
                let mut y = x;
                y *= a + b;
                y *= 1 + 2;
                y -= 2;
                y
            }
        },
    ));
    let expected = [
        "`S::of((1.0 + 2.0) * 3.0) - x`",
        "`S::of(6.0 / (1.0 + 2.0)) - x`",
        "`S::of(1.0 - 2.0) - x`",
        "`S::of(-(1.0 + 2.0)) - x`",
        "`x * (1.0 + 2.0)`, or `S::of(1.0 + 2.0)`",
        "`x / (2.0 * 4.0)`, or `S::of(2.0 * 4.0)`",
        "`x - -1.0`, or `S::of(-1.0)`",
        "write `S::of(1.0 / 2.0)`",
        "`(a + b).lt(x)`, and then `S::select(mask, …, …)`",
        "write `y = y * (a + b)`",
        "write `y = y * (1.0 + 2.0)`",
        "write `y = y - 2.0`",
    ];
    assert_eq!(all, expected);
}

#[test]
fn cures_of_ops_compute_what_was_meant() {
    let all = cures(op::expand(
        quote::quote!(shape = "(n)->(n)"),
        quote::quote! {
            fn f<T: Float>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
                z.assign(&(&x * ((1.0 + 2.0) * 3.0)));
                z.fill(1 / 2);
                z.fill(-1);
                z[0] = x[0] - (1.0);
                z[0] = 3 - 2;
                z -= 2 * 4;
            }
        },
    ));
    let expected = [
        "write `x.mapv(|v| v * T::from((1.0 + 2.0) * 3.0).unwrap())`",
        "write `T::from(1.0 / 2.0).unwrap()`",
        "write `T::from(-1).unwrap()`",
        "write `x[0] - T::one()`",
        "write `z[0] = T::from(3.0 - 2.0).unwrap()`",
        "write `z.mapv_inplace(|v| v - T::from(2.0 * 4.0).unwrap())`",
    ];
    assert_eq!(all, expected);

    let all = cures(op::expand(
        quote::quote!(shape = "(n)->(n)"),
        quote::quote! {
            fn f<T: Number>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
                x.sum() * 5;
                z.fill(-1);
                z.fill(3.5);
                z[0] = 1 + 1;
                x.sum() * 2.0;
                x.sum() * 1;
                z[0] = 0.;
            }
        },
    ));
    let none =
        "a `Number` has `T::zero()` and `T::one()`; bound by `Float` or `RealNumber`, `T` has `T::from` too";
    let made =
        ["write `x.sum() * (T::one() + T::one())`", "write `x.sum() * T::one()`", "write `z[0] = T::zero()`"];
    assert_eq!(all, [&[none; 4][..], &made].concat());
}

/// The methods of a trait that take `self` and give that type, in order, but for those that take something else too.
fn methods(text: &str, of: &str, gives: &str) -> Vec<(String, bool)> {
    let file = syn::parse_file(text).unwrap();
    let items = file.items.into_iter().find_map(|item| match item {
        syn::Item::Trait(item) if item.ident == of => Some(item.items),
        _ => None,
    });
    let gives: ReturnType = syn::parse_str(&format!("-> {gives}")).unwrap();
    let own: FnArg = parse_quote!(self);
    let one = |item: TraitItem| match item {
        TraitItem::Fn(item) if item.sig.output == gives && item.sig.inputs.first() == Some(&own) => {
            let takes_int = item
                .sig
                .inputs
                .iter()
                .any(|input| matches!(input, FnArg::Typed(typed) if *typed.ty == parse_quote!(i32)));
            Some((item.sig.ident.to_string(), takes_int))
        }
        _ => None,
    };
    items.unwrap().into_iter().filter_map(one).collect()
}

#[test]
fn the_methods_of_numbers_are_all_known() {
    let scalar = include_str!("../../../opsmith-body/src/scalar.rs");
    let rows = include_str!("../../../opsmith-body/src/rows.rs");
    let mut known: Vec<&str> = NUMBERS.iter().chain(&INTEGERS).copied().collect();
    let (mut numbers, mut folds) = (methods(scalar, "Scalar", "Self"), methods(rows, "Each", "Self::One"));
    numbers.sort();
    folds.sort();
    known.sort_unstable();
    assert_eq!(numbers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), known);
    let integers: Vec<&str> =
        numbers.iter().filter(|(_, takes_int)| *takes_int).map(|(name, _)| name.as_str()).collect();
    assert_eq!(integers, INTEGERS);
    let mut known = FOLDS.to_vec();
    known.sort_unstable();
    assert_eq!(folds.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), known);
}
