//! State that kernels of one library share by name.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

type Shared = Arc<dyn Any + Send + Sync>;

/// The named resources of a library.
#[derive(Default)]
pub(crate) struct Resources {
    by_name: Mutex<HashMap<(String, String), Shared>>,
}

impl Resources {
    /// The resource `name` of `container`, made by `init` if there is none.
    ///
    /// `init` runs without the lock, for it may ask for another resource; of two that are made at once the first stays.
    pub(crate) fn get_or_init<R: Any + Send>(
        &self,
        container: &str,
        name: &str,
        init: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<Mutex<R>>> {
        let key = (container.to_owned(), name.to_owned());
        let known = self.lock().get(&key).cloned();
        let shared = match known {
            Some(shared) => shared,
            None => {
                let made: Shared = Arc::new(Mutex::new(init()?));
                self.lock().entry(key).or_insert_with(|| made.clone()).clone()
            }
        };
        let wrong_type = |_| {
            let kind = std::any::type_name::<R>();
            Error::invalid_argument(format!("resource `{name}` in container `{container}` is not a {kind}"))
        };
        shared.downcast::<Mutex<R>>().map_err(wrong_type)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Shared>> {
        // Nothing that holds the lock can panic half-way, so a poisoned one is as good as any.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_made_once_and_keeps_its_type() {
        let resources = Resources::default();
        *resources.get_or_init("", "count", || Ok(1u64)).unwrap().lock().unwrap() += 1;
        assert_eq!(*resources.get_or_init("", "count", || Ok(9u64)).unwrap().lock().unwrap(), 2);
        let error = resources.get_or_init("", "count", || Ok(0f32)).unwrap_err();
        assert!(error.message().contains("`count`") && error.message().contains("f32"));
    }

    #[test]
    fn making_one_resource_may_need_another() {
        let resources = Resources::default();
        let inner = || Ok(*resources.get_or_init("", "inner", || Ok(2u64))?.lock().unwrap());
        assert_eq!(*resources.get_or_init("", "outer", inner).unwrap().lock().unwrap(), 2);
    }
}
