//! What is wrong with a `#[body]`, and when it is told.

use opsmith::prelude::*;
use opsmith::{Library, OpDef, testing};

/// Says that its result lies on j too.
#[body("(i,j)->(i,j)", orders = 0)]
fn folded<S: Indexed>(x: S) -> S {
    x.sum(j)
}

/// Of an axis that the signature does not have.
#[body("(i)->(i)")]
fn beyond<S: Indexed>(x: S) -> S {
    x + S::count(opsmith::Axis::new(7))
}

/// Says it of the first of two outputs, and where an attribute says so.
#[body("(i,j)->(),(i)", outputs = [total, rows], orders = 0)]
fn totals<S: Indexed>(x: S, #[attr(default = false)] all: bool) -> (S, S) {
    (if all { x.sum(i).sum(j) } else { x.sum(j) }, x.sum(j))
}

/// The same, for no value of an attribute that has no default.
#[body("(i,j)->(i,j)", orders = 0)]
fn taps<S: Indexed>(x: S, #[attr] count: i64) -> S {
    (0..count).fold(S::of(0.0), |sum, _| sum + x.sum(j))
}

/// For some values alone.
#[body("(i,j)->(i,j)", orders = 0)]
fn taps_of_each<S: Indexed>(x: S, #[attr] count: i64) -> S {
    (0..count).fold(S::of(0.0), |sum, _| sum + x)
}

/// Along an axis without a size.
#[body("(i,j)->(i)", orders = 0)]
fn least<S: Indexed>(x: S) -> S {
    x.smallest(j, i).0
}

/// A colour that there is not.
#[body("(rgb = 3,s)->(s)")]
fn alpha<S: Indexed>(x: S) -> S {
    x.at(rgb, 3)
}

/// As many as an attribute says.
#[body("(c = channels,s)->(s)")]
fn second<S: Indexed>(x: S, #[attr(default = 2)] channels: i64) -> S {
    x.at(c, 1)
}

/// Of an axis whose size the input says.
#[body("(j,s)->(s)")]
fn third<S: Indexed>(x: S) -> S {
    x.at(j, 2)
}

/// Folds twice along one axis.
#[body("(i,j)->(i)", orders = 0)]
fn twice<S: Indexed>(x: S) -> S {
    (x.sum(j) * 2.0).sum(j)
}

/// The same, by a mean and a product.
#[body("(i,j),(i,j)->(i)", orders = 0)]
fn products<S: Indexed>(x: S, y: S) -> S {
    (y.sum(j) + x.mean(j)).prod(j)
}

/// What it adds up depends on no fold along that axis, or has positions there again.
#[body("(i,j),(i)->(i)", orders = 0)]
fn spread<S: Indexed>(x: S, y: S) -> S {
    y.sum(j) + (x - x.mean(j)).sum(j) + x.amax(j).amax(j)
}

/// What the library of an op says, when it is made, without the place of its function, which is in this file.
fn told(def: OpDef) -> String {
    let error = Library::new("library", "0.1.0", vec![def]).err().expect("it is wrong");
    let message = error.message();
    let (op, rest) = message.split_once(": ").unwrap();
    let (place, fault) = rest.split_once(": ").unwrap();
    let (file, line) = place.rsplit_once(':').unwrap();
    assert_eq!(file, file!());
    let line = include_str!("named_axes_faults.rs").lines().nth(line.parse::<usize>().unwrap() - 1);
    assert!(line.unwrap().starts_with("#[body"), "{message}");
    format!("{op}: {fault}")
}

#[test]
fn a_library_is_not_made_of_what_is_wrong_with_the_defaults() {
    assert_eq!(
        told(folded::def()),
        "Folded: its output `z` has the axes (i,j), but what the function returns for it has (i); take the other axes from \
         the output"
    );
    assert_eq!(
        told(totals::def()),
        "Totals: its output `total` has the axes (), but what the function returns for it has (i); fold it along `i`, as \
         with `.sum(i)`, or give the output that axis"
    );
    assert_eq!(told(beyond::def()), "Beyond: its function uses axis number 7, but its signature has 1 axes");
    let message = told(least::def());
    assert!(message.starts_with("Least: the signature must give the size of the axis `i`"), "{message}");
    assert_eq!(
        told(alpha::def()),
        "Alpha: takes the number at position 3 along the axis `rgb`, which has size 3: positions begin at 0"
    );
    assert_eq!(told(alpha::COMPANIONS[0]()), told(alpha::def()));
    for def in [twice::def(), products::def()] {
        let message = told(def);
        assert!(
            message.contains(": its function folds along the axis `j` a number that was folded along it"),
            "{message}"
        );
    }
}

#[test]
fn what_has_no_positions_may_be_added_up() {
    let (x, y) = (array![[1.0, 2.0, 6.0]], array![10.0]);
    let call = testing::call::<spread>().input(&x).input(&y).run().unwrap();
    assert_eq!(call.array::<f64, Ix1>("z").unwrap(), array![36.0]);
}

#[test]
fn what_is_wrong_for_some_attributes_is_told_by_a_call() {
    let x = array![[1.0, 2.0], [3.0, 4.0]];
    let message = told(taps::def());
    assert!(message.starts_with("Taps: its output `z` has the axes (i,j), but"), "{message}");
    let call = |count: i64| testing::call::<taps_of_each>().input(&x).attr("count", count).run();
    assert_eq!(call(2).unwrap().array::<f64, Ix2>("z").unwrap(), array![[2.0, 4.0], [6.0, 8.0]]);
    let error = call(0).unwrap_err();
    assert!(error.message().contains("returns for it has ()"), "{}", error.message());
    let row = |channels: i64| {
        let y = testing::call::<second>().input(&x).attr("channels", channels).run();
        y.map(|y| y.array::<f64, Ix1>("z").unwrap())
    };
    assert_eq!(row(2).unwrap(), array![3.0, 4.0]);
    assert!(row(1).unwrap_err().message().contains("position 1 along the axis `c`, which has size 1"));
}

#[test]
fn a_position_that_is_not_there_is_told_by_a_call() {
    let x = array![[1.0], [2.0], [3.0]];
    let y: Array1<f64> = testing::call::<third>().input(&x).run().unwrap().array("z").unwrap();
    assert_eq!(y, array![3.0]);
    let x = array![[1.0], [2.0]];
    let error = testing::call::<third>().input(&x).run().unwrap_err();
    assert_eq!(
        error.message(),
        "Third: takes the number at position 2 along the axis `j`, which has size 2: positions begin at 0"
    );
    let z_grad = array![1.0];
    let grad = testing::Call::new(third::COMPANIONS[0]()).input(&x).input(&z_grad);
    assert!(grad.run().unwrap_err().message().starts_with("ThirdGrad: takes the number at position 2"));
}
