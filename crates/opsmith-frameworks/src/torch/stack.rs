//! The arguments of a call, from PyTorch's words to what the core takes.

use opsmith_core::attr::AttrValue;
use opsmith_core::{Error, Result, Signature};
use smallvec::SmallVec;

use super::schema::{Binding, Slot};
use super::shim::{ListHandle, Shim, TensorHandle};
use super::value::{OwnedList, take_attr, take_optional};

/// The arguments of a call; what PyTorch handed over is freed when this is dropped.
pub(super) struct Arguments<'s> {
    shim: &'s Shim,
    /// Every tensor, input after input; null stands for an absent optional one.
    pub(super) tensors: SmallVec<[TensorHandle; 8]>,
    /// How many tensors each input holds.
    pub(super) counts: SmallVec<[usize; 8]>,
    /// The attributes in the definition's order, `None` where none is given.
    pub(super) attrs: SmallVec<[Option<AttrValue>; 4]>,
    /// Bit `i` is set when output `i` is wanted.
    pub(super) wanted: u64,
}

impl Drop for Arguments<'_> {
    fn drop(&mut self) {
        for &tensor in self.tensors.iter().filter(|tensor| !tensor.is_null()) {
            // SAFETY: the handle is live and ours; freeing it cannot fail.
            unsafe { (self.shim.functions.aoti_torch_delete_tensor_object)(tensor) };
        }
    }
}

impl<'s> Arguments<'s> {
    /// No arguments yet, of an op with `attrs` attributes.
    #[inline]
    pub(super) fn new(shim: &'s Shim, attrs: usize) -> Arguments<'s> {
        let mut none = SmallVec::new();
        none.resize_with(attrs, || None);
        Arguments { shim, tensors: SmallVec::new(), counts: SmallVec::new(), attrs: none, wanted: u64::MAX }
    }

    /// Takes the arguments over from the stack. Whatever goes wrong, none is left behind.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that Opsmith does not have, naming the argument.
    ///
    /// # Safety
    /// `stack` must hold a word for each slot of `binding`, of the type that the schema says, owned by the caller.
    #[inline]
    pub(super) unsafe fn take(
        &mut self,
        binding: &Binding,
        signature: &Signature,
        stack: *const u64,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for (position, slot) in binding.slots.iter().enumerate() {
            // SAFETY: the stack has a word for each slot, and each is taken once.
            let taken = unsafe { self.take_one(signature, *slot, *stack.add(position)) };
            // After a failure the rest is still taken, so that it is freed.
            if let (Err(error), true) = (taken, outcome.is_ok()) {
                outcome = Err(about(signature, *slot, error));
            }
        }
        outcome
    }

    #[inline]
    unsafe fn take_one(&mut self, signature: &Signature, slot: Slot, word: u64) -> Result<()> {
        let shim = self.shim;
        // SAFETY: the caller says that the word is of the slot's type, and gives it away.
        unsafe {
            match slot {
                Slot::Tensor(_) => {
                    self.tensors.push(word as TensorHandle);
                    self.counts.push(1);
                }
                Slot::OptionalTensor(_) => {
                    let word = take_optional(shim, word).unwrap_or(0);
                    self.tensors.push(word as TensorHandle);
                    self.counts.push(1);
                }
                Slot::TensorList(_) => {
                    let list = OwnedList::new(shim, word as ListHandle);
                    let len = list.len()?;
                    for index in 0..len {
                        self.tensors.push(list.get(index)? as TensorHandle);
                    }
                    self.counts.push(len);
                }
                Slot::Attr { index, ty, optional } => {
                    let word = if optional { take_optional(shim, word) } else { Some(word) };
                    self.attrs[index] = match word {
                        Some(word) => Some(take_attr(shim, ty, word)?),
                        // A shape that must be given and is none has an unknown rank.
                        None if signature.attrs[index].default.is_none() => Some(AttrValue::Shape(None)),
                        None => None,
                    };
                }
                Slot::Wanted => self.wanted = word,
            }
        }
        Ok(())
    }
}

fn about(signature: &Signature, slot: Slot, error: Error) -> Error {
    match slot {
        Slot::Tensor(arg) | Slot::OptionalTensor(arg) | Slot::TensorList(arg) => {
            error.with_argument("input", &signature.inputs[arg].name)
        }
        Slot::Attr { index, .. } => error.with_argument("attribute", &signature.attrs[index].name),
        Slot::Wanted => error,
    }
}
