//! A method that takes the place of one of a class, which gets another name.

use super::{Constants, Edit, Methods, edited, u16_at};

/// Kinds of constants.
pub const FIELD: u8 = 9;
pub const INTERFACE_METHOD: u8 = 11;

pub struct Replacement {
    pub name: &'static str,
    pub descriptor: &'static str,
    /// What the one that was there is called from here on.
    pub original: &'static str,
    pub stack: u16,
    pub variables: u16,
    pub instructions: Vec<u8>,
    /// The table of frames.
    pub frames: Vec<u8>,
}

impl Replacement {
    /// The class with it; `None` if it has no such method.
    pub fn put_into(&self, bytes: &[u8], mut constants: Constants) -> Option<Vec<u8>> {
        let Methods { all, count_at, end } = Methods::of(bytes, &constants)?;
        let text = |index, of: &str| constants.text(bytes, index) == Some(of.as_bytes());
        let original = all.iter().find(|method| {
            text(method.name, self.name) && text(method.descriptor, self.descriptor)
        })?;
        let name_at = original.head.checked_add(2)?;
        let renamed = constants.utf8(self.original)?;
        let added = self.method(&mut constants)?;
        let count = u16_at(bytes, count_at)?.checked_add(1)?;
        let mut edits = vec![
            Edit::in_place(name_at, renamed.to_be_bytes().into()),
            Edit::in_place(count_at, count.to_be_bytes().into()),
            Edit {
                at: end,
                replaces: 0,
                by: added,
            },
        ];
        edits.extend(constants.edits());
        edited(bytes, edits)
    }

    fn method(&self, constants: &mut Constants) -> Option<Vec<u8>> {
        const PUBLIC: u16 = 1;
        let mut of_code = Vec::new();
        of_code.extend(self.stack.to_be_bytes());
        of_code.extend(self.variables.to_be_bytes());
        of_code.extend(u32::try_from(self.instructions.len()).ok()?.to_be_bytes());
        of_code.extend(&self.instructions);
        // Nothing is handled, and there is one attribute.
        of_code.extend([0, 0, 0, 1]);
        of_code.extend(constants.utf8("StackMapTable")?.to_be_bytes());
        of_code.extend(u32::try_from(self.frames.len()).ok()?.to_be_bytes());
        of_code.extend(&self.frames);
        let mut method = Vec::new();
        for number in [
            PUBLIC,
            constants.utf8(self.name)?,
            constants.utf8(self.descriptor)?,
            1,
            constants.utf8("Code")?,
        ] {
            method.extend(number.to_be_bytes());
        }
        method.extend(u32::try_from(of_code.len()).ok()?.to_be_bytes());
        method.extend(of_code);
        Some(method)
    }
}
