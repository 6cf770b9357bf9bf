//! Scenarios on the simulated world: nothing goes wrong but what the scenario says.

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Bandwidth, Boost, Exit, GangId, GangRecord, Health, Input, Job, JobId, LevelName, Levels, MemberId, Node,
    NodeName, Queue, QueueName, QueueReport, Report, Service, Session, Settings, Target, Timestamp,
};
use phalanx_scenario::{Event, ScenarioError, Submission};

use crate::{Failure, Faults, World};

/// Runs a scenario and gives what it printed.
///
/// # Errors
/// With the line at which it cannot be read, cannot be carried out, or is not as expected; also when the checker
/// finds something broken there.
pub fn run_scenario(text: &str) -> Result<String, ScenarioError> {
    let world = World::new(phalanx_engine::Config::default(), Faults::none(), 0);
    phalanx_scenario::run(text, &mut Scene(world.keeping_events().keeping_promises()))
}

/// A world for scenarios.
#[derive(Debug)]
struct Scene(World);

fn what(failure: Failure) -> String {
    failure.what
}

impl phalanx_scenario::World for Scene {
    fn levels(&mut self, levels: &Levels) -> Result<(), String> {
        self.0.configure(levels.clone()).map_err(what)
    }

    fn uplink(&mut self, level: &LevelName, mb_per_s: u32) -> Result<(), String> {
        self.0.uplink(level.clone(), mb_per_s);
        Ok(())
    }

    fn node(&mut self, node: Node) -> Result<(), String> {
        self.0.add_node(node).map_err(what)
    }

    fn submit(&mut self, submission: &Submission) -> Result<JobId, String> {
        self.0.submit(&submission.job, &submission.script).map_err(what)
    }

    fn advance(&mut self, ms: u64) -> Result<(), String> {
        self.0.advance_to(self.0.now().plus(ms)).map_err(what)
    }

    fn end_member(&mut self, job: JobId, rank: u32, exit: Exit) -> Result<(), String> {
        let gang = job.gang(0);
        let record = self.0.engine().gang(gang).ok_or("the job was not accepted")?;
        let member = MemberId { gang, attempt: record.attempt, rank };
        if !self.0.living().contains(&member) {
            return Err(format!("rank {rank} does not live; the job is {}", record.phase.word()));
        }
        self.0.end_member(member, exit).map_err(what)
    }

    fn cordon(&mut self, node: &NodeName) -> Result<(), String> {
        self.0.tell([Input::NodeCordoned { node: node.clone() }]).map_err(what)
    }

    fn uncordon(&mut self, node: &NodeName) -> Result<(), String> {
        self.0.tell([Input::NodeUncordoned { node: node.clone() }]).map_err(what)
    }

    fn drain(&mut self, node: &NodeName) -> Result<(), String> {
        self.0.tell([Input::DrainRequested { node: node.clone() }]).map_err(what)
    }

    fn defrag(&mut self, job: JobId) -> Result<(), String> {
        let gang = Some(job.gang(0));
        self.0.tell([Input::DefragmentationRequested { gang }]).map_err(what)
    }

    fn grade(&mut self, health: &Health) -> Result<(), String> {
        self.0.tell([Input::HealthGraded { health: health.clone() }]).map_err(what)
    }

    fn measure(&mut self, bandwidth: &Bandwidth) -> Result<(), String> {
        self.0.tell([Input::BandwidthMeasured { bandwidth: bandwidth.clone() }]).map_err(what)
    }

    fn window(&mut self, window: &Calendar) -> Result<(), String> {
        self.0.tell([Input::CalendarObserved { calendar: window.clone() }]).map_err(what)
    }

    fn spot_notice(&mut self, notice: &SpotNotice) -> Result<(), String> {
        self.0.tell([Input::SpotNoticed { notice: notice.clone() }]).map_err(what)
    }

    fn lose_node(&mut self, node: &NodeName) -> Result<(), String> {
        self.0.lose_node(node).map_err(what)
    }

    fn return_node(&mut self, node: &NodeName) -> Result<(), String> {
        self.0.return_node(node).map_err(what)
    }

    fn cancel(&mut self, job: JobId) -> Result<(), String> {
        self.0.tell([Input::CancelRequested { job, by: "user".to_owned() }]).map_err(what)
    }

    fn settings(&mut self, settings: &Settings) -> Result<(), String> {
        self.0.tell([Input::SettingsConfigured { settings: Box::new(settings.clone()) }]).map_err(what)
    }

    fn queue(&mut self, queue: &Queue) -> Result<(), String> {
        self.0.tell([Input::QueueObserved { queue: Box::new(queue.clone()) }]).map_err(what)
    }

    fn remove_queue(&mut self, queue: &QueueName) -> Result<(), String> {
        self.0.tell([Input::QueueRemoved { queue: queue.clone() }]).map_err(what)
    }

    fn hold(&mut self, job: JobId) -> Result<(), String> {
        self.0.tell([Input::JobHeld { job, by: "user".to_owned() }]).map_err(what)
    }

    fn release(&mut self, job: JobId) -> Result<(), String> {
        self.0.tell([Input::JobReleased { job, by: "user".to_owned() }]).map_err(what)
    }

    fn boost(&mut self, job: JobId, boost: &Boost) -> Result<(), String> {
        self.0.tell([Input::JobBoosted { job, boost: Some(boost.clone()) }]).map_err(what)
    }

    fn save(&mut self, job: JobId) -> Result<(), String> {
        self.0.save(job).map_err(what)
    }

    fn scale(&mut self, job: JobId, replicas: u32) -> Result<(), String> {
        let service = Service { job, replicas, looks: Vec::new(), is_set: true };
        self.0.tell([Input::ServiceObserved { service }]).map_err(what)
    }

    fn load(&mut self, job: JobId, of: &Target) -> Result<(), String> {
        self.0.load(job, of).map_err(what)
    }

    fn use_session(&mut self, job: JobId) -> Result<(), String> {
        let session = Session { job, used_at: self.0.now() };
        self.0.tell([Input::SessionObserved { session }]).map_err(what)
    }

    fn crash(&mut self) -> Result<(), String> {
        self.0.crash().map_err(what)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.0.engine().nodes().cloned().collect();
        nodes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
        nodes
    }

    fn jobs(&self) -> Vec<(Job, Vec<GangRecord>)> {
        self.0.engine().jobs().map(|(job, records)| (job.clone(), records.to_vec())).collect()
    }

    fn report(&self, gang: GangId) -> Option<Report> {
        self.0.engine().explain(gang)
    }

    fn queues(&self) -> Vec<QueueReport> {
        self.0.engine().queues()
    }

    fn saved_ms(&self, gang: GangId) -> Option<u64> {
        self.0.saved_ms(gang)
    }

    fn take_events(&mut self) -> Vec<(Timestamp, Event)> {
        self.0.take_events()
    }
}
