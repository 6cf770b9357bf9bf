//! The parts of a request: names in the path, parameters of the query, the body.

use std::str::FromStr;

use phalanx_model::{JobId, NodeName, QueueName, Timestamp};
use serde::de::DeserializeOwned;

use super::problem::Problem;
use super::routes::Route;
use crate::protocol::{JobRef, LIMIT_MAX};

/// Items of a list if the request does not say.
pub(crate) const LIMIT: u32 = 200;

/// A request that was read, for one route.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Of the header `Idempotency-Key`.
    pub(crate) key: Option<String>,
    /// Of the header `Last-Event-ID`.
    pub(crate) last_event: Option<u64>,
}

impl Asked {
    /// A parameter that the route does not have is an error, for what it was to do is not done.
    pub(crate) fn check(&self, route: &Route) -> Result<(), Box<Problem>> {
        let known = || route.query.iter().map(|query| query.name);
        let mut seen: Vec<&str> = Vec::new();
        for (name, _) in &self.query {
            if !known().any(|known| known == name) {
                let names = known().collect::<Vec<_>>().join(", ");
                let hint = if names.is_empty() {
                    "this route takes none".to_owned()
                } else {
                    format!("this route takes {names}")
                };
                return Err(Problem::field(name, "is no parameter here", hint));
            }
            if seen.contains(&name.as_str()) {
                return Err(Problem::field(name, "is given twice", "give it once"));
            }
            seen.push(name);
        }
        Ok(())
    }

    fn named(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn job(&self) -> JobRef {
        JobRef::parse(self.named("job"))
    }

    pub(crate) fn node(&self) -> Result<NodeName, Box<Problem>> {
        NodeName::new(self.named("node")).map_err(|e| Problem::field("node", e.to_string(), ""))
    }

    /// A node that a parameter names.
    pub(crate) fn node_in(&self, name: &str) -> Result<Option<NodeName>, Box<Problem>> {
        let node = self.text(name).map(NodeName::new).transpose();
        node.map_err(|e| Problem::field(name, e.to_string(), ""))
    }

    pub(crate) fn queue(&self) -> Result<QueueName, Box<Problem>> {
        QueueName::new(self.named("queue")).map_err(|e| Problem::field("queue", e.to_string(), ""))
    }

    pub(crate) fn name(&self) -> String {
        self.named("name").to_owned()
    }

    /// A parameter, if it is given and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Box<Problem>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong =
            |_| Problem::field(name, format!("{text:?} is no number in range"), "give a whole number");
        text.parse().map(Some).map_err(wrong)
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, Box<Problem>> {
        Ok(self.number(name)?.map(Timestamp))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Box<Problem>> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Problem::field(name, format!("{other:?} is neither true nor false"), "")),
        }
    }

    /// Words that are divided by commas.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let words = self.text(name).into_iter().flat_map(|text| text.split(','));
        words.map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    }

    /// Nodes that are divided by commas. A comma in brackets belongs to a pattern: `gpu-[1,3],gpu-7`.
    pub(crate) fn patterns(&self, name: &str) -> Vec<String> {
        let mut is_inside = false;
        let is_end = |letter: char| {
            is_inside = if is_inside { letter != ']' } else { letter == '[' };
            letter == ',' && !is_inside
        };
        let words = self.text(name).unwrap_or_default().split(is_end).map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// How many items are wanted.
    pub(crate) fn limit(&self) -> Result<u32, Box<Problem>> {
        let limit = self.number("limit")?.unwrap_or(LIMIT);
        if (1..=LIMIT_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::field("limit", format!("{limit} is not between 1 and {LIMIT_MAX}"), ""))
    }

    /// The number of the job after which a list goes on.
    pub(crate) fn after(&self) -> Result<Option<JobId>, Box<Problem>> {
        Ok(self.number("after")?.map(JobId))
    }

    /// The body as a document; nothing stands for an empty one. A field that it does not have is an error, for what it was to
    /// say is not done.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Box<Problem>> {
        const HINT: &str = "GET /v1/openapi.json has the schema of the body";
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        let mut reader = serde_json::Deserializer::from_slice(body);
        let (mut unknown, mut track) = (None, serde_path_to_error::Track::new());
        let mut ignored = |path: serde_ignored::Path<'_>| {
            unknown.get_or_insert_with(|| path.to_string());
        };
        let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
        let read = T::deserialize(serde_ignored::Deserializer::new(tracked, &mut ignored));
        let value = read.map_err(|e| {
            let path = track.path().to_string();
            let field = if path == "." { "body".to_owned() } else { path };
            Problem::field(&field, e.to_string(), HINT)
        })?;
        reader.end().map_err(|e| Problem::field("body", e.to_string(), "send one JSON document"))?;
        match unknown {
            Some(field) => Err(Problem::field(&field, "no such field", HINT)),
            None => Ok(value),
        }
    }

    /// The body as text.
    pub(crate) fn body_text(&self) -> Result<String, Box<Problem>> {
        String::from_utf8(self.body.clone())
            .map_err(|_| Problem::field("body", "is not UTF-8", "send JSON or YAML as UTF-8"))
    }
}
