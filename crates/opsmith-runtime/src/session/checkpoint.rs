//! The values of all variables in a file.

use std::collections::HashMap;
use std::path::Path;

use opsmith_core::{Result, bail, ensure};

use super::{Session, plan};
#[cfg(doc)]
use crate::Graph;
use crate::graph::{Output, Variable};
use crate::storage::{self, Contents};

impl Session {
    /// Writes the values of all variables to a file in the safetensors format, by their names: of one moment, and with them
    /// what optimisers remember, so that training goes on from there exactly.
    ///
    /// # Errors
    /// `FailedPrecondition` for a variable that has no value yet; `Unimplemented` for one of a dtype that files cannot hold;
    /// what the system says of the file. After an error a file that was there before is as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), &self.graph().variables())
    }

    /// Writes the values of those variables that these outputs need, for the graph that [`Graph::save_for`] writes.
    ///
    /// # Errors
    /// As [`save`](Self::save) has them; `InvalidArgument` for an output of another graph.
    pub fn save_for(&self, path: impl AsRef<Path>, outputs: &[&Output]) -> Result<()> {
        let needed = self.graph().needed_by(outputs)?;
        let is_needed = |variable: &Variable| needed.contains(&variable.output().operation().id());
        let variables: Vec<_> = self.graph().variables().into_iter().filter(is_needed).collect();
        self.write(path.as_ref(), &variables)
    }

    fn write(&self, path: &Path, variables: &[Variable]) -> Result<()> {
        let outputs: Vec<_> = variables.iter().map(|variable| variable.output()).collect();
        let values = self.run(&outputs, &[])?;
        let names = variables.iter().map(|variable| variable.name().to_owned());
        storage::write(path, Contents { tensors: names.zip(values).collect(), texts: HashMap::new() })
    }

    /// Gives every variable of the graph the value that a file has for it.
    ///
    /// # Errors
    /// `NotFound` where there is no such file, or it has no value for a variable; `InvalidArgument` for a value that cannot
    /// be the variable's; `DataLoss` for a file that is truncated or damaged. After an error variables are as they were.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut tensors: HashMap<_, _> = storage::read(path)?.tensors.into_iter().collect();
        let variables = self.graph().variables();
        let mut values = Vec::new();
        for variable in &variables {
            let Some(value) = tensors.remove(variable.name()) else {
                bail!(
                    NotFound,
                    "{}: has no value for variable `{}`; save graph and values for the same outputs",
                    path.display(),
                    variable.name()
                );
            };
            plan::check_fed(variable.output(), &value, "the value of variable")
                .map_err(|error| error.within(path.display()))?;
            // In memory of its own: what one variable keeps is not the whole file.
            values.push(value.into_own()?);
        }
        let mut left: Vec<&String> = tensors.keys().collect();
        left.sort();
        ensure!(
            left.is_empty(),
            InvalidArgument,
            "{}: has a value for `{}`, which is no variable of the graph; save graph and values for the same outputs",
            path.display(),
            left[0]
        );
        self.set_all(variables.iter().zip(values))
    }
}
