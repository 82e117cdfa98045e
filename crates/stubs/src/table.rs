//! Numbers and names of functions, and the way from a system call's number to its code.

use std::collections::{BTreeSet, HashSet};

use hindcast_interpose::model::*;
use proc_macro2::TokenStream;
use quote::quote;

use crate::syntax::{code, constant, ident, number_of, rust_type};

/// The number of the first function; below are kinds of events.
const FIRST_FUNCTION: usize = 64;

/// Functions that have a number: all that can appear in a log.
fn numbered<'a>(interfaces: &[&'a Interface]) -> Vec<&'a Function> {
    interfaces
        .iter()
        .flat_map(|interface| &interface.functions)
        .filter(|function| function.code != Code::Harmless)
        .collect()
}

/// What a report calls a function: a system call that has no symbol by the call's name.
fn shown(function: &Function) -> &str {
    match &function.code {
        Code::Kernel {
            call,
            exported: false,
        } => call,
        Code::ByHand { call: Some(call) } if function.name.starts_with("kernel_") => call,
        _ => &function.name,
    }
}

pub fn functions(interfaces: &[&Interface]) -> TokenStream {
    let functions = numbered(interfaces);
    let constants = functions.iter().map(|function| constant(function));
    let numbers = (FIRST_FUNCTION..).map(|number| code(&number.to_string()));
    let names = functions.iter().map(|function| shown(function));
    let hash = code(&format!("0x{:016x}", hash(&functions)));
    quote! {
        /// The number of a function of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Function(pub u16);

        #(pub const #constants: Function = Function(#numbers);)*
        /// By number, from the first function on.
        pub const NAMES: &[&str] = &[#(#names),*];
        /// Changes when a number or a signature does: logs of another table are refused.
        pub const TABLE_HASH: u64 = #hash;
    }
}

fn hash(functions: &[&Function]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for function in functions {
        let layout: String = function.parameters.iter().map(transferred).collect();
        let name = function.name.bytes();
        for byte in name.chain(function.signature.bytes()).chain(layout.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// What of a parameter's annotations decides how an event is laid out.
fn transferred(parameter: &Parameter) -> String {
    match &parameter.transfer {
        Transfer::Value if parameter.unchecked => ",?".to_owned(),
        Transfer::Value => ",v".to_owned(),
        Transfer::In(size) => format!(",i{}", size.text),
        Transfer::InString => ",s".to_owned(),
        Transfer::Out(size) => format!(",o{}", size.text),
        Transfer::InOut(size) => format!(",b{}", size.text),
        Transfer::Strings(count) => format!(",S{}", count.text),
        Transfer::Iovec { out, count } => format!(",I{out}{}", count.text),
        Transfer::Msghdr { out } => format!(",M{out}"),
        Transfer::Callback(_) => ",c".to_owned(),
    }
}

/// The text of `symbols.txt`: every symbol that the headers know, its interface, what is done about
/// it.
pub fn symbols(interfaces: &[Interface]) -> String {
    let mut lines = BTreeSet::new();
    let mut taken = HashSet::new();
    for interface in interfaces {
        for function in &interface.functions {
            let how = match &function.code {
                Code::Kernel {
                    exported: false, ..
                } => continue,
                Code::Kernel { .. } | Code::Library => "annotated",
                Code::ByHand { .. } => "by_hand",
                Code::Harmless => "harmless",
            };
            for symbol in function
                .symbols()
                .filter(|symbol| taken.insert(symbol.to_string()))
            {
                lines.insert(format!("{symbol} {} {how}\n", interface.name));
            }
        }
    }
    lines.into_iter().collect()
}

pub fn dispatch(interfaces: &[&Interface]) -> TokenStream {
    let modules = interfaces.iter().map(|interface| ident(&interface.name));
    let calls: Vec<_> = interfaces
        .iter()
        .flat_map(|interface| {
            interface
                .functions
                .iter()
                .map(move |function| (interface, function))
        })
        .filter_map(|(interface, function)| match &function.code {
            Code::Kernel { call, .. } => Some((number_of(call), arm(interface, function))),
            _ => None,
        })
        .collect();
    let (numbers, arms): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    quote! {
        #(pub mod #modules;)*

        use crate::functions;
        use crate::mechanism::call::Call;
        use crate::state::thread::Current;

        /// The system call `number` of a thread that trapped, through the same code as a stub's.
        /// `None`: nothing here describes it.
        ///
        /// # Safety
        /// As the system call.
        pub unsafe fn by_number(thread: &mut Current, number: i64, arguments: [usize; 6]) -> Option<isize> {
            let [a, b, c, d, e, f] = arguments;
            let _ = (d, e, f);
            unsafe { Some(match number { #(#numbers => { #arms })* _ => return None }) }
        }

        /// The system calls that [`by_number`] knows.
        #[cfg(test)]
        pub const NUMBERS: &[i64] = &[#(#numbers),*];
    }
}

/// Calls a function's core with the registers of a trap.
fn arm(interface: &Interface, function: &Function) -> TokenStream {
    let core = code(&format!("{}::core_{}", interface.name, function.name));
    let registers = ["a", "b", "c", "d", "e", "f"].map(code);
    let types = function
        .parameters
        .iter()
        .map(|parameter| rust_type(parameter.kind));
    let arguments = registers
        .iter()
        .zip(types)
        .map(|(register, kind)| quote!(#register as #kind));
    if function.reproduce {
        return quote!(#core(#(#arguments),*));
    }
    let constant = constant(function);
    quote! {
        let mut call = Call::within(thread.lend(), functions::#constant);
        let result = #core(&mut call #(, #arguments)*);
        call.finish();
        result
    }
}
