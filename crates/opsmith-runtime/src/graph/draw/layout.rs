//! Where boxes stand: in layers, from sources down, each scope laid out for itself and then one box of the scope around it.
//!
//! Within a scope this is Sugiyama, Tagawa and Toda's method (1981): layers by the longest path, an order in each by the
//! barycentres of neighbours, then places as near to the neighbours as the order lets them be.

use std::collections::BTreeMap;

use super::{Picture, Scope};

/// The space between boxes side by side, between layers, and around what is in a scope.
const GAP: f64 = 24.0;
const LAYER_GAP: f64 = 44.0;
const MARGIN: f64 = 16.0;
/// The height of a scope's heading, and of a line.
const HEADING: f64 = 18.0;
pub(super) const LINE: f64 = 15.0;
const CHARACTER: f64 = 7.2;
/// How often the orders of all layers are gone through.
const SWEEPS: usize = 6;

/// A rectangle: its left upper corner and its size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Where everything is.
pub(super) struct Layout {
    pub(super) boxes: Vec<Rect>,
    /// The frames of scopes, the outer before the inner, with their names.
    pub(super) frames: Vec<(Rect, String)>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Something that stands in a scope: a box, or a scope that is laid out.
enum Item<'a> {
    Box(usize),
    Scope(&'a Scope, Laid),
}

/// A scope that is laid out, its corner at 0.
struct Laid {
    boxes: Vec<(usize, Rect)>,
    frames: Vec<(Rect, String)>,
    width: f64,
    height: f64,
}

/// Lays out a picture.
pub(super) fn lay_out(picture: &Picture) -> Layout {
    let laid = lay_scope(picture, &picture.root);
    let mut boxes = vec![Rect::default(); picture.boxes.len()];
    for (index, rect) in laid.boxes {
        boxes[index] = rect;
    }
    Layout { boxes, frames: laid.frames, width: laid.width, height: laid.height }
}

fn lay_scope(picture: &Picture, scope: &Scope) -> Laid {
    let mut items: Vec<Item<'_>> = scope.boxes.iter().map(|&index| Item::Box(index)).collect();
    items.extend(scope.scopes.values().map(|inner| Item::Scope(inner, lay_scope(picture, inner))));
    // In the order of what comes first in them, which is an order in which they can run.
    items.sort_by_key(first_box);
    let sizes: Vec<(f64, f64)> = items.iter().map(|item| size(picture, item)).collect();
    let edges = edges(picture, &items);
    let layers = ordered(layers(items.len(), &edges), &edges);
    let places = place(&layers, &sizes, &edges);
    let mut laid = Laid { boxes: vec![], frames: vec![], width: 0.0, height: 0.0 };
    for (index, item) in items.iter().enumerate() {
        let ((width, height), (x, y)) = (sizes[index], places[index]);
        let (x, y) = (x + MARGIN, y + MARGIN);
        laid.width = laid.width.max(x + width + MARGIN);
        laid.height = laid.height.max(y + height + MARGIN);
        match item {
            Item::Box(index) => laid.boxes.push((*index, Rect { x, y, width, height })),
            Item::Scope(scope, inner) => {
                laid.frames.push((Rect { x, y, width, height }, scope.name.clone()));
                let moved = |rect: &Rect| Rect { x: rect.x + x, y: rect.y + y + HEADING, ..*rect };
                laid.boxes.extend(inner.boxes.iter().map(|(index, rect)| (*index, moved(rect))));
                laid.frames.extend(inner.frames.iter().map(|(rect, name)| (moved(rect), name.clone())));
            }
        }
    }
    laid
}

fn first_box(item: &Item<'_>) -> usize {
    fn first(scope: &Scope) -> usize {
        let inner = scope.scopes.values().map(first).min();
        scope.boxes.first().copied().into_iter().chain(inner).min().unwrap_or(usize::MAX)
    }
    match item {
        Item::Box(index) => *index,
        Item::Scope(scope, _) => first(scope),
    }
}

fn size(picture: &Picture, item: &Item<'_>) -> (f64, f64) {
    match item {
        Item::Box(index) => {
            let lines = &picture.boxes[*index].lines;
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            (longest as f64 * CHARACTER + 20.0, lines.len() as f64 * LINE + 10.0)
        }
        Item::Scope(scope, laid) => {
            let heading = scope.name.chars().count() as f64 * CHARACTER + 20.0;
            (laid.width.max(heading), laid.height + HEADING)
        }
    }
}

/// The arrows between items, each from an earlier one to a later one: an arrow back, as two scopes that take from each other
/// have, does not count for the layers.
fn edges(picture: &Picture, items: &[Item<'_>]) -> Vec<(usize, usize)> {
    let mut item_of = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Box(at) => drop(item_of.insert(*at, index)),
            Item::Scope(_, laid) => item_of.extend(laid.boxes.iter().map(|(at, _)| (*at, index))),
        }
    }
    let mut edges: Vec<(usize, usize)> = picture
        .arrows
        .keys()
        .filter_map(|(from, to)| Some((*item_of.get(from)?, *item_of.get(to)?)))
        .filter(|(from, to)| from < to)
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The items of each layer: every item is below all that it takes from.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut layer = vec![0; count];
    for &(from, to) in edges {
        layer[to] = layer[to].max(layer[from] + 1);
    }
    // What nothing leads to stands right above the first that takes it.
    for item in 0..count {
        let has_source = edges.iter().any(|&(_, to)| to == item);
        let below = edges.iter().filter(|(from, _)| *from == item).map(|&(_, to)| layer[to]).min();
        if let (false, Some(below)) = (has_source, below) {
            layer[item] = below - 1;
        }
    }
    let mut layers = vec![Vec::new(); layer.iter().max().map_or(0, |last| last + 1)];
    for (item, &layer) in layer.iter().enumerate() {
        layers[layer].push(item);
    }
    layers
}

/// Orders each layer by where the neighbours of its items stand in the other layers.
fn ordered(mut layers: Vec<Vec<usize>>, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let count = layers.iter().map(Vec::len).sum();
    let mut position = vec![0.0; count];
    let note = |layer: &[usize], position: &mut Vec<f64>| {
        for (at, &item) in layer.iter().enumerate() {
            position[item] = (at as f64 + 0.5) / layer.len() as f64;
        }
    };
    layers.iter().for_each(|layer| note(layer, &mut position));
    let (above, below) = neighbours(count, edges);
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let count = layers.len();
        for index in 0..count {
            let layer = &mut layers[if down { index } else { count - 1 - index }];
            let around = if down { &above } else { &below };
            let key = |item: usize| {
                mean(around[item].iter().map(|&other| position[other])).unwrap_or(position[item])
            };
            layer.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
            note(layer, &mut position);
        }
    }
    layers
}

type Neighbours = Vec<Vec<usize>>;

fn neighbours(count: usize, edges: &[(usize, usize)]) -> (Neighbours, Neighbours) {
    let (mut above, mut below) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(from, to) in edges {
        above[to].push(from);
        below[from].push(to);
    }
    (above, below)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The left upper corner of every item.
fn place(layers: &[Vec<usize>], sizes: &[(f64, f64)], edges: &[(usize, usize)]) -> Vec<(f64, f64)> {
    let mut places = vec![(0.0, 0.0); sizes.len()];
    let mut y = 0.0;
    for layer in layers {
        let mut x = 0.0;
        let height = layer.iter().map(|&item| sizes[item].1).fold(0.0, f64::max);
        for &item in layer {
            places[item] = (x, y + (height - sizes[item].1) / 2.0);
            x += sizes[item].0 + GAP;
        }
        y += height + LAYER_GAP;
    }
    let (above, below) = neighbours(sizes.len(), edges);
    for sweep in 0..SWEEPS {
        let around = if sweep % 2 == 0 { &above } else { &below };
        let order: Vec<&Vec<usize>> =
            if sweep % 2 == 0 { layers.iter().collect() } else { layers.iter().rev().collect() };
        for layer in order {
            settle(layer, sizes, around, &mut places);
        }
    }
    let left = places.iter().map(|place| place.0).fold(f64::INFINITY, f64::min);
    places.iter_mut().for_each(|place| place.0 -= left);
    places
}

/// Moves the items of a layer towards the middle of their neighbours, keeping order and distance: each to where it wants to
/// be or right of the one before, then the other way round, and the mean of both.
fn settle(layer: &[usize], sizes: &[(f64, f64)], around: &Neighbours, places: &mut [(f64, f64)]) {
    let middle = |places: &[(f64, f64)], item: usize| places[item].0 + sizes[item].0 / 2.0;
    let wanted: Vec<f64> = layer
        .iter()
        .map(|&item| {
            let middle = mean(around[item].iter().map(|&other| middle(places, other)));
            middle.map_or(places[item].0, |middle| middle - sizes[item].0 / 2.0)
        })
        .collect();
    let mut from_left = wanted.clone();
    for at in 1..layer.len() {
        from_left[at] = from_left[at].max(from_left[at - 1] + sizes[layer[at - 1]].0 + GAP);
    }
    let mut from_right = wanted;
    for at in (0..layer.len().saturating_sub(1)).rev() {
        from_right[at] = from_right[at].min(from_right[at + 1] - sizes[layer[at]].0 - GAP);
    }
    for (at, &item) in layer.iter().enumerate() {
        places[item].0 = f64::midpoint(from_left[at], from_right[at]);
    }
}
