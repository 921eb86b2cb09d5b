//! The functions that code calls, for numbers for which what is written out is not exact enough.

use super::asm::{Asm, Gpr, Label, Mask, Rm, Vector};
use super::frame::Frame;
use super::place::{FRAME, MASKS, ROOM, SCRATCH};
use super::vectors::Vectors;
use crate::float::Float;
use crate::float::{Real, Turn};
use crate::isa::{Isa, Kernel, dispatch};

/// The registers of addresses and counts that a function may change, and one more, so that the stack is as it wants it.
const CALLERS: [Gpr; 9] =
    [Gpr::RCX, Gpr::RDX, Gpr::RSI, Gpr::RDI, Gpr::R8, Gpr::R9, Gpr::R10, Gpr::R11, Gpr::RBP];

/// Angles, and what they are of.
struct Angles<'a, T> {
    turn: Turn,
    angles: &'a mut [T],
    of: &'a [T],
}

impl<T: Real> Kernel for Angles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (angle, x) in self.angles.iter_mut().zip(self.of) {
            *angle = T::angle::<I>(self.turn, Float::new(*x), Float::new(*angle)).get();
        }
    }
}

/// # Safety
/// There must be so many numbers at each address, the first ones nobody else's.
unsafe extern "C" fn angles<T: Real, const COSINE: bool, const COUNT: usize>(angles: *mut T, of: *const T) {
    let turn = if COSINE { Turn::Cosine } else { Turn::Sine };
    // SAFETY: promised by the caller.
    let (angles, of) =
        unsafe { (std::slice::from_raw_parts_mut(angles, COUNT), std::slice::from_raw_parts(of, COUNT)) };
    dispatch(Angles { turn, angles, of });
}

/// The address of the function for the angles of a vector.
pub(super) fn address(turn: Turn, vectors: Vectors) -> *const () {
    match (turn, vectors.double, vectors.wide) {
        (Turn::Sine, false, false) => angles::<f32, false, 8> as *const (),
        (Turn::Sine, false, true) => angles::<f32, false, 16> as *const (),
        (Turn::Sine, true, false) => angles::<f64, false, 4> as *const (),
        (Turn::Sine, true, true) => angles::<f64, false, 8> as *const (),
        (Turn::Cosine, false, false) => angles::<f32, true, 8> as *const (),
        (Turn::Cosine, false, true) => angles::<f32, true, 16> as *const (),
        (Turn::Cosine, true, false) => angles::<f64, true, 4> as *const (),
        (Turn::Cosine, true, true) => angles::<f64, true, 8> as *const (),
    }
}

/// Writes what calls the function whose address is in the scratch register, with the two vectors of the room; all registers stay what they
/// are.
pub(super) fn write(asm: &mut Asm, frame: &mut Frame, here: Label) {
    let vectors = frame.vectors;
    let bytes = vectors.bytes() as i32;
    let room = frame.room(vectors.registers() * vectors.bytes());
    let saved = |register: usize| (Vector(register as u8), Rm::At(FRAME, room + bytes * register as i32));
    let masks = if vectors.wide { frame.room(8 * MASKS.end) } else { 0 };
    let saved_mask = |mask: usize| (Mask(mask as u8), Rm::At(FRAME, masks + 8 * mask as i32));
    asm.here(here);
    for register in CALLERS {
        asm.push(register);
    }
    for (register, at) in (0..vectors.registers()).map(saved) {
        asm.store(register, at);
    }
    for (mask, at) in MASKS.map(saved_mask).filter(|_| vectors.wide) {
        asm.put_bits(mask, at);
    }
    for (register, at) in [(Gpr::RDI, ROOM), (Gpr::RSI, ROOM + bytes)] {
        asm.get_address(register, FRAME);
        asm.add_to(Rm::General(register), at);
    }
    asm.clear_upper();
    asm.call(SCRATCH);
    for (mask, at) in MASKS.map(saved_mask).filter(|_| vectors.wide) {
        asm.get_bits(mask, at);
    }
    for (register, at) in (0..vectors.registers()).map(saved) {
        asm.load(register, at);
    }
    for register in CALLERS.iter().rev() {
        asm.pop(*register);
    }
    asm.give_back();
}
