//! The machine of saves under a shell that answers in any order, at any time and with any code.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};
use springtide_testing::corpus;

use super::*;

/// One step. `choice` picks among the calls that wait for an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Save { key: u8, bytes: u64, fragments: usize, copied: bool },
    Copied { choice: usize, ok: bool },
    Checked { choice: usize, answer: Answer },
    PutEnded { choice: usize, end: End },
    Probed { choice: usize, answer: Answer },
    Act,
    Wait { millis: u64 },
    PollWait { choice: usize },
    AbandonWait { choice: usize },
    Pass { millis: u64 },
    Close,
}

/// What a store says of an item's existence; a number is a code.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Answer {
    Yes,
    No,
    Code(i32),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum End {
    Done,
    Failed(i32),
    Uncertain(i32),
    Lost,
}

fn code() -> impl Strategy<Value = i32> {
    // Repeatable, unknown effect, final, exists already, unknown.
    prop::sample::select([-200, -800, -900, -901, -600, -704, -705, -9999].as_slice())
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![3 => Just(Answer::Yes), 3 => Just(Answer::No), 1 => code().prop_map(Answer::Code)]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        5 => Just(End::Done),
        3 => code().prop_map(End::Failed),
        1 => code().prop_map(End::Uncertain),
        1 => Just(End::Lost),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let choice = any::<u8>().prop_map(usize::from);
    let bytes = prop_oneof![4 => 1..120_u64, 1 => Just(400)];
    prop_oneof![
        6 => (0..4_u8, bytes, 1..6_usize, any::<bool>()).prop_map(
            |(key, bytes, fragments, copied)| Step::Save { key, bytes, fragments, copied }
        ),
        5 => (choice.clone(), prop::bool::weighted(0.9))
            .prop_map(|(choice, ok)| Step::Copied { choice, ok }),
        6 => (choice.clone(), answer()).prop_map(|(choice, answer)| Step::Checked { choice, answer }),
        6 => (choice.clone(), end()).prop_map(|(choice, end)| Step::PutEnded { choice, end }),
        6 => (choice.clone(), answer()).prop_map(|(choice, answer)| Step::Probed { choice, answer }),
        9 => Just(Step::Act),
        2 => (0..1500_u64).prop_map(|millis| Step::Wait { millis }),
        3 => choice.clone().prop_map(|choice| Step::PollWait { choice }),
        1 => choice.prop_map(|choice| Step::AbandonWait { choice }),
        4 => prop_oneof![3 => 1..60_u64, 1 => 300..1200_u64].prop_map(|millis| Step::Pass { millis }),
        1 => prop::bool::weighted(0.1).prop_map(|close| if close { Step::Close } else { Step::Act }),
    ]
}

/// An upload as the shell sees it: which of its calls are under way.
#[derive(Default)]
struct Seen {
    key: String,
    bytes: u64,
    fragments: usize,
    deadline: Time,
    copying: bool,
    to_be_checked: bool,
    checking: bool,
    putting: bool,
    probing: bool,
    puts: u32,
    found: bool,
    visible: bool,
}

struct Waiting {
    deadline: Time,
    began: usize,
    open: BTreeSet<Ticket>,
}

struct Shell {
    saves: Saves,
    now: Time,
    uploads: BTreeMap<UploadId, Seen>,
    /// The upload of each ticket, if it has one, and the ticket's own deadline.
    tickets: BTreeMap<Ticket, (Option<UploadId>, Time)>,
    outcomes: BTreeMap<Ticket, SaveOutcome>,
    /// At which point in the history of waits a finished one reported a ticket.
    reported: BTreeMap<Ticket, usize>,
    waits: BTreeMap<WaitId, Waiting>,
    waits_begun: usize,
    over: BTreeMap<UploadId, Seen>,
}

const FRAGMENTS: usize = 8;

fn config() -> SaveConfig {
    SaveConfig {
        deadline: Duration::from_millis(1000),
        retry_pause: Duration::from_millis(20),
        retry_pause_max: Duration::from_millis(50),
        attempts_max: 4,
        batch_bytes_max: 200,
        batch_items_max: 3,
        in_flight_bytes_max: 300,
        queue_items_max: 8,
    }
}

impl Shell {
    fn new() -> Self {
        Self {
            saves: Saves::new(config(), FRAGMENTS),
            now: Time::from_origin(Duration::ZERO),
            uploads: BTreeMap::new(),
            tickets: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            reported: BTreeMap::new(),
            waits: BTreeMap::new(),
            waits_begun: 0,
            over: BTreeMap::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Save { key, bytes, fragments, copied } => {
                self.save(&key.to_string(), bytes, fragments, copied);
            }
            Step::Copied { choice, ok } => {
                let Some(id) = self.pick(choice, |seen| seen.copying) else { return };
                self.seen(id).copying = false;
                self.saves.copied(id, ok);
            }
            Step::Checked { choice, answer } => {
                let Some(id) = self.pick(choice, |seen| seen.checking) else { return };
                self.seen(id).checking = false;
                self.seen(id).found |= matches!(answer, Answer::Yes);
                self.saves.checked(id, exists(answer));
            }
            Step::PutEnded { choice, end } => {
                let Some(id) = self.pick(choice, |seen| seen.putting) else { return };
                self.seen(id).putting = false;
                self.saves.put_ended(id, put_end(end), self.now);
            }
            Step::Probed { choice, answer } => {
                let Some(id) = self.pick(choice, |seen| seen.probing) else { return };
                self.seen(id).probing = false;
                self.seen(id).visible |= matches!(answer, Answer::Yes);
                self.saves.probed(id, exists(answer), self.now);
            }
            Step::Act => self.act(),
            Step::Wait { millis } => self.wait(millis),
            Step::PollWait { choice } => self.poll(choice),
            Step::AbandonWait { choice } => {
                let Some(id) = nth(self.waits.keys().copied(), choice) else { return };
                self.waits.remove(&id);
                self.saves.abandon_wait(id);
            }
            Step::Pass { millis } => self.now = self.now + Duration::from_millis(millis),
            Step::Close => self.saves.close(),
        }
        self.check();
    }

    fn pick(&self, choice: usize, wanted: fn(&Seen) -> bool) -> Option<UploadId> {
        nth(self.uploads.iter().filter(|(_, seen)| wanted(seen)).map(|(id, _)| *id), choice)
    }

    fn seen(&mut self, id: UploadId) -> &mut Seen {
        self.uploads.get_mut(&id).expect("an upload that is not over")
    }

    /// As the uploader does it: join, or be refused, or begin.
    fn save(&mut self, name: &str, bytes: u64, fragments: usize, copied: bool) {
        let key = Key::new(name);
        let deadline = self.now + config().deadline;
        let (ticket, upload) = if let Some(ticket) = self.saves.join(&key, bytes, self.now) {
            let joined = self.uploads.iter_mut().rev().find(|(_, seen)| seen.key == name);
            let joined = joined.filter(|(_, seen)| seen.bytes == bytes);
            let id = joined.map(|(id, seen)| {
                seen.deadline = deadline;
                *id
            });
            (ticket, id)
        } else if let Some(reason) = self.saves.refusal() {
            (self.saves.refuse(key, reason), None)
        } else {
            let (ticket, id) = self.saves.open(key, bytes, fragments, copied, self.now);
            let seen = Seen {
                key: name.to_owned(),
                bytes,
                fragments,
                deadline,
                copying: !copied,
                to_be_checked: true,
                ..Seen::default()
            };
            assert!(self.uploads.insert(id, seen).is_none(), "{id:?} is used twice");
            (ticket, Some(id))
        };
        assert!(
            self.tickets.insert(ticket, (upload, deadline)).is_none(),
            "{ticket} is used twice"
        );
    }

    /// Carries out all that the machine wants done now.
    fn act(&mut self) {
        for _ in 0..1000 {
            match self.saves.next_action(self.now) {
                None => return self.check_idle(),
                Some(Action::Check(batch)) => self.begin_checks(batch),
                Some(Action::Put(batch)) => self.begin_puts(batch),
                Some(Action::Probe(batch)) => self.begin_probes(batch),
                Some(Action::Release(id, key)) => {
                    let seen = self.uploads.remove(&id).expect("an upload is released once");
                    assert_eq!(key.as_str(), seen.key);
                    assert!(!seen.copying && !seen.putting, "{id:?} is released under I/O");
                    self.over.insert(id, seen);
                }
            }
        }
        panic!("the machine never comes to rest");
    }

    fn begin_checks(&mut self, batch: Vec<(UploadId, Key)>) {
        assert!(batch.len() <= config().batch_items_max);
        for (id, _) in batch {
            let seen = self.seen(id);
            assert!(std::mem::take(&mut seen.to_be_checked), "{id:?} is checked again");
            seen.checking = true;
        }
    }

    fn begin_puts(&mut self, batch: Vec<(UploadId, Key)>) {
        let now = self.now;
        for (id, _) in &batch {
            let seen = self.seen(*id);
            let idle = !(seen.copying || seen.checking || seen.putting || seen.probing);
            assert!(idle && !seen.to_be_checked, "{id:?} is put too early");
            assert!(now < seen.deadline, "{id:?} is put too late");
            assert!(!seen.found, "{id:?} is put although it is there");
            (seen.putting, seen.visible) = (true, false);
            seen.puts += 1;
            assert!(seen.puts <= config().attempts_max);
        }
        let config = config();
        let uploads = batch.iter().map(|(id, _)| &self.uploads[id]);
        let bytes: u64 = uploads.clone().map(|seen| seen.bytes).sum();
        let fragments: usize = uploads.map(|seen| seen.fragments).sum();
        let fits = bytes <= config.batch_bytes_max && fragments <= FRAGMENTS;
        assert!(batch.len() == 1 || fits && batch.len() <= config.batch_items_max);
        let flying: Vec<u64> =
            self.uploads.values().filter(|seen| seen.putting).map(|seen| seen.bytes).collect();
        assert!(flying.iter().sum::<u64>() <= config.in_flight_bytes_max || flying.len() == 1);
    }

    fn begin_probes(&mut self, batch: Vec<(UploadId, Key)>) {
        assert!(batch.len() <= config().batch_items_max);
        for (id, _) in batch {
            let seen = self.seen(id);
            assert!(!seen.putting && !seen.probing && seen.puts > 0, "{id:?} is probed");
            seen.probing = true;
        }
    }

    fn wait(&mut self, millis: u64) {
        let deadline = self.now + Duration::from_millis(millis);
        let is_open = |ticket: &Ticket| self.saves.tickets.is_open(*ticket);
        let open = self.tickets.keys().copied().filter(is_open).collect();
        let id = self.saves.begin_wait(deadline);
        let waiting = Waiting { deadline, began: self.waits_begun, open };
        self.waits_begun += 1;
        assert!(self.waits.insert(id, waiting).is_none(), "{id:?} is used twice");
    }

    fn poll(&mut self, choice: usize) {
        let Some(id) = nth(self.waits.keys().copied(), choice) else { return };
        let Some(report) = self.saves.poll_wait(id, self.now) else {
            assert!(self.now < self.waits[&id].deadline, "a wait outlasts its deadline");
            return;
        };
        let waiting = self.waits.remove(&id).expect("a wait ends once");
        let listed: Vec<Ticket> = report.entries.iter().map(|entry| entry.ticket).collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "a ticket is listed twice: {listed:?}");
        assert!(waiting.open.iter().all(|ticket| listed.contains(ticket)), "a ticket is missing");
        for entry in &report.entries {
            let (upload, _) = self.tickets[&entry.ticket];
            let first = *self.outcomes.entry(entry.ticket).or_insert(entry.outcome);
            assert_eq!(first, entry.outcome, "{} ended twice", entry.ticket);
            let reported = *self.reported.entry(entry.ticket).or_insert(self.waits_begun);
            assert!(reported > waiting.began, "{} is reported again", entry.ticket);
            let seen = upload.map(|id| self.uploads.get(&id).unwrap_or_else(|| &self.over[&id]));
            match entry.outcome {
                SaveOutcome::Stored => assert!(seen.unwrap().visible, "stored and never seen"),
                SaveOutcome::AlreadyThere => assert!(seen.unwrap().found, "there and never seen"),
                SaveOutcome::Dropped(_) => assert!(seen.is_none()),
                SaveOutcome::Failed(_) | SaveOutcome::TimedOut => {}
            }
        }
    }

    /// What must hold after every step.
    fn check(&self) {
        let counters = self.saves.counters();
        assert_eq!(counters.check(), Ok(()));
        assert_eq!(counters.opened, self.tickets.len() as u64);
        assert_eq!(self.saves.open_uploads(), self.uploads.len());
        assert!(self.uploads.len() <= config().queue_items_max);
        let flying = self.uploads.values().filter(|seen| seen.putting).map(|seen| seen.bytes);
        assert_eq!(self.saves.in_flight_bytes(), flying.sum::<u64>());
    }

    /// What must hold when there is nothing to do: nobody has waited too long, and somebody will wake.
    fn check_idle(&self) {
        let open = self.saves.counters().open;
        let not_due = self.tickets.values().filter(|(_, deadline)| *deadline > self.now).count();
        assert!(open <= not_due as u64, "a ticket outlasts its deadline");
        let wakeup = self.saves.next_wakeup();
        assert!(wakeup.is_none_or(|at| at > self.now), "a timer that has passed stays");
        assert!(wakeup.is_some() || open == 0, "nobody will end {open} tickets");
    }

    /// Stops the machine; whatever it began is answered, and nothing is left.
    fn finish(mut self) {
        self.saves.stop();
        for _ in 0..3 {
            for id in self.uploads.keys().copied().collect::<Vec<_>>() {
                let seen = self.seen(id);
                let (copying, checking) = (seen.copying, seen.checking);
                let (putting, probing) = (seen.putting, seen.probing);
                (seen.copying, seen.checking, seen.putting, seen.probing) = Default::default();
                if copying {
                    self.saves.copied(id, true);
                }
                if checking {
                    self.saves.checked(id, Ok(false));
                }
                if putting {
                    self.saves.put_ended(id, PutEnd::Done, self.now);
                }
                if probing {
                    self.saves.probed(id, Ok(true), self.now);
                }
            }
            self.act();
        }
        self.check();
        assert_eq!((self.uploads.len(), self.saves.in_flight_bytes()), (0, 0));
        assert_eq!((self.saves.counters().open, self.saves.next_wakeup()), (0, None));
    }
}

fn nth<T>(items: impl Iterator<Item = T> + Clone, choice: usize) -> Option<T> {
    let count = items.clone().count();
    items.clone().nth(choice.checked_rem(count)?)
}

fn store_error(code: i32) -> StoreError {
    StoreError::new(ErrorCode::from_number(code), Duration::from_millis(1))
}

fn exists(answer: Answer) -> Result<bool, StoreError> {
    match answer {
        Answer::Yes => Ok(true),
        Answer::No => Ok(false),
        Answer::Code(code) => Err(store_error(code)),
    }
}

fn put_end(end: End) -> PutEnd {
    match end {
        End::Done => PutEnd::Done,
        End::Failed(code) => PutEnd::Failed(store_error(code)),
        End::Uncertain(code) => PutEnd::Uncertain(store_error(code)),
        End::Lost => PutEnd::Lost,
    }
}

#[test]
fn saves_keep_their_promises_whatever_the_shell_does() {
    corpus::check("saves", 2000, vec(step(), 1..150), |steps| {
        let mut shell = Shell::new();
        for step in steps {
            shell.run(step);
        }
        shell.finish();
    });
}
