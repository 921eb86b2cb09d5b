//! Compiled tiles by the type of their numbers.

use opsmith_body::{GradientTile, Level, TILE, Tiles};

use crate::stored::Wide;

/// A number that there are compiled tiles for.
pub(crate) trait TileNumber: Wide {
    /// [`Tiles::fold_f32`] or [`Tiles::fold_f64`].
    fn fold(
        tiles: &dyn Tiles,
        level: Level,
        x: &[Self],
        stride: usize,
        y: &[[Self; TILE]],
        folds: &mut [[Self; TILE]],
    );
    /// [`Tiles::gradient_f32`] or [`Tiles::gradient_f64`].
    fn gradient(tiles: &dyn Tiles, level: Level, tile: GradientTile<'_, Self>);
}

macro_rules! tile_number {
    ($($number:ty, $fold:ident, $gradient:ident;)*) => {$(
        impl TileNumber for $number {
            fn fold(
                tiles: &dyn Tiles,
                level: Level,
                x: &[Self],
                stride: usize,
                y: &[[Self; TILE]],
                folds: &mut [[Self; TILE]],
            ) {
                tiles.$fold(level, x, stride, y, folds);
            }

            fn gradient(tiles: &dyn Tiles, level: Level, tile: GradientTile<'_, Self>) {
                tiles.$gradient(level, tile);
            }
        }
    )*};
}

tile_number! {
    f32, fold_f32, gradient_f32;
    f64, fold_f64, gradient_f64;
}
