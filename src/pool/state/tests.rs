use super::*;

type Transition = fn(&StateWord) -> bool;

/// Every transition, by name, at the word's own generation.
const TRANSITIONS: [(&str, Transition); 13] = [
    ("reserve", |w| w.reserve().is_ok()),
    ("release", |w| w.release().is_ok()),
    ("lend", |w| w.lend().is_ok()),
    ("take back", |w| w.take_back().is_ok()),
    ("quarantine", |w| w.quarantine().is_ok()),
    ("absolve", |w| w.absolve().is_ok()),
    ("publish", |w| w.publish().is_ok()),
    ("pin", |w| w.pin(w.load().generation).is_ok()),
    ("pin again", |w| w.repin().is_ok()),
    ("unpin", |w| w.unpin().is_ok()),
    ("evict", |w| w.evict(w.load().generation).is_ok()),
    ("reclaim", |w| w.reclaim(w.load().generation).is_ok()),
    ("discard", |w| w.discard(w.load().generation).is_ok()),
];

fn word(state: State, pins: u32) -> StateWord {
    StateWord(AtomicU64::new(Word { generation: 7, state, pins }.pack()))
}

#[test]
fn words_survive_packing() {
    for state in [
        State::Free,
        State::Filling,
        State::InFlight,
        State::Resident,
        State::Condemned,
        State::Quarantined,
    ] {
        for (generation, pins) in [(0, 0), (u32::MAX, PINS_MAX), (1 << 31, 1)] {
            let word = Word { generation, state, pins };
            assert_eq!(Word::unpack(word.pack()), word);
        }
    }
}

#[test]
fn each_state_allows_its_transitions_and_no_others() {
    for (state, pins, allowed) in [
        (State::Free, 0, &["reserve"][..]),
        (State::Filling, 0, &["release", "lend", "publish"]),
        (State::InFlight, 0, &["take back", "quarantine"]),
        (State::Quarantined, 0, &["absolve"]),
        (State::Resident, 0, &["pin", "evict", "reclaim", "discard"]),
        (State::Resident, 2, &["pin", "pin again", "unpin", "discard"]),
        (State::Condemned, 2, &["pin again", "unpin"]),
        (State::Condemned, 0, &[]),
    ] {
        for (name, transition) in TRANSITIONS {
            let word = word(state, pins);
            let before = word.load();
            assert_eq!(transition(&word), allowed.contains(&name), "{name} from {before:?}");
            assert_eq!(word.load() != before, allowed.contains(&name), "{name} from {before:?}");
        }
    }
}

#[test]
fn every_end_begins_a_generation() {
    let ends: [(State, Transition); 6] = [
        (State::Filling, |w| w.release().is_ok()),
        (State::Quarantined, |w| w.absolve().is_ok()),
        (State::Resident, |w| w.evict(7).is_ok()),
        (State::Resident, |w| w.discard(7) == Ok(Discarded::Freed)),
        (State::Condemned, |w| w.bury().is_ok()),
        (State::Resident, |w| w.reclaim(7).is_ok()),
    ];
    for (state, end) in ends {
        let word = word(state, 0);
        assert!(end(&word));
        assert_eq!(word.load().generation, 8, "{state:?}");
        assert_eq!(word.load().pins, 0);
    }
    let last = StateWord(AtomicU64::new(
        Word { generation: u32::MAX, state: State::Filling, pins: 0 }.pack(),
    ));
    assert_eq!(last.release().unwrap().generation, 0);
}

#[test]
fn another_generation_is_refused() {
    let word = word(State::Resident, 0);
    for refused in [word.pin(6), word.evict(8), word.reclaim(6)] {
        assert_eq!(refused.unwrap_err().found, word.load());
    }
    assert!(word.discard(6).is_err());
    assert_eq!(word.load(), Word { generation: 7, state: State::Resident, pins: 0 });
}

#[test]
fn a_discarded_allocation_lives_as_long_as_its_pins() {
    let word = word(State::Resident, 1);
    assert_eq!(word.discard(7), Ok(Discarded::Condemned));
    assert!(word.pin(7).is_err());
    word.repin().unwrap();
    assert_eq!(word.unpin(), Ok(Unpinned::Kept));
    assert!(word.bury().is_err());
    assert_eq!(word.unpin(), Ok(Unpinned::Last));
    assert_eq!(word.bury().unwrap(), Word { generation: 8, state: State::Free, pins: 0 });
}

#[test]
fn pins_do_not_overflow_into_the_state() {
    let word = word(State::Resident, PINS_MAX);
    assert!(word.pin(7).is_err());
    assert!(word.repin().is_err());
    word.unpin().unwrap();
    word.pin(7).unwrap();
}
