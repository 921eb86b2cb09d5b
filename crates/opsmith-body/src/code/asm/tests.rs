//! Instructions, read back by a disassembler.

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

use super::*;

/// What a disassembler says of some code, up to the constants.
fn text(asm: Asm) -> Vec<String> {
    let code = asm.finish();
    let mut decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() || instruction.mnemonic() == iced_x86::Mnemonic::Int3 {
            break;
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        lines.push(line);
    }
    lines
}

fn assert_text(vectors: Vectors, write: impl Fn(&mut Asm), expected: &[&str]) {
    let mut asm = Asm::new(vectors);
    write(&mut asm);
    assert_eq!(text(asm), expected);
}

const SHORT: Vectors = Vectors { double: false, wide: false };
const WIDE: Vectors = Vectors { double: false, wide: true };
const LOW: Vector = Vector(3);
const HIGH: Vector = Vector(12);

#[test]
fn arithmetic_is_on_the_registers_that_were_meant() {
    for (a, b, c) in
        [(LOW, LOW, LOW), (HIGH, LOW, LOW), (LOW, HIGH, LOW), (LOW, LOW, HIGH), (HIGH, HIGH, HIGH)]
    {
        let [x, y, z] = [a, b, c].map(|register| format!("ymm{}", register.0));
        let all = |asm: &mut Asm| {
            asm.arith(Arith::Add, a, b, c.into());
            asm.arith(Arith::AndNot, a, b, c.into());
            asm.compare(Test::Lt, a, b, c.into());
            asm.select(a, b, c.into(), a);
            asm.first_of(3, a, b, c);
            asm.multiply_add(Signs::Same, a, b, c.into());
            asm.multiply_add(Signs::LessTerm, a, b, c.into());
            asm.multiply_add(Signs::LessProduct, a, b, c.into());
            asm.add_product(Signs::Same, a, b, c.into());
            asm.add_product(Signs::LessTerm, a, b, c.into());
            asm.add_product(Signs::LessProduct, a, b, c.into());
            asm.add_int(a, b, c.into());
            asm.shift_left(a, b, 23);
            asm.shift_right(a, b, 9);
            asm.sqrt(a, b.into());
            asm.floor(a, b.into());
            asm.quarters(a, b, b, 1);
            asm.permute(a, b, 5);
            asm.copy(a, b);
        };
        let copied = if a == b { Vec::new() } else { vec![format!("vmovaps {x}, {y}")] };
        let expected = [
            format!("vaddps {x}, {y}, {z}"),
            format!("vandnps {x}, {y}, {z}"),
            format!("vcmplt_oqps {x}, {y}, {z}"),
            format!("vblendvps {x}, {x}, {z}, {y}"),
            format!("vblendps {x}, {z}, {y}, 7"),
            format!("vfmadd213ps {x}, {y}, {z}"),
            format!("vfmsub213ps {x}, {y}, {z}"),
            format!("vfnmadd213ps {x}, {y}, {z}"),
            format!("vfmadd231ps {x}, {y}, {z}"),
            format!("vfmsub231ps {x}, {y}, {z}"),
            format!("vfnmadd231ps {x}, {y}, {z}"),
            format!("vpaddd {x}, {y}, {z}"),
            format!("vpslld {x}, {y}, 17h"),
            format!("vpsrld {x}, {y}, 9"),
            format!("vsqrtps {x}, {y}"),
            format!("vroundps {x}, {y}, 9"),
            format!("vperm2f128 {x}, {y}, {y}, 1"),
            format!("vpermilps {x}, {y}, 5"),
        ];
        let expected: Vec<String> = expected.into_iter().chain(copied).collect();
        assert_text(SHORT, all, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        let of_doubles = |line: &String| {
            let line = line.replace("ps ", "pd ").replace("vpaddd", "vpaddq");
            line.replace("vpslld", "vpsllq").replace("vpsrld", "vpsrlq")
        };
        let expected: Vec<String> = expected.iter().map(of_doubles).collect();
        assert_text(
            Vectors { double: true, ..SHORT },
            all,
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn memory_is_where_it_was_meant() {
    for number in 0..16 {
        let base = Gpr(number);
        let name = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
            "r14", "r15",
        ][usize::from(number)];
        for (distance, sum) in
            [(0, String::new()), (8, "+8".into()), (-8, "-8".into()), (0x1234, "+1234h".into())]
        {
            let at = Rm::At(base, distance);
            let all = |asm: &mut Asm| {
                asm.load(HIGH, at);
                asm.store(LOW, at);
                asm.load_first(LOW, First::Vector(HIGH), at);
                asm.store_first(HIGH, First::Vector(LOW), at);
                asm.broadcast(LOW, at);
                asm.arith(Arith::Mul, HIGH, LOW, at);
                asm.load_halves(LOW, at);
                asm.store_halves(LOW, at);
                asm.widen_ints(HIGH, at);
                asm.get(Gpr::R9, at);
                asm.put(Gpr::RCX, at);
                asm.put_bytes(1, Gpr::RBP, at);
                asm.put_bytes(2, Gpr::RBP, at);
                asm.get_bytes(1, Gpr::RBP, at);
                asm.add_to(at, -1);
                asm.number_of_int(LOW, at);
                asm.int_of_number(Gpr::RBP, at);
                asm.store_one(HIGH, at);
            };
            let of = |size: &str| format!("{size} ptr [{name}{sum}]");
            let expected = [
                format!("vmovups ymm12, [{name}{sum}]"),
                format!("vmovups [{name}{sum}], ymm3"),
                format!("vmaskmovps ymm3, ymm12, [{name}{sum}]"),
                format!("vmaskmovps [{name}{sum}], ymm3, ymm12"),
                format!("vbroadcastss ymm3, {}", of("dword")),
                format!("vmulps ymm12, ymm3, [{name}{sum}]"),
                format!("vcvtph2ps ymm3, [{name}{sum}]"),
                format!("vcvtps2ph [{name}{sum}], ymm3, 0"),
                format!("vpmovzxwd ymm12, [{name}{sum}]"),
                format!("mov r9, [{name}{sum}]"),
                format!("mov [{name}{sum}], rcx"),
                format!("mov [{name}{sum}], bpl"),
                format!("mov [{name}{sum}], bp"),
                format!("movzx ebp, {}", of("byte")),
                format!("add {}, 0FFFFFFFFFFFFFFFFh", of("qword")),
                format!("vcvtsi2ss xmm3, xmm3, {}", of("qword")),
                format!("vcvttss2si rbp, {}", of("dword")),
                format!("vmovss {}, xmm12", of("dword")),
            ];
            let mut asm = Asm::new(SHORT);
            all(&mut asm);
            let bare = |line: &String| {
                line.replace("0FFFFFFFFFFFFFFFFh", "-1").replace("dword ptr ", "").replace("qword ptr ", "")
            };
            let found: Vec<String> = text(asm).iter().map(bare).collect();
            assert_eq!(found, expected.iter().map(bare).collect::<Vec<_>>());
        }
    }
}

#[test]
fn numbers_that_lie_apart_are_gathered() {
    for number in (0..16).filter(|number| *number != 4) {
        let mut asm = Asm::new(SHORT);
        asm.gather(HIGH, Gpr(number), Vector(9), First::Vector(LOW));
        let found = text(asm).remove(0);
        assert!(
            found.starts_with("vgatherdps ymm12, [r")
                && found.contains("+ymm9]")
                && found.ends_with(", ymm3"),
            "{found}"
        );
        let mut asm = Asm::new(Vectors { double: true, ..SHORT });
        asm.gather(LOW, Gpr(number), Vector(2), First::Vector(HIGH));
        let found = text(asm).remove(0);
        assert!(
            found.starts_with("vgatherdpd ymm3, [r")
                && found.contains("+xmm2]")
                && found.ends_with(", ymm12"),
            "{found}"
        );
    }
}

#[test]
fn constants_and_labels_are_found() {
    let mut asm = Asm::new(SHORT);
    let again = asm.label();
    asm.here(again);
    let one = asm.constant(|_| u64::from(1.0_f32.to_bits()));
    let two = asm.constant(|_| u64::from(2.0_f32.to_bits()));
    asm.arith(Arith::Add, LOW, LOW, one);
    asm.compare(Test::Le, LOW, HIGH, two);
    assert_eq!(asm.constant(|_| u64::from(1.0_f32.to_bits())), one);
    asm.count_down(Rm::General(Gpr::R14), again);
    asm.give_back();
    let found = text(asm);
    assert_eq!(found[0], "vaddps ymm3, ymm3, [20h]");
    assert_eq!(found[1], "vcmple_oqps ymm3, ymm12, [40h]");
    assert_eq!(found[3..], ["jne 0", "ret"]);
}

/// What is written of float32 in vectors of 64 bytes, with what is said of float64 in the place of some words.
fn assert_wide(write: impl Fn(&mut Asm), expected: &[String], of_doubles: &[(&str, &str)]) {
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_text(WIDE, &write, &lines);
    let double = |line: &String| {
        of_doubles.iter().fold(line.replace("ps ", "pd "), |line, (from, to)| line.replace(from, to))
    };
    let expected: Vec<String> = expected.iter().map(double).collect();
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_text(Vectors { double: true, ..WIDE }, &write, &lines);
}

const FAR: Vector = Vector(19);
const LAST: Vector = Vector(28);

#[test]
fn arithmetic_of_long_vectors_is_on_the_registers_that_were_meant() {
    let all = [(LOW, HIGH, FAR), (HIGH, FAR, LAST), (FAR, LAST, LOW), (LAST, LOW, HIGH), (FAR, FAR, FAR)];
    for (a, b, c) in all {
        let [x, y, z] = [a, b, c].map(|register| format!("zmm{}", register.0));
        let write = |asm: &mut Asm| {
            asm.arith(Arith::Add, a, b, c.into());
            asm.arith(Arith::AndNot, a, b, c.into());
            asm.multiply_add(Signs::Same, a, b, c.into());
            asm.multiply_add(Signs::LessTerm, a, b, c.into());
            asm.multiply_add(Signs::LessProduct, a, b, c.into());
            asm.add_product(Signs::Same, a, b, c.into());
            asm.add_product(Signs::LessTerm, a, b, c.into());
            asm.add_product(Signs::LessProduct, a, b, c.into());
            asm.add_int(a, b, c.into());
            asm.shift_left(a, b, 23);
            asm.shift_right(a, b, 9);
            asm.sqrt(a, b.into());
            asm.floor(a, b.into());
            asm.permute(a, b, 5);
            asm.load(a, b.into());
            asm.quarters(a, b, c, 0x4e);
            asm.compare_bits(Test::Lt, Mask(3), b, c.into());
            asm.blend(a, Mask(5), c.into(), b);
            asm.scale(a, b, c.into());
            asm.spread_bits(a, Mask(6));
            asm.take_bits(Mask(2), b);
            asm.broadcast(a, b.into());
        };
        let expected = [
            format!("vaddps {x}, {y}, {z}"),
            format!("vandnps {x}, {y}, {z}"),
            format!("vfmadd213ps {x}, {y}, {z}"),
            format!("vfmsub213ps {x}, {y}, {z}"),
            format!("vfnmadd213ps {x}, {y}, {z}"),
            format!("vfmadd231ps {x}, {y}, {z}"),
            format!("vfmsub231ps {x}, {y}, {z}"),
            format!("vfnmadd231ps {x}, {y}, {z}"),
            format!("vpaddd {x}, {y}, {z}"),
            format!("vpslld {x}, {y}, 17h"),
            format!("vpsrld {x}, {y}, 9"),
            format!("vsqrtps {x}, {y}"),
            format!("vrndscaleps {x}, {y}, 9"),
            format!("vpermilps {x}, {y}, 5"),
            format!("vmovups {x}, {y}"),
            format!("vshuff32x4 {x}, {y}, {z}, 4Eh"),
            format!("vcmplt_oqps k3, {y}, {z}"),
            format!("vblendmps {x}{{k5}}, {y}, {z}"),
            format!("vscalefps {x}, {y}, {z}"),
            format!("vpmovm2d {x}, k6"),
            format!("vpmovd2m k2, {y}"),
            format!("vbroadcastss {x}, xmm{}", b.0),
        ];
        let of_doubles = [
            ("vpaddd", "vpaddq"),
            ("vpslld", "vpsllq"),
            ("vpsrld", "vpsrlq"),
            ("vshuff32x4", "vshuff64x2"),
            ("vpmovm2d", "vpmovm2q"),
            ("vpmovd2m", "vpmovq2m"),
            ("vbroadcastss", "vbroadcastsd"),
        ];
        assert_wide(write, &expected, &of_doubles);
    }
}

#[test]
fn memory_of_long_vectors_is_where_it_was_meant() {
    for number in 0..16 {
        let base = Gpr(number);
        for (distance, sum) in [(0, ""), (128, "+80h"), (-64, "-40h"), (8, "+8"), (0x1234, "+1234h")] {
            let at = Rm::At(base, distance);
            let mut asm = Asm::new(WIDE);
            asm.load(FAR, at);
            asm.store(HIGH, at);
            asm.load_first(FAR, First::Mask(Mask(7)), at);
            asm.store_first(LAST, First::Mask(Mask(7)), at);
            asm.broadcast(FAR, at);
            asm.arith(Arith::Mul, HIGH, LAST, at);
            asm.load_halves(FAR, at);
            asm.store_halves(FAR, at);
            asm.widen_ints(LAST, at);
            asm.store_half(LAST, at);
            asm.number_of_int(FAR, at);
            asm.int_of_number(Gpr::R9, at);
            asm.store_one(FAR, at);
            asm.broadcast_int(FAR, at);
            let found = text(asm);
            let expected = [
                "vmovups zmm19, [",
                "vmovups [, zmm12",
                "vmovups zmm19{k7}{z}, [",
                "vmovups [{k7}, zmm28",
                "vbroadcastss zmm19, [",
                "vmulps zmm12, zmm28, [",
                "vcvtph2ps zmm19, [",
                "vcvtps2ph [, zmm19, 0",
                "vpmovzxwd zmm28, [",
                "vmovups [, ymm28",
                "vcvtsi2ss xmm19, xmm19, [",
                "vcvttss2si r9, [",
                "vmovss [, xmm19",
                "vpbroadcastd zmm19, [",
            ];
            assert_eq!(found.len(), expected.len());
            for (line, expected) in found.iter().zip(expected) {
                let line = line.replace("dword ptr ", "").replace("qword ptr ", "");
                let (before, rest) = line.split_once('[').expect("memory");
                let (address, after) = rest.split_once(']').expect("memory");
                assert_eq!(format!("{before}[{after}"), expected);
                assert!(address.starts_with('r') && address.ends_with(sum), "{line}");
                assert_eq!(address.contains(['+', '-']), distance != 0, "{line}");
            }
        }
    }
}

#[test]
fn the_first_numbers_of_long_vectors_are_told_by_bits() {
    for number in (0..16).filter(|number| *number != 4) {
        for distances in [LOW, HIGH, FAR, Vector(30)] {
            let mut asm = Asm::new(WIDE);
            asm.set_first_bits(Mask(7), 5, Gpr(number));
            asm.gather(LAST, Gpr(number), distances, First::Mask(Mask(7)));
            asm.narrow_ints(FAR, LAST);
            let found = text(asm);
            assert!(found[0].starts_with("mov r") && found[0].ends_with(", 1Fh"), "{found:?}");
            assert!(found[1].starts_with("kmovw k7, "), "{found:?}");
            let end = format!("+zmm{}]", distances.0);
            assert!(
                found[2].starts_with("vgatherdps zmm28, k7, [r") && found[2].ends_with(&end),
                "{found:?}"
            );
            assert_eq!(found[3], "vpmovdw ymm19, zmm28");
        }
    }
}

#[test]
fn what_is_called_is_gone_to_and_come_back_from() {
    for (vectors, test) in [(SHORT, "vptest ymm3, ymm3"), (WIDE, "kortestw k3, k3")] {
        let mut asm = Asm::new(vectors);
        let past = asm.label();
        match vectors.wide {
            true => asm.test_bits(Mask(3)),
            false => asm.test_vector(LOW),
        }
        asm.jump(When::Equal, past);
        asm.call_out();
        asm.here(past);
        asm.give_back();
        let out = asm.out().expect("something goes there");
        asm.here(out);
        asm.put_bits(Mask(5), Rm::At(Gpr::RBX, 16));
        asm.call(Gpr::RAX);
        asm.combine_bits(Bitwise::AndNot, Mask(3), Mask(6), Mask(2));
        asm.get_bits(Mask(5), Rm::At(Gpr::RBX, 16));
        let start = if vectors.wide { 4 } else { 5 };
        let expected = [
            test.to_string(),
            format!("je {:016X}h", start + 11),
            format!("call {:016X}h", start + 12),
            "ret".into(),
            "kmovw [rbx+10h], k5".into(),
            "call rax".into(),
            "kandnw k3, k6, k2".into(),
            "kmovw k5, [rbx+10h]".into(),
        ];
        let found: Vec<String> = text(asm).into_iter().map(|line| line.replace("word ptr ", "")).collect();
        assert_eq!(found, expected);
    }
}
