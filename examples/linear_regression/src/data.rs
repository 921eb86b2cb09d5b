//! The diabetes data of Efron, Hastie, Johnstone and Tibshirani (2004), as scikit-learn has it: ten measurements of each
//! of 442 patients, and how far the disease had gone a year later.

use ndarray::{Array2, Axis, s};

/// The file, with a heading line.
const CSV: &str = include_str!("../data/diabetes.csv");

/// How many patients are kept for the test.
const NUM_TEST: usize = 89;

/// Inputs (n, 10) and targets (n, 1), of those to learn from and of those to test with.
pub(crate) struct Data {
    /// The measurements to learn from.
    pub(crate) x: Array2<f64>,
    /// What to learn.
    pub(crate) y: Array2<f64>,
    /// The measurements to test with.
    pub(crate) test_x: Array2<f64>,
    /// What is right for them.
    pub(crate) test_y: Array2<f64>,
}

/// Reads the data, each measurement scaled to variance 1.
///
/// # Panics
/// If the file that comes with the program is damaged.
pub(crate) fn read() -> Data {
    let rows: Vec<Vec<f64>> = CSV
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|number| number.parse().expect("the file holds numbers")).collect())
        .collect();
    let columns = rows[0].len();
    let all = Array2::from_shape_vec((rows.len(), columns), rows.concat()).expect("every line is as long");
    let (x, y) = all.view().split_at(Axis(1), columns - 1);
    // The columns have mean 0 and length 1.
    let x = x.to_owned() * (rows.len() as f64).sqrt();
    let split = rows.len() - NUM_TEST;
    Data {
        x: x.slice(s![..split, ..]).to_owned(),
        y: y.slice(s![..split, ..]).to_owned(),
        test_x: x.slice(s![split.., ..]).to_owned(),
        test_y: y.slice(s![split.., ..]).to_owned(),
    }
}
