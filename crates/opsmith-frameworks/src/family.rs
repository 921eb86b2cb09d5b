//! The ops of a library with those that come with them: arrays put together when the library is compiled.

use opsmith_core::OpDef;

/// What gives an op's statement.
type Def = fn() -> OpDef;

/// How many ops there are: those listed, and the companions of each.
pub const fn count(listed: &[Def], companions: &[&[Def]]) -> usize {
    let (mut count, mut op) = (listed.len(), 0);
    while op < companions.len() {
        assert!(companions[op].len() <= opsmith_core::MAX_COMPANIONS, "an op has too many companions");
        count += companions[op].len();
        op += 1;
    }
    count
}

/// The ops that are listed, then the companions of each: a listed op keeps its position whatever the others bring along.
pub const fn gather<const COUNT: usize>(listed: &[Def], companions: &[&[Def]]) -> [Def; COUNT] {
    let mut all: [Def; COUNT] = [none; COUNT];
    let mut at = 0;
    while at < listed.len() {
        all[at] = listed[at];
        at += 1;
    }
    let mut op = 0;
    while op < companions.len() {
        let mut companion = 0;
        while companion < companions[op].len() {
            all[at] = companions[op][companion];
            at += 1;
            companion += 1;
        }
        op += 1;
    }
    assert!(at == COUNT, "every op has its place");
    all
}

/// Fills places that [`gather`] then overwrites.
fn none() -> OpDef {
    OpDef::new("")
}

/// The first `COUNT` of the functions that were named for as many ops as there may be. What is left out is not in the
/// library.
pub const fn first<F: Copy, const ALL: usize, const COUNT: usize>(all: [F; ALL]) -> [F; COUNT] {
    assert!(ALL > 0 && COUNT <= ALL, "a function is named for each op");
    let mut functions = [all[0]; COUNT];
    let mut op = 0;
    while op < COUNT {
        functions[op] = all[op];
        op += 1;
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a() -> OpDef {
        OpDef::new("A")
    }
    fn a_grad() -> OpDef {
        OpDef::new("AGrad")
    }
    fn b() -> OpDef {
        OpDef::new("B")
    }

    #[test]
    fn listed_ops_come_first() {
        const LISTED: &[Def] = &[a, b];
        const COMPANIONS: &[&[Def]] = &[&[a_grad], &[]];
        const COUNT: usize = count(LISTED, COMPANIONS);
        let all: [Def; COUNT] = gather(LISTED, COMPANIONS);
        let names: Vec<String> =
            all.iter().map(|def| def().build().unwrap().signature().name.clone()).collect();
        assert_eq!(names, ["A", "B", "AGrad"]);
        assert_eq!(first::<_, 4, COUNT>([1, 2, 3, 4]), [1, 2, 3]);
        assert_eq!(first::<_, 1, 0>([1]), [0; 0]);
    }
}
