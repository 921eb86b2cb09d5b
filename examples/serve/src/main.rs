//! Serves a model over HTTP: `POST /run` with tensors as JSON or safetensors, `/model`, `/health` and `/metrics`.
//!
//! One thread reads requests and writes answers; others, the workers, read tensors, run the model and write tensors, on as many
//! requests at a time as wait and fit together.

mod batch;
mod free;
mod http;
mod json;
mod listen;
mod metrics;
mod model;
mod options;
mod ort;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::sync::Semaphore;

use crate::batch::{Queue, Worker};
use crate::http::Server;
use crate::metrics::Metrics;
use crate::model::{GraphModel, Model};
use crate::options::Options;
use crate::ort::OnnxModel;

fn main() -> Result<()> {
    let options = Options::parse();
    let model: Arc<dyn Model> = match &options.runtime {
        Some(runtime) => Arc::new(OnnxModel::open(runtime, &options)?),
        None => Arc::new(GraphModel::open(&options)?),
    };
    let (queue, metrics) = (Arc::new(Queue::default()), Arc::new(Metrics::default()));
    let limits = options.limits;
    let workers = (0..limits.workers).map(|index| {
        let (model, queue, metrics) = (model.clone(), queue.clone(), metrics.clone());
        let most = limits.batch.into();
        let work = move || Worker::new(&*model, &metrics, most).map(|worker| worker.run(&queue));
        thread::Builder::new().name(format!("worker-{index}")).spawn(work)
    });
    let workers = workers.collect::<std::io::Result<Vec<_>>>().context("no thread for a worker")?;
    let server = Arc::new(Server {
        model,
        queue: queue.clone(),
        metrics,
        room: Arc::new(Semaphore::new(limits.concurrency.into())),
        ends: AtomicBool::new(false),
        limits,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(listen::listen(server));
    queue.close();
    ended?;
    for worker in workers {
        worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    Ok(())
}
