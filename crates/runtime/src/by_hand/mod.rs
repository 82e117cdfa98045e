//! What the generator cannot do: variadic functions and irregular structures.

pub fn by_number(_number: i64, _arguments: [usize; 6]) -> Option<isize> {
    None
}
