//! Vectors from memory, and to it.

use super::asm::{Arith, First, Gpr, Rm, Test, Vector};
use super::place::{Address, FIRST, FRAME, OTHER_SCRATCH, Placer, Pointer, ROOM, SCRATCH, Stored, Which};

impl Placer<'_> {
    /// The register that has an address.
    pub(super) fn address(&mut self, pointer: Pointer) -> Gpr {
        match pointer {
            Pointer::Register(register) => register,
            Pointer::Slot(slot) => {
                self.asm.get(SCRATCH, Rm::At(FRAME, slot));
                SCRATCH
            }
            Pointer::Frame => FRAME,
        }
    }

    /// The first so many numbers, in a register that is taken for this instruction. It changes `SCRATCH`.
    fn first(&mut self, count: usize) -> First {
        if self.vectors.wide {
            self.asm.set_first_bits(FIRST, count, SCRATCH);
            return First::Mask(FIRST);
        }
        let register = self.free();
        let mask = self.asm.constant(|lane| if lane < count { u64::MAX } else { 0 });
        self.asm.load(register, mask);
        First::Vector(register)
    }

    pub(super) fn read(&mut self, to: Vector, place: &Address) {
        let all = self.lanes();
        match (place.stored, place.which) {
            (Stored::Same, Which::Dense(count)) if count == all => {
                let base = self.address(place.pointer);
                self.asm.load(to, Rm::At(base, place.offset));
            }
            (Stored::Same, Which::Dense(count)) => {
                let first = self.first(count);
                let base = self.address(place.pointer);
                self.asm.load_first(to, first, Rm::At(base, place.offset));
            }
            (Stored::Same, Which::One) => {
                let base = self.address(place.pointer);
                self.asm.broadcast(to, Rm::At(base, place.offset));
            }
            (Stored::Same, Which::Apart { count, distances, .. }) => {
                let (first, far) = (self.first(count), self.free());
                self.asm.load(far, Rm::At(FRAME, distances));
                self.asm.arith(Arith::Xor, to, to, to.into());
                let mut base = self.address(place.pointer);
                if place.offset != 0 {
                    self.asm.get_address(SCRATCH, base);
                    self.asm.add_to(Rm::General(SCRATCH), place.offset);
                    base = SCRATCH;
                }
                self.asm.gather(to, base, far, first);
            }
            (Stored::Half, Which::Dense(count)) if count == all => {
                let base = self.address(place.pointer);
                self.asm.load_halves(to, Rm::At(base, place.offset));
            }
            (Stored::BFloat, Which::Dense(count)) if count == all => {
                let base = self.address(place.pointer);
                self.asm.widen_ints(to, Rm::At(base, place.offset));
                self.asm.shift_left(to, to, 16);
            }
            (stored, which) => {
                self.copy_in(place, which, to);
                match stored {
                    Stored::Half => self.asm.load_halves(to, Rm::At(FRAME, ROOM)),
                    Stored::BFloat => {
                        self.asm.widen_ints(to, Rm::At(FRAME, ROOM));
                        self.asm.shift_left(to, to, 16);
                    }
                    Stored::Same | Stored::Position | Stored::Truth => self.asm.load(to, Rm::At(FRAME, ROOM)),
                }
                if which == Which::One {
                    self.asm.broadcast(to, to.into());
                }
            }
        }
    }

    /// Copies numbers, one by one, to where they lie one after another; `room` is a register that is free.
    fn copy_in(&mut self, place: &Address, which: Which, room: Vector) {
        let base = self.address(place.pointer);
        if base != SCRATCH {
            self.asm.get_address(SCRATCH, base);
        }
        let bytes = place.stored.bytes(self.vectors.double);
        let (count, stride) = which.count();
        for lane in 0..count {
            let offset = place.offset + if stride.is_none() { (bytes * lane) as i32 } else { 0 };
            let from = Rm::At(SCRATCH, offset);
            let wide = if self.vectors.double { 8 } else { 4 };
            let to = Rm::At(FRAME, ROOM + (wide * lane) as i32);
            match place.stored {
                Stored::Position => {
                    self.asm.number_of_int(room, from);
                    self.asm.store_one(room, to);
                }
                Stored::Truth => {
                    self.asm.get_bytes(1, OTHER_SCRATCH, from);
                    self.asm.is_not_zero(OTHER_SCRATCH);
                    // The bits of 1.
                    let (ones, by) = if self.vectors.double { (0x3ff, 52) } else { (0x7f, 23) };
                    self.asm.and_number(OTHER_SCRATCH, ones);
                    self.asm.shift_left_general(OTHER_SCRATCH, by);
                    self.asm.put_bytes(wide, OTHER_SCRATCH, to);
                }
                Stored::Same | Stored::Half | Stored::BFloat => {
                    self.asm.get_bytes(bytes, OTHER_SCRATCH, from);
                    self.asm.put_bytes(bytes, OTHER_SCRATCH, Rm::At(FRAME, ROOM + (bytes * lane) as i32));
                }
            }
            if let Some(stride) = stride {
                self.asm.add_from(SCRATCH, Rm::At(FRAME, stride));
            }
        }
    }

    pub(super) fn write(&mut self, from: Vector, place: &Address) {
        let all = self.lanes();
        match (place.stored, place.which) {
            (Stored::Same, Which::Dense(count)) => {
                if count == all {
                    let base = self.address(place.pointer);
                    self.asm.store(from, Rm::At(base, place.offset));
                } else {
                    let first = self.first(count);
                    let base = self.address(place.pointer);
                    self.asm.store_first(from, first, Rm::At(base, place.offset));
                }
            }
            (Stored::Same, Which::One) => {
                let base = self.address(place.pointer);
                self.asm.store_one(from, Rm::At(base, place.offset));
            }
            (Stored::Half, Which::Dense(count)) if count == all => {
                let base = self.address(place.pointer);
                self.asm.store_halves(from, Rm::At(base, place.offset));
            }
            (Stored::BFloat, Which::Dense(count)) if count == all => {
                let room = self.rounded(from);
                let base = self.address(place.pointer);
                self.asm.store_half(room, Rm::At(base, place.offset));
            }
            (stored, which) => {
                match stored {
                    Stored::Same | Stored::Position | Stored::Truth => {
                        self.asm.store(from, Rm::At(FRAME, ROOM));
                    }
                    Stored::Half => self.asm.store_halves(from, Rm::At(FRAME, ROOM)),
                    Stored::BFloat => {
                        let room = self.rounded(from);
                        self.asm.store_half(room, Rm::At(FRAME, ROOM));
                    }
                }
                self.copy_out(place, which);
            }
        }
    }

    /// Copies numbers one by one to where they belong.
    fn copy_out(&mut self, place: &Address, which: Which) {
        let base = self.address(place.pointer);
        if base != SCRATCH {
            self.asm.get_address(SCRATCH, base);
        }
        let bytes = place.stored.bytes(self.vectors.double);
        let wide = if self.vectors.double { 8 } else { 4 };
        let (count, stride) = which.count();
        for lane in 0..count {
            let offset = place.offset + if stride.is_none() { (bytes * lane) as i32 } else { 0 };
            let to = Rm::At(SCRATCH, offset);
            let number = Rm::At(FRAME, ROOM + (wide * lane) as i32);
            match place.stored {
                Stored::Position => self.asm.int_of_number(OTHER_SCRATCH, number),
                Stored::Truth => {
                    self.asm.get_bytes(wide, OTHER_SCRATCH, number);
                    // Without the sign, for −0 is 0.
                    self.asm.shift_left_general(OTHER_SCRATCH, if self.vectors.double { 1 } else { 33 });
                    self.asm.is_not_zero(OTHER_SCRATCH);
                    self.asm.and_number(OTHER_SCRATCH, 1);
                }
                Stored::Same | Stored::Half | Stored::BFloat => {
                    let number = Rm::At(FRAME, ROOM + (bytes * lane) as i32);
                    self.asm.get_bytes(bytes, OTHER_SCRATCH, number);
                }
            }
            self.asm.put_bytes(bytes, OTHER_SCRATCH, to);
            if let Some(stride) = stride {
                self.asm.add_from(SCRATCH, Rm::At(FRAME, stride));
            }
        }
    }

    /// The bfloat16 nearest to each number, in the low half of a register: to even where two are as near, NaN as a quiet one.
    fn rounded(&mut self, from: Vector) -> Vector {
        let (odd, nan) = (self.free(), self.free());
        self.asm.shift_right(odd, from, 16);
        let one = self.asm.constant(|_| 1);
        self.asm.arith(Arith::And, odd, odd, one);
        let half = self.asm.constant(|_| 0x7fff);
        self.asm.add_int(odd, odd, half);
        self.asm.add_int(odd, odd, from.into());
        let quiet = self.asm.constant(|_| 0x0040_0000);
        self.asm.arith(Arith::Or, nan, from, quiet);
        if self.vectors.wide {
            self.asm.compare_bits(Test::Unordered, FIRST, from, from.into());
            self.asm.blend(odd, FIRST, nan.into(), odd);
        } else {
            let is_nan = self.free();
            self.asm.compare(Test::Unordered, is_nan, from, from.into());
            self.asm.select(odd, is_nan, nan.into(), odd);
        }
        self.asm.shift_right(odd, odd, 16);
        self.asm.narrow_ints(odd, odd);
        odd
    }

    pub(super) fn position(&mut self, to: Vector, counter: i32, more: i32, along: bool) {
        self.asm.broadcast_int(to, Rm::At(FRAME, counter));
        let (is_double, width) = (self.vectors.double, self.lanes());
        let more = more as u32;
        let lane = |lane: usize| more.wrapping_add(if along { lane as u32 } else { 0 });
        // Integers of four bytes, also where numbers have eight.
        let ints = match is_double {
            false => self.asm.constant(|at| lane(at).into()),
            true => self.asm.constant(|at| {
                let of = |at: usize| u64::from(if at < width { lane(at) } else { 0 });
                of(2 * at) | of(2 * at + 1) << 32
            }),
        };
        self.asm.add_int32(to, to, ints);
        self.asm.convert_ints(to, to);
    }
}
