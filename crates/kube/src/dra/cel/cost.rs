//! What an expression can cost at most, on the largest device that the API allows.
//!
//! The interpreter has no brakes, so an expression is judged before it runs. Costs are counted as upstream counts
//! them: one for each step, and for what walks along a text or a list, its length.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// As upstream's `CELSelectorExpressionMaxCost`.
const COST_MAX: u64 = 1_000_000;
/// Entries of a map and length of a text that a device can have.
const DEVICE_VALUE: u64 = 64;

/// What a part of an expression costs, and how long what it gives can be.
#[derive(Clone, Copy, Default)]
struct Bound {
    cost: u64,
    length: u64,
}

/// # Errors
/// When it may cost too much, or names a variable that is not there.
pub(super) fn check(expression: &IdedExpr, is_type: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let cost = Judge { is_type, scope: BTreeMap::new() }.bound(expression)?.cost;
    if cost > COST_MAX {
        return Err(format!(
            "too complex: it may cost {cost}, at most {COST_MAX} is allowed; nest fewer loops and bindings"
        ));
    }
    Ok(())
}

struct Judge<'a> {
    is_type: &'a dyn Fn(&str) -> bool,
    /// Variables of the loops and bindings around, with the length of their value.
    scope: BTreeMap<String, u64>,
}

impl Judge<'_> {
    fn bound(&mut self, expression: &IdedExpr) -> Result<Bound, String> {
        match &expression.expr {
            Expr::Unspecified => Err("an empty expression".to_owned()),
            Expr::Literal(literal) => Ok(Bound { cost: 0, length: literal_length(literal) }),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let operand = self.bound(&select.operand)?;
                Ok(Bound { cost: operand.cost.saturating_add(1), length: DEVICE_VALUE.max(operand.length) })
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(loop_) => self.comprehension(loop_),
            Expr::List(list) => self.all(list.elements.iter()),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(value) => Err(format!("unknown type `{}`", value.type_name)),
        }
    }

    fn variable(&self, name: &str) -> Result<Bound, String> {
        let known = self.scope.get(name).copied();
        let length = known.or_else(|| (name == "device" || (self.is_type)(name)).then_some(DEVICE_VALUE));
        let length = length
            .ok_or_else(|| format!("undeclared reference to '{name}': `device` is the only variable"))?;
        Ok(Bound { cost: 1, length })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Bound, String> {
        // `optional.of(x)`: the target is a namespace and no value.
        let is_namespace = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name != "device" && !self.scope.contains_key(name));
        let target = call.target.as_deref().filter(|target| !is_namespace(target));
        let parts = self.all(target.into_iter().chain(&call.args))?;
        let length = match call.func_name.as_str() {
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => parts.length.max(DEVICE_VALUE),
            // Each place can be replaced by the whole of another text.
            "replace" | "join" | "format" => parts.length.saturating_mul(parts.length),
            _ => parts.length,
        };
        // A step, and a walk along what is given and what comes of it.
        let walk = if walks(&call.func_name) { parts.length.saturating_add(length) } else { 1 };
        Ok(Bound { cost: parts.cost.saturating_add(1).saturating_add(walk), length })
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr) -> Result<Bound, String> {
        let range = self.bound(&loop_.iter_range)?;
        let start = self.bound(&loop_.accu_init)?;
        let rounds = range.length;
        let variables: Vec<&String> =
            [Some(&loop_.iter_var), loop_.iter_var2.as_ref(), Some(&loop_.accu_var)]
                .into_iter()
                .flatten()
                .collect();
        let shadowed: Vec<_> = variables.iter().map(|name| (*name, self.scope.get(*name).copied())).collect();

        self.scope.insert(loop_.iter_var.clone(), DEVICE_VALUE.max(range.length));
        if let Some(second) = &loop_.iter_var2 {
            self.scope.insert(second.clone(), DEVICE_VALUE.max(range.length));
        }
        // A round adds to the result what the step gives to an empty one.
        self.scope.insert(loop_.accu_var.clone(), 0);
        let condition = self.bound(&loop_.loop_cond)?;
        let step = self.bound(&loop_.loop_step)?;
        let length = start.length.saturating_add(rounds.saturating_mul(step.length));
        self.scope.insert(loop_.accu_var.clone(), length);
        let result = self.bound(&loop_.result)?;
        for (name, before) in shadowed {
            match before {
                Some(length) => self.scope.insert(name.clone(), length),
                None => self.scope.remove(name),
            };
        }
        let round = condition.cost.saturating_add(step.cost).saturating_add(1);
        let cost = range.cost.saturating_add(start.cost).saturating_add(result.cost);
        Ok(Bound { cost: cost.saturating_add(rounds.saturating_mul(round)), length: result.length })
    }

    /// What some parts cost together; as long as all of them.
    fn all<'e>(&mut self, parts: impl Iterator<Item = &'e IdedExpr>) -> Result<Bound, String> {
        let mut sum = Bound::default();
        for part in parts {
            let part = self.bound(part)?;
            sum.cost = sum.cost.saturating_add(part.cost);
            sum.length = sum.length.saturating_add(part.length.max(1));
        }
        Ok(sum)
    }

    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) -> Result<Bound, String> {
        let parts = entries.flat_map(|entry| match entry {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        });
        self.all(parts)
    }
}

fn literal_length(literal: &LiteralValue) -> u64 {
    let length = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        _ => 1,
    };
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Whether a function looks at its arguments from end to end. Operators on numbers and truths do not, but those on
/// texts and lists are written the same.
fn walks(function: &str) -> bool {
    !matches!(
        function,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::CONDITIONAL
            | operators::INDEX
            | operators::OPT_INDEX
            | operators::OPT_SELECT
            | operators::NOT_STRICTLY_FALSE
    )
}
