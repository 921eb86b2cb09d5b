use super::*;
use crate::Code;

fn layout<'a>(shape: &'a [usize], strides: &'a [isize]) -> Layout<'a> {
    Layout { shape, strides }
}

/// The place of each of `count` indices from `begin` on, as runs have them.
fn places(space: &IndexSpace, operand: usize, begin: usize, count: usize) -> Vec<isize> {
    let (mut places, [step]) = (vec![], space.steps([operand]));
    space.runs([operand], begin..begin + count, |first, [place], length| {
        assert_eq!(first, begin + places.len());
        places.extend((0..length as isize).map(|i| place + i * step));
    });
    let each: Vec<isize> = (begin..begin + count).map(|index| space.place(operand, index)).collect();
    assert_eq!(places, each);
    places
}

#[test]
fn shapes_broadcast_as_numpy_does() {
    let shape = |shapes: &[&[usize]]| broadcast_shape(shapes.iter().copied()).map(|shape| shape.to_vec());
    assert_eq!(shape(&[]), Some(vec![]));
    assert_eq!(shape(&[&[], &[]]), Some(vec![]));
    assert_eq!(shape(&[&[3], &[2, 1], &[]]), Some(vec![2, 3]));
    assert_eq!(shape(&[&[], &[2, 1], &[5, 1, 3]]), Some(vec![5, 2, 3]));
    assert_eq!(shape(&[&[8, 1, 6, 1], &[7, 1, 5]]), Some(vec![8, 7, 6, 5]));
    assert_eq!(shape(&[&[1], &[1, 1]]), Some(vec![1, 1]));
    assert_eq!(shape(&[&[0, 1], &[1, 4]]), Some(vec![0, 4]));
    assert_eq!(shape(&[&[1], &[0]]), Some(vec![0]));
    for wrong in [[&[2][..], &[3]], [&[0], &[3]], [&[2, 1], &[8, 4, 3]], [&[2, 3], &[2]]] {
        assert_eq!(shape(&wrong), None, "{wrong:?}");
    }
}

#[test]
fn strides_are_zero_where_a_tensor_is_repeated() {
    let strides = |own: Layout<'_>, shape: &[usize]| own.broadcast(shape).map(|strides| strides.to_vec());
    assert_eq!(strides(layout(&[3, 1], &[5, 9]), &[2, 3, 4]), Some(vec![0, 5, 0]));
    assert_eq!(strides(layout(&[1, 3], &[7, -1]), &[1, 3]), Some(vec![0, -1]));
    assert_eq!(strides(layout(&[], &[]), &[2, 2]), Some(vec![0, 0]));
    assert_eq!(strides(layout(&[0], &[1]), &[2, 0]), Some(vec![0, 1]));
    for (own, shape) in [(&[3][..], &[2][..]), (&[2], &[1]), (&[1, 2], &[2]), (&[3], &[0])] {
        assert_eq!(strides(layout(own, &row_major_strides(own)), shape), None, "{own:?} {shape:?}");
    }
}

#[test]
fn an_index_has_a_position_along_each_dim() {
    assert_eq!(coordinates(&[2, 3, 4], 17).as_slice(), [1, 1, 1]);
    assert_eq!(coordinates(&[2, 1, 4], 6).as_slice(), [1, 0, 2]);
    assert!(coordinates(&[], 0).is_empty());
    assert_eq!(coordinates(&[2, 0], 0).as_slice(), [0, 0]);
}

#[test]
fn dims_are_one_where_no_operand_tells_them_apart() {
    let dense = layout(&[4, 3, 2], &[6, 2, 1]);
    let space = IndexSpace::new(&[4, 3, 2], &[dense, layout(&[3, 2], &[2, 1])]).unwrap();
    assert_eq!((space.dims(), space.len()), (&[6, 4][..], 24));
    assert_eq!((space.order(0), space.order(1)), (Order::Dense, Order::Strided));
    assert_eq!((space.strides(1), space.steps([1, 0]), space.span(0)), (&[1, 0][..], [1, 1], 23));
    assert_eq!(places(&space, 1, 5, 3), [5, 0, 1]);
    let space = IndexSpace::new(&[4, 3, 2], &[dense, layout(&[1, 1], &[7, 7])]).unwrap();
    assert_eq!((space.dims(), space.order(1)), (&[24][..], Order::Same));
    let space = IndexSpace::new(&[4, 1, 2], &[layout(&[4, 1, 2], &[4, 99, 2])]).unwrap();
    assert_eq!((space.dims(), space.strides(0), space.order(0)), (&[8][..], &[2][..], Order::Strided));
    assert_eq!(IndexSpace::new(&[4, 3, 2], &[]).unwrap().dims(), [24]);
}

#[test]
fn a_space_of_one_index_has_no_dims() {
    for shape in [&[][..], &[1, 1]] {
        let space = IndexSpace::new(shape, &[layout(shape, &row_major_strides(shape))]).unwrap();
        assert_eq!((space.dims(), space.len(), space.order(0)), (&[][..], 1, Order::Dense));
        assert_eq!((places(&space, 0, 0, 1), places(&space, 0, 0, 0)), (vec![0], vec![]));
        assert_eq!((space.steps([0]), space.reach(0, 0, 1)), ([0], (0, 0)));
    }
}

#[test]
fn an_empty_space_has_no_runs() {
    for shape in [&[0][..], &[2, 0], &[0, 2], &[2, 0, 3], &[usize::MAX, 0, usize::MAX]] {
        let strides = Strides::from_elem(1, shape.len());
        let space = IndexSpace::new(shape, &[layout(shape, &strides), layout(&[], &[])]).unwrap();
        assert!(space.is_empty(), "{shape:?}");
        space.runs([0, 1], 0..0, |_, _, _| panic!("{shape:?}"));
    }
}

#[test]
fn every_index_has_its_place() {
    let (shape, strides) = ([2, 3, 4], [-1isize, 8, -2]);
    let column = layout(&[3, 1], &[5, 9]);
    let space = IndexSpace::new(&shape, &[layout(&shape, &strides), column]).unwrap();
    let of = |index: isize| -(index / 12) + 8 * (index / 4 % 3) - 2 * (index % 4);
    let expected: Vec<isize> = (0..24).map(of).collect();
    let of_column: Vec<isize> = (0..24).map(|index: isize| 5 * (index / 4 % 3)).collect();
    for range in [0..24, 5..17, 7..18, 23..24, 7..7, 24..24] {
        assert_eq!(places(&space, 0, range.start, range.len()), expected[range.clone()]);
        assert_eq!(places(&space, 1, range.start, range.len()), of_column[range.clone()]);
        let mut both = vec![];
        space.runs([1, 0], range.clone(), |first, [column, full], count| {
            assert_eq!((column, full), (of_column[first], expected[first]));
            both.extend(first..first + count);
        });
        assert_eq!(both, range.collect::<Vec<_>>());
    }
}

#[test]
fn parts_have_dims_of_their_own() {
    let full = layout(&[4, 3, 2], &[6, 2, 1]);
    let [kept, summed] = IndexSpace::split(&[4, 3, 2], &[full], |dim| usize::from(dim == 1)).unwrap();
    assert_eq!((kept.dims(), kept.strides(0), kept.len()), (&[2, 4][..], &[1, 6][..], 8));
    assert_eq!((summed.dims(), summed.strides(0), summed.len()), (&[3][..], &[2][..], 3));
    let mut pushed = IndexSpace::with_room(3, 1);
    for (size, stride) in [(2, 1), (1, 7), (3, 2)] {
        pushed.push(size, [stride]);
    }
    assert_eq!((pushed.dims(), pushed.strides(0), pushed.len()), (&[6][..], &[1][..], 6));
    // What is empty is not repeated, whatever its size makes of the strides.
    let mut empty = IndexSpace::with_room(2, 1);
    for (size, stride) in [(0, 1), (3, 0)] {
        empty.push(size, [stride]);
    }
    assert_eq!((empty.dims(), empty.len()), (&[0, 3][..], 0));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let error = |shape: &[usize], own: &[usize]| {
        let strides = Strides::from_elem(0, own.len());
        let error = IndexSpace::new(shape, &[layout(&[], &[]), layout(own, &strides)]).unwrap_err();
        (error.code(), error.message().to_owned())
    };
    let misfit = |text: &str| (Code::InvalidArgument, text.to_owned());
    assert_eq!(error(&[2, 3], &[2]), misfit("shape [2] does not broadcast to [2, 3]"));
    assert_eq!(error(&[1], &[2]), misfit("shape [2] does not broadcast to [1]"));
    assert_eq!(error(&[2], &[1, 2]), misfit("shape [1, 2] does not broadcast to [2]"));
    for huge in [[usize::MAX, 2], [1 << 62, 2]] {
        let text = format!("a tensor of shape {huge:?} is too large");
        assert_eq!(error(&huge, &[2]), (Code::ResourceExhausted, text));
    }
    assert_eq!(layout(&[2, usize::MAX], &[1, 8]).span(), usize::MAX);
    let mut space = IndexSpace::with_room(2, 1);
    for (size, stride) in [(1 << 62, 0), (1 << 62, 0)] {
        space.push(size, [stride]);
    }
    assert_eq!((space.dims(), space.len()), (&[1 << 62, 1 << 62][..], usize::MAX));
}

#[test]
fn a_range_reaches_no_place_beyond() {
    let shape = [5, 4, 3];
    let full = row_major_strides(&shape);
    for kept in [[5, 4, 3], [1, 4, 3], [5, 1, 3], [5, 4, 1], [1, 1, 3], [1, 1, 1]] {
        let own = row_major_strides(&kept);
        let space = IndexSpace::new(&shape, &[layout(&shape, &full), layout(&kept, &own)]).unwrap();
        for begin in 0..60 {
            for end in begin + 1..=60 {
                let (low, high) = space.reach(1, begin, end);
                let all = places(&space, 1, begin, end - begin);
                assert!(all.iter().all(|&place| (low..=high).contains(&(place as usize))));
                assert!(high < kept.iter().product());
            }
        }
    }
}

#[test]
fn columns_have_every_index_once() {
    // Rows and columns changed about, with and without a rest, and with a dim that all others are within.
    for shape in [vec![64, 1024], vec![70, 1001], vec![3, 40, 300]] {
        let rank = shape.len();
        let mut turned = row_major_strides(&shape);
        let inner = turned[rank - 2] as usize / shape[rank - 1] * shape[rank - 2];
        (turned[rank - 2], turned[rank - 1]) = (1, inner as isize);
        let own = row_major_strides(&shape);
        let space = IndexSpace::new(&shape, &[layout(&shape, &turned), layout(&shape, &own)]).unwrap();
        let mut found = Vec::new();
        for (part, begin) in space.columns(128).expect("the first lies along another dim") {
            let behind = space.steps([0, 1]).map(|step| step * begin as isize);
            let all = [0, 1].map(|operand| places(&part, operand, 0, part.len()));
            found.extend(all[0].iter().zip(&all[1]).map(|(a, b)| (b + behind[1], a + behind[0])));
        }
        found.sort_unstable();
        let all = [1, 0].map(|operand| places(&space, operand, 0, space.len()));
        let mut expected: Vec<_> = all[0].iter().copied().zip(all[1].iter().copied()).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{shape:?}");
        // Where all lie along the last dim, and where there are few.
        assert!(IndexSpace::new(&shape, &[layout(&shape, &own)]).unwrap().columns(128).is_none());
        assert!(IndexSpace::new(&[2, 300], &[layout(&[2, 300], &[1, 2])]).unwrap().columns(128).is_none());
    }
}
