//! The members of a gang, as a world would tell of them: they come to the start barrier, run and exit.

use phalanx_model::{Exit, GangId, Input, JobId, MemberId, Outcome};

use crate::{JobBuilder, Watched};

/// Each job is named by its number, and means its first gang.
impl Watched {
    pub fn submit(&mut self, job: JobBuilder) -> Outcome {
        self.step(&[Input::JobSubmitted { job: Box::new(job.build()) }])
    }

    /// A member of the present attempt.
    #[must_use]
    pub fn member(&self, job: u64, rank: u32) -> MemberId {
        let gang = first(job);
        MemberId { gang, attempt: self.record(gang).attempt, rank }
    }

    /// All members of the present attempt.
    #[must_use]
    pub fn members(&self, job: u64) -> Vec<MemberId> {
        let ranks = (0..).take(self.record(first(job)).members.len());
        ranks.map(|rank| self.member(job, rank)).collect()
    }

    /// Brings a gang that starts through the start barrier, after which it runs.
    pub fn run(&mut self, job: u64) {
        self.pass_barrier(job);
        assert_eq!(self.phase(job), "running", "job {job}\n{}", self.log());
    }

    /// The same of a gang that may have to end as soon as it runs.
    pub fn pass_barrier(&mut self, job: u64) {
        let members = self.members(job);
        self.step(&members.iter().map(|member| Input::MemberReady { member: *member }).collect::<Vec<_>>());
        self.step(
            &members.iter().map(|member| Input::MemberReleased { member: *member }).collect::<Vec<_>>(),
        );
    }

    /// Members end by SIGTERM.
    pub fn exit(&mut self, job: u64, ranks: impl IntoIterator<Item = u32>) -> Outcome {
        let exits = self.exits(job, ranks);
        self.step(&exits)
    }

    /// The facts of it.
    #[must_use]
    pub fn exits(&self, job: u64, ranks: impl IntoIterator<Item = u32>) -> Vec<Input> {
        let exit = Exit::by_signal(15);
        let members = ranks.into_iter().map(|rank| self.member(job, rank));
        members.map(|member| Input::MemberExited { member, exit: exit.clone() }).collect()
    }

    /// All members end in the same way.
    pub fn end(&mut self, job: u64, exit: &Exit) -> Outcome {
        let members = self.members(job).into_iter();
        let exits: Vec<Input> =
            members.map(|member| Input::MemberExited { member, exit: exit.clone() }).collect();
        self.step(&exits)
    }

    /// The phase in one word.
    #[must_use]
    pub fn phase(&self, job: u64) -> &'static str {
        self.record(first(job)).phase.word()
    }
}

const fn first(job: u64) -> GangId {
    JobId(job).gang(0)
}
