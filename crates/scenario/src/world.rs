//! The interface between a scenario and a world.

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Bandwidth, Boost, Change, Exit, GangId, GangRecord, Health, Job, JobId, LevelName, Levels, Node,
    NodeName, Order, Queue, QueueName, QueueReport, Report, Settings, Target, Timestamp,
};

use crate::Submission;

/// An event, as the world saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A change that the engine reported.
    Changed(Change),
    /// An order of the engine.
    Ordered(Order),
}

/// A world on which scenarios run. Verbs come first, then queries. Every verb returns when no more events can occur
/// without the passing of time. An error is a sentence without the line, which the runner adds.
#[expect(clippy::missing_errors_doc, reason = "one meaning for all: the world could not do it, and why")]
pub trait World {
    fn levels(&mut self, levels: &Levels) -> Result<(), String>;
    fn uplink(&mut self, level: &LevelName, mb_per_s: u32) -> Result<(), String>;
    fn node(&mut self, node: Node) -> Result<(), String>;
    /// A rejected submission is not an error but an event, and its number stays known.
    fn submit(&mut self, submission: &Submission) -> Result<JobId, String>;
    fn advance(&mut self, ms: u64) -> Result<(), String>;
    /// A member of the job's first gang ends like this, now.
    fn end_member(&mut self, job: JobId, rank: u32, exit: Exit) -> Result<(), String>;
    fn cordon(&mut self, node: &NodeName) -> Result<(), String>;
    fn uncordon(&mut self, node: &NodeName) -> Result<(), String>;
    fn drain(&mut self, node: &NodeName) -> Result<(), String>;
    /// Gangs that may move are to open a place for a job.
    fn defrag(&mut self, job: JobId) -> Result<(), String>;
    fn grade(&mut self, health: &Health) -> Result<(), String>;
    fn measure(&mut self, bandwidth: &Bandwidth) -> Result<(), String>;
    fn window(&mut self, window: &Calendar) -> Result<(), String>;
    fn spot_notice(&mut self, notice: &SpotNotice) -> Result<(), String>;
    fn lose_node(&mut self, node: &NodeName) -> Result<(), String>;
    fn return_node(&mut self, node: &NodeName) -> Result<(), String>;
    fn cancel(&mut self, job: JobId) -> Result<(), String>;
    fn settings(&mut self, settings: &Settings) -> Result<(), String>;
    /// A queue is declared or changed.
    fn queue(&mut self, queue: &Queue) -> Result<(), String>;
    fn remove_queue(&mut self, queue: &QueueName) -> Result<(), String>;
    fn hold(&mut self, job: JobId) -> Result<(), String>;
    fn release(&mut self, job: JobId) -> Result<(), String>;
    fn boost(&mut self, job: JobId, boost: &Boost) -> Result<(), String>;
    /// The ranks of the job's running gangs save a checkpoint, now.
    fn save(&mut self, job: JobId) -> Result<(), String>;
    /// The desired number of replicas of a service changes.
    fn scale(&mut self, job: JobId, replicas: u32) -> Result<(), String>;
    /// The load that the replicas of a service share, and report, from now on.
    fn load(&mut self, job: JobId, of: &Target) -> Result<(), String>;
    /// A session is used now.
    fn use_session(&mut self, job: JobId) -> Result<(), String>;
    fn crash(&mut self) -> Result<(), String>;

    fn now(&self) -> Timestamp;
    /// In the order of their paths.
    fn nodes(&self) -> Vec<Node>;
    /// By number.
    fn jobs(&self) -> Vec<(Job, Vec<GangRecord>)>;
    fn report(&self, gang: GangId) -> Option<Report>;
    /// Parents before their children.
    fn queues(&self) -> Vec<QueueReport>;
    /// The running time that a gang has saved in checkpoints, in milliseconds. `None` for a gang without checkpoints.
    fn saved_ms(&self, gang: GangId) -> Option<u64>;
    /// The events since the last call.
    fn take_events(&mut self) -> Vec<(Timestamp, Event)>;
}
