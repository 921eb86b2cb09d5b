//! Loops along an axis, as CUDA C++.

use std::collections::BTreeMap;

use super::{LETTERS, LINES, Place, Writer};
use crate::axes::Axis;
use crate::expr::nest::tile::{Chunk, Sides};
use crate::expr::nest::uses::folded;
use crate::expr::nest::{Online, Step, Sum};
use crate::expr::node::Fold;

/// How many positions of a loop a thread reads before it goes on with the first of them.
const AHEAD: usize = 4;
/// The most numbers that it reads at a position then, and the most operations: the code is there as many times and once more.
const MOST_AHEAD: usize = 4;
const MOST_OPERATIONS: usize = 48;

impl Writer<'_> {
    pub(super) fn go_along(&mut self, axis: Axis, steps: &[Step], sums: &[Sum], indent: &str) {
        let is_outermost = std::mem::replace(&mut self.is_outermost, false);
        let shared = is_outermost.then(|| self.begin_shared(steps, indent));
        for sum in sums {
            let [total, lost] = [sum.total, sum.lost].map(|register| self.register(register));
            self.into(sum.part, indent, &format!("{total} = {lost} = Number(0);"));
        }
        let side_by_side = self.side_by_side;
        self.side_by_side = side_by_side.without(axis);
        let sharing = self.sharing.clone();
        match sharing.as_ref().and_then(|(sides, taken)| Some((sides, *taken, sides.chunk(steps)?))) {
            Some((sides, taken, chunk)) => self.go_in_chunks(axis, (sides, taken), &chunk, sums, indent),
            None => self.go(axis.index(), steps, sums, is_outermost, indent),
        }
        self.sharing = sharing;
        self.side_by_side = side_by_side;
        self.is_outermost = is_outermost;
        for sum in sums {
            let [total, lost] = [sum.total, sum.lost].map(|register| self.register(register));
            let line = format!("{} = summed({total}, {lost});", self.register(sum.part));
            self.into(sum.part, indent, &line);
        }
        if let Some((number, folds)) = shared {
            self.end_shared(number, &folds, steps, indent);
        }
    }

    /// Before a loop that threads may share: where several blocks share it, and it is done, what each of them has found is read.
    fn begin_shared(&mut self, steps: &[Step], indent: &str) -> (usize, Vec<(usize, Fold, usize)>) {
        let number = self.loops;
        self.loops += 1;
        let folds: Vec<_> =
            folded(steps).into_iter().zip(self.partial..).map(|((r, op), at)| (r, op, at)).collect();
        self.partial += folds.len();
        self.line(indent, &format!("if (ROWS && split.at > {number}) {{"));
        self.line(indent, "    for (int part = threadIdx.y; part < split.parts; part += blockDim.y) {");
        for (register, op, at) in &folds {
            let line = format!(
                "        r{register} = {op:?}::of(r{register}, *split.of({at}, part, unit, layout.units));"
            );
            self.line(indent, &line);
        }
        self.line(indent, "    }");
        self.line(indent, "} else {");
        (number, folds)
    }

    /// After it: what the threads of a block have found is put together, and kept where others have found more.
    fn end_shared(&mut self, number: usize, folds: &[(usize, Fold, usize)], steps: &[Step], indent: &str) {
        self.line(indent, "}");
        let follows = steps.iter().filter_map(|step| match step {
            Step::Online(Online::Follow { shift, sums, .. }) => Some((*shift, sums)),
            _ => None,
        });
        let follows: BTreeMap<usize, &Vec<Sum>> = follows.collect();
        for (shift, sums) in &follows {
            let scaled: String = sums.iter().map(|sum| format!(" r{} *= by;", sum.part)).collect();
            self.line(
                indent,
                &format!(
                    "if (ROWS) {{ const Number by = follow(across<Max>(r{shift}), r{shift});{scaled} }}"
                ),
            );
        }
        for (register, op, _) in folds.iter().filter(|(register, ..)| !follows.contains_key(register)) {
            self.line(indent, &format!("if (ROWS) r{register} = across<{op:?}>(r{register});"));
        }
        self.line(indent, &format!("if (ROWS && split.at == {number}) {{"));
        for (register, _, at) in folds {
            let line = format!(
                "    if (is_there && threadIdx.y == 0) *split.of({at}, blockIdx.y, unit, layout.units) = r{register};"
            );
            self.line(indent, &line);
        }
        self.line(indent, "    continue;");
        self.line(indent, "}");
    }

    fn go(&mut self, axis: usize, steps: &[Step], sums: &[Sum], is_outermost: bool, indent: &str) {
        let (from, by) = if is_outermost { ("thread", "threads") } else { ("0", "1") };
        let around = self.sums.len();
        self.sums.extend_from_slice(sums);
        let inner = format!("{indent}    ");
        self.line(indent, &format!("{{ Index at{axis} = {from};"));
        if self.tile.is_none() && reads_ahead(steps) {
            let (read, rest): (Vec<&Step>, Vec<&Step>) =
                steps.iter().partition(|step| matches!(step, Step::Load { .. }));
            let (size, most) = (format!("layout.size[{axis}]"), AHEAD - 1);
            let (is_far, next) =
                (format!("{size} - at{axis} > {most} * {by}"), format!("at{axis} += {AHEAD} * {by}"));
            self.line(indent, &format!("for (; at{axis} < {size} && {is_far}; {next}) {{"));
            self.line(
                &inner,
                &format!("Number ahead[{}][{AHEAD}]; const Index from{axis} = at{axis};", read.len()),
            );
            let each = format!("_Pragma(\"unroll\") for (int n = 0; n < {AHEAD}; n++) {{");
            let own = format!("    const Index at{axis} = from{axis} + n * {by};");
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (place, step) in read.iter().enumerate() {
                if let Step::Load { to, .. } = step {
                    before.push((*step, format!("ahead[{place}][n] = r{to};")));
                    after.push(format!("r{to} = ahead[{place}][n];"));
                }
            }
            self.line(&inner, &each);
            self.line(&inner, &own);
            let deeper = format!("{inner}    ");
            for (step, kept) in before {
                self.step(step, &deeper);
                self.line(&deeper, &kept);
            }
            self.line(&inner, "}");
            self.line(&inner, &each);
            self.line(&inner, &own);
            after.iter().for_each(|line| self.line(&deeper, line));
            rest.iter().for_each(|step| self.step(step, &deeper));
            self.line(&inner, "}");
            self.line(indent, "}");
        }
        // The next one may be beyond what the index holds.
        self.line(indent, &format!("for (; at{axis} < layout.size[{axis}]; at{axis} += {by}) {{"));
        self.steps(steps, &inner);
        if is_outermost {
            self.line(&inner, &format!("if (layout.size[{axis}] - at{axis} <= {by}) break;"));
        }
        self.line(indent, "} }");
        self.sums.truncate(around);
    }

    /// A loop of which the threads of a block put some positions into shared memory at a time.
    fn go_in_chunks(
        &mut self,
        along: Axis,
        (sides, taken): (&Sides, usize),
        chunk: &Chunk,
        sums: &[Sum],
        indent: &str,
    ) {
        let is_inner = taken > 0;
        let axis = along.index();
        let inner = format!("{indent}    ");
        let turn = format!("{inner}    ");
        self.line(indent, &format!("for (Index begin = 0; begin < layout.size[{axis}]; begin += SIDE) {{"));
        self.line(&inner, &format!("const Index left = layout.size[{axis}] - begin;"));
        let shared = chunk.shared.iter().enumerate().map(|(array, &register)| {
            let which = usize::from(sides.varies[register].has(sides.axes[1]));
            // A thread has one position along the loop around what fills shared memory.
            let is_several = self.tile.is_some_and(|tile| !tile.sides.varies[register].is_empty());
            let several = if is_several { format!(" * EDGE + {}", LETTERS[which]) } else { String::new() };
            (register, which, taken + array, format!("{}{several}", LINES[which]))
        });
        let shared: Vec<(usize, usize, usize, String)> = shared.collect();
        for (which, fill) in chunk.fills.iter().enumerate().filter(|(_, fill)| !fill.is_empty()) {
            let other = LINES[1 - which];
            self.line(&inner, &format!("{{ const Index at{axis} = begin + least((Index){other}, left - 1);"));
            let axes = |place: Place| self.arguments.of(place).1;
            self.sharing =
                (!is_inner).then(|| (sides.of_fill(which, along, fill, &axes), chunk.shared.len()));
            self.steps(fill, &turn);
            for (register, _, array, at) in shared.iter().filter(|(_, own, ..)| *own == which) {
                let line = format!("tiles[{array}][{other}][{at}] = {};", self.register(*register));
                self.into(*register, &turn, &line);
            }
            self.line(&inner, "}");
        }
        self.sharing = None;
        self.line(&inner, "__syncthreads();");
        self.line(&inner, "for (int turn = 0; turn < SIDE && (Index)turn < left; turn++) {");
        self.line(&turn, &format!("const Index at{axis} = begin + turn;"));
        for (register, _, array, at) in &shared {
            let line = format!("{} = tiles[{array}][turn][{at}];", self.register(*register));
            self.into(*register, &turn, &line);
        }
        self.steps(&chunk.steps, &turn);
        self.line(&inner, "}");
        // A part is of as many terms as a side has.
        for sum in sums {
            let part = self.register(sum.part);
            let line = format!("{{ {} {part} = 0; }}", self.add(*sum, &part));
            self.into(sum.part, &inner, &line);
        }
        self.line(&inner, "__syncthreads();");
        self.line(&inner, "if (left <= SIDE) break;");
        self.line(indent, "}");
    }
}

/// Whether a loop is short, and what it reads at a position does not follow from what it has done before.
fn reads_ahead(steps: &[Step]) -> bool {
    let mut loads = 0;
    let mut operations = 0;
    for step in steps {
        match step {
            Step::Load { .. } => loads += 1,
            Step::Compute { graph, .. } => operations += graph.nodes().len(),
            Step::Loop { .. } | Step::Online(Online::Unless { .. }) => return false,
            _ => {}
        }
    }
    let writes = |step: &Step| match step {
        Step::Store { to, .. } => Some(*to),
        _ => None,
    };
    let written: Vec<Place> = steps.iter().filter_map(writes).collect();
    let is_own = |step: &Step| matches!(step, Step::Load { from, .. } if written.contains(from));
    (1..=MOST_AHEAD).contains(&loads) && operations <= MOST_OPERATIONS && !steps.iter().any(is_own)
}
