//! The values of all variables in a file.

use std::collections::HashMap;
use std::path::Path;

use opsmith_core::{Result, bail, ensure};

use super::{Session, plan};
use crate::storage::{self, Contents};

impl Session {
    /// Writes the values of all variables to a file in the safetensors format, by their names: of one moment, and with them
    /// what optimisers remember, so that training goes on from there exactly.
    ///
    /// # Errors
    /// `FailedPrecondition` for a variable that has no value yet; `Unimplemented` for one of a dtype that files cannot hold;
    /// what the system says of the file. After an error a file that was there before is as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let variables = self.graph().variables();
        let outputs: Vec<_> = variables.iter().map(|variable| variable.output()).collect();
        let values = self.run(&outputs, &[])?;
        let names = variables.iter().map(|variable| variable.name().to_owned());
        storage::write(
            path.as_ref(),
            Contents { tensors: names.zip(values).collect(), texts: HashMap::new() },
        )
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
                bail!(NotFound, "{}: has no value for variable `{}`", path.display(), variable.name());
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
            "{}: has a value for `{}`, which is no variable of the graph",
            path.display(),
            left[0]
        );
        self.set_all(variables.iter().zip(values))
    }
}
