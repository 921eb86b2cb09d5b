//! Requests that wait, and the threads that run the model on as many of them at a time as fit together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use opsmith_core::{Code, Error, Result, ensure, panic};
use opsmith_runtime::{Library, Op, Tensor, tensors_from_bytes, tensors_to_bytes};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::json;
use crate::metrics::Metrics;
use crate::model::{Model, all_of, position};
use crate::report;

/// How a body has tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Safetensors,
}

/// Where an answer goes.
type Reply = oneshot::Sender<Result<Bytes>>;

/// A request that was read.
pub(crate) struct Job {
    pub(crate) body: Vec<u8>,
    pub(crate) format: Format,
    /// How the answer is to be.
    pub(crate) answer: Format,
    /// Closed when nobody waits any more.
    pub(crate) reply: Reply,
    /// Its share of what the server does at a time, until the answer is taken.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// A job whose body is known.
struct Call {
    inputs: Vec<Tensor>,
    answer: Format,
    reply: Reply,
    permit: OwnedSemaphorePermit,
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request.
    pub(crate) fn push(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.ready.notify_one();
    }

    /// Lets workers end when nothing is left.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.ready.notify_all();
    }

    /// Waits for requests and takes as many as are computed as one, at least one; none when the queue is closed.
    fn take(&self, most: Most) -> Vec<Job> {
        let waiting = |state: &mut State| state.jobs.is_empty() && !state.is_closed;
        let mut state = self.ready.wait_while(self.state(), waiting).unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        let fits = |job: &&Job| {
            let is_first = bytes == 0;
            bytes += job.body.len();
            is_first || bytes <= most.bytes
        };
        let count = state.jobs.iter().take(most.requests).take_while(fits).count();
        let taken = state.jobs.drain(..count).collect();
        if !state.jobs.is_empty() {
            self.ready.notify_one();
        }
        taken
    }
}

/// How much is computed as one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) requests: usize,
    /// Of the bodies. What is large takes more memory beside others, and mostly no less time.
    pub(crate) bytes: usize,
}

/// Runs a model.
pub(crate) struct Worker<'a> {
    model: &'a dyn Model,
    metrics: &'a Metrics,
    concat: Op,
    most: Most,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(model: &'a dyn Model, metrics: &'a Metrics, most: Most) -> Result<Worker<'a>> {
        let most = if model.why_alone().is_none() { most } else { Most { requests: 1, ..most } };
        Ok(Worker { model, metrics, concat: Library::standard()?.op("concat")?, most })
    }

    /// Answers requests until the queue is closed and empty.
    pub(crate) fn run(&self, queue: &Queue) {
        loop {
            let jobs = queue.take(self.most);
            if jobs.is_empty() {
                return;
            }
            // Whoever waits for what is lost there is told so when the calls are let go of.
            if let Err(error) = panic::catch(|| {
                self.answer_all(jobs);
                Ok(())
            }) {
                report(&format!("a worker lost requests: {error}"));
            }
        }
    }

    fn answer_all(&self, jobs: Vec<Job>) {
        let mut calls: Vec<Call> = jobs.into_iter().filter_map(|job| self.read(job)).collect();
        while !calls.is_empty() {
            let group = take_group(&mut calls);
            self.answer(group);
        }
    }

    /// Reads a request that somebody still waits for, and refuses one that cannot be read.
    fn read(&self, job: Job) -> Option<Call> {
        let Job { body, format, answer, reply, permit } = job;
        if reply.is_closed() {
            return None;
        }
        match panic::catch(|| self.inputs(body, format)) {
            Ok(inputs) => Some(Call { inputs, answer, reply, permit }),
            Err(error) => {
                send(reply, permit, Err(error));
                None
            }
        }
    }

    fn inputs(&self, body: Vec<u8>, format: Format) -> Result<Vec<Tensor>> {
        let inputs = self.model.inputs();
        if format == Format::Json {
            return json::read(&body, inputs);
        }
        let mut found: Vec<Option<Tensor>> = vec![None; inputs.len()];
        let is_object = body.first() == Some(&b'{');
        // What a client sends is no loss of data here.
        let tensors = tensors_from_bytes(body).map_err(|error| match (error.code(), is_object) {
            (Code::DataLoss, true) => Error::invalid_argument(format!(
                "{}; JSON needs the header Content-Type: application/json",
                error.message()
            )),
            (Code::DataLoss, false) => Error::invalid_argument(error.message()),
            _ => error,
        });
        for (name, tensor) in tensors? {
            found[position(inputs, &name)?] = Some(tensor);
        }
        all_of(found, inputs)
    }

    /// Computes requests as one and answers them; each by itself where that fails, for its own message.
    fn answer(&self, calls: Vec<Call>) {
        let tensors: Vec<&[Tensor]> = calls.iter().map(|call| &call.inputs[..]).collect();
        if let [_, _, ..] = tensors[..]
            && let Ok(outputs) = panic::catch(|| self.together(&tensors))
        {
            self.metrics.batch(calls.len());
            calls.into_iter().zip(outputs).for_each(|(call, outputs)| self.write(call, Ok(outputs)));
            return;
        }
        for call in calls {
            if !call.reply.is_closed() {
                self.metrics.batch(1);
                let outputs = panic::catch(|| self.model.run(&call.inputs));
                self.write(call, outputs);
            }
        }
    }

    /// The outputs of several requests, whose rows are put together for that.
    fn together(&self, calls: &[&[Tensor]]) -> Result<Vec<Vec<Tensor>>> {
        let counts: Vec<usize> = calls.iter().map(|inputs| inputs[0].shape()[0]).collect();
        let joined = (0..calls[0].len()).map(|input| {
            let parts = calls.iter().map(|inputs| inputs[input].clone()).collect::<Vec<_>>();
            let joined = self.concat.call(&[(&parts[..]).into()], &[("axis", 0_i64.into())])?;
            joined.into_iter().next().ok_or_else(|| Error::internal("`concat` gave nothing"))
        });
        let outputs = self.model.run(&joined.collect::<Result<Vec<_>>>()?)?;
        let total = counts.iter().sum();
        for output in &outputs {
            let shape = output.shape();
            ensure!(shape.first() == Some(&total), Internal, "an output of shape {shape:?} for {total} rows");
        }
        let mut begin = 0;
        let parts = counts.into_iter().map(|count| {
            let part = |output: &Tensor| output.slice(0, begin, begin + count);
            let part = outputs.iter().map(part).collect::<Result<Vec<_>>>();
            begin += count;
            part
        });
        parts.collect()
    }

    fn write(&self, call: Call, outputs: Result<Vec<Tensor>>) {
        let written = outputs.and_then(|outputs| {
            panic::catch(|| match call.answer {
                Format::Json => json::write(self.model.outputs(), &outputs),
                Format::Safetensors => {
                    let names = self.model.outputs().iter().map(|output| output.name.as_str());
                    tensors_to_bytes(&names.zip(&outputs).collect::<Vec<_>>())
                }
            })
        });
        send(call.reply, call.permit, written);
    }
}

/// The bytes of an answer, which have a share of what the server does for as long as there is memory for them.
struct Held {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Gives an answer to who waits for it.
fn send(reply: Reply, permit: OwnedSemaphorePermit, answer: Result<Vec<u8>>) {
    // Nobody waits where it is not taken.
    let _ = reply.send(answer.map(|bytes| Bytes::from_owner(Held { bytes, _permit: permit })));
}

/// Takes the first call, and those that can be computed with it.
fn take_group(calls: &mut Vec<Call>) -> Vec<Call> {
    let mut group = vec![calls.remove(0)];
    if rows(&group[0].inputs).is_some() {
        let mut left = Vec::new();
        for call in calls.drain(..) {
            let fits = is_like(&group[0].inputs, &call.inputs);
            if fits { group.push(call) } else { left.push(call) }
        }
        *calls = left;
    }
    group
}

/// How many rows all inputs have; none where they do not have the same number.
fn rows(inputs: &[Tensor]) -> Option<usize> {
    let count = *inputs.first()?.shape().first()?;
    inputs.iter().all(|input| input.shape().first() == Some(&count)).then_some(count)
}

/// Whether the rows of two requests can be put together.
fn is_like(one: &[Tensor], other: &[Tensor]) -> bool {
    rows(other).is_some()
        && one.iter().zip(other).all(|(one, other)| {
            one.dtype() == other.dtype() && one.shape().get(1..) == other.shape().get(1..)
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opsmith_core::{DType, Shape};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::model::Argument;

    /// Gives all rows twice, and says all the same that its rows are free.
    struct Twice([Argument; 1]);

    impl Model for Twice {
        fn inputs(&self) -> &[Argument] {
            &self.0
        }

        fn outputs(&self) -> &[Argument] {
            &self.0
        }

        fn why_alone(&self) -> Option<&str> {
            None
        }

        fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            let rows = inputs[0].to_vec::<f32>()?;
            Ok(vec![Tensor::from_slice(&[&rows[..], &rows].concat(), &[2 * rows.len()])?])
        }
    }

    /// Adds a request to a queue.
    fn push(queue: &Queue, body: &str) -> oneshot::Receiver<Result<Bytes>> {
        let (reply, answer) = oneshot::channel();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (format, body) = (Format::Json, body.into());
        queue.push(Job { body, format, answer: format, reply, permit });
        answer
    }

    #[test]
    fn what_is_large_is_computed_by_itself() {
        let queue = Queue::default();
        let sizes = [60, 30, 20, 200, 1, 1, 1, 1];
        let _answers = sizes.map(|size| push(&queue, &" ".repeat(size)));
        queue.close();
        let most = Most { requests: 3, bytes: 100 };
        let taken: Vec<usize> = (0..6).map(|_| queue.take(most).len()).collect();
        assert_eq!(taken, [2, 1, 1, 3, 1, 0]);
    }

    #[test]
    fn outputs_of_other_rows_than_the_inputs_are_not_split() {
        let shape = Shape::parse("[?]").unwrap();
        let model = Twice([Argument { name: "x".to_owned(), dtype: DType::Float32, shape }]);
        let (queue, metrics) = (Queue::default(), Metrics::default());
        let push = |body: &str| push(&queue, body);
        let answers = [push(r#"{"inputs": {"x": [1]}}"#), push(r#"{"inputs": {"x": [2, 3]}}"#)];
        queue.close();
        Worker::new(&model, &metrics, Most { requests: 8, bytes: 100 }).unwrap().run(&queue);
        let answers = answers.map(|answer| answer.blocking_recv().unwrap().unwrap());
        assert_eq!(answers[0][..], *br#"{"outputs":{"x":[1.0,1.0]}}"#);
        assert_eq!(answers[1][..], *br#"{"outputs":{"x":[2.0,3.0,2.0,3.0]}}"#);
    }
}
