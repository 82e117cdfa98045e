//! Values and conditions: what is compared with what, and as what.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, BoolExprType, BoolTestType, Node, NullTestType, TypeCast};

use crate::encoding::Kind as Type;

use super::SqlError;
use super::literal::{canonical, converts, plain_type};
use super::predicate::{Comparison, Operand, Predicate, encoded};
use super::scope::Scope;
use super::term::Term;
use super::tree::{Literal, LiteralKind, boxed, constant, inner, names};
use super::types::{BOOL, INT4, INT8, NUMERIC, TEXT, type_named};

impl Scope {
    pub(super) fn term(&mut self, node: Option<&NodeEnum>) -> Result<Term, SqlError> {
        let node = node.ok_or_else(|| SqlError::unsupported("an empty expression"))?;
        if let Some(literal) = constant(node) {
            return Ok(Term::literal(literal));
        }
        match node {
            NodeEnum::ColumnRef(column) => {
                let mut names = names(&column.fields);
                if names.len() != column.fields.len() {
                    return Err(SqlError::unsupported("* in an expression"));
                }
                let name = names.pop().unwrap_or_default();
                let qualifier = (!names.is_empty()).then_some(names.as_slice());
                Ok(Term::column(self.find(qualifier, &name)?))
            }
            NodeEnum::ParamRef(parameter) => {
                let number = usize::try_from(parameter.number - 1)
                    .map_err(|_| SqlError::new("42P02", "there is no parameter $0"))?;
                if self.parameters.len() <= number {
                    self.parameters.resize(number + 1, 0);
                }
                Ok(Term {
                    operand: Operand::Parameter(number),
                    literal: None,
                    cast: None,
                    in_byte_order: false,
                })
            }
            NodeEnum::TypeCast(cast) => self.cast(cast),
            NodeEnum::CollateClause(collate) => {
                let mut term = self.term(boxed(&collate.arg))?;
                let name = names(&collate.collname).pop().unwrap_or_default();
                if !matches!(name.as_str(), "C" | "POSIX") {
                    return Err(SqlError::unsupported(format!("the collation {name}")));
                }
                term.in_byte_order = true;
                Ok(term)
            }
            // A minus before a number.
            NodeEnum::AExpr(expression)
                if expression.kind == AExprKind::AexprOp as i32
                    && expression.lexpr.is_none()
                    && names(&expression.name) == ["-"] =>
            {
                match boxed(&expression.rexpr).and_then(constant) {
                    Some(Some(literal)) if literal.kind != LiteralKind::Text => {
                        Ok(Term::literal(Some(Literal {
                            text: format!("-{}", literal.text),
                            kind: literal.kind,
                        })))
                    }
                    _ => Err(SqlError::unsupported("arithmetic")),
                }
            }
            NodeEnum::AExpr(_) => Err(SqlError::unsupported("arithmetic or another operator")),
            NodeEnum::FuncCall(call) => Err(SqlError::unsupported(format!(
                "the function {}",
                names(&call.funcname).join(".")
            ))),
            NodeEnum::SubLink(_) => Err(SqlError::unsupported("a subquery")),
            NodeEnum::CaseExpr(_) => Err(SqlError::unsupported("CASE")),
            NodeEnum::CoalesceExpr(_) => Err(SqlError::unsupported("COALESCE")),
            _ => Err(SqlError::unsupported("an expression of this kind")),
        }
    }

    fn cast(&mut self, cast: &TypeCast) -> Result<Term, SqlError> {
        let mut term = self.term(boxed(&cast.arg))?;
        let wanted = cast
            .type_name
            .as_ref()
            .map(|name| names(&name.names))
            .unwrap_or_default();
        let oid = type_named(&wanted)
            .ok_or_else(|| SqlError::unsupported(format!("a cast to {}", wanted.join("."))))?;
        plain_type(cast)?;
        match &mut term.operand {
            Operand::Column(number) => {
                let from = self.column(*number);
                let same = from.type_oid == oid;
                let to_text =
                    matches!(oid, TEXT | 1043) && !matches!(from.kind, Type::Bool | Type::Padded);
                if !same && !to_text {
                    return Err(SqlError::unsupported(format!(
                        "a cast of column {}",
                        from.name
                    )));
                }
                if !same {
                    return Err(SqlError::unsupported(format!(
                        "a cast of column {} within an expression",
                        from.name
                    )));
                }
            }
            Operand::Parameter(number) => {
                let declared = &mut self.parameters[*number];
                if *declared == 0 {
                    *declared = oid;
                }
            }
            Operand::Constant(None) => {}
            Operand::Constant(Some(text)) => {
                let from = term.literal.filter(|_| term.cast.is_none());
                if !converts(from, oid, text) {
                    return Err(SqlError::unsupported(format!(
                        "a cast of {text} to {}",
                        wanted.last().map_or("", String::as_str)
                    )));
                }
                *text = canonical(oid, text)?;
            }
        }
        term.cast = Some(oid);
        Ok(term)
    }

    /// The type of a term, where it has one of its own.
    pub(super) fn type_of(&self, term: &Term) -> Option<u32> {
        if let Some(oid) = term.cast {
            return Some(oid);
        }
        match &term.operand {
            Operand::Column(number) => Some(self.column(*number).type_oid),
            Operand::Parameter(number) => self
                .parameters
                .get(*number)
                .copied()
                .filter(|oid| *oid != 0),
            Operand::Constant(_) => match term.literal? {
                LiteralKind::Integer => Some(INT4),
                LiteralKind::Long => Some(INT8),
                LiteralKind::Number => Some(NUMERIC),
                LiteralKind::Bool => Some(BOOL),
                LiteralKind::Text => None,
            },
        }
    }

    pub(super) fn compare(
        &mut self,
        comparison: Comparison,
        left: Term,
        right: Term,
    ) -> Result<Predicate, SqlError> {
        let kinds = self.common(&left, &right, comparison.needs_order())?;
        Ok(Predicate::Compare {
            comparison,
            left: left.operand,
            right: right.operand,
            kinds,
        })
    }

    /// As what two terms are compared. Parameters without a type get the other side's.
    pub(super) fn common(
        &mut self,
        left: &Term,
        right: &Term,
        order: bool,
    ) -> Result<(Type, Type), SqlError> {
        for (one, other) in [(left, right), (right, left)] {
            if let Operand::Parameter(number) = one.operand
                && self.parameters[number] == 0
            {
                self.parameters[number] = self.type_of(other).unwrap_or(TEXT);
            }
        }
        let types = (self.type_of(left), self.type_of(right));
        let (one, other) = match types {
            (Some(one), Some(other)) => (Type::of(one), Type::of(other)),
            (Some(one), None) | (None, Some(one)) => (Type::of(one), Type::of(one)),
            (None, None) => (Type::Text, Type::Text),
        };
        use Type::{Date, Float, Int, Numeric, Oid, Padded, Real, Text, Timestamp};
        let kinds = match (one, other) {
            (one, other) if one == other => (one, other),
            (Int, Numeric) | (Numeric, Int) => (Numeric, Numeric),
            (Int | Numeric, Float) | (Float, Int | Numeric) => (Float, Float),
            (Int | Numeric, Real) => (Float, Real),
            (Real, Int | Numeric) => (Real, Float),
            // `varchar` becomes `char` for it, `text` does not: then blanks at the end mean nothing
            // on the one side only.
            (Text, Padded) | (Padded, Text)
                if matches!(types, (Some(1043), _) | (_, Some(1043))) =>
            {
                (Padded, Padded)
            }
            (Real, Float) | (Float, Real) | (Text, Padded) | (Padded, Text) => (one, other),
            (Int, Oid) | (Oid, Int) => (Int, Int),
            (Date, Timestamp) | (Timestamp, Date) => (Timestamp, Timestamp),
            _ => {
                return Err(
                    SqlError::unsupported(format!("comparing {one} with {other}"))
                        .hint("write the constant in the column's own type"),
                );
            }
        };
        let collated = left.in_byte_order || right.in_byte_order;
        for term in [left, right] {
            if let Operand::Column(number) = term.operand {
                self.must_compare(number, order && !collated)?;
            }
        }
        if kinds.0 == Type::Other {
            return Err(SqlError::unsupported("comparing values of this type"));
        }
        // What is constant must be a value: Postgres says so before it looks at a row.
        for (term, kind, other) in [(left, kinds.0, types.1), (right, kinds.1, types.0)] {
            if let Operand::Constant(Some(text)) = &term.operand {
                match (self.type_of(term), other) {
                    (None, Some(oid)) => drop(canonical(oid, text)?),
                    _ => encoded(kind, text.as_bytes(), &mut Vec::new())?,
                }
            }
        }
        if (one, other) != kinds
            && matches!((one, other), (Int, Oid) | (Oid, Int))
            && [left, right].iter().any(|term| {
                matches!(&term.operand, Operand::Constant(Some(text)) if text.starts_with('-'))
            })
        {
            return Err(SqlError::unsupported(
                "comparing oid with a negative number",
            ));
        }
        Ok(kinds)
    }

    pub(super) fn conjuncts(
        &mut self,
        node: &NodeEnum,
        into: &mut Vec<Predicate>,
    ) -> Result<(), SqlError> {
        match self.predicate(node)? {
            Predicate::And(all) => into.extend(all),
            one => into.push(one),
        }
        Ok(())
    }

    pub(super) fn predicate(&mut self, node: &NodeEnum) -> Result<Predicate, SqlError> {
        match node {
            NodeEnum::BoolExpr(expression) => {
                let mut args = Vec::new();
                for arg in &expression.args {
                    let node =
                        inner(arg).ok_or_else(|| SqlError::unsupported("an empty condition"))?;
                    args.push(self.predicate(node)?);
                }
                match BoolExprType::try_from(expression.boolop) {
                    Ok(BoolExprType::AndExpr) => Ok(Predicate::And(
                        args.into_iter()
                            .flat_map(|arg| match arg {
                                Predicate::And(all) => all,
                                one => vec![one],
                            })
                            .collect(),
                    )),
                    Ok(BoolExprType::OrExpr) => Ok(Predicate::Or(args)),
                    Ok(BoolExprType::NotExpr) if args.len() == 1 => {
                        Ok(Predicate::Not(Box::new(args.remove(0))))
                    }
                    _ => Err(SqlError::unsupported("this condition")),
                }
            }
            NodeEnum::NullTest(test) => {
                let operand = self.term(boxed(&test.arg))?.operand;
                let negated = test.nulltesttype == NullTestType::IsNotNull as i32;
                Ok(Predicate::IsNull { operand, negated })
            }
            NodeEnum::BooleanTest(test) => {
                let inner =
                    boxed(&test.arg).ok_or_else(|| SqlError::unsupported("an empty condition"))?;
                let inner = Box::new(self.predicate(inner)?);
                let (wanted, negated) = match BoolTestType::try_from(test.booltesttype) {
                    Ok(BoolTestType::IsTrue) => (Some(true), false),
                    Ok(BoolTestType::IsNotTrue) => (Some(true), true),
                    Ok(BoolTestType::IsFalse) => (Some(false), false),
                    Ok(BoolTestType::IsNotFalse) => (Some(false), true),
                    Ok(BoolTestType::IsUnknown) => (None, false),
                    Ok(BoolTestType::IsNotUnknown) => (None, true),
                    _ => return Err(SqlError::unsupported("this condition")),
                };
                Ok(Predicate::IsTruth {
                    inner,
                    wanted,
                    negated,
                })
            }
            NodeEnum::AExpr(expression) => self.operator(expression),
            _ => {
                let term = self.term(Some(node))?;
                match self.type_of(&term) {
                    Some(BOOL) | None => Ok(Predicate::Truth(term.operand)),
                    Some(_) => Err(SqlError::new(
                        "42804",
                        "argument of WHERE must be type boolean",
                    )),
                }
            }
        }
    }

    fn like(&mut self, expression: &pg_query::protobuf::AExpr) -> Result<Predicate, SqlError> {
        let left = self.term(boxed(&expression.lexpr))?;
        let right = self.term(boxed(&expression.rexpr))?;
        for term in [&left, &right] {
            if let Some(oid) = self.type_of(term)
                && !matches!(oid, TEXT | 1043 | 19)
            {
                return Err(SqlError::unsupported("LIKE on anything but text"));
            }
            if let Operand::Parameter(number) = term.operand
                && self.parameters[number] == 0
            {
                self.parameters[number] = TEXT;
            }
        }
        Ok(Predicate::Like {
            operand: left.operand,
            pattern: right.operand,
            ignore_case: expression.kind == AExprKind::AexprIlike as i32,
            negated: names(&expression.name)
                .last()
                .is_some_and(|name| name.starts_with('!')),
        })
    }

    pub(super) fn operator(
        &mut self,
        expression: &pg_query::protobuf::AExpr,
    ) -> Result<Predicate, SqlError> {
        let name = names(&expression.name).pop().unwrap_or_default();
        let list = |node: &Option<Box<Node>>| match boxed(node) {
            Some(NodeEnum::List(list)) => list.items.clone(),
            _ => Vec::new(),
        };
        match AExprKind::try_from(expression.kind) {
            Ok(AExprKind::AexprOp) if expression.lexpr.is_some() => {
                let comparison = Comparison::named(&name)
                    .ok_or_else(|| SqlError::unsupported(format!("the operator {name}")))?;
                let left = self.term(boxed(&expression.lexpr))?;
                let right = self.term(boxed(&expression.rexpr))?;
                self.compare(comparison, left, right)
            }
            Ok(kind @ (AExprKind::AexprDistinct | AExprKind::AexprNotDistinct)) => {
                let left = self.term(boxed(&expression.lexpr))?;
                let right = self.term(boxed(&expression.rexpr))?;
                let common = self.common(&left, &right, false)?;
                Ok(Predicate::Distinct {
                    left: left.operand,
                    right: right.operand,
                    kinds: common,
                    negated: kind == AExprKind::AexprNotDistinct,
                })
            }
            Ok(AExprKind::AexprIn) => {
                let mut any = Vec::new();
                for item in list(&expression.rexpr) {
                    let left = self.term(boxed(&expression.lexpr))?;
                    let right = self.term(inner(&item))?;
                    any.push(self.compare(Comparison::Equal, left, right)?);
                }
                let found = Predicate::Or(any);
                Ok(match name.as_str() {
                    "<>" => Predicate::Not(Box::new(found)),
                    _ => found,
                })
            }
            Ok(kind @ (AExprKind::AexprBetween | AExprKind::AexprNotBetween)) => {
                let bounds = list(&expression.rexpr);
                let [low, high] = bounds.as_slice() else {
                    return Err(SqlError::unsupported("BETWEEN of this form"));
                };
                let mut both = Vec::new();
                for (comparison, bound) in [
                    (Comparison::GreaterOrEqual, low),
                    (Comparison::LessOrEqual, high),
                ] {
                    let left = self.term(boxed(&expression.lexpr))?;
                    let right = self.term(inner(bound))?;
                    both.push(self.compare(comparison, left, right)?);
                }
                let within = Predicate::And(both);
                Ok(match kind {
                    AExprKind::AexprNotBetween => Predicate::Not(Box::new(within)),
                    _ => within,
                })
            }
            Ok(AExprKind::AexprLike | AExprKind::AexprIlike) => self.like(expression),
            Ok(AExprKind::AexprOpAny | AExprKind::AexprOpAll) => {
                Err(SqlError::unsupported("ANY and ALL over an array").hint("write IN (…)"))
            }
            _ => Err(SqlError::unsupported("this operator")),
        }
    }
}
