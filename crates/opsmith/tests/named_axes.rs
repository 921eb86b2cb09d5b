//! `#[body]`: numbers on named axes.

use opsmith::prelude::*;
use opsmith::testing;

/// Σⱼ exp(−γ |xᵢ − yⱼ|²) bⱼ.
#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn gaussian_convolution<S: Indexed>(x: S, y: S, b: S, #[attr(default = 1.0)] gamma: S) -> S {
    let d = ((x - y) * (x - y)).sum(k);
    ((d * -gamma).exp() * b).sum(j)
}

/// The nearest row of y.
#[body("(i,k),(j,k)->(i)")]
fn nearest<S: Indexed>(x: S, y: S) -> S::Index {
    ((x - y) * (x - y)).sum(k).argmin(j)
}

/// 1 − x·y / |x| |y|.
#[body("(i,k),(j,k)->(i,j)")]
fn cosine_distance<S: Indexed>(x: S, y: S) -> S {
    S::of(1.0) - (x * y).sum(k) / ((x * x).sum(k) * (y * y).sum(k)).sqrt()
}

/// With a local of an axis' name, a function that takes an axis, and masks.
#[body("(i,k)->(i)")]
fn helped<S: Indexed>(x: S) -> S {
    fn norm<S: Indexed>(x: S, axis: opsmith::Axis) -> S {
        (x * x).sum(axis).sqrt()
    }
    let largest = norm(x, k);
    let k = x.gt(S::of(0.0));
    largest + k.count(k) + S::select(k.any(k) & !k.all(k), S::of(10.0), S::of(0.0)) + S::count(k) * 100.0
}

/// With dims in front that broadcast.
#[body("(k),(j,k)->(j)")]
fn products<S: Indexed>(x: S, y: S) -> S {
    (x * y).sum(k)
}

/// A sum along the axis of the output within the sum along another one.
#[body("(i,k),(j,k),(a)->(i,a)")]
fn shared<S: Indexed>(x: S, y: S, z: S) -> S {
    let e = ((x * y).sum(k) * z).exp();
    (e / e.sum(a)).sum(j)
}

/// Two of which one gradient may be absent.
#[body("(i,k),(j,k)->(i),(i)", outputs = [near, total])]
fn near_and_total<S: Indexed>(x: S, y: S) -> (S, S) {
    let d = ((x - y) * (x - y)).sum(k);
    (d.amin(j).sqrt(), (-d).exp().sum(j))
}

/// The positions of the largest of rows and of columns.
#[body("(i,j)->(i),(j)", outputs = [row, column])]
fn both_ways<S: Indexed>(x: S) -> (S::Index, S::Index) {
    (x.argmax(j), x.argmax(i))
}

/// Folds along an axis that the number does not lie on.
#[body("(i),(j)->(i),(i),(i)", outputs = [most, total, all])]
fn elsewhere<S: Indexed>(x: S, y: S) -> (S, S, S) {
    (x.amax(j) + y.sum(j), x.sum(j) + y.sum(j), S::select(x.gt(S::of(9.0)).all(j), x, y.sum(j)))
}

/// Functions of every kind, some of which machine code calls.
fn several<S: Scalar>(x: S, y: S) -> S {
    let (a, b) = (x + y, x - y);
    let waves = a.sin() * b.cos() + a.exp() * b.tanh();
    let waves = waves + a.atan() * (b.abs() + 1.0).lgamma() - (a.abs() + 1.0).digamma();
    waves + a.gelu() - b.gelu_tanh() + a.abs().pow(b) + a.sigmoid().log() + b.floor() + b.sign()
}

/// They, compiled.
#[pointwise(orders = 0)]
fn compiled<S: Scalar>(x: S, y: S) -> S {
    several(x, y)
}

/// They within two folds at once.
#[body("(i),(j)->(i),(i)", outputs = [total, most], orders = 0)]
fn functions<S: Indexed>(x: S, y: S) -> (S, S) {
    (several(x, y).sum(j), several(x, y).amax(j))
}

fn taken<S: Indexed>(x: S, label: S::Index, y: S, take: S::Mask, j: opsmith::Axis) -> S {
    S::select(take & S::index(j).ne(label), x * y, S::of(0.0))
}

/// Positions and masks that are read.
#[body("(i),(i),(j),(i,j)->(i)", orders = 0)]
fn read<S: Indexed>(x: S, label: S::Index, y: S, take: S::Mask) -> S {
    taken::<S>(x, label, y, take, j).sum(j)
}

/// Positions that are written.
#[body("(i),(i),(j),(i,j)->(i)")]
fn first<S: Indexed>(x: S, label: S::Index, y: S, take: S::Mask) -> S::Index {
    taken::<S>(x, label, y, take, j).argmax(j)
}

/// Masks that are written.
#[body("(i),(i),(j),(i,j)->(i)")]
fn some<S: Indexed>(x: S, label: S::Index, y: S, take: S::Mask) -> S::Mask {
    taken::<S>(x, label, y, take, j).gt(S::of(0.25)).any(j)
}

fn numbers(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
    })
}

fn close(a: &Array2<f64>, b: &Array2<f64>) {
    assert_eq!(a.shape(), b.shape());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f64::max);
    assert!(worst < 1e-12, "{worst}");
}

/// The distances of the nearest rows of y, the nearest first.
#[body("(i,k),(j,k)->(i,r = neighbours)")]
fn distances_of_nearest<S: Indexed>(x: S, y: S, #[attr(default = 2)] neighbours: i64) -> S {
    ((x - y) * (x - y)).sum(k).smallest(j, r).0
}

/// Which they are.
#[body("(i,k),(j,k)->(i,r = neighbours)")]
fn nearest_rows<S: Indexed>(x: S, y: S, #[attr(default = 2)] neighbours: i64) -> S::Index {
    ((x - y) * (x - y)).sum(k).smallest(j, r).1
}

/// The three largest of each row.
#[body("(i,j)->(i,r = 3)", name = "TopThree")]
fn top_three<S: Indexed>(x: S) -> S {
    x.largest(j, r).0
}

/// 1 at each label.
#[body("(i),(i)->(i,c = classes)", orders = 1)]
fn one_hot<S: Indexed>(weight: S, label: S::Index, #[attr] classes: i64) -> S {
    S::select(S::index(c).eq(label), weight, S::of(0.0))
}

/// The middle one of the three colours of each point, and its distance to the first.
#[body("(g = 3, s)->(s)")]
fn green<S: Indexed>(x: S) -> S {
    x.at(g, 1) * 2.0 - x.at(g, 0)
}

#[test]
fn a_convolution_is_the_sum_over_pairs() {
    for (n, m, k, e) in
        [(1, 1, 1, 1), (300, 7, 3, 1), (5, 301, 3, 2), (130, 129, 2, 8), (0, 3, 2, 1), (3, 0, 2, 1)]
    {
        let (x, y, b) = (numbers(n, k, 1), numbers(m, k, 2), numbers(m, e, 3));
        let outputs = testing::call::<gaussian_convolution>().input(&x).input(&y).input(&b).run().unwrap();
        let expected = Array2::from_shape_fn((n, e), |(i, c)| {
            (0..m)
                .map(|j| {
                    let d: f64 = (0..k).map(|k| (x[[i, k]] - y[[j, k]]).powi(2)).sum();
                    (-d).exp() * b[[j, c]]
                })
                .sum()
        });
        close(&outputs.array::<f64, Ix2>("z").unwrap(), &expected);
    }
}

#[test]
fn positions_are_integers() {
    let (x, y) = (numbers(40, 3, 4), numbers(300, 3, 5));
    let outputs = testing::call::<nearest>().input(&x).input(&y).run().unwrap();
    let found = outputs.array::<i64, Ix1>("z").unwrap();
    for (i, found) in found.iter().enumerate() {
        let distance = |j: usize| (0..3).map(|k| (x[[i, k]] - y[[j, k]]).powi(2)).sum::<f64>();
        let expected = (0..300).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap();
        assert_eq!(*found as usize, expected);
    }
    let none = testing::call::<nearest>().input(&x).input(&numbers(0, 3, 1)).run().unwrap_err();
    assert!(none.message().contains("the axis `j` is empty"), "{}", none.message());
}

#[test]
fn several_folds_of_a_pair() {
    let (x, y) = (numbers(17, 5, 6), numbers(150, 5, 7));
    let outputs = testing::call::<cosine_distance>().input(&x).input(&y).run().unwrap();
    let dot = |a: ArrayView1<f64>, b: ArrayView1<f64>| a.dot(&b);
    let expected = Array2::from_shape_fn((17, 150), |(i, j)| {
        let (x, y) = (x.row(i), y.row(j));
        1.0 - dot(x, y) / (dot(x, x) * dot(y, y)).sqrt()
    });
    close(&outputs.array::<f64, Ix2>("z").unwrap(), &expected);
}

#[test]
fn locals_and_functions_see_axes() {
    let x = array![[3.0, -4.0], [1.0, 0.0], [0.0, 0.0]];
    let outputs = testing::call::<helped>().input(&x).run().unwrap();
    let expected = array![5.0 + 1.0 + 10.0 + 200.0, 1.0 + 1.0 + 10.0 + 200.0, 200.0];
    assert_eq!(outputs.array::<f64, Ix1>("z").unwrap(), expected);
}

#[test]
fn dims_in_front_broadcast() {
    let x = array![[[1.0, 2.0]], [[3.0, 4.0]]];
    let y = array![[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]];
    let outputs = testing::call::<products>().input(&x).input(&y).run().unwrap();
    let expected = array![[[1.0, 2.0, 3.0]], [[3.0, 4.0, 7.0]]];
    assert_eq!(outputs.array::<f64, Ix3>("z").unwrap(), expected);
}

#[test]
fn sizes_that_differ_are_told() {
    let (x, y) = (numbers(4, 3, 1), numbers(5, 2, 1));
    let message = testing::call::<nearest>().input(&x).input(&y).run().unwrap_err().message().to_owned();
    assert!(
        message.contains("axis `k` is dim 1 of `x` (shape [4,3]) and dim 1 of `y` (shape [5,2])"),
        "{message}"
    );
}

#[test]
fn a_fold_within_another_one_along_the_axis_of_the_output() {
    // The last block of 128 is not full, and no fold of pairs is in memory.
    let (n, m, l) = (2, 1101, 1100);
    let (x, y, z) = (numbers(n, 1, 1), numbers(m, 1, 2), numbers(l, 1, 3).remove_axis(Axis(1)));
    let outputs = testing::call::<shared>().input(&x).input(&y).input(&z).run().unwrap();
    let mut expected = Array2::zeros((n, l));
    for i in 0..n {
        for j in 0..m {
            let e = z.mapv(|z| (x[[i, 0]] * y[[j, 0]] * z).exp());
            let mut row = expected.row_mut(i);
            row += &(&e / e.sum());
        }
    }
    close(&outputs.array::<f64, Ix2>("output").unwrap(), &expected);
}

#[test]
fn a_gradient_that_is_absent_is_zero() {
    let (x, y, grad) = (numbers(5, 3, 1), numbers(4, 3, 2), numbers(1, 5, 3).remove_axis(Axis(0)));
    let zero = Array1::<f64>::zeros(5);
    let call = || testing::Call::new(near_and_total::COMPANIONS[0]()).input(&x).input(&y);
    let given = [call().input(&grad).input(&zero).run(), call().input(&zero).input(&grad).run()];
    let absent = [call().input(&grad).absent().run(), call().absent().input(&grad).run()];
    for (given, absent) in given.into_iter().zip(absent) {
        let (given, absent) = (given.unwrap(), absent.unwrap());
        for output in ["x_grad", "y_grad"] {
            let array = |of: &testing::Outputs| of.array::<f64, Ix2>(output).unwrap();
            close(&array(&absent), &array(&given));
        }
    }
    let none: Array2<f64> = call().absent().absent().run().unwrap().array("x_grad").unwrap();
    assert_eq!(none, Array2::<f64>::zeros((5, 3)));
    // Where the slope of the other output is infinite too.
    let same = testing::Call::new(near_and_total::COMPANIONS[0]()).input(&x).input(&x).absent().input(&grad);
    let by_x: Array2<f64> = same.run().unwrap().array("x_grad").unwrap();
    assert!(by_x.iter().all(|number| number.is_finite()));
    // Of no columns, too.
    let empty = Array2::<f64>::zeros((5, 0));
    let none = testing::Call::new(near_and_total::COMPANIONS[0]()).input(&empty).input(&empty);
    let none: Array2<f64> = none.input(&grad).absent().run().unwrap().array("x_grad").unwrap();
    assert_eq!(none, empty);
}

#[test]
fn a_position_has_to_be_somewhere() {
    // Distances of no columns are 0, and the first of them is the nearest.
    let (x, y) = (Array2::<f64>::zeros((5, 0)), Array2::<f64>::zeros((4, 0)));
    let outputs = testing::call::<nearest>().input(&x).input(&y).run().unwrap();
    assert_eq!(outputs.array::<i64, Ix1>("z").unwrap(), Array1::<i64>::zeros(5));
    let x = Array2::<f64>::zeros((3, 0));
    let message = testing::call::<both_ways>().input(&x).run().unwrap_err().message().to_owned();
    assert!(message.contains("the axis `j` is empty"), "{message}");
}

#[test]
fn an_axis_may_be_empty_where_a_number_does_not_lie_on_it() {
    let (x, y) = (array![2.0, f64::INFINITY], Array1::<f64>::zeros(0));
    let outputs = testing::call::<elsewhere>().input(&x).input(&y).run().unwrap();
    let infinite = Array1::from_elem(2, f64::NEG_INFINITY);
    assert_eq!(outputs.array::<f64, Ix1>("most").unwrap(), infinite);
    assert_eq!(outputs.array::<f64, Ix1>("total").unwrap(), array![0.0, 0.0]);
    assert_eq!(outputs.array::<f64, Ix1>("all").unwrap(), x);
}

#[test]
fn functions_within_folds_are_those_of_numbers() {
    let (x, y) = (numbers(21, 1, 5), numbers(1, 77, 6));
    let each = testing::call::<compiled>().input(&x).input(&y).run().unwrap();
    let each = each.array::<f64, Ix2>("z").unwrap();
    let (x, y) = (x.column(0), y.row(0));
    let outputs = testing::call::<functions>().input(&x).input(&y).run().unwrap();
    let [total, most] = ["total", "most"].map(|name| outputs.array::<f64, Ix1>(name).unwrap());
    for (i, row) in each.rows().into_iter().enumerate() {
        let sum = row.sum();
        let largest = row.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        assert!((total[i] - sum).abs() < 1e-12 * sum.abs().max(100.0), "{i}: {} {sum}", total[i]);
        assert!((most[i] - largest).abs() < 1e-13 * largest.abs().max(1.0), "{i}: {} {largest}", most[i]);
    }
}

/// What there is to read: numbers of which every other one counts, positions, numbers, and a mask that lies across.
struct Given {
    x: Array2<f64>,
    label: Array2<i64>,
    y: Array1<f64>,
    take: Array2<bool>,
}

impl Given {
    /// The three results as they should be for row i.
    fn expected(&self, i: usize, round: &dyn Fn(f64) -> f64) -> (f64, i64, bool) {
        let of = |(j, y): (usize, &f64)| {
            let is_taken = self.take[[j, i]] && self.label[[i, 0]] != j as i64;
            if is_taken { round(self.x[[i, 0]]) * round(*y) } else { 0.0 }
        };
        let all: Vec<f64> = self.y.iter().enumerate().map(of).collect();
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let first = all.iter().position(|number| *number == most).unwrap();
        (all.iter().sum(), first as i64, all.iter().any(|number| *number > 0.25))
    }

    fn check<T: opsmith::Element>(&self, to: impl Fn(f64) -> T, from: impl Fn(T) -> f64, error: f64) {
        let (x, y) = (self.x.mapv(&to), self.y.mapv(&to));
        let (x, label) = (x.slice(s![.., 0]), self.label.slice(s![.., 0]));
        let take = self.take.t();
        let sums = testing::call::<read>().input(&x).input(&label).input(&y).input(&take).run().unwrap();
        let firsts = testing::call::<first>().input(&x).input(&label).input(&y).input(&take).run().unwrap();
        let somes = testing::call::<some>().input(&x).input(&label).input(&y).input(&take).run().unwrap();
        for i in 0..x.len() {
            let (sum, first, some) = self.expected(i, &|number| from(to(number)));
            let found = from(sums.array::<T, Ix1>("z").unwrap()[i]);
            assert!((found - sum).abs() <= error * sum.abs().max(1.0), "{i}: {found} {sum}");
            assert_eq!(firsts.array::<i64, Ix1>("z").unwrap()[i], first, "{i}");
            assert_eq!(somes.array::<bool, Ix1>("z").unwrap()[i], some, "{i}");
        }
    }
}

#[test]
fn every_dtype_is_read_however_it_lies() {
    use opsmith::dtype::{bf16, f16};
    for (n, m) in [(1, 1), (3, 5), (8, 16), (19, 37), (130, 9)] {
        let given = Given {
            x: numbers(n, 2, 8) * 2.0,
            label: Array2::from_shape_fn((n, 2), |(i, _)| (i % m) as i64),
            y: numbers(m, 1, 9).column(0).to_owned(),
            take: Array2::from_shape_fn((m, n), |(j, i)| (i * 7 + j * 3) % 4 != 0),
        };
        given.check(|x| x, |x| x, 1e-13);
        given.check(|x| x as f32, f64::from, 1e-5);
        given.check(f16::from_f64, f16::to_f64, 2e-3);
        given.check(bf16::from_f64, bf16::to_f64, 2e-2);
    }
}

#[test]
fn all_of_this_holds_where_nothing_is_made_machine_code() {
    if std::env::var_os("OPSMITH_ISA").is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env("OPSMITH_ISA", "plain").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Squared distances of the rows of two matrices.
fn squared(x: &Array2<f64>, y: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), y.nrows()), |(i, j)| (&x.row(i) - &y.row(j)).mapv(|d| d * d).sum())
}

#[test]
fn the_smallest_are_those_of_a_sorted_row() {
    let x = Array2::from_shape_fn((5, 3), |(i, k)| ((i * 7 + k * 3) % 5) as f64 - 2.0);
    let y = Array2::from_shape_fn((9, 3), |(j, k)| ((j * 5 + k * 2) % 4) as f64 - 1.5);
    let all = squared(&x, &y);
    for count in [0, 1, 2, 5, 9] {
        let values: Array2<f64> = testing::call::<distances_of_nearest>()
            .input(&x)
            .input(&y)
            .attr("neighbours", count as i64)
            .run()
            .unwrap()
            .array("z")
            .unwrap();
        let positions: Array2<i64> = testing::call::<nearest_rows>()
            .input(&x)
            .input(&y)
            .attr("neighbours", count as i64)
            .run()
            .unwrap()
            .array("z")
            .unwrap();
        assert_eq!(values.dim(), (5, count));
        for i in 0..5 {
            // A stable sort: of equals the first.
            let mut order: Vec<usize> = (0..9).collect();
            order.sort_by(|a, b| all[[i, *a]].total_cmp(&all[[i, *b]]));
            for rank in 0..count {
                assert_eq!(positions[[i, rank]], order[rank] as i64, "{i}, {rank} of {count}");
                assert!((values[[i, rank]] - all[[i, order[rank]]]).abs() < 1e-12);
            }
        }
    }
    let call = testing::call::<distances_of_nearest>().input(&x).input(&y).attr("neighbours", 10_i64);
    assert_eq!(
        call.run().unwrap_err().message(),
        "DistancesOfNearest: attribute `neighbours` asks for the 10 smallest or largest along the axis `j`, \
         which has size 9"
    );
    let call = testing::call::<distances_of_nearest>().input(&x).input(&y).attr("neighbours", -1_i64);
    let error = call.run().unwrap_err();
    assert!(error.message().contains("`neighbours`") && error.message().contains("-1"), "{error}");
}

#[test]
fn the_largest_of_infinities_nan_and_equals() {
    let (infinity, nan) = (f64::INFINITY, f64::NAN);
    let x = array![[1.0, 3.0, 3.0, 2.0], [nan, 1.0, -infinity, infinity], [nan, nan, 0.0, -1.0]];
    let y: Array2<f64> = testing::call::<top_three>().input(&x).run().unwrap().array("z").unwrap();
    assert_eq!(y.row(0), array![3.0, 3.0, 2.0]);
    assert_eq!((y[[1, 0]], y[[1, 1]], y[[2, 0]], y[[2, 1]]), (infinity, 1.0, 0.0, -1.0));
    assert!(y[[1, 2]].is_nan() && y[[2, 2]].is_nan());
    // The gradient goes to the numbers that are taken, of equals to each its own.
    let x = array![[1.0, 3.0, 3.0, 2.0, 0.0]];
    let y_grad = array![[10.0, 20.0, 30.0]];
    let grad = testing::Call::new(top_three::COMPANIONS[0]()).input(&x).input(&y_grad);
    let x_grad: Array2<f64> = grad.run().unwrap().array("x_grad").unwrap();
    assert_eq!(x_grad, array![[0.0, 10.0, 20.0, 30.0, 0.0]]);
}

#[test]
fn axes_have_sizes_of_their_own() {
    let (weight, label) = (array![2.0, 3.0, 4.0], array![1_i64, 0, 3]);
    let call = || testing::call::<one_hot>().input(&weight).input(&label).attr("classes", 3_i64);
    let hot: Array2<f64> = call().run().unwrap().array("z").unwrap();
    assert_eq!(hot, array![[0.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]);
    let grad =
        testing::Call::new(one_hot::COMPANIONS[0]()).attr("classes", 3_i64).input(&weight).input(&label);
    let ones = Array2::<f64>::from_shape_fn((3, 3), |(i, c)| (10 * i + c) as f64);
    let weight_grad: Array1<f64> = grad.input(&ones).run().unwrap().array("weight_grad").unwrap();
    assert_eq!(weight_grad, array![1.0, 10.0, 0.0]);
    let x = array![[1.0, 2.0], [5.0, 6.0], [f64::NAN, 9.0]];
    let y: Array1<f64> = testing::call::<green>().input(&x).run().unwrap().array("z").unwrap();
    assert_eq!(y, array![9.0, 10.0]);
    let error = testing::call::<green>().input(&array![[1.0], [2.0]]).run().unwrap_err();
    assert_eq!(error.message(), "Green: axis `g`, dim 0 of `x` (shape [2,1]), must be 3: 3 ≠ 2");
    opsmith::infer_ok!(testing::shapes::<green>(), "[3,?]", "[d0_1]");
    opsmith::infer_ok!(testing::shapes::<top_three>(), "[4,?]", "[d0_0,3]");
}

/// Local names may be those of axes, also where a fold could take one.
#[body("(i,k = 2),(j,k)->(i,j)")]
fn lent_names<S: Indexed>(x: S, y: S) -> S {
    let [i, j] = [0, 1].map(|i| x.at(k, i));
    i.max(j) + y.sum(k)
}

#[test]
fn local_names_are_no_axes() -> Result<()> {
    let (x, y) = (array![[1.0, 4.0], [7.0, 2.0]], array![[10.0, 20.0]]);
    let outputs = testing::call::<lent_names>().input(&x).input(&y).run()?;
    assert_eq!(outputs.array::<f64, Ix2>("z")?, array![[34.0], [37.0]]);
    Ok(())
}
