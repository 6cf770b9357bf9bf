//! Selectors: CEL expressions over one device, with the variable and the functions that Kubernetes gives them.
//!
//! | | as upstream |
//! |---|---|
//! | `device.driver`, `device.allowMultipleAllocations` | a string, a boolean |
//! | `device.attributes["domain"].name` | boolean, integer, string, semantic version, or a list of one of them |
//! | `device.capacity["domain"].name` | a quantity |
//! | a domain that the device does not name | an empty map |
//! | a name that the domain does not have | an error, which ends the allocation: `in` and `has()` ask first |
//! | functions | CEL's own, strings, `cel.bind`, optionals, quantities, semantic versions, `includes` |
//!
//! Types are checked when an expression is evaluated and not before. An expression whose cost could exceed
//! upstream's limit on the largest device that the API allows is refused before it is evaluated.

mod cost;
mod depth;
mod functions;
mod value;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::types::CelBool;
use cel::{Context, DeclarationError, Env, Program, Value};
use k8s_openapi::api::resource::v1::Device;

/// Bytes of an expression, as the API allows.
const LENGTH_MAX: usize = 10 * 1024;
/// Expressions that are remembered. A cluster has a handful; who has more compiles some of them again.
const REMEMBERED_MAX: usize = 4096;

/// The language, built once.
static LANGUAGE: LazyLock<Result<Arc<Env>, String>> =
    LazyLock::new(|| language().map(Arc::new).map_err(|why| why.to_string()));

fn language() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings)?;
    env.add_extension(functions::bindings)?;
    env.add_extension(functions::quantities)?;
    env.add_extension(functions::versions)?;
    env.add_extension(functions::includes)?;
    Ok(env)
}

/// A compiled expression.
pub struct Selector {
    program: Program,
    language: Arc<Env>,
}

impl Selector {
    /// # Errors
    /// When the expression is too long, too costly, or no CEL; in the compiler's words.
    pub fn compile(expression: &str) -> Result<Self, String> {
        if expression.len() > LENGTH_MAX {
            return Err(format!(
                "the expression has {} bytes, at most {LENGTH_MAX} may be",
                expression.len()
            ));
        }
        depth::check(expression)?;
        let language = Arc::clone(LANGUAGE.as_ref().map_err(Clone::clone)?);
        let program = language.compile(expression).map_err(|why| why.to_string())?;
        let is_type = |name: &str| language.types().find_type(name).is_some();
        cost::check(program.expression(), &is_type)?;
        Ok(Self { program, language })
    }

    /// Whether a device of a driver is selected.
    ///
    /// # Errors
    /// When evaluation fails, as for an attribute that the device does not have, or gives no boolean.
    pub fn selects(&self, driver: &str, device: &Device) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&self.language));
        context.add_variable_as_val("device", value::device(driver, device)?);
        let result =
            Value::resolve_val(self.program.expression(), &context).map_err(|why| why.to_string())?;
        let truth = result.downcast_ref::<CelBool>().map(|truth| *truth.inner());
        truth.ok_or_else(|| format!("must evaluate to bool, not {}", result.get_type().name()))
    }
}

/// Compiled expressions by their text; what does not compile is remembered as well.
#[derive(Default)]
pub(crate) struct Selectors {
    compiled: Mutex<HashMap<String, Result<Arc<Selector>, String>>>,
}

impl Selectors {
    pub(crate) fn of(&self, expression: &str) -> Result<Arc<Selector>, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(expression) {
            return known.clone();
        }
        if compiled.len() >= REMEMBERED_MAX {
            compiled.clear();
        }
        let new = Selector::compile(expression).map(Arc::new);
        compiled.insert(expression.to_owned(), new.clone());
        new
    }
}

#[cfg(test)]
mod tests;
