//! A class of Java as bytes: instructions are put into its methods.
//!
//! What is put in calls methods of [`SHIM`]: one in front of the last instruction of some kind, and
//! one at the method's beginning, or either. Where the former is the last instruction of all, no
//! jump and no table has to change: what jumped to it jumps to what was put in. Elsewhere the
//! method may have no jumps. What is put in at the beginning moves all alike, by a multiple of
//! four, since tables of jumps begin at one; what says a place that is no distance is moved too.
//!
//! Native methods of the runtime have no instructions. Where a class calls one of these, its table
//! of constants says which: there ours is put in its place, and no instruction changes.
//!
//! **The invariant to keep**: a class that is not understood stays as it is.

mod computed;
mod given;
mod numbers;
mod passed;
mod replacement;
mod sequenced;

pub use computed::{BOUNDED, LOOKED, PUTS_LOCAL, SEEN_AGAIN, SOURCE, UNBOUNDED, computed};
pub use given::{ID_AGAIN, ID_GIVEN, ID_HIGH, ID_LOW, given};
pub use numbers::{ASKS_MORE, GIVEN, IS_TAKEN, NUMBER_OF, numbered};
pub use passed::{ENTITIES, QUERIES, SEEN_ENTITY, passed};
pub use sequenced::{SERIES_OF, sequenced};

/// The class whose methods are called: in a package that all callers can see.
pub const SHIM: &str = "java/security/Hindcast";

/// What is put into a method.
#[derive(Clone, Copy)]
pub struct Patch {
    /// Empty: any class that has the method.
    pub class: &'static str,
    pub method: &'static str,
    /// Without what is returned: whatever that is.
    pub descriptor: &'static str,
    /// What is called first. If it gives an object, that stands for the method's own from there on.
    pub begins: Option<Call>,
    /// What is called in front of the last instruction with this code.
    pub ends: Option<(u8, Call)>,
}

impl Patch {
    /// Whether a class may well lack the method, since it is any class, or of another version.
    fn is_of_others<'a>(&self, bytes: &[u8], all: impl Iterator<Item = &'a Self>) -> bool {
        let ways = all.filter(|other| other.method == self.method).count();
        self.class.is_empty() || ways > 1 || !contains(bytes, self.method.as_bytes())
    }

    fn is_described(&self, descriptor: &[u8]) -> bool {
        let own = self.descriptor.as_bytes();
        match own.ends_with(b")") {
            true => descriptor.starts_with(own),
            false => descriptor == own,
        }
    }
}

/// A call of the shim's.
#[derive(Clone, Copy)]
pub struct Call {
    /// Instructions that put arguments on the stack. At most three values are.
    pub arguments: &'static [u8],
    pub calls: Called,
}

/// A method of the shim, and its descriptor.
pub type Called = (&'static str, &'static str);

/// A native method for which one of the shim's stands, that is called alike.
pub struct Native {
    pub class: &'static str,
    pub method: Called,
}

/// Codes of instructions.
pub mod code {
    pub const NOP: u8 = 0x00;
    pub const ACONST_NULL: u8 = 0x01;
    pub const LCONST_0: u8 = 0x09;
    pub const ALOAD: u8 = 0x19;
    pub const ILOAD: u8 = 0x15;
    pub const LLOAD: u8 = 0x16;
    pub const ILOAD_2: u8 = 0x1c;
    pub const ILOAD_3: u8 = 0x1d;
    pub const LLOAD_3: u8 = 0x21;
    pub const ALOAD_0: u8 = 0x2a;
    pub const ALOAD_1: u8 = 0x2b;
    pub const ALOAD_2: u8 = 0x2c;
    pub const ALOAD_3: u8 = 0x2d;
    pub const ISTORE: u8 = 0x36;
    pub const LSTORE: u8 = 0x37;
    pub const ASTORE: u8 = 0x3a;
    pub const ISTORE_2: u8 = 0x3d;
    pub const LSTORE_1: u8 = 0x40;
    pub const LSTORE_3: u8 = 0x42;
    pub const ASTORE_0: u8 = 0x4b;
    pub const ASTORE_3: u8 = 0x4e;
    pub const POP: u8 = 0x57;
    pub const DUP: u8 = 0x59;
    pub const LCMP: u8 = 0x94;
    pub const IFEQ: u8 = 0x99;
    pub const IFNE: u8 = 0x9a;
    pub const IFLT: u8 = 0x9b;
    pub const IF_SAME: u8 = 0xa5;
    pub const GOTO: u8 = 0xa7;
    pub const IRETURN: u8 = 0xac;
    pub const LRETURN: u8 = 0xad;
    pub const DRETURN: u8 = 0xaf;
    pub const ARETURN: u8 = 0xb0;
    pub const RETURN: u8 = 0xb1;
    pub const GETFIELD: u8 = 0xb4;
    pub const INVOKEVIRTUAL: u8 = 0xb6;
    pub const INVOKESPECIAL: u8 = 0xb7;
    pub const INVOKESTATIC: u8 = 0xb8;
    pub const INVOKEINTERFACE: u8 = 0xb9;
    pub const NEW: u8 = 0xbb;
    pub const CHECKCAST: u8 = 0xc0;
    pub const IFNULL: u8 = 0xc6;

    /// Calls the static method with this index.
    pub fn call([high, low]: [u8; 2]) -> [u8; 3] {
        [INVOKESTATIC, high, low]
    }

    /// Jumps, by such an instruction at `from`.
    pub fn jump(jump: u8, from: u16, to: u16) -> [u8; 3] {
        let [high, low] = to.wrapping_sub(from).to_be_bytes();
        [jump, high, low]
    }
}

const STACK_MORE: u16 = 4;
/// Tables of jumps begin at a multiple of this.
const ALIGNED: usize = 4;

const UTF8: u8 = 1;
const CLASS: u8 = 7;
const METHOD: u8 = 10;
const NAME_AND_TYPE: u8 = 12;

/// The class with the patches that are for it; `None` if there are none, or if one of them has no
/// place there.
pub fn patched(class: &str, bytes: &[u8], patches: &[&[Patch]]) -> Option<Vec<u8>> {
    let all = || patches.iter().copied().flatten();
    let is_any =
        |patch: &&Patch| patch.class.is_empty() && contains(bytes, patch.method.as_bytes());
    let own = || all().filter(|patch| patch.class == class);
    let others = || all().filter(|patch| is_any(patch) && own().next().is_none());
    let of_class = || own().chain(others());
    of_class().next()?;
    let mut constants = Constants::of(bytes)?;
    let Methods { all: methods, .. } = Methods::of(bytes, &constants)?;
    let mut edits = Vec::new();
    for patch in of_class() {
        let method = methods.iter().find(|method| {
            let own = constants.text(bytes, method.descriptor);
            let is_alike = own.is_some_and(|own| patch.is_described(own));
            is_alike && constants.text(bytes, method.name) == Some(patch.method.as_bytes())
        });
        let method = match method {
            Some(method) => method,
            None if patch.is_of_others(bytes, of_class()) => continue,
            None => return None,
        };
        let mut call = |Call { arguments, calls }: Call| {
            let (name, descriptor) = calls;
            let called = constants.method(SHIM, name, descriptor)?.to_be_bytes();
            Some([arguments, &[code::INVOKESTATIC], &called[..]].concat())
        };
        let (mut all, mut moved) = (Vec::new(), 0);
        if let Some((before, ends)) = patch.ends {
            all.push((method.place(bytes, before)?, call(ends)?));
        }
        if let Some(begins) = patch.begins {
            let mut put_in = call(begins)?;
            if !begins.calls.1.ends_with('V') {
                let class = constants.class(patch.class)?.to_be_bytes();
                put_in.push(code::CHECKCAST);
                put_in.extend(class);
                put_in.push(code::ASTORE_0);
            }
            put_in.resize(put_in.len().next_multiple_of(ALIGNED), code::NOP);
            moved = u16::try_from(put_in.len()).ok()?;
            all.push((0, put_in));
        }
        edits.extend(method.edits(bytes, all)?);
        edits.extend(method.tables(bytes, &mut constants, moved)?);
    }
    if edits.is_empty() {
        return None;
    }
    edits.extend(constants.edits());
    edited(bytes, edits)
}

/// The class with calls of the shim's methods in the place of these native ones; `None` if it calls
/// none of them.
pub fn redirected(bytes: &[u8], natives: &[Native]) -> Option<Vec<u8>> {
    let named = |native: &&Native| contains(bytes, native.method.0.as_bytes());
    natives.iter().find(named)?;
    let mut constants = Constants::of(bytes)?;
    let mut edits = Vec::new();
    for native in natives {
        let (name, descriptor) = native.method;
        for at in constants.calls(bytes, native.class, name, descriptor)? {
            let shim = constants.class(SHIM)?;
            edits.push(Edit::in_place(
                at.checked_add(1)?,
                shim.to_be_bytes().into(),
            ));
        }
    }
    if edits.is_empty() {
        return None;
    }
    edits.extend(constants.edits());
    edited(bytes, edits)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    // SAFETY: both are as long as is said.
    let found = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            part.as_ptr().cast(),
            part.len(),
        )
    };
    !found.is_null()
}

/// A class whose methods are all native; and static, unless it is made to be an interface.
pub fn of_natives(
    name: &str,
    interface: Option<&str>,
    methods: &[(&str, &str)],
) -> Option<Vec<u8>> {
    const PUBLIC_FINAL: u16 = 0x0001 | 0x0010 | 0x0020;
    const PUBLIC_NATIVE: u16 = 0x0001 | 0x0100;
    const STATIC: u16 = 0x0008;
    let may = match interface {
        None => PUBLIC_NATIVE | STATIC,
        Some(_) => PUBLIC_NATIVE,
    };
    let mut constants = Constants {
        count: 1,
        ..Constants::default()
    };
    let this = constants.class(name)?;
    let parent = constants.class("java/lang/Object")?;
    let interfaces = match interface {
        None => vec![0],
        Some(name) => vec![1, constants.class(name)?],
    };
    let mut body = Vec::new();
    let mut put = |number: u16| body.extend(number.to_be_bytes());
    let count = u16::try_from(methods.len()).ok()?;
    for number in [PUBLIC_FINAL, this, parent] {
        put(number);
    }
    for number in interfaces.into_iter().chain([0, count]) {
        put(number);
    }
    for (name, descriptor) in methods {
        put(may);
        put(constants.utf8(name)?);
        put(constants.utf8(descriptor)?);
        put(0);
    }
    put(0);
    // Of Java 8, which all later ones load.
    let mut class = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52];
    class.extend(constants.count.to_be_bytes());
    class.extend(constants.more);
    class.extend(body);
    Some(class)
}

/// Where the number of constants stands, and where they begin.
const COUNT_AT: usize = 8;
const CONSTANTS_AT: usize = 10;

/// The table of constants, and what is added to it.
#[derive(Default)]
struct Constants {
    /// Of each that has a text, where it is.
    texts: Vec<(u16, std::ops::Range<usize>)>,
    /// Where each other one is that this needs: classes, methods and what these are called.
    others: Vec<(u16, usize)>,
    end: usize,
    count: u16,
    more: Vec<u8>,
}

impl Constants {
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut all = Self {
            count: u16_at(bytes, COUNT_AT)?,
            ..Self::default()
        };
        let (mut at, mut index) = (CONSTANTS_AT, 1u16);
        while index < all.count {
            let from = at.checked_add(1)?;
            let (length, slots) = match *bytes.get(at)? {
                UTF8 => {
                    let length = usize::from(u16_at(bytes, from)?);
                    let text = from.checked_add(2)?;
                    all.texts.push((index, text..text.checked_add(length)?));
                    (length.checked_add(2)?, 1)
                }
                kind @ (CLASS | METHOD | NAME_AND_TYPE) => {
                    all.others.push((index, at));
                    (if kind == CLASS { 2 } else { 4 }, 1)
                }
                8 | 16 | 19 | 20 => (2, 1),
                15 => (3, 1),
                3 | 4 | 9 | 11 | 17 | 18 => (4, 1),
                5 | 6 => (8, 2),
                _ => return None,
            };
            at = from.checked_add(length)?;
            index = index.checked_add(slots)?;
        }
        all.end = at;
        Some(all)
    }

    fn text<'a>(&self, bytes: &'a [u8], index: u16) -> Option<&'a [u8]> {
        let at = self
            .texts
            .binary_search_by_key(&index, |text| text.0)
            .ok()?;
        bytes.get(self.texts.get(at)?.1.clone())
    }

    /// Where there are methods of this class with this name and descriptor that the class calls.
    fn calls(&self, bytes: &[u8], class: &str, name: &str, descriptor: &str) -> Option<Vec<usize>> {
        let place = |index| {
            let at = self.others.binary_search_by_key(&index, |other| other.0);
            Some(self.others.get(at.ok()?)?.1)
        };
        let is_named = |at: usize, text: &str| {
            self.text(bytes, u16_at(bytes, at)?)
                .map(|own| own == text.as_bytes())
        };
        let mut found = Vec::new();
        for &(_, at) in &self.others {
            if bytes.get(at) != Some(&METHOD) {
                continue;
            }
            let (of, called) = (at.checked_add(1)?, at.checked_add(3)?);
            let of = place(u16_at(bytes, of)?)?.checked_add(1)?;
            let called = place(u16_at(bytes, called)?)?.checked_add(1)?;
            if is_named(of, class)?
                && is_named(called, name)?
                && is_named(called.checked_add(2)?, descriptor)?
            {
                found.push(at);
            }
        }
        Some(found)
    }

    /// What is to be changed so that those that were added are there.
    fn edits(self) -> [Edit; 2] {
        [
            Edit::in_place(COUNT_AT, self.count.to_be_bytes().into()),
            Edit {
                at: self.end,
                replaces: 0,
                by: self.more,
            },
        ]
    }

    fn add(&mut self, kind: u8, parts: &[&[u8]]) -> Option<u16> {
        let index = self.count;
        self.count = index.checked_add(1)?;
        self.more.push(kind);
        self.more.extend(parts.iter().copied().flatten());
        Some(index)
    }

    fn utf8(&mut self, text: &str) -> Option<u16> {
        let length = u16::try_from(text.len()).ok()?;
        self.add(UTF8, &[&length.to_be_bytes(), text.as_bytes()])
    }

    fn class(&mut self, name: &str) -> Option<u16> {
        let name = self.utf8(name)?;
        self.add(CLASS, &[&name.to_be_bytes()])
    }

    fn method(&mut self, class: &str, name: &str, descriptor: &str) -> Option<u16> {
        self.member(METHOD, class, name, descriptor)
    }

    fn member(&mut self, kind: u8, class: &str, name: &str, descriptor: &str) -> Option<u16> {
        let class = self.class(class)?;
        let (name, descriptor) = (self.utf8(name)?, self.utf8(descriptor)?);
        let both = [&name.to_be_bytes()[..], &descriptor.to_be_bytes()];
        let called = self.add(NAME_AND_TYPE, &both)?;
        self.add(kind, &[&class.to_be_bytes(), &called.to_be_bytes()])
    }
}

/// Those that have instructions, where the number of all stands, and where the last one ends.
struct Methods {
    all: Vec<Method>,
    count_at: usize,
    end: usize,
}

/// A method that has instructions.
struct Method {
    head: usize,
    name: u16,
    descriptor: u16,
    /// Where its attribute `Code` begins.
    code: usize,
}

/// Of the attribute `Code`: where its parts are, and what is in front of the instructions.
const LENGTH: usize = 2;
const STACK: usize = 6;
const CODE_LENGTH: usize = 10;
const INSTRUCTIONS: usize = 14;

impl Methods {
    fn of(bytes: &[u8], constants: &Constants) -> Option<Self> {
        // What the class may, which it is and which is its parent; then its interfaces.
        let mut at = constants.end.checked_add(6)?;
        let interfaces = usize::from(u16_at(bytes, at)?);
        at = at.checked_add(interfaces.checked_mul(2)?)?.checked_add(2)?;
        let (mut methods, mut count_at) = (Vec::new(), at);
        for is_methods in [false, true] {
            count_at = at;
            let count = u16_at(bytes, at)?;
            at = at.checked_add(2)?;
            for _ in 0..count {
                let head = at;
                let (name, descriptor) = (
                    u16_at(bytes, at.checked_add(2)?)?,
                    u16_at(bytes, at.checked_add(4)?)?,
                );
                let attributes = u16_at(bytes, at.checked_add(6)?)?;
                at = at.checked_add(8)?;
                for _ in 0..attributes {
                    if is_methods && constants.text(bytes, u16_at(bytes, at)?)? == b"Code" {
                        methods.push(Method {
                            head,
                            name,
                            descriptor,
                            code: at,
                        });
                    }
                    let length = u32_at(bytes, at.checked_add(LENGTH)?)? as usize;
                    at = at.checked_add(STACK)?.checked_add(length)?;
                }
            }
        }
        Some(Self {
            all: methods,
            count_at,
            end: at,
        })
    }
}

impl Method {
    fn instructions<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = u32_at(bytes, self.code.checked_add(CODE_LENGTH)?)? as usize;
        let from = self.code.checked_add(INSTRUCTIONS)?;
        bytes.get(from..from.checked_add(length)?)
    }

    /// Where the last instruction with this code is, if something can be put in there.
    fn place(&self, bytes: &[u8], before: u8) -> Option<usize> {
        let instructions = self.instructions(bytes)?;
        let (mut at, mut found, mut last, mut jumps) = (0usize, None, 0, false);
        while let Some(&code) = instructions.get(at) {
            if code == before {
                // An early return would pass over what is put in.
                if found.is_some() && (code::IRETURN..=code::RETURN).contains(&code) {
                    return None;
                }
                found = Some(at);
            }
            jumps |= is_jump(code);
            last = at;
            at = at.checked_add(length(instructions, at)?)?;
        }
        let handlers = self.code.checked_add(INSTRUCTIONS)?.checked_add(at)?;
        let is_handled = u16_at(bytes, handlers)? != 0;
        found.filter(|&found| found == last || !jumps && !is_handled)
    }

    /// What becomes of the tables behind the instructions if these are moved by so much. Where
    /// variables are is not said any more.
    fn tables(&self, bytes: &[u8], constants: &mut Constants, by: u16) -> Option<Vec<Edit>> {
        const HANDLER: usize = 8;
        const LINE: usize = 4;
        let instructions = self.instructions(bytes)?.len();
        let handlers = self
            .code
            .checked_add(INSTRUCTIONS)?
            .checked_add(instructions)?;
        let length = usize::from(u16_at(bytes, handlers)?).checked_mul(HANDLER)?;
        let mut at = handlers.checked_add(2)?.checked_add(length)?;
        let mut edits = Vec::new();
        // Where what is handled begins and ends, and the handler.
        for entry in (handlers.checked_add(2)?..at).step_by(HANDLER) {
            edits.extend(moved(bytes, &[entry, entry + 2, entry + 4], by)?);
        }
        let count = u16_at(bytes, at)?;
        at = at.checked_add(2)?;
        for _ in 0..count {
            let table = at.checked_add(STACK)?;
            match constants.text(bytes, u16_at(bytes, at)?)? {
                b"StackMapTable" if by > 0 => edits.push(frames_moved(bytes, table, by)?),
                b"LineNumberTable" => {
                    let lines = usize::from(u16_at(bytes, table)?).checked_mul(LINE)?;
                    let first = table.checked_add(2)?;
                    let places = (first..first.checked_add(lines)?).step_by(LINE);
                    edits.extend(moved(bytes, &places.collect::<Vec<_>>(), by)?);
                }
                b"LocalVariableTable" | b"LocalVariableTypeTable" => {
                    let unknown = constants.utf8("Hindcast")?.to_be_bytes();
                    edits.push(Edit::in_place(at, unknown.into()));
                }
                _ => {}
            }
            let length = u32_at(bytes, at.checked_add(LENGTH)?)? as usize;
            at = at.checked_add(STACK)?.checked_add(length)?;
        }
        Some(edits)
    }

    fn edits(&self, bytes: &[u8], all: Vec<(usize, Vec<u8>)>) -> Option<Vec<Edit>> {
        let more: usize = all.iter().map(|(_, put_in)| put_in.len()).sum();
        let more = u32::try_from(more).ok()?;
        let at = |part: usize| self.code.checked_add(part);
        let longer = |part: usize| Some(u32_at(bytes, at(part)?)?.checked_add(more)?.to_be_bytes());
        let stack = u16_at(bytes, at(STACK)?)?.checked_add(STACK_MORE)?;
        let mut edits = vec![
            Edit::in_place(at(LENGTH)?, longer(LENGTH)?.into()),
            Edit::in_place(at(STACK)?, stack.to_be_bytes().into()),
            Edit::in_place(at(CODE_LENGTH)?, longer(CODE_LENGTH)?.into()),
        ];
        for (offset, by) in all {
            edits.push(Edit {
                at: at(INSTRUCTIONS)?.checked_add(offset)?,
                replaces: 0,
                by,
            });
        }
        Some(edits)
    }
}

/// Places in a method's instructions that stand here, moved.
fn moved(bytes: &[u8], here: &[usize], by: u16) -> Option<Vec<Edit>> {
    let all = here.iter().filter(|_| by > 0).map(|&at| {
        let place = u16_at(bytes, at)?.checked_add(by)?;
        Some(Edit::in_place(at, place.to_be_bytes().into()))
    });
    all.collect()
}

/// What moves of a table of frames: the first says a place, the others a distance. `None` where one
/// has an object that is not made yet, which it names by a place.
fn frames_moved(bytes: &[u8], table: usize, by: u16) -> Option<Edit> {
    let first = table.checked_add(2)?;
    let mut at = first;
    for _ in 0..u16_at(bytes, table)? {
        let kind = *bytes.get(at)?;
        at = at.checked_add(1)?;
        match kind {
            ..=63 => {}
            64..=127 => at = past_values(bytes, at, 1)?,
            247 => at = past_values(bytes, at.checked_add(2)?, 1)?,
            248..=251 => at = at.checked_add(2)?,
            252..=254 => at = past_values(bytes, at.checked_add(2)?, u16::from(kind) - 251)?,
            255 => {
                at = at.checked_add(2)?;
                for _ in ["variables", "stack"] {
                    at = past_values(bytes, at.checked_add(2)?, u16_at(bytes, at)?)?;
                }
            }
            _ => return None,
        }
    }
    let distance = first.checked_add(1)?;
    match *bytes.get(first)? {
        kind @ ..=127 => {
            let moved = u16::from(kind).checked_add(by)?;
            let is_same = (moved < 64) == (kind < 64) && moved < 128;
            is_same.then(|| Edit::in_place(first, vec![moved as u8]))
        }
        _ => moved(bytes, &[distance], by)?.pop(),
    }
}

/// Behind so many values of a frame.
fn past_values(bytes: &[u8], mut at: usize, count: u16) -> Option<usize> {
    const OBJECT: u8 = 7;
    const NOT_MADE: u8 = 8;
    for _ in 0..count {
        let size = match *bytes.get(at)? {
            NOT_MADE => return None,
            OBJECT => 3,
            _ => 1,
        };
        at = at.checked_add(size)?;
    }
    Some(at)
}

struct Edit {
    at: usize,
    replaces: usize,
    by: Vec<u8>,
}

impl Edit {
    fn in_place(at: usize, by: Vec<u8>) -> Self {
        Self {
            at,
            replaces: by.len(),
            by,
        }
    }
}

fn edited(bytes: &[u8], mut edits: Vec<Edit>) -> Option<Vec<u8>> {
    edits.sort_by_key(|edit| edit.at);
    let mut done = 0;
    let mut all = Vec::with_capacity(bytes.len());
    for edit in &edits {
        all.extend(bytes.get(done..edit.at)?);
        all.extend(&edit.by);
        done = edit.at.checked_add(edit.replaces)?;
    }
    all.extend(bytes.get(done..)?);
    Some(all)
}

const TABLE: u8 = 0xaa;
const LOOKUP: u8 = 0xab;

fn is_jump(code: u8) -> bool {
    matches!(code, 0x99..=0xab | 0xc6..=0xc9)
}

/// How long the instruction is that begins here.
fn length(instructions: &[u8], at: usize) -> Option<usize> {
    const WIDE: u8 = 0xc4;
    const WIDE_IINC: u8 = 0x84;
    // Tables begin at a multiple of four.
    let table = (at | 3).checked_add(1)?;
    let word = |index: usize| {
        let at = index.checked_mul(4)?.checked_add(table)?;
        Some(u32_at(instructions, at)? as i32)
    };
    let words = |count: i32| usize::try_from(count).ok()?.checked_mul(4);
    let head = table.checked_sub(at)?;
    match *instructions.get(at)? {
        TABLE => {
            let count = word(2)?.checked_sub(word(1)?)?.checked_add(4)?;
            head.checked_add(words(count)?)
        }
        LOOKUP => {
            let count = word(1)?.checked_mul(2)?.checked_add(2)?;
            head.checked_add(words(count)?)
        }
        WIDE => match *instructions.get(at.checked_add(1)?)? {
            WIDE_IINC => Some(6),
            _ => Some(4),
        },
        0x10 | 0x12 | 0x15..=0x19 | 0x36..=0x3a | 0xa9 | 0xbc => Some(2),
        0x11 | 0x13 | 0x14 | 0x84 | 0x99..=0xa8 | 0xb2..=0xb8 | 0xbb | 0xbd | 0xc0 | 0xc1 => {
            Some(3)
        }
        0xc6 | 0xc7 => Some(3),
        0xc5 => Some(4),
        0xb9 | 0xba | 0xc8 | 0xc9 => Some(5),
        0x00..=0xc3 => Some(1),
        _ => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one frame behind a place.
    fn frame(kind: &[u8]) -> Vec<u8> {
        [&[0, 1], kind].concat()
    }

    fn moved_by_four(kind: &[u8]) -> Option<Vec<u8>> {
        let table = frame(kind);
        let edit = frames_moved(&table, 0, 4)?;
        Some(edited(&table, vec![edit])?.split_off(2))
    }

    #[test]
    fn the_first_frame_is_moved_whatever_it_says() {
        // The same variables; with one value on the stack, an object; more and fewer variables.
        assert_eq!(moved_by_four(&[12]), Some(vec![16]));
        assert_eq!(moved_by_four(&[64, 7, 0, 9]), Some(vec![68, 7, 0, 9]));
        assert_eq!(moved_by_four(&[247, 1, 255, 1]), Some(vec![247, 2, 3, 1]));
        assert_eq!(moved_by_four(&[250, 0, 5]), Some(vec![250, 0, 9]));
        assert_eq!(moved_by_four(&[252, 0, 5, 1]), Some(vec![252, 0, 9, 1]));
        let full = [255, 0, 32, 0, 1, 7, 0, 9, 0, 1, 4];
        let mut expected = full;
        expected[2] = 36;
        assert_eq!(moved_by_four(&full), Some(expected.to_vec()));
    }

    #[test]
    fn a_frame_is_left_that_would_be_another_kind_or_has_an_object_that_is_not_made() {
        assert_eq!(moved_by_four(&[61]), None);
        assert_eq!(moved_by_four(&[126, 1]), None);
        assert_eq!(moved_by_four(&[64, 8, 0, 3]), None);
        assert_eq!(moved_by_four(&[255, 0, 32, 0, 0, 0, 1, 8, 0, 3]), None);
        // Cut off.
        assert_eq!(moved_by_four(&[252, 0, 5]), None);
    }

    #[test]
    fn places_are_moved_and_distances_are_not() {
        let table = [0, 3, 0, 9, 0, 12, 0, 0];
        let edits = moved(&table, &[0, 2, 4], 4).unwrap();
        assert_eq!(edited(&table, edits).unwrap(), [0, 7, 0, 13, 0, 16, 0, 0]);
        assert!(moved(&table, &[0], 0).unwrap().is_empty());
    }
}
