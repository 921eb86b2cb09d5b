//! Serves a model over HTTP: `POST /run` with tensors as JSON or safetensors, `/model`, `/health` and `/metrics`.
//!
//! One thread reads requests and writes answers; others, the workers, read tensors, run the model and write tensors, on as many
//! requests at a time as wait and fit together.

mod apart;
mod batch;
mod free;
mod halves;
mod http;
mod json;
mod listen;
mod metrics;
mod model;
mod options;
mod ort;
mod scalar;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use tokio::sync::{Notify, Semaphore};

use crate::batch::{Most, Queue, Worker};
use crate::http::Server;
use crate::metrics::Metrics;
use crate::model::{GraphModel, Model};
use crate::options::{Limits, Options};
use crate::ort::OnnxModel;

/// Says something on the standard error, if anybody still reads that.
fn report(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Tells when the thread of a worker ends, however it does.
struct Stops(Arc<Notify>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<()> {
    let model = options.model.display();
    ensure!(options.model.exists(), "{model}: there is no such file");
    ensure!(
        options.runtime.is_some() || !options.free_rows,
        "--free-rows is for a model of ONNX, which needs --runtime; the ops of a graph say themselves whether rows are free"
    );
    for (at, name) in options.output.iter().enumerate() {
        ensure!(!options.output[..at].contains(name), "--output `{name}` is given twice");
    }
    let is_onnx = options.model.extension().is_some_and(|extension| extension == "onnx");
    let model: Arc<dyn Model> = match &options.runtime {
        Some(runtime) => Arc::new(OnnxModel::open(runtime, &options)?),
        None if is_onnx => {
            bail!("{model}: an ONNX model needs ONNX Runtime: give its library by --runtime")
        }
        None => Arc::new(GraphModel::open(&options)?),
    };
    serve(model, options.limits)
}

/// Serves a model until the process is told to end.
fn serve(model: Arc<dyn Model>, limits: Limits) -> Result<()> {
    if limits.batch > 1
        && let Some(why) = model.why_alone()
    {
        eprintln!("note: requests are not batched: {why}");
    }
    let (queue, metrics) = (Arc::new(Queue::default()), Arc::new(Metrics::default()));
    let stopped = Arc::new(Notify::new());
    let workers = (0..limits.workers).map(|index| {
        let (model, queue, metrics) = (model.clone(), queue.clone(), metrics.clone());
        let most = Most { requests: limits.batch.into(), bytes: limits.batch_bytes };
        let stops = Stops(stopped.clone());
        let work = move || {
            let _stops = stops;
            Worker::new(&*model, &metrics, most).map(|worker| worker.run(&queue))
        };
        thread::Builder::new().name(format!("worker-{index}")).spawn(work)
    });
    let workers = workers.collect::<io::Result<Vec<_>>>().context("no thread for a worker")?;
    let grace = limits.grace;
    let server = Arc::new(Server {
        model,
        queue: queue.clone(),
        metrics,
        room: Arc::new(Semaphore::new(limits.concurrency.into())),
        ends: AtomicBool::new(false),
        stopped,
        limits,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(listen::listen(server));
    queue.close();
    let end = ended?;
    // What nobody waits for any more is not worth more time than what somebody does.
    while !workers.iter().all(JoinHandle::is_finished) {
        ensure!(Instant::now() < end, "the model still runs after {} seconds", grace.as_secs_f64());
        thread::sleep(Duration::from_millis(5));
    }
    for worker in workers {
        worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use opsmith_runtime::Tensor;

    use super::*;
    use crate::model::Argument;

    /// A model with which no worker can begin.
    struct Broken;

    impl Model for Broken {
        fn inputs(&self) -> &[Argument] {
            &[]
        }

        fn outputs(&self) -> &[Argument] {
            &[]
        }

        fn why_alone(&self) -> Option<&str> {
            panic!("broken")
        }

        fn run(&self, _: &[Tensor]) -> opsmith_core::Result<Vec<Tensor>> {
            Ok(vec![])
        }
    }

    #[test]
    fn a_server_whose_worker_has_ended_ends() {
        let options = Options::parse_from([
            "serve",
            "model",
            "--output",
            "y",
            "--listen",
            "127.0.0.1:0",
            "--linger",
            "0",
            "--batch",
            "1",
        ]);
        assert_eq!(serve(Arc::new(Broken), options.limits).unwrap_err().to_string(), "a worker panicked");
    }
}
