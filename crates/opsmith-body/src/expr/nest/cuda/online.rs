//! Sums of exponentials in the loop of the largest number, as CUDA C++.

use super::Writer;
use crate::axes::Axes;
use crate::expr::nest::{Online, Step};

/// Whether there are sums of exponentials that are computed in the loop of the largest number.
pub(super) fn has_online(steps: &[Step]) -> bool {
    let has = |step: &Step| match step {
        Step::Online(_) => true,
        Step::Loop { steps, .. } => has_online(steps),
        _ => false,
    };
    steps.iter().any(has)
}

impl Writer<'_> {
    pub(super) fn online(&mut self, online: &Online, indent: &str) {
        match online {
            Online::Follow { number, shift, sums } => {
                let (x, own) = (self.register(*number), self.register(*shift));
                let along =
                    |register: usize| self.tile.map_or(Axes::NONE, |tile| tile.sides.varies[register]);
                let scaled = sums.iter().map(|sum| {
                    let rest = self.every(along(sum.part).minus(along(*shift)));
                    let scaled = [sum.part, sum.total, sum.lost].map(|register| self.register(register));
                    format!(" {rest}{{ {} *= by; }}", scaled.join(" *= by, "))
                });
                let line = format!(
                    "if (!({x} <= {own} + Number({}))) {{ const Number by = follow({x}, {own});{} }}",
                    Online::FOLLOWS,
                    scaled.collect::<String>()
                );
                self.into(*shift, indent, &line);
            }
            Online::Settle { shift, to, sums } => {
                for &sum in sums {
                    let [own, from, to] = [sum, *shift, *to].map(|register| self.register(register));
                    self.into(sum, indent, &format!("{own} *= settled({from}, {to});"));
                }
            }
            Online::Unless { finite, steps } => {
                self.line(indent, "{ bool is_finite = true;");
                for &register in finite {
                    let own = self.register(register);
                    self.into(register, indent, &format!("is_finite = is_finite && {own} - {own} == 0;"));
                }
                // Threads that share memory go on together.
                let all = if self.tile.is_some() {
                    "all(is_finite)"
                } else {
                    "(ROWS ? all(is_finite) : is_finite)"
                };
                self.line(indent, &format!("if (!{all}) {{"));
                self.steps(steps, &format!("{indent}    "));
                self.line(indent, "} }");
            }
        }
    }
}
