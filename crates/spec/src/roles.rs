//! Members beside the ranks of a job that need something else: a launcher, parameter servers.

use std::collections::BTreeMap;

use phalanx_model::{DEVICES_PER_NODE_MAX, LaunchKind, Needs, Program, Role, RoleName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::SpecError;
use crate::job::JobFile;
use crate::place::At;
use crate::resources::ResourcesFile;
use crate::scalar::{Count, VariableName};
use crate::submit::SubmitContext;

/// Roles of one job, as many as the engine takes.
const ROLES_MAX: usize = 16;
/// What the ranks themselves are called.
const MAIN: &str = "main";

/// Equal members beside the ranks of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoleFile {
    /// Number of members. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<At<Count>>,
    /// GPUs, CPUs, memory and named resources of EACH member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesFile>,
    /// Shell text (bash) to run, after the job's `setup`. Default: what the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<At<String>>,
    /// Program and arguments, run without a shell. Default: what the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<At<String>>>,
    /// Variables beside those of the job; they win over these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<At<VariableName>, At<String>>,
}

impl JobFile {
    /// In natural order of their names, which is the order of their ranks.
    pub(crate) fn roles(&self, main: &Program, context: &SubmitContext) -> Result<Vec<Role>, SpecError> {
        if let Some((name, _)) = self.roles.iter().nth(ROLES_MAX) {
            let what = format!("{} roles", self.roles.len());
            return Err(self.source.error(name.place, what, format!("at most {ROLES_MAX}")));
        }
        self.roles.iter().map(|(name, role)| self.role(name, role, main, context)).collect()
    }

    fn role(
        &self,
        name: &At<RoleName>,
        role: &RoleFile,
        main: &Program,
        context: &SubmitContext,
    ) -> Result<Role, SpecError> {
        if name.value.as_str() == MAIN {
            let what = "`main` is what the ranks of the job itself are called";
            return Err(self.source.error(name.place, what, "give the role another name"));
        }
        let resources = role.resources.clone().unwrap_or_default();
        let count = resources.gpus.as_ref().and_then(|gpus| gpus.count);
        if let Some(count) = count.filter(|count| count.value.0 > DEVICES_PER_NODE_MAX) {
            let what = format!("{} GPUs for each member of {}", count.value.0, name.value);
            return Err(self.source.error(count.place, what, format!("at most {DEVICES_PER_NODE_MAX}")));
        }
        Ok(Role {
            name: name.value.clone(),
            size: role.count.map_or(1, |count| count.value.0),
            needs: Needs {
                devices: count.map_or(0, |count| count.value.0),
                ..self.member_needs(&resources, 1, &context.owner)?
            },
            segments: Vec::new(),
            program: self.role_program(role, main, &context.default_workdir)?,
        })
    }

    /// The role that launches the ranks of an MPI job which says no program of its own: the first without GPUs.
    pub(crate) fn mpi_launcher(&self) -> Option<&RoleFile> {
        let has_own = self.run.is_some() || self.command.is_some();
        let launches = |role: &&RoleFile| {
            let gpus = role.resources.as_ref().and_then(|resources| resources.gpus.as_ref());
            gpus.is_none() && (role.run.is_some() || role.command.is_some())
        };
        let is_mpi = self.launch_kind() == LaunchKind::Mpi;
        self.roles.values().find(launches).filter(|_| is_mpi && !has_own)
    }

    /// Processes of a role are each by themselves: no launcher of the job starts them.
    fn role_program(
        &self,
        role: &RoleFile,
        main: &Program,
        default_workdir: &str,
    ) -> Result<Option<Program>, SpecError> {
        if let Some((variable, secret)) =
            role.env.keys().find_map(|name| Some((name, self.secrets.0.get_key_value(name)?.0)))
        {
            let what = format!("{} is both a secret and a plain variable", variable.value.0);
            let error = self.source.error(variable.place, what, "give it under `secrets` or under `env`");
            return Err(self.also(error, Some(secret.place), "the secret"));
        }
        if role.run.is_some() || role.command.is_some() {
            let argv = self.argv(role.run.as_ref(), role.command.as_deref())?;
            let program = self.program_of(argv, BTreeMap::new(), &role.env, default_workdir)?;
            let is_launcher = self.mpi_launcher().is_some_and(|launcher| std::ptr::eq(launcher, role));
            let launch = if is_launcher { LaunchKind::Mpi } else { LaunchKind::Ranks };
            return Ok(Some(Program { launch, notify: None, ..program }));
        }
        if role.env.is_empty() {
            return Ok(None);
        }
        let mut program = main.clone();
        let own = role.env.iter().map(|(name, value)| (name.value.0.clone(), value.value.clone()));
        program.env.extend(own);
        Ok(Some(Program { notify: None, ..program }))
    }
}
