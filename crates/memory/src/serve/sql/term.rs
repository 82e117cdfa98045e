//! A value in an expression.

use super::predicate::Operand;
use super::tree::{Literal, LiteralKind};

/// A value in an expression, with what is known of its type.
pub(super) struct Term {
    pub operand: Operand,
    pub literal: Option<LiteralKind>,
    pub cast: Option<u32>,
    /// `COLLATE "C"`.
    pub in_byte_order: bool,
}

impl Term {
    pub(super) fn column(number: usize) -> Self {
        Self {
            operand: Operand::Column(number),
            literal: None,
            cast: None,
            in_byte_order: false,
        }
    }

    pub(super) fn literal(literal: Option<Literal>) -> Self {
        Self {
            literal: literal.as_ref().map(|literal| literal.kind),
            operand: Operand::Constant(literal.map(|literal| literal.text)),
            cast: None,
            in_byte_order: false,
        }
    }
}
