//! Items of each model and resolution that fit in one GiB.

use super::Scale;
use crate::{
    models::{HEADER, Model, RESOLUTIONS, models, payload},
    report::{Goal, Row, Section},
    rivals::{Allocator, Frames, Offset, PowerOfTwo, Springtide},
};

const GIB: u64 = 1 << 30;

/// A row for every cell against byte-perfect packing, and one for each rival over all cells.
pub(super) fn run(_: Scale) -> Section {
    let mut rows = Vec::new();
    let mut rivals = [PLAIN, OFFSET, FRAMES, ONE].map(|rival| (rival, 0.0));
    let mut ours_sum = 0.0;
    for Model { name, width, rows: sizes } in models() {
        for ((wide, high), tokens) in RESOLUTIONS.iter().zip(sizes) {
            let payload = payload(width, tokens);
            let perfect = GIB / (payload + HEADER);
            let share = |held: u64| held as f64 / perfect as f64;
            let ours = held(Springtide::new(GIB), payload);
            ours_sum += share(ours);
            rivals[0].1 += share(held(PowerOfTwo::new(GIB), payload));
            rivals[1].1 += share(held(Offset::new(GIB), payload));
            rivals[2].1 += share(held(Frames::new(GIB), payload));
            rivals[3].1 += share(held(Springtide::with_extents(GIB, 1), payload));
            rows.push(Row {
                what: format!("{name}, {wide}x{high}"),
                ours: format!("{ours} items"),
                rival: "byte-perfect".into(),
                theirs: format!("{perfect} items"),
                ratio: share(ours),
                quartiles: None,
                goal: Some(Goal::AtLeast(0.975)),
            });
        }
    }
    let cells = rows.len() as f64;
    rows.extend(rivals.map(|(rival, sum)| Row {
        what: "mean share of byte-perfect".into(),
        ours: format!("{:.3}", ours_sum / cells),
        rival: rival.into(),
        theirs: format!("{:.3}", sum / cells),
        ratio: ours_sum / sum,
        quartiles: None,
        goal: None,
    }));
    Section {
        suite: "capacity",
        about: "Items, header included, that a fresh region of 1 GiB holds.",
        rows,
    }
}

const PLAIN: &str = "plain power-of-two buddy";
const OFFSET: &str = "offset-allocator 0.2";
const FRAMES: &str = "buddy_system_allocator 0.13";
const ONE: &str = "springtide, one extent";

fn held(mut allocator: impl Allocator, payload: u64) -> u64 {
    (0..).take_while(|_| allocator.allocate(payload).is_some()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counting depends on nothing but the sizes, so these goals are tests.
    #[test]
    fn a_gib_holds_nearly_as_many_items_as_its_bytes_allow() {
        let rows = run(Scale { quick: true }).rows;
        assert_eq!(rows.len(), models().len() * RESOLUTIONS.len() + 4);
        for row in rows {
            assert!(row.goal.is_none_or(|goal| goal.met(row.ratio)), "{row:?}");
        }
    }
}
