//! What a call would launch on a card, found out without one: its tensors have addresses and no memory, and the library gives each
//! launch to its caller.

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;

use opsmith_core::{AttrValue, DType, Device, DeviceKind, Error, Result, TensorView};
use opsmith_cuda::Launch;
use opsmith_runtime::{CallInputs, Library, OutputMemory};

use crate::memory::Input;
use crate::wire::{Launched, Outline, Placed, SourceText, read_dtype};

/// The device that tensors are said to be on.
const CARD: Device = Device { kind: DeviceKind::Cuda, index: 0 };
/// So far apart, in bits, the tensors of a call begin: none is as large.
const APART: u32 = 46;
/// The positions of outputs, and of temporary memory, among the tensors: inputs are those before.
const OUTPUTS: usize = 1 << 8;
const TEMPS: usize = 1 << 9;

/// A tensor of a call.
enum Tensor {
    OnDevice { address: usize, dtype: DType, placed: Placed },
    Host(Input),
}

impl Tensor {
    fn new(position: usize, mut placed: Placed) -> Result<Tensor> {
        if let Some(laid) = placed.host.take() {
            return Input::new(laid).map(Tensor::Host);
        }
        let dtype = read_dtype(&placed.dtype)?;
        let address = address(position) + if placed.unaligned { dtype.size() } else { 0 };
        Ok(Tensor::OnDevice { address, dtype, placed })
    }

    fn view(&self) -> TensorView<'_> {
        match self {
            Tensor::Host(input) => input.view(),
            Tensor::OnDevice { address, dtype, placed } => {
                let data = ptr::without_provenance(*address);
                // SAFETY: it is said to be on a card, and no driver gets it: nobody reads an element.
                unsafe { TensorView::from_raw_parts(data, *dtype, CARD, &placed.shape, &placed.strides) }
            }
        }
    }
}

fn address(position: usize) -> usize {
    (position + 1) << APART
}

/// The launches of a call. The text of a source that is `known` stays out; it is from now on.
pub(crate) fn run(library: &Library, call: Outline, known: &mut HashSet<u128>) -> Result<Vec<Launched>> {
    let tensors = call.tensors.into_iter().enumerate();
    let tensors = tensors.map(|(at, placed)| placed.map(|placed| Tensor::new(at, placed)).transpose());
    let tensors: Vec<Option<Tensor>> = tensors.collect::<Result<_>>()?;
    let views: Vec<Option<TensorView<'_>>> =
        tensors.iter().map(|tensor| tensor.as_ref().map(Tensor::view)).collect();
    let values = call.attrs.iter().map(|attr| attr.value()).collect::<Result<Vec<AttrValue>>>()?;
    let attrs: Vec<(&str, &AttrValue)> =
        call.attrs.iter().map(|attr| attr.name.as_str()).zip(&values).collect();
    let mut counts = vec![0; call.outputs];
    let mut memory = NoDevice { known, temps: 0, launched: Vec::new() };
    let inputs = CallInputs { flat: &views, counts: &call.counts };
    // SAFETY: what is in host memory nobody else knows, and no element of the rest is looked at.
    unsafe { library.op_at(call.op)?.call_into(inputs, &attrs, call.wanted, &mut counts, &mut memory) }?;
    Ok(memory.launched)
}

/// What a call is lent: addresses, and a place for its launches.
struct NoDevice<'a> {
    known: &'a mut HashSet<u128>,
    temps: usize,
    launched: Vec<Launched>,
}

impl OutputMemory for NoDevice<'_> {
    fn allocate(&mut self, index: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
        Ok(ptr::without_provenance_mut(address(OUTPUTS + index)))
    }

    fn keep_string(&mut self, _: &[u8]) -> Result<*const u8> {
        Err(Error::unimplemented("a string tensor cannot be on a device"))
    }

    fn stream(&self) -> Option<*mut c_void> {
        Some(ptr::null_mut())
    }

    fn allocate_temp(&mut self, _: usize) -> Result<*mut u8> {
        self.temps += 1;
        Ok(ptr::without_provenance_mut(address(TEMPS + self.temps)))
    }

    fn takes_launches(&self) -> bool {
        true
    }

    fn launch(&mut self, launch: &mut Launch<'_>) -> Result<()> {
        let source = launch.source;
        let text = || SourceText {
            file: source.file(),
            line: source.line(),
            text: source.text().to_owned(),
            headers: source
                .headers()
                .iter()
                .map(|(name, text)| (name.to_string(), text.to_string()))
                .collect(),
        };
        self.launched.push(Launched {
            source: source.key().to_string(),
            text: self.known.insert(source.key()).then(text),
            kernel: launch.kernel.clone(),
        });
        Ok(())
    }
}
