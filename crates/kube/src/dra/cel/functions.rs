//! What Kubernetes adds to CEL, as far as a device's values call for it.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, DYN_TYPE};
use cel::common::value::CowVal;
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, ExecutionError, add_member_overload, add_overload};

use super::value::{Quantity, Version};
use crate::quantity::Amount;

/// The most values that `includes` looks through, as upstream.
const INCLUDES_MAX: i64 = 48;

/// `cel.bind(name, value, expression)`.
pub(super) fn bindings(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, bind))
}

/// A loop without rounds: its result is the expression, with the name bound to what the loop starts from.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let is_ours =
        matches!(target.as_ref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == "cel");
    let name = match args.first().map(|name| (&name.expr, name.id)) {
        Some((Expr::Ident(name), _)) if is_ours => name.clone(),
        Some((_, id)) if is_ours => {
            return Err(helper.new_error(id, "cel.bind() variable names must be simple identifiers"));
        }
        _ => return Ok(None),
    };
    let (Some(result), Some(value)) = (args.pop(), args.pop()) else {
        return Ok(None);
    };
    let bound = ComprehensionExpr {
        iter_range: helper.next_expr(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: value,
        loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: helper.next_expr(Expr::Ident(name)),
        result,
    };
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(bound)))))
}

fn failed(function: &str, why: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

fn compared(ordering: std::cmp::Ordering) -> CelInt {
    CelInt::from(ordering as i64)
}

/// `quantity("40Gi")` and what can be asked of one.
pub(super) fn quantities(env: &mut Env) -> Result<(), DeclarationError> {
    fn quantity(text: &CelString<'_>) -> Result<Quantity, ExecutionError> {
        Amount::parse(text.inner()).map(Quantity).map_err(|why| failed("quantity", why))
    }
    fn is_quantity(text: &CelString<'_>) -> CelBool {
        CelBool::from(Amount::parse(text.inner()).is_ok())
    }
    fn sign(this: &Quantity) -> CelInt {
        CelInt::from(this.0.sign())
    }
    fn is_integer(this: &Quantity) -> CelBool {
        CelBool::from(this.0.exactly().is_some())
    }
    fn as_integer(this: &Quantity) -> Result<CelInt, ExecutionError> {
        let whole = this.0.exactly().map(CelInt::from);
        whole.ok_or_else(|| failed("asInteger", "cannot convert value to integer"))
    }
    fn as_approximate_float(this: &Quantity) -> CelDouble {
        CelDouble::from(this.0.approximately())
    }
    fn add(this: &Quantity, other: &Quantity) -> Quantity {
        Quantity(this.0.plus(other.0))
    }
    fn add_int(this: &Quantity, other: &CelInt) -> Quantity {
        Quantity(this.0.plus(Amount::whole(*other.inner())))
    }
    fn sub(this: &Quantity, other: &Quantity) -> Quantity {
        Quantity(this.0.minus(other.0))
    }
    fn sub_int(this: &Quantity, other: &CelInt) -> Quantity {
        Quantity(this.0.minus(Amount::whole(*other.inner())))
    }
    fn is_greater_than(this: &Quantity, other: &Quantity) -> CelBool {
        CelBool::from(this.0 > other.0)
    }
    fn is_less_than(this: &Quantity, other: &Quantity) -> CelBool {
        CelBool::from(this.0 < other.0)
    }
    fn compare_to(this: &Quantity, other: &Quantity) -> CelInt {
        compared(this.0.cmp(&other.0))
    }
    add_overload!(env, fn quantity: (CelString) -> Result<Quantity>)?;
    add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    add_member_overload!(env, fn sign: (Quantity) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Quantity) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Quantity) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Quantity) -> CelDouble)?;
    add_member_overload!(env, fn add: (Quantity, Quantity) -> Quantity)?;
    add_member_overload!(env, fn add_int: (Quantity, CelInt) -> Quantity, name = "add")?;
    add_member_overload!(env, fn sub: (Quantity, Quantity) -> Quantity)?;
    add_member_overload!(env, fn sub_int: (Quantity, CelInt) -> Quantity, name = "sub")?;
    add_member_overload!(env, fn is_greater_than: (Quantity, Quantity) -> CelBool)?;
    add_member_overload!(env, fn is_less_than: (Quantity, Quantity) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Quantity, Quantity) -> CelInt)
}

/// `semver("1.2.3")` and what can be asked of one.
pub(super) fn versions(env: &mut Env) -> Result<(), DeclarationError> {
    fn semver(text: &CelString<'_>) -> Result<Version, ExecutionError> {
        Version::parse(text.inner()).map_err(|why| failed("semver", why))
    }
    fn semver_lenient(text: &CelString<'_>, is_lenient: &CelBool) -> Result<Version, ExecutionError> {
        parse(text, is_lenient).map_err(|why| failed("semver", why))
    }
    fn is_semver(text: &CelString<'_>) -> CelBool {
        CelBool::from(Version::parse(text.inner()).is_ok())
    }
    fn is_semver_lenient(text: &CelString<'_>, is_lenient: &CelBool) -> CelBool {
        CelBool::from(parse(text, is_lenient).is_ok())
    }
    fn parse(text: &CelString<'_>, is_lenient: &CelBool) -> Result<Version, String> {
        if *is_lenient.inner() {
            Version::parse(&completed(text.inner()))
        } else {
            Version::parse(text.inner())
        }
    }
    fn part(number: u64) -> CelInt {
        CelInt::from(i64::try_from(number).unwrap_or(i64::MAX))
    }
    fn major(this: &Version) -> CelInt {
        part(this.0.major)
    }
    fn minor(this: &Version) -> CelInt {
        part(this.0.minor)
    }
    fn patch(this: &Version) -> CelInt {
        part(this.0.patch)
    }
    fn is_greater_than(this: &Version, other: &Version) -> CelBool {
        CelBool::from(this.0.cmp_precedence(&other.0).is_gt())
    }
    fn is_less_than(this: &Version, other: &Version) -> CelBool {
        CelBool::from(this.0.cmp_precedence(&other.0).is_lt())
    }
    fn compare_to(this: &Version, other: &Version) -> CelInt {
        compared(this.0.cmp_precedence(&other.0))
    }
    add_overload!(env, fn semver: (CelString) -> Result<Version>)?;
    add_overload!(env, fn semver_lenient: (CelString, CelBool) -> Result<Version>, name = "semver")?;
    add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    add_overload!(env, fn is_semver_lenient: (CelString, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn major: (Version) -> CelInt)?;
    add_member_overload!(env, fn minor: (Version) -> CelInt)?;
    add_member_overload!(env, fn patch: (Version) -> CelInt)?;
    add_member_overload!(env, fn is_greater_than: (Version, Version) -> CelBool)?;
    add_member_overload!(env, fn is_less_than: (Version, Version) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Version, Version) -> CelInt)
}

/// `v1.02` as `1.2.0`: without a leading `v`, with three numbers, none of which begins with a zero.
fn completed(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<&str> = numbers.split('.').collect();
    parts.resize(parts.len().max(3), "0");
    let stripped = parts.iter().map(|part| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        stripped => stripped,
    });
    stripped.collect::<Vec<_>>().join(".") + rest
}

/// `attribute.includes(value)`: whether a list holds the value, or a single value is it.
pub(super) fn includes(env: &mut Env) -> Result<(), DeclarationError> {
    #[expect(clippy::needless_pass_by_value, reason = "this is what an overload looks like")]
    fn includes<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
        let [this, wanted] = args.as_slice() else {
            return Err(ExecutionError::invalid_argument_count(2, args.len()));
        };
        let Some(list) = this.as_iterable() else {
            return Ok(CowVal::owned(CelBool::from(this.equals(wanted.as_ref()))));
        };
        let size = this.as_sizer().map_or(0, |sizer| *sizer.size().inner());
        if size > INCLUDES_MAX {
            return Err(failed(
                "includes",
                format!("the list has {size} values, at most {INCLUDES_MAX} may be"),
            ));
        }
        let mut values = list.iter();
        let mut is_there = false;
        while let Some(value) = values.next() {
            is_there |= value.equals(wanted.as_ref());
        }
        Ok(CowVal::owned(CelBool::from(is_there)))
    }
    env.add_member_overload("includes", "dyn.includes(dyn)", DYN_TYPE, vec![DYN_TYPE], includes)
}
