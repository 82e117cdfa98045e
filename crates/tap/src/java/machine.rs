//! A Java machine, as far as it is asked: tables of functions, which JNI and JVMTI number.

use std::ffi::CStr;

use libc::{c_char, c_int, c_uchar, c_void};

/// An object, a class or an array, as long as a native method runs.
pub type Reference = *mut c_void;

/// The function at a place of a table. All of them take what has the table first.
macro_rules! function {
    ($of:expr, $at:expr, fn($($kind:ty),*) -> $result:ty) => {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, $($kind),*) -> $result>(
            *(*$of.cast::<*const *mut c_void>()).add($at),
        )
    };
}

mod tools;

pub use tools::{Tools, set_tools, tools};

/// A machine, by JNI's interface for who asks from outside.
#[derive(Clone, Copy)]
pub struct Machine(*mut c_void);

// SAFETY: any thread may ask it.
unsafe impl Send for Machine {}

/// A thread's way into its machine.
#[derive(Clone, Copy)]
pub struct Thread(*mut c_void);

/// An object that is kept until it is let go.
pub struct Kept(Reference);

// SAFETY: such a reference may be used by any thread of the machine.
unsafe impl Send for Kept {}
// SAFETY: and by several at a time.
unsafe impl Sync for Kept {}

/// A static native method.
#[repr(C)]
pub struct Native {
    pub name: *const c_char,
    pub descriptor: *const c_char,
    pub function: *mut c_void,
}

type Created = unsafe extern "C" fn(*mut *mut c_void, c_int, *mut c_int) -> c_int;
type FindClass = unsafe extern "C" fn(*mut c_void, *const c_char) -> Reference;

const OK: c_int = 0;

impl Machine {
    /// The one of this process, if it has one.
    pub fn of_process(library: *mut c_void) -> Option<Self> {
        let (mut machine, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the function is as JNI says, and the memory is ours.
        unsafe {
            let found = libc::dlsym(library, c"JNI_GetCreatedJavaVMs".as_ptr());
            if found.is_null() {
                return None;
            }
            let created: Created = std::mem::transmute(found);
            let done = created(&mut machine, 1, &mut count);
            (done == OK && count > 0 && !machine.is_null()).then_some(Self(machine))
        }
    }

    fn interface(self, version: c_int) -> Option<*mut c_void> {
        const GET_ENV: usize = 6;
        let mut found = std::ptr::null_mut();
        // SAFETY: as JNI declares it.
        let done = unsafe {
            function!(self.0, GET_ENV, fn(*mut *mut c_void, c_int) -> c_int)(
                self.0, &mut found, version,
            )
        };
        (done == OK && !found.is_null()).then_some(found)
    }

    /// `None` if this thread is none of the machine's.
    pub fn thread(self) -> Option<Thread> {
        const VERSION: c_int = 0x0001_0006;
        self.interface(VERSION).map(Thread)
    }

    /// Makes this thread one of the machine's, which does not keep it from ending.
    pub fn join(self) -> Option<Thread> {
        const ATTACH: usize = 7;
        let mut found = std::ptr::null_mut();
        let nothing = std::ptr::null_mut();
        // SAFETY: as JNI declares it.
        let done = unsafe {
            function!(self.0, ATTACH, fn(*mut *mut c_void, *mut c_void) -> c_int)(
                self.0, &mut found, nothing,
            )
        };
        (done == OK && !found.is_null()).then_some(Thread(found))
    }

    pub fn tools(self) -> Option<Tools> {
        const VERSION: c_int = 0x3001_0200;
        self.interface(VERSION).map(Tools::of)
    }
}

impl Thread {
    /// # Safety
    /// It is what a machine gave.
    pub unsafe fn given(thread: *mut c_void) -> Self {
        Self(thread)
    }

    /// Where the machine keeps this way, which is in what it knows of the thread.
    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// A class of the runtime's own, which nobody need have used.
    pub fn find(self, library: *mut c_void, name: &CStr) -> Option<Reference> {
        // SAFETY: it is as every version since Java 8 declares it.
        unsafe {
            let found = libc::dlsym(library, c"JVM_FindClassFromBootLoader".as_ptr());
            if found.is_null() {
                return None;
            }
            let find: FindClass = std::mem::transmute(found);
            let class = find(self.0, name.as_ptr());
            (!self.was_refused() && !class.is_null()).then_some(class)
        }
    }

    /// Whether something was thrown. It is forgotten.
    fn was_refused(self) -> bool {
        const EXCEPTION_CLEAR: usize = 17;
        const EXCEPTION_CHECK: usize = 228;
        // SAFETY: as JNI declares them.
        unsafe {
            let thrown = function!(self.0, EXCEPTION_CHECK, fn() -> c_uchar)(self.0) != 0;
            if thrown {
                function!(self.0, EXCEPTION_CLEAR, fn() -> ())(self.0);
            }
            thrown
        }
    }

    /// Runs with references of its own, which end with it.
    pub fn scoped<T>(self, run: impl FnOnce() -> Option<T>) -> Option<T> {
        const PUSH: usize = 19;
        const POP: usize = 20;
        const REFERENCES: c_int = 32;
        // SAFETY: as JNI declares them.
        unsafe {
            if function!(self.0, PUSH, fn(c_int) -> c_int)(self.0, REFERENCES) != OK {
                self.was_refused();
                return None;
            }
            let done = run();
            function!(self.0, POP, fn(Reference) -> Reference)(self.0, std::ptr::null_mut());
            done
        }
    }

    /// Makes one of the runtime's own classes.
    pub fn define(self, name: &CStr, bytes: &[u8], natives: &[Native]) -> Option<Reference> {
        const DEFINE: usize = 5;
        const REGISTER: usize = 215;
        let length = c_int::try_from(bytes.len()).ok()?;
        let count = c_int::try_from(natives.len()).ok()?;
        // SAFETY: as JNI declares them.
        unsafe {
            let define = function!(
                self.0,
                DEFINE,
                fn(*const c_char, Reference, *const u8, c_int) -> Reference
            );
            let nobody = std::ptr::null_mut();
            let class = define(self.0, name.as_ptr(), nobody, bytes.as_ptr(), length);
            if self.was_refused() || class.is_null() {
                return None;
            }
            let register = function!(
                self.0,
                REGISTER,
                fn(Reference, *const Native, c_int) -> c_int
            );
            let done = register(self.0, class, natives.as_ptr(), count);
            (!self.was_refused() && done == OK).then_some(class)
        }
    }

    /// A new object of a class, as memory: nothing has made it so.
    pub fn allocate(self, class: &Kept) -> Option<Reference> {
        const ALLOCATE: usize = 27;
        // SAFETY: as JNI declares it; only classes are given to this.
        let made =
            unsafe { function!(self.0, ALLOCATE, fn(Reference) -> Reference)(self.0, class.0) };
        (!self.was_refused() && !made.is_null()).then_some(made)
    }

    /// Sets a property of the system that nobody has set.
    pub fn set_property(self, library: *mut c_void, name: &CStr, value: &CStr) -> Option<()> {
        const FIND: usize = 113;
        const CALL: usize = 116;
        let class = self.find(library, c"java/lang/System")?;
        let (name, value) = (self.string(name)?, self.string(value)?);
        let ask = |method: &CStr, descriptor: &CStr, arguments: &[Reference]| {
            // SAFETY: as JNI declares them; a value has the size of a reference.
            unsafe {
                let find = function!(
                    self.0,
                    FIND,
                    fn(Reference, *const c_char, *const c_char) -> *mut c_void
                );
                let found = find(self.0, class, method.as_ptr(), descriptor.as_ptr());
                if self.was_refused() || found.is_null() {
                    return None;
                }
                let call = function!(
                    self.0,
                    CALL,
                    fn(Reference, *mut c_void, *const Reference) -> Reference
                );
                let given = call(self.0, class, found, arguments.as_ptr());
                (!self.was_refused()).then_some(given)
            }
        };
        let get = c"(Ljava/lang/String;)Ljava/lang/String;";
        if ask(c"getProperty", get, &[name])?.is_null() {
            let set = c"(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;";
            ask(c"setProperty", set, &[name, value])?;
        }
        Some(())
    }

    /// The place of a static field, if there is one.
    fn field(self, class: Reference, name: &CStr, kind: &CStr) -> Option<*mut c_void> {
        const FIND: usize = 144;
        // SAFETY: as JNI declares it.
        let found = unsafe {
            function!(
                self.0,
                FIND,
                fn(Reference, *const c_char, *const c_char) -> *mut c_void
            )(self.0, class, name.as_ptr(), kind.as_ptr())
        };
        (!self.was_refused() && !found.is_null()).then_some(found)
    }

    pub fn set_long(self, class: Reference, name: &CStr, value: i64) -> Option<()> {
        const SET: usize = 160;
        let field = self.field(class, name, c"J")?;
        // SAFETY: as JNI declares it, and the field is such a one.
        unsafe {
            function!(self.0, SET, fn(Reference, *mut c_void, i64) -> ())(
                self.0, class, field, value,
            )
        };
        Some(())
    }

    pub fn set_boolean(self, class: Reference, name: &CStr, value: bool) -> Option<()> {
        const SET: usize = 155;
        let field = self.field(class, name, c"Z")?;
        // SAFETY: as JNI declares it, and the field is such a one.
        unsafe {
            function!(self.0, SET, fn(Reference, *mut c_void, c_uchar) -> ())(
                self.0,
                class,
                field,
                c_uchar::from(value),
            );
        }
        Some(())
    }

    /// The class of an object.
    ///
    /// # Safety
    /// It is an object.
    pub unsafe fn class_of(self, object: Reference) -> Reference {
        const CLASS_OF: usize = 31;
        // SAFETY: as JNI declares it.
        unsafe { function!(self.0, CLASS_OF, fn(Reference) -> Reference)(self.0, object) }
    }

    /// What a method of an object gives that takes nothing; `None`: it has none, or gives none.
    ///
    /// # Safety
    /// It is an object, and the method gives one.
    pub unsafe fn ask(
        self,
        object: Reference,
        name: &CStr,
        descriptor: &CStr,
    ) -> Option<Reference> {
        // SAFETY: as promised. What it does not take is not looked at.
        unsafe { self.tell(object, name, descriptor, std::ptr::null_mut()) }
    }

    /// A method of an object.
    ///
    /// # Safety
    /// It is an object.
    unsafe fn method(
        self,
        object: Reference,
        name: &CStr,
        descriptor: &CStr,
    ) -> Option<*mut c_void> {
        const FIND: usize = 33;
        const FORGET: usize = 23;
        // SAFETY: as JNI declares them.
        unsafe {
            let class = self.class_of(object);
            let find = function!(
                self.0,
                FIND,
                fn(Reference, *const c_char, *const c_char) -> *mut c_void
            );
            let method = find(self.0, class, name.as_ptr(), descriptor.as_ptr());
            let found = !self.was_refused() && !method.is_null();
            function!(self.0, FORGET, fn(Reference) -> ())(self.0, class);
            found.then_some(method)
        }
    }

    /// A number that an object gives of itself, the same for all that are equal.
    ///
    /// # Safety
    /// It is an object.
    pub unsafe fn hash_of(self, object: Reference) -> Option<c_int> {
        const CALL: usize = 51;
        // SAFETY: as JNI declares them; each object has the method, which takes nothing.
        unsafe {
            let method = self.method(object, c"hashCode", c"()I")?;
            let call = function!(
                self.0,
                CALL,
                fn(Reference, *mut c_void, *const c_void) -> c_int
            );
            let hash = call(self.0, object, method, std::ptr::null());
            (!self.was_refused()).then_some(hash)
        }
    }

    /// What a method of an object gives that takes another one.
    ///
    /// # Safety
    /// They are objects, and the method takes and gives one.
    pub unsafe fn tell(
        self,
        object: Reference,
        name: &CStr,
        descriptor: &CStr,
        other: Reference,
    ) -> Option<Reference> {
        const CALL: usize = 36;
        // SAFETY: as JNI declares them; a value has the size of a reference.
        unsafe {
            let method = self.method(object, name, descriptor)?;
            let call = function!(
                self.0,
                CALL,
                fn(Reference, *mut c_void, *const Reference) -> Reference
            );
            let given = call(self.0, object, method, &other);
            (!self.was_refused() && !given.is_null()).then_some(given)
        }
    }

    /// What a method of an object does that gives nothing.
    ///
    /// # Safety
    /// They are objects, and the method takes one.
    pub unsafe fn run(
        self,
        object: Reference,
        name: &CStr,
        descriptor: &CStr,
        other: Reference,
    ) -> Option<()> {
        const CALL: usize = 63;
        // SAFETY: as JNI declares them; a value has the size of a reference.
        unsafe {
            let method = self.method(object, name, descriptor)?;
            let call = function!(
                self.0,
                CALL,
                fn(Reference, *mut c_void, *const Reference) -> ()
            );
            call(self.0, object, method, &other);
            (!self.was_refused()).then_some(())
        }
    }

    /// A new object of a class, made of another one.
    ///
    /// # Safety
    /// It is a class, and what makes it so takes such an object.
    pub unsafe fn make(
        self,
        class: Reference,
        descriptor: &CStr,
        of: Reference,
    ) -> Option<Reference> {
        const FIND: usize = 33;
        const MAKE: usize = 30;
        // SAFETY: as JNI declares them; a value has the size of a reference.
        unsafe {
            let find = function!(
                self.0,
                FIND,
                fn(Reference, *const c_char, *const c_char) -> *mut c_void
            );
            let method = find(self.0, class, c"<init>".as_ptr(), descriptor.as_ptr());
            if self.was_refused() || method.is_null() {
                return None;
            }
            let make = function!(
                self.0,
                MAKE,
                fn(Reference, *mut c_void, *const Reference) -> Reference
            );
            let made = make(self.0, class, method, &of);
            (!self.was_refused() && !made.is_null()).then_some(made)
        }
    }

    /// The place of an object's field, if it has it.
    ///
    /// # Safety
    /// It is an object.
    unsafe fn own_field(self, object: Reference, name: &CStr, kind: &CStr) -> Option<*mut c_void> {
        const FIND: usize = 94;
        // SAFETY: as JNI declares it.
        let found = unsafe {
            function!(
                self.0,
                FIND,
                fn(Reference, *const c_char, *const c_char) -> *mut c_void
            )(self.0, self.class_of(object), name.as_ptr(), kind.as_ptr())
        };
        (!self.was_refused() && !found.is_null()).then_some(found)
    }

    /// What is in an object's field, if that is an object.
    ///
    /// # Safety
    /// It is an object.
    pub unsafe fn value(self, object: Reference, name: &CStr, kind: &CStr) -> Option<Reference> {
        const GET: usize = 95;
        // SAFETY: as JNI declares it, and the field is such a one.
        unsafe {
            let field = self.own_field(object, name, kind)?;
            let value = function!(self.0, GET, fn(Reference, *mut c_void) -> Reference)(
                self.0, object, field,
            );
            (!value.is_null()).then_some(value)
        }
    }

    /// # Safety
    /// They are objects, and of this kind is what is put there.
    pub unsafe fn set_value(
        self,
        object: Reference,
        name: &CStr,
        kind: &CStr,
        value: Reference,
    ) -> Option<()> {
        const SET: usize = 104;
        // SAFETY: as JNI declares it, and the field is such a one.
        unsafe {
            let field = self.own_field(object, name, kind)?;
            function!(self.0, SET, fn(Reference, *mut c_void, Reference) -> ())(
                self.0, object, field, value,
            );
        }
        Some(())
    }

    pub fn string(self, text: &CStr) -> Option<Reference> {
        const MAKE: usize = 167;
        // SAFETY: as JNI declares it.
        let made = unsafe {
            function!(self.0, MAKE, fn(*const c_char) -> Reference)(self.0, text.as_ptr())
        };
        (!self.was_refused() && !made.is_null()).then_some(made)
    }

    pub fn is_same(self, Kept(one): &Kept, other: Reference) -> bool {
        const IS_SAME: usize = 24;
        // SAFETY: as JNI declares it.
        let is_same = unsafe {
            function!(self.0, IS_SAME, fn(Reference, Reference) -> c_uchar)(self.0, *one, other)
        };
        is_same != 0
    }

    /// The machine that the thread is one of.
    pub fn machine(self) -> Option<Machine> {
        const MACHINE: usize = 219;
        let mut found = std::ptr::null_mut();
        // SAFETY: as JNI declares it.
        let done = unsafe {
            function!(self.0, MACHINE, fn(*mut *mut c_void) -> c_int)(self.0, &mut found)
        };
        (done == OK && !found.is_null()).then_some(Machine(found))
    }

    pub fn keep_again(self, Kept(object): &Kept) -> Option<Kept> {
        self.keep(*object)
    }

    pub fn keep(self, object: Reference) -> Option<Kept> {
        const KEEP: usize = 21;
        // SAFETY: as JNI declares it; null has no other reference than null.
        let kept = unsafe { function!(self.0, KEEP, fn(Reference) -> Reference)(self.0, object) };
        (!kept.is_null()).then_some(Kept(kept))
    }

    pub fn let_go(self, Kept(object): Kept) {
        const LET_GO: usize = 22;
        // SAFETY: as JNI declares it. It is not used from here on.
        unsafe { function!(self.0, LET_GO, fn(Reference) -> ())(self.0, object) };
    }

    /// One for this native method, which lasts as long as that.
    pub fn reference(self, Kept(object): &Kept) -> Option<Reference> {
        const REFERENCE: usize = 25;
        // SAFETY: as JNI declares it.
        let own =
            unsafe { function!(self.0, REFERENCE, fn(Reference) -> Reference)(self.0, *object) };
        (!own.is_null()).then_some(own)
    }

    /// # Safety
    /// It is a string.
    pub unsafe fn text<T>(self, string: Reference, of: impl FnOnce(&[u8]) -> T) -> Option<T> {
        const GET: usize = 169;
        const RELEASE: usize = 170;
        // SAFETY: as JNI declares them.
        unsafe {
            let get = function!(self.0, GET, fn(Reference, *mut c_uchar) -> *const c_char);
            let text = get(self.0, string, std::ptr::null_mut());
            if self.was_refused() || text.is_null() {
                return None;
            }
            let done = of(CStr::from_ptr(text).to_bytes());
            function!(self.0, RELEASE, fn(Reference, *const c_char) -> ())(self.0, string, text);
            Some(done)
        }
    }

    /// # Safety
    /// It is an array.
    pub unsafe fn length(self, array: Reference) -> usize {
        const LENGTH: usize = 171;
        // SAFETY: as JNI declares it.
        let length = unsafe { function!(self.0, LENGTH, fn(Reference) -> c_int)(self.0, array) };
        usize::try_from(length).unwrap_or(0)
    }

    /// # Safety
    /// It is an array of bytes, and has so many from there on.
    pub unsafe fn fill(self, array: Reference, from: usize, bytes: &[u8]) {
        const SET: usize = 208;
        // SAFETY: as JNI declares it; an array is no longer than such a number can be.
        unsafe {
            function!(self.0, SET, fn(Reference, c_int, c_int, *const u8) -> ())(
                self.0,
                array,
                from as c_int,
                bytes.len() as c_int,
                bytes.as_ptr(),
            );
        }
    }
}
