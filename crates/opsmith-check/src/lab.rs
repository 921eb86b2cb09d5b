//! Where calls are made: processes that may die, and what came of each call.

use std::sync::Arc;
use std::time::Duration;

use opsmith_core::attr::TensorValue;
use opsmith_core::{Code, Error, Shape};
use serde_json::Value;

use crate::case::Case;
use crate::process::{Death, Process, Start};
use crate::source::LibrarySource;
use crate::subject::Subject;
use crate::wire::{Answer, Call, Refusal, Request, Returned};

/// Why a case did not pass.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// The case says nothing of the property: the op refuses it, say.
    Reject(String),
    /// The property does not hold.
    Fail(Box<Fault>),
    /// Nothing can be checked any more.
    Broken(Error),
}

/// What is wrong, and the case that shows it.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) case: Case,
    /// The call that is wrong, where it is not that of the case: the op's name and its inputs.
    pub(crate) call: Option<(String, Case)>,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Broken(error)
    }
}

impl Trouble {
    /// A failure that a case shows.
    pub(crate) fn fail(message: impl Into<String>, case: &Case) -> Trouble {
        Trouble::Fail(Box::new(Fault { message: message.into(), case: case.clone(), call: None }))
    }

    /// The same, with the call that is wrong, which is one of another op.
    pub(crate) fn shown_by(self, op: &str, call: Case) -> Trouble {
        match self {
            Trouble::Fail(fault) => {
                Trouble::Fail(Box::new(Fault { call: Some((op.to_owned(), call)), ..*fault }))
            }
            other => other,
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Given(Outputs),
    Refused(Refusal),
    Died(Death),
}

/// What a call gave.
#[derive(Debug, Clone)]
pub(crate) struct Outputs {
    /// How many tensors each output of the definition has.
    pub(crate) counts: Vec<usize>,
    /// The tensors that were made, one by one.
    pub(crate) values: Vec<Arc<TensorValue>>,
    /// Which were: all but those that are not wanted.
    pub(crate) made: Vec<bool>,
    /// The buffers of the inputs that were changed in place.
    pub(crate) changed: Vec<Vec<u8>>,
    damage: Option<String>,
}

impl Outputs {
    fn new(given: Returned) -> Result<Outputs, Error> {
        let made = given.outputs.iter().map(Option::is_some).collect();
        let values = given.outputs.into_iter().flatten().map(|output| output.into_value().map(Arc::new));
        Ok(Outputs {
            counts: given.counts,
            values: values.collect::<Result<_, _>>()?,
            made,
            changed: given.changed.into_iter().map(|buffer| buffer.bytes).collect(),
            damage: given.damage,
        })
    }

    /// The tensors of an output of the definition.
    pub(crate) fn of(&self, output: usize) -> &[Arc<TensorValue>] {
        let start: usize = self.counts[..output].iter().sum();
        &self.values[start..][..self.counts[output]]
    }
}

impl Outcome {
    fn new(answer: Answer) -> Result<Outcome, Error> {
        match answer {
            Answer::Given(given) => Outputs::new(given).map(Outcome::Given),
            Answer::Refused(refusal) => Ok(Outcome::Refused(refusal)),
            Answer::Opened | Answer::Inferred(_) | Answer::Launched(_) => {
                Err(Error::internal("a call gave something else"))
            }
        }
    }

    /// What a call gave that ought to be made: what the op refuses is no case, and what ends the process, writes behind
    /// its memory or panics is a failure that `case` shows.
    pub(crate) fn accepted(self, case: &Case) -> Result<Outputs, Trouble> {
        match self {
            Outcome::Given(outputs) => match &outputs.damage {
                Some(damage) => Err(Trouble::fail(damage.clone(), case)),
                None => Ok(outputs),
            },
            Outcome::Refused(refusal) if is_panic(&refusal) => {
                Err(Trouble::fail(format!("an internal error: {}", refusal.message), case))
            }
            Outcome::Refused(refusal) => Err(Trouble::Reject(refusal.message)),
            Outcome::Died(death) => Err(Trouble::fail(format!("the call {}", death.how), case)),
        }
    }
}

/// Whether an error is one that no caller should see.
pub(crate) fn is_panic(refusal: &Refusal) -> bool {
    Code::from_i32(refusal.code) == Code::Internal
}

/// So long a call on a card may take at least: the first one waits for the driver, the first of each kernel for its compiler.
const ON_DEVICE: Duration = Duration::from_secs(120);

/// The processes that calls are made in.
pub(crate) struct Lab<'a> {
    main: Process<'a>,
    /// One of its own for calls on a card.
    device: Process<'a>,
    /// Processes whose kernels use 1, 2 and 16 threads.
    pub(crate) threaded: [(usize, Process<'a>); 3],
}

impl<'a> Lab<'a> {
    /// Processes for a library, none of which runs yet. A call takes at most `limit`, on a card [`ON_DEVICE`] if
    /// that is more.
    pub(crate) fn new(start: &'a Start<'a>, source: &LibrarySource, limit: Duration) -> Lab<'a> {
        let process = |threads| Process::new(start, source.clone(), threads, limit);
        let on_device = Process::new(start, source.clone(), None, limit.max(ON_DEVICE));
        Lab {
            main: process(None),
            device: on_device,
            threaded: [1, 2, 16].map(|threads| (threads, process(Some(threads)))),
        }
    }

    /// Starts the process and opens the library in it.
    pub(crate) fn try_out(&mut self) -> Result<(), Error> {
        match self.main.ask(vec![])? {
            Ok(_) => Ok(()),
            Err(death) => {
                Err(Error::failed_precondition(format!("the process that calls ops {}", death.how)))
            }
        }
    }

    /// Answers, or how the process died.
    pub(crate) fn ask(&mut self, requests: Vec<Request>) -> Result<Result<Vec<Answer>, Death>, Error> {
        self.main.ask(requests)
    }

    /// Makes a call.
    pub(crate) fn call(&mut self, call: Call) -> Result<Outcome, Error> {
        ask_one(&mut self.main, call)
    }

    /// Whether there is a card; `Err` says in words why there is none.
    pub(crate) fn has_device(&mut self) -> Result<Result<(), String>, Error> {
        match self.device.ask(vec![Request::Device])? {
            Ok(answers) => match answers.into_iter().next() {
                Some(Answer::Refused(refusal)) => Ok(Err(refusal.message)),
                _ => Ok(Ok(())),
            },
            Err(death) => Ok(Err(format!("the process that opened a device {}", death.how))),
        }
    }

    /// Makes a call on a card.
    pub(crate) fn on_device(&mut self, call: Call, in_host_memory: Vec<bool>) -> Result<Outcome, Error> {
        let outcome = ask_for(&mut self.device, Request::OnDevice { call, in_host_memory })?;
        // A kernel that went wrong leaves the device of no use to its process.
        if matches!(&outcome, Outcome::Refused(refusal) if is_panic(refusal)) {
            self.device.end();
        }
        Ok(outcome)
    }

    /// Makes several calls in a row; one that dies takes the rest along.
    pub(crate) fn calls(&mut self, calls: Vec<Call>) -> Result<Vec<Outcome>, Error> {
        match self.main.ask(calls.into_iter().map(Request::Call).collect())? {
            Ok(answers) => answers.into_iter().map(Outcome::new).collect(),
            Err(death) => Ok(vec![Outcome::Died(death)]),
        }
    }

    /// What shape inference gives: the shapes of all outputs one by one, or why it refuses.
    pub(crate) fn infer(
        &mut self,
        request: Request,
        case: &Case,
    ) -> Result<Result<Vec<Shape>, Refusal>, Trouble> {
        let answer = match self.main.ask(vec![request])? {
            Ok(answers) => answers.into_iter().next(),
            Err(death) => return Err(Trouble::fail(format!("shape inference {}", death.how), case)),
        };
        match answer {
            Some(Answer::Inferred(response)) => Ok(Ok(read_shapes(&response)?)),
            Some(Answer::Refused(refusal)) => Ok(Err(refusal)),
            _ => Err(Error::internal("shape inference gave something else").into()),
        }
    }

    /// The outcome of a generated case that is to be accepted.
    pub(crate) fn accepted(&mut self, subject: &Subject, case: &Case) -> Result<Outputs, Trouble> {
        self.call(case.call(subject, FILL))?.accepted(case)
    }
}

/// What outputs are filled with: a NaN in floats, -1 in integers.
pub(crate) const FILL: u8 = 0xFF;

/// Makes a call in a process.
pub(crate) fn ask_one(process: &mut Process<'_>, call: Call) -> Result<Outcome, Error> {
    ask_for(process, Request::Call(call))
}

fn ask_for(process: &mut Process<'_>, request: Request) -> Result<Outcome, Error> {
    match process.ask(vec![request])? {
        Ok(mut answers) if answers.len() == 1 => Outcome::new(answers.remove(0)),
        Ok(_) => Err(Error::internal("a call gave no answer")),
        Err(death) => Ok(Outcome::Died(death)),
    }
}

fn read_shapes(response: &str) -> Result<Vec<Shape>, Error> {
    let malformed = || Error::internal("shape inference gave no shapes");
    let response: Value = serde_json::from_str(response).map_err(|_| malformed())?;
    let outputs = response["outputs"].as_array().ok_or_else(malformed)?;
    let lists = outputs.iter().map(|list| list.as_array().ok_or_else(malformed));
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    lists.into_iter().flatten().map(Shape::from_json).collect()
}
