//! Pools of connections that are made as large as a replay needs them.
//!
//! A transaction that is held keeps its connection. Where all are taken by those that wait for one
//! which cannot get any, nothing goes on. So what makes a pool has code in front that raises the
//! number in its argument, as shims do in other languages.

use super::image::Image;
use crate::process;

/// What makes a pool, by where its argument is.
#[derive(Clone, Copy)]
enum Makes {
    /// `SetMaxOpenConns` of `database/sql`: a number in `rbx`; 0: as many as are asked for.
    Sql,
    /// pgx 5: a 32-bit number behind two functions in what `rbx` leads to.
    Puddle,
    /// pgx 4: a 32-bit number in `ecx`.
    OldPuddle,
}

impl Makes {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"database/sql.(*DB).SetMaxOpenConns" => Self::Sql,
            b"github.com/jackc/puddle.NewPool" => Self::OldPuddle,
            // Behind it is what it is a pool of.
            _ if name.starts_with(b"github.com/jackc/puddle/v2.NewPool[") => Self::Puddle,
            _ => return None,
        })
    }

    /// Compares, and puts the number in its place if that has one which is too small.
    fn code(self, connections: i32) -> Vec<u8> {
        let number = connections.to_le_bytes();
        let parts: [&[u8]; 4] = match self {
            Self::Sql => [
                // test rbx, rbx; jle over all; cmp rbx, …; jge over the rest; mov rbx, …
                &[0x48, 0x85, 0xdb, 0x7e, 0x10, 0x48, 0x81, 0xfb],
                &number,
                &[0x7d, 0x07, 0x48, 0xc7, 0xc3],
                &number,
            ],
            Self::Puddle => [
                // The same with [rbx + 16], from 1 on.
                &[0x83, 0x7b, 0x10, 0x01, 0x7c, 0x10, 0x81, 0x7b, 0x10],
                &number,
                &[0x7d, 0x07, 0xc7, 0x43, 0x10],
                &number,
            ],
            Self::OldPuddle => [
                &[0x83, 0xf9, 0x01, 0x7c, 0x0d, 0x81, 0xf9],
                &number,
                &[0x7d, 0x05, 0xb9],
                &number,
            ],
        };
        parts.concat()
    }
}

/// Where code is to be put in front, and which.
pub fn of(image: &Image) -> Vec<(usize, Vec<u8>)> {
    let connections = process::connections();
    if connections <= 0 {
        return Vec::new();
    }
    let all = image.all(Makes::named).into_iter();
    all.map(|(at, makes)| (at, makes.code(connections)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generic_function_is_known_whatever_it_was_made_for() {
        for of in ["...", "go.shape.*uint8"] {
            let name = format!("github.com/jackc/puddle/v2.NewPool[{of}]");
            assert!(matches!(Makes::named(name.as_bytes()), Some(Makes::Puddle)));
        }
        assert!(Makes::named(b"github.com/jackc/puddle/v2.NewPoolOf").is_none());
    }
}
