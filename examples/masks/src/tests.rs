//! The ops against their definitions, on dense masks and in plain loops; shapes; bad input.

use opsmith::ndarray::{Array, Array1, Array3, Array4, Dimension};
use opsmith::prelude::*;
use opsmith::testing::{Call, call, shapes};
use opsmith::{infer_error, infer_ok};

use crate::{
    average_embedding_mask, average_embedding_mask_grad, average_embedding_mask_grad_grad,
    discriminative_loss, discriminative_loss_grad, masked_averages, masked_averages_grad,
    masked_averages_grad_grad,
};

const DELTA_V: f64 = 0.4;
const DELTA_D: f64 = 0.9;

/// Batch, x, y, d and masks: each way in which `d` is taken, blocks of places with a rest, and many columns.
const SIZES: [[usize; 5]; 12] = [
    [1, 1, 1, 1, 1],
    [2, 3, 9, 2, 3],
    [1, 4, 70, 3, 4],
    [2, 2, 130, 4, 2],
    [1, 3, 40, 5, 3],
    [3, 2, 33, 7, 2],
    [1, 60, 65, 8, 3],
    [2, 5, 20, 11, 4],
    [1, 100, 80, 16, 5],
    [1, 3, 67, 32, 2],
    [2, 2, 10, 40, 3],
    [1, 2, 12, 72, 2],
];

/// Numbers between −1 and 1 that look random.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
    }
}

fn numbers<D: Dimension>(shape: D, seed: u64) -> Array<f64, D> {
    Array::from_shape_simple_fn(shape, noise(seed))
}

/// Runs that overlap, half of them empty; every third mask is empty altogether.
fn random_masks([batch, x, y, _, masks]: [usize; 5], seed: u64) -> Array4<i32> {
    let mut next = noise(seed);
    let mut place = || ((next() + 1.0) / 2.0 * (y + 1) as f64) as i32;
    Array4::from_shape_fn((batch, masks, x, 2), |(_, mask, _, _)| if mask % 3 == 2 { 0 } else { place() })
}

/// Whether a place is in a mask: batch, mask, x, y.
fn dense_masks(rle: &Array4<i32>, y: usize) -> Array4<bool> {
    let (batch, masks, x, _) = rle.dim();
    Array4::from_shape_fn((batch, masks, x, y), |(b, m, x, y)| {
        (rle[[b, m, x, 0]]..rle[[b, m, x, 1]]).contains(&(y as i32))
    })
}

/// The places of a mask.
fn places(inside: &Array4<bool>, b: usize, m: usize) -> Vec<(usize, usize)> {
    inside
        .slice(s![b, m, .., ..])
        .indexed_iter()
        .filter(|(_, inside)| **inside)
        .map(|(place, _)| place)
        .collect()
}

/// The mean of each mask that has places.
fn mean_of(e: &Array4<f64>, inside: &Array4<bool>, b: usize, m: usize) -> Option<Array1<f64>> {
    let places = places(inside, b, m);
    let sum = |sum: Array1<f64>, &(x, y): &(usize, usize)| sum + e.slice(s![b, x, y, ..]);
    (!places.is_empty()).then(|| places.iter().fold(Array1::zeros(e.dim().3), sum) / places.len() as f64)
}

fn expected_swarm(e: &Array4<f64>, inside: &Array4<bool>) -> Array3<f64> {
    let (batch, x, y, _) = e.dim();
    let mut loss = Array3::zeros((batch, x, y));
    for (b, m) in (0..batch).flat_map(|b| (0..inside.dim().1).map(move |m| (b, m))) {
        let Some(mean) = mean_of(e, inside, b, m) else { continue };
        for (x, y) in places(inside, b, m) {
            let difference = &e.slice(s![b, x, y, ..]) - &mean;
            loss[[b, x, y]] += 0.5 * difference.dot(&difference);
        }
    }
    loss
}

fn norm(x: &Array1<f64>) -> f64 {
    x.dot(x).sqrt()
}

fn expected_loss(e: &Array4<f64>, inside: &Array4<bool>) -> Array1<f64> {
    Array1::from_shape_fn(e.dim().0, |b| {
        let masks =
            (0..inside.dim().1).filter_map(|m| Some((mean_of(e, inside, b, m)?, places(inside, b, m))));
        let masks: Vec<_> = masks.collect();
        let c = masks.len() as f64;
        let mut loss = 0.0;
        for (i, (mean, places)) in masks.iter().enumerate() {
            for &(x, y) in places {
                let beyond = norm(&(mean - &e.slice(s![b, x, y, ..]))) - DELTA_V;
                loss += beyond.max(0.0).powi(2) / (c * places.len() as f64);
            }
            for (_, (other, _)) in masks.iter().enumerate().filter(|(j, _)| *j != i) {
                loss += (2.0 * DELTA_D - norm(&(mean - other))).max(0.0).powi(2) / (c * (c - 1.0));
            }
            loss += 0.001 / c * norm(mean);
        }
        loss
    })
}

fn loss_of<'a>(e: &'a Array4<f64>, rle: &'a Array4<i32>) -> Call<'a> {
    call::<discriminative_loss>().input(e).input(rle).attr("delta_v", DELTA_V).attr("delta_d", DELTA_D)
}

fn assert_close<'a>(
    what: &str,
    got: impl IntoIterator<Item = &'a f64>,
    expected: impl IntoIterator<Item = &'a f64>,
    tolerance: f64,
) {
    let (got, expected): (Vec<_>, Vec<_>) = (got.into_iter().collect(), expected.into_iter().collect());
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.into_iter().zip(expected) {
        assert!((got - expected).abs() <= tolerance * (1.0 + expected.abs()), "{what}: {got} for {expected}");
    }
}

/// Every size, with an embedding and masks on it.
fn each_size(mut test: impl FnMut(&str, &Array4<f64>, &Array4<i32>)) {
    for (seed, size) in (1..).zip(SIZES) {
        let [batch, x, y, d, _] = size;
        test(&format!("{size:?}"), &numbers(Ix4(batch, x, y, d), seed), &random_masks(size, 100 + seed));
    }
}

#[test]
fn means_are_those_of_the_definition() {
    each_size(|what, e, rle| {
        let inside = dense_masks(rle, e.dim().2);
        let outputs = call::<masked_averages>().input(e).input(rle).threads(2).run().unwrap();
        let mean: Array3<f64> = outputs.array("mean").unwrap();
        for ((b, m), got) in mean
            .rows()
            .into_iter()
            .enumerate()
            .map(|(row, got)| ((row / inside.dim().1, row % inside.dim().1), got))
        {
            let expected = mean_of(e, &inside, b, m).unwrap_or_else(|| Array1::zeros(e.dim().3));
            assert_close(what, got, &expected, 1e-13);
        }
        let (e, rle) = (e.mapv(|e| e as f32), rle.mapv(i64::from));
        let outputs = call::<masked_averages>().input(&e).input(&rle).run().unwrap();
        let single = outputs.array::<f32, Ix3>("mean").unwrap().mapv(f64::from);
        assert_close(what, &single, &mean, 1e-6);
    });
}

#[test]
fn losses_are_those_of_the_definition() {
    each_size(|what, e, rle| {
        let inside = dense_masks(rle, e.dim().2);
        let outputs = call::<average_embedding_mask>().input(e).input(rle).threads(2).run().unwrap();
        let swarm = outputs.array::<f32, Ix3>("swarm_loss").unwrap().mapv(f64::from);
        assert_close(what, &swarm, &expected_swarm(e, &inside), 1e-6);
        let loss: Array1<f64> = loss_of(e, rle).threads(2).run().unwrap().array("loss").unwrap();
        assert_close(what, &loss, &expected_loss(e, &inside), 1e-12);
    });
}

/// The slope of a function of the embedding along a direction.
fn slope(f: impl Fn(&Array4<f64>) -> f64, e: &Array4<f64>, direction: &Array4<f64>, step: f64) -> f64 {
    (f(&(e + &(direction * step))) - f(&(e - &(direction * step)))) / (2.0 * step)
}

#[test]
fn gradients_are_slopes() {
    each_size(|what, e, rle| {
        let direction = numbers(e.raw_dim(), 7);
        let along = |gradient: Array4<f64>| (gradient * &direction).sum();
        let near = |got: f64, expected: f64| assert_close(what, [&got], [&expected], 1e-5);

        let means = |e: &Array4<f64>| -> Array3<f64> {
            call::<masked_averages>().input(e).input(rle).run().unwrap().array("mean").unwrap()
        };
        let upstream = numbers(means(e).raw_dim(), 8);
        let outputs = call::<masked_averages_grad>().input(e).input(rle).input(&upstream).run().unwrap();
        let expected = slope(|e| (means(e) * &upstream).sum(), e, &direction, 1.0);
        near(along(outputs.array("embedding_grad").unwrap()), expected);
        let second = call::<masked_averages_grad_grad>().input(rle).input(&direction).run().unwrap();
        let by_upstream: Array3<f64> = second.array("mean_grad_grad").unwrap();
        near((by_upstream * &upstream).sum(), expected);

        let loss = |e: &Array4<f64>| loss_of(e, rle).run().unwrap();
        let upstream = numbers(Ix1(e.dim().0), 9);
        let [saved, slopes]: [Array3<f64>; 2] = ["means", "slopes"].map(|name| loss(e).array(name).unwrap());
        let outputs = call::<discriminative_loss_grad>()
            .input(e)
            .input(rle)
            .input(&saved)
            .input(&slopes)
            .input(&upstream)
            .attr("delta_v", DELTA_V)
            .run()
            .unwrap();
        let total = |e: &Array4<f64>| loss(e).array::<f64, Ix1>("loss").unwrap().dot(&upstream);
        near(along(outputs.array("embedding_grad").unwrap()), slope(total, e, &direction, 1e-6));
    });
}

#[test]
fn gradients_of_two_orders_of_the_swarm_loss() {
    each_size(|what, e, rle| {
        let (batch, x, y, _) = e.dim();
        let inside = dense_masks(rle, y);
        let (upstream, direction) =
            (numbers(Ix3(batch, x, y), 8).mapv(|g| g as f32), numbers(e.raw_dim(), 7));
        let gradient = |e: &Array4<f64>| -> Array4<f64> {
            let outputs =
                call::<average_embedding_mask_grad>().input(e).input(rle).input(&upstream).threads(2).run();
            outputs.unwrap().array("embedding_grad").unwrap()
        };
        let wide = upstream.mapv(f64::from);
        let expected = slope(|e| (expected_swarm(e, &inside) * &wide).sum(), e, &direction, 1.0);
        assert_close(what, [&(gradient(e) * &direction).sum()], [&expected], 1e-10);

        let other = numbers(e.raw_dim(), 6);
        let outputs = call::<average_embedding_mask_grad_grad>()
            .input(e)
            .input(rle)
            .input(&upstream)
            .input(&other)
            .run()
            .unwrap();
        let by_e: Array4<f64> = outputs.array("embedding_grad").unwrap();
        let expected = slope(|e| (gradient(e) * &other).sum(), e, &direction, 1.0);
        assert_close(what, [&(by_e * &direction).sum()], [&expected], 1e-10);
        let by_upstream = outputs.array::<f32, Ix3>("swarm_loss_grad_grad").unwrap().mapv(f64::from);
        assert_close(what, [&(by_upstream * &wide).sum()], [&(gradient(e) * &other).sum()], 1e-5);
    });
}

#[test]
fn threads_change_no_bit() {
    let size = [2, 90, 60, 6, 5];
    let e = numbers(Ix4(2, 90, 60, 6), 1).mapv(|e| e as f32);
    let rle = random_masks(size, 2);
    let all = |threads| {
        let outputs = call::<discriminative_loss>()
            .input(&e)
            .input(&rle)
            .attr("delta_v", 0.1)
            .attr("delta_d", 2.0)
            .threads(threads)
            .run()
            .unwrap();
        let [means, slopes]: [Array3<f32>; 2] = ["means", "slopes"].map(|name| outputs.array(name).unwrap());
        let loss: Array1<f32> = outputs.array("loss").unwrap();
        (loss.mapv(f32::to_bits), means.mapv(f32::to_bits), slopes.mapv(f32::to_bits))
    };
    let one = all(1);
    assert!([2, 3, 16].into_iter().all(|threads| all(threads) == one));
}

#[test]
fn a_place_in_two_masks_has_the_sum_of_both() {
    let e = Array4::from_shape_vec((1, 1, 3, 1), vec![0.0, 2.0, 6.0]).unwrap();
    let rle = Array4::from_shape_vec((1, 2, 1, 2), vec![0, 2, 1, 3]).unwrap();
    let outputs = call::<average_embedding_mask>().input(&e).input(&rle).run().unwrap();
    // The means are 1 and 4.
    let expected = [0.5 * 1.0, 0.5 * (1.0 + 4.0), 0.5 * 4.0];
    assert_eq!(outputs.array::<f32, Ix3>("swarm_loss").unwrap().as_slice().unwrap(), expected);
}

#[test]
fn few_masks() {
    let e = Array4::from_shape_vec((1, 1, 3, 1), vec![1.0, 3.0, f64::NAN]).unwrap();
    let loss = |rle: Vec<i64>| {
        let rle = Array4::from_shape_vec((1, 2, 1, 2), rle).unwrap();
        let call = call::<discriminative_loss>().input(&e).input(&rle);
        let outputs = call.attr("delta_v", 0.5).attr("delta_d", 10.0).attr("gamma", 0.25).run().unwrap();
        outputs.array::<f64, Ix1>("loss").unwrap()[0]
    };
    // No mask; one, whose mean is 2, from which both places are 0.5 too far; a reversed run is none.
    assert_eq!(loss(vec![0, 0, 3, 3]), 0.0);
    assert_eq!(loss(vec![0, 2, 0, 0]), 0.25 + 0.25 * 2.0);
    assert_eq!(loss(vec![3, 0, 0, 2]), 0.25 + 0.25 * 2.0);
    // Two at 1 and 3, which are to be 20 apart.
    assert_eq!(loss(vec![0, 1, 1, 2]), 18.0 * 18.0 + 0.25 * 2.0);
    assert!(loss(vec![0, 1, 1, 3]).is_nan());
}

#[test]
fn no_elements() {
    for (shape, masks) in [([0, 2, 3, 4], 2), ([2, 0, 3, 4], 2), ([2, 2, 0, 4], 2), ([2, 2, 3, 4], 0)] {
        let [batch, x, y, d] = shape;
        let (e, rle) = (Array4::<f32>::ones(shape), Array4::<i32>::zeros((batch, masks, x, 2)));
        let outputs = call::<masked_averages>().input(&e).input(&rle).run().unwrap();
        assert_eq!(outputs.array::<f32, Ix3>("mean").unwrap(), Array3::<f32>::zeros((batch, masks, d)));
        let outputs = call::<average_embedding_mask>().input(&e).input(&rle).run().unwrap();
        assert_eq!(outputs.array::<f32, Ix3>("swarm_loss").unwrap(), Array3::<f32>::zeros((batch, x, y)));
        let call = call::<discriminative_loss>().input(&e).input(&rle);
        let outputs = call.attr("delta_v", 0.5).attr("delta_d", 1.0).run().unwrap();
        assert_eq!(outputs.array::<f32, Ix1>("loss").unwrap(), Array1::<f32>::zeros(batch));
    }
    // Places without numbers: all means are the same.
    let (e, rle) =
        (Array4::<f64>::zeros((1, 1, 3, 0)), Array4::from_shape_vec((1, 2, 1, 2), vec![0, 1, 1, 3]).unwrap());
    let outputs = call::<average_embedding_mask>().input(&e).input(&rle).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix3>("swarm_loss").unwrap(), Array3::<f32>::zeros((1, 1, 3)));
    assert_eq!(
        loss_of(&e, &rle).run().unwrap().array::<f64, Ix1>("loss").unwrap()[0],
        (2.0 * DELTA_D).powi(2)
    );
}

#[test]
fn shapes_are_inferred_and_checked() {
    let op = shapes::<masked_averages>();
    infer_ok!(op, "[2,5,6,3];[2,4,5,2]", "[2,4,3]");
    infer_ok!(op, "[?,?,?,?];[?,m,?,?]", "[?,m,?]");
    infer_ok!(op, "[n,x,y,d];[n,m,x,2]", "[n,m,d]");
    infer_error!(op, "must have rank 4", "[2,5,6];[2,4,5,2]");
    infer_error!(op, "must have rank 4", "[2,5,6,3];[2,4,5,2,1]");
    infer_error!(op, "must be 2", "[2,5,6,3];[2,4,5,3]");
    infer_error!(op, "batch", "[2,5,6,3];[3,4,5,2]");
    infer_error!(op, "x", "[2,5,6,3];[2,4,6,2]");
    infer_ok!(shapes::<average_embedding_mask>(), "[n,x,y,d];[n,m,x,2]", "[n,x,y]");
    infer_error!(shapes::<average_embedding_mask>(), "batch", "[2,5,6,3];[3,4,5,2]");
    let loss = shapes::<discriminative_loss>().attr("delta_v", 0.5.into()).attr("delta_d", 1.5.into());
    infer_ok!(loss, "[n,x,y,d];[n,m,x,2]", "[n];[n,m,d];[n,m,d]");
    infer_error!(loss, "must be 2", "[2,5,6,3];[2,4,5,1]");
}

#[test]
fn runs_outside_are_an_error_that_names_the_place() {
    let e = Array4::<f32>::zeros((2, 3, 5, 2));
    for (run, text) in
        [([2, 6], "2 to 6"), ([-1, 2], "-1 to 2"), ([9, 0], "9 to 0"), ([i64::MIN, i64::MAX], "-922")]
    {
        let mut rle = Array4::<i64>::zeros((2, 4, 3, 2));
        // Later ones are not named, whichever thread finds them first.
        for at in [[1, 2, 1], [1, 3, 0], [1, 3, 2]] {
            rle.slice_mut(s![at[0], at[1], at[2], ..]).assign(&Array1::from(run.to_vec()));
        }
        let error = call::<masked_averages>().input(&e).input(&rle).threads(3).run().unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange);
        for part in ["MaskedAverages", "`rle_mask`", "batch 1, mask 2, x 1", "the 5 places", text] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}

#[test]
fn bad_attributes_and_shapes_are_errors() {
    let (e, rle) = (Array4::<f64>::zeros((1, 2, 3, 2)), Array4::<i32>::zeros((1, 1, 2, 2)));
    let loss = |delta_v: f64| call::<discriminative_loss>().input(&e).input(&rle).attr("delta_v", delta_v);
    assert!(loss(0.5).run().unwrap_err().message().contains("delta_d"));
    for bad in [-0.5, f64::NAN] {
        let error = loss(bad).attr("delta_d", 1.0).run().unwrap_err();
        assert!(error.message().contains("attribute `delta_v` must be at least 0"), "{error}");
    }
    let other = Array4::<i32>::zeros((1, 1, 3, 2));
    let error = call::<average_embedding_mask>().input(&e).input(&other).run().unwrap_err();
    assert!(error.message().starts_with("AverageEmbeddingMask: "), "{error}");
}
