//! Floats of 32 bits, which is what attributes have in some frameworks, and the float64 that they stand for.

use opsmith_core::AttrValue;
use opsmith_core::def::AttrDef;

/// The shortest decimal, which is what somebody has written: 0.1 and not 0.10000000149011612.
pub(crate) fn shortest(single: f32) -> f64 {
    if single.is_finite() {
        format!("{single:e}").parse().unwrap_or(f64::from(single))
    } else {
        single.into()
    }
}

/// The default as the definition has it, where the value is what 32 bits leave of it.
pub(crate) fn restored(def: &AttrDef, value: AttrValue) -> AttrValue {
    let same = |wide: f64, single: f64| (wide as f32).to_bits() == (single as f32).to_bits();
    match (&def.default, &value) {
        (Some(AttrValue::Float(wide)), AttrValue::Float(single)) if same(*wide, *single) => {
            AttrValue::Float(*wide)
        }
        (Some(AttrValue::Floats(wide)), AttrValue::Floats(single))
            if wide.len() == single.len() && wide.iter().zip(single).all(|(a, b)| same(*a, *b)) =>
        {
            AttrValue::Floats(wide.clone())
        }
        _ => value,
    }
}
