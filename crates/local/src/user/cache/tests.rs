use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use super::*;

const SOON: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);

/// A service that hangs while it is told to, and fails for odd keys above 100.
struct Service {
    hangs: AtomicBool,
    asked: AtomicUsize,
}

impl Service {
    fn new() -> Arc<Self> {
        Arc::new(Self { hangs: AtomicBool::new(false), asked: AtomicUsize::new(0) })
    }

    fn cache(self: &Arc<Self>, fresh: Duration, deadline: Duration) -> Cache<u32, String> {
        let service = Arc::clone(self);
        let ask = move |key: &u32| {
            service.asked.fetch_add(1, Ordering::SeqCst);
            while service.hangs.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if *key > 100 && key % 2 == 1 {
                Err(format!("no route to {key}"))
            } else {
                Ok(format!("user {key}"))
            }
        };
        Cache::with(ask, fresh, deadline)
    }

    fn hangs(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[test]
fn an_answer_is_asked_for_once() {
    let service = Service::new();
    let cache = service.cache(LONG, LONG);
    assert_eq!(cache.fresh(&1), None);
    assert_eq!((cache.get(&1).unwrap(), cache.get(&1).unwrap()), ("user 1".to_owned(), "user 1".to_owned()));
    assert_eq!((cache.fresh(&1).unwrap(), service.asked()), ("user 1".to_owned(), 1));
}

/// A directory that hung blocked the thread that asked, and everybody behind it.
#[test]
fn nobody_waits_for_a_hanging_service_longer_than_the_deadline_and_old_answers_are_good() {
    let service = Service::new();
    let cache = service.cache(Duration::ZERO, SOON);
    assert_eq!(cache.get(&1).unwrap(), "user 1");
    service.hangs(true);
    let begin = Instant::now();
    assert_eq!(cache.get(&1).unwrap(), "user 1", "an old answer");
    let error = cache.get(&2).unwrap_err().to_string();
    assert_eq!(error, "the name service of this machine does not answer");
    assert!(begin.elapsed() >= 2 * SOON && begin.elapsed() < LONG / 6, "{:?}", begin.elapsed());
    // What hangs already is not waited for once more.
    let begin = Instant::now();
    for _ in 0..100 {
        assert_eq!(cache.get(&1).unwrap(), "user 1");
        assert!(cache.get(&2).is_err());
    }
    assert!(begin.elapsed() < 10 * SOON, "{:?}", begin.elapsed());
    service.hangs(false);
    while cache.get(&2).is_err() {}
}

#[test]
fn a_hanging_service_takes_few_threads() {
    let service = Service::new();
    let cache = service.cache(LONG, Duration::from_millis(1));
    service.hangs(true);
    for key in 0..50 {
        assert!(cache.get(&key).is_err());
        assert_eq!(cache.fresh(&key), None);
    }
    while service.asked() < THREADS_MAX {}
    assert_eq!(service.asked(), THREADS_MAX);
    service.hangs(false);
    for key in 0..50 {
        while cache.get(&key).is_err() {}
    }
}

#[test]
fn a_failure_is_told_and_asked_again_and_a_panic_is_a_failure() {
    let service = Service::new();
    let cache = service.cache(LONG, LONG);
    let error = cache.get(&101).unwrap_err().to_string();
    assert!(error.ends_with("does not answer: no route to 101"), "{error}");
    assert!(cache.get(&101).is_err());
    assert_eq!(service.asked(), 2);
    let cache: Cache<u32, u32> =
        Cache::with(|key| if *key == 1 { panic!("a test") } else { Ok(*key) }, LONG, LONG);
    assert!(cache.get(&1).unwrap_err().to_string().contains("cut short"));
    assert_eq!(cache.get(&2), Ok(2));
}

#[test]
fn waiting_threads_all_hear_the_answer() {
    let service = Service::new();
    service.hangs(true);
    let cache = Arc::new(service.cache(LONG, LONG));
    let (told, answers) = channel();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let (cache, told): (_, Sender<_>) = (Arc::clone(&cache), told.clone());
            std::thread::spawn(move || told.send(cache.get(&4)))
        })
        .collect();
    std::thread::sleep(SOON / 2);
    service.hangs(false);
    for thread in waiting {
        thread.join().unwrap().unwrap();
    }
    drop(told);
    assert_eq!(answers.iter().filter(|answer| answer.as_deref() == Ok("user 4")).count(), 5);
    assert_eq!(service.asked(), 1);
}

#[test]
fn the_oldest_answers_are_forgotten() {
    let cache: Cache<u32, u32> = Cache::with(|key| Ok(*key), LONG, LONG);
    let many = u32::try_from(KNOWN_MAX).unwrap() + 3;
    assert!((0..many).all(|key| cache.get(&key) == Ok(key)));
    assert_eq!(cache.shared.state().known.len(), KNOWN_MAX);
    assert_eq!((cache.fresh(&1), cache.fresh(&(many - 1))), (None, Some(many - 1)));
}
