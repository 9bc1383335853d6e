use super::{Block, Buddy, FreeError};

fn block(index: u32, order: u8) -> Block {
    Block { index, order }
}

/// Takes all units one by one, then frees those for which `free` says so.
fn tree(units: u32, free: impl Fn(u32) -> bool) -> Buddy {
    let mut buddy = Buddy::new(units);
    for index in 0..units {
        let taken = buddy.allocate(0).unwrap();
        let in_order = !units.is_power_of_two() || taken == block(index, 0);
        assert!(in_order, "ties go to the lower address: {taken:?}");
    }
    assert_eq!(buddy.allocate(0), None);
    for index in (0..units).filter(|index| free(*index)) {
        buddy.free(block(index, 0)).unwrap();
    }
    buddy.verify().unwrap();
    buddy
}

#[test]
fn any_unit_count_is_all_allocatable_and_joins_again() {
    for units in 1..=70 {
        let fresh = Buddy::new(units);
        fresh.verify().unwrap();
        let mut buddy = tree(units, |_| true);
        assert_eq!(buddy.free_units(), units);
        assert_eq!(buddy.largest_free(), Some(units.ilog2() as u8));
        assert_eq!(buddy.free_blocks(), fresh.free_blocks());
        assert_eq!(buddy.largest, fresh.largest);
        let largest = buddy.allocate(units.ilog2() as u8).unwrap();
        assert_eq!(largest.index, 0);
        assert_eq!(buddy.allocate(units.ilog2() as u8), None, "the rest is smaller");
    }
}

#[test]
fn the_drawing_of_the_module() {
    let mut buddy = Buddy::new(8);
    assert!(buddy.allocate_at(block(2, 1)));
    assert!(buddy.allocate_at(block(4, 0)));
    assert_eq!(buddy.largest[1..], [2, 2, 2, 2, 0, 1, 2, 1, 1, 1, 1, 0, 1, 1, 1]);
    buddy.verify().unwrap();
}

#[test]
fn the_smaller_sufficient_side_is_taken() {
    // Unit 0 of the left half is taken, leaving 1 and 2..4; the right half is whole.
    let mut buddy = Buddy::new(8);
    assert!(buddy.allocate_at(block(0, 0)));
    assert_eq!(buddy.allocate(0), Some(block(1, 0)));
    assert_eq!(buddy.allocate(1), Some(block(2, 1)));
    assert_eq!(buddy.allocate(2), Some(block(4, 2)));
    assert_eq!(buddy.allocate(0), None);
    assert_eq!(buddy.largest_free(), None);
}

#[test]
fn free_blocks_are_not_joined_across_buddies() {
    // Units 1 and 2 are adjacent but no buddies.
    let mut buddy = tree(4, |index| index == 1 || index == 2);
    assert_eq!(buddy.free_units(), 2);
    assert_eq!(buddy.allocate(1), None);
}

#[test]
fn a_wrong_free_is_named_and_changes_nothing() {
    let mut buddy = Buddy::new(12);
    let taken = buddy.allocate(2).unwrap();
    assert_eq!(taken, block(8, 2), "the smaller part of twelve units");
    assert_eq!(buddy.allocate(1), Some(block(0, 1)));
    let before = buddy.clone();
    for (wrong, expected) in [
        (block(4, 2), FreeError::Free { block: block(4, 2) }),
        (block(10, 1), FreeError::Mismatch { block: block(10, 1), owner: taken }),
        (block(8, 0), FreeError::Mismatch { block: block(8, 0), owner: taken }),
        (block(0, 2), FreeError::Split { block: block(0, 2) }),
        (block(0, 3), FreeError::Split { block: block(0, 3) }),
        (block(8, 3), FreeError::NoSuchBlock { block: block(8, 3), units: 12 }),
        (block(9, 1), FreeError::NoSuchBlock { block: block(9, 1), units: 12 }),
        (block(12, 0), FreeError::NoSuchBlock { block: block(12, 0), units: 12 }),
        (block(0, 40), FreeError::NoSuchBlock { block: block(0, 40), units: 12 }),
    ] {
        assert_eq!(buddy.free(wrong), Err(expected));
        assert_eq!(buddy.largest, before.largest);
        assert_eq!(buddy.allocated, before.allocated);
        assert_eq!(buddy.free_blocks, before.free_blocks);
    }
    buddy.free(taken).unwrap();
    assert_eq!(buddy.free(taken), Err(FreeError::Free { block: taken }));
    buddy.verify().unwrap();
}

#[test]
fn exact_blocks_are_taken_only_where_all_of_them_is_free() {
    let mut buddy = Buddy::new(8);
    assert!(buddy.allocate_at(block(4, 1)));
    assert!(!buddy.allocate_at(block(4, 2)), "part of it is taken");
    assert!(!buddy.allocate_at(block(5, 0)), "inside an allocation");
    assert!(!buddy.allocate_at(block(4, 1)), "taken exactly so");
    assert!(!buddy.allocate_at(block(8, 0)), "outside");
    assert!(buddy.allocate_at(block(6, 1)));
    buddy.verify().unwrap();
    let mut visited = Vec::new();
    buddy.for_each_allocated(|block| visited.push(block));
    assert_eq!(visited, [block(4, 1), block(6, 1)]);
}

#[test]
fn verification_notices_every_single_wrong_byte_bit_and_count() {
    let mut small = Buddy::new(6);
    small.allocate(1).unwrap();
    small.allocate(0).unwrap();
    // Large enough for levels that are compared by words.
    let mut large = Buddy::new(1000);
    for order in [0, 7, 3, 6, 0, 8] {
        large.allocate(order).unwrap();
    }
    every_single_wrong_thing_is_noticed(&small, 16);
    every_single_wrong_thing_is_noticed(&large, 2048);
}

fn every_single_wrong_thing_is_noticed(buddy: &Buddy, nodes: usize) {
    buddy.verify().unwrap();
    for node in 1..nodes {
        let mut broken = buddy.clone();
        broken.largest[node] ^= 1;
        broken.verify().unwrap_err();
        let mut broken = buddy.clone();
        broken.flip_allocated(node);
        broken.verify().unwrap_err();
    }
    for order in 0..3 {
        let mut broken = buddy.clone();
        broken.free_blocks[order] += 1;
        broken.verify().unwrap_err();
    }
    let mut broken = buddy.clone();
    broken.free_units += 1;
    broken.verify().unwrap_err();
}
