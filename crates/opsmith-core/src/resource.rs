//! State that kernels of one library share by name.

use std::any::Any;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::fork::{self, Turn, generation};
use crate::{Error, Result, bail};

type Shared = Arc<dyn Any + Send + Sync>;

/// State that kernels share, behind a lock.
///
/// A kernel may hold the lock for as long as it likes. In a forked child, state that another thread held at the fork is half
/// changed, and nobody is there to end the change: the next kernel that asks for it by name gets one that is made anew.
#[derive(Debug)]
pub struct Resource<R> {
    turn: Turn,
    state: Mutex<R>,
    /// The process in which it was last looked at, and whether a thread of the process before that has the state.
    left: fork::Mutex<(u64, bool)>,
}

/// The state of a [`Resource`], for as long as it is held.
pub struct ResourceGuard<'a, R> {
    // Let go of before the turn is.
    state: MutexGuard<'a, R>,
    _turn: MutexGuard<'a, ()>,
}

impl<R> Resource<R> {
    fn new(state: R) -> Resource<R> {
        Resource {
            turn: Turn::new(),
            state: Mutex::new(state),
            left: fork::Mutex::new((generation(), false)),
        }
    }

    /// Waits until no other kernel has it. That one panicked while it had it does not matter.
    ///
    /// # Errors
    /// `FailedPrecondition` in a forked child, where the kernel has kept the resource, and another thread held it at the fork.
    pub fn lock(&self) -> Result<ResourceGuard<'_, R>> {
        let _turn = self.turn.take();
        if self.is_left() {
            bail!(
                FailedPrecondition,
                "a resource was in use on another thread when this process was forked; ask for it by name at each call"
            );
        }
        // Nobody else of this process has the turn.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ResourceGuard { state, _turn })
    }

    /// Whether a thread of the process that was forked has it. It is found out once in a process, before a thread of that can have
    /// it: all look here first.
    fn is_left(&self) -> bool {
        let mut left = self.left.lock();
        if left.0 != generation() {
            *left = (generation(), matches!(self.state.try_lock(), Err(TryLockError::WouldBlock)));
        }
        left.1
    }
}

impl<R> Deref for ResourceGuard<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.state
    }
}

impl<R> DerefMut for ResourceGuard<'_, R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.state
    }
}

/// The named resources of a library.
#[derive(Default)]
pub(crate) struct Resources {
    by_name: fork::Mutex<HashMap<(String, String), Shared>>,
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
    ) -> Result<Arc<Resource<R>>> {
        let key = (container.to_owned(), name.to_owned());
        let shared = match self.known::<R>(&key) {
            Some(shared) => shared,
            None => {
                let made: Shared = Arc::new(Resource::new(init()?));
                self.by_name.lock().entry(key).or_insert_with(|| made.clone()).clone()
            }
        };
        let wrong_type = |_| {
            let kind = std::any::type_name::<R>();
            Error::invalid_argument(format!("resource `{name}` in container `{container}` is not a {kind}"))
        };
        shared.downcast::<Resource<R>>().map_err(wrong_type)
    }

    fn known<R: Any + Send>(&self, key: &(String, String)) -> Option<Shared> {
        let mut by_name = self.by_name.lock();
        let shared = by_name.get(key)?;
        if shared.downcast_ref::<Resource<R>>().is_some_and(Resource::is_left) {
            // It is half changed: nothing can be done with it, not even drop it.
            std::mem::forget(by_name.remove(key));
            return None;
        }
        Some(shared.clone())
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
        let inner = || Ok(*resources.get_or_init("", "inner", || Ok(2u64))?.lock()?);
        assert_eq!(*resources.get_or_init("", "outer", inner).unwrap().lock().unwrap(), 2);
    }

    #[test]
    fn what_a_thread_of_a_child_holds_is_not_made_a_second_time_there() {
        let resources = Resources::default();
        let count = || resources.get_or_init("", "count", || Ok(0u64)).unwrap();
        let kept = count();
        *kept.lock().unwrap() = 5;
        // SAFETY: the child ends without a return from here.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // It is held before anybody asks for it by name.
            let held = kept.lock().unwrap();
            let same = Arc::ptr_eq(&count(), &kept);
            drop(held);
            // SAFETY: it runs no destructors of the parent's.
            unsafe { libc::_exit(i32::from(!(same && *count().lock().unwrap() == 5))) };
        }
        let mut status = 0;
        // SAFETY: the pointer is to a local of the right type, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn what_another_thread_held_is_made_anew_in_a_forked_child() {
        let resources = Resources::default();
        let count = || resources.get_or_init("", "count", || Ok(0u64)).unwrap();
        let kept = count();
        *kept.lock().unwrap() = 5;
        let child = std::thread::scope(|scope| {
            let (held, is_held) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let kept = &kept;
            scope.spawn(move || {
                let _state = kept.lock().unwrap();
                held.send(()).unwrap();
                ended.recv().unwrap();
            });
            is_held.recv().unwrap();
            // SAFETY: the child ends without a return from here.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let anew = count().lock().is_ok_and(|mut state| {
                    *state += 1;
                    *state == 1
                });
                let again = count().lock().is_ok_and(|state| *state == 1);
                let left = kept.lock().is_err_and(|error| error.code() == crate::Code::FailedPrecondition);
                // SAFETY: it runs no destructors of the parent's.
                unsafe { libc::_exit(i32::from(!(anew && again && left))) };
            }
            end.send(()).unwrap();
            child
        });
        let mut status = 0;
        // SAFETY: the pointer is to a local of the right type, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(*count().lock().unwrap(), 5);
    }
}
