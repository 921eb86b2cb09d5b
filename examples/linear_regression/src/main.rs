//! `y = x W + b` learnt from data by gradient descent, with nothing but the embedded engine.
//!
//! `cargo run --release -p linear_regression -- [FOLDER]` trains, and writes the loss curve, the graph, its picture, a trace
//! and the trained variables into the folder; then it starts itself again to load what it wrote, and compares.

mod data;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};
use ndarray::Ix2;
use opsmith_core::{DType, Shape};
use opsmith_runtime::{GradientDescent, Graph, Operation, Optimizer, Output, Session, Tensor};
use plotters::prelude::*;

const EPOCHS: u64 = 3000;
const LEARNING_RATE: f64 = 0.001;

/// The model as a graph.
struct Model {
    graph: Graph,
    x: Output,
    y: Output,
    prediction: Output,
    loss: Output,
    train: Operation,
}

fn model() -> opsmith_core::Result<Model> {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &Shape::parse("[?,10]")?)?;
    let y = graph.placeholder("y", DType::Float64, &Shape::parse("[?,1]")?)?;
    let layer = graph.scope("model")?;
    let w = layer.variable("W", Tensor::zeros(DType::Float64, &[10, 1])?)?;
    let b = layer.variable("b", Tensor::zeros(DType::Float64, &[1])?)?;
    let prediction = (&x.matmul(w.output())? + b.output())?;
    let loss = (&prediction - &y)?.square()?.mean(&[])?;
    let train = GradientDescent { learning_rate: LEARNING_RATE }.minimize(&loss)?;
    Ok(Model { graph, x, y, prediction, loss, train })
}

fn number(tensor: &Tensor) -> opsmith_core::Result<f64> {
    Ok(tensor.to_vec::<f64>()?[0])
}

/// Trains, and writes everything into the folder.
fn train(folder: &Path) -> Result<(), Box<dyn Error>> {
    let data = data::read();
    let model = model()?;
    let session = Session::new(&model.graph);
    session.initialize()?;
    let (x, y) = (Tensor::from(data.x), Tensor::from(data.y));
    let feeds = [(&model.x, &x), (&model.y, &y)];
    let bar = ProgressBar::new(EPOCHS)
        .with_style(ProgressStyle::with_template("{wide_bar} epoch {pos}/{len}, loss {msg}")?);
    let mut losses = Vec::new();
    for epoch in 0..EPOCHS {
        let outcome = session
            .runner()
            .fetch(&model.loss)
            .target(&model.train)
            .feed(&model.x, &x)
            .feed(&model.y, &y)
            .run()?;
        losses.push(number(&outcome.outputs[0])?);
        if epoch % 50 == 0 {
            bar.set_message(format!("{:.1}", losses[losses.len() - 1]));
        }
        bar.inc(1);
    }
    bar.finish_with_message(format!("{:.1}", losses[losses.len() - 1]));
    let training_error = number(&session.run(&[&model.loss], &feeds)?[0])?;
    let (test_x, test_y) = (Tensor::from(data.test_x), Tensor::from(data.test_y));
    let test = [(&model.x, &test_x), (&model.y, &test_y)];
    let outputs = session.run(&[&model.loss, &model.prediction], &test)?;
    for variable in model.graph.variables() {
        println!("{} = {:?}", variable.name(), session.value(&variable)?.to_vec::<f64>()?);
    }
    println!("mean squared error: {training_error:.4} in training, {:.4} in the test", number(&outputs[0])?);
    draw_losses(&losses, &folder.join("loss.svg"))?;
    model.graph.save(folder.join("model.opsmith"))?;
    session.save(folder.join("variables.safetensors"))?;
    opsmith_runtime::save_tensors(
        folder.join("predictions.safetensors"),
        &[("x", &test_x), ("predictions", &outputs[1])],
    )?;
    std::fs::write(folder.join("graph.svg"), model.graph.to_svg()?)?;
    let traced =
        session.runner().target(&model.train).feed(&model.x, &x).feed(&model.y, &y).traced().run()?;
    if let Some(trace) = traced.trace {
        std::fs::write(folder.join("trace.json"), trace.to_chrome_json())?;
        println!("one epoch:\n{trace}");
    }
    Ok(())
}

/// Loads graph and variables, and predicts again: the predictions must be those that were saved, bit by bit.
fn check(folder: &Path) -> Result<(), Box<dyn Error>> {
    let graph = Graph::load(folder.join("model.opsmith"), &[])?;
    let session = Session::new(&graph);
    session.restore(folder.join("variables.safetensors"))?;
    let saved = opsmith_runtime::load_tensors(folder.join("predictions.safetensors"))?;
    let tensor = |name: &str| saved.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor);
    let (x, expected) = (tensor("x").ok_or("no x")?, tensor("predictions").ok_or("no predictions")?);
    let predictions = session.run(&[&graph.output("Add")?], &[(&graph.output("x")?, x)])?;
    if predictions[0].view::<f64, Ix2>()? != expected.view::<f64, Ix2>()? {
        return Err("the loaded model predicts something else".into());
    }
    println!("loaded in a new process: {} equal predictions", expected.num_elements());
    Ok(())
}

fn draw_losses(losses: &[f64], path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (640, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = losses.iter().copied().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..losses.len() as f64, 0.0..most)?;
    chart.configure_mesh().x_desc("epoch").y_desc("mean squared error").draw()?;
    let points = losses.iter().enumerate().map(|(epoch, &loss)| (epoch as f64, loss));
    chart.draw_series(LineSeries::new(points, &BLUE))?;
    area.present()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("--check") {
        return check(Path::new(&arguments.next().ok_or("--check needs the folder")?));
    }
    let folder = first.map_or_else(|| PathBuf::from("linear_regression"), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    train(&folder)?;
    let status = Command::new(std::env::current_exe()?).arg("--check").arg(&folder).status()?;
    if !status.success() {
        return Err("the check in a new process failed".into());
    }
    println!("written to {}: loss.svg, graph.svg, trace.json, the graph and its variables", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn the_weights_are_those_of_the_same_steps_by_hand() {
        let data = data::read();
        let model = model().unwrap();
        let session = Session::new(&model.graph);
        session.initialize().unwrap();
        let (x, y) = (Tensor::from(data.x.clone()), Tensor::from(data.y.clone()));
        let (mut w, mut b) = (Array2::<f64>::zeros((10, 1)), 0.0);
        let scale = 2.0 * LEARNING_RATE / data.x.nrows() as f64;
        for _ in 0..EPOCHS {
            session.execute(&model.train, &[(&model.x, &x), (&model.y, &y)]).unwrap();
            let wrong = data.x.dot(&w) + b - &data.y;
            w = w - data.x.t().dot(&wrong) * scale;
            b -= wrong.sum() * scale;
        }
        let variables = model.graph.variables();
        let learnt = session.value(&variables[0]).unwrap().to_vec::<f64>().unwrap();
        assert!(learnt.iter().zip(&w).all(|(a, e)| (a - e).abs() <= 1e-10), "{learnt:?} is not {w:?}");
        let learnt = number(&session.value(&variables[1]).unwrap()).unwrap();
        assert!((learnt - b).abs() <= 1e-10, "{learnt} is not {b}");
    }
}
