//! Services and sessions: the options of `submit`, and the verbs about them.

use phalanx_model::{Replicas, Target};
use phalanx_spec::quantity::parse_milli;

use crate::parse::Parser;
use crate::words::{Options, Word, Words};
use crate::{Expectation, ScenarioError, Verb};

/// Guards against absurd input.
const REPLICAS_MAX: usize = 10_000;

/// `service=1..4 target=tokens:1000 apart=node surge=1`, with the number of gangs.
pub(crate) fn service(
    options: &mut Options<'_>,
    words: &Words<'_>,
) -> Result<Option<(Replicas, usize)>, ScenarioError> {
    let (target, apart, surge) = (options.take("target"), options.take("apart"), options.take("surge"));
    let Some(word) = options.take("service") else {
        return match target.or(apart).or(surge) {
            Some(word) => {
                Err(words.error(word, "applies to a service, and the job is not a service".to_owned()))
            }
            None => Ok(None),
        };
    };
    let (min, max) = word.text.split_once("..").unwrap_or((word.text, word.text));
    let max: usize = words.number(Word { text: max, ..word })?;
    if !(1..=REPLICAS_MAX).contains(&max) {
        return Err(words.error(word, format!("a service has 1 to {REPLICAS_MAX} replicas")));
    }
    let replicas = Replicas {
        min: words.number(Word { text: min, ..word })?,
        target: target.map(|word| measured(word, ':', words)).transpose()?,
        spread: apart.map(|word| words.name(word)).transpose()?,
        surge: surge.map_or(Ok(0), |word| words.number(word))?,
        numbers: Vec::new(),
    };
    let gangs = max.saturating_add(replicas.surge as usize);
    if gangs > REPLICAS_MAX {
        return Err(
            words.error(word, format!("a service has at most {REPLICAS_MAX} replicas with its surge"))
        );
    }
    Ok(Some((replicas, gangs)))
}

/// `tokens:1000`
fn measured(word: Word<'_>, between: char, words: &Words<'_>) -> Result<Target, ScenarioError> {
    let bad = || {
        words.error(
            word,
            format!("expected a name and a number such as tokens{between}1000, and found {:?}", word.text),
        )
    };
    let (metric, value) = word.text.split_once(between).ok_or_else(bad)?;
    Ok(Target::new(metric, parse_milli(value).map_err(|_| bad())?))
}

impl Parser {
    /// `scale chat 3`
    pub(crate) fn scale(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let job = self.job(words)?;
        let replicas = words.expect("a number of replicas")?;
        Ok(Verb::Scale { job, replicas: words.number(replicas)? })
    }

    /// `load chat tokens=2500`
    pub(crate) fn load(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let job = self.job(words)?;
        let of = words.expect("a metric and its value")?;
        Ok(Verb::Load { job, of: measured(of, '=', words)? })
    }

    /// `expect chat runs 2`
    pub(crate) fn runs(&self, job: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let job = self.known_job(job, words)?;
        let gangs = words.expect("a number of gangs")?;
        Ok(Verb::Expect(Expectation::Runs { job, gangs: words.number(gangs)? }))
    }
}
