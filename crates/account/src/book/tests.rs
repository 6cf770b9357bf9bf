use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, JobId, QueueName};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Class, Payer};

fn name(node: usize) -> NodeName {
    NodeName::new(format!("n{node}")).unwrap()
}

fn gang(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn host(devices: usize) -> Host {
    let class = Arc::new(Class {
        model: "H100".to_owned(),
        is_spot: false,
        has_spot_price: false,
        price_micro: 2_000_000,
    });
    let (foreign, broken) = (DeviceMask::EMPTY, DeviceMask::EMPTY);
    Host { devices: vec![class; devices], foreign, broken, unused: State::Idle }
}

fn holding(job: u64, state: State, slots: &[(usize, DeviceMask, u64)]) -> Holding {
    let payer = Payer {
        queue: QueueName::new("vision").unwrap(),
        uid: 1_000,
        user: "alice".to_owned(),
        job: JobId(job),
        name: format!("job{job}"),
        class: String::new(),
    };
    let held = |(node, devices, each_milli): &(usize, DeviceMask, u64)| Held {
        node: name(*node),
        devices: *devices,
        each_milli: *each_milli,
    };
    Holding { payer: Arc::new(payer), state, slots: slots.iter().map(held).collect(), loss: None }
}

/// Device-milliseconds by state.
fn sums(entries: &[Entry]) -> BTreeMap<State, i64> {
    let mut sums: BTreeMap<State, i64> = BTreeMap::new();
    for entry in entries {
        *sums.entry(entry.key.state).or_default() += entry.device_us;
    }
    sums.into_iter().map(|(state, us)| (state, us / 1_000)).filter(|(_, ms)| *ms != 0).collect()
}

const ALL: DeviceMask = DeviceMask::first(4);

#[test]
fn what_nobody_holds_is_idle_and_what_is_held_is_charged_to_the_job() {
    let mut book = Book::new();
    book.observe_node(Timestamp(0), &name(0), host(4));
    book.observe_gang(
        Timestamp(10),
        gang(1),
        holding(1, State::Starting, &[(0, DeviceMask::first(3), 1_000)]),
        None,
    );
    book.observe_gang(
        Timestamp(30),
        gang(1),
        holding(1, State::Running, &[(0, DeviceMask::first(3), 1_000)]),
        None,
    );
    book.remove_gang(Timestamp(130), gang(1), Gone::Ended);
    let entries = book.take_entries(Timestamp(200));
    let expected = [(State::Running, 300), (State::Starting, 60), (State::Idle, 440)];
    assert_eq!(sums(&entries), BTreeMap::from(expected));
    let held = entries.iter().filter(|entry| entry.key.state.is_held());
    assert!(held.clone().count() == 2 && held.clone().all(|entry| entry.key.payer.is_some()));
}

#[test]
fn a_share_is_charged_by_its_thousandths_and_the_rest_of_the_device_is_idle() {
    let mut book = Book::new();
    book.observe_node(Timestamp(0), &name(0), host(1));
    for job in 1..=3 {
        let quarter = holding(job, State::Running, &[(0, DeviceMask::first(1), 250)]);
        book.observe_gang(Timestamp(0), gang(job), quarter, None);
    }
    let entries = book.take_entries(Timestamp(1_000));
    assert_eq!(sums(&entries), BTreeMap::from([(State::Running, 750), (State::Idle, 250)]));
    // Three times 0.7 are promised on one device: each has a part of what there is.
    for job in 1..=3 {
        let most = holding(job, State::Running, &[(0, DeviceMask::first(1), 700)]);
        book.observe_gang(Timestamp(1_000), gang(job), most, None);
    }
    let entries = book.take_entries(Timestamp(2_000));
    assert_eq!(sums(&entries), BTreeMap::from([(State::Running, 1_000)]));
    let each: Vec<i64> = entries.iter().map(|entry| entry.device_us).collect();
    assert_eq!(each, [334_000, 333_000, 333_000]);
}

#[test]
fn what_is_reserved_and_still_held_is_charged_to_who_holds_it() {
    let mut book = Book::new();
    let foreign = Host { foreign: DeviceMask::one(3), unused: State::Draining, ..host(4) };
    book.observe_node(Timestamp(0), &name(0), foreign);
    book.observe_gang(
        Timestamp(0),
        gang(1),
        holding(1, State::Running, &[(0, DeviceMask::one(0), 1_000)]),
        None,
    );
    book.observe_gang(
        Timestamp(0),
        gang(2),
        holding(2, State::Reserved, &[(0, DeviceMask::first(2), 1_000)]),
        None,
    );
    let charged = sums(&book.take_entries(Timestamp(100)));
    let expected =
        [(State::Running, 100), (State::Reserved, 100), (State::Draining, 100), (State::Foreign, 100)];
    assert_eq!(charged, BTreeMap::from(expected));
}

#[test]
fn lost_work_is_what_ran_since_the_last_checkpoint_in_the_hours_in_which_it_ran() {
    let run = holding(1, State::Running, &[(0, ALL, 1_000)]);
    let begin = HOUR_MS - 100;
    let mut book = Book::new();
    book.observe_node(Timestamp(begin), &name(0), host(4));
    book.observe_gang(Timestamp(begin), gang(1), run.clone(), None);
    book.observe_gang(Timestamp(begin + 40), gang(1), run.clone(), Some(Timestamp(begin + 40)));
    // Entries that were taken are corrected later.
    let first = book.take_entries(Timestamp(HOUR_MS));
    assert_eq!(sums(&first), BTreeMap::from([(State::Running, 400)]));
    let stops = Holding { state: State::Stopping, loss: Some(Loss::Preemption), ..run };
    book.observe_gang(Timestamp(HOUR_MS + 50), gang(1), stops, Some(Timestamp(begin + 40)));
    book.remove_gang(Timestamp(HOUR_MS + 60), gang(1), Gone::Waits);
    let second = book.take_entries(Timestamp(HOUR_MS + 60));
    let in_hour = |hour: u64| {
        let of_hour = second.iter().filter(|entry| entry.hour == hour).cloned();
        sums(&of_hour.collect::<Vec<_>>())
    };
    assert_eq!(in_hour(0), BTreeMap::from([(State::Running, -240), (State::LostToPreemption, 240)]));
    assert_eq!(in_hour(1), BTreeMap::from([(State::Stopping, 40), (State::LostToPreemption, 200)]));
}

#[test]
fn a_job_that_succeeds_or_is_cancelled_lost_nothing_and_one_that_failed_did() {
    for (gone, state) in [
        (Gone::Ended, State::Running),
        (Gone::Waits, State::Running),
        (Gone::Lost(Loss::Failure), State::LostToFailure),
    ] {
        let mut book = Book::new();
        book.observe_node(Timestamp(0), &name(0), host(4));
        book.observe_gang(Timestamp(0), gang(1), holding(1, State::Running, &[(0, ALL, 1_000)]), None);
        book.remove_gang(Timestamp(10), gang(1), gone);
        assert_eq!(sums(&book.take_entries(Timestamp(10))), BTreeMap::from([(state, 40)]), "{gone:?}");
    }
}

#[test]
fn after_a_restart_work_that_was_charged_before_can_still_be_lost() {
    let run = holding(1, State::Running, &[(0, ALL, 1_000)]);
    let mut book = Book::new();
    book.observe_node(Timestamp(1_000), &name(0), host(4));
    book.observe_gang(Timestamp(1_000), gang(1), run, None);
    book.recall(Timestamp(1_000), gang(1), Timestamp(400));
    book.remove_gang(Timestamp(1_100), gang(1), Gone::Lost(Loss::Failure));
    let charged = sums(&book.take_entries(Timestamp(1_100)));
    // 2,400 of them were charged as running by the book before.
    assert_eq!(charged, BTreeMap::from([(State::Running, -2_400), (State::LostToFailure, 2_800)]));
}

#[test]
fn a_clock_that_goes_back_charges_nothing_twice() {
    let mut book = Book::new();
    book.observe_node(Timestamp(1_000), &name(0), host(1));
    assert_eq!(sums(&book.take_entries(Timestamp(1_100))), BTreeMap::from([(State::Idle, 100)]));
    assert_eq!(book.take_entries(Timestamp(500)), []);
    assert_eq!(sums(&book.take_entries(Timestamp(1_150))), BTreeMap::from([(State::Idle, 50)]));
}

/// What a test tells a book.
#[derive(Clone, Debug)]
enum Telling {
    Node {
        node: usize,
        devices: usize,
        foreign: u64,
        unused: usize,
    },
    NodeGone(usize),
    Gang {
        job: u64,
        state: usize,
        slots: Vec<(usize, u64, u64)>,
        is_saved: bool,
        loses: bool,
    },
    GangGone {
        job: u64,
        gone: usize,
    },
    Take,
    /// A clock went back, and entries are taken at that time.
    TakeEarlier(u64),
    /// The book is lost, and a new one goes on after a while.
    Crash {
        away_ms: u64,
    },
}

fn telling() -> impl Strategy<Value = Telling> {
    let slot = (0..3_usize, 0..16_u64, prop::sample::select(vec![250_u64, 333, 700, 1_000]));
    prop_oneof![
        3 => (0..3_usize, 0..5_usize, 0..16_u64, 0..3_usize).prop_map(|(node, devices, foreign, unused)| {
            Telling::Node { node, devices, foreign, unused }
        }),
        1 => (0..3_usize).prop_map(Telling::NodeGone),
        6 => (0..5_u64, 0..4_usize, vec(slot, 1..4), any::<bool>(), any::<bool>()).prop_map(
            |(job, state, slots, is_saved, loses)| Telling::Gang { job, state, slots, is_saved, loses }
        ),
        3 => (0..5_u64, 0..3_usize).prop_map(|(job, gone)| Telling::GangGone { job, gone }),
        2 => Just(Telling::Take),
        1 => (0..100_u64).prop_map(Telling::TakeEarlier),
        1 => (0..40_u64).prop_map(|away_ms| Telling::Crash { away_ms }),
    ]
}

/// A site as a test plays it: the book, what it was told, and the device time that there was.
struct Site {
    now: Timestamp,
    book: Book,
    hosts: BTreeMap<usize, Host>,
    gangs: BTreeMap<u64, (Holding, Option<Timestamp>)>,
    existed_us: i64,
    entries: Vec<Entry>,
}

impl Site {
    fn pass(&mut self, ms: u64) {
        let devices: usize = self.hosts.values().map(|host| host.devices.len()).sum();
        self.existed_us += i64::try_from(ms * 1_000 * devices as u64).unwrap();
        self.now = self.now.plus(ms);
    }

    fn tell(&mut self, telling: Telling) {
        let (now, book) = (self.now, &mut self.book);
        match telling {
            Telling::Node { node, devices, foreign, unused } => {
                let unused = [State::Idle, State::Closed, State::Draining][unused];
                let (foreign, broken) = (DeviceMask(foreign), DeviceMask(foreign.rotate_left(1)));
                let said = Host { foreign, broken, unused, ..host(devices) };
                book.observe_node(now, &name(node), said.clone());
                self.hosts.insert(node, said);
            }
            Telling::NodeGone(node) => {
                book.remove_node(now, &name(node));
                self.hosts.remove(&node);
            }
            Telling::Gang { job, state, slots, is_saved, loses } => {
                let state = [State::Running, State::Starting, State::Stopping, State::Reserved][state];
                let slots: Vec<_> =
                    slots.into_iter().map(|(node, mask, each)| (node, DeviceMask(mask), each)).collect();
                let said = Holding { loss: loses.then_some(Loss::Failure), ..holding(job, state, &slots) };
                let saved_at =
                    if is_saved { Some(now) } else { self.gangs.get(&job).and_then(|(_, at)| *at) };
                book.observe_gang(now, gang(job), said.clone(), saved_at);
                self.gangs.insert(job, (said, saved_at));
            }
            Telling::GangGone { job, gone } => {
                let gone = [Gone::Waits, Gone::Ended, Gone::Lost(Loss::Preemption)][gone];
                book.remove_gang(now, gang(job), gone);
                self.gangs.remove(&job);
            }
            Telling::Take => self.entries.extend(book.take_entries(now)),
            Telling::TakeEarlier(ms) => {
                let earlier = Timestamp(now.0.saturating_sub(ms));
                self.entries.extend(book.take_entries(earlier));
            }
            Telling::Crash { away_ms } => {
                self.entries.extend(book.take_entries(now));
                self.book = Book::new();
                for (node, host) in &self.hosts {
                    let unseen = Host { unused: State::Unobserved, ..host.clone() };
                    self.book.observe_node(now, &name(*node), unseen);
                }
                for (job, (holding, saved_at)) in &self.gangs {
                    self.book.observe_gang(now, gang(*job), holding.clone(), *saved_at);
                }
                self.pass(away_ms);
                for (node, host) in &self.hosts {
                    self.book.observe_node(self.now, &name(*node), host.clone());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The account balances to the microsecond of a device, whatever happens and however often entries are taken.
    #[test]
    fn entries_add_up_to_the_device_time_that_there_was(
        history in vec((0..60_u64, telling()), 1..60)
    ) {
        let mut site = Site {
            now: Timestamp(HOUR_MS - 500),
            book: Book::new(),
            hosts: BTreeMap::new(),
            gangs: BTreeMap::new(),
            existed_us: 0,
            entries: Vec::new(),
        };
        for (ms, telling) in history {
            site.pass(ms);
            site.tell(telling);
        }
        let last = site.book.take_entries(site.now);
        site.entries.extend(last);
        let charged: i64 = site.entries.iter().map(|entry| entry.device_us).sum();
        prop_assert_eq!(charged, site.existed_us);
        let mut by_hour: BTreeMap<(u64, Key), i64> = BTreeMap::new();
        for entry in site.entries {
            *by_hour.entry((entry.hour, entry.key)).or_default() += entry.device_us;
        }
        prop_assert!(by_hour.values().all(|device_us| *device_us >= 0), "{by_hour:?}");
    }
}
