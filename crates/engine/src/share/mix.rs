//! What was asked for so far: a running histogram of requests.

use super::node::Ask;

/// Kinds of requests that are kept apart. Later ones are placed all the same; they only weigh nothing for others.
pub(super) const CLASSES_MAX: usize = 512;

/// Requests after which all counts are halved: the mix of last year is no guide.
const WINDOW: u64 = 1 << 16;

/// A kind of request and how often it was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub ask: Ask,
    pub seen: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Mix {
    pub classes: Vec<Class>,
    /// Indices of `classes` in order of their requests.
    order: Vec<u16>,
    pub seen: u64,
}

/// What an observation changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    Counted,
    /// A class was appended.
    Added,
    /// Counts were halved and classes that nobody asks for were dropped: all indices are new.
    Aged,
}

impl Mix {
    /// The class of a request, once it was seen.
    pub(super) fn find(&self, ask: &Ask) -> Option<usize> {
        let at = self.position(ask).ok()?;
        self.order.get(at).map(|index| usize::from(*index))
    }

    pub(super) fn observe(&mut self, ask: &Ask) -> Observed {
        self.seen += 1;
        let mut what = Observed::Counted;
        match self.position(ask) {
            Ok(at) => {
                let index = self.order.get(at).map_or(0, |index| usize::from(*index));
                if let Some(class) = self.classes.get_mut(index) {
                    class.seen += 1;
                }
            }
            Err(at) if self.classes.len() < CLASSES_MAX => {
                self.order.insert(at, u16::try_from(self.classes.len()).unwrap_or(u16::MAX));
                self.classes.push(Class { ask: *ask, seen: 1 });
                what = Observed::Added;
            }
            Err(_) => {}
        }
        if self.seen >= WINDOW {
            self.age();
            what = Observed::Aged;
        }
        what
    }

    fn age(&mut self) {
        self.classes.iter_mut().for_each(|class| class.seen /= 2);
        self.classes.retain(|class| class.seen > 0);
        self.seen = self.classes.iter().map(|class| class.seen).sum();
        self.classes.sort_unstable_by_key(|class| class.ask);
        self.order.clear();
        self.order.extend((0u16..).take(self.classes.len()));
    }

    fn position(&self, ask: &Ask) -> Result<usize, usize> {
        let ask_of = |index: &u16| self.classes.get(usize::from(*index)).map(|class| class.ask);
        self.order.binary_search_by(|index| ask_of(index).cmp(&Some(*ask)))
    }
}
